// Counts of reduction points that a composite's formulas use.
#pragma once

#include "codegen/proof/model/subject.h"
#include "codegen/proof/model/values.h"

namespace nestor::proof {

/// Shows that the indices in `uses` are what they count, at all instances of `run`: points of the lead that were accumulated into the
/// element `lead_element`, { [loops, dims] -> LeadTensor[element] }, before or through the current step of `lead`, or in all.
void prove_counts(const Subject& subject, const Composite& composite, const Run& lead, const Run& run, const OpMember& member,
                  const isl::map& lead_element, const std::vector<CountUse>& uses);

}  // namespace nestor::proof
