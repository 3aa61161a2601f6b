// Tasks that run at the same time, place by place.
#include "codegen/proof/model/outcome.h"
#include "codegen/proof/obligations.h"
#include "poly/isl/conjunction.h"

#include <fmt/format.h>
#include <isl/map.h>
#include <isl/set.h>

#include <map>

namespace nestor::proof {
namespace {

/// What iterations of one loop over tasks touch of one buffer: { [loops around, loop] -> [place] }.
struct Touched {
  TimeLoop loop;
  std::vector<std::string> names;
  isl::map writes, all;
};

void add(isl::map& to, const isl::map& more) { to = to.is_null() ? more : to.unite(more); }

class TaskProof {
 public:
  explicit TaskProof(const ProgramModel& model) : model_(model) {}

  void prove() {
    for (const Run& run : model_.runs()) {
      for (const OpMember& member : run.members) {
        touch(run, member, member.op->write, true);
        if (run.part != OpPart::points) continue;
        for (const TileAccess& read : member.op->reads) touch(run, member, read, false);
      }
    }
    for (auto& [key, touched] : touched_) {
      if (!touched.writes.is_null()) separate(touched, model_.buffer(key.second).name);
    }
  }

 private:
  void touch(const Run& run, const OpMember& member, const TileAccess& access, bool writes) {
    const Buffer& buffer = model_.buffer(access.buffer);
    // Nobody writes an input: ops that write it are refused by their claims.
    if (buffer.memory == Memory::scratch || buffer.role == TensorRole::input) return;
    for (std::size_t k = 0; k < run.depth(); ++k) {
      if (!is_task(run.loops[k].kind)) continue;
      Touched& touched = touched_[{run.loops[k].id, access.buffer}];
      touched.loop = run.loops[k];
      touched.names.assign(member.space->variables().begin(),
                           member.space->variables().begin() + static_cast<std::ptrdiff_t>(k) + 1);
      const isl::map places = with_first_dims(model_.place(member, access).intersect_domain(member.executed), k + 1);
      add(touched.all, places);
      if (writes) add(touched.writes, places);
    }
  }

  static void separate(const Touched& touched, const std::string& buffer) {
    const isl::map writes = touched.writes.coalesce(), all = touched.all.coalesce();
    if (separate(conjunction_around(writes), conjunction_around(all)).is_empty()) return;
    const isl::map pairs = separate(writes, all);
    if (pairs.is_empty()) return;
    throw BrokenObligation(fmt::format("tasks: iterations of {} loop {} touch one element of {}, for example {}",
                                       to_string(touched.loop.kind), touched.loop.var, buffer,
                                       sample_text(pairs, touched.names, touched.names)));
  }

  /// Pairs of different iterations, at equal loops around, that touch one place.
  static isl::map separate(const isl::map& writes, const isl::map& all) {
    const std::size_t last = static_cast<std::size_t>(isl_map_dim(writes.get(), isl_dim_in)) - 1;
    const isl::map pairs = with_equal_loops(writes.apply_range(all.reverse()), last);
    const int at = static_cast<int>(last);
    const isl::map forward = isl::manage(isl_map_order_lt(pairs.copy(), isl_dim_in, at, isl_dim_out, at));
    return forward.unite(isl::manage(isl_map_order_gt(pairs.copy(), isl_dim_in, at, isl_dim_out, at)));
  }

  const ProgramModel& model_;
  std::map<std::pair<int, int>, Touched> touched_;  ///< by loop and buffer
};

}  // namespace

void prove_tasks(const Subject& subject) { TaskProof(subject.model).prove(); }

}  // namespace nestor::proof
