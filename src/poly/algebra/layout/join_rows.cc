// Rules "join_rows" and "join_short_rows": rows of a product that lie along two indices of an operand become those of one.
//
// Pattern    r_e += a_p b_q, where the last two indices of a are dims i and g of e that b does not follow, and g has a known number G of
//            values (out[i, j, g, f] += a[v, i, g] b[v, j, f]); the same for b. Short rows: the last two such indices of a
//            small a, where tiles along g would be nearly empty (filters in groups of 8: out[n, y, i, g] += x[n, y + s, v] a[i, g, s, v]).
// Rewrite    a'[.., G i + g] = a[.., i, g], before the sum. The sum, and what starts it, have one dim s in place of i and g, and add to r'
//            with one index s in place of two; readers of r read r' at G i + g.
// Conditions all indices of a and of r are dims; the sum starts from constants; all of them are alone in their loops; r is a temporary.
// Proof      (i, g) -> G i + g is one to one for 0 <= g < G: the same products are added up under other names.
// Rounding   none: elements are copied.
#include <fmt/format.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <optional>
#include <set>

#include "poly/algebra/operands/half_products.h"
#include "poly/algebra/operands/whole_dims.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/factor_chain.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr const char *kName = "join_rows", *kShortName = "join_short_rows";
constexpr double kMostCopied = 1U << 22U;  ///< elements of weights, not of what they meet

/// Dims of the sum along two indices of an operand.
struct Joint {
  std::size_t operand = 0;  ///< ordinal of the read
  std::size_t place = 0;    ///< of the outer one's index; the inner one's is the next
  int outer = 0, inner = 0;
  std::int64_t extent = 1;  ///< of the inner one
};

int dim_named(const Statement& statement, const std::string& name) {
  return static_cast<int>(std::find(statement.dims.begin(), statement.dims.end(), name) - statement.dims.begin());
}

/// Functions over a set, with `extent * outer + inner` in place of the function of the inner place, and none for the outer one.
std::vector<isl::pw_aff> joined(std::vector<isl::pw_aff> functions, std::size_t outer, std::size_t inner, std::int64_t extent) {
  const isl::val factor = isl::manage(isl_val_int_from_si(isl_pw_aff_get_ctx(functions[outer].get()), static_cast<long>(extent)));
  functions[inner] = functions[inner].add(isl::manage(isl_pw_aff_scale_val(functions[outer].copy(), factor.copy())));
  functions.erase(functions.begin() + static_cast<std::ptrdiff_t>(outer));
  return functions;
}

std::vector<isl::pw_aff> dims_of(const isl::set& set, std::size_t count) {
  std::vector<isl::pw_aff> functions;
  for (std::size_t k = 0; k < count; ++k) functions.push_back(dim_function(set, static_cast<int>(k)));
  return functions;
}

/// Does an access follow a dim? Bounds that the domain has are no part of where an element lies.
bool follows(const Statement& statement, const Access& access, int dim) {
  return depends_on_dim(access.relation.gist_domain(statement.domain), dim);
}

/// Is it a dim of the result, of several values, that the other operand does not follow? Of one value, no access would depend on it.
bool is_row(const Nest& nest, const Statement& sum, const std::string& name, std::size_t other) {
  const std::vector<std::string> written = names_of_indices(sum, sum.write);
  const int dim = dim_named(sum, name);
  return std::find(written.begin(), written.end(), name) != written.end() && !follows(sum, sum.reads[other], dim) &&
         known_value(nest, extent_of(nest, sum.domain, dim)) != 1;
}

/// At the operand's index of that place, and the next one.
std::optional<Joint> joint_at(const Nest& nest, const Statement& sum, std::size_t operand, std::size_t other, std::size_t place) {
  const std::vector<std::string> names = names_of_indices(sum, sum.reads[operand]), written = names_of_indices(sum, sum.write);
  if (!is_row(nest, sum, names[place], other) || !is_row(nest, sum, names[place + 1], other)) return std::nullopt;
  const auto extent = known_value(nest, nest.tensor(sum.reads[operand].tensor).shape[place + 1]);
  if (!extent || *extent < 1) return std::nullopt;
  const Joint joint{operand, place, dim_named(sum, names[place]), dim_named(sum, names[place + 1]), *extent};
  std::vector<const Statement*> statements = initialisers_of(nest, sum);
  statements.push_back(&sum);
  const bool whole = std::all_of(statements.begin(), statements.end(), [&](const Statement* statement) {
    const std::vector<std::string> indices = names_of_indices(*statement, statement->write);
    const auto dim = [&](int of_sum) {
      const std::string& name = sum.dims[static_cast<std::size_t>(of_sum)];
      const auto at = std::find(written.begin(), written.end(), name) - written.begin();
      return dim_named(*statement, indices[static_cast<std::size_t>(at)]);
    };
    return have_all_values(nest, *statement, dim(joint.outer), dim(joint.inner), joint.extent);
  });
  return whole ? std::optional(joint) : std::nullopt;
}

