// The oracle gives what a nest's definition means: compared with a slow evaluation that asks isl for every point.
#include "autotune/oracle/oracle.h"
#include "db/devices/host_identity.h"

#include "autotune/oracle/code/value_code.h"
#include "autotune/oracle/reference.h"
#include "poly/nest/scalar_semantics.h"
#include "support/element_codec.h"
#include "support/error.h"
#include "support/nests/sample_nests.h"

#include <gtest/gtest.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>

namespace nestor {
namespace {

using samples::Mask;
using Element = std::vector<std::int64_t>;
using Memory = std::map<std::string, std::map<Element, double>>;

isl::set at_sizes(isl::set set, const Sizes& sizes) {
  for (const auto& [name, value] : sizes) {
    const int position = isl_set_find_dim_by_name(set.get(), isl_dim_param, name.c_str());
    if (position >= 0) set = isl::manage(isl_set_fix_si(set.release(), isl_dim_param, position, static_cast<int>(value)));
  }
  return set;
}

Element coordinates(const isl::point& point) {
  Element result;
  const int count = static_cast<int>(isl_space_dim(isl::manage(isl_point_get_space(point.get())).get(), isl_dim_set));
  for (int k = 0; k < count; ++k) {
    isl_val* value = isl_point_get_coordinate_val(point.get(), isl_dim_set, k);
    result.push_back(isl_val_get_num_si(value));
    isl_val_free(value);
  }
  return result;
}

std::vector<Element> points_of(const isl::set& set) {
  std::vector<Element> result;
  set.foreach_point([&](isl::point point) { result.push_back(coordinates(point)); });
  std::sort(result.begin(), result.end());
  return result;
}

/// Image of one instance under a relation: nothing or one element.
std::vector<Element> image(const isl::map& relation, const Element& dims, const Sizes& sizes) {
  isl::set instance = relation.domain();
  for (std::size_t k = 0; k < dims.size(); ++k) {
    instance = isl::manage(isl_set_fix_si(instance.release(), isl_dim_set, k, static_cast<int>(dims[k])));
  }
  return points_of(at_sizes(instance.apply(relation), sizes));
}

/// Executes the definition literally.
Memory literally(const Nest& nest, const Sizes& sizes, const HostTensors& inputs) {
  Memory memory;
  const auto shape_of = [&](const std::string& name) { return shape_at(nest.tensor(name), sizes); };
  const auto load = [&](const std::string& tensor, const Element& at) {
    if (nest.tensor(tensor).role != TensorRole::input) return memory[tensor].at(at);
    std::int64_t linear = 0;
    const auto shape = shape_of(tensor);
    for (std::size_t k = 0; k < at.size(); ++k) linear = linear * shape[k] + at[k];
    return inputs.at(tensor).get(linear);
  };
  for (std::size_t first = 0; first < nest.statements.size();) {
    std::vector<std::pair<Element, std::size_t>> instances;
    std::size_t last = first;
    for (; last < nest.statements.size() && nest.statements[last].group == nest.statements[first].group; ++last) {
      for (Element& dims : points_of(at_sizes(nest.statements[last].domain, sizes)))
        instances.emplace_back(std::move(dims), last);
    }
    std::sort(instances.begin(), instances.end());
    for (const auto& [dims, s] : instances) {
      const Statement& statement = nest.statements[s];
      const auto read = [&, &dims = dims](int k) {
        const auto at = image(statement.reads[k].relation, dims, sizes);
        return at.empty() ? 0 : load(statement.reads[k].tensor, at[0]);
      };
      const auto index = [&, &dims = dims](int k) {
        return image(isl::manage(isl_map_from_pw_aff(statement.indices[k].copy())), dims, sizes).at(0).at(0);
      };
      const auto scalar = [&](const std::string& name) {
        return std::find_if(nest.scalars.begin(), nest.scalars.end(), [&](const auto& p) { return p.name == name; })
            ->default_value;
      };
      const double value = evaluate(statement.value, read, index, scalar);
      auto& place = memory[statement.write.tensor];
      const Element at = image(statement.write.relation, dims, sizes).at(0);
      if (!statement.reduction) {
        place[at] = value;
      } else {
        const auto old = place.find(at);
        const double before = old == place.end() ? neutral_element(*statement.reduction, ElementType::f32) : old->second;
        place[at] = combine(*statement.reduction, before, value);
      }
    }
    first = last;
  }
  return memory;
}

/// The same with numbers of f32 alone, as the oracle has them.
Nest in_f32(Nest nest) {
  const auto rounded = [](double number) { return static_cast<double>(static_cast<float>(number)); };
  for (ScalarParam& scalar : nest.scalars) scalar.default_value = rounded(scalar.default_value);
  for (Statement& statement : nest.statements) {
    statement.value = statement.value.rewrite([&](const ScalarExpr& node) {
      const bool wide = node.op() == ScalarOp::constant && node.type() == ElementType::f32;
      return wide ? ScalarExpr::constant(rounded(node.number())) : node;
    });
  }
  return nest;
}

void expect_agreement(const Nest& definition, bool backward) {
  const Nest nest = in_f32(definition);
  const Sizes sizes = complete_sizes(nest, {});
  const HostTensors inputs = make_arguments(nest, sizes, 3);
  Memory expected = literally(nest, sizes, inputs);
  Reference reference(nest, sizes, {}, inputs);
  if (backward) {
    ASSERT_TRUE(reference.backward_possible());
  } else {
    reference.evaluate_all(1e9);
  }
  for (const Tensor& tensor : nest.tensors) {
    if (tensor.role == TensorRole::input || (backward && tensor.role == TensorRole::temporary)) continue;
    const auto shape = shape_at(tensor, sizes);
    for (const auto& [at, value] : expected[tensor.name]) {
      std::int64_t linear = 0;
      for (std::size_t k = 0; k < at.size(); ++k) linear = linear * shape[k] + at[k];
      const auto got = reference.value(tensor.name, linear, 1e9);
      ASSERT_TRUE(got.has_value()) << tensor.name << " " << linear;
      ASSERT_NEAR(*got, value, 1e-12 * (1 + std::fabs(value))) << tensor.name << " " << linear;
    }
  }
}

/// Pairs per group of rows, a read through a division, and a reversed write.
Nest strided() {
  using samples::read;
  return samples::NestBuilder("strided", {{"N", 10}})
      .context("N >= 2")
      .tensor("x", TensorRole::input, {"N"})
      .tensor("t", TensorRole::temporary, {"N"})
      .tensor("y", TensorRole::output, {"N"})
      .statement("t[i] : 0 <= i < N", "t[N - 1 - i]", {"x[floor(i / 3)]"}, read(0))
      .statement("y[i] : 0 <= i < N", "y[i]", {"t[i]", "t[i - (i mod 2)]"}, ScalarExpr::make(ScalarOp::sub, {read(0), read(1)}))
      .build();
}

/// Sums over columns of what is left of each element after the sum of its row.
Nest column_sums(std::int64_t rows, std::int64_t columns) {
  using samples::read, samples::operator*;
  const auto zero = samples::number(0);
  return samples::NestBuilder("column_sums", {{"N", rows}, {"M", columns}})
      .context("N >= 1 and M >= 1")
      .tensor("x", TensorRole::input, {"N", "M"})
      .tensor("squares", TensorRole::temporary, {"N", "M"})
      .tensor("sum", TensorRole::temporary, {"N"})
      .tensor("left", TensorRole::temporary, {"N", "M"})
      .tensor("y", TensorRole::output, {"M"})
      .statement("s[i, j] : 0 <= i < N and 0 <= j < M", "squares[i, M - 1 - j]", {"x[i, j]"}, read(0) * read(0))
      .statement("z[i] : 0 <= i < N", "sum[i]", {}, zero)
      .statement("a[i, j] : 0 <= i < N and 0 <= j < M", "sum[i]", {"squares[i, j]"}, read(0), ReductionOp::add)
      .statement("l[i, j] : 0 <= i < N and 0 <= j < M", "left[i, j]", {"squares[i, j]", "sum[i]"},
                 ScalarExpr::make(ScalarOp::sub, {read(0), read(1)}))
      .statement("zy[j] : 0 <= j < M", "y[j]", {}, zero)
      .statement("c[j, i] : 0 <= i < N and 0 <= j < M", "y[j]", {"left[i, j]"}, read(0), ReductionOp::add)
      .build();
}

/// Sums of what stands at and before each element, read backwards: reads beyond the first one do not exist.
Nest backwards(std::int64_t n) {
  using samples::read, samples::operator*, samples::operator+;
  return samples::NestBuilder("backwards", {{"N", n}})
      .context("N >= 1")
      .tensor("x", TensorRole::input, {"N"})
      .tensor("t", TensorRole::temporary, {"N"})
      .tensor("y", TensorRole::output, {"N"})
      .statement("s[i] : 0 <= i < N", "t[i]", {"x[i]"}, read(0) * read(0) + samples::number(1))
      .statement("z[j] : 0 <= j < N", "y[j]", {}, samples::number(0))
      .statement("a[j, k] : 0 <= j < N and 0 <= k < N", "y[j]", {"t[j - k] : 0 <= j - k"}, read(0), ReductionOp::add)
      .build();
}

/// A copy, of which a second statement replaces every third element from the second: none where N is 1.
Nest every_third(std::int64_t n) {
  using samples::read, samples::operator+;
  return samples::NestBuilder("every_third", {{"N", n}})
      .context("N >= 1")
      .tensor("x", TensorRole::input, {"N"})
      .tensor("y", TensorRole::output, {"N"})
      .statement("c[i] : 0 <= i < N", "y[i]", {"x[i]"}, read(0))
      .statement("u[i] : 0 <= i < N and exists(k : i = 3k + 1)", "y[i]", {"y[floor(i / 3)]", "x[i]"}, read(0) + read(1))
      .build();
}

/// Sums of differences of x, of which those far apart read its first element: none where N is at most 9.
Nest far_apart(std::int64_t n) {
  using samples::read, samples::operator+;
  return samples::NestBuilder("far_apart", {{"N", n}})
      .context("N >= 1")
      .tensor("x", TensorRole::input, {"N"})
      .tensor("y", TensorRole::output, {"N", "N"})
      .statement("n[i, j] : 0 <= i < N and 0 <= j < N", "y[i, j]", {"x[i]"}, read(0))
      .statement("f[i, j] : 0 <= j and j + 9 <= i < N", "y[i, j]", {"x[0]", "x[i - j - 9]"}, read(0) + read(1))
      .build();
}

TEST(Oracle, StatementsMayHaveNoPoints) {
  for (const std::int64_t n : {1, 2, 11}) {
    expect_agreement(every_third(n), false);
    expect_agreement(far_apart(n), false);
    expect_agreement(far_apart(n), true);
  }
}

TEST(Oracle, WholeEvaluationFollowsTheDefinition) {
  expect_agreement(samples::matmul(), false);
  expect_agreement(samples::row_norm(), false);
  expect_agreement(samples::scores_softmax_values(), false);
  expect_agreement(samples::scores_softmax_values(Mask::domain), false);
  expect_agreement(samples::stencil2d(), false);
  expect_agreement(samples::seidel(), false);
  expect_agreement(strided(), false);
}

TEST(Oracle, BackwardEvaluationFollowsTheDefinition) {
  expect_agreement(samples::matmul(), true);
  expect_agreement(samples::row_norm(), true);
  expect_agreement(samples::scores_softmax_values(), true);
  expect_agreement(samples::scores_softmax_values(Mask::domain), true);
  expect_agreement(samples::scores_softmax_values(Mask::select), true);
  expect_agreement(strided(), true);
}

TEST(Oracle, RowsLongerThanOneChunkAreEvaluatedWhole) {
  expect_agreement(samples::row_norm(2, 2 * kChunk + 5), true);
  expect_agreement(samples::row_norm(2, 2 * kChunk + 5), false);
}

TEST(Oracle, TemporariesOfSinglePointsAreEvaluatedInRows) {
  for (const bool backward : {false, true}) {
    expect_agreement(column_sums(5, 3), backward);
    expect_agreement(column_sums(kChunk + 3, 2), backward);
    expect_agreement(column_sums(2, kChunk + 3), backward);
    expect_agreement(backwards(9), backward);
  }
}

TEST(Oracle, InPlaceNestsAreEvaluatedInOriginalOrderOnly) {
  const Nest nest = samples::seidel();
  const Sizes sizes = complete_sizes(nest, {});
  const HostTensors inputs = make_arguments(nest, sizes, 1);
  EXPECT_FALSE(Reference(nest, sizes, {}, inputs).backward_possible());
  EXPECT_EQ(reference_samples(nest, sizes, {}, inputs, 10, 1).size(), 42u);
}

TEST(Oracle, LargeProblemsAreSampledQuickly) {
  const auto start = std::chrono::steady_clock::now();
  for (const Nest& nest : {samples::scores_softmax_values(Mask::none, 1024, 1024, 64), samples::matmul(1024, 1024, 1024),
                           samples::row_norm(4096, 1024)}) {
    const Sizes sizes = complete_sizes(nest, {});
    const HostTensors inputs = make_arguments(nest, sizes, 1);
    const auto begin = std::chrono::steady_clock::now();
    const auto samples = reference_samples(nest, sizes, {}, inputs, 256, 1);
    EXPECT_GE(samples.size(), 64u);
    RecordProperty(nest.op, std::to_string(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()));
  }
  // Generous, for machines that do other work at the same time; alone it takes a fraction of a second.
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 20);
}

/// out[i] = x[i] less the sum of all squares: one element needs all of the input.
TEST(Oracle, ElementsThatNeedEverythingAreEvaluatedTogether) {
  using samples::read, samples::operator*, samples::operator-;
  const Nest nest =
      samples::NestBuilder("less_all", {{"N", 1500000}})
          .tensor("x", TensorRole::input, {"N"})
          .tensor("total", TensorRole::temporary, {"1"})
          .tensor("out", TensorRole::output, {"N"})
          .statement("init[k] : k = 0", "total[k]", {}, samples::number(0))
          .statement("total[k, j] : k = 0 and 0 <= j < N", "total[k]", {"x[j]"}, read(0) * read(0), ReductionOp::add)
          .statement("out[i] : 0 <= i < N", "out[i]", {"x[i]", "total[0]"}, read(0) - read(1))
          .build();
  const Sizes sizes = complete_sizes(nest, {});
  const HostTensors inputs = make_arguments(nest, sizes, 1);
  const auto samples = reference_samples(nest, sizes, {}, inputs, 100, 1);
  EXPECT_EQ(samples.size(), 65536U) << "as many as are compared where all are there";
  const auto some = some_samples(nest, sizes, {}, inputs, 100, 1);
  EXPECT_EQ(some.size(), 65536U) << "in one thread as well";
}

TEST(Oracle, ScalarArgumentsChangeTheResult) {
  const Nest nest = samples::row_norm();
  const Sizes sizes = complete_sizes(nest, {});
  const HostTensors inputs = make_arguments(nest, sizes, 1);
  const auto usual = reference_samples(nest, sizes, {}, inputs, 8, 1);
  const auto other = reference_samples(nest, sizes, {{"eps", 3.0}}, inputs, 8, 1);
  ASSERT_EQ(usual.size(), other.size());
  EXPECT_GT(std::fabs(usual[0].value - other[0].value), 1e-3);
}

TEST(Oracle, EqualSeedsGiveEqualArgumentsAndOthersDoNot) {
  const Nest nest = samples::matmul();
  const Sizes sizes = complete_sizes(nest, {});
  EXPECT_EQ(make_arguments(nest, sizes, 7).at("A").bytes, make_arguments(nest, sizes, 7).at("A").bytes);
  EXPECT_NE(make_arguments(nest, sizes, 7).at("A").bytes, make_arguments(nest, sizes, 8).at("A").bytes);
  EXPECT_TRUE(is_poison(ElementType::f32, make_arguments(nest, sizes, 7).at("C").bytes.data(), 3));
}

HostTensors one_tensor(ElementType type, std::initializer_list<double> values) {
  HostTensor tensor{"y", type, {static_cast<std::int64_t>(values.size())}, ByteBuffer(values.size() * size_in_bytes(type))};
  std::int64_t k = 0;
  for (const double value : values) tensor.set(k++, value);
  HostTensors results;
  results.emplace("y", std::move(tensor));
  return results;
}

constexpr double kInfinite = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Oracle, NanInPlaceOfInfinitiesIsToldFromOtherErrors) {
  const HostTensors results = one_tensor(ElementType::f32, {0, kNan, 20, -kInfinite});
  EXPECT_TRUE(only_loses_infinities({{"y", 0, 0, 0}, {"y", 1, kInfinite, 0}, {"y", 2, 20, 0}}, results));
  EXPECT_FALSE(only_loses_infinities({{"y", 1, kInfinite, 0}, {"y", 2, 21, 0}}, results)) << "a number is wrong, too";
  EXPECT_FALSE(only_loses_infinities({{"y", 1, 5, 0}}, results)) << "NaN in place of a number";
  EXPECT_FALSE(only_loses_infinities({{"y", 3, kInfinite, 0}}, results)) << "the other infinity";
}

