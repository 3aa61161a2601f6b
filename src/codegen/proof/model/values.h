// Scalar expressions that a program's ops must have: a statement's, or a composite's formulas with counts left open.
#pragma once

#include "codegen/proof/model/subject.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace nestor::proof {

/// Names of the scalars that stand for counts of reduction points in an expected value. The program has an index in their place.
inline constexpr const char* kPointsBefore = "#before";    ///< accumulated before the tile
inline constexpr const char* kPointsThrough = "#through";  ///< accumulated up to its end
inline constexpr const char* kPointsTotal = "#total";      ///< of the whole reduction

/// The value of an expression without leaves but constants.
std::optional<double> constant_value(const ScalarExpr& expr);

/// The expression with scalars replaced by expressions.
ScalarExpr with_scalars(const ScalarExpr& expr, const std::map<std::string, ScalarExpr>& values);

/// The statement's value as its op computes it: reads of a running leading value are shown through the composite's view.
ScalarExpr viewed_value(const Subject& subject, const Statement& statement);

/// Where an expected value has a count, the op has `cast(f32, index(k))`, or a product of such: which indices stand for which count.
struct CountUse {
  std::string count;
  std::vector<int> factors;
};

/// Is `actual` the expected value? Fills `counts`.
bool matches(const ScalarExpr& actual, const ScalarExpr& expected, std::vector<CountUse>& counts);
bool matches_value(const TileOp& op, const ScalarExpr& expected);

/// What a composite's `view`, or what it corrects by, makes of a leading value after `points`.
ScalarExpr view_of(const ScalarExpr& view, const ScalarExpr& value, const std::string& points);

}  // namespace nestor::proof
