// Rule "row_reduction": a reduction over rows and columns of what other statements make is one along each row, then one over rows. So a kernel
// that makes the rows, by products or point by point, reduces each of them at once.
//
// Pattern    r_e = (+) over dims K and C of t.
// Rewrite    s_(e, K) = (+) over C of t;  r_e = (+) over K of s_(e, K).
// Conditions an accumulator of f32, alone in its loops, whose terms do not read it; K and C have a dim each, K without negative values.
// Proof      associativity and commutativity of the monoid. s has the elements that have points.
// Rounding   as reassociate.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <set>
#include <utility>

#include "poly/algebra/operands/half_products.h"
#include "poly/algebra/operands/whole_dims.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/builders.h"
#include "poly/algebra/values/dims_view.h"
#include "poly/algebra/values/factor_chain.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"
#include "poly/nest/nest_sets.h"
#include "support/error.h"

namespace nestor {
namespace {

constexpr const char* kName = "row_reduction";
/// Results, where sizes have their defaults, that give blocks enough to do as they are.
constexpr double kManyResults = 1024;
constexpr double kMostRows = 1 << 16;   ///< that one block adds up
constexpr double kManyTerms = 1 << 18;  ///< of one result
/// Columns of a result there that are worth a sum of their own: parts are those of a product's tile.
constexpr double kFewestColumns = 32;

std::string objection(const Nest& nest, const Statement& statement) {
  if (!statement.reduction || nest.tensor(statement.write.tensor).type != ElementType::f32) return "it is no reduction in f32";
  if (reduced_dims(statement).size() < 2) return "it reduces one dim alone";
  if (!alone_in_group(nest, statement.name)) return "it shares its loops with other statements of its definition";
  if (reads_tensor(statement, statement.value, statement.write.tensor)) return "its terms read its own result";
  return "";
}

/// Is the temporary made of sums of two factors, with other statements between, none of which reduces? `seen` has the tensors that were
/// looked at.
bool comes_from_products(const Nest& nest, const std::string& tensor, std::set<std::string>& seen) {
  if (nest.tensor(tensor).role != TensorRole::temporary || !seen.insert(tensor).second) return false;
  for (const Statement* writer : writers_of(nest, tensor)) {
    if (writer->reduction == ReductionOp::add && writer->value.op() == ScalarOp::mul) return true;
    if (writer->reduction) continue;
    for (const Access& read : writer->reads) {
      if (comes_from_products(nest, read.tensor, seen)) return true;
    }
  }
  return false;
}

constexpr double kLarge = 1 << 20;

/// Does the reduction go along the last index of the tensor, for each of others apart?
bool reads_rows_of(const Statement& reduction, const std::string& tensor) {
  const std::vector<int> reduced = reduced_dims(reduction);
  return std::any_of(reduction.reads.begin(), reduction.reads.end(), [&](const Access& read) {
    if (read.tensor != tensor) return false;
    const std::vector<std::set<int>> followed = dims_of_indices(reduction, read);
    const auto is_reduced = [&](int dim) { return std::find(reduced.begin(), reduced.end(), dim) != reduced.end(); };
    return followed.size() > 1 && std::any_of(followed.back().begin(), followed.back().end(), is_reduced) &&
           std::none_of(followed.begin(), followed.end() - 1,
                        [&](const std::set<int>& dims) { return std::any_of(dims.begin(), dims.end(), is_reduced); });
  });
}

/// Is the tensor made point by point, large, and returned or read by others as well? Else its values would rather be computed where they are read.
bool is_made_for_others(const Nest& nest, const std::string& tensor) {
  const TensorRole role = nest.tensor(tensor).role;
  if (role == TensorRole::input || (role == TensorRole::temporary && readers_of(nest, tensor).size() < 2)) return false;
  const std::vector<const Statement*> writers = writers_of(nest, tensor);
  return std::all_of(writers.begin(), writers.end(), [&](const Statement* writer) {
    return !writer->reduction && default_points(nest, *writer, other_dims(*writer, {})) >= kLarge;
  });
}

/// Does it reduce 2^20 elements or more of a tensor whose rows an earlier statement reduces one by one, by what that has found of each? A kernel that has
/// the rows for that reduces them at once.
bool reduces_rows_again(const Nest& nest, const Statement& statement) {
  if (!statement.reduction || default_points(nest, statement, other_dims(statement, {})) < kLarge) return false;
  const std::vector<int> reduced = reduced_dims(statement);
  const auto follows = [&](const Access& read, int dim) { return depends_on_dim(read.relation, dim); };
  return std::any_of(statement.reads.begin(), statement.reads.end(), [&](const Access& found) {  // of each row
    if (nest.tensor(found.tensor).role == TensorRole::input) return false;
    return std::any_of(reduced.begin(), reduced.end(), [&](int column) {
      const bool of_rows =
          !follows(found, column) && std::any_of(reduced.begin(), reduced.end(), [&](int row) { return follows(found, row); });
      return of_rows && std::any_of(nest.statements.begin(), nest.statements.end(), [&](const Statement& earlier) {
               if (!earlier.reduction || earlier.group >= statement.group) return false;
               return std::any_of(statement.reads.begin(), statement.reads.end(), [&](const Access& ours) {
                 return follows(ours, column) && reads_rows_of(earlier, ours.tensor);
               });
             });
    });
  });
}

/// Is it a product of matrices itself?
bool multiplies(const Statement& statement) {
  for (std::size_t a = 0; a < statement.reads.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      if (follows_own_dim(statement, a, b) && follows_own_dim(statement, b, a)) return true;
    }
  }
  return false;
}

bool has_products(const Nest& nest) { return std::any_of(nest.statements.begin(), nest.statements.end(), multiplies); }

using IsWanted = std::function<bool(const std::string& tensor)>;

/// The reduced dims that the last index of a wanted tensor follows, where indices before it follow others; none: there is no such read.
std::vector<int> columns_of(const Nest& nest, const Statement& statement, const IsWanted& wanted) {
  const std::vector<int> reduced = reduced_dims(statement);
  for (const Access& read : statement.reads) {
    if (nest.tensor(read.tensor).shape.size() < 2 || !wanted(read.tensor)) continue;
    const std::vector<std::set<int>> followed = dims_of_indices(statement, read);
    std::vector<int> columns;
    bool rows = false;
    for (const int dim : reduced) {
      const bool last = followed.back().contains(dim);
      if (last) columns.push_back(dim);
      rows = rows || (!last && std::any_of(followed.begin(), followed.end(),
                                           [&](const std::set<int>& each) { return each.contains(dim); }));
    }
    if (rows && columns.size() == 1) return columns;
  }
  return {};
}

/// Is the tensor one over the same rows and columns as a read of the statement, where another reduction goes over the rows for each column
/// apart? Then these sums go along the rows, too: one kernel has all of them.
bool is_reduced_by_columns(const Nest& nest, const Statement& statement, const std::vector<int>& columns) {
  const auto has_columns = [&](const Statement& of, const Access& read, bool kept) {
    const std::vector<std::set<int>> followed = dims_of_indices(of, read);
    const std::vector<int> reduced = reduced_dims(of);
    const auto is_reduced = [&](int dim) { return std::find(reduced.begin(), reduced.end(), dim) != reduced.end(); };
    return followed.size() > 1 && followed.back().size() == 1 && is_reduced(*followed.back().begin()) != kept &&
           std::any_of(followed.begin(), followed.end() - 1,
                       [&](const std::set<int>& dims) { return std::any_of(dims.begin(), dims.end(), is_reduced); });
  };
  const auto same_shape = [&](const Access& a, const Access& b) {
    const std::vector<isl::pw_aff>&x = nest.tensor(a.tensor).shape, &y = nest.tensor(b.tensor).shape;
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), same_extent);
  };
  return std::any_of(nest.statements.begin(), nest.statements.end(), [&](const Statement& other) {
    if (!other.reduction || other.name == statement.name) return false;
    return std::any_of(other.reads.begin(), other.reads.end(), [&](const Access& theirs) {
      return has_columns(other, theirs, true) &&
             std::any_of(statement.reads.begin(), statement.reads.end(), [&](const Access& ours) {
               return same_shape(ours, theirs) && has_columns(statement, ours, false) &&
                      dims_of_indices(statement, ours).back() == std::set<int>(columns.begin(), columns.end());
             });
    });
  });
}