TEST(Oracle, ErrorsAreFractionsOfWhatRoundingMayDo) {
  const HostTensors results = one_tensor(ElementType::f32, {0, 10, 20, 30});
  std::string where;
  EXPECT_EQ(worst_error({{"y", 0, 0, 0}, {"y", 3, 30, 0}}, results), 0);
  EXPECT_NEAR(worst_error({{"y", 1, 10.5, 1}}, results), 0.5, 1e-6);
  EXPECT_NEAR(worst_error({{"y", 1, 12, 1}, {"y", 2, 20.5, 1}}, results, &where), 2, 1e-6);
  EXPECT_EQ(where, "y[1] is 10, should be 12 (within 1)");
}

/// Rules may take another reference than m, even where x - m is 0: then exponentials and what they are divided by are rounded.
TEST(Oracle, ExponentialsOfDifferencesAreNeverExact) {
  using samples::read, samples::operator-;
  const ScalarExpr difference = read(0) - read(1);
  const auto bound_of = [](const ScalarExpr& exponent) {
    const Nest nest = samples::NestBuilder("weights", {{"N", 1}})
                          .tensor("x", TensorRole::input, {"N"})
                          .tensor("m", TensorRole::input, {"N"})
                          .tensor("y", TensorRole::output, {"N"})
                          .statement("y[i] : 0 <= i < N", "y[i]", {"x[i]", "m[i]"}, ScalarExpr::make(ScalarOp::exp, {exponent}))
                          .build();
    HostTensors inputs = make_inputs(nest, {{"N", 1}}, 1);
    for (const char* name : {"x", "m"}) inputs.at(name).set(0, 0);
    Reference reference(nest, {{"N", 1}}, {}, inputs);
    reference.evaluate_all(1e3);
    return reference.bounded_value("y", 0, 1e3)->bound;
  };
  EXPECT_EQ(bound_of(read(0)), 0);
  EXPECT_GE(bound_of(difference), 4 * 0x1p-24);
  EXPECT_LE(bound_of(difference), 64 * 0x1p-24);
  EXPECT_GE(bound_of(ScalarExpr::make(ScalarOp::neg, {difference})), 4 * 0x1p-24);
}

