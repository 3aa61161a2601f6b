// The ptxas program, where there is one: machine code, and what it says of a kernel.
#pragma once

#include <string>

namespace nestor {

/// What ptxas said of a kernel: registers, spills, stack, warnings C75xx.
struct PtxasReport {
  bool available = false;  ///< a ptxas program was found
  bool accepted = false;
  int registers = 0;
  int spill_bytes = 0;
  int stack_bytes = 0;
  std::string log;
  std::string cubin;  ///< when accepted
};
/// Assembles with `ptxas -v` (from $NESTOR_PTXAS, $PATH or /usr/local/cuda/bin); does not throw when there is none.
/// `architecture`: "sm_90"
PtxasReport run_ptxas(const std::string& ptx, const std::string& architecture);

}  // namespace nestor
