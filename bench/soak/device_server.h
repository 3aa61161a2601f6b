// Device servers: processes that hold a GPU's context and run kernels for others, which compile in parallel and may die.
#pragma once

#include "autotune/workers/worker_process.h"
#include "soak/engine.h"

#include <memory>
#include <string>
#include <vector>

namespace nestor::soak {

/// `count` processes on the device of that ordinal. Each serves one candidate at a time; one that dies with a kernel (a fault, or no
/// answer for 20 s) is started anew. Start them before this process uses CUDA.
class DeviceServers {
 public:
  DeviceServers(int ordinal, int count);
  ~DeviceServers();
  DeviceServers(const DeviceServers&) = delete;
  DeviceServers& operator=(const DeviceServers&) = delete;
  /// What load_on_device takes.
  const std::string& address() const { return address_; }

 private:
  std::string address_;
  int listening_ = -1;
  std::vector<WorkerProcess> supervisors_;
};

/// Loads on one of the servers behind `address`. Throws UserError where the launch is refused, DeviceError where the device fails or the
/// server dies.
std::unique_ptr<LoadedCandidate> load_on_device(const Generated& generated, const std::string& address);

}  // namespace nestor::soak
