// Rule "gather_rows": an operand of products that tensor copies cannot step along is copied along the dims of its sum.
//
// Pattern    r_e += a_p b_q, where a is an input of 16 bits and b one of 16 bits or a temporary; a has more indices than tensor copies have, or
//            an index that is no linear function of dims (windows of a picture: q[(7 y + i / 7 + 3) % 56, .., c]), or rows that are parts of
//            its own (heads side by side: q[i, 128 h + e]); its last index is a dim, or one with others, which tell the part.
// Rewrite    a'[dims that a follows, that of its last index last] = a_p, before the sum. Neighbouring dims share an index of a' until there are
//            as few as tensor copies have.
// Conditions each of a and b follows a dim of e that the other does not; the sum is alone in its loops; dims have no negative values, and
//            those inside of a shared index a known extent; a' has no more than twice the elements of a, at sizes' defaults.
// Proof      a' has the elements of a under other names, complete before the sum begins: dims to indices is one to one.
// Rounding   none: elements are copied.
#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <optional>

#include "poly/algebra/operands/half_products.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/factor_chain.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "poly/isl/whole_function.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr const char* kName = "gather_rows";
constexpr std::size_t kMostIndices = 5;  ///< of what tensor copies read
constexpr double kMostCopied = 2;        ///< elements, for each of the operand

/// A copy of an operand.
struct Rows {
  std::size_t operand = 0;  ///< ordinal of the read
  std::vector<int> dims;    ///< of the sum, in the order of the copy's indices
  std::vector<std::vector<std::int64_t>>
      followers;  ///< each index: extents of those of its dims that stand inside of the first one
};

bool is_linear(const isl::pw_aff& function) {
  struct Search {
    int pieces = 0;
    bool divides = false;
  } search;
  const auto look = [](isl_set* set, isl_aff* affine, void* user) {
    auto& found = *static_cast<Search*>(user);
    ++found.pieces;
    for (int k = 0; k < static_cast<int>(isl_aff_dim(affine, isl_dim_div)); ++k) {
      const isl::val factor = isl::manage(isl_aff_get_coefficient_val(affine, isl_dim_div, k));
      found.divides = found.divides || !factor.is_zero();
    }
    isl_set_free(set);
    isl_aff_free(affine);
    return isl_stat_ok;
  };
  isl_pw_aff_foreach_piece(function.get(), look, &search);
  return search.pieces <= 1 && !search.divides;
}

/// The dim that the function is at all points of the statement; -1: none.
int dim_of(const Statement& statement, const isl::pw_aff& function) {
  const isl::map plain = isl::manage(isl_map_from_pw_aff(function.copy())).intersect_domain(statement.domain);
  for (int dim = 0; dim < static_cast<int>(statement.dims.size()); ++dim) {
    const isl::map same = isl::manage(isl_map_from_pw_aff(dim_function(statement.domain, dim).release()));
    if (plain.is_equal(same.intersect_domain(statement.domain))) return dim;
  }
  return -1;
}

/// The dim along a part of a row where the last index is that dim and multiples of others, as 128 h + e, of at least its extent; -1: it is not.
int dim_of_part(const Nest& nest, const Statement& sum, const Access& read) {
  const std::vector<std::map<int, std::int64_t>> moving = moving_dims(read);
  if (moving.empty() || moving.back().size() < 2) return -1;
  int inner = -1;
  for (const auto& [dim, factor] : moving.back()) {
    if (factor == 1) inner = inner < 0 ? dim : static_cast<int>(sum.dims.size());
  }
  if (inner < 0 || inner >= static_cast<int>(sum.dims.size())) return -1;
  const auto extent = known_value(nest, extent_of(nest, sum.domain, inner));
  const bool parts = extent && std::all_of(moving.back().begin(), moving.back().end(),
                                           [&](const auto& each) { return each.first == inner || each.second >= *extent; });
  return parts ? inner : -1;
}

