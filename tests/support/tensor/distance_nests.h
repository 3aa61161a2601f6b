// Squared distances of rows, expanded to products on tensor cores: nests, schedules, and rows that are near, far, infinite and none.
#pragma once

#include "poly/algebra/all_rules.h"
#include "support/nests/operand_nests.h"
#include "support/simt/simt_image.h"
#include "support/tensor/product_nests.h"

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace nestor::testing {

struct DistanceSteps {
  int rows = 128, columns = 64, depth = 32, warpgroups = 2, stages = 2;
  std::vector<std::string> more{};
};

/// samples::squared_distances() behind the rule.
inline Nest expanded_distances(ElementType type = ElementType::bf16) {
  return rule("expand_squares").apply(samples::squared_distances(type), {"sum"}).nest;
}

/// Of these: norms in kernels of their own, and all else in one on tensor cores.
inline Schedule distance_schedule(const Nest& nest, const DistanceSteps& choice = {}) {
  std::vector<std::string> steps{"apply_rule(reassociate)"};
  const auto add = [&](const std::string& step) { steps.push_back(step); };
  for (const auto& [side, dim] : {std::pair("left", "i"), std::pair("right", "j")}) {
    add(fmt::format("fuse_with(sums_{0}_init.{1}, sums_{0}_sum.{1})", side, dim));
    add(fmt::format("gpu_blocks(sums_{}_sum.{})", side, dim));
  }
  const std::vector<std::string> names{
      "sums_product_init", "sums_product_sum", "sums_choice_made", "init", "sum", "sums_kept_copied", "out"};
  for (const std::string& name : names) {
    const bool product = name == "sums_product_sum";
    add(fmt::format("split({0}.i, {1}, {0}.io, {0}.ii)", name, choice.rows));
    add(fmt::format("split({0}.j, {1}, {0}.jo, {0}.ji)", name, choice.columns));
    if (product) add(fmt::format("split({0}.k, {1}, {0}.ko, {0}.ki)", name, choice.depth));
    add(fmt::format("reorder({0}.io, {0}.jo, {1}{0}.ii, {0}.ji{2})", name, product ? name + ".ko, " : "",
                    product         ? ", " + name + ".ki"
                    : name == "sum" ? ", sum.k"
                                    : ""));
  }
  for (std::size_t k = 0; k + 1 < names.size(); ++k) {
    for (const char* loop : {"io", "jo"}) add(fmt::format("fuse_with({}.{}, {}.{})", names[k], loop, names[k + 1], loop));
  }
  add("gpu_blocks(out.io, out.jo)");
  add(fmt::format("tensor_cores(out.io, {}, {})", choice.warpgroups, choice.stages));
  steps.insert(steps.end(), choice.more.begin(), choice.more.end());
  Schedule schedule{nest};
  for (const std::string& step : steps) schedule = schedule.apply(parse_step(step));
  return schedule;
}

/// What rows of x and y are.
enum class Rows {
  random,   ///< far from each other
  same,     ///< those of x are those of y
  near,     ///< around one point far from 0, and so near each other that all of the expansion cancels
  special,  ///< infinities, NaN, numbers whose squares overflow or underflow, and zeros, in one place or in all of them
};

inline std::vector<double> distance_rows(Rows rows, std::int64_t count, std::int64_t terms, ElementType type, bool right) {
  std::mt19937 random(right && rows != Rows::same ? 4 : 3);
  std::uniform_real_distribution<double> uniform(-1, 1);
  constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();
  const double huge = type == ElementType::f16 ? 6e4 : 2e38, tiny = type == ElementType::f16 ? 6e-8 : 1e-30;
  const std::vector<double> specials{kInfinity, -kInfinity, kNaN, huge, -huge, tiny, -tiny, 0, 1};
  std::vector<double> values;
  for (std::int64_t row = 0; row < count; ++row) {
    for (std::int64_t k = 0; k < terms; ++k) {
      double value = uniform(random);
      // Squares of many scales, whose sums are rounded.
      if (rows == Rows::near)
        value = std::exp2(static_cast<double>(13 * k % 8)) * (1 + 0.37 * static_cast<double>(k % 3)) * (1 + value / 128);
      const auto n = static_cast<std::size_t>(row) % (2 * specials.size() + 1);
      const bool all = n < specials.size(), one = n < 2 * specials.size() && k == 5;
      if (rows == Rows::special && (all || one)) value = specials[n % specials.size()];
      char bytes[8] = {};
      write_element(bytes, type, value);
      values.push_back(read_element(bytes, type));
    }
  }
  return values;
}

/// The first element that is further from the direct sum than the rule says, or that is infinite or NaN where the direct sum, in f32, is
/// not; empty: there is none.
inline std::string wrong_distance(const std::vector<double>& x, const std::vector<double>& y, const std::vector<double>& got,
                                  std::int64_t terms) {
  const std::int64_t columns = static_cast<std::int64_t>(y.size()) / terms;
  for (std::size_t n = 0; n < got.size(); ++n) {
    const std::int64_t i = static_cast<std::int64_t>(n) / columns, j = static_cast<std::int64_t>(n) % columns;
    double exact = 0;
    float direct = 0;
    for (std::int64_t k = 0; k < terms; ++k) {
      const double gap = x[static_cast<std::size_t>(i * terms + k)] - y[static_cast<std::size_t>(j * terms + k)];
      exact += gap * gap;
      direct += static_cast<float>(gap) * static_cast<float>(gap);
    }
    const double bound = 33 * static_cast<double>(terms + 2) * 0x1p-24 * exact + static_cast<double>(terms) * 0x1p-149;
    const bool same = std::isfinite(direct)
                          ? std::abs(got[n] - exact) <= bound
                          : std::isnan(direct) == std::isnan(got[n]) && (std::isnan(direct) || got[n] == direct);
    if (!same) return fmt::format("out[{}, {}] is {}, the sum is {}, in f32 {}", i, j, got[n], exact, direct);
  }
  return "";
}

}  // namespace nestor::testing
