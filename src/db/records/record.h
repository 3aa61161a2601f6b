// Record: one trial with all it refers to, as it enters and leaves the database; its text form and its checks.
#pragma once

#include "db/records/trial_record.h"

#include <nlohmann/json.hpp>

#include <optional>
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
void normalise(Record& record, CodePlace code = CodePlace::record);

/// Digest of all that a record says but its pin and its signature: 64 digits. The record is normalised. Code and recipe are in it by the
/// kernel's hash, the nest by its digest: one nest has many texts.
std::string seal_of(const Record& record);

/// Throws UserError when arrays and objects are nested more than some hundred deep: what reads them would run out of stack.
void require_shallow(std::string_view json_text, const char* what);

/// One line of a text export, without the line's end. It stands alone: format 1.
std::string record_to_line(const Record& record);

/// Lines of format 2: a nest, and a record that names its nest by digest and leaves the kernel's code to a pack.
std::string nest_to_line(const std::string& digest, const std::string& nest_json);
std::string record_to_packed_line(const Record& record);

/// A line of either format: a record, or else a nest.
struct RecordLine {
  std::optional<Record> record = {};  ///< normalised; its nest_json is "null" when it shares a nest
  bool shares_nest = false;
  std::string nest_digest = {}, nest_json = {};  ///< of a nest
};
/// Throws UserError naming the offending key.
RecordLine record_line_from(std::string_view line);

}  // namespace nestor
