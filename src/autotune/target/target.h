// Target: the device that candidates are compiled for and measured on.
#pragma once

#include "codegen/gpu/target/gpu_target.h"
#include "codegen/tile/tile_program.h"
#include "db/database.h"

#include <string>
#include <string_view>
#include <vector>

namespace nestor {

struct Target {
  enum class Kind : std::uint8_t { host, cuda } kind = Kind::host;
  int ordinal = 0;  ///< cuda: of the first device
  int count = 1;    ///< cuda: devices of one kind that measure at once
  int sm = 0;       ///< cuda: taken for a device of this compute capability (times ten), if it has a newer one; 0: as it is
  bool is_gpu() const { return kind == Kind::cuda; }
  std::string str() const;  ///< "host", "cuda:0", "cuda:0/sm_80"
};

/// "host", "cuda", "cuda:1", "cuda/sm_80" (kernels of compute capability 8.0, on the device that is here); "auto" or "" is the first CUDA
/// device if there is one, else the host. Throws UserError for anything else, and when there is no such device, or an older one. Asks for
/// devices in a process of its own: this one may fork later.
Target target_from(std::string_view text, int count = 1);

/// What code generation must know of a GPU.
struct GpuFacts {
  int sm = 0;                     ///< compute capability times ten, at most what code can be made for
  int units = 0;                  ///< multiprocessors
  std::int64_t shared_limit = 0;  ///< bytes of shared memory a block may take
  std::int64_t memory_bytes = 0;  ///< of the device, whoever uses them now
};
/// Throws UserError when there is no such device, or it is too old.
GpuFacts gpu_facts(const Target& target);

/// Identity under which measurements on `target` are stored: that of an older device where the target is taken for one. `threads`: of the host (0: all cores). Throws UserError when
/// there is no such device.
DeviceIdentity device_identity(const Target& target, int threads = 0);

/// What kernels for a GPU of that identity are made for: its compute capability as far as code generation knows it, and its shared memory.
/// NvptxTarget's defaults where the identity does not say. No IR is kept.
NvptxTarget nvptx_target(const DeviceIdentity& device);

/// The tile program of a schedule in the order in which such a device runs it: what is to be proved, and what its code is made of.
TileProgram target_program(const Schedule& schedule, bool is_gpu);

/// This machine with that many threads (0: all cores).
DeviceIdentity device_identity_host(int threads = 0);

}  // namespace nestor
