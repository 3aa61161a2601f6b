// Points that are no instances, and copies of parts of tensors.
#include "codegen/proof/model/outcome.h"
#include "codegen/proof/model/reached.h"
#include "codegen/proof/model/time_order.h"
#include "codegen/proof/model/written.h"
#include "codegen/proof/obligations.h"

#include <fmt/format.h>
#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace nestor::proof {
namespace {

/// { [first `depth` loops] -> range } for some points of a member.
isl::map in_scope(const isl::map& relation, const isl::set& points, std::size_t depth) {
  return with_first_dims(relation.intersect_domain(points), depth);
}

/// Reads that make a term vanish when they hold the reduction's neutral element: factors of a sum's term, or the very term.
void vanishing_reads(const ScalarExpr& value, bool product, std::vector<int>& reads) {
  if (value.op() == ScalarOp::read) reads.push_back(value.ordinal());
  if (value.op() == ScalarOp::cast && value.type() != ElementType::i32) vanishing_reads(value.args()[0], product, reads);
  if (product && value.op() == ScalarOp::mul) {
    for (const ScalarExpr& arg : value.args()) vanishing_reads(arg, product, reads);
  }
}

class ExtraPoints {
 public:
  explicit ExtraPoints(const Subject& subject) : model_(subject.model), finite_(subject.finite) {}

  void prove() const {
    for (const Run& run : model_.runs()) {
      if (run.extra.is_empty() || writes_nobodys(run)) continue;
      const bool adds = run.part == OpPart::points && run.op().reduction.has_value();
      const std::optional<int> neutral = adds ? neutral_read(run) : std::nullopt;
      if (!neutral) refute(run);
      if (run.op().reduction != ReductionOp::add) continue;
      for (std::size_t k = 0; k < run.op().reads.size(); ++k) {
        if (static_cast<int>(k) != *neutral) finite_.insert(model_.buffer(run.op().reads[k].buffer).tensor);
      }
    }
  }

 private:
  std::size_t scope_of(const Run& run) const { return model_.buffer(run.op().write.buffer).scope.size(); }

  /// { [scope] -> [place] } that instances of any op write of the buffer, in the runs that share the scope's loops with `like`.
  isl::map owned(int buffer, const Run& like) const {
    const std::size_t depth = model_.buffer(buffer).scope.size();
    isl::map all;
    for (const Run& run : model_.runs()) {
      if (shared_loops(run, like) < depth) continue;
      for (const OpMember& member : run.members) {
        if (member.op->write.buffer != buffer) continue;
        const isl::map own = in_scope(model_.place(member, member.op->write), member.instances, depth);
        all = all.is_null() ? own : all.unite(own);
      }
    }
    return all.coalesce();
  }

  isl::map written_by_extra(const Run& run) const {
    isl::map all;
    for (const OpMember& member : run.members) {
      const isl::map own = in_scope(model_.place(member, member.op->write), member.extra, scope_of(run));
      all = all.is_null() ? own : all.unite(own);
    }
    return all.coalesce();
  }

  /// Only elements of a temporary that no instance writes in this copy of its buffer, so that none reads them.
  bool writes_nobodys(const Run& run) const {
    const Buffer& buffer = model_.buffer(run.op().write.buffer);
    if (buffer.memory == Memory::argument) return false;
    return written_by_extra(run).is_disjoint(owned(run.op().write.buffer, run));
  }

  /// Every extra term is one that a producer filled with the neutral element, and goes where the task alone accumulates: the read that
  /// makes it so.
  std::optional<int> neutral_read(const Run& run) const {
    const TileOp& op = run.op();
    if (*op.reduction == ReductionOp::mul || run.statement == nullptr || !stays_private(run)) return std::nullopt;
    std::vector<int> reads;
    vanishing_reads(op.value, *op.reduction == ReductionOp::add, reads);
    const double neutral = neutral_element(*op.reduction, op.value.type());
    for (const int read : reads) {
      if (all_filled(run, read, neutral) && others_hold_values(run, read)) return read;
    }
    return std::nullopt;
  }

