// Convolutions whose taps lie apart, of one map or of several, whose sums are added up or are results each.
#pragma once

#include "support/nests/operand_nests.h"

#include <algorithm>
#include <string>
#include <vector>

namespace nestor::samples {

/// A convolution of `size` x `size` taps, `apart` places from one to the next, at every place of its map that is a multiple of `stride`.
struct TappedConvolution {
  int size = 3, apart = 1, stride = 1;
  std::string map = "x", channels = "K";
  std::string cut = "";  ///< what else holds of the places y and taps s
};

/// out[n, y, z, f] = max(sum of all Σ_{s, t, k} m[n, e y + d (s - S / 2), e z + d (t - S / 2), k] w[f, s, t, k], 0) with terms inside of the map
/// m alone, or a result for each. Maps: [B, e Y, e Z, K].
inline Nest tapped_convolutions(const std::vector<TappedConvolution>& all, bool added = true) {
  const std::string place = "0 <= n < B and 0 <= y < Y and 0 <= z < Z and 0 <= f < F", cell = "[n, y, z, f]";
  NestBuilder builder("tapped_convolutions", {{"B", 8}, {"Y", 64}, {"Z", 64}, {"F", 64}, {"K", 64}, {"P", 128}});
  std::vector<std::string> maps, sums;
  for (std::size_t c = 0; c < all.size(); ++c) {
    const TappedConvolution& each = all[c];
    const std::string number_of = std::to_string(c), size = std::to_string(each.size), e = std::to_string(each.stride),
                      d = std::to_string(each.apart), half = std::to_string(each.size / 2), sum = "sum" + number_of;
    const auto at = [&](const std::string& dim, const std::string& tap) {
      return e + " " + dim + " + " + d + " " + tap + " - " + d + " * " + half;
    };
    if (std::find(maps.begin(), maps.end(), each.map) == maps.end()) {
      builder.tensor(each.map, TensorRole::input, {"B", e + " Y", e + " Z", each.channels}, ElementType::f16);
      maps.push_back(each.map);
    }
    const std::string inside = "0 <= " + at("y", "s") + " < " + e + " Y and 0 <= " + at("z", "t") + " < " + e + " Z" + each.cut;
    builder.tensor("w" + number_of, TensorRole::input, {"F", size, size, each.channels}, ElementType::f16)
        .tensor(sum, TensorRole::temporary, {"B", "Y", "Z", "F"})
        .statement("init" + number_of + cell + " : " + place, sum + cell, {}, number(0))
        .statement("add" + number_of + "[n, y, z, f, s, t, k] : " + place + " and 0 <= s < " + size + " and 0 <= t < " + size +
                       " and 0 <= k < " + each.channels + " and " + inside,
                   sum + cell,
                   {each.map + "[n, " + at("y", "s") + ", " + at("z", "t") + ", k]", "w" + number_of + "[f, s, t, k]"},
                   product_of_halves(), ReductionOp::add);
    sums.push_back(sum + cell);
  }
  const auto result = [&](const std::string& name, const std::vector<std::string>& reads) {
    ScalarExpr value = read(0);
    for (std::size_t c = 1; c < reads.size(); ++c) value = value + read(static_cast<int>(c));
    builder.tensor(name, TensorRole::output, {"B", "Y", "Z", "F"}, ElementType::f16)
        .statement(name + cell + " : " + place, name + cell, reads,
                   ScalarExpr::cast(ElementType::f16, ScalarExpr::make(ScalarOp::max, {value, number(0)})));
  };
  if (added) result("out", sums);
  for (std::size_t c = 0; c < all.size() && !added; ++c) result("out" + std::to_string(c), {sums[c]});
  Nest nest = builder.build();
  for (SizeParam& size : nest.sizes) size.specialized = size.name == "K" || size.name == "P" || size.name == "F";
  return nest;
}

}  // namespace nestor::samples
