// Small nests written by hand from isl text, for tests of every layer.
#pragma once

#include <isl/set.h>

#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "poly/nest/nest.h"

namespace nestor::samples {

/// Writes nests from short isl text: sets as "S[i, j] : 0 <= i < M", accesses as "A[i, j]" over a statement's dims.
class NestBuilder {
 public:
  NestBuilder(std::string op, const std::vector<std::pair<std::string, std::int64_t>>& sizes) {
    nest_.op = std::move(op);
    nest_.context = isl::set(isl_context(), "{ : }");
    std::string condition;
    for (const auto& [name, value] : sizes) {
      params_ += (params_.empty() ? "[" : ", ") + name;
      condition += (condition.empty() ? "" : " and ") + name + " >= 1";
      SizeParam size;
      size.name = name;
      size.default_value = value;
      nest_.sizes.push_back(size);
    }
    if (!params_.empty()) params_ += "] -> ";
    if (!condition.empty()) context(condition);
  }

  NestBuilder& context(const std::string& condition) {
    nest_.context = nest_.context.intersect(isl::set(isl_context(), params_ + "{ : " + condition + " }"));
    return *this;
  }
  NestBuilder& scalar(const std::string& name, double value) {
    nest_.scalars.push_back({name, ElementType::f32, value});
    return *this;
  }
  NestBuilder& tensor(const std::string& name, TensorRole role, const std::vector<std::string>& shape,
                      ElementType type = ElementType::f32) {
    Tensor tensor{name, type, role, {}};
    for (const std::string& extent : shape) tensor.shape.emplace_back(isl_context(), params_ + "{ [(" + extent + ")] }");
    nest_.tensors.push_back(tensor);
    return *this;
  }

  /// `domain` is "S[i, j] : condition"; `write` and `reads` are "A[i, j]"; `indices` are "i + 1".
  NestBuilder& statement(const std::string& domain, const std::string& write, const std::vector<std::string>& reads,
                         const ScalarExpr& value, std::optional<ReductionOp> reduction = std::nullopt,
                         const std::vector<std::string>& indices = {}) {
    const std::string instance = domain.substr(0, domain.find(']') + 1);
    Statement result{instance.substr(0, instance.find('[')),
                     {},
                     isl::set(isl_context(), params_ + "{ " + domain + " }"),
                     access(instance, write),
                     {},
                     {},
                     value,
                     reduction,
                     static_cast<int>(nest_.statements.size())};
    for (unsigned k = 0; k < result.domain.tuple_dim(); ++k) {
      result.dims.emplace_back(isl_set_get_dim_name(result.domain.get(), isl_dim_set, k));
    }
    for (const std::string& read : reads) result.reads.push_back(access(instance, read));
    for (const std::string& index : indices) {
      result.indices.emplace_back(isl_context(), params_ + "{ " + instance + " -> [(" + index + ")] }");
    }
    nest_.statements.push_back(result);
    return *this;
  }

  /// The last two statements become one group.
  NestBuilder& join_last() {
    nest_.statements.back().group = nest_.statements[nest_.statements.size() - 2].group;
    return *this;
  }
  Nest build() const { return nest_; }

 private:
  Access access(const std::string& instance, const std::string& element) const {
    return {element.substr(0, element.find('[')), isl::map(isl_context(), params_ + "{ " + instance + " -> " + element + " }")};
  }