/// Gives neighbouring dims one index until there are few enough; false: extents are not known.
bool share_indices(const Nest& nest, const Statement& sum, Rows& rows) {
  rows.followers.resize(rows.dims.size());
  // Rows of a tile, and what lies along memory, keep indices of their own.
  for (std::size_t inner = rows.dims.size() - 2; rows.followers.size() > kMostIndices && inner-- > 1;) {
    const auto extent = known_value(nest, extent_of(nest, sum.domain, rows.dims[inner]));
    if (!extent || *extent < 1) continue;
    std::vector<std::int64_t>& outer = rows.followers[inner - 1];
    outer.push_back(*extent);
    outer.insert(outer.end(), rows.followers[inner].begin(), rows.followers[inner].end());
    rows.followers.erase(rows.followers.begin() + static_cast<std::ptrdiff_t>(inner));
  }
  return rows.followers.size() <= kMostIndices;
}

/// Sets `why` where there are none.
std::optional<Rows> rows_of(const Nest& nest, const Statement& sum, std::size_t operand, std::size_t other, std::string& why) {
  const Access& read = sum.reads[operand];
  const Tensor& tensor = nest.tensor(read.tensor);
  why = "no operand is an input of 16 bits that tensor copies cannot step along";
  if (tensor.role != TensorRole::input || size_in_bytes(tensor.type) != 2) return std::nullopt;
  const std::vector<isl::pw_aff> functions = functions_on(read.relation, sum.domain);
  const int part = dim_of_part(nest, sum, read);
  if (part < 0 && functions.size() <= kMostIndices && std::all_of(functions.begin(), functions.end(), is_linear))
    return std::nullopt;
  why = "its operands are not those of a product of matrices";
  if (!follows_own_dim(sum, operand, other) || !follows_own_dim(sum, other, operand)) return std::nullopt;
  why = "the last index of the operand is no dim, or one that others follow too";
  const std::vector<std::set<int>> indices = dims_of_indices(sum, read);
  const int last = functions.empty() ? -1 : part >= 0 ? part : dim_of(sum, functions.back());
  if (last < 0 || std::any_of(indices.begin(), indices.end() - 1, [&](const std::set<int>& dims) { return dims.contains(last); }))
    return std::nullopt;
  Rows rows{operand, {}, {}};
  const std::vector<int> reduced = reduced_dims(sum);
  for (const bool terms : {false, true}) {
    for (int dim = 0; dim < static_cast<int>(sum.dims.size()); ++dim) {
      const bool is_term = std::find(reduced.begin(), reduced.end(), dim) != reduced.end();
      if (dim != last && is_term == terms && depends_on_dim(read.relation, dim)) rows.dims.push_back(dim);
    }
  }
  rows.dims.push_back(last);
  why = "a dim of it has negative values";
  isl::set positive = domain_in(nest, sum);
  for (const int dim : rows.dims)
    positive = isl::manage(isl_set_lower_bound_si(positive.release(), isl_dim_set, static_cast<unsigned>(dim), 0));
  if (!positive.is_equal(domain_in(nest, sum))) return std::nullopt;
  why = "a copy would be much larger than the operand";
  if (default_points(nest, sum, rows.dims) > kMostCopied * default_elements(nest, tensor)) return std::nullopt;
  why = "too many of the dims that the operand follows have no known extents";
  if (rows.dims.size() < 2 || !share_indices(nest, sum, rows)) return std::nullopt;
  why = "";
  return rows;
}

std::vector<Rows> all_rows_of(const Nest& nest, const Statement& sum, std::string& why) {
  why = "it is no sum of products of a 16-bit tensor and another one or a temporary";
  std::vector<std::pair<std::size_t, std::size_t>> pairs;  // operands, and those beside them
  if (const auto halves = half_products(sum)) pairs = {*halves, {halves->second, halves->first}};
  for (const auto& [wide, half] : wide_and_half(nest, sum)) pairs.emplace_back(half, wide);
  if (pairs.empty()) return {};
  why = "it shares its loops with other statements of its definition";
  if (!alone_in_group(nest, sum.name)) return {};
  std::vector<Rows> found;
  for (const auto& [operand, other] : pairs) {
    if (auto rows = rows_of(nest, sum, operand, other, why)) found.push_back(std::move(*rows));
  }
  if (!found.empty()) why = "";
  return found;
}

std::vector<RuleMatch> find(const Nest& nest) {
  std::string why;
  return matching_statements(nest, kName, [&](const Statement& statement) {
    return all_rows_of(nest, statement, why).empty() ? "" : "operands of " + statement.name + " are copied along its dims";
  });
}

