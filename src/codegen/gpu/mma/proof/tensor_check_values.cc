// Which value stands in each element when it is read, whatever the plan masks, keeps, fills and leaves out.
#include "codegen/gpu/mma/proof/point_sets.h"
#include "codegen/gpu/mma/proof/tensor_effects.h"
#include "codegen/proof/model/outcome.h"
#include "support/debug.h"

#include <algorithm>
#include <optional>

namespace nestor::nvptx {
namespace {

class ValueChecker {
 public:
  explicit ValueChecker(TensorProof& proof) : proof_(proof), reader_(proof) {}

  void run() {
    for (int k = 0; k < count(); ++k) check_dims(k);
    if (!proof_.violations.empty()) return;
    for (int k = 0; k < count(); ++k) points_.push_back(reader_.of(k));
    check_layouts();
    if (!proof_.violations.empty()) return;
    for (int k = 0; k < count(); ++k) collect_reads(k);
    for (int k = 0; k < count(); ++k) check_memory(k);
    EffectReader effects(proof_, points_, reader_);
    for (int k = 0; k < count(); ++k) {
      const isl::set none = none_of(at(k).points);
      effects_.push_back(in_fragment(k) ? effects.of(k, live(k)) : Effect{none, none});
    }
    for (int k = 0; k < count(); ++k) check_writes(k);
  }

 private:
  struct Read {
    int op;
    isl::set elements;
  };

  int count() const { return static_cast<int>(proof_.plan.ops.size()); }
  const TensorOp& op(int k) const { return proof_.op(k); }
  const OpPoints& at(int k) const { return points_[static_cast<std::size_t>(k)]; }
  int loop_of(int k) const { return proof_.places[static_cast<std::size_t>(k)].loop; }
  bool in_fragment(int k) const { return proof_.plan.fragments.contains(op(k).op.write.buffer); }
  const std::string& written(int k) const { return proof_.plan.buffer(op(k).op.write.buffer).name; }

  /// Dims without a role have one value.
  void check_dims(int k) {
    const TensorOp& own = op(k);
    std::set<int> roles{own.row, own.column, own.pack};
    const bool product = own.kind == TensorOp::Kind::product;
    const bool seldom = own.kind == TensorOp::Kind::seldom;
    if (product || seldom) roles.insert(own.form.k);
    if (seldom) check_seldom(own);
    if (product && (own.row != own.form.row || own.column != own.form.column || own.pack != own.form.pack))
      proof_.fail("rows and columns of {} are not those of its product", own.op.name);
    for (int d = 0; d < static_cast<int>(own.op.dims.size()); ++d) {
      const OpDim& dim = own.op.dims[static_cast<std::size_t>(d)];
      if (!roles.contains(d) && exact_extent(dim) != 1) proof_.fail("{} of {} is no row and no column", dim.var, own.op.name);
    }
    if (own.kind == TensorOp::Kind::store ? in_fragment(k) : !in_fragment(k))
      proof_.fail("{} does not write what its kind does", own.op.name);
  }

  /// A seldom sum is the op's value, and tells whether to add an element's terms from what all of these share. Only the condition is computed
  /// outside of the op's points, and reads what the plan knows of.
  void check_seldom(const TensorOp& own) {
    const auto fail = [&](const char* what) { proof_.fail("{} {}", own.op.name, what); };
    if (!own.seldom || own.form.k < 0 || own.row < 0 || own.column < 0 || own.form.k == own.row || own.form.k == own.column)
      return fail("is a seldom sum without rows, columns and terms");
    const ScalarExpr zero = ScalarExpr::constant(0);
    const SeldomSum& sum = *own.seldom;
    const ScalarExpr value =
        ScalarExpr::make(ScalarOp::select, {sum.condition, sum.adds ? sum.term : zero, sum.adds ? zero : sum.term});
    if (own.op.reduction != ReductionOp::add || own.op.initialize || !own.op.value.equals(value) || !own.read_rings.empty())
      return fail("is another sum than its plan says");
    const OpDim& k = own.op.dims[static_cast<std::size_t>(own.form.k)];
    const auto follows = [&](const IntExpr& expr) { return expr.defined() && expr.uses(k.var); };
    if (follows(own.op.guard)) fail("has a guard over its terms");
    for (const OpDim& dim : own.op.dims) {
      if (follows(dim.lower) || follows(dim.upper)) fail("has bounds over its terms");
    }
    sum.condition.visit([&](const ScalarExpr& node) {
      if (node.op() == ScalarOp::index) fail("chooses by an index");
      if (node.op() != ScalarOp::read) return;
      const std::vector<IntExpr>& index = own.op.reads[static_cast<std::size_t>(node.ordinal())].index;
      if (std::any_of(index.begin(), index.end(), follows)) fail("chooses by its terms");
    });
    sum.term.visit([&](const ScalarExpr& node) {
      if (node.op() == ScalarOp::read &&
          proof_.plan.fragments.contains(own.op.reads[static_cast<std::size_t>(node.ordinal())].buffer))
        fail("adds up elements of a tile");
    });
  }

