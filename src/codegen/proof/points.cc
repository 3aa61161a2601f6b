// Bounds of accesses, and what the points of one op may have in common.
#include "codegen/proof/model/outcome.h"
#include "codegen/proof/model/reached.h"
#include "codegen/proof/obligations.h"
#include "poly/isl/conjunction.h"

#include <fmt/format.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <functional>
#include <set>

namespace nestor::proof {
namespace {

/// Index expressions of an op's part: the write, and the reads where the part reads.
std::vector<const TileAccess*> accesses_of(const Run& run, const TileOp& op) {
  std::vector<const TileAccess*> accesses{&op.write};
  if (run.part != OpPart::points) return accesses;
  for (const TileAccess& read : op.reads) accesses.push_back(&read);
  return accesses;
}

/// Shows that an index lies inside its extent at all points, trying the conjunction around them first.
class Bounds {
 public:
  Bounds(const ProgramModel& model, const Run& run) : model_(model), run_(run) {}

  void prove() {
    std::set<std::string> shown;
    const isl::set around = conjunction_around(run_.executed);
    for (const OpMember& member : run_.members) {
      for (const TileAccess* access : accesses_of(run_, *member.op)) {
        model_.element_index(*access);  // as many indices as the buffer has
        for (std::size_t k = 0; k < access->index.size(); ++k) {
          const IntExpr& extent = model_.buffer(access->buffer).extents[k];
          const std::string& buffer = model_.buffer(access->buffer).name;
          if (!shown.insert(fmt::format("{}[{}: {}]", buffer, k, access->index[k].str())).second) continue;
          const auto [below, above] = outside(*member.space, access->index[k], extent);
          if (around.is_disjoint(below) && around.is_disjoint(above)) continue;
          prove_exactly(access->index[k], k, access->buffer);
        }
      }
    }
  }

 private:
  static std::pair<isl::set, isl::set> outside(const IntSpace& space, const IntExpr& index, const IntExpr& extent) {
    return {space.at_least(IntExpr(-1), index), space.at_least(index, extent)};
  }

  /// Member by member, for those that use this index at position `k` of the buffer.
  void prove_exactly(const IntExpr& index, std::size_t k, int buffer) {
    const Buffer& held = model_.buffer(buffer);
    for (const OpMember& member : run_.members) {
      const auto accesses = accesses_of(run_, *member.op);
      for (std::size_t a = 0; a < accesses.size(); ++a) {
        if (accesses[a]->buffer != buffer || accesses[a]->index[k].str() != index.str()) continue;
        const auto [below, above] = outside(*member.space, index, held.extents[k]);
        isl::set points = member.executed.intersect(below.unite(above));
        // Reads are behind the write; no code reads an element that its value does not come to.
        if (a > 0) points = reached_points(model_, member, static_cast<int>(a) - 1, points);
        expect_empty(points, member.space->variables(),
                     fmt::format("bounds: {} accesses {} at '{}', outside of [0, {})", title(run_), held.name, index.str(),
                                 held.extents[k].str()));
      }
    }
  }

  const ProgramModel& model_;
  const Run& run_;
};

/// Pairs of points of one op at equal loops around it.
class Conflicts {
 public:
  Conflicts(const ProgramModel& model, const Run& run, const OpMember& member)
      : model_(model), run_(run), member_(member), op_(*member.op) {}

  void prove() {
    prove_kind();
    if (op_.kind == OpKind::points) {
      prove_parallel_dims();
      return;
    }
    prove_unordered();
  }

 private:
  bool reduces() const { return op_.kind == OpKind::reduce || op_.kind == OpKind::contract; }

  void prove_kind() const {
    const auto refuse = [&](const std::string& why) {
      throw BrokenObligation(fmt::format("{} is no {}: {}", title(run_), to_string(op_.kind), why));
    };
    if (reduces() != op_.reduction.has_value() && op_.kind != OpKind::points) refuse("it reduces, or does not");
    if (!op_.reduction && std::any_of(op_.dims.begin(), op_.dims.end(), [](const OpDim& dim) { return dim.reduced; }))
      refuse("a dim is reduced and the op reduces nothing");
    if (op_.kind == OpKind::copy && !is_plain_read(op_.value)) refuse("its value is not what it reads");
    if ((op_.kind == OpKind::contract) != op_.contraction.has_value()) refuse("it names factors, or does not");
    if (op_.contraction) prove_contraction(refuse);
    if (op_.initialize && !reduces()) refuse("only reductions start from a neutral element");
    if (op_.initialize && (op_.guard.defined() && op_.fill)) refuse("a reduction fills nothing");
    if (op_.fill && op_.reduction) refuse("a reduction fills nothing");
    if (op_.seldom && !scales_itself()) refuse("it does not scale what it writes");
    for (const OpDim& dim : op_.dims) prove_extent(dim);
  }

