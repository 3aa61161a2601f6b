// Rule "materialize_factor": a factor of a sum of products that is computed anew for each column gets a temporary of its own.
//
// Pattern    r_e += f(p) t_q, where t is a 16-bit tensor (f32: then f is made of inputs, and of
//            temporaries along fewer dims), and f an expression that does not change along some dims of e that q follows,
//            and changes along others that q does not (sum_j sigmoid(s_ij) v_jd); in place of t_q, a second f, which gets a temporary, too:
//            both are made of 16-bit inputs, or of f32 ones, with 64 results for each value. Or r_e += select(c_q, f(p), 0), with c a condition of data
//            and f of functions: what is summed up of few classes.
// Rewrite    f'_p = f(p), in f32, over the dims along which f changes, before the sum; r_e += f'_p t_q. Where all that f reads has fewer
//            indices in all than there are such dims (a masked image at y + s), f' has those: each value is stored once, not for each tap.
// Conditions the sum is alone in its loops, and f does not read it; dims of f' have no negative values; both change along a reduced dim.
//            Indices in place of dims are functions of dims, have all values of a box from 0 on, and f has no indices as numbers.
// Proof      f'_p is f(p): the same operations on the same values, which are complete before the sum begins. The sum is then one of
//            products of two tensors, whose tiles tensor cores multiply. Points with the same indices read the same elements.
// Rounding   none: f was rounded to f32 before it was multiplied.
#include <fmt/format.h>
#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "poly/algebra/operands/half_products.h"
#include "poly/algebra/operands/whole_dims.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/builders.h"
#include "poly/algebra/values/dims_view.h"
#include "poly/algebra/values/factor_chain.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"
#include "poly/isl/isl_tools.h"
#include "poly/isl/whole_function.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr const char* kName = "materialize_factor";

struct Split {
  std::size_t factor = 0;  ///< argument of the product, or of the choice, that is computed
  std::vector<int> dims;   ///< of the statement, along which it changes
};

/// { name[dims] -> tensor[indices] } of the distinct indices of all that a value reads.
struct Indices {
  std::vector<isl::pw_aff> functions;
  std::vector<std::string> names;
};

/// Is the expression a tensor's element, widened if it has 16 bits?
bool is_element(const ScalarExpr& expr) {
  const ScalarExpr bare = strip_exact_casts(expr);
  return bare.op() == ScalarOp::read && is_float(bare.type());
}

/// Does the value read inputs, and beside them only temporaries that change along fewer dims than all of it, as weights of rows do? Such are
/// computed before in any case.
bool reads_inputs_and_few(const Nest& nest, const Statement& statement, const ScalarExpr& value) {
  const auto dims = [&](const ScalarExpr& part) {
    int count = 0;
    for (int dim = 0; dim < static_cast<int>(statement.dims.size()); ++dim) count += varies_along(statement, part, dim) ? 1 : 0;
    return count;
  };
  const int all = dims(value);
  bool few = true, inputs = false;
  value.visit([&](const ScalarExpr& expr) {
    if (expr.op() != ScalarOp::read) return;
    const std::string& tensor = statement.reads[static_cast<std::size_t>(expr.ordinal())].tensor;
    const bool is_input = nest.tensor(tensor).role == TensorRole::input;
    inputs = inputs || is_input;
    few = few && (is_input || dims(expr) < all);
  });
  return few && inputs;
}

/// Does `a` change along one of the dims, and `b` not?
bool apart(const Statement& statement, const ScalarExpr& a, const ScalarExpr& b, const std::vector<int>& dims) {
  return std::any_of(dims.begin(), dims.end(),
                     [&](int dim) { return varies_along(statement, a, dim) && !varies_along(statement, b, dim); });
}

/// Takes the value longer to compute than to read?
bool has_functions(const ScalarExpr& value) {
  static const std::set<ScalarOp> kFunctions{ScalarOp::exp,  ScalarOp::exp2,  ScalarOp::log,  ScalarOp::pow,   ScalarOp::sqrt,
                                             ScalarOp::erf,  ScalarOp::tanh,  ScalarOp::sin,  ScalarOp::rsqrt, ScalarOp::cos,
                                             ScalarOp::atan, ScalarOp::log1p, ScalarOp::expm1};
  bool found = false;
  value.visit([&](const ScalarExpr& expr) { found = found || kFunctions.contains(expr.op()); });
  return found;
}

/// Is all there that the value reads, wherever the statement has points?
bool reads_everywhere(const Nest& nest, const Statement& statement, const ScalarExpr& value) {
  bool all = true;
  value.visit([&](const ScalarExpr& expr) {
    if (expr.op() != ScalarOp::read) return;
    const isl::map& relation = statement.reads[static_cast<std::size_t>(expr.ordinal())].relation;
    all = all && domain_in(nest, statement).is_subset(relation.domain());
  });
  return all;
}

