// Records line by line; nests are kept for the records that name them.
#include "db/records/record_reader.h"

#include "support/error.h"
#include "support/system/text_file.h"

#include <istream>

namespace nestor {

std::optional<Record> RecordReader::record_of(std::string_view line) {
  RecordLine parsed = record_line_from(line);
  if (!parsed.record) {
    const auto [known, fresh] = nests_.emplace(parsed.nest_digest, parsed.nest_json);
    if (!fresh && known->second != parsed.nest_json) user_error("nest {} is defined twice, and differently", parsed.nest_digest);
    return std::nullopt;
  }
  Record record = std::move(*parsed.record);
  if (!parsed.shares_nest) return record;
  const auto nest = nests_.find(record.problem.nest_digest);
  if (nest == nests_.end()) user_error("nest {} is not defined by a line before this one", record.problem.nest_digest);
  record.nest_json = nest->second;
  return record;
}

std::optional<Record> RecordReader::next() {
  for (std::string line;;) {
    try {
      ++line_;
      if (!read_line(in_, line)) break;
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      if (auto record = record_of(line)) return record;
    } catch (const UserError& error) {
      user_error("line {}: {}", line_, error.what());
    }
  }
  --line_;
  if (in_.bad()) user_error("reading failed after line {}", line_);
  return std::nullopt;
}

}  // namespace nestor
