// Rule "flatten_sums": a sum of sums of products is one sum.
//
// Pattern    r_u += p_ut with p_ut = sum over k of a b, products of two 16-bit tensors: a convolution that adds up a sum for each of its taps.
// Rewrite    r_u += a b over t and k. p is gone, which would go through memory with an element for each t.
// Conditions p starts from 0, in f32, as r is; r alone reads it, each element once, by itself or through copies. Sum and reader are alone in their
//            loops, and what the sum reads is not written before r. Operands of the one sum are rows and columns of a product of matrices.
// Proof      associativity of the sum; infinities of one sign stay, those of both signs and NaN are NaN in any grouping.
// Rounding   as reassociate.
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "poly/algebra/operands/half_products.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr const char* kName = "flatten_sums";

/// The one sum in place of a reader of sums, and the statements that it makes needless.
struct Flattened {
  Statement sum;
  std::vector<std::string> needless;
};

/// What a reader adds up: { Reader -> element }, of a tensor that no copy of another one fills; `copies`: those that do, on the way.
struct Source {
  Access element;
  std::vector<std::string> copies;
};

std::optional<Source> source_of(const Nest& nest, const Statement& reader) {
  if (reader.reads.size() != 1 || reader.value.op() != ScalarOp::read) return std::nullopt;
  Source source{reader.reads.front(), {}};
  for (;;) {
    const std::string tensor = source.element.tensor;
    if (nest.tensor(tensor).role != TensorRole::temporary || nest.tensor(tensor).type != ElementType::f32 ||
        readers_of(nest, tensor).size() != 1)
      return std::nullopt;
    const Statement* copy = is_elementwise_temporary(nest, tensor) ? sole_definition(nest, tensor) : nullptr;
    if (copy == nullptr) return source;
    if (copy->value.op() != ScalarOp::read || copy->reads.size() != 1 || !alone_in_group(nest, copy->name)) return std::nullopt;
    const isl::map to_copy = source.element.relation.intersect_domain(domain_in(nest, reader))
                                 .apply_range(copy->write.relation.intersect_domain(domain_in(nest, *copy)).reverse());
    source = {{copy->reads.front().tensor, to_copy.apply_range(copy->reads.front().relation)}, std::move(source.copies)};
    source.copies.push_back(copy->name);
  }
}

/// { Reader[u, t, k] -> Inner[..] }: the inner sum's points that make what the reader reads at u and t.
isl::map to_inner(const Nest& nest, const Statement& reader, const isl::map& element, const Statement& inner) {
  const isl::set points = domain_in(nest, inner);
  const isl::map made = element.intersect_domain(domain_in(nest, reader))
                            .apply_range(inner.write.relation.intersect_domain(points).reverse()),
                 terms = onto_dims(inner, reduced_dims(inner), "terms").intersect_domain(points).reverse();
  return isl::manage(isl_map_flat_domain_product(made.copy(), terms.copy())).set_domain_tuple(reader.name);
}

Statement one_sum(const Nest& nest, const Statement& reader, const Statement& inner, const isl::map& points) {
  Statement sum;
  sum.name = reader.name;
  sum.dims = reader.dims;
  for (const int dim : reduced_dims(inner))
    sum.dims.push_back(fresh_dim(nest, sum.dims, inner.dims[static_cast<std::size_t>(dim)]));
  isl_set* domain = isl_set_coalesce(isl_set_gist_params(points.domain().release(), full_context(nest).release()));
  sum.domain = isl::manage(with_dim_names(domain, sum.dims));
  isl_map* write =
      isl_map_add_dims(reader.write.relation.copy(), isl_dim_in, static_cast<unsigned>(sum.dims.size() - reader.dims.size()));
  write = isl_map_set_tuple_name(write, isl_dim_in, sum.name.c_str());
  sum.write = {reader.write.tensor, isl::manage(write)};
  sum.reduction = reader.reduction;
  sum.value = import_value(sum, inner, points, inner.value);
  sum.group = reader.group;
  return sum;
}

/// Sets `why` where there is none.
std::optional<Flattened> flattened(const Nest& nest, const Statement& reader, std::string& why) {
  why = "it does not add up elements of a temporary in f32 that nothing else reads";
  if (reader.reduction != ReductionOp::add || nest.tensor(reader.write.tensor).type != ElementType::f32) return std::nullopt;
  const auto source = source_of(nest, reader);
  if (!source) return std::nullopt;
  why = "they are no sums of products of two 16-bit tensors, from 0";
  const std::vector<const Statement*> writers = writers_of(nest, source->element.tensor);
  const auto found =
      std::find_if(writers.begin(), writers.end(), [](const Statement* each) { return each->reduction.has_value(); });
  if (found == writers.end() || (*found)->reduction != ReductionOp::add || !half_products(**found)) return std::nullopt;
  const Statement& inner = **found;
  const std::vector<const Statement*> starts = initialisers_of(nest, inner);
  if (starts.size() + 1 != writers.size() || !starts_from(nest, inner, 0)) return std::nullopt;
  why = "it shares loops, or what its sums read is written again";
  if (!alone_in_group(nest, reader.name) || !alone_in_group(nest, inner.name) || !may_recompute(nest, inner, reader))
    return std::nullopt;
  why = "it reads some of its sums again and again";
  const isl::map element = source->element.relation.intersect_domain(domain_in(nest, reader));
  if (!element.is_injective()) return std::nullopt;
  const isl::map points = to_inner(nest, reader, source->element.relation, inner);
  if (!points.is_single_valued()) return std::nullopt;
  why = "the one sum has no operands that are rows and columns of a product of matrices";
  Flattened result{one_sum(nest, reader, inner, points), source->copies};
  if (!multiplies_rows_by_columns(nest, result.sum)) return std::nullopt;
  for (const Statement* writer : writers) result.needless.push_back(writer->name);
  return result;
}

std::vector<RuleMatch> find(const Nest& nest) {
  std::string why;
  return matching_statements(nest, kName, [&](const Statement& statement) {
    return flattened(nest, statement, why) ? statement.name + " adds up the terms of its sums" : "";
  });
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const Flattened one = required_match(nest, kName, target, flattened);
  Nest result = nest;
  replace_statement(result, one.sum);
  for (const std::string& name : one.needless) erase_statement(result, name);
  drop_unused(result);
  return {std::move(result), {}, true};
}

}  // namespace

const Rule& flatten_sums_rule() {
  static const Rule rule{kName,
                         "a sum of sums of products is one sum (argument: the statement that adds up the sums)",
                         "associativity of the sum",
                         "as reassociate",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
