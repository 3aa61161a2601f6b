// Proofs by isl that a guard may be dropped.
#include "codegen/tile/build/guards.h"

#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <optional>

namespace nestor {
namespace {

bool reads_stay_inside(const StatementPlan& statement, const Storage& storage, const isl::map& inner) {
  return std::all_of(statement.statement->reads.begin(), statement.statement->reads.end(), [&](const Access& read) {
    return touched_by(statement, read, inner)
        .is_subset(room(statement, storage.read_placement(statement.statement->name, read.tensor)));
  });
}

/// Extra points write elements of a temporary that no instance of any statement writes.
bool writes_nobodys_elements(const ProgramPlan& plan, const Storage& storage, const StatementPlan& statement,
                             const isl::map& extra) {
  const Access& write = statement.statement->write;
  if (storage.buffers[storage.tensors.at(write.tensor).buffer].memory == Memory::argument) return false;
  const isl::map elements = touched_by(statement, write, extra);
  return elements.is_subset(room(statement, storage.tensors.at(write.tensor))) && are_nobodys(plan, write.tensor, elements);
}

isl::map extra_points(const OpBox& box) { return box.hull.subtract(box.points); }

/// The read that makes a term vanish when it holds the reduction's neutral value: a factor of a sum's term, the very
/// term of a minimum or maximum.
void vanishing_reads(const ScalarExpr& value, bool product, std::vector<int>& reads) {
  if (value.op() == ScalarOp::read) reads.push_back(value.ordinal());
  if (value.op() == ScalarOp::cast) vanishing_reads(value.args()[0], product, reads);
  if (product && value.op() == ScalarOp::mul) {
    for (const ScalarExpr& arg : value.args()) vanishing_reads(arg, product, reads);
  }
}

class GuardPlanner {
 public:
  GuardPlanner(const ProgramPlan& plan, const Storage& storage, const std::map<std::string, OpBox>& boxes)
      : plan_(plan), storage_(storage), boxes_(boxes) {}

  std::map<std::string, GuardPlan> run() {
    for (const auto& [name, box] : boxes_) out_[name] = GuardPlan{};
    for (const auto& [name, box] : boxes_) {
      if (!box.exact && plan_.plan(name).statement->reduction) plan_reduction(plan_.plan(name), box);
    }
    for (const auto& [name, box] : boxes_) {
      if (!box.exact && out_[name].guarded && !out_[name].fill) plan_plain(plan_.plan(name), box);
    }
    return out_;
  }

 private:
  /// Drops the test of an op whose extra points harm nobody; for a reduction, whole accumulations must be extra.
  void plan_plain(const StatementPlan& statement, const OpBox& box) {
    if (!reads_stay_inside(statement, storage_, box.hull)) return;
    if (writes_nobodys_elements(plan_, storage_, statement, extra_points(box))) out_[statement.statement->name].guarded = false;
  }

  void plan_reduction(const StatementPlan& statement, const OpBox& box) {
    const Statement& s = *statement.statement;
    std::vector<int> candidates;
    if (s.reduction != ReductionOp::mul) vanishing_reads(s.value, s.reduction == ReductionOp::add, candidates);
    for (const int k : candidates) {
      if (try_fill(statement, box, s.reads[k], neutral_element(*s.reduction, s.value.type()))) {
        out_[s.name].guarded = false;
        return;
      }
    }
  }

  const StatementPlan* only_writer(const std::string& tensor) const {
    const StatementPlan* writer = nullptr;
    for (const StatementPlan& other : plan_.statements) {
      if (other.statement->write.tensor != tensor) continue;
      if (writer != nullptr) return nullptr;
      writer = &other;
    }
    return writer;
  }

  /// At equal outer loops.
  bool runs_before(const StatementPlan& first, const StatementPlan& second) const {
    return plan_.index.at(first.statement->name) < plan_.index.at(second.statement->name);
  }

