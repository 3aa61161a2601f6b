// A limit of processor time for isl computations: single operations of isl can be long, so that counting them is not enough.
#pragma once

#include <isl/ctx.h>

namespace nestor {

/// Processor time that one computation under the default budget may take, in seconds.
inline constexpr double kIslSeconds = 4;

/// While alive, isl computations of the calling thread fail with isl_error_abort once it has used so much processor time. Nests: the
/// earlier end wins. A limit that has ended one computation lets the next one run when it goes.
class IslTimeLimit {
 public:
  IslTimeLimit(isl_ctx* context, double seconds);
  ~IslTimeLimit();
  IslTimeLimit(const IslTimeLimit&) = delete;
  IslTimeLimit& operator=(const IslTimeLimit&) = delete;

 private:
  isl_ctx* context_;
  double previous_;  ///< end of the limit around this one, in seconds of this thread's processor time; 0: there is none
};

}  // namespace nestor
