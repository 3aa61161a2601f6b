// Walks two places of the program's time from the outside in: positions decide, or loops do.
#include "codegen/proof/model/time_order.h"

#include "codegen/proof/model/outcome.h"

#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>

namespace nestor::proof {
namespace {

isl::map sink_first(const isl::map& pairs, std::size_t k) {
  return isl::manage(isl_map_order_gt(pairs.copy(), isl_dim_in, static_cast<int>(k), isl_dim_out, static_cast<int>(k)));
}

isl::map source_first(const isl::map& pairs, std::size_t k) {
  return isl::manage(isl_map_order_lt(pairs.copy(), isl_dim_in, static_cast<int>(k), isl_dim_out, static_cast<int>(k)));
}

isl::map at_once(const isl::map& pairs, std::size_t k) {
  return isl::manage(isl_map_equate(pairs.copy(), isl_dim_in, static_cast<int>(k), isl_dim_out, static_cast<int>(k)));
}

std::optional<isl::map> unless_empty(const isl::map& pairs) {
  if (is_empty(pairs)) return std::nullopt;
  return pairs;
}

/// How the values of one loop or dim are taken.
struct Steps {
  bool side_by_side = false;  ///< no order between them
  bool tasks = false;         ///< not even for what may be combined in any order
};

std::optional<isl::map> broken_at(const isl::map& pairs, std::size_t k, const Steps& steps, OrderNeed need) {
  if (need == OrderNeed::combined && !steps.tasks) return std::nullopt;
  if (auto broken = unless_empty(sink_first(pairs, k))) return broken;
  return steps.side_by_side ? unless_empty(source_first(pairs, k)) : std::nullopt;
}

/// Points of one op: in the order of its dims, unless its kind leaves the order open.
std::optional<isl::map> broken_within(isl::map pairs, const Run& run, const OpMember& member, OrderNeed need) {
  pairs = pairs.intersect_domain(member.executed);
  const TileOp& op = *member.op;
  if (op.kind != OpKind::points) {
    // What an op of such a kind combines, it combines in any order by its meaning.
    return need == OrderNeed::combined ? std::nullopt : unless_empty(pairs);
  }
  for (std::size_t k = 0; k < op.dims.size(); ++k) {
    const bool parallel = op.dims[k].parallel && !op.dims[k].reduced;
    if (auto broken = broken_at(pairs, run.depth() + k, {parallel, parallel}, need)) return broken;
    pairs = at_once(pairs, run.depth() + k);
  }
  return std::nullopt;
}

}  // namespace

std::size_t shared_loops(const Run& a, const Run& b) {
  std::size_t depth = 0;
  while (depth < a.depth() && depth < b.depth() && a.positions[depth] == b.positions[depth] &&
         a.loops[depth].id == b.loops[depth].id)
    ++depth;
  return depth;
}

std::optional<isl::map> out_of_order(const isl::map& pairs, const Run& a, const Run& b, OrderNeed need) {
  const std::size_t shared = shared_loops(a, b);
  isl::map rest = pairs;
  for (std::size_t k = 0; k < shared; ++k) {
    const LoopKind kind = a.loops[k].kind;
    if (auto broken = broken_at(rest, k, {is_concurrent(kind), is_task(kind)}, need)) return broken;
    rest = at_once(rest, k);
    if (isl_map_plain_is_empty(rest.get()) == isl_bool_true) return std::nullopt;
  }
  if (a.positions[shared] != b.positions[shared]) {
    const bool before = a.positions[shared] < b.positions[shared];
    return before || need == OrderNeed::combined ? std::nullopt : unless_empty(rest);
  }
  if (&a != &b) {
    // One op's parts: neutral elements first.
    if (a.part == OpPart::start && b.part == OpPart::points) return std::nullopt;
    return unless_empty(rest);
  }
  for (const OpMember& member : a.members) {
    if (auto broken = broken_within(rest, a, member, need)) return broken;
  }
  return std::nullopt;
}

}  // namespace nestor::proof
