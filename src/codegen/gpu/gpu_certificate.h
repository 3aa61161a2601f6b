// What is proved of a program's GPU kernels, in sentences that name them.
#pragma once

#include "codegen/tile/zeroed_operand.h"

#include <string>
#include <vector>

namespace nestor {

struct GpuCertificate {
  std::vector<std::string> stages;         ///< of the synchronisation of kernels on tensor cores, for all sizes
  std::vector<std::string> needed;         ///< finite values of operands where a mask cuts a tile (docs/values.md, masked places)
  std::vector<std::string> finite;         ///< the tensors of these
  std::vector<std::string> blocks;         ///< of launches, and of how threads share the work of the other kernels
  std::vector<std::string> unproved;       ///< what could not be decided; empty: all of it is proved
  std::vector<ZeroedOperand> zeroed = {};  ///< `finite` with the ops, for prove_operands(); not stored
};

}  // namespace nestor
