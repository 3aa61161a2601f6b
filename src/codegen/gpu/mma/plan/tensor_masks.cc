// Where the ops of a tensor plan have points, and which value stands elsewhere: chosen so that sums and products need no test.
#include "codegen/gpu/mma/plan/op_places.h"
#include "codegen/gpu/mma/plan/plan_passes.h"
#include "codegen/tile/analysis/affine.h"
#include "codegen/tile/analysis/conditions.h"
#include "codegen/tile/analysis/mask_cnf.h"
#include "codegen/tile/analysis/tile_rewrite.h"
#include "poly/algebra/values/polynomial.h"
#include "support/error.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

namespace nestor::nvptx {
namespace {

using Known = std::optional<double>;

/// Clauses with alternatives, of a guard, that cut a loop cheaply.
constexpr int kFewJoined = 3;

/// var >= lower and var < upper as conditions, without those that hold for 0 <= var < extent.
std::vector<IntExpr> bounds_of(const OpDim& dim, const char* name, std::int64_t extent) {
  const IntExpr var = IntExpr::variable(name);
  std::vector<IntExpr> lowers, uppers, conditions;
  split_terms(dim.lower, IntOp::max, lowers);
  split_terms(dim.upper, IntOp::min, uppers);
  for (const IntExpr& lower : lowers) {
    const auto constant = lower.as_constant();
    if (!constant || *constant > 0) conditions.push_back(IntExpr::make(IntOp::ge, {var, lower}));
  }
  for (const IntExpr& upper : uppers) {
    const auto constant = upper.as_constant();
    if (!constant || *constant < extent) conditions.push_back(IntExpr::make(IntOp::ge, {upper - IntExpr(1), var}));
  }
  return conditions;
}

/// Rows and columns of an op's tile, and places in a pack of rows, as conditions see them; and where loops around it start, if that is a
/// number.
struct Box {
  std::int64_t rows = 1, columns = 1, pack = 1;
  std::map<std::string, std::int64_t> starts{};
};

void collect_starts(const TileTree& tree, std::map<std::string, std::int64_t>& starts) {
  if (tree->kind == TileNode::Kind::loop) {
    if (const auto start = tree->lower.as_constant()) starts[tree->var] = *start;
  }
  for (const TileTree& child : tree->children) collect_starts(child, starts);
}

Box box_of(const TensorPlan& plan, const TensorOp& op) {
  const bool product = op.kind == TensorOp::Kind::product;
  const int column = product ? op.form.k : op.column;
  Box box{plan.work_tile_packs(), 1, plan.pack};
  if (column >= 0) box.columns = round_up(end_bound(op.op.dims[static_cast<std::size_t>(column)]).value_or(0), product ? 16 : 8);
  collect_starts(plan.kernel->body, box.starts);
  return box;
}

/// Is distance `b` never below `a` in the box, where both are linear?
bool reaches(const Affine& a, const Affine& b, const Box& box) {
  Affine gap = b - a;
  for (const auto& [name, extent] : {std::pair(kRow, box.rows), std::pair(kColumn, box.columns), std::pair(kPack, box.pack)}) {
    const auto term = gap.terms.find(name);
    if (term == gap.terms.end()) continue;
    if (term->second < 0) gap.constant += term->second * (extent - 1);
    gap.terms.erase(term);
  }
  for (const auto& [name, start] : box.starts) {
    const auto term = gap.terms.find(name);
    if (term == gap.terms.end() || term->second < 0) continue;
    gap.constant += term->second * start;
    gap.terms.erase(term);
  }
  return gap.is_constant() && gap.constant >= 0;
}

/// Does the clause `a` tell that `b` holds, at every point of the box? Whichever of its alternatives holds must.
bool implies(const IntExpr& a, const IntExpr& b, const Box& box) {
  if (a.str() == b.str()) return true;
  const std::vector<IntExpr> given = alternatives_of(a), wanted = alternatives_of(b);
  return !given.empty() && std::all_of(given.begin(), given.end(), [&](const IntExpr& has) {
    return std::any_of(wanted.begin(), wanted.end(),
                       [&](const IntExpr& one) { return reaches(affine_of(has), affine_of(one), box); });
  });
}

/// The clause without alternatives that tell that another one holds; undefined where one always does in the box. Such a clause must not
/// stay: it would seem to say something of columns beyond the box, which a product's last step reads.
IntExpr simplified(const IntExpr& clause, const Box& box) {
  std::vector<IntExpr> alternatives = alternatives_of(clause);
  const std::size_t before = alternatives.size();
  for (const IntExpr& alternative : alternatives) {
    if (reaches({}, affine_of(alternative), box)) return {};
  }
  for (std::size_t k = alternatives.size(); k-- > 0;) {
    const bool follows = std::any_of(alternatives.begin(), alternatives.end(), [&](const IntExpr& other) {
      return &other != &alternatives[k] && reaches(affine_of(alternatives[k]), affine_of(other), box);
    });
    if (follows) alternatives.erase(alternatives.begin() + static_cast<std::ptrdiff_t>(k));
  }
  return alternatives.size() == before ? clause : make_clause(alternatives);
}

/// Without those that follow from others.
std::vector<IntExpr> independent(std::vector<IntExpr> conditions, const Box& box) {
  for (std::size_t k = conditions.size(); k-- > 0;) {
    const bool follows = std::any_of(conditions.begin(), conditions.end(), [&](const IntExpr& other) {
      return &other != &conditions[k] && implies(other, conditions[k], box);
    });
    if (follows) conditions.erase(conditions.begin() + static_cast<std::ptrdiff_t>(k));
  }
  return conditions;
}

/// The pieces without distances that are never negative in the box.
std::vector<std::vector<IntExpr>> simplified(std::vector<std::vector<IntExpr>> pieces, const Box& box) {
  for (std::vector<IntExpr>& piece : pieces)
    std::erase_if(piece, [&](const IntExpr& distance) { return reaches({}, affine_of(distance), box); });
  return pieces;
}

/// Where the op has points, as clauses. Sets its pieces.
std::vector<IntExpr> all_conditions(const TensorPlan& plan, TensorOp& op) {
  std::vector<IntExpr> conditions = conjuncts(op.op.guard);
  const std::size_t of_guard = conditions.size();
  const int column = op.kind == TensorOp::Kind::product ? op.form.k : op.column;
  const Box box = box_of(plan, op);
  for (const auto& [d, name, extent] :
       {std::tuple(op.row, kRow, box.rows), std::tuple(column, kColumn, box.columns), std::tuple(op.pack, kPack, box.pack)}) {
    if (d < 0) continue;
    const OpDim& dim = op.op.dims[static_cast<std::size_t>(d)];
    for (IntExpr& condition : conditions) condition = condition.substitute(dim.var, IntExpr::variable(name));
    for (IntExpr& bound : bounds_of(dim, name, extent)) conditions.push_back(std::move(bound));
  }
  std::vector<IntExpr> all, beside;
  for (std::size_t k = 0; k < conditions.size(); ++k) {
    const std::vector<IntExpr> clauses = clauses_of(conditions[k]);
    const bool by_pieces = k < of_guard && op.pieces.empty() && joined_clauses(clauses) > kFewJoined;
    if (by_pieces) op.pieces = simplified(pieces_of(conditions[k]), box);
    for (const IntExpr& clause : clauses) {
      const IntExpr simple = simplified(clause, box);
      if (simple.defined()) all.push_back(simple);
      if (simple.defined() && !by_pieces) beside.push_back(simple);
    }
  }
  if (!op.pieces.empty()) op.beside_pieces = independent(std::move(beside), box);
  return independent(std::move(all), box);
}

bool contains(const std::vector<IntExpr>& clauses, const IntExpr& clause) {
  return std::any_of(clauses.begin(), clauses.end(), [&](const IntExpr& other) { return other.str() == clause.str(); });
}

void collect_loops(const TileTree& tree, std::set<std::string>& vars) {
  if (tree->kind == TileNode::Kind::loop) vars.insert(tree->var);
  for (const TileTree& child : tree->children) collect_loops(child, vars);
}

/// Do all of `wanted` follow from single ones of `all`?
bool contains_all(const std::vector<IntExpr>& all, const std::vector<IntExpr>& wanted, const Box& box) {
  return std::all_of(wanted.begin(), wanted.end(), [&](const IntExpr& condition) {
    return std::any_of(all.begin(), all.end(), [&](const IntExpr& have) { return implies(have, condition, box); });
  });
}

/// Chooses values outside of masks.
class Outside {
 public:
  explicit Outside(TensorPlan& plan) : plan_(plan), places_(places_of_ops(plan.kernel->body)) {}

