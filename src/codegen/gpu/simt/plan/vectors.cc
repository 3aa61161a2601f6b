// Which accesses may move 16 bytes at once, and under which conditions on sizes, addresses and strides.
#include "codegen/gpu/simt/plan/block_plan.h"

#include <algorithm>

namespace nestor::nvptx {
namespace {

/// Conditions gathered while an op is examined; added to the plan only when all of it holds.
struct Conditions {
  std::set<std::string> sizes;
  std::map<int, std::int64_t> alignments;
};

std::set<std::string> dynamic_sizes(const TileProgram& program) {
  std::set<std::string> names;
  for (const std::string& size : program.sizes) {
    if (program.fixed_sizes.count(size) == 0) names.insert(size);
  }
  return names;
}

bool divides(const IntExpr& expr, std::int64_t width, const Multiples& multiples, const std::set<std::string>& sizes,
             Conditions& out) {
  return known_multiple(expr, multiples, sizes, width, out.sizes) % width == 0;
}

/// Elements that fill words as they are: truth values take bytes, and an i64 is wider than its value.
bool in_words(const BlockPlan& plan, const TileAccess& access) {
  const ElementType type = plan.buffer(access.buffer).type;
  return type != ElementType::boolean && type != ElementType::i64;
}

/// The access moves `width` elements along `var` when its last index runs along it, `stride` elements at a time, and starts at a multiple of
/// `width`.
bool access_fits(const BlockPlan& plan, const TileAccess& access, const std::string& var, std::int64_t width,
                 const Multiples& multiples, const std::set<std::string>& sizes, Conditions& out, std::int64_t stride = 1) {
  const Buffer& buffer = plan.buffer(access.buffer);
  if (!in_words(plan, access) || access.index.empty() || access.index.back().coefficient(var) != stride) return false;
  for (std::size_t k = 0; k + 1 < access.index.size(); ++k) {
    if (access.index[k].uses(var)) return false;
  }
  if (!divides(access.index.back(), width, multiples, sizes, out)) return false;
  if (buffer.memory == Memory::workspace && buffer.extents.size() > 1 && buffer.pad % width != 0 &&
      !divides(buffer.extents.back(), width, multiples, sizes, out)) {
    return false;
  }
  if (buffer.memory == Memory::argument) {
    out.alignments[access.buffer] = std::min<std::int64_t>(16, width * static_cast<std::int64_t>(size_in_bytes(buffer.type)));
  }
  return true;
}

void add(BlockPlan& plan, const Conditions& conditions, std::int64_t width) {
  for (const std::string& size : conditions.sizes) {
    std::int64_t& divisor = plan.size_divisors[size];
    divisor = std::max(divisor, width);
  }
  for (const auto& [buffer, bytes] : conditions.alignments) {
    std::int64_t& alignment = plan.alignments[buffer];
    alignment = std::max(alignment, bytes);
  }
}

/// Along the column in the last index with factor 1: neighbours in memory.
bool contiguous(const TileAccess& access, const std::string& var) {
  return !access.index.empty() && access.index.back().coefficient(var) == 1;
}

constexpr std::int64_t kMostStride = 4;

/// Is `a` so many elements behind `b` in a row of memory?
bool lies_behind(const TileAccess& a, const TileAccess& b, std::int64_t elements) {
  if (a.buffer != b.buffer || a.index.size() != b.index.size()) return false;
  for (std::size_t k = 0; k < a.index.size(); ++k) {
    const Affine apart = affine_of(a.index[k]) - affine_of(b.index[k]);
    if (!apart.is_constant() || apart.constant != (k + 1 == a.index.size() ? elements : 0)) return false;
  }
  return true;
}

/// The read as one of those that take whole pieces of memory together, each at its own offset; a stride of 0: it is none.
StridedRead strided_read(const BlockPlan& plan, const BlockOp& op, std::size_t read, std::int64_t width,
                         const Multiples& multiples, const std::set<std::string>& sizes, Conditions& out) {
  const TileAccess& access = op.op.reads[read];
  const std::string& var = op.op.dims[op.column].var;
  const std::int64_t stride = access.index.empty() ? 0 : access.index.back().coefficient(var).value_or(0);
  if (stride < 2 || stride > kMostStride || plan.placement(access.buffer) != nullptr || !op.window.empty()) return {};
  const std::set<int> always = unconditional_reads(op.op.value);
  if (!always.contains(static_cast<int>(read))) return {};
  const std::int64_t offset = (affine_of(access.index.back()).constant % stride + stride) % stride;
  const auto read_behind = [&](std::int64_t elements) -> const TileAccess* {
    for (const int k : always) {
      const TileAccess& other = op.op.reads[static_cast<std::size_t>(k)];
      if (lies_behind(other, access, elements)) return &other;
    }
    return nullptr;
  };
  const TileAccess* first = read_behind(-offset);
  if (first == nullptr || read_behind(stride - 1 - offset) == nullptr) return {};
  Conditions conditions = out;
  const std::int64_t most = 16 / static_cast<std::int64_t>(size_in_bytes(plan.buffer(access.buffer).type));
  if (!access_fits(plan, *first, var, std::min(width * stride, most), multiples, sizes, conditions, stride)) return {};
  out = std::move(conditions);
  return {static_cast<int>(stride), static_cast<int>(offset)};
}

}  // namespace

bool can_vectorise(BlockPlan& plan, BlockOp& op, int width, bool commit) {
  if (op.column < 0 || width <= 1) return false;
  const OpDim& dim = op.op.dims[op.column];
  const std::set<std::string> sizes = dynamic_sizes(*plan.program);
  Conditions conditions;
  if (op.op.guard.defined() && op.op.guard.uses(dim.var)) return false;
  for (const OpDim& other : op.op.dims) {  // elements of a vector run over the other dims together
    if (other.lower.uses(dim.var) || other.upper.uses(dim.var)) return false;
  }
  if (!divides(dim.lower, width, op.multiples, sizes, conditions) || !divides(dim.upper, width, op.multiples, sizes, conditions))
    return false;
  Multiples multiples = op.multiples;
  multiples[dim.var] = width;
  bool any = false;
  const auto examine = [&](const TileAccess& access, bool& flag) {
    flag = false;
    if (!uses_any(access, dim.var) || plan.in_registers(access)) return true;
    if (!contiguous(access, dim.var) || !in_words(plan, access)) return true;
    flag = access_fits(plan, access, dim.var, width, multiples, sizes, conditions);
    any = any || flag;
    return flag;
  };
  bool write = false;
  std::vector<char> reads(op.op.reads.size(), 0);
  bool fits = examine(op.op.write, write);
  for (std::size_t k = 0; fits && k < reads.size() && !op.product; ++k) {
    bool flag = false;
    fits = examine(op.op.reads[k], flag);
    reads[k] = flag;
  }
  if (!fits) return false;
  std::vector<StridedRead> strided(op.op.reads.size());
  for (std::size_t k = 0; write && k < strided.size() && !op.product; ++k)
    strided[k] = strided_read(plan, op, k, width, multiples, sizes, conditions);
  if (commit) {
    op.vectors = true;
    op.write_vector = write;
    op.read_vectors.assign(reads.begin(), reads.end());
    op.strided_reads = std::move(strided);
    add(plan, conditions, width);
  }
  return true;
}

bool can_copy_vectors(BlockPlan& plan, const BlockOp& op, int read, int dim_index, int width, bool commit) {
  const OpDim& dim = op.op.dims[dim_index];
  const std::set<std::string> sizes = dynamic_sizes(*plan.program);
  Conditions conditions;
  if (op.op.guard.defined()) return false;  // elements outside of the guard may lie outside of the tensor
  if (!divides(dim.lower, width, op.multiples, sizes, conditions) || !divides(dim.upper, width, op.multiples, sizes, conditions))
    return false;
  Multiples multiples = op.multiples;
  multiples[dim.var] = width;
  if (!access_fits(plan, op.op.reads[read], dim.var, width, multiples, sizes, conditions)) return false;
  if (commit) add(plan, conditions, width);
  return true;
}

bool can_load_neighbours(BlockPlan& plan, const BlockOp& op, int read, int dim_index, int width, bool commit) {
  const OpDim& dim = op.op.dims[dim_index];
  const TileAccess& access = op.op.reads[read];
  const std::set<std::string> sizes = dynamic_sizes(*plan.program);
  Conditions conditions;
  Multiples multiples = op.multiples;
  multiples[dim.var] = width;
  if (plan.in_registers(access) || !divides(dim.lower, width, op.multiples, sizes, conditions) ||
      !access_fits(plan, access, dim.var, width, multiples, sizes, conditions))
    return false;
  if (const Placement* place = plan.placement(access.buffer)) {
    for (std::size_t k = 0; k + 1 < place->strides.size(); ++k) {
      if (place->strides[k] % width != 0) return false;
    }
  }
  const bool free = conditions.sizes.empty() && conditions.alignments.empty();
  if (!free && !plan.vector_memory) return false;
  if (commit) add(plan, conditions, width);
  return true;
}

/// Marks the vector accesses. Without vector_memory only shared memory takes part, whose addresses are known.
void choose_vectors(BlockPlan& plan) {
  for (BlockOp& op : plan.ops) {
    if (op.op.kind == OpKind::points || op.layout.vector == 1 || !plan.vector_memory) continue;
    can_vectorise(plan, op, op.layout.vector, true);
  }
}

}  // namespace nestor::nvptx
