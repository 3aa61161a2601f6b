// The proof's driver, what its parts know of a plan, and the sentences of a certificate.
#include "codegen/gpu/simt/proof/block_check.h"

#include "codegen/gpu/kernel_builder.h"
#include "codegen/gpu/simt/proof/block_proof.h"
#include "codegen/gpu/simt/proof/launch_check.h"
#include "support/debug.h"
#include "support/error.h"

#include <fmt/ranges.h>

namespace nestor::nvptx {
namespace {

constexpr const char* kItemName = "$item";

void collect_sites(const BlockNode& node, std::vector<const BlockNode*>& around, std::vector<OpSite>& sites) {
  if (node.kind == TileNode::Kind::op) {
    sites.push_back({node.op, around});
    return;
  }
  const bool binds = node.kind != TileNode::Kind::sequence;
  if (binds) around.push_back(&node);
  for (const BlockNode& child : node.children) collect_sites(child, around, sites);
  if (binds) around.pop_back();
}

/// Each op stands once in the tree, threads and layouts are possible ones.
void prove_shape(BlockProof& proof) {
  std::vector<int> seen(proof.plan.ops.size(), 0);
  for (const OpSite& site : proof.sites) {
    if (site.op < 0 || static_cast<std::size_t>(site.op) >= seen.size())
      return proof.fail("the plan's tree names no op {}", site.op);
    ++seen[static_cast<std::size_t>(site.op)];
  }
  for (std::size_t k = 0; k < seen.size(); ++k) {
    if (seen[k] != 1) proof.fail("{} stands {} times in the plan's tree", proof.plan.ops[k].op.name, seen[k]);
  }
  const BlockPlan& plan = proof.plan;
  if (plan.threads < 32 || plan.threads > 1024 || plan.threads % 32 != 0) proof.fail("a block of {} threads", plan.threads);
  if (plan.cluster < 1 || plan.cluster > 16 || plan.cluster != plan.kernel->shape.cluster)
    proof.fail("a cluster of {} blocks", plan.cluster);
  for (const BlockOp& op : plan.ops) {
    if (op.layout.vector < 1 || op.layout.lanes < 1 || op.layout.groups < 1 || op.layout.threads() != plan.all_threads())
      proof.fail("{}: {} lanes and {} groups are not the {} threads, each once", op.op.name, op.layout.lanes, op.layout.groups,
                 plan.all_threads());
    if (op.roles.size() != op.op.dims.size() || op.read_vectors.size() != op.op.reads.size())
      proof.fail("{}: not every dim has a role", op.op.name);
    if (op.column >= static_cast<int>(op.op.dims.size()) || op.op.write.buffer < 0)
      proof.fail("{} has no such column", op.op.name);
  }
}

std::vector<std::string> sentences(const BlockProof& proof) {
  const BlockPlan& plan = proof.plan;
  std::vector<std::string> facts;
  const std::string who = plan.cluster > 1 ? fmt::format("{} threads of {} blocks", plan.all_threads(), plan.cluster)
                                           : fmt::format("{} threads", plan.threads);
  facts.push_back(fmt::format("{} ops, each at the iterations and points of the tile program, every point by one of {}",
                              proof.sites.size(), who));
  std::vector<std::string> registers, shared;
  for (const auto& [buffer, place] : plan.placements)
    (place.kind == Placement::Kind::shared ? shared : registers).push_back(plan.buffer(buffer).name);
  if (!registers.empty())
    facts.push_back(fmt::format("{} in registers: a thread reads there only what it wrote itself", fmt::join(registers, ", ")));
  if (plan.shared_bytes > 0)
    facts.push_back(fmt::format("{} bytes of shared memory{}: nothing that lives at the same time overlaps", plan.shared_bytes,
                                shared.empty() ? "" : fmt::format(" with {}", fmt::join(shared, ", "))));
  const auto barriers = std::count_if(plan.ops.begin(), plan.ops.end(), [](const BlockOp& op) { return op.barrier_before; });
  facts.push_back(
      fmt::format("no two points of an op, threads or blocks meet in an element that one of them writes, but behind a "
                  "barrier ({}) or in a reduction, where each part counts once",
                  barriers == 1 ? "1 between ops" : fmt::format("{} between ops", barriers)));
  if (plan.has_conditions()) {
    std::vector<std::string> conditions;
    for (const auto& [size, divisor] : plan.size_divisors) conditions.push_back(fmt::format("{} divisible by {}", size, divisor));
    for (const auto& [buffer, bytes] : plan.alignments)
      conditions.push_back(fmt::format("{} at multiples of {} bytes", plan.buffer(buffer).name, bytes));
    facts.push_back(fmt::format("accesses of 16 bytes where the kernel finds {}", fmt::join(conditions, ", ")));
  }
  for (const auto& [buffer, place] : plan.placements) {
    if (place.ring_slots > 0)
      facts.push_back(
          fmt::format("{}: copies of {} trips on their way; each is read after it has arrived and before it is overwritten",
                      plan.buffer(buffer).name, place.ring_slots));
  }
  return facts;
}

}  // namespace

bool is_name(const BlockNode& node) { return node.kind == TileNode::Kind::loop && node.once; }
bool is_loop(const BlockNode& node) { return node.kind == TileNode::Kind::loop && !node.once; }

bool has_one_value(const OpDim& dim) { return affine_of(dim.upper) - affine_of(dim.lower) == Affine{{}, 1}; }

std::optional<std::int64_t> distance_bound(const IntExpr& lower, const IntExpr& upper) {
  const auto either = [](std::optional<std::int64_t> a, std::optional<std::int64_t> b) {
    if (!a || !b) return a ? a : b;
    return std::optional(std::min(*a, *b));
  };
  if (upper.op() == IntOp::min) return either(distance_bound(lower, upper.args()[0]), distance_bound(lower, upper.args()[1]));
  if (upper.op() == IntOp::max) {
    const auto a = distance_bound(lower, upper.args()[0]), b = distance_bound(lower, upper.args()[1]);
    return a && b ? std::optional(std::max(*a, *b)) : std::nullopt;
  }
  if (lower.op() == IntOp::max) return either(distance_bound(lower.args()[0], upper), distance_bound(lower.args()[1], upper));
  const Affine distance = affine_of(upper) - affine_of(lower);
  if (distance.is_constant()) return distance.constant;
  return upper.op() == IntOp::sub ? distance_bound(lower + upper.args()[1], upper.args()[0]) : std::nullopt;
}

BlockProof::BlockProof(const BlockPlan& of) : plan(of) {
  std::vector<const BlockNode*> around;
  collect_sites(plan.root, around, sites);
}

const OpSite& BlockProof::site(int op) const {
  for (const OpSite& site : sites) {
    if (site.op == op) return site;
  }
  internal_error("a block plan has no op {}", op);
}

bool BlockProof::is_grid_variable(const std::string& name) const {
  return std::any_of(plan.kernel->grid.begin(), plan.kernel->grid.end(), [&](const GridLoop& loop) { return loop.var == name; });
}

std::vector<Axis> BlockProof::axes(const OpSite& site) const {
  std::vector<Axis> result;
  const auto add_grid = [&](const GridLoop& loop, const BlockNode* node) {
    result.push_back({Axis::Kind::grid, loop.var, loop.lower, loop.lower + IntExpr(loop.step) * loop.count, loop.step, node, -1});
  };
  if (!resident()) {
    for (const GridLoop& loop : plan.kernel->grid) add_grid(loop, nullptr);
  }
  for (const BlockNode* node : site.around) {
    if (node->kind != TileNode::Kind::loop) continue;
    if (resident() && (node->var == kTrip || node->var == kItemName)) continue;
    if (resident() && is_name(*node) && is_grid_variable(node->var)) {
      for (const GridLoop& loop : plan.kernel->grid) {
        if (loop.var == node->var) add_grid(loop, node);
      }
      continue;
    }
    const auto kind = is_name(*node) ? Axis::Kind::name : Axis::Kind::loop;
    result.push_back({kind, node->var, node->lower, node->upper, node->step, node, -1});
  }
  const TileOp& tile = op(site.op).op;
  for (int d = 0; d < static_cast<int>(tile.dims.size()); ++d) {
    const OpDim& dim = tile.dims[static_cast<std::size_t>(d)];
    result.push_back({Axis::Kind::dim, dim.var, dim.lower, dim.upper, 1, nullptr, d});
  }
  return result;
}

BlockCertificate check_block_plan(const BlockPlan& plan) {
  const DebugTimer timer("proof of a block plan");
  BlockProof proof(plan);
  // What follows relies on what came before.
  for (const auto part : {prove_shape, prove_tree, prove_points, prove_products, prove_reductions, prove_registers, prove_trips,
                          prove_places, prove_order}) {
    if (proof.good()) part(proof);
  }
  BlockCertificate certificate;
  certificate.violations = proof.violations;
  certificate.unproved = proof.unproved;
  if (certificate.holds()) certificate.proved = sentences(proof);
  return certificate;
}

}  // namespace nestor::nvptx

