// CPU identification through cpuid, so that look-ups need no LLVM.
#include "support/architecture.h"

#include <fmt/format.h>

#include <cpuid.h>
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>

namespace nestor {
namespace {

struct Feature {
  std::string_view name;  ///< LLVM's
  bool present;
};

// Features that kernels use beyond the x86-64 baseline. __builtin_cpu_supports knows whether the system saves the
// registers, too; it takes literals only, and not LLVM's spelling.
const auto& features() {
  static const std::array kFeatures{
      Feature{"sse3", __builtin_cpu_supports("sse3") != 0},
      Feature{"ssse3", __builtin_cpu_supports("ssse3") != 0},
      Feature{"sse4.1", __builtin_cpu_supports("sse4.1") != 0},
      Feature{"sse4.2", __builtin_cpu_supports("sse4.2") != 0},
      Feature{"popcnt", __builtin_cpu_supports("popcnt") != 0},
      Feature{"avx", __builtin_cpu_supports("avx") != 0},
      Feature{"avx2", __builtin_cpu_supports("avx2") != 0},
      Feature{"fma", __builtin_cpu_supports("fma") != 0},
      Feature{"f16c", __builtin_cpu_supports("f16c") != 0},
      Feature{"bmi", __builtin_cpu_supports("bmi") != 0},
      Feature{"bmi2", __builtin_cpu_supports("bmi2") != 0},
      Feature{"lzcnt", __builtin_cpu_supports("lzcnt") != 0},
      Feature{"movbe", __builtin_cpu_supports("movbe") != 0},
      Feature{"avx512f", __builtin_cpu_supports("avx512f") != 0},
      Feature{"avx512cd", __builtin_cpu_supports("avx512cd") != 0},
      Feature{"avx512bw", __builtin_cpu_supports("avx512bw") != 0},
      Feature{"avx512dq", __builtin_cpu_supports("avx512dq") != 0},
      Feature{"avx512vl", __builtin_cpu_supports("avx512vl") != 0},
      Feature{"avx512ifma", __builtin_cpu_supports("avx512ifma") != 0},
      Feature{"avx512vbmi", __builtin_cpu_supports("avx512vbmi") != 0},
      Feature{"avx512vbmi2", __builtin_cpu_supports("avx512vbmi2") != 0},
      Feature{"avx512vnni", __builtin_cpu_supports("avx512vnni") != 0},
      Feature{"avx512bitalg", __builtin_cpu_supports("avx512bitalg") != 0},
      Feature{"avx512vpopcntdq", __builtin_cpu_supports("avx512vpopcntdq") != 0},
      Feature{"avx512bf16", __builtin_cpu_supports("avx512bf16") != 0},
      Feature{"avx512fp16", __builtin_cpu_supports("avx512fp16") != 0},
      Feature{"avxvnni", __builtin_cpu_supports("avxvnni") != 0},
      Feature{"amx-tile", __builtin_cpu_supports("amx-tile") != 0},
      Feature{"amx-int8", __builtin_cpu_supports("amx-int8") != 0},
      Feature{"amx-bf16", __builtin_cpu_supports("amx-bf16") != 0},
  };
  return kFeatures;
}

bool has(std::string_view name) {
  for (const Feature& feature : features()) {
    if (feature.name == name) return feature.present;
  }
  return false;
}

bool refuse(std::string* why, std::string reason) {
  if (why != nullptr) *why = std::move(reason);
  return false;
}

// `text` up to `separator`, which is removed with it.
std::string_view take(std::string_view& text, char separator) {
  const std::size_t end = text.find(separator);
  const std::string_view head = text.substr(0, end);
  text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  return head;
}

bool host_can_run(std::string_view architecture, std::string* why) {
  std::string_view rest = architecture;
  if (take(rest, ':') != "x86-64") return refuse(why, fmt::format("it is for {}, this device is an x86-64 CPU", architecture));
#if !defined(__x86_64__)
  return refuse(why, fmt::format("it is for {}, this CPU is another", architecture));
#endif
  take(rest, ':');
  while (!rest.empty()) {
    const std::string_view item = take(rest, ',');
    if (item.empty() || item.front() != '+') continue;
    for (const Feature& feature : features()) {
      if (feature.name == item.substr(1) && !feature.present) {
        return refuse(why, fmt::format("it was compiled for {}, which this CPU lacks", feature.name));
      }
    }
  }
  return true;
}

struct ComputeCapability {
  int sm;
  bool specific;  ///< "a": for this one alone
};

std::optional<ComputeCapability> parse_sm(std::string_view text) {
  if (!text.starts_with("sm_")) return std::nullopt;
  text.remove_prefix(3);
  int sm = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), sm);
  const std::string_view rest(end, static_cast<std::size_t>(text.data() + text.size() - end));
  if (error != std::errc() || sm <= 0 || (!rest.empty() && rest != "a")) return std::nullopt;
  return ComputeCapability{sm, rest == "a"};
}

