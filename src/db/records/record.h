// Record: one trial with all it refers to, as it enters and leaves the database; its text form and its checks.
#pragma once

#include "db/records/trial_record.h"

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

namespace nestor {

struct Record {
  DeviceIdentity device;
  ProblemKey problem;
  std::string nest_json;
  TrialRecord trial;
  bool pinned = false;
};

/// "cols=1024,rows=4096": names in order.
std::string canonical_sizes(const Sizes& sizes);

/// Brings JSON texts into canonical form, fills `created` and the kernel's hash, and checks every field. Throws UserError
/// naming the first that is wrong.
void normalise(Record& record);

/// One line of a text export, without the line's end.
std::string record_to_line(const Record& record);
/// Inverse; normalised. Throws UserError naming the offending key.
Record record_from_line(std::string_view line);

}  // namespace nestor
