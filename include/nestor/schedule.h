// Public API: schedules by hand, step by step, as in Halide; every step is proved legal or refused.
#pragma once

#include "nestor/nest.h"

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace nestor_api {

/// Where and how a schedule is measured.
struct MeasureSettings {
  /// "host", "cuda" (the first GPU), "cuda:1", "cuda/sm_80" (kernels of compute capability 8.0 on the GPU that is here), or
  /// "auto" (the first GPU, else the host).
  std::string target = "host";
  int threads = 0;                             ///< host: threads of the kernel; 0: all cores
  double run_timeout_s = 0;                    ///< seconds, checking and timing together; 0: 30 on the host, 4 on a GPU
  std::map<std::string, double> scalars = {};  ///< scalar arguments; others take their default
};

/// Outcome of compiling, checking and timing one schedule in a process of its own.
struct Measurement {
  bool correct = false;
  std::string failure;             ///< status and reason when it is not
  double median_ms = 0;            ///< of samples_ms; 0 when it is not correct
  std::vector<double> samples_ms;  ///< milliseconds of single runs, in measuring order
  double max_error = 0;            ///< worst of the results, as a fraction of what is allowed; above 1: wrong
};

/// A legal order of a nest's loops. Loops are named `<statement>.<dim>` at first. Each step changes this object and returns
/// it, or throws UserError and leaves it as it was: the message names the step, the two statement instances, the dependence
/// that would break, and a remedy if there is a simple one. Copies are cheap and independent.
class NESTOR_API Schedule {
 public:
  /// The original order. Specialised sizes are fixed to `sizes` (missing ones take their default); so are the sizes that
  /// `measure` uses. Throws UserError for an unknown name or a value outside the nest's context.
  explicit Schedule(const Nest& nest, const nestor::Sizes& sizes = {});
  /// Replays a file's text (str of json()) onto `nest`. Throws UserError when it is for another nest or a step fails.
  static Schedule from_json(const Nest& nest, const std::string& text, const nestor::Sizes& sizes = {});

  Schedule& apply_rule(const std::string& rule, const std::vector<std::string>& target = {});
  Schedule& split(const std::string& loop, std::int64_t factor, const std::string& outer, const std::string& inner);
  Schedule& tile(const std::string& x, const std::string& y, const std::string& xo, const std::string& yo, const std::string& xi,
                 const std::string& yi, std::int64_t fx, std::int64_t fy);
  Schedule& reorder(const std::vector<std::string>& outermost_first);
  Schedule& fuse_with(const std::string& loop, const std::string& consumer_loop);
  Schedule& compute_at(const std::string& statement, const std::string& loop);
  Schedule& fission(const std::string& loop, const std::string& statement);
  Schedule& skew(const std::string& x, const std::string& y, std::int64_t factor);
  Schedule& shift(const std::string& statement, const std::string& loop, std::int64_t distance);
  Schedule& reverse(const std::string& loop);
  Schedule& parallel(const std::string& loop);
  Schedule& vectorize(const std::string& loop, std::int64_t width = 0);  ///< 0: the back end chooses
  Schedule& unroll(const std::string& loop, std::int64_t factor = 0);    ///< 0: the back end chooses
  Schedule& serial(const std::string& loop);
  Schedule& gpu_blocks(const std::vector<std::string>& loops);
  Schedule& gpu_threads(const std::string& loop, std::int64_t count);  ///< of a block; a multiple of 32, at most 1024
  Schedule& cluster(const std::string& loop, std::int64_t blocks);     ///< 1, 2, 4, 8 or 16 blocks take one iteration together
  Schedule& persistent(const std::string& loop, std::int64_t blocks);  ///< for each multiprocessor; iterations are taken in turn
  /// Products on tensor cores with operands rounded to 16 bits: consumer warpgroups compute, a producer warp copies tiles into `stages` of
  /// each operand's circular buffer.
  Schedule& tensor_cores(const std::string& loop, std::int64_t warpgroups, std::int64_t stages = 2);
  /// Products that only the next iteration needs run beside its first ones. `in_flight` 1 or 2: independent chains of products one by one,
  /// the first products of so many in flight at once; 0: all together.
  Schedule& intra_warpgroup_overlap(const std::string& loop, std::int64_t in_flight = 0);
  Schedule& ping_pong(const std::string& loop);        ///< warpgroups issue their products in turn
  Schedule& ping_pong_tiles(const std::string& loop);  ///< each warpgroup takes iterations of its own, in turn
  Schedule& a_from_registers(
      const std::string& loop);                      ///< first operands that stay for the iteration are read into registers once
  Schedule& early_release(const std::string& loop);  ///< stages are released amid exponentials
  Schedule& exp2_polynomial(const std::string& loop, std::int64_t sixteenths);  ///< of a tile's exponentials, by a polynomial
  Schedule& operand_halves(const std::string& loop);  ///< operands computed in f32 as sums of two 16-bit numbers
  Schedule& swap_ab(const std::string& loop);         ///< products are transposed: few rows are columns of an instruction
  Schedule& min_blocks(const std::string& loop, std::int64_t blocks);  ///< so many shall fit a multiprocessor at once
  /// Blocks take so many iterations of the grid's last loop but one with all of the last one before they go on.
  Schedule& raster_group(const std::string& loop, std::int64_t iterations);
  Schedule& dynamic_scheduler(const std::string& loop);  ///< persistent blocks draw iterations from a counter
  Schedule& gpu_lanes(const std::string& loop);
  Schedule& stage(const std::string& tensor, const std::string& loop, std::int64_t stages = 1);  ///< 1: copied when it is needed
  Schedule& specialize(const std::string& loop);
  Schedule& streaming(const std::string& tensor);
  /// Any step as text: "split(i, 32, io, ii)" or "split i 32 io ii".
  Schedule& step(const std::string& text);
  /// Takes the last step back. Throws UserError when there is none.
  Schedule& undo();

  /// Why the step would be refused, or nothing when it is legal. Changes nothing.
  std::optional<std::string> why_illegal(const std::string& step) const;
  std::vector<std::string> steps() const;
  std::string str() const;  ///< the loop nest as readable code
  /// "nest", "deps", "tree", "loops", "tile", "tiles", "plan", "ir", "asm", "ptx" or "schedule", as `nestor show --as`. `sm`: for plan and ptx, e.g. 90.
  std::string show(const std::string& view, int sm = 90) const;
  std::string certificate() const;  ///< rules with proofs, dependences, bounds and sizes of validity
  std::string json() const;         ///< for from_json and `nestor verify --steps`

  /// Compiles for the target, compares with the nest's definition evaluated in double, and times; in processes of its own.
  /// What is wrong with the schedule is told by the result. Throws UserError for a target that is no device of this machine
  /// or too old for its kernels, for settings out of range and for unknown scalars; DeviceError when the GPU itself fails.
  Measurement measure(const MeasureSettings& settings = {}) const;
  /// Measures and stores the trial as one of the target's; "" is $NESTOR_DB, else the user's default database. Returns the
  /// trial's number. Throws as measure() does, and UserError when the database cannot be opened.
  std::int64_t save(const std::string& database = "", const MeasureSettings& settings = {}) const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;  ///< history of legal schedules
};

}  // namespace nestor_api