/// o = (x * 1) v, with v of 16 bits: tensor cores may round x * 1.
Nest weighted(ElementType type) {
  using samples::read, samples::number, samples::operator*;
  return samples::NestBuilder("weighted", {{"R", 1}, {"C", 2}, {"D", 1}})
      .tensor("x", TensorRole::input, {"R", "C"}, ElementType::f32)
      .tensor("v", TensorRole::input, {"C", "D"}, type)
      .tensor("w", TensorRole::temporary, {"R", "C"})
      .tensor("o", TensorRole::output, {"R", "D"})
      .statement("W[i, j] : 0 <= i < R and 0 <= j < C", "w[i, j]", {"x[i, j]"}, read(0) * number(1))
      .statement("O[i, d] : 0 <= i < R and 0 <= d < D", "o[i, d]", {}, number(0))
      .statement("S[i, d, j] : 0 <= i < R and 0 <= d < D and 0 <= j < C", "o[i, d]", {"w[i, j]", "v[j, d]"},
                 read(0) * ScalarExpr::cast(ElementType::f32, read(1, type)), ReductionOp::add)
      .build();
}

/// Operands that are computed may be rounded to f16, where the largest are infinite.
TEST(Oracle, OperandsThatOverflowF16PromiseNothing) {
  using samples::operator*;
  const Sizes sizes{{"R", 1}, {"C", 2}, {"D", 1}};
  const auto bound_of = [&](ElementType type, double value) {
    Nest nest = weighted(type);
    nest.statements.back().value =
        samples::read(0) * (ScalarExpr::cast(ElementType::f32, samples::read(1, type)) * samples::number(3));
    HostTensors inputs = make_inputs(nest, sizes, 1);
    inputs.at("v").set(0, value);
    Reference reference(nest, sizes, {}, inputs);
    reference.evaluate_all(1e3);
    return reference.bounded_value("o", 0, 1e3)->bound;
  };
  EXPECT_LT(bound_of(ElementType::f16, 20000), 1e3);
  EXPECT_EQ(bound_of(ElementType::f16, 30000), std::numeric_limits<double>::infinity());
  EXPECT_LT(bound_of(ElementType::bf16, 30000), 1e4);
}

