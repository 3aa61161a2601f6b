// The proof's driver and its simple parts: what exists, where it lies, which tiles circular buffers hold.
#include "codegen/gpu/mma/proof/tensor_check.h"

#include "codegen/gpu/mma/proof/tensor_proof.h"
#include "codegen/tile/analysis/conditions.h"
#include "poly/isl/context.h"
#include "support/debug.h"
#include "support/tensor_view.h"

#include <algorithm>

namespace nestor::nvptx {
namespace {

using Kind = Event::Kind;

bool names_ring(Kind kind) {
  return kind == Kind::wait_full || kind == Kind::wait_empty || kind == Kind::load || kind == Kind::release ||
         kind == Kind::next_tile || kind == Kind::take_registers;
}

bool names_op(Kind kind) {
  return kind == Kind::product || kind == Kind::compute || kind == Kind::narrow || kind == Kind::read_test;
}

bool in_range(int k, std::size_t size) { return k >= 0 && static_cast<std::size_t>(k) < size; }

/// Events that only one kind of tensor cores has.
bool fits(Kind kind, TensorCores cores) {
  const bool all_copy = kind == Kind::commit_copies || kind == Kind::wait_copies || kind == Kind::barrier;
  const bool one_copies = kind == Kind::next_tile || kind == Kind::wait_empty || kind == Kind::wait_stores ||
                          kind == Kind::wait_turn || kind == Kind::pass_turn;
  return cores == TensorCores::wgmma ? !all_copy : !one_copies;
}

void check_event(TensorProof& proof, const Event& event, bool in_producer) {
  const bool of_producer = event.kind == Kind::wait_empty || event.kind == Kind::load;
  const bool one_role = proof.plan.cores == TensorCores::mma;
  if (one_role ? in_producer : of_producer != in_producer) proof.fail("{} stands in the other role", name_of(event.kind));
  if (!fits(event.kind, proof.plan.cores)) proof.fail("{} is not for these tensor cores", name_of(event.kind));
  if (names_ring(event.kind) && !in_range(event.ring, proof.plan.circular_buffers.size()))
    proof.fail("{} names no circular buffer", name_of(event.kind));
  if (names_op(event.kind)) {
    if (!in_range(event.op, proof.plan.ops.size())) return proof.fail("{} names no op", name_of(event.kind));
    const TensorOp& op = proof.op(event.op);
    const bool product = op.kind == TensorOp::Kind::product, tested = event.kind == Kind::read_test;
    if (tested ? !op.test : product != (event.kind != Kind::compute))
      proof.fail("{} of {} is not its kind of event", name_of(event.kind), op.op.name);
    if (event.kind == Kind::narrow && op.a_ring >= 0)
      proof.fail("narrow of {}, whose operand is in a circular buffer", op.op.name);
  }
  if ((event.kind == Kind::wait_products || event.kind == Kind::wait_copies) && event.count < 0)
    proof.fail("{} of {}", name_of(event.kind), event.count);
  const bool streamed =
      names_ring(event.kind) && in_range(event.ring, proof.plan.circular_buffers.size()) && proof.ring(event.ring).streamed;
  if (event.kind == Kind::load && (event.count < 0 || (event.count > 0 && !(one_role && streamed))))
    proof.fail("load of {} iterations later", event.count);
  const bool turn = event.kind == Kind::wait_turn || event.kind == Kind::pass_turn;
  if (turn && !proof.plan.has_turns()) proof.fail("{} in a kernel without turns", name_of(event.kind));
}

/// Sizes and what a block's coordinates give: the same in all its threads.
std::set<std::string> uniform_names(const TensorPlan& plan) {
  std::set<std::string> names(plan.program->sizes.begin(), plan.program->sizes.end());
  for (const GridLoop& loop : plan.kernel->grid) names.insert(loop.var);
  for (const LaunchLoop& loop : plan.kernel->launch_loops) names.insert(loop.var);
  for (const VisitedLoop& loop : plan.visited) names.insert(loop.count);
  return names;
}

void check_uniform(TensorProof& proof, const Role& role) {
  const std::set<std::string> uniform = uniform_names(proof.plan);
  const auto check = [&](const IntExpr& expr, const std::string& allowed) {
    std::set<std::string> names;
    if (expr.defined()) collect_variables(expr, names);
    for (const std::string& name : names) {
      if (uniform.count(name) == 0 && name != allowed) proof.fail("{} in a bound is not known to all threads", name);
    }
  };
  for (const RoleBlock& block : role) {
    for (const IntExpr& condition : block.conditions) check(condition, "");
    check(block.lower, "");
    check(block.upper, "");
    for (const RoleStep& step : block.steps) check(step.value, block.var);
  }
}

/// Whether products that read a circular buffer's tile may be under way at a store, and the next tile at what the store moves, going through a
/// role's program in its order.
class Handover {
 public:
  Handover(const TensorProof& proof, int ring, int store) : proof_(proof), ring_(ring), store_(store) {}
  /// The store comes once, and no reader of the tile is under way then or comes later. In a resident block, where another tile follows,
  /// the place is this work tile's then, and is not given back before what leaves through it has been read.
  bool holds() {
    visit(proof_.plan.consumer);
    return good_ && stored_;
  }

