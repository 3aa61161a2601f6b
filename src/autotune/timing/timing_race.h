// TimingRace: how often a candidate runs before its time is known, or known to lose.
#pragma once

#include "autotune/trial/statistics.h"

#include <string>
#include <vector>

namespace nestor {

/// What steady work does to a device's clocks: a kernel may draw more power than can be kept up, and slows down within some tens
/// of milliseconds. Of the fastest candidate that a process has timed so far; zeros before the first.
struct Settling {
  double fresh_ms = 0;    ///< median of its first runs
  double settled_ms = 0;  ///< median after kSettle_ms of runs
  bool known() const { return fresh_ms > 0; }
  /// settled_ms / fresh_ms, at least 1.
  double factor() const;
};

/// First runs decide who can win: a candidate is timed until half the 95 % confidence interval of its median is below half a
/// percent, less if it is certain to lose. What may be the fastest once the clocks have settled, or must finish, goes on until
/// they have, and counts with what it takes then; it loses as soon as it takes longer than the fastest does in steady work, for it
/// will not get faster. The order after settling is another than before: it depends on the power that a kernel draws. Times in
/// milliseconds.
class TimingRace {
 public:
  static constexpr double kSettle_ms = 120;

  /// `best_ms`: the fastest median known, 0 for none. `must_finish`: not raced. `first_ms`: of a run before, 0 for none; where that is
  /// long, a few runs are enough.
  TimingRace(double best_ms, bool must_finish, Settling best, double first_ms = 0);

  /// Runs to make next; 0: enough.
  int next_runs() const;
  /// Times of those runs, and how long making them took in all.
  void add(const std::vector<double>& samples, double elapsed_ms);

  bool lost() const { return stage_ == Stage::lost; }
  /// Why it lost.
  std::string reason() const;
  /// Of the settled runs, or of all where it was not to settle; of one that lost before, an estimate of the settled time.
  double median_ms() const;
  /// Runs that the median is of, in the order of their making.
  const std::vector<double>& samples() const { return samples_; }
  const MedianInterval& interval() const { return interval_; }
  /// What it showed of settling; nothing known unless it went on until then.
  Settling settling() const { return settled_; }

 private:
  enum class Stage { fresh, settling, settled, done, lost };
  void restart();
  bool enough() const;  ///< the median of this stage is known well enough
  void judge_fresh();
  void judge_settling();
  void judge_settled();
  /// The time that a fresh candidate races against; 0: none.
  double rival_ms() const { return best_.known() ? best_.fresh_ms : best_ms_; }

  const double best_ms_;
  const bool raced_;
  const int first_runs_;
  const Settling best_;
  Stage stage_ = Stage::fresh;
  std::vector<double> samples_;
  MedianInterval interval_;
  int made_ = 0;
  double spent_ms_ = 0;    ///< by the runs of this stage
  double elapsed_ms_ = 0;  ///< since the first run
  double fresh_ms_ = 0;    ///< 0 until it is known
  Settling settled_;
};

}  // namespace nestor