/// A weight that f16 rounds to 0 makes NaN of an infinite value on tensor cores.
TEST(Oracle, WeightsThatVanishIn16BitsPromiseNothingOfInfinities) {
  const Sizes sizes{{"R", 1}, {"C", 2}, {"D", 1}};
  const auto bound_of = [&](ElementType type, double weight) {
    const Nest nest = weighted(type);
    HostTensors inputs = make_inputs(nest, sizes, 1);
    inputs.at("x").set(0, weight);
    inputs.at("v").set(0, std::numeric_limits<double>::infinity());
    Reference reference(nest, sizes, {}, inputs);
    reference.evaluate_all(1e3);
    return reference.bounded_value("o", 0, 1e3)->bound;
  };
  EXPECT_EQ(bound_of(ElementType::f16, 0.5), 0);
  EXPECT_EQ(bound_of(ElementType::f16, 0), 0);
  EXPECT_EQ(bound_of(ElementType::f16, 1e-9), std::numeric_limits<double>::infinity());
  EXPECT_EQ(bound_of(ElementType::bf16, 1e-9), 0);
}

/// exp(x - m) may be taken relative to another reference, and be no 0 where it meets an infinity; exp(x) is 0 for everybody.
TEST(Oracle, ExponentialsOfDifferencesThatVanishPromiseNothingOfInfinities) {
  using samples::read, samples::operator*, samples::operator-;
  const auto bound_of = [&](double x, const ScalarExpr& exponent) {
    const Nest nest = samples::NestBuilder("weights", {{"N", 1}})
                          .tensor("x", TensorRole::input, {"N"})
                          .tensor("m", TensorRole::input, {"N"})
                          .tensor("v", TensorRole::input, {"N"})
                          .tensor("y", TensorRole::output, {"N"})
                          .statement("S[i] : 0 <= i < N", "y[i]", {"x[i]", "m[i]", "v[i]"},
                                     ScalarExpr::make(ScalarOp::exp, {exponent}) * read(2))
                          .build();
    HostTensors inputs = make_inputs(nest, {{"N", 1}}, 1);
    inputs.at("x").set(0, x);
    inputs.at("m").set(0, 0);
    inputs.at("v").set(0, std::numeric_limits<double>::infinity());
    Reference reference(nest, {{"N", 1}}, {}, inputs);
    reference.evaluate_all(1e3);
    return reference.bounded_value("y", 0, 1e3)->bound;
  };
  EXPECT_EQ(bound_of(-120, read(0) - read(1)), std::numeric_limits<double>::infinity());
  EXPECT_EQ(bound_of(-20, read(0) - read(1)), 0) << "an infinity, whoever computes it";
  EXPECT_EQ(bound_of(-std::numeric_limits<double>::infinity(), read(0) - read(1)), 0) << "NaN, as nothing moves -inf";
  EXPECT_EQ(bound_of(-120, read(0)), 0);
}

TEST(Oracle, ResultsOf16BitsAreWhatSomeValueWithinTheBoundRoundsTo) {
  // 1 + 2^-8 lies between 1 and 1 + 2^-7, and rounds to the even one.
  const HostTensors results = one_tensor(ElementType::bf16, {1, 1 + 0x1p-7});
  EXPECT_LE(worst_error({{"y", 0, 1 + 0x1p-8, 0}}, results), 1);
  EXPECT_GT(worst_error({{"y", 1, 1 + 0x1p-8, 0}}, results), 1);
  EXPECT_LE(worst_error({{"y", 1, 1 + 0x1p-8, 1e-6}}, results), 1);
  EXPECT_GT(worst_error({{"y", 0, 1 + 0x1.1p-8, 1e-6}}, results), 1);
}

TEST(Oracle, InfinitiesAndNanAreRightWhereTheDefinitionHasThem) {
  HostTensors results = one_tensor(ElementType::f16, {kInfinite, kNan, 1, 65504});
  EXPECT_EQ(worst_error({{"y", 0, kInfinite, 0}, {"y", 1, kNan, 0}, {"y", 2, 1, 0}}, results), 0);
  EXPECT_EQ(worst_error({{"y", 0, kNan, 0}}, results), kInfinite);
  EXPECT_EQ(worst_error({{"y", 1, 1, 0}}, results), kInfinite);
  EXPECT_GT(worst_error({{"y", 0, -kInfinite, 0}}, results), 1);
  EXPECT_GT(worst_error({{"y", 2, kInfinite, 0}}, results), 1);
  // Beyond the range either may come out.
  EXPECT_LE(worst_error({{"y", 0, 65519, 8}, {"y", 3, 65521, 8}}, results), 1);
  EXPECT_GT(worst_error({{"y", 3, 70000, 8}}, results), 1);
  // Nothing is promised, but an element must be written.
  EXPECT_EQ(worst_error({{"y", 1, 1, kInfinite}}, results), 0);
  fill_poison(results.at("y"), 3);
  EXPECT_EQ(worst_error({{"y", 1, 1, kInfinite}}, results, nullptr, 3), kInfinite);
  EXPECT_EQ(worst_error({{"y", 1, kNan, 0}}, results, nullptr, 3), kInfinite);
}