/// What a sum takes or leaves by a condition of data, and the condition: the arguments of a choice between a value of functions and 0.
bool chooses_function(const Nest& nest, const Statement& sum) {
  if (sum.reduction != ReductionOp::add || sum.value.op() != ScalarOp::select || sum.value.type() != ElementType::f32)
    return false;
  const std::vector<ScalarExpr>& args = sum.value.args();
  return args[2].is_constant(0) && has_functions(args[1]) && reads_everywhere(nest, sum, args[1]);
}

/// With the argument `factor` in a temporary, and `other` left; sets `why` where that may not be.
std::optional<Split> split_between(const Nest& nest, const Statement& statement, std::size_t factor, std::size_t other,
                                   std::string& why) {
  Split split{factor, {}};
  const ScalarExpr &computed = statement.value.args()[factor], &rest = statement.value.args()[other];
  why = "its factor reads what the sum has so far";
  if (reads_tensor(statement, computed, statement.write.tensor)) return std::nullopt;
  const std::vector<int> reduced = reduced_dims(statement), written = other_dims(statement, reduced);
  for (int dim = 0; dim < static_cast<int>(statement.dims.size()); ++dim) {
    if (varies_along(statement, computed, dim)) split.dims.push_back(dim);
  }
  why =
      "the factors are not those of a product of matrices: each follows a dim of the result that the other does not, and both a "
      "reduced one";
  const bool meet = std::any_of(reduced.begin(), reduced.end(), [&](int dim) {
    return varies_along(statement, computed, dim) && varies_along(statement, rest, dim);
  });
  if (!meet || !apart(statement, computed, rest, written) || !apart(statement, rest, computed, written)) return std::nullopt;
  why = "it shares its loops with other statements of its definition";
  if (!alone_in_group(nest, statement.name)) return std::nullopt;
  why = "a dim of the factor has negative values";
  if (has_negative_values(nest, statement, split.dims)) return std::nullopt;
  why = "";
  return split;
}

/// Is a value of the factor multiplied often enough to be stored, with sizes at their defaults?
bool serves_many(const Nest& nest, const Statement& statement, const ScalarExpr& factor) {
  constexpr double kFewestUses = 64;
  std::vector<int> others = other_dims(statement, reduced_dims(statement));
  std::erase_if(others, [&](int dim) { return varies_along(statement, factor, dim); });
  return default_points(nest, statement, others) >= kFewestUses;
}

/// Do no products of matrices enter what the value reads? Then it is computed before the sum in any case, and no kernel has it in registers.
bool is_free_of_products(const Nest& nest, const Statement& statement, const ScalarExpr& value) {
  std::set<std::string> read;
  value.visit([&](const ScalarExpr& node) {
    if (node.op() == ScalarOp::read) read.insert(statement.reads[static_cast<std::size_t>(node.ordinal())].tensor);
  });
  const std::vector<const Statement*> behind = statements_behind(nest, std::move(read));
  return std::none_of(behind.begin(), behind.end(), [](const Statement* sum) { return multiplies_own_dims(*sum); });
}

/// Does the value, made without functions, read an input that changes along all the dims that it changes along? It takes no more memory than
/// that one: unlike the scores of attention, what is left of a value beside a product, as the error that a memory learns from.
bool is_as_large_as_input(const Nest& nest, const Statement& statement, const ScalarExpr& value) {
  bool found = false;
  value.visit([&](const ScalarExpr& expr) {
    if (expr.op() != ScalarOp::read) return;
    const Tensor& tensor = nest.tensor(statement.reads[static_cast<std::size_t>(expr.ordinal())].tensor);
    bool all = tensor.role == TensorRole::input;
    for (int dim = 0; dim < static_cast<int>(statement.dims.size()); ++dim)
      all = all && varies_along(statement, expr, dim) == varies_along(statement, value, dim);
    found = found || all;
  });
  return found && !has_functions(value);
}

/// May the value, of f32 tensors, get a temporary? What is made of other temporaries in full must serve many results.
bool may_be_stored(const Nest& nest, const Statement& statement, const ScalarExpr& value) {
  return reads_inputs_and_few(nest, statement, value) ||
         (serves_many(nest, statement, value) &&
          (is_free_of_products(nest, statement, value) || is_as_large_as_input(nest, statement, value)));
}