/// Along the last two indices; `short_rows`: along the last one of rows, which has few values, and the one before it. `copies`: operands
/// that have been copied for rows as short, which takes no more where rows are longer.
std::optional<Joint> joint_of(const Nest& nest, const Statement& sum, std::size_t operand, std::size_t other, bool short_rows,
                              const std::set<std::string>& copies) {
  std::size_t rows = names_of_indices(sum, sum.reads[operand]).size();
  if (short_rows) {
    const std::vector<std::string> names = names_of_indices(sum, sum.reads[operand]);
    while (rows > 0 && !is_row(nest, sum, names[rows - 1], other)) --rows;
  }
  const auto joint = rows < 2 ? std::nullopt : joint_at(nest, sum, operand, other, rows - 2);
  if (!joint || !short_rows) return joint;
  std::vector<int> dims;
  for (const std::string& name : names_of_indices(sum, sum.reads[operand])) dims.push_back(dim_named(sum, name));
  if (copies.contains(sum.reads[operand].tensor)) return joint;
  return joint->extent <= kMostShortRows && default_points(nest, sum, dims) <= kMostCopied ? joint : std::nullopt;
}

/// Sets `why` where there are none.
std::vector<Joint> joints_of(const Nest& nest, const Statement& sum, bool short_rows, std::string& why,
                             const std::set<std::string>& copies = {}) {
  why = "it is no sum of products of two 16-bit tensors into a temporary";
  const auto halves = half_products(sum);
  if (!halves || nest.tensor(sum.write.tensor).role != TensorRole::temporary || sum.reads.size() != 2) return {};
  const auto [a, b] = *halves;
  why = "an index of it is no dim of its own";
  const bool plain = !names_of_indices(sum, sum.reads[a]).empty() && !names_of_indices(sum, sum.reads[b]).empty();
  if ((!plain && !short_rows) || names_of_indices(sum, sum.write).empty()) return {};
  why = "it does not start from constants, or shares its loops with other statements";
  if (!alone_in_group(nest, sum.name)) return {};
  const std::vector<const Statement*> starts = initialisers_of(nest, sum);
  for (const Statement* start : starts) {
    const bool simple = start->reads.empty() && start->indices.empty() && alone_in_group(nest, start->name) &&
                        names_of_indices(*start, start->write).size() == start->dims.size();
    if (!simple) return {};
  }
  if (starts.empty()) return {};
  why = short_rows ? "no operand has whole rows along two indices, the last one of a known extent up to 48"
                   : "no operand has whole rows along its last two indices, the last one of a known extent";
  std::vector<Joint> joints;
  for (const auto& [operand, other] : {std::pair{a, b}, std::pair{b, a}}) {
    if (const auto joint = joint_of(nest, sum, operand, other, short_rows, copies)) joints.push_back(*joint);
  }
  return joints;
}

template <bool short_rows>
std::vector<RuleMatch> find(const Nest& nest) {
  std::string why;
  return matching_statements(nest, short_rows ? kShortName : kName, [&](const Statement& statement) {
    const bool joins = !joints_of(nest, statement, short_rows, why).empty();
    return joins ? "rows of " + statement.name + " along two indices become those of one" : "";
  });
}

/// Joins dims of a nest one pair after the other.
class Joiner {
 public:
  explicit Joiner(Nest nest) : nest_(std::move(nest)) {}

