// Fresh runs first; settled ones for those that may win.
#include "autotune/timing/timing_race.h"

#include <fmt/format.h>

#include <algorithm>

namespace nestor {
namespace {

constexpr int kFirstRuns = 6;    ///< fewest that give a 95 % interval of the median
constexpr double kLong_ms = 50;  ///< of one run, which settles clocks by itself: a few tell enough
constexpr int kFewRuns = 2;
constexpr int kMostRuns = 400;
constexpr int kMostAtOnce = 64;
constexpr double kMost_ms = 150;      ///< of timed runs in each stage, roughly
constexpr double kConfident = 0.005;  ///< half width of the interval, relative to the median
constexpr double kLosing = 1.1;       ///< of the best time: slower candidates are not timed to the end
constexpr double kPortion_ms = 25;    ///< of runs on the way to settled clocks, after which a loser is known
constexpr double kSteady = 1.01;      ///< settling that is no more than noise
constexpr double kDrift = 0.99;       ///< the second half of the samples against the first: the clocks were still rising

/// Samples whose clocks had risen.
void drop_drift(std::vector<double>& samples) {
  const auto half = static_cast<std::ptrdiff_t>(samples.size() / 2);
  if (samples.size() < 20) return;
  const double before = median({samples.begin(), samples.begin() + half});
  const double after = median({samples.begin() + half, samples.end()});
  if (after < kDrift * before) samples.erase(samples.begin(), samples.begin() + half);
}

}  // namespace

double Settling::factor() const { return known() ? std::max(settled_ms / fresh_ms, 1.0) : 1.0; }

TimingRace::TimingRace(double best_ms, bool must_finish, Settling best, double first_ms)
    : best_ms_(best_ms),
      raced_(best_ms > 0 && !must_finish),
      first_runs_(first_ms > kLong_ms ? kFewRuns : kFirstRuns),
      best_(best) {}

int TimingRace::next_runs() const {
  if (stage_ == Stage::done || stage_ == Stage::lost) return 0;
  if (samples_.empty()) return first_runs_;
  const double each_ms = std::max(interval_.median, 1e-3);
  if (stage_ == Stage::settling) return std::clamp(static_cast<int>(kPortion_ms / each_ms), kFirstRuns, kMostAtOnce);
  // Long kernels: what is left of the time decides.
  const int affordable = std::max(1, static_cast<int>((kMost_ms - spent_ms_) / each_ms));
  return std::min({std::max(static_cast<int>(samples_.size()), kFirstRuns), affordable, kMostAtOnce});
}

void TimingRace::add(const std::vector<double>& samples, double elapsed_ms) {
  elapsed_ms_ += elapsed_ms;
  if (stage_ == Stage::settling) restart();
  made_ += static_cast<int>(samples.size());
  samples_.insert(samples_.end(), samples.begin(), samples.end());
  for (const double ms : samples) spent_ms_ += ms;
  drop_drift(samples_);
  interval_ = median_interval(samples_);
  if (stage_ == Stage::fresh) judge_fresh();
  if (stage_ == Stage::settling) judge_settling();
  if (stage_ == Stage::settled) judge_settled();
}

/// Earlier runs do not count any more.
void TimingRace::restart() {
  samples_.clear();
  made_ = 0;
  spent_ms_ = 0;
}

bool TimingRace::enough() const {
  const bool sure = interval_.relative_half_width() < kConfident && interval_.samples > kFirstRuns;
  return sure || made_ >= kMostRuns || spent_ms_ >= kMost_ms;
}

void TimingRace::judge_fresh() {
  if (raced_ && interval_.samples >= kFirstRuns && interval_.lower > kLosing * rival_ms()) {
    stage_ = Stage::lost;
    return;
  }
  if (!enough()) return;
  const bool slows = best_.factor() > kSteady;
  if (raced_ && interval_.median > (slows ? best_.settled_ms : rival_ms())) {
    stage_ = slows ? Stage::lost : Stage::done;
    return;
  }
  fresh_ms_ = interval_.median;
  stage_ = Stage::settling;
  if (first_runs_ == kFirstRuns) return;
  settled_ = {fresh_ms_, fresh_ms_};
  stage_ = Stage::done;
}

void TimingRace::judge_settling() {
  const bool behind = best_.known() && interval_.samples >= kFirstRuns && interval_.lower > kSteady * best_.settled_ms;
  if (raced_ && behind)
    stage_ = Stage::lost;
  else if (elapsed_ms_ >= kSettle_ms)
    stage_ = Stage::settled;
}

void TimingRace::judge_settled() {
  if (!enough()) return;
  settled_ = {fresh_ms_, interval_.median};
  stage_ = Stage::done;
}

double TimingRace::median_ms() const { return interval_.median * (lost() && fresh_ms_ == 0 ? best_.factor() : 1.0); }

std::string TimingRace::reason() const {
  std::string text = fmt::format("cut after {} {}: {:.4g} ms, best is {:.4g} ms", samples_.size(),
                                 fresh_ms_ > 0 ? "runs on the way to steady work" : "runs", interval_.median, rival_ms());
  if (best_.factor() > 1) text += fmt::format(" in its first runs and {:.4g} ms in steady work", best_.settled_ms);
  return text;
}

}  // namespace nestor