/// Are both factors made of inputs, and of values of rows or columns? Each gets a temporary then. Those of f32 serve many results.
bool made_of_inputs(const Nest& nest, const Statement& statement) {
  const std::vector<ScalarExpr>& args = statement.value.args();
  return std::all_of(args.begin(), args.end(), [&](const ScalarExpr& arg) {
    bool halves = false;
    arg.visit([&](const ScalarExpr& node) { halves = halves || (node.op() == ScalarOp::read && is_half(node.type())); });
    return (halves || serves_many(nest, statement, arg)) && may_be_stored(nest, statement, arg);
  });
}

/// Sets `why` where there is none.
std::optional<Split> split_of(const Nest& nest, const Statement& statement, std::string& why) {
  const char* const many =
      "its factor is made of temporaries, which may be many: those of f32 tensors are made of inputs, and of values of rows or "
      "columns, or serve 64 results and come from no product of matrices, or take no more memory than an input that they read";
  if (chooses_function(nest, statement)) {
    why = many;
    return reads_inputs_and_few(nest, statement, statement.value.args()[1]) ? split_between(nest, statement, 1, 0, why)
                                                                            : std::nullopt;
  }
  why = "it is no sum of products with an element of a tensor";
  if (statement.reduction != ReductionOp::add || statement.value.op() != ScalarOp::mul ||
      statement.value.type() != ElementType::f32)
    return std::nullopt;
  const std::vector<ScalarExpr>& args = statement.value.args();
  const bool first = is_element(args[0]), second = is_element(args[1]);
  if (!first && !second) return made_of_inputs(nest, statement) ? split_between(nest, statement, 0, 1, why) : std::nullopt;
  why = "both factors are elements of tensors";
  if (first && second) return std::nullopt;
  const std::size_t factor = first ? 1 : 0;
  if (args[factor].type() != ElementType::f32) return std::nullopt;
  why = many;
  const bool half = is_half(strip_exact_casts(args[1 - factor]).type());
  if (!half && !may_be_stored(nest, statement, args[factor])) return std::nullopt;
  return split_between(nest, statement, factor, 1 - factor, why);
}

std::vector<RuleMatch> find(const Nest& nest) {
  std::string why;
  return matching_statements(nest, kName, [&](const Statement& statement) {
    return split_of(nest, statement, why) ? "the computed factor of " + statement.name + " gets a temporary of its own" : "";
  });
}

/// The distinct indices, which are no constants; named as the first dim that each follows.
Indices indices_of(const Nest& nest, const Statement& statement, const ScalarExpr& value) {
  Indices found;
  value.visit([&](const ScalarExpr& expr) {
    if (expr.op() != ScalarOp::read) return;
    const isl::map& relation = statement.reads[static_cast<std::size_t>(expr.ordinal())].relation;
    for (const isl::pw_aff& function : functions_on(relation, statement.domain)) {
      const auto same = [&](const isl::pw_aff& other) { return other.plain_is_equal(function); };
      const auto follows = [&](std::size_t dim) {
        return isl_pw_aff_involves_dims(function.get(), isl_dim_in, static_cast<unsigned>(dim), 1) == isl_bool_true;
      };
      std::size_t first = 0;
      while (first < statement.dims.size() && !follows(first)) ++first;
      if (first == statement.dims.size() || std::any_of(found.functions.begin(), found.functions.end(), same)) continue;
      found.functions.push_back(function);
      found.names.push_back(fresh_dim(nest, found.names, statement.dims[first]));
    }
  });
  return found;
}

/// Are the set's points a box from 0 on, for all sizes? Gaps, as between every second point, make it none.
bool is_box_from_0(const Nest& nest, const isl::set& set) {
  const int count = static_cast<int>(isl_set_dim(set.get(), isl_dim_set));
  isl::set box = isl::manage(isl_set_universe(isl_set_get_space(set.get()))).intersect_params(full_context(nest));
  for (int k = 0; k < count; ++k) box = below(box, k, extent_of(nest, set, k));
  return box.is_equal(set.intersect_params(full_context(nest)));
}

