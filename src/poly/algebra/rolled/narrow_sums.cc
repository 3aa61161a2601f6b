// Terms of sums under conditions: s_e has none where select(c, s_e, 0) is 0 anyway.
#include "poly/algebra/rolled/narrow_sums.h"

#include <isl/map.h>
#include <isl/set.h>

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "poly/algebra/analysis/needed_points.h"
#include "poly/algebra/rolled/added_sums.h"
#include "poly/algebra/values/condition.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr std::size_t kFewest = 2;  ///< of such terms: one alone is a mask, which other rules know

/// A term that is a sum where a condition holds, else 0.
struct ConditionalSum {
  ScalarExpr select, read;
  std::string sum;
  isl::set points;  ///< of the sum, as far as they count
};

bool is_zero(const ScalarExpr& value) {
  return value.op() == ScalarOp::constant && value.number() == 0 && !std::signbit(value.number());
}

/// How often a value reads an access of the statement.
int count_reads(const ScalarExpr& value, int ordinal) {
  int count = 0;
  value.visit([&](const ScalarExpr& node) { count += node.op() == ScalarOp::read && node.ordinal() == ordinal ? 1 : 0; });
  return count;
}

/// The sum that alone adds to the tensor, from 0, if it is alone in its loops; else null.
const Statement* sum_of(const Nest& nest, const std::string& tensor) {
  const Statement* sum = nullptr;
  for (const Statement* writer : writers_of(nest, tensor)) {
    if (writer->reduction) sum = writer;
  }
  if (sum == nullptr || sum->reduction != ReductionOp::add || !alone_in_group(nest, sum->name)) return nullptr;
  const std::vector<const Statement*> starts = initialisers_of(nest, *sum);
  return starts.size() + 1 == writers_of(nest, tensor).size() && starts_from(nest, *sum, 0) ? sum : nullptr;
}

std::optional<ConditionalSum> conditional_sum(const Nest& nest, const Statement& reader, const ScalarExpr& term) {
  if (term.op() != ScalarOp::select) return std::nullopt;
  const bool otherwise = is_zero(term.args()[1]);
  const ScalarExpr &read = term.args()[otherwise ? 2 : 1], &zero = term.args()[otherwise ? 1 : 2];
  if (read.op() != ScalarOp::read || !is_zero(zero) || count_reads(reader.value, read.ordinal()) != 1) return std::nullopt;
  const Access& access = reader.reads[static_cast<std::size_t>(read.ordinal())];
  const Tensor& tensor = nest.tensor(access.tensor);
  if (tensor.role != TensorRole::temporary || tensor.type != ElementType::f32 || readers_of(nest, tensor.name).size() != 1)
    return std::nullopt;
  for (std::size_t k = 0; k < reader.reads.size(); ++k) {
    if (reader.reads[k].tensor == tensor.name && static_cast<int>(k) != read.ordinal()) return std::nullopt;
  }
  const Statement* sum = sum_of(nest, tensor.name);
  const auto condition = sum == nullptr ? std::nullopt : condition_set(nest, reader, term.args()[0]);
  if (!condition) return std::nullopt;
  const isl::set domain = domain_in(nest, reader), holds = otherwise ? domain.subtract(*condition) : domain.intersect(*condition);
  const isl::map elements = access.relation.intersect_domain(domain);
  isl::set started = isl::set::empty(elements.range().space());
  for (const Statement* start : initialisers_of(nest, *sum))
    started = started.unite(start->write.relation.intersect_domain(domain_in(nest, *start)).range());
  if (!domain.is_subset(elements.domain()) || !elements.is_injective() || !elements.range().is_subset(started))
    return std::nullopt;
  const isl::set counts = elements.intersect_domain(holds).range(),
                 points = sum->domain.intersect(sum->write.relation.intersect_range(counts).domain());
  return ConditionalSum{term, read, sum->name, points};
}

/// Those of additions of several.
std::vector<ConditionalSum> conditional_sums(const Nest& nest, const Statement& reader) {
  std::vector<ConditionalSum> found;
  visit_additions(reader.value, [&](const std::vector<ScalarExpr>& terms) {
    std::vector<ConditionalSum> own;
    for (const ScalarExpr& term : terms) {
      if (auto sum = conditional_sum(nest, reader, term)) own.push_back(std::move(*sum));
    }
    if (own.size() >= kFewest) found.insert(found.end(), own.begin(), own.end());
  });
  return found;
}

}  // namespace

std::optional<Nest> with_narrow_sums(const Nest& nest, const std::string& statement) {
  Statement reader = nest.statement(statement);
  const std::vector<ConditionalSum> sums = reader.reduction ? std::vector<ConditionalSum>{} : conditional_sums(nest, reader);
  if (sums.empty()) return std::nullopt;
  Nest result = nest;
  for (const ConditionalSum& each : sums) {
    Statement sum = result.statement(each.sum);
    narrow(nest, sum, each.points);
    replace_statement(result, sum);
    reader.value = reader.value.rewrite([&](const ScalarExpr& node) { return node.equals(each.select) ? each.read : node; });
  }
  compact(reader);
  replace_statement(result, reader);
  return result;
}

}  // namespace nestor