  /// What an extra term multiplies by 0 is an element of an input, or has been written before.
  bool others_hold_values(const Run& run, int neutral) const {
    for (const OpMember& member : run.members) {
      for (std::size_t k = 0; k < member.op->reads.size(); ++k) {
        const TileAccess& access = member.op->reads[k];
        if (static_cast<int>(k) == neutral || holds_input(model_.buffer(access.buffer))) continue;
        const isl::map wanted = in_scope(model_.place(member, access), member.extra, run.depth());
        if (!unwritten_before(model_, run, access.buffer, wanted).is_empty()) return false;
      }
    }
    return true;
  }

  bool all_filled(const Run& run, int read, double neutral) const {
    isl::map wanted;
    const int buffer = run.op().reads[read].buffer;
    for (const OpMember& member : run.members) {
      const TileAccess& access = member.op->reads[read];
      const isl::map own = in_scope(model_.place(member, access), member.extra, run.depth());
      if (access.buffer != buffer) return false;
      wanted = wanted.is_null() ? own : wanted.unite(own);
    }
    return std::any_of(model_.runs().begin(), model_.runs().end(), [&](const Run& producer) {
      return producer.part == OpPart::fill && producer.op().write.buffer == buffer && fills(producer, run, wanted, neutral);
    });
  }

  /// The producer fills all places in `wanted`, { [loops] -> [place] }, in the same iteration of all loops that it shares with the reader, in
  /// the same task, and before any of them is read; nobody else writes them.
  bool fills(const Run& producer, const Run& reader, const isl::map& wanted, double neutral) const {
    const std::size_t depth = shared_loops(producer, reader), scope = model_.buffer(producer.op().write.buffer).scope.size();
    if (depth < scope || producer.task_depth() > depth || reader.task_depth() > depth ||
        producer.positions[depth] >= reader.positions[depth])
      return false;
    isl::map filled;
    for (const OpMember& member : producer.members) {
      if (!member.op->fill || *member.op->fill != neutral) return false;
      const isl::map own = in_scope(model_.place(member, member.op->write), member.executed, depth);
      filled = filled.is_null() ? own : filled.unite(own);
    }
    if (!with_first_dims(wanted, depth).is_subset(filled)) return false;
    const int buffer = producer.op().write.buffer;
    const isl::map places = with_first_dims(wanted, scope);
    if (!places.is_disjoint(owned(buffer, reader))) return false;
    return std::all_of(model_.runs().begin(), model_.runs().end(), [&](const Run& other) {
      return &other == &producer || other.op().write.buffer != buffer || shared_loops(other, reader) < scope ||
             other.extra.is_empty() || written_by_extra(other).is_disjoint(places);
    });
  }

  /// A neutral term changes nothing, but it reads and writes: in the task's own memory, or where its instances do.
  bool stays_private(const Run& run) const {
    if (model_.buffer(run.op().write.buffer).memory == Memory::scratch) return true;
    return std::all_of(run.members.begin(), run.members.end(), [&](const OpMember& member) {
      const isl::map place = model_.place(member, member.op->write);
      return in_scope(place, member.extra, run.depth()).is_subset(in_scope(place, member.instances, run.depth()));
    });
  }

  [[noreturn]] void refute(const Run& run) const {
    throw BrokenObligation(
        fmt::format("extra points: {} runs points that are no instances and writes what others own, for example {}", title(run),
                    sample_text(run.extra, run.space().variables())));
  }

  const ProgramModel& model_;
  std::set<std::string>& finite_;
};

/// A copy of a part of a tensor, made in each iteration of the innermost loop around it, and those that read it.
class Stage {
 public:
  Stage(const Subject& subject, const Run& copy) : subject_(subject), model_(subject.model), copy_(copy) {}

  void prove() {
    for (const OpMember& member : copy_.members) prove_copy(member);
    for (const Run& run : model_.runs()) {
      if (run.op().write.buffer == copy_.op().write.buffer && !run.is_role(OpRole::stage))
        throw BrokenObligation(fmt::format("{} writes the copy {}", title(run), buffer().name));
      if (run.part == OpPart::points && is_made_before(run)) prove_source_of(run);
    }
  }

  /// In the same iteration and task as the run, and before it.
  bool is_made_before(const Run& run) const {
    const std::size_t depth = buffer().scope.size();
    return shared_loops(copy_, run) >= depth && copy_.positions[depth] < run.positions[depth] &&
           (buffer().memory != Memory::scratch || run.task_depth() <= depth);
  }

