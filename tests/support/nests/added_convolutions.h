// Gates of a convolutional recurrent cell: sums over taps and channels of several images that are added together.
#pragma once

#include "support/nests/operand_nests.h"

#include <string>
#include <vector>

namespace nestor::samples {

/// What two or three convolutions are, and how they are added.
struct AddedConvolutions {
  int gates = 1;
  bool third = false;                ///< a third image, with the channels of the second one
  std::string second_taps = "s, t";  ///< dims of the second sum before its channels: "s, t", or "t, s"
  std::string second_size = "3";     ///< taps of the second sum each way
  std::string second_at = "y + s";   ///< rows of the second image
  std::string weight_at = "s, t";    ///< taps of the second weight
  ElementType type = ElementType::f16;
  double scale = 1;            ///< of the second sum, where it is added
  std::string channels = "P";  ///< of the second image
  bool tiny = false;           ///< one image of 2 x 2 places and 2 filters, whatever sizes are given
};

/// out[n, y, z, f] = product of gates (Σ x v + bias + Σ h u + ..), over 3 x 3 taps and K channels of x and P of h. The bias stands between.
inline Nest added_convolutions(const AddedConvolutions& form = {}) {
  const std::string b = form.tiny ? "1" : "B", y = form.tiny ? "2" : "Y", z = form.tiny ? "2" : "Z", f = form.tiny ? "2" : "F";
  const std::string place = "0 <= n < " + b + " and 0 <= y < " + y + " and 0 <= z < " + z + " and 0 <= f < " + f,
                    cell = "[n, y, z, f]", size = form.second_size;
  const std::string first_taps = "0 <= s < 3 and 0 <= t < 3", taps = "0 <= s < " + size + " and 0 <= t < " + size,
                    gates = std::to_string(form.gates), p = form.channels;
  NestBuilder builder("added_convolutions", {{"B", 2}, {"Y", 3}, {"Z", 4}, {"F", 5}, {"K", 3}, {"P", 6}});
  builder.tensor("x", TensorRole::input, {b, y + " + 2", z + " + 2", "K"}, form.type)
      .tensor("h", TensorRole::input, {b, y + " + 2", z + " + 2", p}, form.type)
      .tensor("v", TensorRole::input, {gates, f, "3", "3", "K"}, form.type)
      .tensor("u", TensorRole::input, {gates, f, "3", "3", p}, form.type)
      .tensor("bias", TensorRole::input, {gates, f});
  if (form.third)
    builder.tensor("g", TensorRole::input, {b, y + " + 2", z + " + 2", p}, form.type)
        .tensor("q", TensorRole::input, {gates, f, "3", "3", p}, form.type);
  builder.tensor("out", TensorRole::output, {b, y, z, f}, ElementType::f16);
  const ScalarExpr product = form.type == ElementType::f32 ? read(0) * read(1) : product_of_halves(form.type);
  std::vector<std::string> reads;
  ScalarExpr value;
  for (int g = 0; g < form.gates; ++g) {
    const std::string gate = std::to_string(g);
    const auto sum = [&](const std::string& name, const std::string& dims, const std::string& domain,
                         const std::vector<std::string>& operands) {
      builder.tensor(name, TensorRole::temporary, {b, y, z, f})
          .statement(name + "_init" + cell + " : " + place, name + cell, {}, number(0))
          .statement(name + "[n, y, z, f, " + dims + "] : " + place + " and " + domain, name + cell, operands, product,
                     ReductionOp::add);
      reads.push_back(name + cell);
      return read(static_cast<int>(reads.size()) - 1);
    };
    ScalarExpr added =
        sum("sv" + gate, "s, t, k", first_taps + " and 0 <= k < K", {"x[n, y + s, z + t, k]", "v[" + gate + ", f, s, t, k]"});
    reads.push_back("bias[" + gate + ", f]");
    added = added + read(static_cast<int>(reads.size()) - 1);
    const ScalarExpr second = sum("su" + gate, form.second_taps + ", p", taps + " and 0 <= p < " + p,
                                  {"u[" + gate + ", f, " + form.weight_at + ", p]", "h[n, " + form.second_at + ", z + t, p]"});
    added = added + (form.scale == 1 ? second : second * number(form.scale));
    if (form.third)
      added = sum("sq" + gate, "s, t, p", first_taps + " and 0 <= p < " + p,
                  {"g[n, y + s, z + t, p]", "q[" + gate + ", f, s, t, p]"}) +
              added;
    value = g == 0 ? added : value * added;
  }
  return builder.statement("out" + cell + " : " + place, "out" + cell, reads, ScalarExpr::cast(ElementType::f16, value)).build();
}

}  // namespace nestor::samples