/// Reductions along rows of wanted tensors. `turned`: those beside reductions for each column go along the columns first.
std::vector<RuleMatch> find_along(const Nest& nest, double most_rows, const IsWanted& wanted, bool turned) {
  std::vector<RuleMatch> matches;
  for (const Statement& statement : nest.statements) {
    if (!objection(nest, statement).empty() || multiplies(statement)) continue;
    if (default_points(nest, statement, other_dims(statement, reduced_dims(statement))) >= kManyResults) continue;
    std::vector<int> columns = columns_of(nest, statement, wanted);
    if (turned && !columns.empty() && is_reduced_by_columns(nest, statement, columns)) {
      std::vector<int> rows = reduced_dims(statement);
      std::erase(rows, columns.front());
      if (rows.size() == 1) columns = rows;
    }
    if (columns.empty() || default_points(nest, statement, columns) < kFewestColumns) continue;
    if (default_points(nest, statement, other_dims(statement, columns)) > most_rows) continue;
    if (has_negative_values(nest, statement, other_dims(statement, columns))) continue;
    matches.push_back({kName, target_of_dims(statement, columns),
                       fmt::format("{} reduces along {}, then what that leaves", statement.name,
                                   statement.dims[static_cast<std::size_t>(columns.front())])});
  }
  return matches;
}

