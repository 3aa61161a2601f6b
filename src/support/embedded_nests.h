// The operators of kernels/, extracted when Nestor was built and carried inside the program: Halide is not needed to use them.
#pragma once

#include <string_view>
#include <vector>

namespace nestor {

/// One operator in one variant, as the text of its nest file.
struct EmbeddedNest {
  std::string_view op;
  std::string_view variant;
  std::string_view json;  ///< what nest_from_json takes
};

/// All of them, grouped by operator; the first variant of an operator is its default. Empty in a build without Halide.
const std::vector<EmbeddedNest>& embedded_nests();

}  // namespace nestor