  /// All accesses to a fragment have rows and columns at the same indices.
  void check_layouts() {
    std::map<int, std::string> layouts;
    const auto check = [&](int k, int buffer, const Followed& access) {
      if (!proof_.plan.fragments.contains(buffer)) return;
      if (layouts.try_emplace(buffer, access.by_index).first->second != access.by_index)
        proof_.fail("{} finds rows and columns of {} where others have none", op(k).op.name, proof_.plan.buffer(buffer).name);
      if (access.column != (proof_.plan.fragments.at(buffer).columns > 0))
        proof_.fail("{} and {} disagree about columns", op(k).op.name, proof_.plan.buffer(buffer).name);
    };
    for (int k = 0; k < count(); ++k) {
      check(k, op(k).op.write.buffer, at(k).write);
      for (std::size_t r = 0; r < op(k).op.reads.size(); ++r) check(k, op(k).op.reads[r].buffer, at(k).reads[r]);
      const bool columns = in_fragment(k) && proof_.plan.fragments.at(op(k).op.write.buffer).columns > 0;
      if (in_fragment(k) && op(k).kind == TensorOp::Kind::map && (op(k).column >= 0) != columns)
        proof_.fail("{} has columns, or {} has, but not both", op(k).op.name, written(k));
      if (op(k).kind == TensorOp::Kind::seldom && !columns) proof_.fail("{} sums up into a row", op(k).op.name);
      if (in_fragment(k) && op(k).kind == TensorOp::Kind::reduce && columns) proof_.fail("{} sums up into a tile", op(k).op.name);
      if (op(k).kind == TensorOp::Kind::product && op(k).n != proof_.plan.fragments.at(op(k).op.write.buffer).columns)
        proof_.fail("{} has {} columns, and {} another number", op(k).op.name, op(k).n, written(k));
    }
  }

  void collect_reads(int k) {
    const auto add = [&](int buffer, const Followed& access) {
      if (proof_.plan.fragments.contains(buffer)) reads_[buffer].push_back({k, PointReader::elements(at(k).points, access)});
    };
    for (std::size_t r = 0; r < op(k).op.reads.size(); ++r) add(op(k).op.reads[r].buffer, at(k).reads[r]);
    if (op(k).op.reduction && !op(k).op.initialize) add(op(k).op.write.buffer, at(k).write);
  }

  /// What anything reads of the op's fragment.
  isl::set live(int k) {
    const int buffer = op(k).op.write.buffer;
    const auto found = live_.find(buffer);
    if (found != live_.end()) return found->second;
    isl::set all = none_of(at(k).points);
    for (const Read& read : reads_[buffer]) {
      const isl::set elements = PointReader::at_any_iteration(read.elements);
      if (!elements.is_subset(all)) all = all.unite(elements);
    }
    return live_[buffer] = all;
  }