namespace nestor {

std::vector<std::string> prove_block_kernels(const TileProgram& program, const NvptxTarget& target) {
  std::vector<std::string> facts;
  const nvptx::LaunchPlan launches = nvptx::plan_launches(program, target.threads);
  if (const auto problems = nvptx::check_launches(launches); !problems.empty())
    internal_error("the launches of {} are wrong: {}", program.name, fmt::join(problems, "; "));
  facts.push_back(fmt::format(
      "{} kernel{}: blocks, loops and conditions of the launches run each op of the tile program at its iterations, in its order",
      launches.kernels.size(), launches.kernels.size() == 1 ? "" : "s"));
  for (const nvptx::KernelPlan& kernel : launches.kernels) {
    if (kernel.shape.groups > 0) continue;
    const std::vector<nvptx::BlockPlan> plans = nvptx::plan_bodies(kernel, launches.program, target);
    for (std::size_t k = 0; k < plans.size(); ++k) {
      const nvptx::BlockCertificate certificate = nvptx::check_block_plan(plans[k]);
      if (!certificate.violations.empty())
        internal_error("the plan of kernel {} is wrong: {}", kernel.symbol, fmt::join(certificate.violations, "; "));
      const std::string name = kernel.symbol + (plans.size() > 1 ? k == 0 ? ", where vectors fit" : ", elsewhere" : "");
      for (const std::string& fact : certificate.proved) facts.push_back(fmt::format("{}: {}", name, fact));
      for (const std::string& open : certificate.unproved) facts.push_back(fmt::format("{}: {}{}", name, kNotProved, open));
    }
  }
  return facts;
}

}  // namespace nestor
