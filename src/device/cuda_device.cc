// Devices, their identity and their primary contexts.
#include "device/cuda.h"
#include "support/error.h"
#include "support/system/fork_count.h"

#include <map>
#include <mutex>

namespace nestor {
namespace {

std::string uuid_text(const cuda::Uuid& uuid) {
  std::string text = "GPU-";
  for (int k = 0; k < 16; ++k) {
    if (k == 4 || k == 6 || k == 8 || k == 10) text += '-';
    text += fmt::format("{:02x}", uuid.bytes[k]);
  }
  return text;
}

cuda::Ordinal device_of(const CudaDriver& driver, int ordinal) {
  if (ordinal < 0 || ordinal >= driver.device_count())
    user_error("there is no CUDA device {}: this machine has {} ({})", ordinal, driver.device_count(),
               driver.device_count() == 1 ? "0" : fmt::format("0 to {}", driver.device_count() - 1));
  cuda::Ordinal device = 0;
  driver.check(driver.api().device_get(&device, ordinal), "cuDeviceGet");
  return device;
}

}  // namespace

std::string CudaIdentity::arch() const { return fmt::format("sm_{}", sm); }

CudaIdentity CudaDevice::identify(int ordinal) {
  const CudaDriver& driver = CudaDriver::get();
  const cuda::Api& api = driver.api();
  const cuda::Ordinal device = device_of(driver, ordinal);
  const auto attribute = [&](cuda::DeviceAttribute which) {
    int value = 0;
    driver.check(api.device_get_attribute(&value, which, device), "cuDeviceGetAttribute");
    return value;
  };
  CudaIdentity identity;
  identity.ordinal = ordinal;
  std::array<char, 256> name{};
  driver.check(api.device_get_name(name.data(), static_cast<int>(name.size() - 1), device), "cuDeviceGetName");
  identity.name = name.data();
  std::size_t memory = 0;
  driver.check(api.device_total_mem(&memory, device), "cuDeviceTotalMem");
  identity.memory_bytes = static_cast<std::int64_t>(memory);
  cuda::Uuid uuid{};
  driver.check(api.device_get_uuid(&uuid, device), "cuDeviceGetUuid");
  identity.uuid = uuid_text(uuid);
  identity.sm = 10 * attribute(cuda::kCapabilityMajor) + attribute(cuda::kCapabilityMinor);
  identity.units = attribute(cuda::kMultiprocessorCount);
  identity.l2_bytes = attribute(cuda::kL2CacheSize);
  identity.clock_khz = attribute(cuda::kClockRate);
  identity.memory_clock_khz = attribute(cuda::kMemoryClockRate);
  identity.memory_bus_bits = attribute(cuda::kGlobalMemoryBusWidth);
  identity.shared_bytes_per_block = attribute(cuda::kSharedPerBlockOptin);
  identity.shared_bytes_per_unit = attribute(cuda::kSharedPerMultiprocessor);
  identity.registers_per_unit = attribute(cuda::kRegistersPerMultiprocessor);
  identity.threads_per_unit = attribute(cuda::kMaxThreadsPerMultiprocessor);
  identity.clusters = attribute(cuda::kClusterLaunch) != 0;
  identity.pci = fmt::format("{:04x}:{:02x}:{:02x}.0", attribute(cuda::kPciDomainId), attribute(cuda::kPciBusId),
                             attribute(cuda::kPciDeviceId));
  identity.driver_version = driver.version();
  return identity;
}

std::vector<CudaIdentity> cuda_identities(std::string& why) {
  std::vector<CudaIdentity> found;
  const CudaDriver* driver = CudaDriver::find(&why);
  if (driver == nullptr) return found;
  for (int ordinal = 0; ordinal < driver->device_count(); ++ordinal) found.push_back(CudaDevice::identify(ordinal));
  return found;
}

CudaDevice::CudaDevice(const CudaDriver& driver, CudaIdentity identity)
    : driver_(driver), identity_(std::move(identity)), forks_(fork_count()) {
  driver.check(api().primary_retain(&context_, device_of(driver, identity_.ordinal)), "cuDevicePrimaryCtxRetain");
}

CudaDevice::~CudaDevice() {
  if (of_this_process()) api().primary_release(identity_.ordinal);
}

bool CudaDevice::of_this_process() const { return forks_ == fork_count(); }

std::shared_ptr<const CudaDevice> CudaDevice::open(int ordinal) {
  static std::mutex mutex;
  static std::map<int, std::weak_ptr<const CudaDevice>> opened;
  const CudaDriver& driver = CudaDriver::get();
  const std::lock_guard lock(mutex);
  if (auto device = opened[ordinal].lock()) return device;
  std::shared_ptr<const CudaDevice> device(new CudaDevice(driver, identify(ordinal)));
  opened[ordinal] = device;
  return device;
}

void CudaDevice::synchronise() const {
  const ContextScope scope(*this);
  driver_.check(api().ctx_synchronize(), "cuCtxSynchronize");
}

std::size_t CudaDevice::free_memory() const {
  const ContextScope scope(*this);
  std::size_t free = 0, total = 0;
  driver_.check(api().mem_get_info(&free, &total), "cuMemGetInfo");
  return free;
}

ContextScope::ContextScope(const CudaDevice& device) {
  if (!device.of_this_process()) {
    throw DeviceError(
        fmt::format("this process was forked after cuda:{} was opened, and CUDA does not work in such a process: start it anew "
                    "instead (in Python "
                    "multiprocessing's \"spawn\"), or open the GPU after the fork alone",
                    device.ordinal()));
  }
  cuda::Context current = nullptr;
  device.driver().check(device.api().ctx_get_current(&current), "cuCtxGetCurrent");
  if (current == device.context()) return;
  device.driver().check(device.api().ctx_push(device.context()), "cuCtxPushCurrent");
  pushed_ = &device;
}

ContextScope::~ContextScope() {
  cuda::Context popped = nullptr;
  if (pushed_ != nullptr) pushed_->api().ctx_pop(&popped);
}

PointerPlace place_of(const CudaDevice& device, cuda::Address address) {
  std::array<int, 5> wanted{cuda::kPointerMemoryType, cuda::kPointerIsManaged, cuda::kPointerOrdinal, cuda::kPointerRangeStart,
                            cuda::kPointerRangeBytes};
  unsigned type = 0, managed = 0;  // the driver writes a bool, into the first byte
  PointerPlace place;
  std::array<void*, 5> values{&type, &managed, &place.ordinal, &place.begin, &place.bytes};
  device.driver().check(
      device.api().pointer_get_attributes(static_cast<unsigned>(wanted.size()), wanted.data(), values.data(), address),
      "cuPointerGetAttributes");
  place.on_device = type == cuda::kMemoryTypeDevice || managed != 0;
  return place;
}

}  // namespace nestor
