// Demands on values, from where they are used back to inputs.
#include "autotune/tensors/input_ranges.h"

#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"

#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>
#include <isl/val.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace nestor {
namespace {

bool is_nonnegative_constant(const ScalarExpr& expr) { return expr.op() == ScalarOp::constant && expr.number() >= 0; }
bool is_positive_constant(const ScalarExpr& expr) { return expr.op() == ScalarOp::constant && expr.number() > 0; }

class Demands {
 public:
  explicit Demands(const Nest& nest) : nest_(nest) {
    for (const Statement& statement : nest.statements)
      statement.value.visit([&](const ScalarExpr& node) { demand(statement, node); });
  }
  std::map<std::string, InputRange> take() { return std::move(ranges_); }

 private:
  void demand(const Statement& statement, const ScalarExpr& node) {
    switch (node.op()) {
      case ScalarOp::sqrt:
      case ScalarOp::rsqrt:
      case ScalarOp::log:
        return nonnegative(statement, node.args()[0]);
      case ScalarOp::eq:
      case ScalarOp::lt:
      case ScalarOp::le:
        is_place(statement, node.args()[0], node.args()[1]);
        return is_place(statement, node.args()[1], node.args()[0]);
      case ScalarOp::select:
        return hides(statement, node);
      case ScalarOp::bit_and:
      case ScalarOp::bit_or:
      case ScalarOp::bit_xor:
        is_word(statement, node.args()[1]);
        return is_word(statement, node.args()[0]);
      case ScalarOp::shift_left:
      case ScalarOp::shift_right_logical:
        return is_word(statement, node.args()[0]);
      case ScalarOp::log1p:  // of what is greater than -1
        return at_most(statement, node.args()[0], 1);
      case ScalarOp::pow: {
        const ScalarExpr& exponent = node.args()[1];
        const bool whole = exponent.op() == ScalarOp::constant && exponent.number() == std::floor(exponent.number());
        return whole ? void() : nonnegative(statement, node.args()[0]);
      }
      default:
        return;
    }
  }

  /// The input of integers that the expression is an element of; null: it is something else.
  const Tensor* integers(const Statement& statement, const ScalarExpr& expr) const {
    if (expr.op() != ScalarOp::read) return nullptr;
    const Tensor& tensor = nest_.tensor(statement.reads[static_cast<std::size_t>(expr.ordinal())].tensor);
    return tensor.role == TensorRole::input && tensor.type == ElementType::i32 ? &tensor : nullptr;
  }

  /// What decides whether a value stands there or a number that hides it.
  void hides(const Statement& statement, const ScalarExpr& choice) {
    constexpr double kHidden = -1000;
    const auto is_hidden = [](const ScalarExpr& value) { return value.op() == ScalarOp::constant && value.number() <= kHidden; };
    if (!is_hidden(choice.args()[1]) && !is_hidden(choice.args()[2])) return;
    choice.args()[0].visit([&](const ScalarExpr& node) {
      if (node.op() != ScalarOp::read) return;
      const Tensor& tensor = nest_.tensor(statement.reads[static_cast<std::size_t>(node.ordinal())].tensor);
      if (tensor.role == TensorRole::input && (tensor.type == ElementType::i32 || tensor.type == ElementType::boolean))
        ranges_[tensor.name].hides = true;
    });
  }

  /// Integers whose bits are told apart: packed weights, sets.
  void is_word(const Statement& statement, const ScalarExpr& expr) {
    if (const Tensor* tensor = integers(statement, expr)) ranges_[tensor->name].word = true;
  }

  /// The operand beside what has no elements of tensors; the expression itself: there is none.
  static const ScalarExpr& without_offset(const ScalarExpr& expr) {
    if (expr.op() != ScalarOp::add && expr.op() != ScalarOp::sub) return expr;
    const auto has_reads = [](const ScalarExpr& value) {
      bool found = false;
      value.visit([&](const ScalarExpr& node) { found = found || node.op() == ScalarOp::read; });
      return found;
    };
    const std::vector<ScalarExpr>& args = expr.args();
    if (has_reads(args[0]) && !has_reads(args[1])) return without_offset(args[0]);
    return has_reads(args[1]) && !has_reads(args[0]) && expr.op() == ScalarOp::add ? without_offset(args[1]) : expr;
  }

