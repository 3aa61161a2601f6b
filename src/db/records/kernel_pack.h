// The code of many kernels in one file: a zstd frame in which similar PTX is kept once. Written and read in streams.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace nestor {

/// An entry of a pack's index.
struct PackedKernel {
  std::string hash;         ///< kernel_hash of code and recipe; older packs have an XXH3-128
  std::uint64_t bytes = 0;  ///< of the code, uncompressed: 1 to kLargestPackedKernel
};
constexpr std::uint64_t kLargestPackedKernel = std::uint64_t{64} << 20;

/// "dir/NAME.jsonl" -> "dir/NAME.pack"; any other last extension is replaced, too. Throws UserError when that is `records` itself.
std::string pack_path(const std::string& records);

/// Writes a pack. Holds no more than zstd's window, whatever the kernels take together.
class PackWriter {
 public:
  /// `kernels`: the whole index, each hash once. Throws UserError for a kernel without code or too large a one.
  PackWriter(std::ostream& out, const std::vector<PackedKernel>& kernels);
  ~PackWriter();
  PackWriter(const PackWriter&) = delete;
  PackWriter& operator=(const PackWriter&) = delete;

  /// The next kernel's code, in the order of the index and of the size said there.
  void add(std::string_view code);
  /// After the last; the caller looks at the stream's state.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Reads a pack, kernel by kernel. Sizes are checked before memory is taken; at most one kernel and zstd's window (128 MiB) are held.
/// Everything throws UserError naming the file when it is missing, cut off, altered, or no pack.
class PackReader {
 public:
  /// Reads and checks the index.
  explicit PackReader(const std::string& path);
  ~PackReader();
  PackReader(const PackReader&) = delete;
  PackReader& operator=(const PackReader&) = delete;

  const std::vector<PackedKernel>& kernels() const;
  /// Code of the next kernel of the index; "" without `wanted`, which takes no memory for it.
  std::string next(bool wanted);
  /// After the last kernel: demands that the file ends here, with the checksum of all.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace nestor