  /// The other factors of extra terms are numbers: what the caller gave, or elements that the tile reads for real points too. What
  /// nobody wrote may be NaN, and so its product with 0. So may be what the sums themselves have written so far.
  bool others_have_values(const StatementPlan& statement, const OpBox& box, const Access& filled) const {
    const isl::map extra = extra_points(box);
    return std::all_of(statement.statement->reads.begin(), statement.statement->reads.end(), [&](const Access& read) {
      if (read.tensor == statement.statement->write.tensor) return false;
      if (&read == &filled || plan_.schedule->nest().tensor(read.tensor).role == TensorRole::input) return true;
      return touched_by(statement, read, extra).is_subset(touched_by(statement, read, box.points));
    });
  }

  bool try_fill(const StatementPlan& statement, const OpBox& box, const Access& read, double neutral) {
    const StatementPlan* writer = only_writer(read.tensor);
    if (writer == nullptr || writer->statement->reduction || writer->outer_names() != statement.outer_names()) return false;
    if (!runs_before(*writer, statement)) return false;
    const auto writer_box = boxes_.find(writer->statement->name);
    if (writer_box == boxes_.end() || writer_box->second.exact) return false;
    GuardPlan& treatment = out_[writer->statement->name];
    if (treatment.fill && *treatment.fill != neutral) return false;
    const OpBox& produced = writer_box->second;
    const isl::map filled = touched_by(*writer, writer->statement->write, produced.hull)
                                .subtract(touched_by(*writer, writer->statement->write, produced.points));
    if (!writes_nobodys_elements(plan_, storage_, *writer, extra_points(produced))) return false;
    if (!touched_by(statement, read, extra_points(box)).is_subset(filled)) return false;
    if (!reads_stay_inside(statement, storage_, box.hull) || !write_is_owned(statement, box)) return false;
    if (!others_have_values(statement, box, read)) return false;
    treatment.fill = neutral;
    return true;
  }

  /// The accumulators at extra points exist as real ones, are nobody's, or are a task's own: adding a neutral term to one that other
  /// iterations have started, or will start, leaves it as it is.
  bool write_is_owned(const StatementPlan& statement, const OpBox& box) const {
    const Access& write = statement.statement->write;
    const isl::map extra = touched_by(statement, write, extra_points(box));
    return extra.is_subset(touched_by(statement, write, box.points)) ||
           writes_nobodys_elements(plan_, storage_, statement, extra_points(box)) || is_private(statement, extra);
  }

  /// Elements of a buffer that one task has for itself, inside of it.
  bool is_private(const StatementPlan& statement, const isl::map& elements) const {
    const Placement& placement = storage_.tensors.at(statement.statement->write.tensor);
    if (storage_.buffers[placement.buffer].memory != Memory::scratch) return false;
    const bool shared = std::any_of(statement.outer.begin() + static_cast<std::ptrdiff_t>(placement.depth), statement.outer.end(),
                                    [](const PlannedLoop& loop) { return is_task_loop(loop.kind); });
    return !shared && elements.is_subset(room(statement, placement));
  }

  const ProgramPlan& plan_;
  const Storage& storage_;
  const std::map<std::string, OpBox>& boxes_;
  std::map<std::string, GuardPlan> out_;
};

}  // namespace

bool are_nobodys(const ProgramPlan& plan, const std::string& tensor, const isl::map& elements) {
  isl::set owned = elements.range().subtract(elements.range());
  for (const StatementPlan& other : plan.statements) {
    if (other.statement->write.tensor == tensor)
      owned = owned.unite(other.statement->domain.apply(other.statement->write.relation));
  }
  return elements.range().intersect_params(plan.context).is_disjoint(owned);
}

bool may_run_at(const ProgramPlan& plan, const Storage& storage, const StatementPlan& statement, const isl::map& extra) {
  return reads_stay_inside(statement, storage, extra) && writes_nobodys_elements(plan, storage, statement, extra);
}

std::map<std::string, GuardPlan> plan_guards(const ProgramPlan& plan, const Storage& storage,
                                             const std::map<std::string, OpBox>& boxes) {
  return GuardPlanner(plan, storage, boxes).run();
}

}  // namespace nestor
