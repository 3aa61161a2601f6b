// A schedule as readable code.
#include <isl/aff.h>
#include <isl/constraint.h>
#include <isl/map.h>
#include <isl/set.h>
#include <isl/val.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "poly/schedule/order/isl_maps.h"
#include "poly/schedule/order/loop_tree.h"
#include "poly/schedule/schedule.h"
#include "support/error.h"

namespace nestor {
namespace {

constexpr std::uint64_t kPrintBudget = 2'000'000;

/// "64*io + ii - 3".
class SumText {
 public:
  void add(std::int64_t coefficient, const std::string& name) {
    if (coefficient == 0) return;
    const std::int64_t size = coefficient < 0 ? -coefficient : coefficient;
    if (name.empty()) {
      append(coefficient < 0, fmt::format("{}", size));
    } else {
      append(coefficient < 0, size == 1 ? name : fmt::format("{}*{}", size, name));
    }
  }
  std::string str() const { return text_.empty() ? "0" : text_; }

 private:
  void append(bool negative, const std::string& term) {
    if (text_.empty()) {
      text_ = (negative ? "-" : "") + term;
    } else {
      text_ += (negative ? " - " : " + ") + term;
    }
  }
  std::string text_;
};

std::string text_of(const LinearForm& form, const std::vector<std::string>& order) {
  SumText text;
  for (const std::string& loop : order) text.add(form.coefficient(loop), loop);
  text.add(form.constant, "");
  return text.str();
}

std::int64_t number(isl_val* value) {
  const std::int64_t result = isl_val_get_num_si(value);
  isl_val_free(value);
  return result;
}

/// One bound of the last dimension of a constraint: value >= text or value < text; nothing if it does not bound it.
struct Bound {
  bool lower;
  std::string text;
};

std::optional<Bound> bound_from(isl_constraint* constraint, const std::vector<std::string>& loops, int last) {
  if (isl_constraint_involves_dims(constraint, isl_dim_div, 0,
                                   static_cast<unsigned>(isl_constraint_dim(constraint, isl_dim_div))) == isl_bool_true) {
    return std::nullopt;
  }
  const std::int64_t own = number(isl_constraint_get_coefficient_val(constraint, isl_dim_set, last));
  if (own == 0) return std::nullopt;
  const std::int64_t sign = own > 0 ? -1 : 1;
  SumText sum;
  const int params = static_cast<int>(isl_constraint_dim(constraint, isl_dim_param));
  for (int k = 0; k < params; ++k) {
    sum.add(sign * number(isl_constraint_get_coefficient_val(constraint, isl_dim_param, k)),
            isl_constraint_get_dim_name(constraint, isl_dim_param, static_cast<unsigned>(k)));
  }
  for (int k = 0; k < last; ++k) {
    sum.add(sign * number(isl_constraint_get_coefficient_val(constraint, isl_dim_set, k)), loops[k]);
  }
  const std::int64_t scale = own > 0 ? own : -own;
  // value <= x / scale is value < (x + scale) / scale, rounded down.
  std::int64_t constant = sign * number(isl_constraint_get_constant_val(constraint));
  if (own < 0) constant += scale;
  sum.add(constant, "");
  if (scale == 1) return Bound{own > 0, sum.str()};
  return Bound{own > 0, fmt::format("{}(({})/{})", own > 0 ? "ceil" : "floor", sum.str(), scale)};
}

std::string combined(const std::vector<std::string>& bounds, const char* function) {
  if (bounds.size() == 1) return bounds.front();
  std::string text = std::string(function) + "(";
  for (std::size_t k = 0; k < bounds.size(); ++k) text += (k > 0 ? ", " : "") + bounds[k];
  return text + ")";
}

/// "[lower, upper)" from the constraints of the last dimension of a convex set.
std::string range_text(const isl::basic_set& box, const std::vector<std::string>& loops) {
  std::vector<std::string> lower, upper;
  const int last = static_cast<int>(loops.size()) - 1;
  isl_constraint_list* list = isl_basic_set_get_constraint_list(box.get());
  const int count = static_cast<int>(isl_constraint_list_n_constraint(list));
  for (int k = 0; k < count; ++k) {
    isl_constraint* constraint = isl_constraint_list_get_constraint(list, k);
    const bool equality = isl_constraint_is_equality(constraint) == isl_bool_true;
    if (const auto bound = bound_from(constraint, loops, last)) {
      if (equality && bound->lower) lower.push_back(bound->text), upper.push_back(bound->text + " + 1");
      if (equality && !bound->lower) upper.push_back(bound->text), lower.push_back(bound->text + " - 1");
      if (!equality) (bound->lower ? lower : upper).push_back(bound->text);
    }
    isl_constraint_free(constraint);
  }
  isl_constraint_list_free(list);
  if (lower.empty() || upper.empty()) return "";
  std::sort(lower.begin(), lower.end());
  std::sort(upper.begin(), upper.end());
  return fmt::format(" in [{}, {})", combined(lower, "max"), combined(upper, "min"));
}

/// The set without what its outer dimensions imply already.
isl::basic_set given_outer(const isl::basic_set& box) {
  const unsigned last = static_cast<unsigned>(isl_basic_set_dim(box.get(), isl_dim_set)) - 1;
  isl_basic_set* outer = isl_basic_set_project_out(box.copy(), isl_dim_set, last, 1);
  outer = isl_basic_set_remove_redundancies(isl_basic_set_add_dims(isl_basic_set_remove_divs(outer), isl_dim_set, 1));
  isl_basic_set* both = isl_basic_set_intersect(box.copy(), isl_basic_set_copy(outer));
  return isl::manage(isl_basic_set_gist(isl_basic_set_remove_redundancies(both), outer));
}

class Printer {
 public:
  explicit Printer(const Schedule& schedule) : schedule_(schedule), index_(schedule.tree()) {
    for (const Statement& statement : schedule.nest().statements) {
      sets_.emplace(statement.name, schedule.loop_relation(statement.name).intersect_params(schedule.nest().context).range());
    }
  }

