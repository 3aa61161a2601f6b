// nestor devices: what kernels can run on here.
#include "api/cuda_devices.h"
#include "autotune/tuner.h"
#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/output.h"

#include <fmt/format.h>

#include <memory>

namespace nestor::cli {
namespace {

int run_devices() {
  const DeviceIdentity host = device_identity_host();
  const CudaDevices cuda = cuda_devices();
  if (output_mode().json) {
    nlohmann::json devices = nlohmann::json::array({device_to_json(host)});
    for (const DeviceIdentity& device : cuda.devices) devices.push_back(device_to_json(device));
    print_json({{"devices", devices}, {"cuda", cuda.reason.empty() ? "ok" : cuda.reason}});
    return kOk;
  }
  std::vector<std::vector<std::string>> rows{{"device", "architecture", "units", "name"}};
  rows.push_back({"host", host.arch, count_of(host.units, "thread"), host.name});
  for (const DeviceIdentity& device : cuda.devices) {
    rows.push_back({device.kind, device.arch, count_of(device.units, "multiprocessor"), device.name});
  }
  print(format_table(rows));
  if (!cuda.reason.empty()) print("no CUDA device: " + cuda.reason);
  return kOk;
}

}  // namespace

void add_devices(CLI::App& app, Action& run) {
  CLI::App* command = app.add_subcommand("devices", "List what kernels can run on here");
  command->callback([&run] { run = run_devices; });
}

}  // namespace nestor::cli