 private:
  void visit(const EventNode& node) {
    if (node.kind == EventNode::Kind::event) return visit(node.event);
    for (const EventNode& child : node.children) visit(child);
  }
  void visit(const Event& event) {
    const bool reads = (event.kind == Kind::product && proof_.op(event.op).a_ring == ring_) ||
                       (event.kind == Kind::take_registers && event.ring == ring_);
    if (reads && stored_) good_ = false;
    if (event.kind == Kind::product && reads) under_way_ = true;
    if (event.kind == Kind::wait_products && event.count == 0) under_way_ = false;
    if (event.kind == Kind::compute && event.op == store_) {
      good_ = good_ && !under_way_ && !stored_ && (held_ || !proof_.plan.persistent());
      stored_ = leaving_ = true;
    }
    if (event.kind == Kind::wait_stores) leaving_ = false;
    if (event.ring != ring_) return;
    if (event.kind == Kind::wait_full) held_ = true;
    if (event.kind != Kind::release) return;
    held_ = false;
    if (proof_.plan.persistent() && leaving_) good_ = false;
  }

  const TensorProof& proof_;
  int ring_, store_;
  bool under_way_ = false, held_ = false, stored_ = false, leaving_ = false, good_ = true;
};

/// May an op run more than once for a work tile?
bool is_repeated(const TensorProof& proof, int op) { return proof.places[static_cast<std::size_t>(op)].loop >= 0; }

/// May a result leave through the place of this circular buffer's tile? The tile stays for the work tile and is the block's only one, each warpgroup reads
/// its own rows of it alone (as first operand), the result's rows lie where those were, and the reading is over.
bool hands_over(const TensorProof& proof, int ring_number, int store_number, std::int64_t bytes) {
  const CircularBuffer& ring = proof.ring(ring_number);
  if (proof.plan.ping_pong_tiles() || ring.streamed || ring.blocks != 1 || ring.stages != 1 || ring.rows != proof.plan.rows() ||
      bytes > ring.stage_bytes())
    return false;
  if (is_repeated(proof, store_number)) return false;
  for (const TensorOp& op : proof.plan.ops) {
    if (op.b_ring == ring_number || (op.a_ring == ring_number && op.a_by_row)) return false;
  }
  return Handover(proof, ring_number, store_number).holds();
}

/// Each batch of blocks, of two work tiles in turn, finds its place free: what was written there before is none of the youngest batches, which
/// may still leave. Without `again` the second tile does not wait for the first.
void check_waits(TensorProof& proof, const TensorOp& op, std::int64_t blocks, bool again) {
  if (op.stage_blocks < 1 || proof.plan.cores != TensorCores::wgmma) return;  // without tensor copies, warps wait for themselves
  const int batch = op.stage_batch(static_cast<int>(blocks));
  const auto batches = static_cast<std::size_t>(blocks / batch);
  if (op.stage_pending.size() != batches || op.stage_blocks % batch != 0)
    return proof.fail("{} has {} batches, and waits for the places of {}", op.op.name, batches, op.stage_pending.size());
  const int places = op.stage_blocks / batch;
  std::vector<int> written;  // the place of each batch, in order
  for (int tile = 0; tile < (again ? 2 : 1); ++tile) {
    for (std::size_t n = 0; n < batches; ++n) {
      const int place = static_cast<int>(n) % places;
      const auto kept = op.stage_pending[n] < 0
                            ? written.begin()
                            : written.end() - std::min<std::ptrdiff_t>(op.stage_pending[n], written.end() - written.begin());
      if (std::find(kept, written.end(), place) != written.end())
        proof.fail("{} writes part {} of a tile over one that may still leave", op.op.name, n);
      written.push_back(place);
    }
  }
}

/// Places in shared memory: stages on whole swizzles, nothing over anything else.
void check_memory(TensorProof& proof) {
  struct Span {
    std::int64_t from, to;
    std::string name;
  };
  std::vector<Span> spans;
  std::int64_t barriers = 0;
  for (int r = 0; r < static_cast<int>(proof.plan.circular_buffers.size()); ++r) {
    const CircularBuffer& ring = proof.ring(r);
    if (ring.stages < 1) proof.fail("{} has {} stages", proof.name(r), ring.stages);
    if (proof.plan.cores == TensorCores::wgmma && !ring.scheduler &&
        !starts_with_unit(ring.origin.back(), proof.plan.buffer(ring.buffer).type))
      proof.fail("tiles of {} do not start at multiples of {} bytes in memory", proof.name(r), kTensorMapAlignment);
    const std::int64_t alignment = ring.scheduler ? kWorkTileBytes : kTileAlignment;
    if (ring.offset % alignment != 0 || ring.stage_bytes() % alignment != 0)
      proof.fail("stages of {} do not start at multiples of {} bytes", proof.name(r), alignment);
    spans.push_back({ring.offset, ring.offset + ring.stages * ring.stage_bytes(), proof.name(r)});
    if (proof.plan.cores == TensorCores::wgmma) barriers += std::int64_t{2} * ring.stages * kBarrierBytes;
  }
  std::set<std::int64_t> heirs;  // places that a result has taken over
  for (const TensorOp& op : proof.plan.ops) {
    if (op.kind != TensorOp::Kind::store || !op.through_shared) continue;
    const OpDim& column = op.op.dims[static_cast<std::size_t>(op.column)];
    if (proof.plan.cores == TensorCores::wgmma && !starts_with_unit(op.op.write.index.back().substitute(column.var, IntExpr(0)),
                                                                    proof.plan.buffer(op.op.write.buffer).type))
      proof.fail("tiles of {} do not start at multiples of {} bytes in memory", op.op.name, kTensorMapAlignment);
    const auto columns = end_bound(column).value_or(0);
    if (op.stage_columns != kBlockColumns && op.stage_columns != kBlockColumns / 2)
      proof.fail("{} is stored in blocks of {} columns, for which there is no swizzle", op.op.name, op.stage_columns);
    const std::int64_t blocks = ceil_div(columns, op.stage_columns),
                       block_bytes = std::int64_t{proof.plan.rows()} * op.stage_pitch();
    if (op.stage_blocks < 1 || op.stage_blocks > blocks)
      proof.fail("{} has a place for {} blocks of columns, and has {}", op.op.name, op.stage_blocks, blocks);
    const auto number = static_cast<int>(&op - proof.plan.ops.data());
    const auto taken = std::find_if(proof.plan.circular_buffers.begin(), proof.plan.circular_buffers.end(),
                                    [&](const CircularBuffer& ring) { return ring.offset == op.stage_offset; });
    if (taken != proof.plan.circular_buffers.end() && heirs.insert(op.stage_offset).second && op.stage_columns == kBlockColumns &&
        hands_over(proof, static_cast<int>(taken - proof.plan.circular_buffers.begin()), number, blocks * block_bytes)) {
      check_waits(proof, op, blocks, false);  // where another tile follows, the handover waits
      continue;
    }
    const bool again = proof.plan.persistent() || is_repeated(proof, number);
    if (!op.waits_for_place && again) proof.fail("{} is stored again before what it stored has left", op.op.name);
    check_waits(proof, op, blocks, again);
    const std::int64_t places = proof.plan.warpgroups / proof.plan.sharing_warpgroups();
    spans.push_back({op.stage_offset, op.stage_offset + places * op.stage_blocks * block_bytes, op.op.name});
  }
  spans.push_back({proof.plan.barriers_offset, proof.plan.barriers_offset + barriers, "the barriers"});
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.from < b.from; });
  for (std::size_t k = 1; k < spans.size(); ++k) {
    if (spans[k].from < spans[k - 1].to) proof.fail("{} lies over {} in shared memory", spans[k].name, spans[k - 1].name);
  }
  // The first tile may start anywhere within a swizzle's alignment of what the block was given.
  if (spans.back().to + kTileAlignment > proof.plan.shared_bytes)
    proof.fail("{} lies beyond the block's shared memory", spans.back().name);
}