  /// value = write * factor, or what it was
  bool scales_itself() const {
    const ScalarExpr& value = op_.value;
    const auto own = [&](const ScalarExpr& e) {
      return e.op() == ScalarOp::read && op_.reads[e.ordinal()].buffer == op_.write.buffer;
    };
    return value.op() == ScalarOp::mul && (own(value.args()[0]) || own(value.args()[1]));
  }

  static bool is_plain_read(const ScalarExpr& value) {
    return value.op() == ScalarOp::read || (value.op() == ScalarOp::cast && is_plain_read(value.args()[0]));
  }

  /// The reads and the scale that f32 factors multiply; false: there are others, or a cast rounds.
  static bool factors(const ScalarExpr& value, std::vector<int>& reads, double& scale) {
    if (value.type() != ElementType::f32) return false;
    if (value.op() == ScalarOp::mul) return factors(value.args()[0], reads, scale) && factors(value.args()[1], reads, scale);
    if (value.op() == ScalarOp::constant) scale *= value.number();
    if (value.op() == ScalarOp::neg) scale = -scale;
    const bool passes = value.op() == ScalarOp::neg || value.op() == ScalarOp::cast;
    const ScalarExpr& inner = passes ? value.args()[0] : value;
    const bool widened = inner.type() == ElementType::f16 || inner.type() == ElementType::bf16;
    if (passes && !(value.op() == ScalarOp::cast && widened)) return factors(inner, reads, scale);
    if (inner.op() == ScalarOp::read) reads.push_back(inner.ordinal());
    return inner.op() == ScalarOp::read || inner.op() == ScalarOp::constant;
  }

  void prove_contraction(const std::function<void(const std::string&)>& refuse) const {
    std::vector<int> reads;
    double scale = 1;
    if (op_.reduction != ReductionOp::add || !factors(op_.value, reads, scale) || reads.size() != 2 || reads[0] == reads[1])
      refuse("no sum of products of two reads");
    if (*op_.contraction != Contraction{reads[0], reads[1], scale}) refuse("its factors are others");
    const auto uses = [&](int read, const std::string& var) {
      const auto& index = op_.reads[read].index;
      return std::any_of(index.begin(), index.end(), [&](const IntExpr& e) { return e.uses(var); });
    };
    for (const OpDim& dim : op_.dims) {
      if (dim.reduced && !(uses(reads[0], dim.var) && uses(reads[1], dim.var))) refuse("a reduced dim is not both reads'");
    }
  }

  /// The constant bound of a dim's extent, which back ends give registers and shared memory by.
  void prove_extent(const OpDim& dim) const {
    if (!dim.max_extent) return;
    const isl::set longer =
        member_.space->at_least(dim.upper, dim.lower + IntExpr(*dim.max_extent + 1)).intersect(member_.executed);
    expect_empty(longer, member_.space->variables(),
                 fmt::format("{}: dim {} runs over more than {} values", title(run_), dim.var, *dim.max_extent));
  }

  std::size_t depth() const { return run_.depth(); }

  isl::map same_place(const TileAccess& a, const TileAccess& b, const isl::set& points) const {
    const isl::map from = model_.place(member_, a).intersect_domain(points),
                   to = model_.place(member_, b).intersect_domain(points);
    return with_equal_loops(from.apply_range(to.reverse()), depth());
  }

  isl::map order(const isl::map& pairs, std::size_t dim, bool forward) const {
    const int at = static_cast<int>(depth() + dim);
    return isl::manage(forward ? isl_map_order_lt(pairs.copy(), isl_dim_in, at, isl_dim_out, at)
                               : isl_map_order_gt(pairs.copy(), isl_dim_in, at, isl_dim_out, at));
  }

  void expect_none(const isl::map& pairs, const std::string& what) const {
    if (is_empty(pairs)) return;
    const std::vector<std::string>& names = member_.space->variables();
    throw BrokenObligation(fmt::format("{}, for example {}", what, sample_text(pairs, names, names)));
  }

  /// The kept dims that the written index gives by themselves: one in an index, with a coefficient.
  std::set<std::string> given_dims() const {
    std::set<std::string> given;
    for (const IntExpr& index : op_.write.index) {
      std::vector<std::string> movers;
      for (const OpDim& dim : op_.dims) {
        if (index.uses(dim.var)) movers.push_back(dim.var);
      }
      if (movers.size() == 1 && index.coefficient(movers[0]).value_or(0) != 0) given.insert(movers[0]);
    }
    return given;
  }

