// Proposals: in which order points of a space are tried, whoever proposed them.
#pragma once

#include "autotune/search/searcher.h"
#include "autotune/space/space.h"

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace nestor {

struct Proposal {
  Point point;
  const char* origin = "search";  ///< where it comes from, for reports: also "neighbour" and "guess"
  bool waited = false;            ///< was put off before
};

/// Doubt about a kind of candidate: many were wrong and none right. What tensor cores round may be beyond a definition's tolerance, and what
/// one guess is refused for others may be, too.
class Doubt {
 public:
  explicit Doubt(int most_wrong = 16) : most_wrong_(most_wrong) {}
  /// How one of them ended.
  void note(bool wrong, bool right) {
    wrong_ += wrong ? 1 : 0;
    right_ = right_ || right;
  }
  /// The others are tried first, then.
  bool holds() const { return !right_ && wrong_ >= most_wrong_; }

 private:
  int most_wrong_;
  int wrong_ = 0;
  bool right_ = false;
};

/// What is known of rounding to 16 bits where products on tensor cores have operands that are computed in f32. Candidates round them, or have
/// them in two halves (step operand_halves, rule bf16x3), which costs products.
class OperandRounding {
 public:
  enum class Form : std::uint8_t { none, rounded, halves };
  static Form form_of(const NamedValues& values);
  /// May rounding alone have made a candidate with these values wrong? Not where its error is many times what is allowed, no number, or unknown
  /// (0), as where a check stopped it. `max_error`: as a fraction of what is allowed. `lost_infinity`: NaN in place of infinities is all that
  /// was wrong, as operands of tensor cores make it that vanish in 16 bits.
  static bool explains(const NamedValues& values, double max_error, bool lost_infinity);
  /// How a candidate of this form ended.
  void note(Form form, bool wrong, bool right);
  /// Is the form known to end wrong, or not to be needed?
  bool needless(Form form) const;

 private:
  static constexpr double kMostOfRounding = 16;
  static constexpr int kMostWrong = 4;    ///< of those that round, before halves alone are tried
  static constexpr int kFewestRight = 2;  ///< of those that round, before halves are no longer tried
  struct Count {
    int wrong = 0, right = 0;
  };
  Count rounded_, halves_;
};

/// The first of the points that is worth compiling with all fused as it says; nothing: none is.
std::optional<Point> first_whole_guess(const Space& space, const std::vector<Point>& points);
/// Is one of the points worth compiling, with all fused as it says?
bool has_feasible_guess(const Space& space, const std::vector<Point>& points);
/// Is the first of the points worth compiling, with all fused as it says?
bool starts_whole(const Space& space, const std::vector<Point>& points);
/// Does the first of the points, the best guess, lack a size that is not known when compiling, and is it worth one? It is for tensor cores, or
/// keeps rows of which all elements are reduced, or states of a recurrence.
bool lacks_size(const Space& space, const std::vector<Point>& points);
/// Is the first of the points one for tensor cores that is worth compiling?
bool starts_on_tensor_cores(const Space& space, const std::vector<Point>& points);

class Proposals {
 public:
  /// Both must outlive it.
  Proposals(const Space& space, Searcher& searcher) : space_(space), searcher_(searcher) {}

  /// Tries the point before all that the searcher proposes; once.
  void try_soon(const Point& point, const char* origin = "neighbour");
  /// Tries the guesses before all else, the last one first: those that leave tensor cores alone come behind those that do not.
  void try_guesses_backwards();
  /// Tries before all else the first guess that leaves tensor cores alone, and the last one, which any nest can run.
  void try_other_guesses();
  /// Points that were to be tried soon and have not been.
  std::size_t soon() const { return soon_.size(); }
  /// The space's guesses, the best first.
  const std::vector<Point>& guesses();
  /// The space's best guess.
  Point first_guess();
  /// Has the space guesses, and either none that is worth compiling, or a best one that lacks a size?
  bool wants_sizes() { return !guesses().empty() && (lacks_size(space_, guesses()) || !has_feasible_guess(space_, guesses())); }

  /// Notes that a point was worth trying at once.
  void tried() { any_tried_ = true; }
  /// The next point, nullopt when there are no more. `patient`: what was put off goes on waiting as long as there is anything else. That
  /// is, as long as there are guesses; beyond them only where one was worth trying at once.
  std::optional<Proposal> next(bool patient);
  /// Puts a proposal off; false when it has waited before, or too many wait.
  bool put_off(const Proposal& proposal);

 private:
  const Space& space_;
  Searcher& searcher_;
  std::optional<std::vector<Point>> guesses_;  ///< the space's own
  std::size_t proposed_ = 0;                   ///< by the searcher, which starts with the guesses and the baseline
  bool any_tried_ = false;
  std::deque<Proposal> postponed_;
  std::deque<Proposal> soon_;  ///< to be tried before what the searcher proposes
};

}  // namespace nestor
