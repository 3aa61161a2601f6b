// A nest before and after a rewrite on inputs with infinities, NaN and zeros, and mutants of the rewrite.
#pragma once

#include "poly/algebra/values/nest_edit.h"
#include "support/nests/nest_interpreter.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace nestor::samples {

/// The same special value, or nearly the same number.
inline bool same_value(double got, double want) {
  if (std::isnan(want)) return std::isnan(got);
  return std::isinf(want) ? got == want : std::fabs(got - want) <= 1e-9 * std::max(1.0, std::fabs(want));
}

/// Inputs of which each is special with some probability, and one of three numbers else: of both signs, or of one sign in each tensor.
inline Memory inputs_with_specials(const Nest& nest, const Sizes& sizes, std::mt19937_64& random) {
  Memory memory = Interpreter::random_inputs(nest, sizes, 1);
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> specials{infinity, -infinity, std::numeric_limits<double>::quiet_NaN(), 0, -0.0}, numbers{1, 2, -3};
  const unsigned rare = 2 + static_cast<unsigned>(random() % 12);
  const bool one_sign = random() % 3 != 0;
  for (auto& [name, elements] : memory) {
    const double sign = random() % 2 == 0 ? 1 : -1;
    for (const Index& index : indices_of(elements)) {
      double& value = elements.at(index);
      const bool special = random() % rare == 0;
      value = special ? specials[random() % specials.size()] : numbers[random() % numbers.size()];
      if (one_sign && !special) value = sign * std::fabs(value);
    }
  }
  return memory;
}

/// How many elements of "out" the second nest has otherwise, for so many inputs.
inline int differences(const Nest& before, const Nest& after, const Sizes& sizes, int inputs) {
  std::mt19937_64 random(7);
  int found = 0;
  for (int k = 0; k < inputs; ++k) {
    Memory expected = inputs_with_specials(before, sizes, random), actual = expected;
    Interpreter(before, sizes).run(expected);
    Interpreter(after, sizes).run(actual);
    for (const auto& [index, value] : expected.at("out")) found += same_value(actual.at("out").at(index), value) ? 0 : 1;
  }
  return found;
}

/// Names of the statements, in order.
inline std::vector<std::string> statement_names(const Nest& nest) {
  std::vector<std::string> names;
  for (const Statement& statement : nest.statements) names.push_back(statement.name);
  return names;
}

/// The nest with one statement changed.
inline Nest with_statement(const Nest& nest, const std::string& name, const std::function<void(Statement&)>& change) {
  Nest result = nest;
  Statement statement = result.statement(name);
  change(statement);
  replace_statement(result, statement);
  return result;
}

}  // namespace nestor::samples