  bool writes_use(const std::string& var) const {
    return std::any_of(op_.write.index.begin(), op_.write.index.end(), [&](const IntExpr& e) { return e.uses(var); });
  }

  /// Any order: an element belongs to one point, or to the reduced dims of one accumulator.
  void prove_unordered() const {
    const std::set<std::string> given = given_dims();
    std::vector<std::size_t> open;
    for (std::size_t k = 0; k < op_.dims.size(); ++k) {
      const OpDim& dim = op_.dims[k];
      const bool fine = dim.reduced ? !writes_use(dim.var) : given.count(dim.var) != 0;
      if (!fine) open.push_back(k);
    }
    if (!open.empty()) prove_owners(open);
    for (const TileAccess& read : op_.reads) {
      if (read.buffer != op_.write.buffer) continue;
      const isl::map pairs = same_place(op_.write, read, member_.executed);
      for (std::size_t k = 0; k < op_.dims.size(); ++k) {
        for (const bool forward : {true, false})
          expect_none(order(pairs, k, forward), fmt::format("order: a point of {} reads what another one writes", title(run_)));
      }
      if (reduces() && !op_.dims.empty()) expect_none(pairs, fmt::format("order: {} reads its own accumulator", title(run_)));
    }
  }

  void prove_owners(const std::vector<std::size_t>& open) const {
    const isl::map pairs = same_place(op_.write, op_.write, member_.executed);
    for (const std::size_t k : open) {
      const OpDim& dim = op_.dims[k];
      if (dim.reduced) {
        expect_none(other_accumulator(),
                    fmt::format("{} reduces over dim {}, which moves its accumulator", title(run_), dim.var));
      } else {
        expect_none(order(pairs, k, true),
                    fmt::format("parallel: two points of {} along {} write one element", title(run_), dim.var));
      }
    }
  }

  /// Pairs of points with equal kept dims that write different elements.
  isl::map other_accumulator() const {
    isl_space* space = isl_space_map_from_set(isl_set_get_space(member_.executed.get()));
    isl::map pairs = with_equal_loops(isl::manage(isl_map_universe(space)), depth());
    for (std::size_t k = 0; k < op_.dims.size(); ++k) {
      const int at = static_cast<int>(depth() + k);
      if (!op_.dims[k].reduced) pairs = isl::manage(isl_map_equate(pairs.release(), isl_dim_in, at, isl_dim_out, at));
    }
    pairs = pairs.intersect_domain(member_.executed).intersect_range(member_.executed);
    return pairs.subtract(same_place(op_.write, op_.write, member_.executed));
  }

  /// In order, but that parallel dims run side by side at equal dims outside of them.
  void prove_parallel_dims() const {
    const bool any = std::any_of(op_.dims.begin(), op_.dims.end(), [](const OpDim& d) { return d.parallel && !d.reduced; });
    if (!any) return;
    std::vector<isl::map> conflicts;
    if (given_dims().size() < op_.dims.size()) conflicts.push_back(same_place(op_.write, op_.write, member_.executed));
    for (const TileAccess& read : op_.reads) {
      if (read.buffer == op_.write.buffer) conflicts.push_back(same_place(op_.write, read, member_.executed));
    }
    for (isl::map pairs : conflicts) {
      for (std::size_t k = 0; k < op_.dims.size(); ++k) {
        if (op_.dims[k].parallel && !op_.dims[k].reduced) {
          for (const bool forward : {true, false}) {
            expect_none(order(pairs, k, forward),
                        fmt::format("parallel: points of {} along {} touch one element at a time", title(run_), op_.dims[k].var));
          }
        }
        const int at = static_cast<int>(depth() + k);
        pairs = isl::manage(isl_map_equate(pairs.release(), isl_dim_in, at, isl_dim_out, at));
      }
    }
  }

  const ProgramModel& model_;
  const Run& run_;
  const OpMember& member_;
  const TileOp& op_;
};

}  // namespace

void prove_bounds(const Subject& subject) {
  for (const Run& run : subject.model.runs()) Bounds(subject.model, run).prove();
}

void prove_points(const Subject& subject) {
  for (const Run& run : subject.model.runs()) {
    if (run.part != OpPart::points) continue;
    for (const OpMember& member : run.members) Conflicts(subject.model, run, member).prove();
  }
}

}  // namespace nestor::proof