/// The copy's indices at the points of a set that has the dims given, in their order.
std::vector<isl::pw_aff> indices_at(const isl::set& points, const std::vector<int>& dims, const Rows& rows) {
  std::vector<isl::pw_aff> functions;
  std::size_t next = 0;
  for (const std::vector<std::int64_t>& followers : rows.followers) {
    isl::pw_aff index = dim_function(points, dims[next++]);
    for (const std::int64_t extent : followers) {
      const isl::val factor(index.ctx(), static_cast<long>(extent));
      index = isl::manage(isl_pw_aff_scale_val(index.copy(), factor.copy())).add(dim_function(points, dims[next++]));
    }
    functions.push_back(index);
  }
  return functions;
}

/// Adds the copy's tensor, and the statement that writes it; returns its name.
std::string add_copy(Nest& nest, const Statement& sum, const Rows& rows) {
  const Access& read = sum.reads[rows.operand];
  const std::string name = fresh_name(nest, read.tensor + "_gathered");
  Tensor tensor = nest.tensor(read.tensor);
  tensor.name = name;
  tensor.role = TensorRole::temporary;
  tensor.tolerance = {};
  tensor.shape.clear();
  std::size_t next = 0;
  for (const std::vector<std::int64_t>& followers : rows.followers) {
    isl::pw_aff extent = extent_of(nest, sum.domain, rows.dims[next]);
    for (const std::int64_t each : followers) {
      const isl::val factor(extent.ctx(), static_cast<long>(each));
      extent = isl::manage(isl_pw_aff_scale_val(extent.copy(), factor.copy()));
    }
    tensor.shape.push_back(extent);
    next += 1 + followers.size();
  }
  nest.tensors.push_back(tensor);

  Statement copy;
  copy.name = name;
  isl_map* onto = isl_map_from_domain(domain_in(nest, sum).release());
  onto = isl_map_add_dims(onto, isl_dim_out, static_cast<unsigned>(rows.dims.size()));
  std::vector<int> own;
  for (std::size_t k = 0; k < rows.dims.size(); ++k) {
    onto = isl_map_equate(onto, isl_dim_in, rows.dims[k], isl_dim_out, static_cast<int>(k));
    copy.dims.push_back(sum.dims[static_cast<std::size_t>(rows.dims[k])]);
    own.push_back(static_cast<int>(k));
  }
  onto = isl_map_set_tuple_name(onto, isl_dim_out, name.c_str());
  isl_set* domain = isl_set_coalesce(isl_map_range(isl_map_copy(onto)));
  domain = isl_set_gist_params(domain, full_context(nest).release());
  copy.domain = isl::manage(with_dim_names(domain, copy.dims));
  copy.write = {name, relation_of(copy.domain, name, indices_at(copy.domain, own, rows))};
  // The operand is the same at all points that have one image: the first of them will do.
  const isl::map to_sum = isl::manage(isl_map_lexmin(isl_map_reverse(onto)));
  copy.value = import_value(copy, sum, to_sum, ScalarExpr::read(static_cast<int>(rows.operand), tensor.type));
  insert_statement(nest, begin_with_initialisers(nest, nest.statement(sum.name)), copy);
  return name;
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const std::string name = statement_argument(nest, kName, target, 1);
  std::string why;
  const std::vector<Rows> all = all_rows_of(nest, nest.statement(name), why);
  if (all.empty()) refuse_rule(kName, name, why);
  Nest result = nest;
  for (const Rows& rows : all) {
    const std::string copied = add_copy(result, result.statement(name), rows);
    Statement sum = result.statement(name);
    sum.reads[rows.operand] = {copied, relation_of(sum.domain, copied, indices_at(sum.domain, rows.dims, rows))};
    replace_statement(result, sum);
  }
  return {std::move(result), {}, false};
}

}  // namespace

const Rule& gather_rows_rule() {
  static const Rule rule{
      kName,
      "an operand that tensor copies cannot step along is copied along the dims of its sum (argument: statement)",
      "a copy has the same elements under other names, complete before they are read",
      "none",
      find,
      apply};
  return rule;
}

}  // namespace nestor
