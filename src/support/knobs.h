// Knobs: named integers that a schedule puts on a loop for the machine that runs it, and the one table of all of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace nestor {

/// How iterations of a loop over GPU blocks are given to threads. Members are named as the knobs of support/knobs.cc, which say what they do.
struct GridShape {
  int threads = 0;                  ///< of a block, a multiple of 32; 0: left to the back end
  int warpgroups = 0;               ///< that compute products on tensor cores, operands rounded to 16 bits; 0: no tensor cores
  int stages = 2;                   ///< of each operand's circular buffer, with warpgroups
  int intra_warpgroup_overlap = 0;  ///< 1: products of two iterations together; more: 1 + the chains of products in flight
  int ping_pong = 0;                ///< 1: warpgroups issue their products in turn
  int ping_pong_tiles = 0;          ///< 1: warpgroups take iterations of their own in turn, and do not share one
  int a_from_registers = 0;         ///< 1: a first operand that stays for the iteration is read into registers once
  int early_release = 0;            ///< 1: a stage is released in the middle of the exponentials behind its product
  int exp2_polynomial = 0;          ///< sixteenths of a tile's exponentials that the FMA units compute
  int operand_halves = 0;  ///< 1: operands computed in f32 are multiplied as sums of two 16-bit numbers, and not rounded to one
  int swap_ab = 0;         ///< 1: products are transposed, so that tiles of few rows have them as columns
  int persistent = 0;      ///< blocks started for each multiprocessor, each taking iterations in turn; 0: one an iteration
  int min_blocks = 0;      ///< blocks that a multiprocessor shall hold at once; 0: left to the back end
  int cluster = 1;         ///< blocks that take one iteration together, a power of two
  int raster_group = 1;    ///< iterations of the grid's last loop but one that blocks take together, with warpgroups
  int dynamic_scheduler = 0;    ///< 1: persistent blocks draw their next iteration from a counter
  int scatter = 0;              ///< 1: terms of which data says to which sum they belong are gone through once for all sums
  int programmatic_launch = 0;  ///< 1: blocks are placed while the kernel before ends, and wait for it at their start
  bool operator==(const GridShape& other) const = default;

  /// Blocks that registers and shared memory of a multiprocessor are shared out to.
  int blocks_per_unit() const { return std::max({min_blocks, persistent, 1}); }
};

/// Values of one loop by the names of their knobs. A knob that is absent has the table's `otherwise`.
using LoopKnobs = std::map<std::string, std::int64_t, std::less<>>;

struct GridShape;  // support/knobs.h

/// One knob. It changes no order: iterations of the loop are independent.
struct Knob {
  /// Which arguments between `least` and `most` are taken.
  enum class Values : std::uint8_t { all, multiples_of_32, powers_of_two };

  const char* name;           ///< on a loop, and as a parameter of the search
  int GridShape::* member;    ///< where plans read it
  std::int64_t otherwise;     ///< value of a loop that says nothing
  const char* argument = "";  ///< of the step that sets it; "": the step has none for it, and sets `without`
  bool optional = false;      ///< the argument may be left out, which sets `without`
  std::int64_t without = 1;
  std::int64_t least = 0, most = 1;  ///< of the argument
  std::int64_t offset = 0;           ///< value less argument
  Values values = Values::all;
  int least_sm = 0;               ///< compute capability times ten that values from `needing` on need; 0: none
  std::int64_t needing = 1;       ///< see least_sm
  const char* text = "";          ///< how a loop with it is printed: {} is the argument
  const char* text_without = "";  ///< the same for value `without`, where that is another text
  /// Values that candidates have, neighbours alike; with tensor cores of another kind before compute capability 9.0.
  std::vector<std::int64_t> searched = {}, searched_mma = {};
  std::vector<const char*> formerly = {};  ///< parameters of stored records that it was

  /// The argument that sets `value`; below `least` where only a step without the argument does.
  std::int64_t argument_for(std::int64_t value) const { return value - offset; }
};

/// One step that sets knobs: name(loop, arguments of the knobs...).
struct KnobStep {
  const char* name;
  std::vector<const char*> formerly = {};  ///< spellings in stored records
  std::vector<Knob> knobs = {};
  std::vector<const char*> needs = {};  ///< steps that the loop must have had
  const char* help = "";
  const char* missing = "";  ///< what is wrong with a loop that lacks this step, for those that need it: {} is the loop
  const char* remedy = "";   ///< an application of it that helps: {} is the loop
};

/// The table, in the order in which candidates apply the steps.
const std::vector<KnobStep>& knob_steps();

/// The step of that name, or null. Old spellings are none.
const KnobStep* find_knob_step(std::string_view name);
/// The knob of that name. Throws InternalError when there is none.
const Knob& knob_named(std::string_view name);

/// "loop, warpgroups[, stages]".
std::string arguments_of(const KnobStep& step);
/// Has the loop had this step?
bool is_set(const KnobStep& step, const LoopKnobs& knobs);
/// "256 threads, clusters of 4 blocks"; empty when all is left to the back end.
std::string describe(const LoopKnobs& knobs);

/// Throws InternalError for a name that the table lacks.
GridShape grid_shape(const LoopKnobs& knobs);
/// Inverse: values other than those of a loop that says nothing.
LoopKnobs loop_knobs(const GridShape& shape);

/// Throws UserError naming the first step of the kernel's grid that needs a newer compute capability than `sm` (times ten).
void check_compute_capability(const GridShape& shape, const std::string& kernel, int sm);

}  // namespace nestor
