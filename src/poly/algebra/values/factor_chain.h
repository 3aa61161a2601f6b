// FactorChain: the factors of a sum's terms, and the ways to add up some of them in a sum of its own.
#pragma once

#include "poly/nest/nest.h"

#include <set>
#include <string>
#include <vector>

namespace nestor {

/// Factors of a product in f32, in the order of its multiplications; one where it is no product. Casts and quotients are factors.
std::vector<ScalarExpr> factors_of(const ScalarExpr& value);

/// The product of factors, from the first one on; there is one at least.
ScalarExpr product_in_order(const std::vector<ScalarExpr>& factors);

/// A sum of products over dims R and S as sum over S of outside * (sum over R of inside).
struct SumNesting {
  std::vector<int> inner;                   ///< R: reduced dims of the statement, each followed by factors inside alone
  std::vector<int> outer;                   ///< the statement's other dims
  std::vector<ScalarExpr> inside, outside;  ///< factors that follow R; the others
  bool regroups = false;                    ///< the definition does not multiply the factors inside first
};

/// All nestings of a sum of products whose factors outside follow all other reduced dims, of which there is one at least. R with fewer dims
/// first; empty: the statement is no sum of products in f32, or has none.
std::vector<SumNesting> nestings_of(const Statement& sum);

/// Points along some dims of the statement, where sizes have their defaults: the product of the dims' extents.
double default_points(const Nest& nest, const Statement& statement, const std::vector<int>& dims);
/// Elements of the tensor for such sizes.
double default_elements(const Nest& nest, const Tensor& tensor);

/// All statements that compute the tensors, directly or by what they read.
std::vector<const Statement*> statements_behind(const Nest& nest, std::set<std::string> tensors);

/// A rule's target: the statement, and dims of it by their names.
std::vector<std::string> target_of_dims(const Statement& statement, const std::vector<int>& dims);

/// Are the dims of the statement those that a rule's target names behind the statement, in any order?
bool are_dims(const Statement& statement, const std::vector<int>& dims, const std::vector<std::string>& target);

}  // namespace nestor
