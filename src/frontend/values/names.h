// Names of Halide things as isl and Nestor want them.
#pragma once

#include <set>
#include <string>

namespace nestor {

/// Drops the "$1" that Halide appends to repeated names, writes "r$x" as "r_x", replaces what is no letter or digit, and steps
/// around isl's keywords.
std::string identifier(const std::string& halide_name);

/// Hands out names, each once: "S", "S_2", "S_3", ...
class NameTable {
 public:
  std::string take(const std::string& wanted);
  bool has(const std::string& name) const { return taken_.count(name) != 0; }

 private:
  std::set<std::string> taken_;
};

/// True when isl would read `name` as an operator or a constant.
bool is_isl_keyword(const std::string& name);

}  // namespace nestor