  // ---- memory
  void check_memory(int k) {
    const isl::set touched = at(k).computed.intersect(at(k).memory_mask);
    if (op(k).kind == TensorOp::Kind::store) return check_store(k, touched);
    check_test(k);
    for (std::size_t r = 0; r < op(k).op.reads.size(); ++r) {
      const TileAccess& read = op(k).op.reads[r];
      if (op(k).seldom && !op(k).seldom->condition.reads(static_cast<int>(r))) continue;  // at points alone
      const bool from_ring = op(k).kind == TensorOp::Kind::product || op(k).read_rings.contains(static_cast<int>(r));
      if (from_ring || proof_.plan.fragments.contains(read.buffer) || !follows_both(k, read)) continue;
      if (!at(k).points.is_subset(touched)) proof_.fail("{} leaves out elements of {}", op(k).op.name, name_of(read));
      if (!reader_.known(touched).is_subset(reader_.within(k, read)))
        proof_.fail("{} reads beyond {}", op(k).op.name, name_of(read));
    }
  }

  /// A column test that takes no nearest elements finds all that its lanes read where the op is not masked.
  void check_test(int k) {
    const auto& test = op(k).test;
    if (!test || test->clamped) return;
    const auto fragment = proof_.plan.fragments.find(op(k).op.write.buffer);
    if (fragment == proof_.plan.fragments.end() || fragment->second.columns % kWarpThreads != 0)
      return proof_.fail("{} tests columns that it does not have", op(k).op.name);
    test->condition.visit([&](const ScalarExpr& node) {
      if (node.op() != ScalarOp::read) return;
      const TileAccess& read = op(k).op.reads[static_cast<std::size_t>(node.ordinal())];
      if (!reader_.known(at(k).test_reads).is_subset(reader_.within(k, read)))
        proof_.fail("the test of {} reads beyond {}", op(k).op.name, name_of(read));
    });
  }

  const std::string& name_of(const TileAccess& access) const { return proof_.plan.buffer(access.buffer).name; }

  /// An element of its own for each row and column, behind a test; others are loaded at the nearest place that exists.
  bool follows_both(int k, const TileAccess& access) const {
    const auto uses = [&](int dim) {
      return dim >= 0 && std::any_of(access.index.begin(), access.index.end(), [&](const IntExpr& index) {
               return index.uses(op(k).op.dims[static_cast<std::size_t>(dim)].var);
             });
    };
    return uses(op(k).row) && uses(op(k).column);
  }

  /// Stored are the op's points and nothing else. Through shared memory go whole blocks of columns, as far as the argument reaches.
  void check_store(int k, const isl::set& touched) {
    const TensorOp& own = op(k);
    const isl::set& points = at(k).points;
    if (own.op.fill && !is_none(at(k).dims.subtract(points)))
      proof_.fail("{} does not fill what its guard leaves out", own.op.name);
    if (!touched.is_equal(points)) proof_.fail("{} stores other elements than its points", own.op.name);
    if (!own.through_shared) return;
    check_copies(k);
    const auto columns = end_bound(own.op.dims[static_cast<std::size_t>(own.column)]).value_or(0);
    const bool all_copy = proof_.plan.cores == TensorCores::mma;
    isl::set moved = free_along(at(k).computed, kTileColumn);
    moved = isl::manage(isl_set_lower_bound_si(moved.release(), isl_dim_set, kTileColumn, 0));
    moved = PointReader::columns_below(moved, all_copy ? round_up(columns, 8) : round_up(columns, own.stage_columns));
    moved = reader_.known(moved).intersect(reader_.within(k, own.op.write));
    if (!moved.is_equal(reader_.known(points))) proof_.fail("{} moves other elements than its points", own.op.name);
  }