/// Terms of all sizes: with an infinity, with errors, with rounded operands, as the case says.
struct SumCase {
  std::vector<double> values, errors, operands;
  explicit SumCase(int which) {
    for (int k = 0; k < 300; ++k) {
      values.push_back(std::sin(7.0 * k) * std::exp2(k % 40 - 20));
      errors.push_back(which % 3 == 0 ? 0 : std::fabs(values[k]) * 1e-7);
      operands.push_back(which % 2 == 0 ? 0 : std::fabs(values[k]) * 1e-3);
    }
    if (which == 5) values[150] = -std::numeric_limits<double>::infinity();
    if (which == 4) operands[20] = std::numeric_limits<double>::infinity();
  }
};

TEST(Oracle, SumsOfWholeChunksAreThoseOfTheirTermsOneByOne) {
  for (const ReductionOp op : {ReductionOp::add, ReductionOp::max, ReductionOp::mul}) {
    for (const ElementType type : {ElementType::f32, ElementType::i32}) {
      for (int which = 0; which < 6; ++which) {
        const SumCase terms(which);
        ErrorSum alone, together;
        double sum = 0.5, whole = 0.5;
        for (int k = 0; k < 300; ++k) {
          const double before = sum;
          sum = semantics::combine(op, ElementType::f32, before, terms.values[k]);
          alone.add(op, type, terms.values[k], terms.errors[k], terms.operands[k], before, sum);
        }
        for (int k = 0; k < 300; k += 100)
          together.add_all(op, type, {ElementType::f32, &terms.values[k], &terms.errors[k], &terms.operands[k], 100}, whole);
        EXPECT_TRUE(sum == whole || (std::isnan(sum) && std::isnan(whole))) << which;
        EXPECT_EQ(alone.error(sum, ElementType::bf16), together.error(whole, ElementType::bf16)) << which;
      }
    }
  }
}

TEST(ErrorSum, OfAProductSaysNothingWhereAnotherOrderLeavesTheRangeOfF32) {
  const auto error_of = [](const std::vector<double>& factors) {
    ErrorSum error;
    error.start(1, 0);
    double product = 1;
    for (const double factor : factors) {
      const double before = product;
      product *= factor;
      error.add(ReductionOp::mul, ElementType::f32, factor, 0, 0, before, product);
    }
    return error.error(product, std::nullopt);
  };
  EXPECT_LT(error_of({3, 0.5, 7, 0.25}), 1e-5);
  EXPECT_LT(error_of({0x1p-40, 0x1p-40, 0x1p-40}), 0x1p-140) << "parts are no smaller than all";
  EXPECT_LT(error_of({0x1p40, 0x1p40}), 0x1p60);
  EXPECT_EQ(error_of({0x1p100, 0x1p-90, 0x1p60}), std::numeric_limits<double>::infinity()) << "the large ones first";
  EXPECT_EQ(error_of({0x1p-100, 0x1p90, 0x1p-60}), std::numeric_limits<double>::infinity()) << "the small ones first";
  EXPECT_EQ(error_of({0x1p100, 0, 0x1p60}), std::numeric_limits<double>::infinity()) << "0 times an infinity";
}

TEST(ErrorSum, OfLargeTermsSaysNothingEvenOfOneTermAndKeepsAStartAlone) {
  constexpr double kLarge = 0x1p100;
  const auto error_of = [](double start, int terms) {
    ErrorSum error;
    error.start(start, 0);
    double sum = start;
    for (int k = 0; k < terms; ++k) {
      error.add(ReductionOp::add, ElementType::f32, kLarge, 0, 0, sum, sum + kLarge);
      sum += kLarge;
    }
    return error.error(sum, std::nullopt);
  };
  EXPECT_TRUE(std::isinf(error_of(0, 1))) << "a factor that is deferred may make it larger on its way";
  EXPECT_TRUE(std::isinf(error_of(kLarge, 1)));
  EXPECT_EQ(error_of(kLarge, 0), 0);
}

TEST(Oracle, PoisonOfNeighbouringLaunchesDiffers) {
  for (const ElementType type : {ElementType::f32, ElementType::f16, ElementType::bf16, ElementType::i32}) {
    HostTensors results = one_tensor(type, {0, 0});
    fill_poison(results.at("y"), 8);
    const std::byte* bytes = results.at("y").bytes.data();
    EXPECT_TRUE(is_poison(type, bytes, 1, 8));
    EXPECT_FALSE(is_poison(type, bytes, 1, 9));
    EXPECT_EQ(std::isnan(results.at("y").get(1)), type != ElementType::i32);
  }
}

TEST(Oracle, BoundsAreCutAtTheToleranceWhereKernelsMayRoundTo16Bits) {
  const auto bounds = [](Nest nest, std::optional<double> own) {
    for (Tensor& tensor : nest.tensors) {
      if (tensor.name == "o") tensor.tolerance = own;
    }
    std::vector<OracleSample> samples{{"o", 0, 1, 1e-1}, {"o", 1, 1, 1e-7}, {"o", 2, 3, kInfinite}};
    limit_bounds(samples, nest, may_round_operands(nest));
    return std::vector<double>{samples[0].bound, samples[1].bound, samples[2].bound};
  };
  const Nest narrow = weighted(ElementType::f16), wide = weighted(ElementType::f32);
  const double cut = (5.0 / 3 + 1);  // the mean magnitude and its own
  EXPECT_NEAR(bounds(narrow, std::nullopt)[0], 2 * narrow.tolerance * cut, 1e-6) << "it is twice the mean of all bounds";
  EXPECT_EQ(bounds(narrow, std::nullopt)[1], 1e-7);
  EXPECT_EQ(bounds(narrow, std::nullopt)[2], kInfinite);
  EXPECT_NEAR(bounds(narrow, 1e-2)[0], 1e-2 * cut, 1e-9) << "an output's own tolerance";
  EXPECT_NEAR(bounds(wide, std::nullopt)[0], 64 * wide.tolerance * cut, 1e-9) << "all in f32";
  EXPECT_NEAR(bounds(wide, 1e-2)[0], 1e-2 * cut, 1e-9) << "an output's own tolerance";
}

