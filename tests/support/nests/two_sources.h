// One softmax over two sources of scores, as of keys in a cache and new ones.
#pragma once

#include "support/nests/half_values.h"
#include "support/nests/tensor_nests.h"

#include <string>
#include <vector>

namespace nestor::samples {

struct Sources {
  ScalarOp meeting = ScalarOp::max;
  std::string others = "k[i, c]";  ///< what the weights of the first source are made of beside its maximum
  TensorRole weights = TensorRole::temporary;
  bool sums_again = false;  ///< the first source's sum of weights is added up over rows
  bool reads_own = false;   ///< the first source's maximum is a result's operand as well
  bool infinite = true;     ///< scores are any numbers; else sines
};

/// out[i] = (sum_c exp(a - t) u[c] + sum_d exp(b - t)) / (sum_c exp(a - t) + sum_d exp(b - t)), t the largest a[i, c] and b[i, d].
inline Nest softmax_over_two(const Sources& form = {}) {
  const auto exponential = [](const ScalarExpr& value) { return samples::apply(ScalarOp::exp, value); };
  const auto score = [&](int k) { return form.infinite ? read(k) : samples::apply(ScalarOp::sin, read(k)); };
  const std::string rows = "0 <= i < R", first = rows + " and 0 <= c < C", second = rows + " and 0 <= d < D";
  NestBuilder nest("sources", {{"R", 4}, {"C", 5}, {"D", 3}});
  nest.tensor("k", TensorRole::input, {"R", "C"})
      .tensor("z", TensorRole::input, {"R", "D"})
      .tensor("u", TensorRole::input, {"C"});
  for (const char* row : {"m", "n", "t", "l", "v", "r"}) nest.tensor(row, TensorRole::temporary, {"R"});
  nest.tensor("p", form.weights, {"R", "C"}).tensor("out", TensorRole::output, {"R"}).tensor("all", TensorRole::output, {"1"});
  nest.statement("m_init[i] : " + rows, "m[i]", {}, number(-infinity()))
      .statement("m[i, c] : " + first, "m[i]", {"k[i, c]"}, score(0), ReductionOp::max)
      .statement("n_init[i] : " + rows, "n[i]", {}, number(-infinity()))
      .statement("n[i, d] : " + second, "n[i]", {"z[i, d]"}, score(0), ReductionOp::max)
      .statement("t[i] : " + rows, "t[i]", {"m[i]", "n[i]"}, ScalarExpr::make(form.meeting, {read(0), read(1)}))
      .statement("p[i, c] : " + first, "p[i, c]", {form.others, "t[i]"}, exponential(score(0) - read(1)))
      .statement("l_init[i] : " + rows, "l[i]", {}, number(0))
      .statement("l[i, c] : " + first, "l[i]", {"p[i, c]"}, read(0), ReductionOp::add)
      .statement("v_init[i] : " + rows, "v[i]", {}, number(0))
      .statement("v[i, c] : " + first, "v[i]", {"p[i, c]", "u[c]"}, read(0) * read(1), ReductionOp::add)
      .statement("r_init[i] : " + rows, "r[i]", {}, number(0))
      .statement("r[i, d] : " + second, "r[i]", {"z[i, d]", "t[i]"}, exponential(score(0) - read(1)), ReductionOp::add)
      .statement("all_init[e] : e = 0", "all[e]", {}, number(0))
      .statement("all[i] : " + rows, "all[0]",
                 {form.sums_again  ? "l[i]"
                  : form.reads_own ? "m[i]"
                                   : "t[i]"},
                 read(0), ReductionOp::add)
      .statement("out[i] : " + rows, "out[i]", {"v[i]", "r[i]", "l[i]"}, (read(0) + read(1)) / (read(2) + read(1)));
  return nest.build();
}

/// out = the mean of v and w by exp(q k / 8) and exp(q n / 8) together: k and v have `C` rows, n and w have `N`. `causal`: of the latter each row sees
/// those up to its own.
inline Nest attention_to_two(bool causal) {
  const std::string row = "0 <= i < N", cell = row + " and 0 <= d < 64";
  NestBuilder builder("two_sources", {{"C", 512}, {"N", 256}});
  builder.tensor("q", TensorRole::input, {"N", "64"}, kHalf);
  struct Source {
    std::string name, keys, values, size, seen;
  };
  const std::vector<Source> sources{{"old", "k", "v", "C", ""}, {"new", "n", "w", "N", causal ? " and j <= i" : ""}};
  for (const Source& each : sources) {
    const std::string pair = row + " and 0 <= j < " + each.size + each.seen;
    builder.tensor(each.keys, TensorRole::input, {each.size, "64"}, kHalf)
        .tensor(each.values, TensorRole::input, {each.size, "64"}, kHalf)
        .tensor(each.name, TensorRole::temporary, {"N", each.size})
        .tensor(each.name + "_score", TensorRole::temporary, {"N", each.size})
        .tensor(each.name + "_top", TensorRole::temporary, {"N"})
        .statement(each.name + "_init[i, j] : " + pair, each.name + "[i, j]", {}, number(0))
        .statement(each.name + "[i, j, e] : " + pair + " and 0 <= e < 64", each.name + "[i, j]",
                   {"q[i, e]", each.keys + "[j, e]"}, wide(0) * wide(1), ReductionOp::add)
        .statement(each.name + "_score[i, j] : " + pair, each.name + "_score[i, j]", {each.name + "[i, j]"},
                   read(0) * number(0.125))
        .statement(each.name + "_top_init[i] : " + row, each.name + "_top[i]", {}, number(-infinity()))
        .statement(each.name + "_top[i, j] : " + pair, each.name + "_top[i]", {each.name + "_score[i, j]"}, read(0),
                   ReductionOp::max);
  }
  builder.tensor("top", TensorRole::temporary, {"N"})
      .statement("top[i] : " + row, "top[i]", {"old_top[i]", "new_top[i]"}, ScalarExpr::make(ScalarOp::max, {read(0), read(1)}));
  for (const Source& each : sources) {
    const std::string pair = row + " and 0 <= j < " + each.size + each.seen;
    builder.tensor(each.name + "_weight", TensorRole::temporary, {"N", each.size})
        .tensor(each.name + "_total", TensorRole::temporary, {"N"})
        .tensor(each.name + "_sum", TensorRole::temporary, {"N", "64"})
        .statement(each.name + "_weight[i, j] : " + pair, each.name + "_weight[i, j]", {each.name + "_score[i, j]", "top[i]"},
                   apply(ScalarOp::exp, read(0) - read(1)))
        .statement(each.name + "_total_init[i] : " + row, each.name + "_total[i]", {}, number(0))
        .statement(each.name + "_total[i, j] : " + pair, each.name + "_total[i]", {each.name + "_weight[i, j]"}, read(0),
                   ReductionOp::add)
        .statement(each.name + "_sum_init[i, d] : " + cell, each.name + "_sum[i, d]", {}, number(0))
        .statement(each.name + "_sum[i, d, j] : " + pair + " and 0 <= d < 64", each.name + "_sum[i, d]",
                   {each.name + "_weight[i, j]", each.values + "[j, d]"}, read(0) * wide(1), ReductionOp::add);
  }
  return builder.tensor("out", TensorRole::output, {"N", "64"}, kHalf)
      .statement("out[i, d] : " + cell, "out[i, d]", {"old_sum[i, d]", "new_sum[i, d]", "old_total[i]", "new_total[i]"},
                 ScalarExpr::cast(kHalf, (read(0) + read(1)) / (read(2) + read(3))))
      .build();
}

}  // namespace nestor::samples
