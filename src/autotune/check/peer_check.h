// Peers: results of two kernels of one problem compared with each other, everywhere, where the definition is too slow for that.
#pragma once

#include "autotune/oracle/sample_error.h"
#include "autotune/tensors/host_tensor.h"
#include "poly/nest/nest.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace nestor {

class Reference;
class ThreadPool;

/// Stretch of elements of an output.
struct OutputPiece {
  std::string tensor;
  std::int64_t first = 0, count = 0;
};

/// Compares a kernel's results at the sizes that it is tuned at with those of the kernel before it that passed. Samples say how far
/// correct results may be apart, relative to what is around them; where they are further apart, the definition decides which of the two is
/// wrong. So one wrong element in 10,000 is found.
class PeerCheck {
 public:
  /// `definition` must outlive the object. `samples`: of the inputs that make_inputs gives for `seed`.
  PeerCheck(const Nest& definition, Sizes sizes, std::map<std::string, double> scalars, std::uint64_t seed,
            const std::vector<OracleSample>& samples);
  ~PeerCheck();

  /// What of the outputs is compared: all of them, or evenly spread pieces of some tens of MiB together. Empty where the samples are all
  /// elements.
  const std::vector<OutputPiece>& pieces() const { return pieces_; }
  /// `results`: outputs in full size, of which the pieces are filled. Returns where they are wrong, "" for nowhere; those of a kernel
  /// that is right are kept for the next one.
  std::string compare(const HostTensors& results);

 private:
  struct Suspect {
    double score;
    std::int64_t linear;
  };
  Reference& reference();
  std::vector<Suspect> suspects(const OutputPiece& piece, const HostTensor& mine, const HostTensor& peer) const;
  std::vector<Suspect> suspects_of_part(const OutputPiece& part, const HostTensor& mine, const HostTensor& peer) const;
  static void keep_worst(std::vector<Suspect>& found);
  void keep(const HostTensors& results);

  const Nest& definition_;
  Sizes sizes_;
  std::map<std::string, double> scalars_;
  std::uint64_t seed_;
  std::vector<OutputPiece> pieces_;
  std::map<std::string, double> spread_;  ///< of each output: what is allowed, relative to |value| and what is around it
  HostTensors peer_;
  bool has_peer_ = false;
  HostTensors inputs_;  ///< made when they differ for the first time
  std::unique_ptr<Reference> reference_;
  std::unique_ptr<ThreadPool> pool_;  ///< made when first needed
};

}  // namespace nestor