  std::string text() {
    print(*schedule_.tree(), 0);
    return text_;
  }

 private:
  void print(const TreeNode& node, int depth) {
    const std::string indent(static_cast<std::size_t>(2 * depth), ' ');
    if (node.kind == TreeNode::Kind::leaf) text_ += indent + leaf(node) + "\n";
    if (node.kind == TreeNode::Kind::loop) text_ += indent + header(node) + "\n";
    for (const Tree& child : node.children) print(*child, depth + (node.kind == TreeNode::Kind::loop ? 1 : 0));
  }

  std::string leaf(const TreeNode& node) const {
    const LoopForm& form = schedule_.form(node.name);
    const std::vector<std::string> loops = index_.loop_names(node.name);
    std::string text = node.name + "[";
    for (std::size_t k = 0; k < form.dims.size(); ++k) text += (k > 0 ? ", " : "") + text_of(form.dims[k], loops);
    return text + "]";
  }

  std::string header(const TreeNode& node) const {
    std::string text = node.loop_kind == LoopKind::serial ? "" : std::string(to_string(node.loop_kind));
    if (node.factor != 0) text += fmt::format("({})", node.factor);
    text += text.empty() ? "for " : " for ";
    text += node.name + range(node) + ":";
    if (!node.knobs.empty()) text += "  # " + describe(node.knobs);
    if (node.specialized) text += "  # full tiles apart";
    for (const StageDirective& stage : schedule_.stages()) {
      if (stage.loop == node.name) text += fmt::format("  # {} staged{}", stage.tensor, stages(stage));
    }
    return text;
  }

  static std::string stages(const StageDirective& stage) {
    return stage.stages > 1 ? fmt::format(", {} stages", stage.stages) : "";
  }

  /// The convex hull of what the loop runs over, given the loops outside it; empty where that takes too long.
  std::string range(const TreeNode& node) const {
    const std::vector<std::string> statements = statements_under(node);
    std::vector<std::string> loops = index_.loop_names(statements.front());
    loops.resize(static_cast<std::size_t>(std::find(loops.begin(), loops.end(), node.name) - loops.begin()) + 1);
    try {
      const IslBudget budget(kPrintBudget);
      isl_set* all = nullptr;
      for (const std::string& name : statements) {
        isl_set* own = sets_.at(name).copy();
        const unsigned dims = static_cast<unsigned>(isl_set_dim(own, isl_dim_set));
        own = isl_set_project_out(own, isl_dim_set, static_cast<unsigned>(loops.size()),
                                  dims - static_cast<unsigned>(loops.size()));
        all = all == nullptr ? own : isl_set_union(all, own);
      }
      all = isl_set_gist_params(isl_set_coalesce(isl_set_remove_divs(all)), schedule_.nest().context.copy());
      return range_text(given_outer(isl::manage(isl_set_simple_hull(all))), loops);
    } catch (const isl::exception&) {
      isl_ctx_reset_error(isl_context().get());
      return "";
    }
  }

  const Schedule& schedule_;
  TreeIndex index_;
  std::map<std::string, isl::set> sets_;
  std::string text_;
};

}  // namespace

std::string Schedule::str() const {
  return isl_guarded("printing the schedule", [&] { return Printer(*this).text(); });
}

}  // namespace nestor
