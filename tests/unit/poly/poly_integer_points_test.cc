// What tests enumerate sets with, against isl's own scan.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "poly/isl/isl_tools.h"
#include "support/nests/integer_points.h"

namespace nestor {
namespace {

using Points = std::vector<std::vector<std::int64_t>>;

Points scanned(const isl::set& set) {
  Points all;
  set.foreach_point([&](const isl::point& point) {
    all.emplace_back();
    for (int k = 0; k < static_cast<int>(isl_set_dim(set.get(), isl_dim_set)); ++k)
      all.back().push_back(isl_val_get_num_si(isl::manage(isl_point_get_coordinate_val(point.get(), isl_dim_set, k)).get()));
  });
  std::sort(all.begin(), all.end());
  return all;
}

TEST(IntegerPoints, are_those_of_isl) {
  for (const char* text :
       {"{ [] : }", "{ [] : 1 = 0 }", "{ [i] : 0 <= i < 7 }", "{ [i] : 3 <= i < 3 }", "{ [i, j] : 0 <= i < 6 and 0 <= j <= i }",
        "{ [i, j] : 0 <= i + j < 4 and 0 <= i - j < 5 }",           // no interval of its own for either dim
        "{ [i, j] : 0 <= 3i + 5j <= 40 and i >= -2 and j >= -3 }",  // quotients of negative numbers
        "{ [i, j] : -20 <= i <= 20 and j = floor(i/3) }",           // divs
        "{ [i] : -9 <= i <= 30 and i mod 6 = 4 }",                  // equalities of divs
        "{ [i, j] : 0 <= i < 30 and 2j <= i mod 7 and j >= 0 }",
        "{ [i] : exists (k, l : i = 3k + 5l and 0 <= k < 4 and 0 <= l < 3) }",  // more than one value each, and gaps
        "{ [i, j] : exists k : 0 <= k < 4 and 2k <= i < 3k and k <= j <= 2k }",
        "{ [i] : 0 <= i < 5 or 3 <= i < 9 or i = 20 }",  // parts that overlap
        "{ [i, j] : (0 <= i < 4 and 0 <= j < 4) or (2 <= i < 6 and j = floor(i/2)) }",
        "{ S[i, j, k] : 0 <= i < 3 and i <= j < 5 and k = 4i - 3j }"}) {
    const isl::set set = parse_set(text, "set");
    EXPECT_EQ(samples::integer_points(set), scanned(set)) << text;
  }
}

TEST(IntegerPoints, are_those_of_isl_at_values_of_parameters) {
  for (const char* text :
       {"[n, m] -> { [i, j] : 0 <= i < n and i <= j < m }", "[n, m] -> { [i] : 0 <= i < 2n and i mod 3 = m mod 3 }",
        "[n, m] -> { [i, j] : 0 <= 3i < n + 4m and j = floor((i + n)/3) - m }",
        "[n, m] -> { [i] : exists k : 0 <= k < n and i = 3k + m }", "[n, m] -> { [i] : n > m and 0 <= i < n }",
        // without intervals of its own, so that isl scans
        "[n, m] -> { [x, y] : 0 <= x + y <= n and 0 <= x - y <= m and 3x >= 3y + 1 and 3y >= 3x - 2 }"}) {
    const isl::set set = parse_set(text, "set");
    for (const auto& [n, m] : {std::pair(0, 1), std::pair(3, 5), std::pair(7, 2), std::pair(1, 0)}) {
      const isl::set at = set.intersect_params(parse_set(fmt::format("[n, m] -> {{ : n = {} and m = {} }}", n, m), "sizes"));
      const isl::set fixed = isl::manage(isl_set_project_out(at.copy(), isl_dim_param, 0, 2));
      EXPECT_EQ(samples::integer_points(set, {{"n", n}, {"m", m}}), scanned(fixed)) << text << " " << n << " " << m;
    }
  }
}

// Constraints of which each only moves the other's bound.
TEST(IntegerPoints, are_none_where_bounds_only_grow) {
  const isl::set set = parse_set("{ [x, y] : x >= 0 and 3x >= 3y + 1 and 3y >= 3x - 2 and 2x + 2y = 7 }", "set");
  EXPECT_EQ(samples::integer_points(set), scanned(set));
}

}  // namespace
}  // namespace nestor