/// The first index that uses a dim; -1: none does, or there is no such dim.
int index_along(const TensorOp& op, const TileAccess& access, int dim) {
  if (dim < 0) return -1;
  const std::string& var = op.op.dims[static_cast<std::size_t>(dim)].var;
  const auto found =
      std::find_if(access.index.begin(), access.index.end(), [&](const IntExpr& index) { return index.uses(var); });
  return found == access.index.end() ? -1 : static_cast<int>(found - access.index.begin());
}

/// The index along which each block of a cluster reads its own rows; -1: all read the same.
int own_index(const TensorPlan& plan, const TensorOp& op, const TileAccess& access) {
  return plan.cluster() == 1 ? -1 : index_along(op, access, op.row);
}

/// Rows of a packed tile are those of the access: each place of a pack has its own, as many as the tile holds.
bool packs_match(const TensorProof& proof, const TensorOp& op, const CircularBuffer& ring, const TileAccess& access) {
  const int along = index_along(op, access, op.pack);
  if (ring.pack_index != along) return false;
  if (along < 0) return proof.plan.pack == 1 || index_along(op, access, op.row) < 0;
  const OpDim& dim = op.op.dims[static_cast<std::size_t>(op.pack)];
  return access.index[static_cast<std::size_t>(along)].coefficient(dim.var) == ring.pack_stride && along != ring.row_index &&
         along + 1 < static_cast<int>(access.index.size()) && never_negative(dim) &&
         end_bound(dim).value_or(proof.plan.pack + 1) <= proof.plan.pack && ring.rows % proof.plan.pack == 0;
}