/// o_id = sum_j exp(3 x_ij) v_jd: some rows have weights a hundred times larger than others.
TEST(Oracle, RowsOfLargeWeightsMayBeOffByTheirOwnRounding) {
  using samples::read, samples::number, samples::operator*;
  const Sizes sizes{{"R", 200}, {"C", 24}, {"D", 16}};
  Nest nest = samples::NestBuilder("decays", {{"R", 200}, {"C", 24}, {"D", 16}})
                  .tensor("x", TensorRole::input, {"R", "C"}, ElementType::f32)
                  .tensor("v", TensorRole::input, {"C", "D"}, ElementType::bf16)
                  .tensor("w", TensorRole::temporary, {"R", "C"})
                  .tensor("o", TensorRole::output, {"R", "D"})
                  .statement("W[i, j] : 0 <= i < R and 0 <= j < C", "w[i, j]", {"x[i, j]"},
                             ScalarExpr::make(ScalarOp::exp, {number(3) * read(0)}))
                  .statement("O[i, d] : 0 <= i < R and 0 <= d < D", "o[i, d]", {}, number(0))
                  .statement("S[i, d, j] : 0 <= i < R and 0 <= d < D and 0 <= j < C", "o[i, d]", {"w[i, j]", "v[j, d]"},
                             read(0) * ScalarExpr::cast(ElementType::f32, read(1, ElementType::bf16)), ReductionOp::add)
                  .build();
  nest.tolerance = 1.6e-2;  // as definitions with bf16 have
  ASSERT_TRUE(may_round_operands(nest));
  const HostTensors inputs = make_inputs(nest, sizes, 1);
  const std::vector<OracleSample> samples = reference_samples(nest, sizes, {}, inputs, 3200, 1);
  const auto worst = [&](ElementType weights, std::int64_t terms) {
    HostTensors results = make_arguments(nest, sizes, 1);
    for (std::int64_t i = 0; i < 200; ++i) {
      for (std::int64_t d = 0; d < 16; ++d) {
        double sum = 0;
        for (std::int64_t j = 0; j < terms; ++j)
          sum += round_to(weights, std::exp(3 * inputs.at("x").get(24 * i + j))) * inputs.at("v").get(16 * j + d);
        results.at("o").set(16 * i + d, sum);
      }
    }
    return worst_error(samples, results);
  };
  EXPECT_LE(worst(ElementType::bf16, 24), 1);
  EXPECT_GT(worst(ElementType::f32, 23), 10) << "a term is left out";
}

/// Rounding in f32 leaves few digits of 1 / (x_0 + ... + x_15) where the sum cancels: another order of the terms is as right, and a term
/// left out is not.
TEST(Oracle, QuotientsBySumsThatCancelMayExceedTheTolerance) {
  using samples::read, samples::number;
  const Nest nest = samples::NestBuilder("quotient", {{"N", 20000}})
                        .context("N >= 1")
                        .tensor("x", TensorRole::input, {"N", "16"})
                        .tensor("t", TensorRole::temporary, {"N"})
                        .tensor("y", TensorRole::output, {"N"})
                        .statement("Z[i] : 0 <= i < N", "t[i]", {}, number(0))
                        .statement("T[i, k] : 0 <= i < N and 0 <= k < 16", "t[i]", {"x[i, k]"}, read(0), ReductionOp::add)
                        .statement("Y[i] : 0 <= i < N", "y[i]", {"t[i]"}, ScalarExpr::make(ScalarOp::div, {number(1), read(0)}))
                        .build();
  const Sizes sizes{{"N", 20000}};
  const HostTensors inputs = make_inputs(nest, sizes, 1);
  const std::vector<OracleSample> samples = reference_samples(nest, sizes, {}, inputs, 1000, 1);
  const auto worst = [&](int first) {
    HostTensors results = make_arguments(nest, sizes, 1);
    HostTensor& y = results.at("y");
    for (std::int64_t i = 0; i < 20000; ++i) {
      float sum = 0;
      for (std::int64_t k = 15; k >= first; --k) sum += static_cast<float>(inputs.at("x").get(16 * i + k));
      y.set(i, 1 / sum);
    }
    return worst_error(samples, results);
  };
  EXPECT_LE(worst(0), 1);
  EXPECT_GT(worst(1), 100);
}

/// A gated layer: half of the elements are next to nothing, and the others as far off as the terms of their sums allow.
/// t = floor(x), y = 2 t, z = 2 x.
Nest quantised() {
  using samples::read;
  const ScalarExpr two = ScalarExpr::constant(2.0, ElementType::f32);
  return samples::NestBuilder("quantised", {{"N", 4}})
      .context("N >= 1")
      .tensor("x", TensorRole::input, {"N"})
      .tensor("t", TensorRole::temporary, {"N"})
      .tensor("y", TensorRole::output, {"N"})
      .tensor("z", TensorRole::output, {"N"})
      .statement("t[i] : 0 <= i < N", "t[i]", {"x[i]"}, ScalarExpr::make(ScalarOp::floor, {read(0)}))
      .statement("y[i] : 0 <= i < N", "y[i]", {"t[i]"}, ScalarExpr::make(ScalarOp::mul, {two, read(0)}))
      .statement("z[i] : 0 <= i < N", "z[i]", {"x[i]"}, ScalarExpr::make(ScalarOp::mul, {two, read(0)}))
      .build();
}

TEST(Oracle, WhatIsMadeOfStepsMayBeAWholeStepAway) {
  std::vector<OracleSample> samples{{"y", 0, 3, 2}, {"z", 0, 3, 2}};
  Nest nest = quantised();
  for (Tensor& tensor : nest.tensors) tensor.tolerance = 1e-2;
  limit_bounds(samples, nest, true);
  EXPECT_EQ(samples[0].bound, 2);
  EXPECT_LT(samples[1].bound, 1e-1);
}

TEST(Oracle, ClosedGatesMakeTheOthersNoMoreExact) {
  std::vector<OracleSample> samples;
  for (std::int64_t k = 0; k < 100; ++k) samples.push_back({"y", k, k % 2 == 0 ? 1e-20 : 4000.0, 1e-20});
  samples.push_back({"y", 100, -0.5, 0.1});
  Nest nest;
  nest.tensors = {{"y", ElementType::f16, TensorRole::output, {}, 2e-3}};
  limit_bounds(samples, nest, true);
  EXPECT_EQ(samples.back().bound, 0.1);
}

