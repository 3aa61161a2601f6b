// What a buffer holds when a run reads it.
#pragma once

#include "codegen/proof/model/program_model.h"

namespace nestor::proof {

/// An argument that holds an input's elements: values from the start.
bool holds_input(const Buffer& buffer);

/// { [place] }: all places of a buffer, in the space of a member's sizes.
isl::set whole_buffer(const ProgramModel& model, const OpMember& member, int buffer);

/// The part of `wanted`, { [loops of `reader`] -> [place] }, that no instance and no filling writes before the reader's op starts, in the
/// same iteration of the loops that it shares with the writer. Writers in earlier iterations are left out of account.
isl::map unwritten_before(const ProgramModel& model, const Run& reader, int buffer, const isl::map& wanted);

}  // namespace nestor::proof
