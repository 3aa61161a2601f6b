// Reads text records from a stream: lines that stand alone, and lines that share nests and leave their code to a pack.
#pragma once

#include "db/records/record.h"

#include <cstdint>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>

namespace nestor {

class RecordReader {
 public:
  /// `in` must live as long as the reader.
  explicit RecordReader(std::istream& in) : in_(in) {}
  /// The next record, normalised; nullopt at the end. The code of a kernel in a pack is "". Throws UserError with the line's number.
  std::optional<Record> next();
  /// Number of the line just read, from 1.
  std::int64_t line() const { return line_; }

 private:
  std::optional<Record> record_of(std::string_view line);

  std::istream& in_;
  std::int64_t line_ = 0;
  std::map<std::string, std::string> nests_;  ///< JSON by digest
};

}  // namespace nestor
