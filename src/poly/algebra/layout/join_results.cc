// Rule "join_results": what is made of a sum of products element by element has one dim for two that the sum has joined.
//
// Pattern    o_x = f(r_(.., G i + g, ..), ..) for all values of dims i and g, 0 <= g < G, where r is a sum of products of two 16-bit tensors
//            (as join_rows leaves them). Of more dims that are nested, H G i + H g + h, the innermost two come first.
// Rewrite    the statement has one dim s in place of i and g. Whatever follows them follows floor(s / G) and s mod G.
// Conditions the statement is alone in its loops, writes each element once, and does not read what it writes.
// Proof      s -> (floor(s / G), s mod G) is one to one onto the values of (i, g): the same elements are computed, in another order that
//            nobody sees.
// Rounding   none: the same operations on the same values.
#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>
#include <isl/val.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "poly/algebra/operands/half_products.h"
#include "poly/algebra/operands/whole_dims.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr const char* kName = "join_results";

bool is_sum_of_products(const Nest& nest, const std::string& tensor) {
  const std::vector<const Statement*> writers = writers_of(nest, tensor);
  return nest.tensor(tensor).role == TensorRole::temporary &&
         std::any_of(writers.begin(), writers.end(), [](const Statement* writer) { return half_products(*writer).has_value(); });
}

/// How much more an index is where the dim is one more; nullopt: it differs, or no number says so.
std::optional<std::int64_t> coefficient_of(const isl::pw_aff& index, int dim) {
  if (isl_pw_aff_n_piece(index.get()) != 1) return std::nullopt;
  isl_val* coefficient = nullptr;
  const auto take = [](isl_set* set, isl_aff* aff, void* user) {
    isl_set_free(set);
    const auto& [found, at] = *static_cast<std::pair<isl_val**, int>*>(user);
    if (isl_aff_dim(aff, isl_dim_div) == 0) *found = isl_aff_get_coefficient_val(aff, isl_dim_in, at);
    isl_aff_free(aff);
    return isl_stat_ok;
  };
  std::pair<isl_val**, int> user(&coefficient, dim);
  isl_pw_aff_foreach_piece(index.get(), take, &user);
  const bool whole = coefficient != nullptr && isl_val_is_int(coefficient) == isl_bool_true;
  const std::optional<std::int64_t> value = whole ? std::optional<std::int64_t>(isl_val_get_num_si(coefficient)) : std::nullopt;
  isl_val_free(coefficient);
  return value;
}

/// The dims that an index follows, from the smallest coefficient to the largest. Empty: it is no sum of dims.
std::vector<int> dims_by_coefficient(const isl::pw_aff& index, int count) {
  std::map<std::int64_t, int> dims;
  for (int dim = 0; dim < count; ++dim) {
    if (isl_pw_aff_involves_dims(index.get(), isl_dim_in, static_cast<unsigned>(dim), 1) != isl_bool_true) continue;
    const auto coefficient = coefficient_of(index, dim);
    if (!coefficient || *coefficient < 1 || !dims.emplace(*coefficient, dim).second) return {};
  }
  std::vector<int> ordered;
  ordered.reserve(dims.size());
  for (const auto& [coefficient, dim] : dims) ordered.push_back(dim);
  return ordered;
}

/// The two innermost dims of which the index of a read is the joined one: all of its dims are nested, as rules that join rows leave them.
std::optional<JoinedDims> joined_in(const Nest& nest, const Statement& statement, const isl::pw_aff& index) {
  const std::vector<int> dims = dims_by_coefficient(index, static_cast<int>(statement.dims.size()));
  if (dims.size() < 2) return std::nullopt;
  isl::pw_aff nested = dim_function(statement.domain, dims[0]);
  std::int64_t period = 1;
  for (std::size_t k = 1; k < dims.size(); ++k) {
    const auto extent = known_value(nest, extent_of(nest, statement.domain, dims[k - 1]));
    if (!extent || *extent < 2 || !have_all_values(nest, statement, dims[k], dims[k - 1], *extent)) return std::nullopt;
    period *= *extent;
    const isl::val factor = isl::manage(isl_val_int_from_si(isl_pw_aff_get_ctx(index.get()), static_cast<long>(period)));
    nested = nested.add(isl::manage(isl_pw_aff_scale_val(dim_function(statement.domain, dims[k]).release(), factor.copy())));
  }
  const isl::set domain = domain_in(nest, statement);
  const isl::map joint = isl::manage(isl_map_from_pw_aff(nested.release())),
                 found = isl::manage(isl_map_from_pw_aff(index.copy()));
  if (!found.intersect_domain(domain).is_equal(joint.intersect_domain(domain))) return std::nullopt;
  return JoinedDims{dims[1], dims[0], *known_value(nest, extent_of(nest, statement.domain, dims[0]))};
}

/// Sets `why` where there are none.
std::optional<JoinedDims> joined_dims(const Nest& nest, const Statement& statement, std::string& why) {
  why = "it is no statement of its own loops that computes each element once, from other tensors";
  const auto reads_itself = [&](const Access& read) { return read.tensor == statement.write.tensor; };
  if (statement.reduction || !alone_in_group(nest, statement.name) ||
      std::any_of(statement.reads.begin(), statement.reads.end(), reads_itself) ||
      !statement.write.relation.intersect_domain(domain_in(nest, statement)).is_injective())
    return std::nullopt;
  why = "it reads no sum of products at an index that joins two of its dims";
  for (const Access& read : statement.reads) {
    if (!is_sum_of_products(nest, read.tensor)) continue;
    for (const isl::pw_aff& index : functions_of(read.relation)) {
      if (auto dims = joined_in(nest, statement, index)) return dims;
    }
  }
  return std::nullopt;
}

std::vector<RuleMatch> find(const Nest& nest) {
  std::string why;
  return matching_statements(nest, kName, [&](const Statement& statement) {
    return joined_dims(nest, statement, why) ? statement.name + " runs along the dims of the sum that it reads" : "";
  });
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const std::string name = statement_argument(nest, kName, target, 1);
  std::string why;
  std::optional<JoinedDims> dims = joined_dims(nest, nest.statement(name), why);
  if (!dims) refuse_rule(kName, name, why);
  Nest result = nest;
  for (; dims; dims = joined_dims(result, result.statement(name), why))
    replace_statement(result, with_joined_dims(result, result.statement(name), *dims));
  return {std::move(result), {}, false};
}

}  // namespace

const Rule& join_results_rule() {
  static const Rule rule{kName,
                         "what is made of a sum of joined rows has one dim for two, as the sum has (argument: statement)",
                         "quotient and remainder of the joined dim are one to one with the two dims",
                         "none",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