/// The circular buffer holds the tile of an access over the op's dims `over`, and nobody writes the argument.
void check_operand(TensorProof& proof, const TensorOp& op, int ring_number, const TileAccess& access,
                   const std::vector<int>& over) {
  if (!in_range(ring_number, proof.plan.circular_buffers.size()))
    return proof.fail("{} has no circular buffer for an operand", op.op.name);
  for (const TensorOp& writer : proof.plan.ops) {
    if (writer.op.write.buffer == access.buffer)
      proof.fail("{} is copied to shared memory while {} writes it", proof.plan.buffer(access.buffer).name, writer.op.name);
  }
  const CircularBuffer& ring = proof.ring(ring_number);
  bool same = ring.buffer == access.buffer && ring.origin.size() == access.index.size();
  for (std::size_t p = 0; same && p < access.index.size(); ++p) {
    IntExpr origin = access.index[p];
    for (const int dim : over) {
      if (dim >= 0) origin = origin.substitute(op.op.dims[static_cast<std::size_t>(dim)].var, IntExpr(0));
    }
    same = affine_of(origin) == affine_of(ring.origin[p]);
  }
  if (!same) proof.fail("{} does not hold the tile that {} reads", proof.name(ring_number), op.op.name);
  if (ring.own_index != own_index(proof.plan, op, access))
    proof.fail("blocks of a cluster find each other's rows of {} for {}", proof.name(ring_number), op.op.name);
  if (!packs_match(proof, op, ring, access))
    proof.fail("{} does not hold the rows of a pack as {} reads them", proof.name(ring_number), op.op.name);
}