/// The factor's statement over the indices of what it reads, and { Sum -> tensor } of its values; nullopt: there are as many as dims.
std::optional<std::pair<Statement, isl::map>> over_indices(const Nest& nest, const Statement& sum, const Split& split,
                                                           const std::string& tensor) {
  const ScalarExpr& value = sum.value.args()[split.factor];
  bool numbers = false;
  value.visit([&](const ScalarExpr& expr) { numbers = numbers || expr.op() == ScalarOp::index; });
  const Indices indices = indices_of(nest, sum, value);
  if (numbers || indices.functions.empty() || indices.functions.size() >= split.dims.size()) return std::nullopt;
  const isl::map element = relation_of(sum.domain, tensor, indices.functions).intersect_domain(sum.domain);
  Statement factor;
  factor.name = tensor;
  factor.dims = indices.names;
  isl_set* domain = isl_set_gist_params(isl_map_range(element.copy()), full_context(nest).release());
  factor.domain = isl::manage(isl_set_coalesce(with_dim_names(domain, factor.dims)));
  factor.write = {tensor, isl::manage(isl_set_identity(factor.domain.copy()))};
  if (!is_box_from_0(nest, factor.domain)) return std::nullopt;
  bool known = true;
  factor.value = value.rewrite([&](const ScalarExpr& node) {
    if (node.op() != ScalarOp::read) return node;
    const Access& read = sum.reads[static_cast<std::size_t>(node.ordinal())];
    const isl::map seen = element.reverse().apply_range(read.relation).gist_domain(factor.domain).coalesce();
    known = known && seen.is_single_valued();
    return ScalarExpr::read(add_read(factor, {read.tensor, seen}), node.type());
  });
  return known ? std::optional(std::pair(factor, element.gist_domain(sum.domain))) : std::nullopt;
}

Tensor tensor_over(const Nest& nest, const Statement& factor) {
  Tensor tensor{factor.name, ElementType::f32, TensorRole::temporary, {}, {}};
  for (int k = 0; k < static_cast<int>(factor.dims.size()); ++k) tensor.shape.push_back(extent_of(nest, factor.domain, k));
  return tensor;
}

/// The dims that the factor follows. Last is the one that the last index of most reads follows: what lies side by side stays so.
std::vector<int> dims_along_rows(const Statement& sum, const Split& split) {
  std::map<int, int> rows;  // reads, by dim
  sum.value.args()[split.factor].visit([&](const ScalarExpr& expr) {
    if (expr.op() != ScalarOp::read) return;
    const std::vector<isl::pw_aff> indices =
        functions_on(sum.reads[static_cast<std::size_t>(expr.ordinal())].relation, sum.domain);
    for (const int dim : split.dims) {
      const bool follows = !indices.empty() && isl_pw_aff_involves_dims(indices.back().get(), isl_dim_in,
                                                                        static_cast<unsigned>(dim), 1) == isl_bool_true;
      if (follows) ++rows[dim];
    }
  });
  std::vector<int> dims = split.dims;
  const auto fewer = [&](int a, int b) { return rows[a] < rows[b]; };
  // Of several the last one, as it was.
  const auto last = std::max_element(dims.rbegin(), dims.rend(), fewer);
  std::rotate(last.base() - 1, last.base(), dims.end());
  return dims;
}

/// The same over the dims that it follows. It is the same at all points that have one image: the first of them will do.
std::pair<Statement, isl::map> over_own_dims(const Statement& sum, const Split& split, const std::string& tensor) {
  const DimsView view(sum, dims_along_rows(sum, split));
  Statement factor = view.over(tensor);
  factor.write = {tensor, isl::manage(isl_set_identity(factor.domain.copy()))};
  factor.value = import_value(factor, sum, view.to_statement(factor), sum.value.args()[split.factor]);
  return {std::move(factor), view.element(tensor)};
}

Nest with_factor(const Nest& nest, const Statement& sum, const Split& split) {
  const std::string tensor = fresh_name(nest, sum.write.tensor + "_factor");
  Nest result = nest;
  const auto shared = over_indices(nest, sum, split, tensor);
  auto [factor, element] = shared ? *shared : over_own_dims(sum, split, tensor);
  result.tensors.push_back(tensor_over(nest, factor));
  insert_statement(result, begin_with_initialisers(result, sum), factor);

  Statement& rest =
      *std::find_if(result.statements.begin(), result.statements.end(), [&](const Statement& s) { return s.name == sum.name; });
  // Without the bounds of dims that the factor does not follow.
  const ScalarExpr stored = ScalarExpr::read(add_read(rest, {tensor, element}), ElementType::f32);
  std::vector<ScalarExpr> args = sum.value.args();
  args[split.factor] = stored;
  rest.value = ScalarExpr::make(sum.value.op(), std::move(args));
  compact(rest);
  return result;
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const Split split = required_match(nest, kName, target, split_of);
  Nest result = with_factor(nest, nest.statement(target[0]), split);
  std::string why;
  const auto other = split_of(result, result.statement(target[0]), why);
  if (other) result = with_factor(result, result.statement(target[0]), *other);
  return {std::move(result), {}, false};
}

}  // namespace

const Rule& materialize_factor_rule() {
  static const Rule rule{kName,
                         "a computed factor of a sum of products gets a temporary of its own (argument: statement)",
                         "the temporary holds the factor's very values, which are complete before the sum begins",
                         "none",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