  void run() {
    for (std::size_t k = 0; k < plan_.ops.size(); ++k) plan_.ops[k].keeps = keeps_points(k);
    for (std::size_t k = 0; k < plan_.ops.size(); ++k) choose(k);
    for (TensorOp& op : plan_.ops) settle(op);
  }

 private:
  bool is_tile(int buffer) const {
    const auto found = plan_.fragments.find(buffer);
    return found != plan_.fragments.end() && found->second.columns > 0;
  }

  /// The op that gave the tile its current value before op `k`, in the order of the program.
  const TensorOp* writer(int buffer, std::size_t k) const {
    for (std::size_t j = k; j-- > 0;) {
      if (plan_.ops[j].op.write.buffer == buffer) return &plan_.ops[j];
    }
    return nullptr;
  }

  /// Does map `k` leave out points that ops before it have written, in the loops around it?
  bool keeps_points(std::size_t k) const {
    const TensorOp& op = plan_.ops[k];
    const auto reads = [&](const TileAccess& read) { return read.buffer == op.op.write.buffer; };
    if (op.kind != TensorOp::Kind::map || op.mask.empty() || op.op.fill || !plan_.fragments.contains(op.op.write.buffer))
      return false;
    // In place: factors of other points are 1, so that they stay anyway, but what is added to them has no value there.
    if (std::any_of(op.op.reads.begin(), op.op.reads.end(), reads))
      return op.op.value.op() == ScalarOp::add && is_tile(op.op.write.buffer);
    for (std::size_t j = 0; j < k; ++j) {
      const TensorOp& before = plan_.ops[j];
      if (before.op.write.buffer == op.op.write.buffer && is_around(places_.at(j), places_.at(k)) &&
          !contains_all(before.mask, op.mask, box_of(plan_, op)))
        return true;
    }
    return false;
  }

