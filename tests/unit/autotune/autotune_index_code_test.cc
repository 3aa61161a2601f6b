// Index code at many points at once gives what it does at each of them.
#include "autotune/oracle/code/index_code.h"
#include "poly/isl/context.h"

#include <gtest/gtest.h>

#include <isl/aff.h>
#include <isl/ast_build.h>

#include <array>

namespace nestor {
namespace {

/// Of a function of two dims, which are slots 0 and 1.
IndexExpr compiled(const std::string& function) {
  isl_pw_aff* value = isl_pw_aff_read_from_str(isl_context().get(), ("[i, j] -> { " + function + " }").c_str());
  EXPECT_NE(value, nullptr) << function;
  isl_ast_build* build = isl_ast_build_alloc(isl_context().get());
  isl_ast_expr* expr = isl_ast_build_expr_from_pw_aff(build, value);
  const IndexExpr code(expr, {{"i", 0}, {"j", 1}});
  isl_ast_expr_free(expr);
  isl_ast_build_free(build);
  return code;
}

struct Case {
  const char* function;
  std::int64_t (*value)(std::int64_t i, std::int64_t j);
};

std::int64_t floors(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

const std::vector<Case> kCases{
    {"[(3 i - 2 j + 5)]", [](std::int64_t i, std::int64_t j) { return 3 * i - 2 * j + 5; }},
    {"[(floor((i + j) / 8))]", [](std::int64_t i, std::int64_t j) { return floors(i + j, 8); }},
    {"[(floor((5 i - 3 j) / 7))]", [](std::int64_t i, std::int64_t j) { return floors(5 * i - 3 * j, 7); }},
    {"[((i + 2 j) mod 6)]", [](std::int64_t i, std::int64_t j) { return i + 2 * j - 6 * floors(i + 2 * j, 6); }},
    {"[((i - j) mod 4 + floor(j / 3))]",
     [](std::int64_t i, std::int64_t j) { return i - j - 4 * floors(i - j, 4) + floors(j, 3); }},
    {"[(i)] : i < j; [(2 j)] : i >= j", [](std::int64_t i, std::int64_t j) { return i < j ? i : 2 * j; }},
    {"[(floor(i / 5))] : i >= 4 and j <= 9; [(-j)] : i < 4 or j > 9",
     [](std::int64_t i, std::int64_t j) { return i >= 4 && j <= 9 ? floors(i, 5) : -j; }},
    {"[(floor(1000000007 i / 3000000019))]", [](std::int64_t i, std::int64_t) { return floors(1000000007 * i, 3000000019); }},
};

TEST(IndexCode, ManyPointsAtOnceAreAsEachOfThem) {
  for (const Case& test : kCases) {
    const IndexExpr code = compiled(test.function);
    for (const std::vector<std::int64_t>& along : {std::vector<std::int64_t>{1, 0}, {0, 1}, {3, -2}, {-5, 7}, {0, 0}}) {
      for (const std::array<std::int64_t, 2>& first : {std::array<std::int64_t, 2>{0, 0}, {-40, 17}, {1000, 3}, {7, -500}}) {
        for (const int count : {1, 2, 37, IndexExpr::kMostPoints}) {
          std::array<std::int64_t, IndexExpr::kMostPoints> found{};
          code.evaluate(first.data(), along, count, found.data());
          for (int k = 0; k < count; ++k) {
            const std::array<std::int64_t, 2> at{first[0] + k * along[0], first[1] + k * along[1]};
            ASSERT_EQ(found[static_cast<std::size_t>(k)], test.value(at[0], at[1]))
                << test.function << " at " << at[0] << ", " << at[1];
            ASSERT_EQ(code.evaluate(at.data()), test.value(at[0], at[1])) << test.function;
          }
        }
      }
    }
  }
}

/// A single point needs no steps.
TEST(IndexCode, OnePointWithoutSteps) {
  const std::array<std::int64_t, 2> at{11, 5};
  std::int64_t found = 0;
  compiled("[(floor((i + j) / 3))]").evaluate(at.data(), {}, 1, &found);
  EXPECT_EQ(found, 5);
}

}  // namespace
}  // namespace nestor
