// Rule "skip_blocks": where data hides whole blocks of scores, it says which blocks are left, so that a kernel goes past the others.
//
// Pattern    select(c_ij, x, -inf) in a value, where x follows a sum of products a_i b_j, and c is a condition of data that follows j (documents that
//            are packed, blocks that were chosen, padding). Rows i take part where c follows them, the other dims as they are.
// Rewrite    seen_IJ = 1 where c holds at a point of the block of 64 x 64 points (I, J), or may hold by the ranges of what it compares there, else 0.
//            A comparison of integers of i with such of j asks for these ranges alone, and for no point. next_IJ is the least J' >= J with seen_IJ' = 1, or
//            2^24. Wherever that sum is hidden so, select(next_{i/64, j/64} = j/64 and c_ij, x, -inf).
// Conditions what c reads is written before the sum; i and j have no negative values.
// Proof      c_ij implies seen_IJ = 1 for its block, which is next_IJ = J: the new condition is c_ij. a_i = b_j implies min a <= max b and min b <= max a
//            over the block, a_i <= b_j the first of these; conditions are joined by "and" and "or", which keep implications.
// Rounding   none.
// Source     lists of blocks in J. Dong et al., "Flex Attention", 2024, arXiv:2412.05496, which asks for them; here they follow from c.
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "poly/algebra/blocks/next_blocks.h"
#include "poly/algebra/operands/half_products.h"
#include "poly/algebra/operands/whole_dims.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/builders.h"
#include "poly/algebra/values/dims_view.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr const char* kName = "skip_blocks";

/// What data hides, and where.
struct HiddenScores {
  ScalarExpr condition;   ///< in the statement's value
  std::string sum;        ///< of the products
  std::string product;    ///< what that makes
  std::vector<int> dims;  ///< of the scores that the condition follows, rows and columns last
  int rows = -1;          ///< place in `dims`; -1: the condition is the same for all rows
};

/// A choice between a score and -inf.
struct Choice {
  ScalarExpr seen, score;  ///< the score is chosen where the condition holds
};

std::optional<Choice> choice_of(const ScalarExpr& node) {
  if (node.op() != ScalarOp::select) return std::nullopt;
  const auto hides = [&](std::size_t k) { return node.args()[k].is_constant(-std::numeric_limits<double>::infinity()); };
  if (hides(2)) return Choice{node.args()[0], node.args()[1]};
  if (hides(1)) return Choice{build::unary(ScalarOp::logical_not, node.args()[0]), node.args()[2]};
  return std::nullopt;
}

/// Dims of the scores that an operand of the products behind them follows.
std::set<int> followed(const Statement& scores, const isl::map& to_sum, const Statement& sum, const ScalarExpr& factor) {
  std::set<int> dims;
  factor.visit([&](const ScalarExpr& node) {
    if (node.op() != ScalarOp::read) return;
    const isl::map element =
        to_sum.apply_range(sum.reads.at(static_cast<std::size_t>(node.ordinal())).relation).gist_domain(scores.domain);
    for (int dim = 0; dim < static_cast<int>(scores.dims.size()); ++dim) {
      if (depends_on_dim(element, dim)) dims.insert(dim);
    }
  });
  return dims;
}

bool reads_data(const ScalarExpr& expr) {
  bool found = false;
  expr.visit([&](const ScalarExpr& node) { found = found || node.op() == ScalarOp::read; });
  return found;
}

/// A column dim and row dims of the scores, by the operands of a sum of products that they follow.
std::optional<HiddenScores> along_products(const Nest& nest, const Statement& scores, const ScalarExpr& condition,
                                           const Access& read) {
  for (const Statement* sum : writers_of(nest, read.tensor)) {
    if (sum->reduction != ReductionOp::add || sum->value.op() != ScalarOp::mul || !multiplies_rows_by_columns(nest, *sum))
      continue;
    const isl::map to_sum = read.relation.apply_range(sum->write.relation.reverse());
    const std::set<int> first = followed(scores, to_sum, *sum, sum->value.args()[0]),
                        second = followed(scores, to_sum, *sum, sum->value.args()[1]);
    HiddenScores found{condition, sum->name, read.tensor, {}, -1};
    int rows = -1, columns = -1, last = -1;  // dims that one operand alone follows; the last one of them all
    for (int dim = 0; dim < static_cast<int>(scores.dims.size()); ++dim) {
      const bool shared = first.contains(dim) == second.contains(dim);
      if (!shared) last = dim;
      if (!varies_along(scores, condition, dim)) continue;
      if (!shared && rows >= 0) found.dims.push_back(rows);
      shared ? found.dims.push_back(dim) : void(rows = std::exchange(columns, dim));
    }
    // Terms of what follows run along columns; rows are on the other side.
    if (columns < 0 || columns != last || (rows >= 0 && first.contains(rows) == first.contains(columns))) continue;
    if (rows >= 0) {
      found.rows = static_cast<int>(found.dims.size());
      found.dims.push_back(rows);
    }
    found.dims.push_back(columns);
    return found;
  }
  return std::nullopt;
}