bool cuda_can_run(std::string_view architecture, std::string_view arch, std::string* why) {
  const auto kernel = parse_sm(architecture), device = parse_sm(arch);
  if (!kernel) return refuse(why, fmt::format("it is for {}, this device is a GPU", architecture));
  if (!device) return refuse(why, fmt::format("the device's architecture \"{}\" is not of the form sm_90", arch));
  const bool fits = kernel->specific ? kernel->sm == device->sm : kernel->sm <= device->sm;
  return fits || refuse(why, fmt::format("it is for {}, this device is {}", architecture, arch));
}

struct CpuId {
  std::array<char, 13> vendor{};
  unsigned family = 0, model = 0;
};

CpuId read_cpuid() {
  CpuId id;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(0, &eax, &ebx, &ecx, &edx) == 0) return id;
  const std::array<unsigned, 3> words{ebx, edx, ecx};
  for (std::size_t k = 0; k < 12; ++k) id.vendor[k] = static_cast<char>(words[k / 4] >> (8 * (k % 4)));
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return id;
  id.family = (eax >> 8) & 15;
  id.model = (eax >> 4) & 15;
  if (id.family == 6 || id.family == 15) id.model |= ((eax >> 16) & 15) << 4;
  if (id.family == 15) id.family += (eax >> 20) & 255;
  return id;
}

bool between(unsigned value, unsigned low, unsigned high) { return low <= value && value <= high; }

std::string_view amd_name(unsigned family, unsigned model) {
  if (family == 0x17) {
    const bool second = between(model, 0x30, 0x3f) || model == 0x47 || between(model, 0x60, 0x7f) || between(model, 0x84, 0x87) ||
                        between(model, 0x90, 0xaf);
    return second ? "znver2" : "znver1";
  }
  if (family == 0x19) return between(model, 0x10, 0x1f) || between(model, 0x60, 0xaf) ? "znver4" : "znver3";
  if (family == 0x1a) return "znver5";
  return "";
}

// The models of family 6 on which AVX2 code is likely to run; 0x55 is told apart by features.
std::string_view intel_name(unsigned family, unsigned model) {
  if (family != 6) return "";
  switch (model) {
    case 0x3c:
    case 0x3f:
    case 0x45:
    case 0x46:
      return "haswell";
    case 0x3d:
    case 0x47:
    case 0x4f:
    case 0x56:
      return "broadwell";
    case 0x4e:
    case 0x5e:
    case 0x8e:
    case 0x9e:
    case 0xa5:
    case 0xa6:
      return "skylake";
    case 0x55:
      return has("avx512bf16") ? "cooperlake" : has("avx512vnni") ? "cascadelake" : "skylake-avx512";
    case 0x7d:
    case 0x7e:
      return "icelake-client";
    case 0x6a:
    case 0x6c:
      return "icelake-server";
    case 0x8c:
    case 0x8d:
      return "tigerlake";
    case 0xa7:
      return "rocketlake";
    case 0x97:
    case 0x9a:
      return "alderlake";
    case 0xb7:
    case 0xba:
    case 0xbf:
      return "raptorlake";
    case 0x8f:
    case 0xcf:  // Emerald Rapids, by LLVM's name
      return "sapphirerapids";
    case 0xad:
      return "graniterapids";
    default:
      return "";
  }
}

std::string_view level_name() {
  if (has("avx512f") && has("avx512bw") && has("avx512dq") && has("avx512vl") && has("avx512cd")) return "x86-64-v4";
  if (has("avx2") && has("fma") && has("bmi2")) return "x86-64-v3";
  return has("sse4.2") && has("popcnt") ? "x86-64-v2" : "x86-64";
}

}  // namespace

bool can_run(std::string_view architecture, std::string_view kind, std::string_view arch, std::string* why) {
  if (kind == "host") return host_can_run(architecture, why);
  if (kind == "cuda") return cuda_can_run(architecture, arch, why);
  return refuse(why, fmt::format("devices of kind \"{}\" are not known", kind));
}

std::string host_cpu_name() {
  const CpuId id = read_cpuid();
  const std::string_view vendor(id.vendor.data());
  std::string_view name;
  if (vendor == "AuthenticAMD") name = amd_name(id.family, id.model);
  if (vendor == "GenuineIntel") name = intel_name(id.family, id.model);
  return std::string(name.empty() ? level_name() : name);
}

}  // namespace nestor
