// Library's inside, shared with the C API.
#pragma once

#include "db/database.h"
#include "nestor/runtime.h"
#include "runtime/device.h"
#include "runtime/kernel_state.h"
#include "runtime/kernel_table.h"
#include "support/system/fork_count.h"

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace nestor {

struct Library::Impl {
  /// `open`: the database, in this process and again in each that is forked from it.
  /// `system`: the path of the system database that it consults, "" for none.
  Impl(std::function<Database()> open, std::string system, int threads);

  /// An answer, remembered; without a core when no kernel fits. Throws UserError for what cannot be a digest.
  std::shared_ptr<const KernelState> query(const KernelKey& key);

  void allow_unsigned(bool allowed);
  void refresh();
  /// Answers with kernels live as long as this object from now on: their addresses are handed out. Equal ones are one.
  void keep_answers() { keep_answers_ = true; }

  static std::shared_ptr<Impl> open(const std::string& path, const LibraryOptions& options);

  int threads;

 private:
  /// What look-ups share. A forked child must not use its parent's connection to a database, nor its GPU.
  struct LookUps {
    explicit LookUps(Database opened) : database(std::move(opened)) {}
    std::mutex mutex;  // everything below
    Database database;
    // Of operator, variant and digest: what reason_of() reads, once.
    std::map<std::string, std::int64_t> waiting, damaged;
    std::optional<std::vector<Database::ProblemSummary>> records;                  // what why_none() reads, once
    std::map<std::string, std::shared_ptr<const Device>, std::less<>> devices;     // by the name asked for
    std::map<std::string, std::weak_ptr<const LoadedKernel>, std::less<>> loaded;  // by device and kernel hash
    std::map<std::string, std::weak_ptr<const KernelCore>> cores;                  // by what info() says
    std::map<std::tuple<const KernelCore*, MatchKind, double>, std::shared_ptr<const KernelState>> kept;
  };

  std::shared_ptr<const KernelState> look_up(LookUps& shared, const KernelKey& key);
  const Device& device(LookUps& shared, std::string_view name) const;
  static std::shared_ptr<const LoadedKernel> load(LookUps& shared, const Device& device, const KernelRecord& kernel,
                                                  const LaunchRecipe& recipe);
  /// Why nothing fits, as a message.
  std::string reason_of(LookUps& shared, const KernelKey& key, const std::vector<std::string>& passed_over) const;
  /// Which of operator, variant, digest, device and sizes fits no record.
  std::string why_none(LookUps& shared, const KernelKey& key) const;
  static std::shared_ptr<const KernelCore> core_of(LookUps& shared, const Match& match, const Device& device);
  std::shared_ptr<const KernelState> kept(LookUps& shared, KernelState state) const;

  KernelTable table_;
  std::string system_;
  bool keep_answers_ = false;
  std::atomic<int> unsigned_{-1};  ///< what allow_unsigned() said last; -1: nothing
  PerProcess<LookUps> look_ups_;
};

}  // namespace nestor
