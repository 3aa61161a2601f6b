// Library's inside, shared with the C API.
#pragma once

#include "db/database.h"
#include "nestor/runtime.h"
#include "runtime/device.h"
#include "runtime/kernel_state.h"
#include "runtime/kernel_table.h"
#include "support/system/fork_count.h"

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace nestor {

struct Library::Impl {
  /// `open`: the database, in this process and again in each that is forked from it.
  /// `system`: the path of the system database that it consults, "" for none.
  Impl(std::function<Database()> open, std::string system, int threads);

  /// nullptr when none fits. The pointee lives as long as this object. Throws UserError for what cannot be a digest.
  const std::shared_ptr<const KernelState>* query(const KernelKey& key);

  /// Kernels of what is asked for that are not served because this revision has not checked them.
  std::int64_t waiting(const KernelKey& key);

  /// Which of operator, variant, digest, device and sizes fits no record.
  std::string why_none(const KernelKey& key);

  /// Forgets answers.
  void refresh();

  static std::shared_ptr<Impl> open(const std::string& path, const LibraryOptions& options);

  KernelTable table;
  int threads;

 private:
  struct LookUps;
  std::string system_;
  const std::shared_ptr<const KernelState>* look_up(LookUps& shared, const KernelKey& key);
  const Device& device(LookUps& shared, std::string_view name) const;
  static std::shared_ptr<const LoadedKernel> load(LookUps& shared, const Device& device, const KernelRecord& kernel,
                                                  const LaunchRecipe& recipe);

  // What look-ups share. A forked child must not use its parent's connection to a database, nor its GPU.
  struct LookUps {
    explicit LookUps(Database opened) : database(std::move(opened)) {}
    std::mutex mutex;  // everything below
    Database database;
    std::optional<std::vector<Database::ProblemSummary>> records;                    // what why_none() reads, once
    std::map<std::string, std::shared_ptr<const Device>, std::less<>> devices;       // by the name asked for
    std::map<std::string, std::shared_ptr<const LoadedKernel>, std::less<>> loaded;  // by device and kernel hash
  };
  PerProcess<LookUps> look_ups_;
};

}  // namespace nestor
