// Divisibility of values, and accesses of several elements.
#include "codegen/gpu/simt/proof/block_vectors.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace nestor::nvptx {

Divisors::Divisors(const BlockProof& proof, const OpSite& site, const std::string& vector_var, std::int64_t vector) {
  for (const auto& [size, divisor] : proof.plan.size_divisors) known_[size] = divisor;
  for (const SizeConstraint& constraint : proof.plan.program->valid) {
    const bool one = constraint.modulus > 0 && constraint.constant == 0 && constraint.terms.size() == 1;
    if (!one || constraint.terms.begin()->second != 1) continue;
    std::int64_t& known = known_.try_emplace(constraint.terms.begin()->first, 1).first->second;
    known = std::lcm(known, constraint.modulus);
  }
  for (const Axis& axis : proof.axes(site)) {
    const std::int64_t step = axis.var == vector_var && axis.dim >= 0 ? vector : axis.step;
    known_[axis.var] = std::gcd(of(axis.lower), axis.kind == Axis::Kind::name ? 0 : step);
  }
}

std::int64_t Divisors::of(const IntExpr& expr) const {
  const auto arg = [&](std::size_t k) { return of(expr.args()[k]); };
  switch (expr.op()) {
    case IntOp::constant:
      return expr.value() < 0 ? -expr.value() : expr.value();
    case IntOp::variable: {
      const auto found = known_.find(expr.name());
      return found == known_.end() ? 1 : found->second;
    }
    case IntOp::mul:
      return arg(0) * arg(1);
    case IntOp::add:
    case IntOp::sub:
    case IntOp::min:
    case IntOp::max:
    case IntOp::mod:
      return std::gcd(arg(0), arg(1));
    case IntOp::select:
      return std::gcd(arg(1), arg(2));
    case IntOp::floor_div: {
      const auto divisor = expr.args()[1].as_constant();
      return divisor && arg(0) % *divisor == 0 ? arg(0) / *divisor : 1;
    }
    default:
      return 1;
  }
}

bool Divisors::divide_extent(const OpDim& dim, std::int64_t width) const {
  const Affine length = affine_of(dim.upper) - affine_of(dim.lower);
  if (length.is_constant()) return length.constant % width == 0;
  return of(dim.upper) % width == 0 && of(dim.lower) % width == 0;
}

void prove_vector(BlockProof& proof, const BlockOp& op, const TileAccess& access, const std::string& var, std::int64_t width,
                  const Divisors& divisors, std::int64_t stride) {
  const Buffer& buffer = proof.plan.buffer(access.buffer);
  const Placement* place = proof.plan.placement(access.buffer);
  const auto bytes = static_cast<std::int64_t>(size_in_bytes(buffer.type));
  const std::int64_t piece = std::min<std::int64_t>(16, width * bytes);
  if (place != nullptr && place->kind == Placement::Kind::registers)
    return proof.fail("{} moves vectors of {}, which is in registers", op.op.name, buffer.name);
  bool dense = !access.index.empty() && access.index.back().coefficient(var) == stride;
  for (std::size_t k = 0; k + 1 < access.index.size(); ++k) dense = dense && !access.index[k].uses(var);
  if (!dense) return proof.fail("{}: a vector of {} is not dense", op.op.name, buffer.name);
  bool aligned = divisors.of(access.index.back()) * bytes % piece == 0;
  if (place != nullptr) {
    aligned = aligned && place->offset % piece == 0;
    for (std::size_t k = 0; k + 1 < access.index.size() && aligned; ++k)
      aligned = place->strides[k] * bytes * divisors.of(access.index[k]) % piece == 0;
  } else if (buffer.memory == Memory::workspace && access.index.size() > 1) {
    const std::int64_t elements = piece / bytes;
    aligned = aligned && (buffer.pad % elements == 0 || divisors.of(buffer.extents.back()) % elements == 0);
  } else if (buffer.memory == Memory::argument) {
    const auto tested = proof.plan.alignments.find(access.buffer);
    aligned = aligned && tested != proof.plan.alignments.end() && is_power_of_two(tested->second) && tested->second % piece == 0;
  }
  if (!aligned) proof.fail("{}: a vector of {} is not known to start at a multiple of {} bytes", op.op.name, buffer.name, piece);
}

void prove_strided(BlockProof& proof, const BlockOp& op, std::size_t read, const std::string& var, std::int64_t width,
                   const Divisors& divisors) {
  const auto [stride, offset] = op.strided_reads[read];
  const TileAccess& access = op.op.reads[read];
  if (stride < 2 || offset < 0 || offset >= stride || access.index.empty() || !op.window.empty())
    return proof.fail("{}: read {} is not one of {} neighbours", op.op.name, read, stride);
  if (proof.plan.placement(access.buffer) != nullptr)
    return proof.fail("{} loads pieces of {}, which is not in memory", op.op.name, proof.plan.buffer(access.buffer).name);
  // What an unconditional read of the same point touches is there.
  const std::set<int> always = unconditional_reads(op.op.value);
  const auto read_at = [&](std::int64_t place) -> const TileAccess* {
    for (const int k : always) {
      const TileAccess& other = op.op.reads[static_cast<std::size_t>(k)];
      bool there = other.buffer == access.buffer && other.index.size() == access.index.size();
      for (std::size_t d = 0; there && d < access.index.size(); ++d) {
        const Affine apart = affine_of(other.index[d]) - affine_of(access.index[d]);
        there = apart.is_constant() && apart.constant == (d + 1 == access.index.size() ? place - offset : 0);
      }
      if (there) return &other;
    }
    return nullptr;
  };
  const TileAccess* first = read_at(0);
  if (!always.contains(static_cast<int>(read)) || first == nullptr || read_at(stride - 1) == nullptr)
    return proof.fail("{}: what lies between columns of {} may not exist", op.op.name, proof.plan.buffer(access.buffer).name);
  prove_vector(proof, op, *first, var, width * stride, divisors, stride);
}

}  // namespace nestor::nvptx
