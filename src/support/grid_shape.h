// GridShape: the knobs of a loop over GPU blocks as a struct, for code that reads them one by one.
#pragma once

#include <algorithm>

namespace nestor {

/// How iterations of a loop over GPU blocks are given to threads. Members are named as the knobs of support/knobs.cc, which say what they do.
struct GridShape {
  int threads = 0;                  ///< of a block, a multiple of 32; 0: left to the back end
  int warpgroups = 0;               ///< that compute products on tensor cores, operands rounded to 16 bits; 0: no tensor cores
  int stages = 2;                   ///< of each operand's circular buffer, with warpgroups
  int intra_warpgroup_overlap = 0;  ///< 1: products of two iterations together; more: 1 + the chains of products in flight
  int ping_pong = 0;                ///< 1: warpgroups issue their products in turn
  int a_from_registers = 0;         ///< 1: a first operand that stays for the iteration is read into registers once
  int early_release = 0;            ///< 1: a stage is released in the middle of the exponentials behind its product
  int exp2_polynomial = 0;          ///< sixteenths of a tile's exponentials that the FMA units compute
  int persistent = 0;         ///< blocks started for each multiprocessor, each taking iterations in turn; 0: one an iteration
  int min_blocks = 0;         ///< blocks that a multiprocessor shall hold at once; 0: left to the back end
  int cluster = 1;            ///< blocks that take one iteration together, a power of two
  int dynamic_scheduler = 0;  ///< 1: persistent blocks draw their next iteration from a counter
  bool operator==(const GridShape& other) const = default;

  /// Blocks that registers and shared memory of a multiprocessor are shared out to.
  int blocks_per_unit() const { return std::max({min_blocks, persistent, 1}); }
};

}  // namespace nestor
