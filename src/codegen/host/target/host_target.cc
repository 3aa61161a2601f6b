// The CPU of this process, as LLVM sees it.
#include "codegen/host/target/host_target.h"

#include <llvm/ADT/StringMap.h>
#include <llvm/TargetParser/Host.h>

#include <algorithm>
#include <vector>

namespace nestor {

HostTarget detect_host() {
  HostTarget target;
  target.cpu = llvm::sys::getHostCPUName().str();
  const llvm::StringMap<bool> features = llvm::sys::getHostCPUFeatures();
  std::vector<std::string> names;
  for (const auto& feature : features) {
    names.push_back((feature.second ? "+" : "-") + feature.first().str());
  }
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) target.features += (target.features.empty() ? "" : ",") + name;
  const auto has = [&](const char* name) { return features.lookup(name); };
  target.vector_bytes = has("avx512f") && has("avx512vl") && has("avx512bw") && has("avx512dq") ? 64 : has("avx2") ? 32 : 16;
  target.vector_registers = target.vector_bytes == 64 ? 32 : 16;
  return target;
}

}  // namespace nestor
