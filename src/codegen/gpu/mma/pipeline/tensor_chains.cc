// Which ops of a loop depend on each other.
#include "codegen/gpu/mma/pipeline/tensor_chains.h"

#include "support/error.h"

#include <algorithm>
#include <map>
#include <set>

namespace nestor::nvptx {
namespace {

const TensorOp& op_of(const TensorPlan& plan, int k) { return plan.ops[static_cast<std::size_t>(k)]; }

/// The scratch tiles that the op touches, of those in `tiles`.
std::set<int> touched(const TensorOp& op, const std::set<int>& tiles) {
  std::set<int> result;
  if (tiles.count(op.op.write.buffer) != 0) result.insert(op.op.write.buffer);
  for (const TileAccess& read : op.op.reads) {
    if (tiles.count(read.buffer) != 0) result.insert(read.buffer);
  }
  return result;
}

/// Groups of ops that written tiles join, each in the program's order.
std::vector<std::vector<int>> components(const TensorPlan& plan, const std::vector<int>& ops) {
  std::set<int> written;
  for (const int k : ops) written.insert(op_of(plan, k).op.write.buffer);
  std::vector<std::vector<int>> parts;
  std::vector<std::set<int>> tiles;  // of each part
  for (const int k : ops) {
    std::set<int> own = touched(op_of(plan, k), written);
    std::vector<int> members{k};
    for (std::size_t p = parts.size(); p-- > 0;) {
      if (std::none_of(own.begin(), own.end(), [&](int tile) { return tiles[p].count(tile) != 0; })) continue;
      own.insert(tiles[p].begin(), tiles[p].end());
      members.insert(members.end(), parts[p].begin(), parts[p].end());
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(p));
      tiles.erase(tiles.begin() + static_cast<std::ptrdiff_t>(p));
    }
    std::sort(members.begin(), members.end());
    parts.push_back(std::move(members));
    tiles.push_back(std::move(own));
  }
  std::sort(parts.begin(), parts.end());
  return parts;
}

}  // namespace

std::vector<Chain> chains_of(const TensorPlan& plan, const std::vector<int>& ops) {
  std::vector<Chain> chains;
  for (const std::vector<int>& part : components(plan, ops)) {
    Chain chain;
    for (const int k : part) {
      const bool first = leads(op_of(plan, k)) && chain.rest.empty() && chain.late.empty();
      (op_of(plan, k).late ? chain.late : first ? chain.leads : chain.rest).push_back(k);
    }
    if (chain.leads.empty() || chain.late.empty())
      user_error(
          "Kernel '{}' cannot overlap products chain by chain: the ops around {} depend on no others of their loop, and {}. "
          "Leave in_flight out of intra_warpgroup_overlap.",
          plan.program->name, op_of(plan, part.front()).op.name,
          chain.leads.empty() ? "do not begin with a product of two operands in memory"
                              : "end in no product that only the next iteration needs");
    chains.push_back(std::move(chain));
  }
  if (chains.size() < 2)
    user_error(
        "Kernel '{}' cannot overlap products chain by chain: all ops of its loop depend on each other, so there is one chain. "
        "Leave in_flight out of intra_warpgroup_overlap.",
        plan.program->name);
  return chains;
}

std::vector<int> late_readers_last(const TensorPlan& plan, const std::vector<int>& early, const std::vector<int>& late) {
  std::set<int> moved_writes, moved_reads;
  std::vector<int> front, back;
  for (const int k : early) {
    const TileOp& op = op_of(plan, k).op;
    const auto touches = [&](int buffer) {
      return std::any_of(late.begin(), late.end(), [&](int l) { return op_of(plan, l).op.write.buffer == buffer; });
    };
    bool moves = touches(op.write.buffer) || moved_writes.count(op.write.buffer) != 0 || moved_reads.count(op.write.buffer) != 0;
    for (const TileAccess& read : op.reads) moves = moves || touches(read.buffer) || moved_writes.count(read.buffer) != 0;
    (moves ? back : front).push_back(k);
    if (!moves) continue;
    moved_writes.insert(op.write.buffer);
    for (const TileAccess& read : op.reads) moved_reads.insert(read.buffer);
  }
  front.insert(front.end(), back.begin(), back.end());
  return front;
}

}  // namespace nestor::nvptx
