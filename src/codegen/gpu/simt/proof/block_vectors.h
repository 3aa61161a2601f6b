// What divides values, and whether accesses may move several elements at once (block_check.h, 2.).
#pragma once

#include "codegen/gpu/simt/proof/block_proof.h"

#include <map>

namespace nestor::nvptx {

inline bool is_power_of_two(std::int64_t value) { return value > 0 && (value & (value - 1)) == 0; }

/// Numbers that divide values at an op's points, under the plan's conditions. Along the dim `vector_var` those points count that are a
/// multiple of `vector` away from its lower bound.
class Divisors {
 public:
  Divisors(const BlockProof& proof, const OpSite& site, const std::string& vector_var, std::int64_t vector);
  std::int64_t of(const IntExpr& expr) const;  ///< 0: the value is 0
  bool divide_extent(const OpDim& dim, std::int64_t width) const;

 private:
  std::map<std::string, std::int64_t> known_;
};

/// The access moves `width` elements along `var` at once: they are neighbours, and pieces of at most 16 bytes start where they may.
/// `stride`: of those that they are neighbours of, one is the next column's.
void prove_vector(BlockProof& proof, const BlockOp& op, const TileAccess& access, const std::string& var, std::int64_t width,
                  const Divisors& divisors, std::int64_t stride = 1);

/// The read's columns are `stride` elements apart, and what lies between them may be loaded with them: the op reads the first and the last
/// element of each such piece at every point.
void prove_strided(BlockProof& proof, const BlockOp& op, std::size_t read, const std::string& var, std::int64_t width,
                   const Divisors& divisors);

/// The constant bound of a dim's extent, from which slots are counted, is one.
void prove_extent(BlockProof& proof, const OpSite& site, int dim);

}  // namespace nestor::nvptx