  void join(const std::string& sum, const Joint& joint) {
    const Statement before = nest_.statement(sum);
    const std::string outer = before.dims[static_cast<std::size_t>(joint.outer)],
                      inner = before.dims[static_cast<std::size_t>(joint.inner)];
    std::vector<std::string> starts;
    for (const Statement* start : initialisers_of(nest_, before)) starts.push_back(start->name);
    const std::string copied = add_copy(before, joint);
    const std::vector<std::string> written = names_of_indices(before, before.write);
    const auto place = [&](const std::string& name) {
      return static_cast<std::size_t>(std::find(written.begin(), written.end(), name) - written.begin());
    };
    join_result(before, place(outer), place(inner), joint.extent, starts);
    for (const std::string& start : starts) {
      const Statement& statement = nest_.statement(start);
      const std::vector<std::string> names = names_of_indices(statement, statement.write);
      replace_statement(nest_, joined_statement(statement, names[place(outer)], names[place(inner)], joint.extent, ""));
    }
    replace_statement(nest_, joined_statement(nest_.statement(sum), outer, inner, joint.extent, copied));
    compact_tensor(before.write.tensor, place(outer), place(inner), joint.extent);
  }

  const Nest& nest() const { return nest_; }
  const std::set<std::string>& copies() const { return copies_; }
  Nest take() { return std::move(nest_); }

 private:
  isl::pw_aff joined_extent(const isl::pw_aff& outer, std::int64_t extent) const {
    const isl::val factor = isl::manage(isl_val_int_from_si(isl_pw_aff_get_ctx(outer.get()), static_cast<long>(extent)));
    return isl::manage(isl_pw_aff_scale_val(outer.copy(), factor.copy()));
  }

  /// The operand's copy, by a statement of its own.
  std::string add_copy(const Statement& sum, const Joint& joint) {
    const Access& read = sum.reads[joint.operand];
    if (copies_.contains(read.tensor)) return join_copy(read.tensor, joint);
    const std::string name = fresh_name(nest_, read.tensor + "_copy");
    copies_.insert(name);
    Tensor tensor = nest_.tensor(read.tensor);
    tensor.shape[joint.place + 1] = joined_extent(tensor.shape[joint.place], joint.extent);
    tensor.shape.erase(tensor.shape.begin() + static_cast<std::ptrdiff_t>(joint.place));
    tensor.name = name;
    tensor.role = TensorRole::temporary;
    tensor.tolerance = {};
    nest_.tensors.push_back(tensor);
    Statement copy;
    copy.name = name;
    copy.dims = names_of_indices(sum, read);
    const std::size_t rank = copy.dims.size();
    // All of an argument: tiles also read elements that no term has, beside zeros, which must not meet what nobody has written.
    const Tensor& source = nest_.tensor(read.tensor);
    const isl::set elements =
        source.role == TensorRole::input ? tensor_box(source) : read.relation.intersect_domain(domain_in(nest_, sum)).range();
    isl_set* domain = isl_set_gist_params(elements.coalesce().release(), full_context(nest_).release());
    domain = isl_set_set_tuple_name(domain, name.c_str());
    copy.domain = isl::manage(with_dim_names(domain, copy.dims));
    copy.write = {name,
                  relation_of(copy.domain, name, joined(dims_of(copy.domain, rank), joint.place, joint.place + 1, joint.extent))};
    copy.reads = {{read.tensor, relation_of(copy.domain, read.tensor, dims_of(copy.domain, rank))}};
    copy.value = ScalarExpr::read(0, tensor.type);
    insert_statement(nest_, begin_with_initialisers(nest_, nest_.statement(sum.name)), copy);
    return name;
  }

  /// A copy that has been made for two indices: it has one for these, too.
  std::string join_copy(const std::string& name, const Joint& joint) {
    Statement copy = nest_.statement(name);
    const std::vector<isl::pw_aff> functions = functions_of(copy.write.relation);
    copy.write.relation = relation_of(copy.domain, name, joined(functions, joint.place, joint.place + 1, joint.extent));
    replace_statement(nest_, copy);
    compact_tensor(name, joint.place, joint.place + 1, joint.extent);
    return name;
  }

  /// Readers of the result, but not the statements that make it, read at the joined index.
  void join_result(const Statement& sum, std::size_t outer, std::size_t inner, std::int64_t extent,
                   const std::vector<std::string>& starts) {
    const std::string& tensor = sum.write.tensor;
    for (Statement& statement : nest_.statements) {
      if (statement.name == sum.name || std::find(starts.begin(), starts.end(), statement.name) != starts.end()) continue;
      for (Access& read : statement.reads) {
        if (read.tensor != tensor) continue;
        read.relation = relation_of(statement.domain, tensor, joined(functions_of(read.relation), outer, inner, extent));
      }
    }
  }

