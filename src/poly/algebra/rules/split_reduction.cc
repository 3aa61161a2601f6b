// Rule "split_reduction": the points of a reduction are divided into parts that accumulate on their own, and are combined.
//
// Pattern    r_e = (+)_j t_ej, alone or as the lead of a composite (rules online and moments).
// Rewrite    r'_ep = (+) over j in part p of t_ej, parts p = floor(j / size);  r_e = (+)_p r'_ep. For a composite, the terms of a part are
//            relative to its own m'_p, and parts are combined by the composite's correction: r_e = sum_p C(m'_p, m) r'_ep.
// Conditions the dim is reduced and starts at 0 or above; the statement is alone in its group; for a composite, each term belongs to one part.
// Proof      Associativity and commutativity of the monoid, for composites of the monoid of docs/algebra.md. The combine step for online composites is
//            that of T. Dao, D. Haziza, F. Massa, G. Sizov, "Flash-Decoding", 2023; for moments Chan, Golub &
//            LeVeque 1983, equation (2.1).
// Rounding   As reassociate; one further correction for each part.
#include <fmt/format.h>
#include <isl/set.h>

#include <algorithm>
#include <charconv>

#include "poly/algebra/rules/moments.h"
#include "poly/algebra/rules/online.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/rules/split_composite.h"
#include "poly/algebra/rules/split_parts.h"
#include "poly/algebra/values/builders.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "support/error.h"

namespace nestor {
namespace {

constexpr const char* kName = "split_reduction";
constexpr std::int64_t kOfferedPartSize = 256;

std::int64_t parse_size(const std::string& text) {
  std::int64_t size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  if (error != std::errc() || end != text.data() + text.size() || size < 1) {
    user_error("rule {}: the part size must be a positive integer, not \"{}\"", kName, text);
  }
  return size;
}

std::string objection(const Nest& nest, const Statement& statement, int dim) {
  if (!statement.reduction) return "it is no reduction";
  const std::vector<int> reduced = reduced_dims(statement);
  if (std::find(reduced.begin(), reduced.end(), dim) == reduced.end())
    return fmt::format("{} is not reduced", statement.dims[dim]);
  if (initialisers_of(nest, statement).empty()) return "its accumulator has several reductions";
  if (!alone_in_group(nest, statement.name)) return "it shares its loops with other statements of its definition";
  for (const Access& read : statement.reads) {
    if (read.tensor == statement.write.tensor) return "its terms read its own result";
  }
  const isl::set below =
      isl::manage(isl_set_upper_bound_si(domain_in(nest, statement).release(), isl_dim_set, static_cast<unsigned>(dim), -1));
  if (!below.is_empty()) return fmt::format("{} may be negative", statement.dims[dim]);
  return "";
}

int dim_of(const Statement& statement, const std::string& dim) {
  const auto found = std::find(statement.dims.begin(), statement.dims.end(), dim);
  if (found == statement.dims.end()) user_error("rule {}: {} has no dim {}", kName, statement.name, dim);
  return static_cast<int>(found - statement.dims.begin());
}

bool is_taken(const Nest& nest, const std::string& name) { return fresh_name(nest, name) != name; }

std::string new_dim_name(const Nest& nest, const std::string& dim) {
  std::string name = dim + "_p";
  while (is_taken(nest, name)) name += "p";
  return name;
}

void check_new_dim(const Nest& nest, const std::string& name) {
  const bool word = !name.empty() &&
                    std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; }) &&
                    std::isdigit(static_cast<unsigned char>(name[0])) == 0;
  if (is_taken(nest, name) || !word)
    user_error("rule {}: \"{}\" cannot name the parts; it is taken or no identifier", kName, name);
}

Nest split_alone(const Nest& nest, const Statement& statement, int dim, const Parts& parts) {
  Nest result = nest;
  const PartReduction split = split_into_parts(nest, statement, parts_of_dim(statement, dim, parts.size), parts);
  Statement combine = combine_parts(nest, statement, split, parts);
  const ElementType type = nest.tensor(statement.write.tensor).type;
  if (type != split.tensor.type) combine.value = ScalarExpr::cast(type, combine.value);
  replace_by_parts(result, statement, split, combine);
  return result;
}

std::vector<RuleMatch> find(const Nest& nest) {
  std::vector<RuleMatch> matches;
  for (const Statement& statement : nest.statements) {
    for (const int dim : reduced_dims(statement)) {
      if (!objection(nest, statement, dim).empty()) continue;
      const std::string& name = statement.dims[dim];
      matches.push_back({kName,
                         {statement.name, name, new_dim_name(nest, name), fmt::format("{}", kOfferedPartSize)},
                         fmt::format("{} accumulates in parts of {} points of {}", statement.name, kOfferedPartSize, name)});
    }
  }
  return matches;
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const std::string name = statement_argument(nest, kName, target, 4);
  const int dim = dim_of(nest.statement(name), target[1]);
  const Parts parts{target[2], parse_size(target[3])};
  check_new_dim(nest, parts.name);
  const std::string why = objection(nest, nest.statement(name), dim);
  if (!why.empty()) refuse_rule(kName, name, why);
  if (analyse_online(nest, name)) return split_online(nest, name, dim, parts);
  const Nest prepared = prepare_moments(nest, name);
  if (analyse_moments(prepared, name)) return split_moments(prepared, name, dim, parts);
  return {split_alone(nest, nest.statement(name), dim, parts), {}, true};
}

}  // namespace

const Rule& split_reduction_rule() {
  static const Rule rule{
      kName,
      "the points of a reduction accumulate in parts, which are combined (arguments: statement, dim, name of the parts, part "
      "size)",
      "associativity and commutativity of the (composite) monoid; Dao et al. 2023 (Flash-Decoding), Chan et al. 1983",
      "as reassociate, and one correction for each part",
      find,
      apply};
  return rule;
}

}  // namespace nestor