std::optional<HiddenScores> hidden_scores(const Nest& nest, const Statement& scores, std::string& why) {
  why = "it does not hide sums of products by -inf, where a condition of data that follows their columns does not hold";
  std::optional<HiddenScores> found;
  scores.value.visit([&](const ScalarExpr& value) {
    const auto choice = choice_of(value);
    if (found || !choice || !reads_data(choice->seen)) return;
    choice->score.visit([&](const ScalarExpr& node) {
      if (!found && node.op() == ScalarOp::read)
        found = along_products(nest, scores, choice->seen, scores.reads.at(static_cast<std::size_t>(node.ordinal())));
    });
  });
  if (!found) return std::nullopt;
  why = "blocks of it are left out already";
  for (const Access& read : scores.reads) {
    if (tells_next_blocks(nest, read.tensor)) return std::nullopt;
  }
  why = "a dim of it has negative values";
  if (has_negative_values(nest, scores, found->dims)) return std::nullopt;
  why = "what decides is written when the sum has begun";
  const std::size_t begin = begin_with_initialisers(nest, nest.statement(found->sum));
  bool early = true;
  found->condition.visit([&](const ScalarExpr& node) {
    if (node.op() != ScalarOp::read) return;
    for (const Statement* writer : writers_of(nest, scores.reads.at(static_cast<std::size_t>(node.ordinal())).tensor))
      early = early && position_of(nest, writer->name) < begin;
  });
  if (!early) return std::nullopt;
  why = "";
  return found;
}

class Blocks {
 public:
  Blocks(const Nest& nest, const std::string& name, const HiddenScores& found)
      : result_(nest), scores_(nest.statement(name)), found_(found), view_(scores_, found.dims) {}

  Nest run() {
    const std::string seen = add_seen();
    const std::string next = add_next(seen);
    hide(next);
    return std::move(result_);
  }

 private:
  void insert(const Statement& statement) {
    const Statement& sum = result_.statement(found_.sum);
    insert_statement(result_, group_begin(result_, result_.statements[begin_with_initialisers(result_, sum)].name), statement);
  }

  bool is_blocked(std::size_t place) const { return place + 1 == found_.dims.size() || static_cast<int>(place) == found_.rows; }

  /// A number for each block, and for `beyond` more behind the last one of the columns.
  std::string add_tensor(const std::string& suffix, long beyond) {
    Tensor tensor{fresh_name(result_, scores_.write.tensor + suffix), ElementType::i32, TensorRole::temporary, {}, {}};
    for (std::size_t place = 0; place < found_.dims.size(); ++place) {
      isl::pw_aff extent = extent_of(result_, scores_.domain, found_.dims[place]);
      if (is_blocked(place)) extent = quotient_of(extent.add_constant(kBlockPoints - 1), kBlockPoints);
      if (place + 1 == found_.dims.size()) extent = extent.add_constant(beyond);
      tensor.shape.push_back(extent.coalesce());
    }
    result_.tensors.push_back(tensor);
    return tensor.name;
  }

  /// A statement over all elements of the tensor, which writes them.
  Statement over_elements(const std::string& tensor, const std::string& name) const {
    Statement result;
    result.name = fresh_name(result_, name);
    result.dims = view_.names();
    result.domain = elements_of(tensor, result);
    result.write = {tensor, relation_of(result.domain, tensor, functions_of_dims(result.domain))};
    return result;
  }

  /// All elements of the tensor as points of a statement.
  isl::set elements_of(const std::string& tensor, const Statement& statement) const {
    isl_set* box = isl_set_set_tuple_name(tensor_box(result_.tensor(tensor)).release(), statement.name.c_str());
    return isl::manage(with_dim_names(box, statement.dims));
  }

  static std::vector<isl::pw_aff> functions_of_dims(const isl::set& domain) {
    std::vector<isl::pw_aff> functions;
    for (int dim = 0; dim < static_cast<int>(isl_set_dim(domain.get(), isl_dim_set)); ++dim)
      functions.push_back(dim_function(domain, dim));
    return functions;
  }