/// A first operand that is computed in f32 is multiplied in as many 16-bit numbers as the step says, every other one as it is.
void check_halves(TensorProof& proof, const TensorOp& op, const TileAccess& a) {
  const bool computed = op.a_ring < 0 && proof.plan.buffer(a.buffer).type == ElementType::f32;
  const int wanted = computed && proof.plan.kernel->shape.operand_halves != 0 ? 2 : 1;
  if (op.halves != wanted) proof.fail("{} multiplies an operand as {} 16-bit numbers, not as {}", op.op.name, op.halves, wanted);
}

/// The circular buffer holds all elements that the op reads of the access, each at its own row and column.
void check_elements(TensorProof& proof, const TensorOp& op, int ring_number, const TileAccess& access) {
  if (op.kind == TensorOp::Kind::product || op.row < 0 || op.column < 0)
    return proof.fail("{} reads a tile of a circular buffer without rows and columns", op.op.name);
  TileAccess tile = access;  // at the only value of the other dims
  for (int d = 0; d < static_cast<int>(op.op.dims.size()); ++d) {
    const OpDim& dim = op.op.dims[static_cast<std::size_t>(d)];
    if (d == op.row || d == op.column || d == op.pack) continue;
    for (IntExpr& index : tile.index) index = index.substitute(dim.var, dim.lower);
  }
  check_operand(proof, op, ring_number, tile, {op.row, op.column, op.pack});
  if (!proof.violations.empty()) return;
  const CircularBuffer& ring = proof.ring(ring_number);
  const OpDim &row = op.op.dims[static_cast<std::size_t>(op.row)], &column = op.op.dims[static_cast<std::size_t>(op.column)];
  const int dense = static_cast<int>(access.index.size()) - 1;
  for (int p = 0; p <= dense; ++p) {
    const IntExpr& index = access.index[static_cast<std::size_t>(p)];
    if (index.coefficient(row.var) != (p == ring.row_index ? ring.row_stride : 0) ||
        index.coefficient(column.var) != (p == dense ? 1 : 0))
      proof.fail("{} does not hold rows and columns as {} reads them", proof.name(ring_number), op.op.name);
  }
  const auto fragment = proof.plan.fragments.find(op.op.write.buffer);
  const std::int64_t columns = std::max<std::int64_t>(fragment == proof.plan.fragments.end() ? 0 : fragment->second.columns,
                                                      end_bound(column).value_or(ring.columns + 1));
  if (ring.row_index == dense || ring.rows < proof.plan.rows() || std::int64_t{ring.column_blocks()} * kBlockColumns < columns)
    proof.fail("{} is smaller than what {} reads", proof.name(ring_number), op.op.name);
}