std::vector<RuleMatch> find(const Nest& nest) {
  const auto along_all = [&](bool turned) {
    return find_along(nest, kMostRows, [](const std::string&) { return true; }, turned);
  };
  std::vector<RuleMatch> matches = find_along(
      nest, std::numeric_limits<double>::infinity(),
      [&](const std::string& tensor) {
        std::set<std::string> seen;
        return comes_from_products(nest, tensor, seen);
      },
      false);
  if (has_products(nest)) {
    // Beside products, one block would reduce what nothing cuts into parts.
    for (RuleMatch& match : along_all(false)) {
      const Statement& statement = nest.statement(match.target.front());
      const bool known = std::any_of(matches.begin(), matches.end(),
                                     [&](const RuleMatch& each) { return each.target.front() == statement.name; });
      if (!known && default_points(nest, statement, other_dims(statement, {})) >= kManyTerms) matches.push_back(std::move(match));
    }
    return matches;
  }
  const bool made = std::any_of(nest.statements.begin(), nest.statements.end(), [&](const Statement& statement) {
    return reduces_rows_again(nest, statement) ||
           (statement.reduction && std::any_of(statement.reads.begin(), statement.reads.end(),
                                               [&](const Access& read) { return is_made_for_others(nest, read.tensor); }));
  });
  // Beside those, reductions of inputs: a kernel that reduces all of them reads each once.
  return matches.empty() && made ? along_all(true) : matches;
}

std::vector<int> dims_named(const Statement& statement, const std::vector<std::string>& target) {
  const std::vector<int> reduced = reduced_dims(statement);
  std::vector<int> dims;
  for (auto name = target.begin() + 1; name != target.end(); ++name) {
    const auto found = std::find_if(reduced.begin(), reduced.end(),
                                    [&](int dim) { return statement.dims[static_cast<std::size_t>(dim)] == *name; });
    if (found == reduced.end()) refuse_rule(kName, statement.name, fmt::format("{} is not reduced", *name));
    dims.push_back(*found);
  }
  std::sort(dims.begin(), dims.end());
  if (std::adjacent_find(dims.begin(), dims.end()) != dims.end() || dims.size() == reduced.size())
    refuse_rule(kName, statement.name, "the dims are not some of those that it reduces, each once");
  return dims;
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  if (target.size() < 2) user_error("rule {} takes a statement and the dims that it reduces first", kName);
  const std::string name = statement_argument(nest, kName, {target.front()}, 1);
  const Statement& whole = nest.statement(name);
  const std::string why = objection(nest, whole);
  if (!why.empty()) refuse_rule(kName, name, why);
  const std::vector<int> kept = other_dims(whole, dims_named(whole, target));
  if (has_negative_values(nest, whole, kept)) refuse_rule(kName, name, "a dim that is left has negative values");
  Nest result = nest;
  const DimsView rows(whole, kept);
  const Tensor tensor = rows.tensor(nest, fresh_name(nest, whole.write.tensor + "_rows"));
  result.tensors.push_back(tensor);
  Statement inner = renamed(whole, tensor.name);
  inner.write = {tensor.name, with_domain_tuple(rows.element(tensor.name), tensor.name)};
  Statement start = rows.over(fresh_name(result, tensor.name + "_init"));
  start.write = {tensor.name, isl::manage(isl_set_identity(start.domain.copy())).set_range_tuple(tensor.name)};
  start.value = build::number(neutral_element(*whole.reduction, ElementType::f32));
  Statement outer = rows.over(name);
  outer.write = {whole.write.tensor, rows.seen_by(outer, whole.write.relation)};
  outer.reduction = whole.reduction;
  outer.value =
      ScalarExpr::read(add_read(outer, {tensor.name, rows.seen_by(outer, rows.element(tensor.name))}), ElementType::f32);
  // Rows of what is made point by point stand behind that: before what the whole starts from, where that is next.
  const std::size_t place = group_begin(result, name);
  const bool started = !has_products(nest) && place > 0 && result.statements[place - 1].write.tensor == whole.write.tensor;
  const std::string next = started ? result.statements[place - 1].name : name;
  insert_statement(result, group_begin(result, next), start);
  insert_statement(result, group_begin(result, next), inner);
  outer.group = result.statement(name).group;
  replace_statement(result, outer);
  return {std::move(result), {}, false};
}

}  // namespace

const Rule& row_reduction_rule() {
  static const Rule rule{kName,
                         "a reduction over rows and columns goes along each row first (arguments: statement, dims that go first)",
                         "associativity and commutativity of the monoid",
                         "as reassociate",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