  std::string add_seen() {
    const std::string seen = add_tensor("_seen", 0);
    Statement start = over_elements(seen, seen + "_init");
    start.value = integer(0);
    insert(start);
    // Points, then blocks of their rows and columns with the places in them.
    const std::string name = fresh_name(result_, seen);
    Statement points = view_.over(name + "_points");
    isl::map to_points = isl::manage(isl_set_identity(domain_in(result_, points).release()));
    points.write = {points.name, to_points};
    Statement blocks = points;
    std::vector<int> elements(found_.dims.size());
    for (std::size_t place = 0; place < elements.size(); ++place) elements[place] = static_cast<int>(place);
    for (std::size_t place = 0; place < elements.size(); ++place) {
      if (!is_blocked(place)) continue;
      const ChunkedDim chunked{elements[place], kBlockPoints};
      const bool last = place + 1 == elements.size();
      Statement chunks = in_chunks(result_, blocks, chunked, last ? name : name + "_rows");
      to_points = seen_in_chunks(result_, chunks, blocks, chunked, to_points);
      for (int& element : elements) element -= element > chunked.dim ? 1 : 0;
      elements[place] = static_cast<int>(chunks.dims.size()) - 2;
      chunks.write = {chunks.name, to_points};
      blocks = chunks;
    }
    const ScalarExpr condition =
        import_value(blocks, scores_, to_points.apply_range(view_.to_statement(points)), found_.condition);
    blocks.value = build::select(by_ranges(blocks, elements, condition), integer(1), integer(0));
    std::vector<isl::pw_aff> index;
    for (const int dim : elements) index.push_back(dim_function(blocks.domain, dim));
    blocks.write = {seen, relation_of(blocks.domain, seen, index)};
    Statement all = with_few_places(blocks, elements);
    all.reduction = ReductionOp::max;
    insert(all);
    return seen;
  }

  static ScalarExpr integer(double value) { return ScalarExpr::constant(value, ElementType::i32); }

  /// Where data of rows is compared with data of columns, whether the ranges of both in a block allow it: the condition implies what is returned.
  /// `elements`: dims of `blocks` for the indices of `seen`.
  ScalarExpr by_ranges(Statement& blocks, const std::vector<int>& elements, const ScalarExpr& condition) {
    if (condition.op() == ScalarOp::logical_and || condition.op() == ScalarOp::logical_or) {
      std::vector<ScalarExpr> parts;
      for (const ScalarExpr& arg : condition.args()) parts.push_back(by_ranges(blocks, elements, arg));
      return condition.with_args(std::move(parts));
    }
    const bool equal = condition.op() == ScalarOp::eq;
    if ((!equal && condition.op() != ScalarOp::lt && condition.op() != ScalarOp::le) || found_.rows < 0) return condition;
    const ScalarExpr &a = condition.args()[0], &b = condition.args()[1];
    if (a.type() != ElementType::i32 || !reads_data(a) || !reads_data(b)) return condition;
    const auto along = [&](const ScalarExpr& value, std::size_t place) {
      const int block = elements[place];
      return changes_along(blocks, value, block) || changes_along(blocks, value, block + 1);
    };
    const auto rows = static_cast<std::size_t>(found_.rows), columns = elements.size() - 1;
    const bool apart = (along(a, rows) && !along(a, columns) && along(b, columns) && !along(b, rows)) ||
                       (along(b, rows) && !along(b, columns) && along(a, columns) && !along(a, rows));
    if (!apart) return condition;
    const auto end_of = [&](const ScalarExpr& value, ReductionOp op) { return add_end(blocks, elements, value, op); };
    const auto compared = [](ScalarOp op, const ScalarExpr& x, const ScalarExpr& y) { return ScalarExpr::make(op, {x, y}); };
    if (!equal) return compared(condition.op(), end_of(a, ReductionOp::min), end_of(b, ReductionOp::max));
    return ScalarExpr::make(ScalarOp::logical_and,
                            {compared(ScalarOp::le, end_of(a, ReductionOp::min), end_of(b, ReductionOp::max)),
                             compared(ScalarOp::le, end_of(b, ReductionOp::min), end_of(a, ReductionOp::max))});
  }