/// A step of the definition may overflow where f64 does not: near the largest numbers a bound that says so stays, and others are cut.
TEST(Oracle, ResultsNearTheLargestNumbersMayOverflow) {
  std::vector<OracleSample> samples{{"y", 0, 1e37, 1e60}, {"y", 1, 1e37, 1e37}, {"y", 2, 1e38, 1e30}};
  Nest nest;
  nest.tensors = {{"y", ElementType::f32, TensorRole::output, {}, 1e-2}};
  limit_bounds(samples, nest, true);
  EXPECT_EQ(samples[0].bound, kInfinite);
  EXPECT_LT(samples[1].bound, 1e36);
  EXPECT_EQ(samples[2].bound, 1e30);
  samples = {{"y", 0, 1, 1e60}, {"y", 1, 2, 1e60}};
  limit_bounds(samples, nest, true);
  EXPECT_LT(samples[0].bound, 1);
  EXPECT_LT(samples[1].bound, 1) << "bounds of recurrences grow without what they bound";
}

/// Rules make reductions of what is added term by term: nothing is promised where another order of three terms overflows. Two have one order.
TEST(Oracle, SumsOfThreeTermsMayBeTakenInAnyOrder) {
  using samples::read, samples::operator+;
  const auto bound_of = [](const std::array<float, 4>& terms, const ScalarExpr& sum) {
    samples::NestBuilder builder("terms", {{"N", 1}});
    builder.tensor("x", TensorRole::input, {"4"}).tensor("y", TensorRole::output, {"N"});
    const Nest nest = builder.statement("y[i] : 0 <= i < N", "y[i]", {"x[0]", "x[1]", "x[2]", "x[3]"}, sum).build();
    HostTensors inputs = make_inputs(nest, {{"N", 1}}, 1);
    for (std::size_t k = 0; k < terms.size(); ++k) inputs.at("x").set(k, terms[k]);
    Reference reference(nest, {{"N", 1}}, {}, inputs);
    reference.evaluate_all(1e3);
    return reference.bounded_value("y", 0, 1e3)->bound;
  };
  const ScalarExpr four = read(0) + read(1) + read(2) + read(3);
  EXPECT_EQ(bound_of({0x1p126F, -0x1p126F, 0x1p126F, 0x1p126F}, four), kInfinite) << "the last two, and the first of them";
  EXPECT_LT(bound_of({0x1p124F, -0x1p124F, 0x1p124F, 0x1p124F}, four), 1e32);
  EXPECT_LT(bound_of({0x1p127F, -0x1p127F, 1, 1}, read(0) + read(1)), 1);
}

TEST(Oracle, AnOutputThatNeedsAllOfLargeProductsIsLeftOut) {
  using namespace samples;
  const std::string row = "0 <= i < I", pair = row + " and 0 <= j < J";
  const Nest nest = NestBuilder("mean_of_rows", {{"I", 6}, {"J", 5}, {"K", 7}})
                        .tensor("a", TensorRole::input, {"I + K"})
                        .tensor("b", TensorRole::input, {"J + K"})
                        .tensor("dot", TensorRole::temporary, {"I", "J"})
                        .tensor("row", TensorRole::output, {"I"})
                        .tensor("mean", TensorRole::output, {})
                        .statement("dot_init[i, j] : " + pair, "dot[i, j]", {}, number(0))
                        .statement("dot[i, j, k] : " + pair + " and 0 <= k < K", "dot[i, j]", {"a[i + k]", "b[j + k]"},
                                   read(0) * read(1), ReductionOp::add)
                        .statement("row_init[i] : " + row, "row[i]", {}, number(0))
                        .statement("row[i, j] : " + pair, "row[i]", {"dot[i, j]"}, read(0) * read(0), ReductionOp::add)
                        .statement("mean_init[one] : one = 0", "mean[]", {}, number(0))
                        .statement("mean[i] : " + row, "mean[]", {"row[i]"}, read(0), ReductionOp::add)
                        .build();
  const auto outputs_at = [&](const Sizes& sizes, double seconds = 0) {
    const AffordableSamples found = affordable_samples(nest, sizes, {}, make_inputs(nest, sizes, 1), 8, 1, seconds);
    std::set<std::string> compared;
    for (const OracleSample& sample : found.samples) compared.insert(sample.tensor);
    return std::pair(compared, found.left_out);
  };
  using Outputs = std::pair<std::set<std::string>, std::vector<std::string>>;
  EXPECT_EQ(outputs_at({{"I", 6}, {"J", 5}, {"K", 7}}), (Outputs{{"mean", "row"}, {}}));
  // 10^12 products.
  EXPECT_EQ(outputs_at({{"I", 1 << 20}, {"J", 64}, {"K", 1 << 14}}), (Outputs{{"row"}, {"mean"}}));
  // 262,144 products: nothing, but for so short a time.
  const Sizes small{{"I", 64}, {"J", 64}, {"K", 64}};
  EXPECT_EQ(outputs_at(small), (Outputs{{"mean", "row"}, {}}));
  EXPECT_EQ(outputs_at(small, 10), (Outputs{{"mean", "row"}, {}}));
  EXPECT_EQ(outputs_at(small, 1e-4 / host_threads()), (Outputs{{"row"}, {"mean"}}));
  EXPECT_EQ(outputs_at(small, 1e-9), (Outputs{{"mean", "row"}, {}})) << "where no output is cheap enough, all are compared";
}

TEST(Oracle, AProblemTooExpensiveToCheckIsRefused) {
  const Nest nest = samples::seidel();
  const Sizes sizes{{"T", 100000}, {"Y", 1000}, {"X", 1000}};
  const HostTensors inputs = make_arguments(nest, sizes, 1);
  try {
    reference_samples(nest, sizes, {}, inputs, 8, 1);
    FAIL() << "accepted";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("use smaller sizes"), std::string::npos);
  }
}

TEST(ElementCodec, ManyElementsAreReadLikeEach) {
  std::vector<std::uint16_t> bits(1 << 16);
  std::vector<std::int64_t> places{-1};
  for (std::size_t k = 0; k < bits.size(); ++k) bits[k] = static_cast<std::uint16_t>(k);
  for (std::int64_t k = 0; k < (1 << 14); ++k) places.push_back(3 * k % (1 << 14));
  const auto* base = reinterpret_cast<const std::byte*>(bits.data());
  for (const ElementType type : {ElementType::f16, ElementType::bf16, ElementType::f32, ElementType::i32, ElementType::boolean}) {
    std::vector<double> found(places.size(), 5);
    load_elements(type, base, places.data(), found.data(), static_cast<int>(places.size()));
    EXPECT_EQ(found[0], 0);
    for (std::size_t k = 1; k < places.size(); ++k) {
      const double each = load_element(type, base, places[k]);
      EXPECT_TRUE(found[k] == each || (std::isnan(found[k]) && std::isnan(each))) << places[k];
    }
  }
}

