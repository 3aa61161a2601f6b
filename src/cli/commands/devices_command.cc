// nestor devices: what kernels can run on here.
#include "autotune/target/target.h"
#include "cli/commands/commands.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/output.h"
#include "cli/terminal/screen.h"
#include "db/devices/cuda_identity.h"

#include <fmt/format.h>

namespace nestor::cli {
namespace {

nlohmann::json gpu_to_json(const CudaIdentity& gpu) {
  nlohmann::json json = device_to_json(cuda_device_identity(gpu));
  json["device"] = fmt::format("cuda:{}", gpu.ordinal);
  json["uuid"] = gpu.uuid;
  json["pci"] = gpu.pci;
  return json;
}

// What tells one GPU's speed: a line a subject.
std::string gpu_text(const CudaIdentity& gpu) {
  constexpr double kMega = 1 << 20, kGiga = 1 << 30;
  return fmt::format(
      "cuda:{}\n"
      "  memory    {:.1f} GiB, {:.2f} GHz x {} bit ({:.2f} TB/s), L2 {:.0f} MiB\n"
      "  unit      {:.2f} GHz, {} KiB shared memory ({} KiB a block), {} registers, {} threads{}\n"
      "  driver    CUDA {}.{}\n"
      "  identity  {}, {}",
      gpu.ordinal, static_cast<double>(gpu.memory_bytes) / kGiga, gpu.memory_clock_khz * 1e-6, gpu.memory_bus_bits,
      gpu.peak_bandwidth() * 1e-12, static_cast<double>(gpu.l2_bytes) / kMega, gpu.clock_khz * 1e-6,
      gpu.shared_bytes_per_unit / 1024, gpu.shared_bytes_per_block / 1024, gpu.registers_per_unit, gpu.threads_per_unit,
      gpu.clusters ? ", clusters" : "", gpu.driver_version / 1000, gpu.driver_version % 1000 / 10, gpu.uuid, gpu.pci);
}

int run_devices() {
  const DeviceIdentity host = device_identity_host();
  std::string why;
  const std::vector<CudaIdentity> gpus = cuda_identities(why);
  if (output_mode().json) {
    nlohmann::json devices = nlohmann::json::array({device_to_json(host)});
    devices[0]["device"] = "host";
    for (const CudaIdentity& gpu : gpus) devices.push_back(gpu_to_json(gpu));
    print_json({{"devices", devices}, {"cuda", why.empty() ? "ok" : why}});
    return kOk;
  }
  std::vector<std::vector<std::string>> rows{{"device", "architecture", "units", "name"}};
  rows.push_back({"host", host.arch, count_of(host.units, "thread"), host.name});
  for (const CudaIdentity& gpu : gpus)
    rows.push_back({fmt::format("cuda:{}", gpu.ordinal), gpu.arch(), count_of(gpu.units, "multiprocessor"), gpu.name});
  print(format_table(rows, terminal_width()));
  for (const CudaIdentity& gpu : gpus) print(gpu_text(gpu));
  if (!why.empty()) print("no CUDA device: " + why);
  return kOk;
}

}  // namespace

void add_devices(CLI::App& app, Action& run) {
  CLI::App* command = app.add_subcommand("devices", "List what kernels can run on here");
  command->callback([&run] { run = run_devices; });
}

}  // namespace nestor::cli