  /// The least or the largest of the value in each block, in a temporary: its element, as `blocks` reads it.
  ScalarExpr add_end(Statement& blocks, const std::vector<int>& elements, const ScalarExpr& value, ReductionOp op) {
    std::vector<int> dims, places;
    Tensor ends{fresh_name(result_, scores_.write.tensor + (op == ReductionOp::min ? "_least" : "_largest")),
                ElementType::i32,
                TensorRole::temporary,
                {},
                {}};
    for (std::size_t place = 0; place < elements.size(); ++place) {
      const int dim = elements[place];
      const bool inner = is_blocked(place) && changes_along(blocks, value, dim + 1);
      if (!inner && !changes_along(blocks, value, dim)) continue;
      dims.push_back(dim);
      if (inner) places.push_back(dim + 1);
      ends.shape.push_back(extent_of(result_, blocks.domain, dim));
    }
    result_.tensors.push_back(ends);
    Statement start;
    start.name = fresh_name(result_, ends.name + "_init");
    for (const int dim : dims) start.dims.push_back(blocks.dims[static_cast<std::size_t>(dim)]);
    start.domain = elements_of(ends.name, start);
    start.write = {ends.name, relation_of(start.domain, ends.name, functions_of_dims(start.domain))};
    start.value = integer(op == ReductionOp::min ? 2147483647.0 : -2147483648.0);
    insert(start);
    const std::size_t indices = dims.size();
    dims.insert(dims.end(), places.begin(), places.end());
    const DimsView view(blocks, dims);
    Statement all = view.over(fresh_name(result_, ends.name));
    all.value = import_value(all, blocks, view.to_statement(all), value);
    all.reduction = op;
    std::vector<isl::pw_aff> own = functions_of_dims(all.domain), read;
    own.resize(indices);
    all.write = {ends.name, relation_of(all.domain, ends.name, own)};
    insert(all);
    for (std::size_t k = 0; k < indices; ++k) read.push_back(dim_function(blocks.domain, dims[k]));
    return ScalarExpr::read(add_read(blocks, {ends.name, relation_of(blocks.domain, ends.name, read)}), ElementType::i32);
  }

  /// Blocks first, then the places in them that the value is not the same at.
  Statement with_few_places(const Statement& blocks, std::vector<int> dims) const {
    for (const int place : other_dims(blocks, dims)) {
      if (changes_along(blocks, blocks.value, place)) dims.push_back(place);
    }
    const DimsView view(blocks, dims);
    Statement result = view.over(blocks.name);
    const isl::map first = view.to_statement(result);
    result.value = import_value(result, blocks, first, blocks.value);
    result.write = {blocks.write.tensor, first.apply_range(blocks.write.relation)};
    return result;
  }

  static bool changes_along(const Statement& statement, const ScalarExpr& value, int dim) {
    const auto follows = [&](const isl::map& relation) {
      const isl::map map = relation.intersect_domain(statement.domain);
      return !isl::manage(isl_map_project_out(map.copy(), isl_dim_in, static_cast<unsigned>(dim), 1)).is_single_valued();
    };
    bool changes = false;
    value.visit([&](const ScalarExpr& node) {
      const auto ordinal = static_cast<std::size_t>(node.ordinal());
      if (node.op() == ScalarOp::read) changes = changes || follows(statement.reads[ordinal].relation);
      if (node.op() == ScalarOp::index)
        changes = changes || follows(isl::manage(isl_map_from_pw_aff(statement.indices[ordinal].copy())));
    });
    return changes;
  }

  std::string add_next(const std::string& seen) {
    const std::string next = add_tensor("_next", 1);
    Statement start = over_elements(next, next + "_init");
    start.value = integer(kNoBlock);
    insert(start);
    Statement least;
    least.name = fresh_name(result_, next);
    // The last dim is the column of `seen`, the one before that of `next`.
    const auto columns = static_cast<unsigned>(found_.dims.size()) - 1;
    least.dims = view_.names();
    least.dims.push_back(fresh_dim(result_, least.dims, least.dims.back() + "_later"));
    const isl::set blocks = isl::manage(isl_set_set_tuple_name(tensor_box(result_.tensor(seen)).release(), least.name.c_str()));
    least.domain = isl::manage(with_dim_names(blocks_up_to(blocks).release(), least.dims));
    std::vector<isl::pw_aff> from = functions_of_dims(least.domain), to = from;
    from.erase(from.end() - 2);
    to.pop_back();
    const ScalarExpr there = ScalarExpr::read(add_read(least, {seen, relation_of(least.domain, seen, from)}), ElementType::i32);
    const int later = add_index(least, dim_function(least.domain, static_cast<int>(columns) + 1));
    least.value = build::select(ScalarExpr::make(ScalarOp::lt, {integer(0), there}), ScalarExpr::index(later), integer(kNoBlock));
    least.reduction = ReductionOp::min;
    least.write = {next, relation_of(least.domain, next, to)};
    insert(least);
    return next;
  }