  Nest nest_;
  std::string params_;
};

inline ScalarExpr number(double value) { return ScalarExpr::constant(value); }
inline ScalarExpr read(int ordinal, ElementType type = ElementType::f32) { return ScalarExpr::read(ordinal, type); }
inline ScalarExpr operator+(const ScalarExpr& a, const ScalarExpr& b) { return ScalarExpr::make(ScalarOp::add, {a, b}); }
inline ScalarExpr operator-(const ScalarExpr& a, const ScalarExpr& b) { return ScalarExpr::make(ScalarOp::sub, {a, b}); }
inline ScalarExpr operator*(const ScalarExpr& a, const ScalarExpr& b) { return ScalarExpr::make(ScalarOp::mul, {a, b}); }
inline ScalarExpr operator/(const ScalarExpr& a, const ScalarExpr& b) { return ScalarExpr::make(ScalarOp::div, {a, b}); }
inline ScalarExpr apply(ScalarOp op, const ScalarExpr& a) { return ScalarExpr::make(op, {a}); }
inline double infinity() { return std::numeric_limits<double>::infinity(); }

/// C[i, j] = sum over k of A[i, k] * B[k, j].
inline Nest matmul(std::int64_t m = 5, std::int64_t n = 6, std::int64_t k = 7) {
  return NestBuilder("matmul", {{"M", m}, {"N", n}, {"K", k}})
      .tensor("A", TensorRole::input, {"M", "K"})
      .tensor("B", TensorRole::input, {"K", "N"})
      .tensor("C", TensorRole::output, {"M", "N"})
      .statement("C_init[i, j] : 0 <= i < M and 0 <= j < N", "C[i, j]", {}, number(0))
      .statement("C_update[i, j, k] : 0 <= i < M and 0 <= j < N and 0 <= k < K", "C[i, j]", {"A[i, k]", "B[k, j]"},
                 read(0) * read(1), ReductionOp::add)
      .build();
}

/// Row-wise normalisation: mean = sum of x / cols, variance = sum of (x - mean)^2 / cols, out = (x - mean) * rsqrt(variance + eps).
inline Nest row_norm(std::int64_t rows = 4, std::int64_t cols = 9) {
  const ScalarExpr count = ScalarExpr::cast(ElementType::f32, ScalarExpr::index(0));
  const ScalarExpr centred = read(0) - read(1);
  return NestBuilder("row_norm", {{"rows", rows}, {"cols", cols}})
      .scalar("eps", 1e-5)
      .tensor("x", TensorRole::input, {"rows", "cols"})
      .tensor("mean", TensorRole::temporary, {"rows"})
      .tensor("variance", TensorRole::temporary, {"rows"})
      .tensor("out", TensorRole::output, {"rows", "cols"})
      .statement("mean_init[i] : 0 <= i < rows", "mean[i]", {}, number(0))
      .statement("mean_update[i, k] : 0 <= i < rows and 0 <= k < cols", "mean[i]", {"x[i, k]"}, read(0) / count, ReductionOp::add,
                 {"cols"})
      .statement("variance_init[i] : 0 <= i < rows", "variance[i]", {}, number(0))
      .statement("variance_update[i, k] : 0 <= i < rows and 0 <= k < cols", "variance[i]", {"x[i, k]", "mean[i]"},
                 centred * centred / count, ReductionOp::add, {"cols"})
      .statement("out[i, j] : 0 <= i < rows and 0 <= j < cols", "out[i, j]", {"x[i, j]", "mean[i]", "variance[i]"},
                 centred * apply(ScalarOp::rsqrt, read(2) + ScalarExpr::scalar("eps", ElementType::f32)))
      .build();
}

/// Gradients of a row operator: s_i = sum over k of dy x w, dx = dy w - x s, and sums over rows, dw = dy x and db = dy. `cols` is
/// fixed when compiling.
inline Nest row_gradient(std::int64_t rows = 9, std::int64_t cols = 5) {
  const std::string row = "0 <= r < rows", column = "0 <= c < cols";
  Nest nest = NestBuilder("row_gradient", {{"rows", rows}, {"cols", cols}})
                  .tensor("dy", TensorRole::input, {"rows", "cols"})
                  .tensor("x", TensorRole::input, {"rows", "cols"})
                  .tensor("w", TensorRole::input, {"cols"})
                  .tensor("s", TensorRole::temporary, {"rows"})
                  .tensor("dx", TensorRole::output, {"rows", "cols"})
                  .tensor("dw", TensorRole::output, {"cols"})
                  .tensor("db", TensorRole::output, {"cols"})
                  .statement("s_init[r] : " + row, "s[r]", {}, number(0))
                  .statement("s_update[r, c] : " + row + " and " + column, "s[r]", {"dy[r, c]", "x[r, c]", "w[c]"},
                             read(0) * read(1) * read(2), ReductionOp::add)
                  .statement("dx[r, c] : " + row + " and " + column, "dx[r, c]", {"dy[r, c]", "w[c]", "x[r, c]", "s[r]"},
                             read(0) * read(1) - read(2) * read(3))
                  .statement("dw_init[c] : " + column, "dw[c]", {}, number(0))
                  .statement("dw_update[c, r] : " + row + " and " + column, "dw[c]", {"dy[r, c]", "x[r, c]"}, read(0) * read(1),
                             ReductionOp::add)
                  .statement("db_init[c] : " + column, "db[c]", {}, number(0))
                  .statement("db_update[c, r] : " + row + " and " + column, "db[c]", {"dy[r, c]"}, read(0), ReductionOp::add)
                  .build();
  nest.sizes[1].specialized = true;
  return nest;
}

/// How scores_softmax_values leaves out columns j > i: not at all, by its domains, or by -inf scores through a select.
enum class Mask { none, domain, select };

/// QK = Q K^T, S = scale * QK (masked), Mx = max over j of S, P = exp(S - Mx), L = sum of P, PV = P V, O = PV / L.
inline Nest scores_softmax_values(Mask mask = Mask::none, std::int64_t rows = 6, std::int64_t cols = 6, std::int64_t depth = 4) {
  const std::string row = "0 <= i < R";
  const std::string pair = row + " and 0 <= j < C" + (mask == Mask::domain ? " and j <= i" : "");
  const ScalarExpr scaled = read(0) * ScalarExpr::scalar("scale", ElementType::f32);
  const ScalarExpr allowed = ScalarExpr::make(ScalarOp::le, {ScalarExpr::index(0), ScalarExpr::index(1)});
  const bool select = mask == Mask::select;
  const ScalarExpr score = select ? ScalarExpr::make(ScalarOp::select, {allowed, scaled, number(-infinity())}) : scaled;
  const std::vector<std::string> indices = select ? std::vector<std::string>{"j", "i"} : std::vector<std::string>{};
  return NestBuilder("scores_softmax_values", {{"R", rows}, {"C", cols}, {"D", depth}})
      .scalar("scale", 0.5)
      .tensor("Q", TensorRole::input, {"R", "D"})
      .tensor("K", TensorRole::input, {"C", "D"})
      .tensor("V", TensorRole::input, {"C", "D"})
      .tensor("QK", TensorRole::temporary, {"R", "C"})
      .tensor("S", TensorRole::temporary, {"R", "C"})
      .tensor("Mx", TensorRole::temporary, {"R"})
      .tensor("P", TensorRole::temporary, {"R", "C"})
      .tensor("L", TensorRole::temporary, {"R"})
      .tensor("PV", TensorRole::temporary, {"R", "D"})
      .tensor("O", TensorRole::output, {"R", "D"})
      .statement("QK_init[i, j] : " + pair, "QK[i, j]", {}, number(0))
      .statement("QK_update[i, j, d] : " + pair + " and 0 <= d < D", "QK[i, j]", {"Q[i, d]", "K[j, d]"}, read(0) * read(1),
                 ReductionOp::add)
      .statement("S[i, j] : " + pair, "S[i, j]", {"QK[i, j]"}, score, std::nullopt, indices)
      .statement("Mx_init[i] : " + row, "Mx[i]", {}, number(-infinity()))
      .statement("Mx_update[i, j] : " + pair, "Mx[i]", {"S[i, j]"}, read(0), ReductionOp::max)
      .statement("P[i, j] : " + pair, "P[i, j]", {"S[i, j]", "Mx[i]"}, apply(ScalarOp::exp, read(0) - read(1)))
      .statement("L_init[i] : " + row, "L[i]", {}, number(0))
      .statement("L_update[i, j] : " + pair, "L[i]", {"P[i, j]"}, read(0), ReductionOp::add)
      .statement("PV_init[i, d] : " + row + " and 0 <= d < D", "PV[i, d]", {}, number(0))
      .statement("PV_update[i, d, j] : " + pair + " and 0 <= d < D", "PV[i, d]", {"P[i, j]", "V[j, d]"}, read(0) * read(1),
                 ReductionOp::add)
      .statement("O[i, d] : " + row + " and 0 <= d < D", "O[i, d]", {"PV[i, d]", "L[i]"}, read(0) / read(1))
      .build();
}

/// B = 2 x on the points [i, j] of an R x C grid where `mask` holds (over i, j and the sizes R, C, P), in two statements.
inline Nest masked_points(const std::string& mask, std::int64_t rows = 7, std::int64_t cols = 7, std::int64_t prefix = 3) {
  const std::string pair = "0 <= i < R and 0 <= j < C and (" + mask + ")";
  return NestBuilder("masked_points", {{"R", rows}, {"C", cols}, {"P", prefix}})
      .tensor("x", TensorRole::input, {"R", "C"})
      .tensor("A", TensorRole::temporary, {"R", "C"})
      .tensor("B", TensorRole::output, {"R", "C"})
      .statement("A[i, j] : " + pair, "A[i, j]", {"x[i, j]"}, read(0))
      .statement("B[i, j] : " + pair, "B[i, j]", {"A[i, j]"}, read(0) + read(0))
      .build();
}

/// T steps of a five-point average on a Y x X grid with fixed borders; A keeps every step.
inline Nest stencil2d(std::int64_t steps = 3, std::int64_t height = 6, std::int64_t width = 7) {
  const std::string grid = "0 <= y < Y and 0 <= x < X";
  const ScalarExpr sum = read(0) + read(1) + read(2) + read(3) + read(4);
  return NestBuilder("stencil2d", {{"T", steps}, {"Y", height}, {"X", width}})
      .context("Y >= 3 and X >= 3")
      .tensor("in", TensorRole::input, {"Y", "X"})
      .tensor("A", TensorRole::temporary, {"T + 1", "Y", "X"})
      .tensor("result", TensorRole::output, {"Y", "X"})
      .statement("start[y, x] : " + grid, "A[0, y, x]", {"in[y, x]"}, read(0))
      .statement("border[t, y, x] : 1 <= t <= T and " + grid + " and (y = 0 or y = Y - 1 or x = 0 or x = X - 1)", "A[t, y, x]",
                 {"in[y, x]"}, read(0))
      .statement("step[t, y, x] : 1 <= t <= T and 1 <= y < Y - 1 and 1 <= x < X - 1", "A[t, y, x]",
                 {"A[t - 1, y, x]", "A[t - 1, y - 1, x]", "A[t - 1, y + 1, x]", "A[t - 1, y, x - 1]", "A[t - 1, y, x + 1]"},
                 sum * number(0.2))
      .statement("finish[y, x] : " + grid, "result[y, x]", {"A[T, y, x]"}, read(0))
      .build();
}

/// T sweeps of a five-point average in place.
inline Nest seidel(std::int64_t steps = 3, std::int64_t height = 6, std::int64_t width = 7) {
  const ScalarExpr sum = read(0) + read(1) + read(2) + read(3) + read(4);
  return NestBuilder("seidel", {{"T", steps}, {"Y", height}, {"X", width}})
      .context("Y >= 3 and X >= 3")
      .tensor("in", TensorRole::input, {"Y", "X"})
      .tensor("A", TensorRole::output, {"Y", "X"})
      .statement("start[y, x] : 0 <= y < Y and 0 <= x < X", "A[y, x]", {"in[y, x]"}, read(0))
      .statement("sweep[t, y, x] : 0 <= t < T and 1 <= y < Y - 1 and 1 <= x < X - 1", "A[y, x]",
                 {"A[y, x]", "A[y - 1, x]", "A[y + 1, x]", "A[y, x - 1]", "A[y, x + 1]"}, sum * number(0.2))
      .build();
}

}  // namespace nestor::samples
