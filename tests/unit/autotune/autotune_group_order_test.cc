// The oracle's order of statements that share loops: what meets in an element keeps its order, the rest is apart.
#include "autotune/oracle/group_order.h"
#include "autotune/oracle/reference.h"
#include "autotune/tensors/host_tensor.h"
#include "poly/isl/isl_tools.h"
#include "support/nests/integer_points.h"
#include "support/nests/recurrence_nests.h"

#include <gtest/gtest.h>
#include <isl/map.h>
#include <isl/union_map.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace nestor {
namespace {

using Numbers = std::vector<std::int64_t>;
using samples::number, samples::read, samples::operator*;

std::vector<Numbers> points_of(const isl::set& set) {
  std::vector<Numbers> result;
  set.foreach_point([&](const isl::point& point) {
    Numbers numbers;
    const auto dims = static_cast<int>(isl_space_dim(isl::manage(isl_point_get_space(point.get())).get(), isl_dim_set));
    for (int k = 0; k < dims; ++k) {
      isl_val* value = isl_point_get_coordinate_val(point.get(), isl_dim_set, k);
      numbers.push_back(isl_val_get_num_si(value));
      isl_val_free(value);
    }
    result.push_back(std::move(numbers));
  });
  return result;
}

/// An instance, by its place in the original order, with its time in the other one.
struct Instance {
  Numbers original, time;
  std::set<std::string> reads, writes;
};

std::vector<TouchedElements> group_of(const Nest& nest, const std::string& first) {
  std::vector<TouchedElements> group;
  const Sizes sizes = complete_sizes(nest, {});
  for (const Statement& statement : nest.statements) {
    if (statement.group != nest.statement(first).group) continue;
    TouchedElements touched{at_sizes(statement.domain, sizes), {}, {}};
    touched.write = at_sizes(statement.write.relation, sizes).intersect_domain(touched.domain);
    for (const Access& read : statement.reads)
      touched.reads.push_back(at_sizes(read.relation, sizes).intersect_domain(touched.domain));
    group.push_back(std::move(touched));
  }
  return group;
}

std::set<std::string> elements(const isl::map& access, const isl::set& instance) {
  std::set<std::string> found;
  const isl::set touched = instance.apply(access);
  for (const Numbers& point : points_of(touched)) {
    std::string text = isl_set_get_tuple_name(touched.get());
    for (const std::int64_t number : point) text += "," + std::to_string(number);
    found.insert(text);
  }
  return found;
}

std::vector<Instance> instances_of(const std::vector<TouchedElements>& group, const isl::union_map& order) {
  std::vector<Instance> found;
  for (std::size_t s = 0; s < group.size(); ++s) {
    for (Numbers& dims : points_of(group[s].domain)) {
      isl_set* only = group[s].domain.copy();
      for (std::size_t k = 0; k < dims.size(); ++k)
        only = isl_set_fix_si(only, isl_dim_set, static_cast<unsigned>(k), static_cast<int>(dims[k]));
      const isl::set instance = isl::manage(only);
      Instance each;
      isl_union_set* times = isl_union_set_apply(isl_union_set_from_set(instance.copy()), order.copy());
      each.time = points_of(isl::manage(isl_set_from_union_set(times))).at(0);
      each.writes = elements(group[s].write, instance);
      for (const isl::map& read : group[s].reads) each.reads.merge(elements(read, instance));
      each.original = std::move(dims);
      each.original.push_back(static_cast<std::int64_t>(s));
      found.push_back(std::move(each));
    }
  }
  return found;
}

bool meet(const std::set<std::string>& a, const std::set<std::string>& b) {
  return std::any_of(a.begin(), a.end(), [&](const std::string& element) { return b.contains(element); });
}

/// Pairs that touch one element, one of them writing it, and change places.
int swapped(const std::vector<Instance>& instances) {
  int count = 0;
  for (const Instance& a : instances) {
    for (const Instance& b : instances) {
      if (!(a.original < b.original) || a.time < b.time) continue;
      if (meet(a.writes, b.writes) || meet(a.writes, b.reads) || meet(a.reads, b.writes)) ++count;
    }
  }
  return count;
}

std::vector<Nest> small_recurrences() {
  return {samples::batched_states(2, 3, 3), samples::states(3, 4), samples::corrected_matrix(2, 3, 2, 3), samples::sweeps(2, 4)};
}

TEST(GroupOrder, WhatMeetsInAnElementKeepsItsOrder) {
  for (const Nest& nest : small_recurrences()) {
    const auto group = group_of(nest, "start");
    const auto instances = instances_of(group, distributed_order(group));
    EXPECT_EQ(swapped(instances), 0) << nest.op;
    std::set<Numbers> times;
    for (const Instance& instance : instances) times.insert(instance.time);
    EXPECT_EQ(times.size(), instances.size()) << nest.op << ": two instances at one time";
  }
}

/// The test itself sees orders that are wrong: all statements apart from each other.
TEST(GroupOrder, StatementsThatNeedEachOtherCannotBeApart) {
  for (const Nest& nest : small_recurrences()) {
    const auto group = group_of(nest, "start");
    isl_union_map* apart = nullptr;
    for (std::size_t s = 0; s < group.size(); ++s) {
      isl_map* times = isl_map_reset_tuple_id(isl_set_identity(group[s].domain.copy()), isl_dim_out);
      times = isl_map_fix_si(isl_map_insert_dims(times, isl_dim_out, 0, 1), isl_dim_out, 0, static_cast<int>(s));
      apart = apart == nullptr ? isl_union_map_from_map(times) : isl_union_map_add_map(apart, times);
    }
    EXPECT_GT(swapped(instances_of(group, isl::manage(apart))), 0) << nest.op;
  }
}

TEST(GroupOrder, RowsOfOneStatementFollowEachOther) {
  const auto group = group_of(samples::states(3, 4), "start");
  const auto instances = instances_of(group, distributed_order(group));
  std::map<std::int64_t, std::pair<Numbers, Numbers>> spans;  // of the first step, by statement
  for (const Instance& instance : instances) {
    if (instance.original.front() != 0) continue;
    const auto [span, first] = spans.emplace(instance.original.back(), std::pair{instance.time, instance.time});
    span->second.first = std::min(span->second.first, instance.time);
    span->second.second = std::max(span->second.second, instance.time);
  }
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_LT(spans.at(0).second, spans.at(1).first) << "starts of all sums, then their terms";
  EXPECT_LT(spans.at(1).second, spans.at(2).first);
}

/// y = x, then y[i, j] = y[i - 1, j + 1] where i + j is even: at some sizes one loop runs along the diagonal.
TEST(GroupOrder, DiagonalsOfAStatementFollowEachOther) {
  const Nest nest = samples::NestBuilder("diagonals", {{"N", 3}, {"M", 3}})
                        .tensor("x", TensorRole::input, {"N", "M"})
                        .tensor("out", TensorRole::output, {"N", "M"})
                        .statement("copy[i, j] : 0 <= i < N and 0 <= j < M", "out[i, j]", {"x[i, j]"}, read(0))
                        .statement("move[i, j] : (i + j) mod 2 = 0 and 0 < i < N and 0 <= j < M - 1", "out[i, j]",
                                   {"out[i - 1, j + 1]"}, read(0))
                        .build();
  for (const std::int64_t rows : {3, 4, 7}) {
    for (const std::int64_t columns : {3, 4, 8}) {
      const Sizes sizes{{"N", rows}, {"M", columns}};
      const HostTensors inputs = make_inputs(nest, sizes, 3);
      Reference reference(nest, sizes, {}, inputs);
      reference.evaluate_all(1e9);
      for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < columns; ++j) {
          std::int64_t from = i, at = j;
          while ((from + at) % 2 == 0 && from > 0 && at < columns - 1) --from, ++at;
          EXPECT_EQ(reference.value("out", i * columns + j, 1e9), inputs.at("x").get(from * columns + at)) << i << " " << j;
        }
      }
    }
  }
}