  void hide(const std::string& next) {
    Statement scores = result_.statement(scores_.name);
    std::vector<isl::pw_aff> index;
    for (std::size_t place = 0; place < found_.dims.size(); ++place) {
      const isl::pw_aff at = dim_function(scores.domain, found_.dims[place]);
      index.push_back(is_blocked(place) ? quotient_of(at, kBlockPoints) : at);
    }
    const int block = add_index(scores, index.back());
    const int element = add_read(scores, {next, relation_of(scores.domain, next, index)});
    const ScalarExpr there = build::equal(ScalarExpr::read(element, ElementType::i32), ScalarExpr::index(block));
    const isl::map product = read_of_product(scores);
    const std::vector<Statement> statements = result_.statements;
    for (const Statement& each : statements) {
      Statement reader = each.name == scores.name ? scores : each;
      if (each.name == scores.name) {
        reader.value = with_test(reader.value, found_.condition, there);
      } else {
        for (const Access& read : each.reads) {
          if (read.tensor != found_.product) continue;
          const isl::map same = read.relation.apply_range(product.reverse());
          if (!same.is_single_valued() || !each.domain.is_subset(same.domain())) continue;
          const ScalarExpr condition = import_value(reader, scores, same, found_.condition),
                           found = import_value(reader, scores, same, there);
          reader.value = with_test(reader.value, condition, found);
        }
        if (reader.value.equals(each.value)) continue;
        compact(reader);
      }
      replace_statement(result_, reader);
    }
  }

  isl::map read_of_product(const Statement& scores) const {
    const auto found =
        std::find_if(scores.reads.begin(), scores.reads.end(), [&](const Access& read) { return read.tensor == found_.product; });
    return found->relation.intersect_domain(scores.domain);
  }

  static ScalarExpr with_test(const ScalarExpr& value, const ScalarExpr& condition, const ScalarExpr& there) {
    return value.rewrite([&](const ScalarExpr& node) {
      const auto choice = choice_of(node);
      if (!choice || !choice->seen.equals(condition)) return node;
      return build::select(ScalarExpr::make(ScalarOp::logical_and, {there, condition}), choice->score,
                           build::number(-std::numeric_limits<double>::infinity()));
    });
  }

  Nest result_;
  const Statement scores_;
  const HiddenScores found_;
  const DimsView view_;
};

std::vector<RuleMatch> find(const Nest& nest) {
  std::string why;
  return matching_statements(nest, kName, [&](const Statement& statement) {
    return hidden_scores(nest, statement, why) ? "blocks that data hides of " + statement.name + " can be gone past" : "";
  });
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const HiddenScores found = required_match(nest, kName, target, hidden_scores);
  return {Blocks(nest, target[0], found).run(), {}, false};
}

/// What sums multiply by values that follow from hidden scores: by 0 where data hides whole blocks.
std::vector<std::string> multiplied_by_hidden(const Nest& nest) {
  std::set<std::string> hidden, multiplied;
  std::string why;
  for (const Statement& statement : nest.statements) {
    const auto follows = [&](const ScalarExpr& value) {
      bool found = false;
      value.visit([&](const ScalarExpr& node) {
        found = found || (node.op() == ScalarOp::read &&
                          hidden.contains(statement.reads.at(static_cast<std::size_t>(node.ordinal())).tensor));
      });
      return found;
    };
    if (follows(statement.value) || hidden_scores(nest, statement, why)) hidden.insert(statement.write.tensor);
    if (statement.reduction != ReductionOp::add) continue;
    statement.value.visit([&](const ScalarExpr& product) {
      if (product.op() != ScalarOp::mul) return;
      for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
        if (!follows(product.args()[side]) || follows(product.args()[1 - side])) continue;
        product.args()[1 - side].visit([&](const ScalarExpr& node) {
          if (node.op() == ScalarOp::read) multiplied.insert(statement.reads.at(static_cast<std::size_t>(node.ordinal())).tensor);
        });
      }
    });
  }
  return {multiplied.begin(), multiplied.end()};
}

}  // namespace

const Rule& skip_blocks_rule() {
  static const Rule rule{kName,
                         "blocks of scores that a condition of data hides can be gone past (argument: statement)",
                         "a block that has a point where the condition holds is the next one from itself on",
                         "none, with finite values where data hides whole blocks: kernels that go past these multiply nothing",
                         find,
                         apply,
                         multiplied_by_hidden,
                         true};
  return rule;
}

}  // namespace nestor