  /// Each element of joined rows or columns lies as far from where its copy starts in memory as it does in shared memory.
  void check_copies(int k) {
    const TensorOp& own = op(k);
    if (own.joined_rows.period + own.joined_columns.period == 0) return;  // prove_rows
    const CopiedRows copy = copied_rows(proof_.plan, own);
    if (copy.rows < 1 || kWarpgroupRows % copy.rows != 0 || copy.per_outer < 1 || copy.rows % copy.per_outer != 0)
      return proof_.fail("{} leaves in copies of {} rows", own.op.name, copy.rows);
    const auto var = [&](int d) { return IntExpr::variable(own.op.dims[static_cast<std::size_t>(d)].var); };
    const IntExpr row = var(own.row), column = var(own.column);
    const IntExpr first_row = IntExpr(copy.rows) * floor_div(row, copy.rows),
                  first_column = IntExpr(own.stage_columns) * floor_div(column, own.stage_columns);
    const TileAccess& write = own.op.write;
    const auto dense = static_cast<int>(write.index.size()) - 1;
    const isl::set computed = reader_.known(at(k).computed);
    for (int p = 0; p <= dense; ++p) {
      const IntExpr& index = write.index[static_cast<std::size_t>(p)];
      IntExpr expected = index.substitute(row.name(), first_row).substitute(column.name(), first_column);
      if (p == copy.outer) expected = expected + floor_div(row - first_row, copy.per_outer);
      if (p == copy.inner) expected = expected + mod(row - first_row, copy.per_outer);
      if (p == dense) expected = expected + (column - first_column);
      if (copy.outer == dense || copy.inner == dense || copy.outer == copy.inner ||
          !computed.is_subset(reader_.equal(k, index, expected)))
        return proof_.fail("{} does not write its rows where tensor copies put them", own.op.name);
    }
  }

  // ---- fragments
  void check_writes(int k) {
    if (!in_fragment(k)) return;
    const isl::set& spoilt = effects_[static_cast<std::size_t>(k)].spoilt;
    if (is_none(spoilt)) return;
    for (const Read& read : reads_[op(k).op.write.buffer]) {
      const isl::set found = spoilt_read(k, spoilt, read);
      if (!is_none(found))
        proof_.fail("{} reads elements of {} that {} has not left as the tile program does: {}", op(read.op).op.name, written(k),
                    op(k).op.name, proof::sample_text(found, {"iteration", "place", "row", "column", "term"}));
    }
  }

  /// Without what ops between two ones define in the fragment, of those in a loop, or outside of all.
  isl::set without_writes(isl::set elements, int buffer, int loop, int from, int to) const {
    for (int w = to; w-- > from;) {
      if (op(w).op.write.buffer != buffer || loop_of(w) != loop) continue;
      const isl::set& defined = effects_[static_cast<std::size_t>(w)].defined;
      if (elements.is_subset(defined)) return none_of(elements);
      elements = elements.subtract(defined);
    }
    return elements;
  }

  /// Elements that the read finds as op `k` has spoilt them.
  isl::set spoilt_read(int k, const isl::set& spoilt, const Read& read) const {
    const int buffer = op(k).op.write.buffer, m = read.op;
    const int home = loop_of(k), loop = loop_of(m);
    if (loop >= 0 && loop == home) {
      isl::set found = none_of(spoilt);
      if (k < m) found = without_writes(read.elements, buffer, loop, k + 1, m).intersect(spoilt);
      // Spoilt at an iteration before, and neither written nor spoilt since.
      isl::set later = without_writes(read.elements, buffer, loop, 0, m);
      if (is_none(later)) return found;
      later = later.intersect(PointReader::at_any_iteration(spoilt));
      return found.unite(k < m ? later.subtract(spoilt) : later);
    }
    if (k > m) return none_of(spoilt);
    isl::set found = loop < 0 ? read.elements : without_writes(read.elements, buffer, loop, 0, m);
    if (home < 0 && loop < 0) return without_writes(found, buffer, -1, k + 1, m).intersect(spoilt);
    if (is_none(found)) return found;
    found = PointReader::at_any_iteration(found);
    for (int w = k + 1; w < m; ++w) {
      if (op(w).op.write.buffer == buffer && loop_of(w) < 0)
        found = found.subtract(PointReader::at_any_iteration(effects_[static_cast<std::size_t>(w)].defined));
    }
    return found.intersect(PointReader::at_any_iteration(spoilt));
  }

  TensorProof& proof_;
  PointReader reader_;
  std::vector<OpPoints> points_;
  std::vector<Effect> effects_;
  std::map<int, std::vector<Read>> reads_;  ///< by fragment
  std::map<int, isl::set> live_;
};

}  // namespace

void prove_values(TensorProof& proof) {
  const DebugTimer timer("values of a tensor plan");
  try {
    ValueChecker(proof).run();
  } catch (const proof::OpenObligation& open) {
    proof.fail("values of elements: {}", open.what());
  }
}

}  // namespace nestor::nvptx
