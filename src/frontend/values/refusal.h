// Refusals of the front end: where in the definition, which expression, and why.
#pragma once

#include <Halide.h>

#include <sstream>
#include <string>

#include "support/error.h"

namespace nestor {

inline std::string text_of(const Halide::Expr& expr) {
  std::ostringstream out;
  out << expr;
  std::string text = out.str();
  constexpr std::size_t kLongest = 300;
  if (text.size() > kLongest) text = text.substr(0, kLongest) + " ...";
  return text;
}

/// A definition of a Func: the pure one, or an update.
struct FuncPlace {
  std::string func;
  int update = -1;  ///< -1: the pure definition
  std::string str() const {
    return update < 0 ? fmt::format("Func '{}'", func) : fmt::format("Func '{}', update {}", func, update);
  }
};

/// Throws the UserError "Func 'f', update 0: index 'x*y' of 'g': <reason>".
[[noreturn]] inline void refuse(const FuncPlace& place, const std::string& role, const Halide::Expr& expr,
                                const std::string& reason) {
  user_error("{}: {} '{}': {}", place.str(), role, text_of(expr), reason);
}

}  // namespace nestor
