// An SQLite VFS whose files lie in memory, and which loses power: of what was not synced, any sectors may be there afterwards.
//
// While a PowerCut lives, it is SQLite's default VFS: everything that opens a database gets it. One connection at a time.
#pragma once

#include <sqlite3.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace nestor::test {

class PowerCut {
 public:
  static constexpr std::size_t kSector = 512;

  explicit PowerCut(std::uint64_t seed) : random_(seed) {
    system_ = sqlite3_vfs_find(nullptr);
    vfs_ = *system_;
    vfs_.szOsFile = sizeof(File);
    vfs_.zName = "power_cut";
    vfs_.pAppData = this;
    vfs_.pNext = nullptr;
    vfs_.xOpen = open;
    vfs_.xDelete = remove;
    vfs_.xAccess = access;
    vfs_.xFullPathname = full_path;
    sqlite3_vfs_register(&vfs_, 1);
  }
  ~PowerCut() {
    sqlite3_vfs_unregister(&vfs_);
    sqlite3_vfs_register(system_, 1);
  }
  PowerCut(const PowerCut&) = delete;
  PowerCut& operator=(const PowerCut&) = delete;

  /// Power fails at that write, sync, truncation or removal from now on, counted from 1. 0: never.
  void cut_after(std::int64_t operations) { left_ = operations; }
  /// Bytes that the disk takes from now on; then writes fail. Negative: any number.
  void disk_space(std::int64_t bytes) { space_ = bytes; }
  bool dead() const { return dead_; }
  std::int64_t operations() const { return operations_; }

  /// What the disk has after a power cut, or after a call without one: everything that was synced, and sectors of the rest by chance.
  void power_on() {
    for (auto disk = disks_.begin(); disk != disks_.end();) {
      const bool there = settle(*disk->second);
      disk = there ? std::next(disk) : disks_.erase(disk);
    }
    dead_ = last_counted_ = false;
    left_ = 0;
  }

 private:
  struct Write {
    std::size_t at;
    std::string bytes;
    bool truncation = false;
  };
  /// A file as programs see it, and what of it the disk has for sure.
  struct Disk {
    std::string now, synced;
    std::vector<Write> waiting;
    bool name_synced = false;  ///< the folder's entry is on the disk
    bool removed = false;      ///< for programs; the entry may be still there after a cut
  };
  struct File {
    sqlite3_file base;
    PowerCut* self;
    std::shared_ptr<Disk>* disk;
    std::vector<std::unique_ptr<char[]>>* shared;
  };

  bool settle(Disk& disk) {
    const bool kept = disk.name_synced || chance();
    const bool there = kept && (!disk.removed || (disk.name_synced && chance()));
    std::string content = disk.synced;
    for (const Write& write : disk.waiting) apply_some(content, write);
    disk = Disk{content, content, {}, true, false};
    return there;
  }
  void apply_some(std::string& content, const Write& write) {
    if (write.truncation) {
      if (chance()) content.resize(write.at);
      return;
    }
    for (std::size_t done = 0; done < write.bytes.size();) {
      const std::size_t at = write.at + done, part = std::min(kSector - at % kSector, write.bytes.size() - done);
      if (chance()) put(content, at, write.bytes.data() + done, part);
      done += part;
    }
  }
  static void put(std::string& content, std::size_t at, const char* bytes, std::size_t size) {
    if (content.size() < at + size) content.resize(at + size);
    std::memcpy(content.data() + at, bytes, size);
  }
  bool chance() { return (random_() & 1) != 0; }
  /// Counts an operation that reaches the disk; false when there is no power any more.
  bool powered() {
    if (dead_) return false;
    ++operations_;
    if (left_ > 0 && --left_ == 0) dead_ = true;
    return !dead_;
  }

  // SQLite's interface.
  static PowerCut& of(sqlite3_vfs* vfs) { return *static_cast<PowerCut*>(vfs->pAppData); }
  static File& of(sqlite3_file* file) { return *reinterpret_cast<File*>(file); }
  static Disk& disk_of(sqlite3_file* file) { return **of(file).disk; }

