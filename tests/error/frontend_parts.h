// Parts of small definitions that the front end refuses.
#pragma once

#include "frontend/halide_frontend.h"
#include "support/error_text.h"

#include <string>

namespace nestor::testing {

struct FrontendParts {
  Halide::Param<int> n{"n"}, m{"m"};
  Halide::ImageParam x{Halide::Float(32), 1, "x"}, at{Halide::Int(32), 1, "at"};
  Halide::Var i{"i"}, j{"j"};
  Halide::Func out{"out"};
  HalideDefinition define() const { return {.op = "bad", .variant = "test", .outputs = {{out, {n}}}, .sizes = {{n, 8}, {m, 8}}}; }
};

/// Why the definition is refused.
inline std::string frontend_refusal(const HalideDefinition& definition) {
  return test::message_of([&] { extract_nest(definition); });
}

}  // namespace nestor::testing