  /// Integers that are compared with an index, with something added or not: words of a table, labels, nodes of a graph, lengths.
  void is_place(const Statement& statement, const ScalarExpr& compared, const ScalarExpr& index) {
    const ScalarExpr& read = without_offset(compared);
    const Tensor* tensor = integers(statement, read);
    if (index.op() != ScalarOp::index || tensor == nullptr) return;
    const isl::map values(isl::manage(isl_map_from_pw_aff(statement.indices[static_cast<std::size_t>(index.ordinal())].copy())));
    const isl::set all = values.intersect_domain(domain_in(nest_, statement)).range();
    if (all.is_empty() || isl_set_dim_has_upper_bound(all.get(), isl_dim_set, 0) != isl_bool_true) return;
    isl::pw_aff end =
        isl::manage(isl_pw_aff_add_constant_val(isl_set_dim_max(all.copy(), 0), isl_val_one(isl_set_get_ctx(all.get()))));
    isl::pw_aff& places = ranges_[tensor->name].places;
    places = places.is_null() ? std::move(end) : isl::manage(isl_pw_aff_max(places.release(), end.release()));
  }

  /// Of reads, each of which may have been written twice.
  static bool are_equal(const Statement& statement, const ScalarExpr& a, const ScalarExpr& b) {
    const auto first_read = [&](const ScalarExpr& node) {
      if (node.op() != ScalarOp::read) return node;
      const Access& access = statement.reads[static_cast<std::size_t>(node.ordinal())];
      const auto first = std::find_if(statement.reads.begin(), statement.reads.end(), [&](const Access& other) {
        return other.tensor == access.tensor && other.relation.is_equal(access.relation);
      });
      return ScalarExpr::read(static_cast<int>(first - statement.reads.begin()), node.type());
    };
    return a.rewrite(first_read).equals(b.rewrite(first_read));
  }

  void nonnegative(const Statement& statement, const ScalarExpr& expr) {
    const auto both = [&] {
      nonnegative(statement, expr.args()[0]);
      nonnegative(statement, expr.args()[1]);
    };
    switch (expr.op()) {
      case ScalarOp::read:
        return nonnegative(statement.reads[static_cast<std::size_t>(expr.ordinal())].tensor);
      case ScalarOp::cast:
        return nonnegative(statement, expr.args()[0]);
      case ScalarOp::mul:
      case ScalarOp::div:
        return are_equal(statement, expr.args()[0], expr.args()[1]) ? void() : both();
      case ScalarOp::add:
      case ScalarOp::min:
        return both();
      case ScalarOp::max:
        return std::any_of(expr.args().begin(), expr.args().end(), is_nonnegative_constant) ? void() : both();
      case ScalarOp::select:
        nonnegative(statement, expr.args()[1]);
        return nonnegative(statement, expr.args()[2]);
      case ScalarOp::sub:
        return is_positive_constant(expr.args()[0]) ? at_most(statement, expr.args()[1], expr.args()[0].number())
                                                    : nonnegative(statement, expr.args()[0]);
      default:
        return;
    }
  }

  void nonnegative(const std::string& tensor) {
    if (!seen_.insert(tensor).second) return;
    if (nest_.tensor(tensor).role == TensorRole::input) {
      if (is_float(nest_.tensor(tensor).type)) ranges_[tensor].nonnegative = true;
      return;
    }
    for (const Statement& writer : nest_.statements) {
      if (writer.write.tensor == tensor) nonnegative(writer, writer.value);
    }
  }

  /// The magnitude is at most `most`. Of sums nothing is known.
  void at_most(const Statement& statement, const ScalarExpr& expr, double most) {
    switch (expr.op()) {
      case ScalarOp::read: {
        const std::string& tensor = statement.reads[static_cast<std::size_t>(expr.ordinal())].tensor;
        return at_most(tensor, most);
      }
      case ScalarOp::cast:
      case ScalarOp::neg:
      case ScalarOp::abs:
        return at_most(statement, expr.args()[0], most);
      case ScalarOp::mul:
        if (are_equal(statement, expr.args()[0], expr.args()[1])) return at_most(statement, expr.args()[0], std::sqrt(most));
        for (const int k : {0, 1}) {
          const ScalarExpr &factor = expr.args()[static_cast<std::size_t>(k)],
                           &rest = expr.args()[static_cast<std::size_t>(1 - k)];
          if (is_positive_constant(factor)) at_most(statement, rest, most / factor.number());
        }
        return;
      default:
        return;
    }
  }

  void at_most(const std::string& tensor, double most) {
    if (nest_.tensor(tensor).role == TensorRole::input) {
      if (is_float(nest_.tensor(tensor).type)) ranges_[tensor].most = std::min(ranges_[tensor].most, most);
      return;
    }
    if (!limited_.insert(tensor).second) return;
    for (const Statement& writer : nest_.statements) {
      if (writer.write.tensor == tensor && !writer.reduction) at_most(writer, writer.value, most);
    }
  }

  const Nest& nest_;
  std::map<std::string, InputRange> ranges_;
  std::set<std::string> seen_, limited_;
};

}  // namespace

std::map<std::string, InputRange> input_ranges(const Nest& nest) { return Demands(nest).take(); }

}  // namespace nestor
