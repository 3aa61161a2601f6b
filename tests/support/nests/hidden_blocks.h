// Attention of whose scores data hides whole blocks: packed documents, data that rises, chosen blocks, padding.
#pragma once

#include "support/nests/tensor_nests.h"

#include <limits>
#include <string>
#include <vector>

namespace nestor::testing {

/// Where a query sees a key: of the same document; with a number that is no larger; either of the first or of the same document; in a chosen block;
/// in a row of keys that is not padding.
enum class Shown { documents, rising, documents_or_first, blocks, keys };

/// attention_nest with scores of -inf where they are not shown: by own[i] and other[j], or by chosen[h, i / 64, j / 64].
inline Nest hidden_attention(Shown shown, const AttentionForm& form = {.depth = 64}) {
  using namespace samples;
  Nest nest = attention_nest(form);
  nest.tolerance = 2e-3;  // results are f16
  const std::string names = "[H, Q, K" + std::string(has_window(form.seen) ? ", W" : "") + "]";
  const auto add_tensor = [&](const std::string& name, ElementType type, const std::vector<std::string>& shape) {
    Tensor tensor{name, type, TensorRole::input, {}, {}};
    for (const std::string& extent : shape) tensor.shape.emplace_back(isl_context(), names + " -> { [(" + extent + ")] }");
    nest.tensors.insert(nest.tensors.begin(), tensor);
  };
  const bool chosen = shown == Shown::blocks;
  if (chosen) {
    add_tensor("chosen", ElementType::boolean, {"H", "Q", "K"});
  } else {
    if (shown != Shown::keys) add_tensor("own", ElementType::i32, {"Q"});
    add_tensor("other", ElementType::i32, {"K"});
  }
  for (Statement& statement : nest.statements) {
    if (statement.name != "score") continue;
    const auto element = [&](const std::string& at, ElementType type) {
      statement.reads.push_back(
          {at.substr(0, at.find('[')), isl::map(isl_context(), names + " -> { score[h, i, j] -> " + at + " }")});
      return read(static_cast<int>(statement.reads.size()) - 1, type);
    };
    const auto apply_to = [](ScalarOp op, const ScalarExpr& a, const ScalarExpr& b) { return ScalarExpr::make(op, {a, b}); };
    ScalarExpr seen;
    if (chosen) {
      seen = element("chosen[h, floor(i/64), floor(j/64)]", ElementType::boolean);
    } else {
      const ScalarExpr other = element("other[j]", ElementType::i32);
      const ScalarExpr own =
          shown == Shown::keys ? ScalarExpr::constant(0, ElementType::i32) : element("own[i]", ElementType::i32);
      seen = apply_to(shown == Shown::rising ? ScalarOp::le : ScalarOp::eq, shown == Shown::rising ? other : own,
                      shown == Shown::rising ? own : other);
    }
    if (shown == Shown::documents_or_first) {
      statement.indices.push_back(isl::pw_aff(isl_context(), names + " -> { score[h, i, j] -> [(j)] }"));
      const int j = static_cast<int>(statement.indices.size()) - 1;
      seen = apply_to(ScalarOp::logical_or, seen,
                      apply_to(ScalarOp::lt, ScalarExpr::index(j), ScalarExpr::constant(5, ElementType::i32)));
    }
    statement.value =
        ScalarExpr::make(ScalarOp::select, {seen, statement.value, number(-std::numeric_limits<double>::infinity())});
  }
  validate(nest);
  return nest;
}

}  // namespace nestor::testing
