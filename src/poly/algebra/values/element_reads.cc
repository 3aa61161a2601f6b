// Injective accesses, and accesses that several points share.
#include "poly/algebra/values/element_reads.h"

#include <isl/map.h>

#include <algorithm>
#include <set>

#include "poly/algebra/values/few_terms.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/nest/nest_sets.h"
#include "poly/nest/scalar_share.h"

namespace nestor {

int nodes_of(const ScalarExpr& value) {
  int nodes = 0;
  share_nodes(value).visit([&](const ScalarExpr&) { ++nodes; });
  return nodes;
}

bool reads_elements(const Nest& nest, const Statement& reader, const Access& read, bool a_few_times) {
  isl::map relation = read.relation.intersect_domain(domain_in(nest, reader));
  if (isl_map_is_injective(relation.get()) == isl_bool_true) return true;
  std::vector<int> others;
  for (int dim = 0; dim < static_cast<int>(reader.dims.size()); ++dim) {
    if (!depends_on_dim(read.relation, dim)) others.push_back(dim);
  }
  if (!a_few_times || others.empty() || few_values(domain_in(nest, reader), others).empty()) return false;
  for (auto dim = others.rbegin(); dim != others.rend(); ++dim)
    relation = isl::manage(isl_map_project_out(relation.release(), isl_dim_in, static_cast<unsigned>(*dim), 1));
  return isl_map_is_injective(relation.get()) == isl_bool_true;
}

bool shares_operands(const Statement& statement) {
  return !statement.reads.empty() && std::all_of(statement.reads.begin(), statement.reads.end(), [&](const Access& read) {
    return isl_map_is_injective(read.relation.intersect_domain(statement.domain).get()) == isl_bool_false;
  });
}

bool has_functions(const ScalarExpr& value) {
  static const std::set<ScalarOp> kFunctions{ScalarOp::exp,  ScalarOp::exp2,  ScalarOp::log,  ScalarOp::pow,   ScalarOp::sqrt,
                                             ScalarOp::erf,  ScalarOp::tanh,  ScalarOp::sin,  ScalarOp::rsqrt, ScalarOp::cos,
                                             ScalarOp::atan, ScalarOp::log1p, ScalarOp::expm1};
  bool found = false;
  value.visit([&](const ScalarExpr& expr) { found = found || kFunctions.contains(expr.op()); });
  return found;
}

}  // namespace nestor