  /// { [scope] -> [place] } that are copied.
  isl::map copied_places() const {
    isl::map all;
    for (const OpMember& member : copy_.members) {
      const isl::map own = in_scope(model_.place(member, member.op->write), member.executed, buffer().scope.size());
      all = all.is_null() ? own : all.unite(own);
    }
    return all.coalesce();
  }

 private:
  const Buffer& buffer() const { return model_.buffer(copy_.op().write.buffer); }

  /// Each element is copied to the place that is its own.
  void prove_copy(const OpMember& member) const {
    const TileOp& op = *member.op;
    if (op.reduction || op.reads.size() != 1 || op.value.op() != ScalarOp::read || op.guard.defined() ||
        copy_.depth() != buffer().scope.size())
      throw BrokenObligation(fmt::format("{} is no copy for an iteration of its loops", title(copy_)));
    const Buffer& source = model_.buffer(op.reads[0].buffer);
    if (source.tensor != buffer().tensor)
      throw BrokenObligation(fmt::format("{} copies {} to {}", title(copy_), source.name, buffer().name));
    const isl::map from = model_.element(member, op.reads[0]).intersect_domain(member.executed);
    const isl::map to = model_.element(member, op.write);
    if (from.is_subset(to)) return;
    expect_empty(from.subtract(to).domain(), member.space->variables(), fmt::format("{} copies another element", title(copy_)));
  }

  void prove_source_of(const Run& run) const {
    for (const OpMember& member : run.members) {
      for (const TileAccess& access : member.op->reads) {
        if (access.buffer == copy_.op().write.buffer) prove_writers(run, member, access);
      }
    }
  }

  /// What the reader depends on was written before the copy was made.
  void prove_writers(const Run& run, const OpMember& member, const TileAccess& access) const {
    for (const Dependence& flow : subject_.dependences) {
      if (flow.kind != DependenceKind::flow || flow.tensor != buffer().tensor || run.statement == nullptr ||
          flow.sink != run.statement->name)
        continue;
      const isl::map places = model_.place(member, access).intersect_domain(member.instances);
      for (const OpMember& copied : copy_.members) {
        const isl::map own = model_.place(copied, copied.op->write).intersect_domain(copied.executed);
        const isl::map made = with_equal_loops(places.apply_range(own.reverse()), buffer().scope.size());
        for (const Run& writer : model_.runs()) {
          if (writer.statement == nullptr || writer.statement->name != flow.source) continue;
          isl_map* pairs = isl_map_preimage_domain_multi_aff(flow.relation.copy(), writer.instance.copy());
          pairs = isl_map_preimage_range_multi_aff(pairs, run.instance.copy());
          const isl::map before = isl::manage(pairs).intersect_domain(writer.instances).apply_range(made);
          if (const auto broken = out_of_order(before, writer, copy_, OrderNeed::ordered)) {
            throw BrokenObligation(fmt::format("order: {} is copied before {} writes it, for example {}", flow.tensor,
                                               title(writer),
                                               sample_text(*broken, writer.space().variables(), copy_.space().variables())));
          }
          prove_source(before, writer, model_.buffer(copied.op->reads[0].buffer));
        }
      }
    }
  }

  /// What is copied lies in the copy of its own buffer to which it was written. `before`: { [writer] -> [copy] }.
  void prove_source(const isl::map& before, const Run& writer, const Buffer& source) const {
    if (source.memory == Memory::argument) return;
    std::size_t depth = source.scope.size();
    if (source.memory == Memory::scratch) depth = std::max({depth, writer.task_depth(), copy_.task_depth()});
    const isl::map leaving = shared_loops(writer, copy_) < depth ? before : before.subtract(with_equal_loops(before, depth));
    if (is_empty(leaving)) return;
    throw BrokenObligation(fmt::format("storage: a value of {} leaves the copy of its buffer between {} and {}, for example {}",
                                       source.tensor, title(writer), title(copy_),
                                       sample_text(leaving, writer.space().variables(), copy_.space().variables())));
  }

