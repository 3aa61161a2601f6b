// The proof's driver, what its parts know of a plan, and the sentences of a certificate.
#include "codegen/gpu/simt/proof/block_check.h"

#include "codegen/gpu/simt/proof/block_proof.h"
#include "support/debug.h"

#include <fmt/ranges.h>

namespace nestor::nvptx {
namespace {

/// Each op stands once in the tree, threads and layouts are possible ones.
void prove_shape(BlockProof& proof) {
  std::vector<int> seen(proof.plan.ops.size(), 0);
  for (const OpSite& site : proof.sites) {
    if (site.op < 0 || static_cast<std::size_t>(site.op) >= seen.size())
      return proof.fail("the plan's tree names no op {}", site.op);
    ++seen[site.op];
  }
  for (std::size_t k = 0; k < seen.size(); ++k) {
    if (seen[k] != 1) proof.fail("{} stands {} times in the plan's tree", proof.plan.ops[k].op.name, seen[k]);
  }
  const BlockPlan& plan = proof.plan;
  if (plan.threads < 32 || plan.threads > 1024 || plan.threads % 32 != 0) proof.fail("a block of {} threads", plan.threads);
  if (plan.cluster < 1 || plan.cluster > 16 || plan.cluster != plan.kernel->shape.cluster)
    proof.fail("a cluster of {} blocks", plan.cluster);
  for (const BlockOp& op : plan.ops) {
    if (op.layout.vector < 1 || op.layout.lanes < 1 || op.layout.groups < 1 || op.layout.run < 1 ||
        (op.layout.run > 1 && op.product) || op.layout.threads() != plan.all_threads())
      proof.fail("{}: {} lanes and {} groups are not the {} threads, each once", op.op.name, op.layout.lanes, op.layout.groups,
                 plan.all_threads());
    if (op.roles.size() != op.op.dims.size() || op.read_vectors.size() != op.op.reads.size() ||
        op.strided_reads.size() != op.op.reads.size())
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
    if (place.stages > 0)
      facts.push_back(
          fmt::format("{}: copies of {} trips on their way; each is read after it has arrived and before it is overwritten",
                      plan.buffer(buffer).name, place.stages));
  }
  return facts;
}

}  // namespace

BlockCertificate check_block_plan(const BlockPlan& plan) {
  const DebugTimer timer("proof of a block plan");
  BlockProof proof(plan);
  // What follows relies on what came before.
  for (const auto part :
       {prove_shape, prove_tree, prove_points, prove_products, prove_prefixes, prove_carried, prove_own_sums, prove_reductions,
        prove_registers, prove_trips, prove_places, prove_order, prove_windows, prove_joined}) {
    if (proof.good()) part(proof);
  }
  BlockCertificate certificate;
  certificate.violations = proof.violations;
  certificate.unproved = proof.unproved;
  if (certificate.holds()) certificate.proved = sentences(proof);
  return certificate;
}

}  // namespace nestor::nvptx
