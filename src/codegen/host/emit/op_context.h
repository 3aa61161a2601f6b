// One op being lowered: its accesses as strided offsets, the values of its dims so far, loads and stores of lanes.
#pragma once

#include "codegen/host/emit/frame.h"

#include <vector>

namespace nestor {

/// The lanes that an instruction works on: `width` consecutive values of dim `dim`, the first of which is bound.
struct Lanes {
  int dim = -1;
  unsigned width = 1;
};

class OpContext {
 public:
  OpContext(Frame& frame, const TileOp& op);

  Frame& frame;
  const TileOp& op;

  llvm::Value* lower(int dim) const { return bounds_[dim].first; }
  llvm::Value* upper(int dim) const { return bounds_[dim].second; }
  /// upper - lower when it is the same number each time the op runs.
  std::optional<std::int64_t> extent(int dim) const;

  static constexpr int kWrite = -1;  ///< names the write among accesses; reads are 0, 1, ...
  /// How an access moves with a dim. irregular: not by a fixed distance.
  enum class Motion { none, unit, strided, irregular };
  Motion motion(int access, int dim) const;
  llvm::Value* stride(int access, int dim) const;  ///< in elements; 0 when it does not move
  ElementType type(int access) const;
  int buffer(int access) const;

  /// Gives a dim its value; offsets of affine accesses move along. Nests: close in reverse order.
  void open(int dim, llvm::Value* value);
  void close(int dim);
  /// Like open, for a dim that has a value already: moves it on by `distance`.
  void shift(int dim, std::int64_t distance);

  /// A mask known to have at least one lane: what is the same in all lanes needs no test then.
  llvm::Value* tail_mask = nullptr;

  /// Address of the access at the bound dims (unbound ones count as 0).
  llvm::Value* address(int access);

  /// Element(s) of a read or of the write in register form; one value if the lanes do not differ. Lanes outside `mask`
  /// (i1, vector of i1, or null for all) are not touched.
  llvm::Value* load(int access, Lanes lanes, llvm::Value* mask);
  void store(llvm::Value* value, Lanes lanes, llvm::Value* mask, bool nontemporal = false);

  /// Asks for what the task's next iteration will read where these lanes (`count` vectors) read an input for the last
  /// time. The first op that reads a row waits for memory, the last one has it in the cache and memory is idle; hardware
  /// prefetchers do not help, as they stop at the end of a page.
  void prefetch(Lanes lanes, unsigned count);

  /// The op's value converted to `type`.
  llvm::Value* value(Lanes lanes, llvm::Value* mask, ElementType type);

  /// Condition of some parts of the guard at the bound dims: i1, vector of i1, or null when there are none.
  llvm::Value* condition(const std::vector<IntExpr>& parts, Lanes lanes);

 private:
  struct Strided {
    const TileAccess* source;
    std::vector<llvm::Value*> stride;  ///< by dim; null: irregular
    llvm::Value* next = nullptr;       ///< distance to the task's next iteration, in elements; null: none or unknown
    bool affine = true;
    llvm::Value* offset = nullptr;  ///< elements, at the bound dims
  };
  void move(int dim, llvm::Value* value, llvm::Value* distance);
  Strided bind(const TileAccess& access);
  llvm::Value* distance_to_next(const TileAccess& access);
  Strided& at(int access) { return accesses_[std::ptrdiff_t{access} + 1]; }
  const Strided& at(int access) const { return accesses_[std::ptrdiff_t{access} + 1]; }
  llvm::Value* element_address(int access, llvm::Value* offset);
  llvm::Value* offset_now(int access);
  llvm::Value* offset_of_lane(int access, Lanes lanes, unsigned lane);
  llvm::Value* load_unit(int access, Lanes lanes, llvm::Value* mask);
  llvm::Value* load_raw(int access, llvm::Value* offset, llvm::Value* mask);
  llvm::Value* load_lanes_apart(int access, Lanes lanes, llvm::Value* mask);
  void store_raw(llvm::Value* value, llvm::Value* offset);
  llvm::Value* spare();

  std::vector<Strided> accesses_;  ///< the write first
  std::vector<std::pair<llvm::Value*, llvm::Value*>> bounds_;
  std::vector<std::vector<llvm::Value*>> saved_;  ///< offsets before each open
  std::vector<llvm::Value*> shadowed_;
};

}  // namespace nestor