TEST(ElementCodec, EveryHalfAndBfloatComesBack) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto word = static_cast<std::uint16_t>(bits);
    if (!std::isnan(half_to_double(word))) {
      EXPECT_EQ(double_to_half(half_to_double(word)), word);
    }
    if (!std::isnan(bfloat_to_double(word))) {
      EXPECT_EQ(double_to_bfloat(bfloat_to_double(word)), word);
    }
  }
  EXPECT_TRUE(std::isnan(half_to_double(double_to_half(std::nan("")))));
  EXPECT_EQ(double_to_half(65520.0), 0x7c00);  // rounds up beyond the largest finite half
  EXPECT_EQ(double_to_half(65519.0), 0x7bff);
  EXPECT_EQ(double_to_half(1 + std::ldexp(1, -11)), 0x3c00);  // a tie goes to even
  EXPECT_EQ(double_to_half(1 + 3 * std::ldexp(1, -11)), 0x3c02);
}

TEST(ValueCode, AgreesWithTheMeaningOfScalarExpressions) {
  const std::vector<ScalarOp> unary{ScalarOp::neg,   ScalarOp::abs,  ScalarOp::exp, ScalarOp::exp2,  ScalarOp::sqrt,
                                    ScalarOp::rsqrt, ScalarOp::tanh, ScalarOp::erf, ScalarOp::floor, ScalarOp::log};
  const std::vector<ScalarOp> binary{ScalarOp::add, ScalarOp::sub, ScalarOp::mul, ScalarOp::div,
                                     ScalarOp::min, ScalarOp::max, ScalarOp::pow};
  const std::vector<ScalarOp> integer{ScalarOp::add,
                                      ScalarOp::sub,
                                      ScalarOp::mul,
                                      ScalarOp::div,
                                      ScalarOp::bit_and,
                                      ScalarOp::bit_or,
                                      ScalarOp::bit_xor,
                                      ScalarOp::shift_left,
                                      ScalarOp::shift_right_logical,
                                      ScalarOp::mul_high_unsigned};
  const ScalarExpr x = ScalarExpr::read(0, ElementType::f32), y = ScalarExpr::read(1, ElementType::f32);
  const ScalarExpr i = ScalarExpr::index(0), j = ScalarExpr::index(1);
  std::vector<ScalarExpr> cases;
  for (const ScalarOp op : unary) cases.push_back(ScalarExpr::make(op, {x}));
  for (const ScalarOp op : binary) cases.push_back(ScalarExpr::make(op, {x, y}));
  for (const ScalarOp op : integer) cases.push_back(ScalarExpr::make(op, {i, j}));
  for (const ElementType type : {ElementType::f16, ElementType::bf16, ElementType::i32, ElementType::f32})
    cases.push_back(ScalarExpr::cast(type, x));
  cases.push_back(ScalarExpr::make(ScalarOp::select, {ScalarExpr::make(ScalarOp::lt, {x, y}), x, y}));
  cases.push_back(
      ScalarExpr::make(ScalarOp::logical_and, {ScalarExpr::make(ScalarOp::le, {i, j}), ScalarExpr::make(ScalarOp::eq, {i, j})}));
  struct Leaves : LeafSource {
    void read(int ordinal, double* out, int count) override {
      for (int k = 0; k < count; ++k) out[k] = real(ordinal, k);
    }
    void index(int ordinal, double* out, int count) override {
      for (int k = 0; k < count; ++k) out[k] = static_cast<double>(whole(ordinal, k));
    }
    static double real(int ordinal, int k) { return ordinal == 0 ? 0.37 * k - 3 : 1.1 + 0.01 * k; }
    static std::int64_t whole(int ordinal, int k) { return ordinal == 0 ? 1000003LL * k - 5 : k + 3; }
  } leaves;
  for (const ScalarExpr& expr : cases) {
    const ValueCode code(expr, {});
    std::vector<double> memory(code.registers());
    const double* got = code.run(memory.data(), leaves, 50);
    for (int k = 0; k < 50; ++k) {
      const double expected = evaluate(
          expr, [&](int ordinal) { return Leaves::real(ordinal, k); }, [&](int ordinal) { return Leaves::whole(ordinal, k); },
          [](const std::string&) { return 0.0; });
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(got[k]));
      } else {
        EXPECT_EQ(got[k], expected) << to_string(expr.op()) << " at " << k;
      }
    }
  }
}

/// Of a chain of two products, an element needs a row of the first, and that all of what it multiplies.
TEST(Oracle, AnElementsCostIsKnownBeforeItIsEvaluated) {
  const std::string cell = "0 <= i < N and 0 <= j < N", term = cell + " and 0 <= k < N";
  const Nest nest = samples::NestBuilder("chain", {{"N", 64}})
                        .tensor("x", TensorRole::input, {"N", "N"})
                        .tensor("square", TensorRole::temporary, {"N", "N"})
                        .tensor("out", TensorRole::output, {"N", "N"})
                        .statement("square_init[i, j] : " + cell, "square[i, j]", {}, samples::number(0))
                        .statement("square[i, j, k] : " + term, "square[i, j]", {"x[i, k]", "x[j, k]"},
                                   samples::operator*(samples::read(0), samples::read(1)), ReductionOp::add)
                        .statement("out_init[i, j] : " + cell, "out[i, j]", {}, samples::number(0))
                        .statement("out[i, j, k] : " + term, "out[i, j]", {"square[i, k]", "square[k, j]"},
                                   samples::operator*(samples::read(0), samples::read(1)), ReductionOp::add)
                        .build();
  // Row 0 and column 0 of the square: three nodes a term and more, and a box around them holds all of it.
  for (const std::int64_t size : {64, 512}) {
    const auto cost = cost_of_first_elements(nest, {{"N", size}});
    const double cells = static_cast<double>(size) * static_cast<double>(size);
    ASSERT_TRUE(cost);
    EXPECT_GE(*cost, 3 * 2 * cells - 3 * static_cast<double>(size));
    EXPECT_LE(*cost, 5 * cells * static_cast<double>(size));
  }
  const Nest product = samples::matmul(512, 512, 512);
  const auto direct = cost_of_first_elements(product, complete_sizes(product, {}));
  ASSERT_TRUE(direct);
  EXPECT_LT(*direct, 10000) << "a row and a column";
}

}  // namespace
}  // namespace nestor
