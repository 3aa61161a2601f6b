// Nests with products whose operands tensor copies cannot step along, or whose rows are few along their last index.
#pragma once

#include "support/nests/half_values.h"
#include "support/nests/sample_nests.h"

#include <string>
#include <vector>

namespace nestor::samples {

/// Weights of pairs within windows, and what they weigh: out[at, i, d] += exp(q[at, i] k[at, j]) v[at, j, d] over the points j of a window, where
/// `at` are the indices named in `around` with their extents. Rows of the operands: `row`, with the letter % for the point. `weighs`: else
/// out[at, i, j] = q[at, i] k[at, j] alone.
inline Nest window_products(const std::vector<std::pair<std::string, std::string>>& around, const std::string& row,
                            const std::vector<std::string>& shape, const std::string& points = "7",
                            const std::string& depth = "16", bool weighs = true) {
  std::string at, bounds;
  std::vector<std::string> extents;
  for (const auto& [index, extent] : around) {
    at += index + ", ";
    bounds += "0 <= " + index + " < " + extent + " and ";
    extents.push_back(extent);
  }
  const auto row_of = [&](const std::string& point, const std::string& element) {
    std::string found = row;
    found.replace(found.find('%'), 1, point);
    return "[" + found + ", " + element + "]";
  };
  const auto with = [](std::vector<std::string> all, const std::vector<std::string>& more) {
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const std::string i = bounds + "0 <= i < " + points, j = " and 0 <= j < " + points, d = " and 0 <= d < " + depth,
                    e = " and 0 <= e < " + depth;
  NestBuilder builder("window_products", {{"B", 2}, {"H", 3}});
  for (const char* input : {"q", "k", "v"}) {
    if (weighs || *input != 'v') builder.tensor(input, TensorRole::input, with(shape, {depth}), kHalf);
  }
  builder.tensor("s", TensorRole::temporary, with(extents, {points, points}))
      .statement("s_init[" + at + "i, j] : " + i + j, "s[" + at + "i, j]", {}, number(0))
      .statement("s[" + at + "i, j, e] : " + i + j + e, "s[" + at + "i, j]", {"q" + row_of("i", "e"), "k" + row_of("j", "e")},
                 wide(0) * wide(1), ReductionOp::add);
  if (!weighs) {
    return builder.tensor("out", TensorRole::output, with(extents, {points, points}))
        .statement("out[" + at + "i, j] : " + i + j, "out[" + at + "i, j]", {"s[" + at + "i, j]"}, read(0) * number(0.5))
        .build();
  }
  return builder.tensor("p", TensorRole::temporary, with(extents, {points, points}))
      .tensor("sums", TensorRole::temporary, with(extents, {points, depth}))
      .tensor("out", TensorRole::output, with(extents, {points, depth}), kHalf)
      .statement("p[" + at + "i, j] : " + i + j, "p[" + at + "i, j]", {"s[" + at + "i, j]"},
                 ScalarExpr::make(ScalarOp::exp, {read(0) * number(0.25)}))
      .statement("sums_init[" + at + "i, d] : " + i + d, "sums[" + at + "i, d]", {}, number(0))
      .statement("sums[" + at + "i, d, j] : " + i + d + j, "sums[" + at + "i, d]", {"p[" + at + "i, j]", "v" + row_of("j", "d")},
                 read(0) * wide(1), ReductionOp::add)
      .statement("out[" + at + "i, d] : " + i + d, "out[" + at + "i, d]", {"sums[" + at + "i, d]"},
                 ScalarExpr::cast(kHalf, read(0) * number(0.125)))
      .build();
}

/// Four windows of a line of points that is rolled by 3.
inline Nest rolled_windows(const std::string& points = "7", const std::string& line = "28", const std::string& depth = "16",
                           bool weighs = true) {
  return window_products({{"b", "B"}, {"h", "H"}, {"w", "4"}}, "b, (" + points + "w + % + 3) mod " + line + ", h",
                         {"B", line, "H"}, points, depth, weighs);
}

/// Six indices: tensor copies have five.
inline Nest many_indices(const std::string& blocks = "2", const std::string& groups = "4", const std::string& points = "7",
                         const std::string& depth = "16", bool weighs = true) {
  return window_products({{"b", "B"}, {"h", "H"}, {"w", blocks}, {"g", groups}}, "b, h, w, g, %",
                         {"B", "H", blocks, groups, points}, points, depth, weighs);
}

/// Weights of pairs, values and a vector that they weigh: out[i, d] = (sum over j of p[i, j] v[j, d]) (sum over j of p[i, j] u[j]), where
/// p[i, j] = exp(q[i] k[j] / 4).
inline Nest weighed_vector() {
  const std::string i = "0 <= b < B and 0 <= i < N", j = " and 0 <= j < N", d = " and 0 <= d < 64", e = " and 0 <= e < 64";
  NestBuilder builder("weighed_vector", {{"B", 2}, {"N", 70}});
  for (const char* input : {"q", "k", "v"}) builder.tensor(input, TensorRole::input, {"B", "N", "64"}, kHalf);
  return builder.tensor("u", TensorRole::input, {"B", "N"})
      .tensor("s", TensorRole::temporary, {"B", "N", "N"})
      .tensor("p", TensorRole::temporary, {"B", "N", "N"})
      .tensor("sums", TensorRole::temporary, {"B", "N", "64"})
      .tensor("mean", TensorRole::temporary, {"B", "N"})
      .tensor("out", TensorRole::output, {"B", "N", "64"}, kHalf)
      .statement("s_init[b, i, j] : " + i + j, "s[b, i, j]", {}, number(0))
      .statement("s[b, i, j, e] : " + i + j + e, "s[b, i, j]", {"q[b, i, e]", "k[b, j, e]"}, wide(0) * wide(1), ReductionOp::add)
      .statement("p[b, i, j] : " + i + j, "p[b, i, j]", {"s[b, i, j]"},
                 ScalarExpr::make(ScalarOp::exp, {read(0) * number(0.125)}))
      .statement("sums_init[b, i, d] : " + i + d, "sums[b, i, d]", {}, number(0))
      .statement("sums[b, i, d, j] : " + i + d + j, "sums[b, i, d]", {"p[b, i, j]", "v[b, j, d]"}, read(0) * wide(1),
                 ReductionOp::add)
      .statement("mean_init[b, i] : " + i, "mean[b, i]", {}, number(0))
      .statement("mean[b, i, j] : " + i + j, "mean[b, i]", {"p[b, i, j]", "u[b, j]"}, read(0) * read(1), ReductionOp::add)
      .statement("out[b, i, d] : " + i + d, "out[b, i, d]", {"sums[b, i, d]", "mean[b, i]"},
                 ScalarExpr::cast(kHalf, read(0) * read(1) * number(0.001)))
      .build();
}

/// A convolution whose filters are in groups: out[n, y, g, s] = max(sum over t and c of x[n, y + t, c] w[g, s, t, c], 0).
inline Nest grouped_filters(const std::string& share = "8", const std::string& gap = "", const std::string& channels = "64") {
  const std::string cell = "0 <= n < N and 0 <= y < Y and 0 <= g < G and 0 <= s < " + share + gap;
  std::vector<std::pair<std::string, std::int64_t>> sizes{{"N", 2}, {"Y", 9}, {"G", 3}};
  if (share == "S") sizes.emplace_back("S", 8);
  return NestBuilder("grouped_filters", sizes)
      .tensor("x", TensorRole::input, {"N", "Y + 2", channels}, kHalf)
      .tensor("w", TensorRole::input, {"G", share, "3", channels}, kHalf)
      .tensor("sums", TensorRole::temporary, {"N", "Y", "G", share})
      .tensor("out", TensorRole::output, {"N", "Y", "G", share}, kHalf)
      .statement("init[n, y, g, s] : " + cell, "sums[n, y, g, s]", {}, number(0))
      .statement("sum[n, y, g, s, t, c] : " + cell + " and 0 <= t < 3 and 0 <= c < " + channels, "sums[n, y, g, s]",
                 {"x[n, y + t, c]", "w[g, s, t, c]"}, wide(0) * wide(1), ReductionOp::add)
      .statement("out[n, y, g, s] : " + cell, "out[n, y, g, s]", {"sums[n, y, g, s]"},
                 ScalarExpr::cast(kHalf, ScalarExpr::make(ScalarOp::max, {read(0) * number(0.1), number(0)})))
      .build();
}

/// Differences of neighbours in three channels, weighed and summed up: loss[n] += d[n, y] |sum over c of |x[n, c, y + 1] - x[n, c, y]|.
/// `doubled`: twice the differences are a result, too.
inline Nest weighed_steps(const std::string& channels = "3", bool doubled = false) {
  const std::string place = "0 <= n < N and 0 <= y < Y";
  NestBuilder builder("weighed_steps", {{"N", 2}, {"Y", 9}});
  builder.tensor("x", TensorRole::input, {"N", channels, "Y + 1"})
      .tensor("d", TensorRole::input, {"N", "Y"})
      .tensor("steps", TensorRole::temporary, {"N", "Y"})
      .tensor("loss", TensorRole::output, {"N"})
      .statement("steps_init[n, y] : " + place, "steps[n, y]", {}, number(0))
      .statement("steps[n, y, c] : " + place + " and 0 <= c < " + channels, "steps[n, y]", {"x[n, c, y + 1]", "x[n, c, y]"},
                 ScalarExpr::make(ScalarOp::abs, {read(0) - read(1)}), ReductionOp::add)
      .statement("loss_init[n] : 0 <= n < N", "loss[n]", {}, number(0))
      .statement("loss[n, y] : " + place, "loss[n]", {"d[n, y]", "steps[n, y]"}, read(0) * read(1), ReductionOp::add);
  if (doubled) {
    builder.tensor("twice", TensorRole::output, {"N", "Y"})
        .statement("twice[n, y] : " + place, "twice[n, y]", {"steps[n, y]"}, read(0) * number(2));
  }
  return builder.build();
}

/// Vectors of three, turned by a matrix each: out[n, a] = 2 sum over b of u[n, a, b] x[n, b] + sum over b of u[n, b, a] y[n, b].
/// `squared`: the first sum is a factor twice.
inline Nest turned_vectors(const std::string& axes = "3", bool squared = false) {
  const std::string element = "0 <= n < N and 0 <= a < " + axes, pair = element + " and 0 <= b < " + axes;
  NestBuilder builder("turned_vectors", {{"N", 2}});
  builder.tensor("u", TensorRole::input, {"N", axes, axes});
  for (const char* name : {"x", "y"}) builder.tensor(name, TensorRole::input, {"N", axes});
  for (const char* name : {"ahead", "back"}) builder.tensor(name, TensorRole::temporary, {"N", axes});
  const ScalarExpr ahead = squared ? read(0) * read(2) : read(0) * number(2);
  std::vector<std::string> reads{"ahead[n, a]", "back[n, a]"};
  if (squared) reads.emplace_back("ahead[n, " + axes + " - 1 - a]");
  return builder.tensor("out", TensorRole::output, {"N", axes})
      .statement("ahead_init[n, a] : " + element, "ahead[n, a]", {}, number(0))
      .statement("ahead[n, a, b] : " + pair, "ahead[n, a]", {"u[n, a, b]", "x[n, b]"}, read(0) * read(1), ReductionOp::add)
      .statement("back_init[n, a] : " + element, "back[n, a]", {}, number(0))
      .statement("back[n, a, b] : " + pair, "back[n, a]", {"u[n, b, a]", "y[n, b]"}, read(0) * read(1), ReductionOp::add)
      .statement("out[n, a] : " + element, "out[n, a]", reads, ahead + read(1))
      .build();
}

/// What a filter for each channel learns: out[t, c] = sum over n and y of x[n, y + t, c] g[n, y, c].
inline Nest channel_filter_gradient(std::int64_t channels = 256) {
  return NestBuilder("channel_filter_gradient", {{"N", 32}, {"Y", 3136}, {"C", channels}})
      .tensor("x", TensorRole::input, {"N", "Y + 48", "C"}, kHalf)
      .tensor("g", TensorRole::input, {"N", "Y", "C"}, kHalf)
      .tensor("out", TensorRole::output, {"49", "C"})
      .statement("init[t, c] : 0 <= t < 49 and 0 <= c < C", "out[t, c]", {}, number(0))
      .statement("out[t, c, n, y] : 0 <= t < 49 and 0 <= c < C and 0 <= n < N and 0 <= y < Y", "out[t, c]",
                 {"x[n, y + t, c]", "g[n, y, c]"}, wide(0) * wide(1), ReductionOp::add)
      .build();
}

/// A softmax over the neighbours of a point for each channel, and what it weighs: out[p, c] = sum over j of softmax(s[p, ., c])[j] v[p, j, c].
inline Nest channel_softmax(const std::string& neighbours = "M") {
  const std::string row = "0 <= p < P and 0 <= c < 64", all = row + " and 0 <= j < " + neighbours;
  return NestBuilder("channel_softmax", {{"P", 16384}, {"M", 16}})
      .tensor("s", TensorRole::input, {"P", neighbours, "64"}, kHalf)
      .tensor("v", TensorRole::input, {"P", neighbours, "64"}, kHalf)
      .tensor("top", TensorRole::temporary, {"P", "64"})
      .tensor("power", TensorRole::temporary, {"P", neighbours, "64"})
      .tensor("total", TensorRole::temporary, {"P", "64"})
      .tensor("sums", TensorRole::temporary, {"P", "64"})
      .tensor("out", TensorRole::output, {"P", "64"}, kHalf)
      .statement("top_init[p, c] : " + row, "top[p, c]", {}, number(-1e30))
      .statement("top[p, c, j] : " + all, "top[p, c]", {"s[p, j, c]"}, wide(0), ReductionOp::max)
      .statement("power[p, j, c] : " + all, "power[p, j, c]", {"s[p, j, c]", "top[p, c]"},
                 ScalarExpr::make(ScalarOp::exp, {wide(0) - read(1)}))
      .statement("total_init[p, c] : " + row, "total[p, c]", {}, number(0))
      .statement("total[p, c, j] : " + all, "total[p, c]", {"power[p, j, c]"}, read(0), ReductionOp::add)
      .statement("sums_init[p, c] : " + row, "sums[p, c]", {}, number(0))
      .statement("sums[p, c, j] : " + all, "sums[p, c]", {"power[p, j, c]", "v[p, j, c]"}, read(0) * wide(1), ReductionOp::add)
      .statement("out[p, c] : " + row, "out[p, c]", {"sums[p, c]", "total[p, c]"}, ScalarExpr::cast(kHalf, read(0) / read(1)))
      .build();
}

}  // namespace nestor::samples