std::vector<std::string> sentences(const TensorProof& proof) {
  std::vector<std::string> result;
  const bool all_copy = proof.plan.cores == TensorCores::mma;
  const auto readers = [&](const CircularBuffer& ring) {
    std::string who = ring.readers == 1 ? "its warpgroup" : fmt::format("all {} warpgroups", ring.readers);
    return ring.blocks == 1 ? who : fmt::format("{} of {} blocks, each of which copies its share to all,", who, ring.blocks);
  };
  for (int r = 0; r < static_cast<int>(proof.plan.circular_buffers.size()); ++r) {
    const CircularBuffer& ring = proof.ring(r);
    if (ring.scheduler) {
      result.push_back(fmt::format("{}: the next work tile's number in {} stages, read by {} before it is overwritten",
                                   proof.name(r), ring.stages, readers(ring)));
      continue;
    }
    result.push_back(fmt::format(
        "{}: tiles of {} x {} in {} stage{}; each is read only after it has arrived, and overwritten only after {} {} "
        "released it",
        proof.name(r), ring.rows, ring.columns, ring.stages, ring.stages == 1 ? "" : "s", readers(ring),
        ring.readers == 1 ? "has" : "have"));
  }
  result.emplace_back(all_copy ? "a work tile reads each tile that it copies, behind a barrier before which every thread has "
                                 "waited for its part of the "
                                 "copy"
                               : "a work tile copies as many tiles as it waits for and releases, in one order, for any number of "
                                 "iterations and work tiles");
  result.emplace_back(
      "each product finds the tile of its own iteration; its sums, operand and tiles stay untouched until it has ended");
  result.emplace_back("each op runs once an iteration, and accesses to one tile keep the tile program's order");
  result.emplace_back(
      "masks, full tiles and what stands outside of points leave every element that is read as the tile program does");
  for (const TensorOp& op : proof.plan.ops) {
    if (op.halves > 1)
      result.push_back(fmt::format("{}: its operand is multiplied as the sum of two 16-bit numbers an element", op.op.name));
    if (op.test)
      result.push_back(
          fmt::format("{}: a tile does without its test of values where all columns have the usual outcome", op.op.name));
  }
  if (all_copy) {
    result.emplace_back("no deadlock: all threads of a block come to the same barriers");
  } else {
    if (proof.plan.ping_pong_tiles())
      result.emplace_back("all work tiles have as many tiles, and a warpgroup waits for its own when those before have arrived");
    result.push_back(fmt::format("no deadlock: waits follow the order of copies{}",
                                 proof.plan.ping_pong()         ? ", and no release stands within a turn"
                                 : proof.plan.ping_pong_tiles() ? ", and turns that of work tiles"
                                                                : ""));
  }
  return result;
}

}  // namespace

void prove_shape(TensorProof& proof) {
  for (const auto& [role, in_producer] : {std::pair(&proof.consumer, false), std::pair(&proof.producer, true)}) {
    for (const RoleBlock& block : *role) {
      for (const RoleStep& step : block.steps) check_event(proof, step.event, in_producer);
    }
    check_uniform(proof, *role);
  }
  if (proof.places.size() != proof.plan.ops.size())
    proof.fail("{} ops for {} of the tile program", proof.plan.ops.size(), proof.places.size());
  check_memory(proof);
}

void prove_operands(TensorProof& proof) {
  for (const TensorOp& op : proof.plan.ops) {
    for (const auto& [read, ring] : op.read_rings) check_elements(proof, op, ring, op.op.reads[static_cast<std::size_t>(read)]);
    if (op.kind != TensorOp::Kind::product) continue;
    const TileAccess &a = op.op.reads[static_cast<std::size_t>(op.form.a)], &b = op.op.reads[static_cast<std::size_t>(op.form.b)];
    check_halves(proof, op, a);
    check_operand(proof, op, op.b_ring, b, {op.form.column, op.form.k});
    if (op.a_ring >= 0) check_operand(proof, op, op.a_ring, a, {op.form.row, op.form.k, op.form.pack});
  }
}

TensorCertificate check_tensor_plan(const TensorPlan& plan) {
  BoundAnswers known;
  return check_tensor_plan(plan, known);
}

TensorCertificate check_tensor_plan(const TensorPlan& plan, BoundAnswers& known) {
  const DebugTimer timer("proof of a tensor plan");
  TensorProof proof(plan, known);
  with_isl_budget("proving the synchronisation of kernel '" + plan.program->name + "'", [&] {
    proof.consumer = role_of(plan.consumer, proof.bounds, proof.violations);
    proof.producer = role_of(plan.producer, proof.bounds, proof.violations);
    proof.places = places_of_ops(plan.kernel->body);
    proof.counted = proof.places;
    prove_visits(proof);
    // What follows relies on what came before.
    for (const auto part : {prove_shape, prove_sharing, prove_operands, prove_rows, prove_blocks, prove_tiles, prove_copies,
                            prove_order, prove_memory, prove_values, prove_column_tests}) {
      if (proof.violations.empty()) part(proof);
    }
  });
  TensorCertificate certificate;
  certificate.violations = proof.violations;
  if (certificate.violations.empty()) certificate.proved = sentences(proof);
  return certificate;
}

}  // namespace nestor::nvptx