  /// What op `k` reads where `mask` fails.
  Known outside_read(std::size_t k, int read, const std::vector<IntExpr>& mask) const {
    const int buffer = plan_.ops[k].op.reads[static_cast<std::size_t>(read)].buffer;
    if (!is_tile(buffer)) return std::nullopt;
    const TensorOp* from = writer(buffer, k);
    if (from == nullptr || !contains_all(from->mask, mask, box_of(plan_, *from))) return std::nullopt;
    return from->outside;
  }

  /// The same, with NaN for what may be one there although no point sees it: elements that the mask hides, which are computed with all the
  /// same. A row's values are those of its points.
  Known hidden_read(std::size_t k, int read, const std::vector<IntExpr>& mask) const {
    const auto fragment = plan_.fragments.find(plan_.ops[k].op.reads[static_cast<std::size_t>(read)].buffer);
    const Known known = outside_read(k, read, mask);
    const bool of_row = fragment != plan_.fragments.end() && fragment->second.columns == 0;
    return known || (of_row && reads_finite(fragment->first)) ? known : std::numeric_limits<double>::quiet_NaN();
  }

  /// Is a row's value read as a finite one before any point has come to it? What a reduction leaves there is read as 0, but not a copy of it.
  bool reads_finite(int buffer) const {
    if (value_without_points(plan_, buffer)) return true;
    const Known value = empty_row(buffer, static_cast<int>(plan_.ops.size()));
    return !value || std::isfinite(*value);
  }

  /// What a row's value is then, if that is known; `before`: by ops up to this one.
  Known empty_row(int buffer, int before) const {
    if (const Known start = value_without_points(plan_, buffer)) return start;
    for (int k = before; k-- > 0;) {
      const TileOp& op = plan_.ops[static_cast<std::size_t>(k)].op;
      if (op.write.buffer == buffer && !op.reduction)
        return known_value(op.value, plan_.program->scalars,
                           [&](int read) { return empty_row(op.reads[static_cast<std::size_t>(read)].buffer, k); });
    }
    return std::nullopt;
  }

  /// Does op `k` need no test of its own where its tile `buffer` holds `value` outside the mask of its writer?
  bool satisfied(std::size_t k, int buffer, double value) const {
    const TensorOp& op = plan_.ops[k];
    if (op.kind == TensorOp::Kind::product) return value == 0;
    if (op.kind != TensorOp::Kind::reduce) return true;
    const Known term = known_value(op.op.value, plan_.program->scalars, [&](int read) -> Known {
      return op.op.reads[static_cast<std::size_t>(read)].buffer == buffer ? Known(value) : std::nullopt;
    });
    return term && *term == neutral_element(*op.op.reduction, op.op.value.type());
  }

  /// What follows from the operands follows only where the values of rows that they are combined with are finite.
  static void select_unless(TensorOp& op, bool follows) {
    op.select = !follows;
    op.finite_rows = follows;
  }

  void choose(std::size_t k) {
    TensorOp& op = plan_.ops[k];
    if (op.kind != TensorOp::Kind::map || op.mask.empty() || op.keeps || !is_tile(op.op.write.buffer)) return;
    const Known natural =
        known_value(op.op.value, plan_.program->scalars, [&](int read) { return hidden_read(k, read, op.mask); });
    if (op.op.fill) {
      op.outside = op.op.fill;
      select_unless(op, natural && *natural == *op.op.fill);
      return;
    }
    const int buffer = op.op.write.buffer;
    constexpr double infinity = std::numeric_limits<double>::infinity();
    for (const double value : {0.0, -infinity, infinity}) {
      bool wanted = false, good = true;
      for (std::size_t j = k + 1; j < plan_.ops.size() && plan_.ops[j].op.write.buffer != buffer; ++j) {
        const auto& reads = plan_.ops[j].op.reads;
        if (std::none_of(reads.begin(), reads.end(), [&](const TileAccess& r) { return r.buffer == buffer; })) continue;
        // A seldom sum asks where its own points are.
        wanted = wanted || (plan_.ops[j].kind != TensorOp::Kind::map && plan_.ops[j].kind != TensorOp::Kind::seldom);
        good = good && satisfied(j, buffer, value);
      }
      if (!wanted || !good) continue;
      op.outside = value;
      select_unless(op, natural && *natural == value);
      return;
    }
  }