  const Subject& subject_;
  const ProgramModel& model_;
  const Run& copy_;
};

/// The one buffer in which each tensor is written, or given.
std::map<std::string, int> prove_homes(const ProgramModel& model) {
  std::map<std::string, int> homes;
  for (int k = 0; k < static_cast<int>(model.program().buffers.size()); ++k) {
    if (model.buffer(k).memory == Memory::argument) homes[model.buffer(k).tensor] = k;
  }
  for (const Run& run : model.runs()) {
    for (const OpMember& member : run.members) {
      const int buffer = member.op->write.buffer;
      const auto [home, fresh] =
          run.is_role(OpRole::statement) ? homes.try_emplace(model.buffer(buffer).tensor, buffer) : std::pair(homes.end(), true);
      if (!fresh && home->second != buffer)
        throw BrokenObligation(fmt::format("storage: {} writes {} to a second buffer", title(run), model.buffer(buffer).tensor));
      const bool keeps = run.is_role(OpRole::stage) || run.is_role(OpRole::save);
      if (keeps && model.buffer(buffer).memory == Memory::argument)
        throw BrokenObligation(fmt::format("storage: {} writes an argument", title(run)));
    }
  }
  return homes;
}

/// { [scope] -> [place] } of what has been copied where a run starts; null where no copy is made before it.
isl::map copied_before(const std::vector<Stage>& copies, const Run& run) {
  isl::map all;
  for (const Stage& copy : copies) {
    if (copy.is_made_before(run)) all = all.is_null() ? copy.copied_places() : all.unite(copy.copied_places()).coalesce();
  }
  return all;
}

/// What instances of a run read of a staged buffer has been copied, in the same iteration and task, by its copies.
void prove_copied(const ProgramModel& model, int buffer, const std::vector<Stage>& copies, const Run& run) {
  const Buffer& staged = model.buffer(buffer);
  const std::size_t depth = staged.scope.size();
  isl::map copied;
  for (const OpMember& member : run.members) {
    for (std::size_t k = 0; k < member.op->reads.size(); ++k) {
      const TileAccess& access = member.op->reads[k];
      if (access.buffer != buffer || run.part != OpPart::points) continue;
      if (copied.is_null()) copied = copied_before(copies, run);
      if (copied.is_null())
        throw BrokenObligation(fmt::format("order: {} reads the copy {} before it is made", title(run), staged.name));
      const isl::map wanted = in_scope(model.place(member, access), member.instances, depth);
      if (wanted.is_subset(copied)) continue;
      const isl::set reached = reached_points(model, member, static_cast<int>(k), member.instances);
      const isl::map needed = in_scope(model.place(member, access), reached, depth);
      const std::vector<std::string>& names = run.space().variables();
      expect_empty(needed.subtract(copied).domain(), {names.begin(), names.begin() + static_cast<std::ptrdiff_t>(depth)},
                   fmt::format("storage: {} reads places of {} that are not copied", title(run), staged.name));
    }
  }
}

}  // namespace

void prove_extra_points(const Subject& subject) { ExtraPoints(subject).prove(); }

void prove_stages(const Subject& subject) {
  const std::map<std::string, int> homes = prove_homes(subject.model);
  std::map<int, std::vector<Stage>> stages;
  for (const Run& run : subject.model.runs()) {
    if (!run.is_role(OpRole::stage)) continue;
    Stage& stage = stages[run.op().write.buffer].emplace_back(subject, run);
    stage.prove();
  }
  for (const auto& [buffer, copies] : stages) {
    for (const Run& run : subject.model.runs()) prove_copied(subject.model, buffer, copies, run);
  }
  for (const Run& run : subject.model.runs()) {
    for (const OpMember& member : run.members) {
      for (std::size_t k = 0; k < member.op->reads.size(); ++k) {
        const TileAccess& read = member.op->reads[k];
        const bool staged = stages.count(read.buffer) != 0;
        if (!run.is_role(OpRole::statement) || staged) continue;
        const Buffer& buffer = subject.model.buffer(read.buffer);
        const auto home = homes.find(buffer.tensor);
        if (home != homes.end() && home->second == read.buffer) continue;
        if (!reached_points(subject.model, member, static_cast<int>(k), member.instances).is_empty())
          throw BrokenObligation(
              fmt::format("storage: {} reads {}, where {} is not written", title(run), buffer.name, buffer.tensor));
      }
    }
  }
}

}  // namespace nestor::proof
