// Library's inside, shared with the C API.
#pragma once

#include "db/database.h"
#include "nestor/runtime.h"
#include "runtime/device.h"
#include "runtime/kernel_state.h"
#include "runtime/kernel_table.h"

#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace nestor {

struct Library::Impl {
  Impl(Database opened, int threads);

  /// nullptr when none fits. The pointee lives as long as this object. Throws UserError for what cannot be a digest.
  const std::shared_ptr<const KernelState>* query(const KernelKey& key);

  /// Kernels of what is asked for that are not served because this revision has not checked them.
  std::int64_t waiting(const KernelKey& key);

  static std::shared_ptr<Impl> open(const std::string& path, const LibraryOptions& options);

  KernelTable table;
  int threads;

 private:
  const std::shared_ptr<const KernelState>* look_up(const KernelKey& key);
  const Device& device(std::string_view name);
  std::shared_ptr<const LoadedKernel> load(const Device& device, const KernelRecord& kernel, const LaunchRecipe& recipe);

  std::mutex mutex_;  // everything below
  Database database_;
  std::map<std::string, std::shared_ptr<const Device>, std::less<>> devices_;       // by the name asked for
  std::map<std::string, std::shared_ptr<const LoadedKernel>, std::less<>> loaded_;  // by device and kernel hash
};

}  // namespace nestor