  /// Tests that remain with the op itself.
  void settle(TensorOp& op) {
    const auto k = static_cast<std::size_t>(&op - plan_.ops.data());
    if (op.mask.empty()) return;
    if (op.kind == TensorOp::Kind::reduce) {
      const Known term =
          known_value(op.op.value, plan_.program->scalars, [&](int read) { return hidden_read(k, read, op.mask); });
      select_unless(op, term && *term == neutral_element(*op.op.reduction, op.op.value.type()));
    }
    if (op.kind == TensorOp::Kind::product && op.a_ring < 0) {
      const Known a = outside_read(k, op.form.a, op.mask);
      op.mask_a = !(a && *a == 0);
    }
  }

  TensorPlan& plan_;
  const std::vector<OpPlace> places_;
};

}  // namespace

Known value_without_points(const TensorPlan& plan, int buffer) {
  for (const TensorOp& op : plan.ops) {
    if (op.op.write.buffer == buffer && op.kind == TensorOp::Kind::reduce)
      return neutral_element(*op.op.reduction, op.op.value.type());
  }
  return std::nullopt;
}

Known known_value(const ScalarExpr& expr, const std::vector<ScalarParam>& scalars, const std::function<Known(int)>& read) {
  const auto arg = [&](std::size_t k) { return known_value(expr.args()[k], scalars, read); };
  switch (expr.op()) {
    case ScalarOp::constant:
      return expr.number();
    case ScalarOp::read:
      return read(expr.ordinal());
    case ScalarOp::cast:
      return is_float(expr.type()) ? arg(0) : std::nullopt;
    case ScalarOp::exp:
    case ScalarOp::exp2: {
      const Known x = arg(0);
      if (!x) return std::nullopt;
      return expr.op() == ScalarOp::exp ? std::exp(*x) : std::exp2(*x);
    }
    case ScalarOp::neg: {
      const Known x = arg(0);
      return x ? Known(-*x) : std::nullopt;
    }
    case ScalarOp::add:
    case ScalarOp::sub: {
      const Known x = arg(0), y = arg(1);
      const double sign = expr.op() == ScalarOp::add ? 1 : -1;
      if (x && y) return *x + sign * *y;
      if (x && std::isinf(*x)) return x;  // what is not known is finite
      if (y && std::isinf(*y)) return sign * *y;
      return std::nullopt;
    }
    case ScalarOp::mul: {
      const Known x = arg(0), y = arg(1);
      if ((x && *x == 0 && !(y && !std::isfinite(*y))) || (y && *y == 0 && !(x && !std::isfinite(*x)))) return 0.0;
      for (const std::size_t k : {std::size_t{0}, std::size_t{1}}) {
        const Known& infinite = k == 0 ? x : y;
        if (infinite && std::isinf(*infinite) && is_positive(scalars, expr.args()[1 - k])) return infinite;
      }
      return x && y ? Known(*x * *y) : std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

namespace {

/// A product has a test of its rows and of its terms, and none of its columns.
void require_all_columns(const TensorPlan& plan, const TensorOp& op) {
  if (op.kind != TensorOp::Kind::product) return;
  const std::string& column = op.op.dims[static_cast<std::size_t>(op.form.column)].var;
  for (const IntExpr& condition : op.memory_mask) {
    if (condition.uses(column))
      user_error("Kernel '{}' cannot use tensor cores: {} leaves out columns of its result, those where {} >= 0 fails.",
                 plan.program->name, op.op.name, condition.str());
  }
}

}  // namespace

void plan_masks(TensorPlan& plan) {
  std::set<std::string> loops;
  collect_loops(plan.kernel->body, loops);
  for (TensorOp& op : plan.ops) {
    op.memory_mask = all_conditions(plan, op);
    require_all_columns(plan, op);
    for (const IntExpr& condition : op.memory_mask) {
      const bool changes = std::any_of(loops.begin(), loops.end(), [&](const std::string& loop) { return condition.uses(loop); });
      if (condition.uses(kColumn) || changes) op.mask.push_back(condition);
    }
    std::erase_if(op.beside_pieces, [&](const IntExpr& clause) { return !contains(op.mask, clause); });
  }
  Outside(plan).run();
}

}  // namespace nestor::nvptx
