// Shared elements: temporaries of a definition that one element needs, evaluated by several processes.
#pragma once

#include "autotune/oracle/reference.h"

#include <atomic>
#include <string>
#include <vector>

namespace nestor {

/// Makes elements of a reference cheap: what they need, and takes long, is computed by forked processes, a share each. Values do not
/// depend on who computes them. No other thread may run meanwhile.
class SharedElements {
 public:
  static constexpr std::size_t kMostElements = std::size_t{1} << 23;  ///< of 16 bytes

  /// `processes` at once, each of which stops after so many seconds, for no more than about `most_elements` of them.
  SharedElements(Reference& reference, int processes, double most_seconds, const std::atomic<bool>* stop,
                 std::size_t most_elements = kMostElements);

  /// Whether processes computed something for this element, which is cheap then, if they had the time.
  bool prepare(const std::string& tensor, std::int64_t linear);
  /// All that statements read of others, tensor by tensor: where an element needs most of it, nobody has to find out what. False: no process
  /// could be started.
  bool prepare_all();

 private:
  /// `takes_long`: it is known to.
  bool prepare(const Reference::Element& element, int depth, bool takes_long);
  /// Of what it needs, as much as has room at a time. `complete`: all of it, or what is left is cheap. `chunks`: of its points, that are done.
  bool prepare_some(const Reference::Element& element, int depth, bool& complete, std::size_t& chunks);
  /// The elements, behind what they need in turn: level by level, all of a level at once, as far as there is time. False: no process could be
  /// started.
  bool compute_all(const std::vector<Reference::Element>& elements, int depth);
  /// Where runs of elements begin that one process computes, in its order: every `step`-th from `first` on.
  std::vector<std::size_t> runs_of(const std::vector<Reference::Element>& elements, std::size_t first, std::size_t step) const;
  /// Those from place `first` on, before `end`. False: one takes too long, or goes wrong.
  bool compute_run(const std::vector<Reference::Element>& elements, std::size_t first, std::size_t end);
  /// The elements, a share in each process. False: none could be started.
  bool compute(const std::vector<Reference::Element>& elements);

  Reference& reference_;
  int processes_;
  double most_seconds_;
  std::size_t most_elements_;
  const std::atomic<bool>* stop_;
  bool possible_;
};

}  // namespace nestor
