// NestStructure: what the space knows of a nest: loops of different statements that run along with each other, and fusion_groups of statements.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace nestor {

/// Statements of one group: they share all their loops from the start.
struct LoopGroup {
  std::string first;  ///< its first statement, whose name is in the names of the loops
  std::vector<std::string> statements;
  std::vector<std::string> loops;     ///< outermost first, as the original order names them
  std::vector<int> axes;              ///< axis of each loop
  std::vector<bool> reduced;          ///< each loop: some statement accumulates over it
  std::vector<std::int64_t> extents;  ///< of each loop, at the sizes tuned for
  double points = 0;                  ///< instances of the bounding box
  bool seldom = false;                ///< it adds up terms for few elements alone (codegen/tile/seldom_sum.h)
  int position_of(int axis) const;    ///< -1 when it has no loop on this axis
  /// Position of its loop on the axis that tiles are of where others share them, -1: it has none. Sums of few elements go through theirs by
  /// themselves.
  int shared_position_of(int axis) const;
};

/// A skew of loops: axis `inner` moves by `factor` for each iteration of axis `outer`.
struct AxisSkew {
  int outer = 0;
  int inner = 0;
  std::int64_t factor = 0;
};

/// How the common loops of a fusion group may be transformed beyond tiling.
struct GroupForm {
  enum class Kind : std::uint8_t {
    natural,    ///< no skew; serial loops outside, the others tiled
    wavefront,  ///< one skew; the skewed loop outside, the other one parallel inside it
    time_tile,  ///< skewed so that all common loops can be tiled; wavefronts of tiles in parallel
    inside,  ///< parallel loops tiled, serial ones whole within them, innermost; with a skew of two: its wavefronts one after the other there
    distributed,  ///< independent loops tiled, serial ones within them, and in those each statement in loops of its own (loop distribution)
  };
  Kind kind = Kind::natural;
  std::vector<AxisSkew> skews = {};
  std::vector<int> outside = {};  ///< of distributed: common axes that stand outside, outermost first
};

/// An axis whose points are parts of another one: point p stands for size*p .. size*p + size - 1 there.
struct PartAxis {
  int axis = -1;
  int whole = -1;
  std::int64_t size = 1;
};

/// Units that share their outer loops: consecutive ones, or those that run along a part axis.
struct FusionGroup {
  std::vector<int> loop_groups;
  std::vector<int> axes;            ///< common to all loop groups and reduced in none; in loop order
  std::vector<bool> parallel;       ///< each common axis: its iterations are independent
  bool tilable = true;              ///< common loops may be permuted and tiled as they are
  std::vector<int> reduction_axes;  ///< axes of a reduction that several loop groups run along
  std::vector<GroupForm> forms;     ///< the first one is natural
  std::optional<PartAxis>
      part;  ///< then the last common axis is this one, and loop groups share the loop over a part's points as well
  bool tile_is_part = false;  ///< a part has the columns of one tile of a product, whose own sum is streamed
  bool at_front = false;      ///< loop groups are fused where the first of them stands, not the last: others follow
  bool prepares = false;      ///< products of other groups need it: it runs in kernels of its own before them
  int heaviest = 0;           ///< loop group with most instances
};

struct Axis {
  std::string name;         ///< unique; the name of a dim on it
  std::int64_t extent = 1;  ///< largest extent at the sizes tuned for
};

struct NestStructure {
  std::vector<Axis> axes;
  std::vector<LoopGroup> loop_groups;
  std::vector<PartAxis> parts;
};

/// Axes that all of `loop_groups` have and none reduces, in the order of the loops of loop group `ordering`.
std::vector<int> common_axes(const NestStructure& structure, const std::vector<int>& loop_groups, int ordering);

/// Axes of the group whose iterations depend on each other.
std::vector<int> serial_axes(const FusionGroup& group);

/// Common axes of a fusion group as a form orders them; those that it has outside.
std::vector<int> wavefront_order(const FusionGroup& group, const GroupForm& form);

}  // namespace nestor