  void compact_tensor(const std::string& name, std::size_t outer, std::size_t inner, std::int64_t extent) {
    for (Tensor& tensor : nest_.tensors) {
      if (tensor.name != name) continue;
      tensor.shape[inner] = joined_extent(tensor.shape[outer], extent);
      tensor.shape.erase(tensor.shape.begin() + static_cast<std::ptrdiff_t>(outer));
    }
  }

  /// What follows neither of the two dims of a statement, as the statement with one dim for both reads it.
  static isl::map beside(const isl::map& relation, const Statement& joined, int first, int second) {
    isl_map* found = relation.copy();
    for (const int dim : {std::max(first, second), std::min(first, second)})
      found = isl_map_project_out(found, isl_dim_in, static_cast<unsigned>(dim), 1);
    const int at = second - (first < second ? 1 : 0);
    found = isl_map_insert_dims(found, isl_dim_in, static_cast<unsigned>(at), 1);
    found = isl_map_set_tuple_name(found, isl_dim_in, joined.name.c_str());
    return isl::manage(isl_map_coalesce(isl_map_intersect_domain(found, joined.domain.copy())));
  }

  /// The statement with the dim `inner` for both; indices stay the dims that they were. `copied`: what it reads where it followed both.
  Statement joined_statement(const Statement& statement, const std::string& outer, const std::string& inner, std::int64_t extent,
                             const std::string& copied) const {
    const auto at = [&](const std::string& name) { return static_cast<std::size_t>(dim_named(statement, name)); };
    const int first = static_cast<int>(at(outer)), second = static_cast<int>(at(inner));
    const isl::pw_aff rows = joined_extent(extent_of(nest_, statement.domain, first), extent);
    Statement result = statement;
    result.dims.erase(result.dims.begin() + first);
    isl_set* joint = isl_set_project_out(with_any_values(nest_, statement, first, second).release(), isl_dim_set,
                                         static_cast<unsigned>(first), 1);
    joint = isl_set_set_tuple_name(joint, statement.name.c_str());
    const isl::set whole = below(isl::manage(joint), second - (first < second ? 1 : 0), rows);
    isl_set* domain = isl_set_gist_params(whole.copy(), full_context(nest_).release());
    result.domain = isl::manage(isl_set_coalesce(with_dim_names(domain, result.dims)));
    const auto renamed = [&](const Access& access, const std::string& tensor) {
      std::vector<std::string> names = names_of_indices(statement, access);
      std::erase(names, outer);
      std::vector<isl::pw_aff> functions;
      for (const std::string& name : names) functions.push_back(dim_function(result.domain, dim_named(result, name)));
      return Access{tensor, relation_of(result.domain, tensor, functions)};
    };
    result.write = renamed(statement.write, statement.write.tensor);
    for (Access& read : result.reads) {
      const bool both = follows(statement, read, static_cast<int>(at(outer)));
      read = both ? renamed(read, copied) : Access{read.tensor, beside(read.relation, result, first, second)};
    }
    return result;
  }

  Nest nest_;
  std::set<std::string> copies_;  ///< temporaries that it has made
};

template <bool short_rows>
RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const char* rule = short_rows ? kShortName : kName;
  const std::string name = statement_argument(nest, rule, target, 1);
  std::string why;
  std::vector<Joint> joints = joints_of(nest, nest.statement(name), short_rows, why);
  if (joints.empty()) refuse_rule(rule, name, why);
  Joiner joiner(nest);
  while (!joints.empty()) {
    joiner.join(name, joints.front());
    joints = joints_of(joiner.nest(), joiner.nest().statement(name), short_rows, why, joiner.copies());
  }
  return {joiner.take(), {}, false};
}

constexpr const char* kReason = "the joined index is one to one: the same products are added up under other names";

}  // namespace

const Rule& join_rows_rule() {
  static const Rule rule{
      kName,       "rows along two indices of an operand become those of one index of a copy (argument: statement)",
      kReason,     "none",
      find<false>, apply<false>};
  return rule;
}

const Rule& join_short_rows_rule() {
  static const Rule rule{
      kShortName,
      "few rows along an index of an operand become part of those along the one before, in a copy (argument: statement)",
      kReason,
      "none",
      find<true>,
      apply<true>};
  return rule;
}

}  // namespace nestor
