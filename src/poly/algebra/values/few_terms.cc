// Terms one after the other, each with its reduced dims fixed.
#include "poly/algebra/values/few_terms.h"

#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

/// Is 0 + x the same as x, bit for bit? It is unless x is -0, which no square is, and no size.
bool keeps_zero(const ScalarExpr& term) {
  const bool square = term.op() == ScalarOp::mul && term.args()[0].equals(term.args()[1]);
  return square || term.op() == ScalarOp::abs || term.op() == ScalarOp::exp;
}

/// { Start -> Sum }: the instance that adds the term to what the start has written.
isl::map instance_of(const Nest& nest, const Statement& start, const Statement& sum, const std::vector<int>& reduced,
                     const std::vector<std::int64_t>& term) {
  isl_set* domain = domain_in(nest, sum).release();
  for (std::size_t k = 0; k < reduced.size(); ++k)
    domain = isl_set_fix_si(domain, isl_dim_set, static_cast<unsigned>(reduced[k]), static_cast<int>(term[k]));
  const isl::map write = sum.write.relation.intersect_domain(isl::manage(domain));
  const isl::map found = start.write.relation.intersect_domain(domain_in(nest, start)).apply_range(write.reverse());
  return isl::manage(isl_map_gist_params(found.copy(), full_context(nest).release()));
}

}  // namespace

std::vector<std::vector<std::int64_t>> few_values(const isl::set& domain, const std::vector<int>& dims) {
  isl_set* values = isl_set_project_out_all_params(domain.copy());
  for (int dim = static_cast<int>(isl_set_dim(domain.get(), isl_dim_set)); dim-- > 0;) {
    const bool kept = std::find(dims.begin(), dims.end(), dim) != dims.end();
    if (!kept) values = isl_set_project_out(values, isl_dim_set, static_cast<unsigned>(dim), 1);
  }
  const isl::set points = isl::manage(values);
  if (points.is_empty() || isl_set_is_bounded(points.get()) != isl_bool_true) return {};
  std::vector<std::vector<std::int64_t>> found{{}};
  for (int k = 0; k < static_cast<int>(dims.size()); ++k) {
    const auto [low, high] = dim_range(points, k);
    if (static_cast<std::int64_t>(found.size()) * (high - low + 1) > kFewValues) return {};
    std::vector<std::vector<std::int64_t>> longer;
    for (const std::vector<std::int64_t>& point : found) {
      for (std::int64_t value = low; value <= high; ++value) {
        longer.push_back(point);
        longer.back().push_back(value);
      }
    }
    found = std::move(longer);
  }
  // The domain may leave out some of its box.
  std::erase_if(found, [&](const std::vector<std::int64_t>& point) {
    isl_set* there = points.copy();
    for (std::size_t k = 0; k < point.size(); ++k)
      there = isl_set_fix_si(there, isl_dim_set, static_cast<unsigned>(k), static_cast<int>(point[k]));
    return isl::manage(there).is_empty();
  });
  return found;
}

bool is_read_when_complete(const Nest& nest, const Statement& update) {
  const std::vector<const Statement*> readers = readers_of(nest, update.write.tensor);
  return !initialisers_of(nest, update).empty() &&
         std::all_of(readers.begin(), readers.end(), [&](const Statement* reader) { return reader->group > update.group; });
}

std::optional<Nest> with_sum_as_value(const Nest& nest, const std::string& sum) {
  const Statement& update = nest.statement(sum);
  const Tensor& tensor = nest.tensor(update.write.tensor);
  // Sums in 16 bits are kept in more, and rounded where they are read. Products of terms stay reductions.
  if (!update.reduction || update.reduction == ReductionOp::mul || tensor.role != TensorRole::temporary ||
      tensor.type != ElementType::f32 || update.value.type() != tensor.type)
    return std::nullopt;
  const std::vector<const Statement*> starts = initialisers_of(nest, update);
  if (starts.size() != 1 || starts.front()->value.type() != tensor.type || !alone_in_group(nest, sum) ||
      !alone_in_group(nest, starts.front()->name) || !may_recompute(nest, *starts.front(), update) ||
      !is_read_when_complete(nest, update))
    return std::nullopt;
  const Statement& start = *starts.front();
  const std::vector<int> reduced = reduced_dims(update);
  const auto terms = few_values(domain_in(nest, update), reduced);
  Statement value = start;
  const bool from_zero = start.value.is_constant(0), sums = update.reduction == ReductionOp::add;
  const bool from_neutral = !sums && start.value.is_constant(neutral_element(*update.reduction, tensor.type));
  for (std::size_t k = 0; k < terms.size(); ++k) {
    const isl::map instance = instance_of(nest, start, update, reduced, terms[k]);
    // Each element has the term, once.
    const isl::set with_term = instance.domain().intersect_params(full_context(nest));
    if (!instance.is_single_valued() || !domain_in(nest, start).is_subset(with_term)) return std::nullopt;
    const ScalarExpr term = import_value(value, update, instance, update.value);
    const bool first = k == 0 && (from_neutral || (sums && from_zero && keeps_zero(term)));
    value.value = first ? term : ScalarExpr::make(combiner(*update.reduction), {value.value, term});
  }
  if (terms.empty()) return std::nullopt;
  value = renamed(value, sum);
  value.group = update.group;
  Nest result = nest;
  replace_statement(result, value);
  erase_statement(result, start.name);
  return result;
}

}  // namespace nestor
