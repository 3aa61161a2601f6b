// Points that are needed.
#include "poly/algebra/analysis/needed_points.h"

#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <string>

#include "poly/algebra/values/condition.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

/// Elements of a tensor that some statement reads.
isl::set needed(const Nest& nest, const Tensor& tensor) {
  isl::set elements = isl::set::empty(tensor_box(tensor).space());
  for (const Statement& reader : nest.statements) {
    for (const Access& read : reader.reads) {
      if (read.tensor == tensor.name) elements = elements.unite(read.relation.intersect_domain(domain_in(nest, reader)).range());
    }
  }
  return elements.coalesce();
}

/// Elements that later statements write anew before anything reads the tensor again: what the statement at `position` leaves there is lost.
isl::set written_again(const Nest& nest, std::size_t position) {
  const Statement& first = nest.statements[position];
  const std::string& tensor = first.write.tensor;
  const auto reads_it = [&](const Statement& statement) {
    return std::any_of(statement.reads.begin(), statement.reads.end(), [&](const Access& read) { return read.tensor == tensor; });
  };
  isl::set elements = isl::set::empty(tensor_box(nest.tensor(tensor)).space());
  if (!alone_in_group(nest, first.name) || reads_it(first)) return elements;
  for (std::size_t k = position + 1; k < nest.statements.size() && !reads_it(nest.statements[k]); ++k) {
    const Statement& later = nest.statements[k];
    if (later.write.tensor != tensor) continue;
    if (later.reduction || !alone_in_group(nest, later.name)) break;
    elements = elements.unite(later.write.relation.intersect_domain(domain_in(nest, later)).range());
  }
  return elements.coalesce();
}

/// The condition, without the parts that are the same in the whole domain.
ScalarExpr undecided(const Nest& nest, const Statement& statement, const isl::set& domain, const ScalarExpr& condition) {
  const auto decided = [](bool holds) { return ScalarExpr::constant(holds ? 1 : 0, ElementType::boolean); };
  if (const auto set = condition_set(nest, statement, condition)) {
    if (domain.is_subset(*set)) return decided(true);
    return domain.is_disjoint(*set) ? decided(false) : condition;
  }
  const bool both = condition.op() == ScalarOp::logical_and;
  if (!both && condition.op() != ScalarOp::logical_or && condition.op() != ScalarOp::logical_not) return condition;
  std::vector<ScalarExpr> parts;
  for (const ScalarExpr& arg : condition.args()) parts.push_back(undecided(nest, statement, domain, arg));
  if (condition.op() == ScalarOp::logical_not)
    return parts[0].op() == ScalarOp::constant ? decided(parts[0].number() == 0) : condition.with_args(std::move(parts));
  for (const std::size_t k : {std::size_t{0}, std::size_t{1}}) {
    if (parts[k].op() != ScalarOp::constant) continue;
    return (parts[k].number() != 0) == both ? parts[1 - k] : parts[k];
  }
  return condition.with_args(std::move(parts));
}

void decide_selects_of(const Nest& nest, Statement& statement) {
  const isl::set domain = domain_in(nest, statement);
  const ScalarExpr before = statement.value;
  statement.value = before.rewrite([&](const ScalarExpr& node) {
    if (node.op() != ScalarOp::select) return node;
    const ScalarExpr condition = undecided(nest, statement, domain, node.args()[0]);
    if (condition.op() == ScalarOp::constant) return node.args()[condition.number() != 0 ? 1 : 2];
    return condition.equals(node.args()[0]) ? node
                                            : ScalarExpr::make(ScalarOp::select, {condition, node.args()[1], node.args()[2]});
  });
  if (!statement.value.equals(before)) compact(statement);
}

}  // namespace

void narrow(const Nest& nest, Statement& statement, const isl::set& domain) {
  const isl::set plain = domain.intersect_params(full_context(nest)).coalesce();
  isl::set simple = isl::manage(isl_set_gist_params(plain.copy(), full_context(nest).release())).coalesce();
  simple = isl::manage(with_dim_names(simple.release(), statement.dims));
  statement.domain = simple;
}

void shrink_to_need(Nest& nest) {
  for (std::size_t k = nest.statements.size(); k-- > 0;) {
    Statement& statement = nest.statements[k];
    const Tensor& tensor = nest.tensor(statement.write.tensor);
    if (tensor.role != TensorRole::temporary) continue;
    const isl::set domain = domain_in(nest, statement);
    const isl::set kept = needed(nest, tensor).subtract(written_again(nest, k));
    const isl::set used = statement.write.relation.intersect_range(kept).domain().intersect(domain);
    if (!domain.is_subset(used)) narrow(nest, statement, statement.domain.intersect(used));
  }
}

void decide_selects(Nest& nest) {
  for (Statement& statement : nest.statements) decide_selects_of(nest, statement);
  std::erase_if(nest.statements, [&](const Statement& s) { return domain_in(nest, s).is_empty(); });
}

}  // namespace nestor