/// A chain of products, whose values have no roundings of their own in the definition.
TEST(GroupOrder, ProductsInARowAreEvaluated) {
  const Nest nest = samples::NestBuilder("doubled", {{"T", 9}})
                        .tensor("x", TensorRole::input, {"T"})
                        .tensor("out", TensorRole::output, {"T + 1"})
                        .statement("first[t] : t = 0", "out[t]", {}, number(1))
                        .statement("next[t] : 0 <= t < T", "out[t + 1]", {"out[t]"}, read(0) * number(2))
                        .build();
  const Sizes sizes = complete_sizes(nest, {});
  Reference reference(nest, sizes, {}, make_inputs(nest, sizes, 3));
  reference.evaluate_all(1e9);
  for (std::int64_t t = 0; t <= 9; ++t) EXPECT_EQ(reference.value("out", t, 1e9), std::ldexp(1.0, static_cast<int>(t)));
}

/// Large enough to be distributed, and evaluated as the small one is: the first steps are the same.
TEST(GroupOrder, LargeGroupsHaveTheValuesOfSmallOnes) {
  const Nest nest = samples::corrected_matrix(2, 3, 4, 19);
  const Sizes few{{"batch", 2}, {"times", 3}, {"rows", 4}, {"columns", 19}};
  Sizes many = few;
  many["times"] = 9000;
  const HostTensors inputs = make_inputs(nest, many, 3);
  Reference large(nest, many, {}, inputs);
  large.evaluate_all(1e9);
  HostTensors head = make_inputs(nest, few, 3);
  for (const char* name : {"k", "v"}) {
    HostTensor& tensor = head.at(name);
    const std::int64_t row = tensor.shape[1] * tensor.shape[2], whole = many.at("times") * tensor.shape[2];
    for (std::int64_t k = 0; k < tensor.elements(); ++k) tensor.set(k, inputs.at(name).get(k / row * whole + k % row));
  }
  Reference small(nest, few, {}, head);
  small.evaluate_all(1e9);
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t k = 0; k < 3 * 19; ++k) {
      const auto expected = small.bounded_value("left", b * 3 * 19 + k, 1e9),
                 found = large.bounded_value("left", b * 9000 * 19 + k, 1e9);
      ASSERT_TRUE(expected && found);
      EXPECT_EQ(found->value, expected->value) << b << " " << k;
      EXPECT_EQ(found->bound, expected->bound) << b << " " << k;
    }
  }
}

}  // namespace
}  // namespace nestor
