// Names of devices.
#include "runtime/device.h"

#include "support/error.h"
#include "support/words/device_words.h"

#include <charconv>

namespace nestor {
namespace {

constexpr std::string_view kCuda = "cuda";

// The number in "cuda:1"; 0 for "cuda". Throws UserError for anything else.
int cuda_ordinal(std::string_view name) {
  if (name == kCuda) return 0;
  const std::string_view digits = name.substr(std::min(name.size(), kCuda.size() + 1));
  int ordinal = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), ordinal);
  const bool number = error == std::errc() && end == digits.data() + digits.size() && ordinal >= 0;
  if (!name.starts_with("cuda:") || !number)
    user_error("there is no device \"{}\"; devices are: host, cuda (the first GPU), cuda:0, cuda:1, ...{}", name,
               meant_device(name, {"host", "cuda", "cuda:0", "cuda:1"}));
  return ordinal;
}

}  // namespace

std::unique_ptr<Device> make_device(std::string_view name, int threads) {
  return name == "host" ? make_host_device(threads) : make_cuda_device(cuda_ordinal(name));
}

}  // namespace nestor
