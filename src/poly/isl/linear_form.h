// Integer linear forms over loop names: how a statement's dims are recovered from the loops of a schedule.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace nestor {

/// sum(coefficient * loop) + constant, over the names of the loops around a statement.
struct LinearForm {
  std::map<std::string, std::int64_t> terms;  ///< no zero coefficients
  std::int64_t constant = 0;

  static LinearForm variable(const std::string& name) { return {{{name, 1}}, 0}; }
  std::int64_t coefficient(const std::string& name) const;
  LinearForm& add(const LinearForm& other, std::int64_t factor = 1);
  /// Replaces `name` by `value`.
  LinearForm substitute(const std::string& name, const LinearForm& value) const;
  /// isl text, e.g. "64*(io) + 1*(ii) + 3"; names are passed through `rename`-free.
  std::string str() const;
  bool operator==(const LinearForm&) const = default;
};

}  // namespace nestor
