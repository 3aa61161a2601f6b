// Attention with a mask in a tensor: by keys, or by queries and keys.
#pragma once

#include "poly/nest/nest.h"
#include "support/nests/tensor_nests.h"

#include <limits>
#include <string>
#include <vector>

namespace nestor::testing {

/// attention_nest with scores of -inf, or of a finite number, where mask[h, j] (or mask[h, i, j]) is 0.
struct MaskForm {
  ElementType type = ElementType::boolean;
  bool by_query = false;
  double hidden = -std::numeric_limits<double>::infinity();
  int depth = 16;
};

inline Nest masked_attention(const MaskForm& form, Seen seen = Seen::all) {
  Nest nest = attention_nest({.seen = seen, .depth = form.depth});
  const std::vector<std::string> shape =
      form.by_query ? std::vector<std::string>{"H", "Q", "K"} : std::vector<std::string>{"H", "K"};
  Tensor mask{"mask", form.type, TensorRole::input, {}};
  for (const std::string& extent : shape) mask.shape.emplace_back(isl_context(), "[H, Q, K] -> { [(" + extent + ")] }");
  nest.tensors.insert(nest.tensors.begin(), mask);
  for (Statement& statement : nest.statements) {
    if (statement.name != "score") continue;
    const std::string at = form.by_query ? "mask[h, i, j]" : "mask[h, j]";
    statement.reads.push_back({"mask", isl::map(isl_context(), "[H, Q, K] -> { score[h, i, j] -> " + at + " }")});
    const ScalarExpr element = samples::read(static_cast<int>(statement.reads.size()) - 1, form.type);
    const ScalarExpr seen_key =
        form.type == ElementType::boolean
            ? element
            : ScalarExpr::make(ScalarOp::logical_not,
                               {ScalarExpr::make(ScalarOp::eq, {ScalarExpr::cast(ElementType::i32, element),
                                                                ScalarExpr::constant(0, ElementType::i32)})});
    statement.value = ScalarExpr::make(ScalarOp::select, {seen_key, statement.value, samples::number(form.hidden)});
  }
  validate(nest);
  return nest;
}

}  // namespace nestor::testing
