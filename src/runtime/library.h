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
#include <tuple>
#include <vector>

namespace nestor {

struct Library::Impl {
  Impl(Database opened, int threads);

  /// An answer, remembered; without a core when no kernel fits. Throws UserError for what cannot be a digest.
  std::shared_ptr<const KernelState> query(const KernelKey& key);

  void allow_unsigned(bool allowed);
  void refresh();
  /// Answers with kernels live as long as this object from now on: their addresses are handed out. Equal ones are one.
  void keep_answers() { keep_answers_ = true; }

  static std::shared_ptr<Impl> open(const std::string& path, const LibraryOptions& options);

  int threads;

 private:
  std::shared_ptr<const KernelState> look_up(const KernelKey& key);
  const Device& device(std::string_view name);
  std::shared_ptr<const LoadedKernel> load(const Device& device, const KernelRecord& kernel, const LaunchRecipe& recipe);
  /// Why nothing fits, as a message.
  std::string reason_of(const KernelKey& key, const std::vector<std::string>& passed_over);
  std::shared_ptr<const KernelCore> core_of(const Match& match, const Device& device);
  std::shared_ptr<const KernelState> kept(KernelState state);

  KernelTable table_;
  std::mutex mutex_;  // everything below
  bool keep_answers_ = false;
  Database database_;
  std::map<std::string, std::shared_ptr<const Device>, std::less<>> devices_;     // by the name asked for
  std::map<std::string, std::weak_ptr<const LoadedKernel>, std::less<>> loaded_;  // by device and kernel hash
  std::map<std::string, std::weak_ptr<const KernelCore>> cores_;                  // by device and all that is said of the record
  std::map<std::tuple<const KernelCore*, MatchKind, double>, std::shared_ptr<const KernelState>> kept_;
};

}  // namespace nestor