  static int open(sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags, int* out_flags) {
    PowerCut& self = of(vfs);
    file->pMethods = nullptr;
    const std::string path = name == nullptr ? "temporary " + std::to_string(self.temporary_++) : name;
    auto& disk = self.disks_[path];
    const bool there = disk != nullptr && !disk->removed;
    if (!there && (self.dead_ || (flags & SQLITE_OPEN_CREATE) == 0)) {
      if (disk == nullptr) self.disks_.erase(path);
      return SQLITE_CANTOPEN;
    }
    if (!there) {
      const bool entry = disk != nullptr && disk->name_synced;
      disk = std::make_shared<Disk>();
      disk->name_synced = entry;
    }
    of(file).self = &self;
    of(file).disk = new std::shared_ptr<Disk>(disk);
    of(file).shared = new std::vector<std::unique_ptr<char[]>>;
    file->pMethods = methods();
    if (out_flags != nullptr) *out_flags = flags;
    return SQLITE_OK;
  }
  static int remove(sqlite3_vfs* vfs, const char* name, int sync_folder) {
    PowerCut& self = of(vfs);
    const auto found = self.disks_.find(name);
    if (found == self.disks_.end() || found->second->removed) return SQLITE_IOERR_DELETE_NOENT;
    if (!self.powered()) return SQLITE_IOERR_DELETE;
    found->second->removed = true;
    if (sync_folder != 0) self.disks_.erase(found);
    return SQLITE_OK;
  }
  static int access(sqlite3_vfs* vfs, const char* name, int flags, int* out) {
    const auto& disks = of(vfs).disks_;
    const auto found = disks.find(name);
    *out =
        found != disks.end() && !found->second->removed && (flags != SQLITE_ACCESS_EXISTS || !found->second->now.empty()) ? 1 : 0;
    return SQLITE_OK;
  }
  static int full_path(sqlite3_vfs*, const char* name, int size, char* out) {
    sqlite3_snprintf(size, out, "%s", name);
    return SQLITE_OK;
  }
  static int close(sqlite3_file* file) {
    delete of(file).disk;
    delete of(file).shared;
    return SQLITE_OK;
  }
  static int read(sqlite3_file* file, void* out, int size, sqlite3_int64 at) {
    const std::string& now = disk_of(file).now;
    const auto from = static_cast<std::size_t>(at), wanted = static_cast<std::size_t>(size);
    const std::size_t got = from < now.size() ? std::min(wanted, now.size() - from) : 0;
    std::memcpy(out, now.data() + std::min(from, now.size()), got);
    std::memset(static_cast<char*>(out) + got, 0, wanted - got);
    return got == wanted ? SQLITE_OK : SQLITE_IOERR_SHORT_READ;
  }
  static int write(sqlite3_file* file, const void* bytes, int size, sqlite3_int64 at) {
    PowerCut& self = *of(file).self;
    Disk& disk = disk_of(file);
    const bool powered = self.powered();
    if (!powered && !self.last_write_counts()) return SQLITE_IOERR_WRITE;
    const auto from = static_cast<std::size_t>(at), count = static_cast<std::size_t>(size);
    const std::size_t grown = from + count > disk.now.size() ? from + count - disk.now.size() : 0;
    if (self.space_ >= 0 && static_cast<std::int64_t>(grown) > self.space_) return SQLITE_FULL;
    if (self.space_ >= 0) self.space_ -= static_cast<std::int64_t>(grown);
    disk.waiting.push_back({from, std::string(static_cast<const char*>(bytes), count)});
    put(disk.now, from, static_cast<const char*>(bytes), count);
    return powered ? SQLITE_OK : SQLITE_IOERR_WRITE;
  }
  static int truncate(sqlite3_file* file, sqlite3_int64 size) {
    if (!of(file).self->powered()) return SQLITE_IOERR_TRUNCATE;
    disk_of(file).now.resize(static_cast<std::size_t>(size));
    disk_of(file).waiting.push_back({static_cast<std::size_t>(size), "", true});
    return SQLITE_OK;
  }
  static int sync(sqlite3_file* file, int) {
    if (!of(file).self->powered()) return SQLITE_IOERR_FSYNC;
    Disk& disk = disk_of(file);
    disk.synced = disk.now;
    disk.waiting.clear();
    disk.name_synced = true;
    return SQLITE_OK;
  }
  static int file_size(sqlite3_file* file, sqlite3_int64* size) {
    *size = static_cast<sqlite3_int64>(disk_of(file).now.size());
    return SQLITE_OK;
  }
  static int shared_map(sqlite3_file* file, int page, int size, int extend, void volatile** out) {
    auto& pages = *of(file).shared;
    const auto index = static_cast<std::size_t>(page);
    if (extend != 0) {
      while (pages.size() <= index) pages.push_back(std::make_unique<char[]>(static_cast<std::size_t>(size)));
    }
    *out = index < pages.size() ? pages[index].get() : nullptr;
    return SQLITE_OK;
  }
  static const sqlite3_io_methods* methods() {
    static const sqlite3_io_methods list{2,
                                         close,
                                         read,
                                         write,
                                         truncate,
                                         sync,
                                         file_size,
                                         [](sqlite3_file*, int) { return SQLITE_OK; },  // locks: one connection at a time
                                         [](sqlite3_file*, int) { return SQLITE_OK; },
                                         [](sqlite3_file*, int* out) {
                                           *out = 0;
                                           return SQLITE_OK;
                                         },
                                         [](sqlite3_file*, int, void*) { return SQLITE_NOTFOUND; },
                                         [](sqlite3_file*) { return static_cast<int>(kSector); },
                                         [](sqlite3_file*) { return 0; },
                                         shared_map,
                                         [](sqlite3_file*, int, int, int) { return SQLITE_OK; },
                                         [](sqlite3_file*) {},
                                         [](sqlite3_file* file, int) {
                                           of(file).shared->clear();
                                           return SQLITE_OK;
                                         },
                                         nullptr,
                                         nullptr};
    return &list;
  }
  /// The write that power fails at may have reached the disk in part.
  bool last_write_counts() { return dead_ && left_ == 0 && !std::exchange(last_counted_, true); }

  sqlite3_vfs* system_ = nullptr;
  sqlite3_vfs vfs_{};
  std::mt19937_64 random_;
  std::map<std::string, std::shared_ptr<Disk>> disks_;
  std::int64_t left_ = 0, space_ = -1, operations_ = 0;
  int temporary_ = 0;
  bool dead_ = false, last_counted_ = false;
};

}  // namespace nestor::test
