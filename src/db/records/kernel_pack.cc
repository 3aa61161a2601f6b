// Packs of kernels: a text index, then the codes, all of it in one zstd frame with a checksum.
#include "db/records/kernel_pack.h"

#include "support/error.h"

#include <zstd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <ostream>
#include <set>

namespace nestor {
namespace {

constexpr int kPackLevel = 19;
constexpr int kWindowLog = 27;  // 128 MiB: what readers take at most
constexpr std::string_view kTitle = "nestor kernels 1 ";
constexpr std::uint64_t kMostKernels = 1u << 20;
constexpr std::size_t kOldHashDigits = 32, kHashDigits = 64;  // older programs wrote an XXH3-128
constexpr std::size_t kLongestLine = 96;

std::string index_text(const std::vector<PackedKernel>& kernels) {
  std::string text = fmt::format("{}{}\n", kTitle, kernels.size());
  for (const PackedKernel& kernel : kernels) text += fmt::format("{} {}\n", kernel.hash, kernel.bytes);
  return text;
}

std::uint64_t bytes_of_all(const std::vector<PackedKernel>& kernels) {
  std::uint64_t bytes = 0;
  for (const PackedKernel& kernel : kernels) bytes += kernel.bytes;
  return bytes;
}

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool is_hash(std::string_view text) {
  return (text.size() == kHashDigits || text.size() == kOldHashDigits) &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

std::string pack_path(const std::string& records) {
  std::filesystem::path path(records);
  path.replace_extension(".pack");
  if (path == std::filesystem::path(records))
    user_error("{}: records need another name than *.pack, which is that of their kernels; *.jsonl would be right", records);
  return path.string();
}

struct PackWriter::State {
  std::ostream& out;
  std::vector<PackedKernel> kernels;
  std::unique_ptr<ZSTD_CCtx, std::size_t (*)(ZSTD_CCtx*)> context{ZSTD_createCCtx(), ZSTD_freeCCtx};
  std::string buffer = std::string(ZSTD_CStreamOutSize(), '\0');
  std::size_t added = 0;

  void set(ZSTD_cParameter parameter, int value) { require(ZSTD_CCtx_setParameter(context.get(), parameter, value)); }
  static std::size_t require(std::size_t result) {
    if (ZSTD_isError(result) != 0) internal_error("zstd: {}", ZSTD_getErrorName(result));
    return result;
  }

  void write(std::string_view data, ZSTD_EndDirective end) {
    ZSTD_inBuffer in{data.data(), data.size(), 0};
    for (std::size_t left = 1; left != 0;) {
      ZSTD_outBuffer made{buffer.data(), buffer.size(), 0};
      left = require(ZSTD_compressStream2(context.get(), &made, &in, end));
      out.write(buffer.data(), static_cast<std::streamsize>(made.pos));
      if (end == ZSTD_e_continue) left = in.size - in.pos;
    }
  }
};

PackWriter::PackWriter(std::ostream& out, const std::vector<PackedKernel>& kernels) : state_(new State{out, kernels}) {
  if (kernels.size() > kMostKernels)
    user_error("{} kernels are too many for one pack, which holds {}", kernels.size(), kMostKernels);
  for (const PackedKernel& kernel : kernels) {
    if (kernel.bytes == 0 || kernel.bytes > kLargestPackedKernel)
      user_error("kernel {} has {} bytes of code; a pack takes 1 to {}", kernel.hash, kernel.bytes, kLargestPackedKernel);
  }
  if (!state_->context) internal_error("zstd: no memory");
  const std::string index = index_text(kernels);
  state_->set(ZSTD_c_compressionLevel, kPackLevel);
  state_->set(ZSTD_c_windowLog, kWindowLog);
  state_->set(ZSTD_c_enableLongDistanceMatching, 1);
  state_->set(ZSTD_c_checksumFlag, 1);
  State::require(ZSTD_CCtx_setPledgedSrcSize(state_->context.get(), index.size() + bytes_of_all(kernels)));
  state_->write(index, ZSTD_e_continue);
}

PackWriter::~PackWriter() = default;

void PackWriter::add(std::string_view code) {
  if (state_->added == state_->kernels.size() || code.size() != state_->kernels[state_->added].bytes)
    internal_error("kernel {} of a pack is not the one of its index", state_->added);
  ++state_->added;
  state_->write(code, ZSTD_e_continue);
}

void PackWriter::finish() {
  if (state_->added != state_->kernels.size()) internal_error("{} of {} kernels packed", state_->added, state_->kernels.size());
  state_->write({}, ZSTD_e_end);
}

struct PackReader::State {
  std::string path;
  std::ifstream file;
  std::unique_ptr<ZSTD_DCtx, std::size_t (*)(ZSTD_DCtx*)> context{ZSTD_createDCtx(), ZSTD_freeDCtx};
  std::string compressed = std::string(ZSTD_DStreamInSize(), '\0');
  ZSTD_inBuffer in{compressed.data(), 0, 0};
  std::size_t hint = 1;  ///< 0: the frame is complete
  std::vector<PackedKernel> kernels{};
  std::size_t read = 0;

  [[noreturn]] void damaged(const std::string& how) const {
    user_error("{} is no sound pack of kernels ({}): take it again from where it was made", path, how);
  }
  // False at the file's end.
  bool refill() {
    if (in.pos < in.size) return true;
    file.read(compressed.data(), static_cast<std::streamsize>(compressed.size()));
    in = {compressed.data(), static_cast<std::size_t>(file.gcount()), 0};
    if (file.bad()) user_error("reading {} failed", path);
    return in.size > 0;
  }
  // Exactly `size` bytes.
  void decompress(char* data, std::size_t size) {
    ZSTD_outBuffer out{data, size, 0};
    while (out.pos < out.size) {
      if (hint == 0) damaged("it ends before its last kernel");
      const std::size_t before = out.pos;
      const bool more = refill();
      step(out);
      if (!more && out.pos == before) damaged("it is cut off");
    }
  }
  void step(ZSTD_outBuffer& out) {
    hint = ZSTD_decompressStream(context.get(), &out, &in);
    if (ZSTD_isError(hint) != 0) damaged(ZSTD_getErrorName(hint));
  }
  std::string line() {
    std::string text;
    for (char c = 0; text.size() <= kLongestLine; text += c) {
      decompress(&c, 1);
      if (c == '\n') return text;
    }
    damaged("its index has too long a line");
  }
  void open();
  void read_index();
};

// The frame says how much it holds, which the index must confirm.
void PackReader::State::open() {
  if (!file) user_error("{} cannot be read: {}", path, std::strerror(errno));
  if (!context) internal_error("zstd: no memory");
  ZSTD_DCtx_setParameter(context.get(), ZSTD_d_windowLogMax, kWindowLog);
  refill();
  const unsigned long long size = ZSTD_getFrameContentSize(in.src, in.size);
  if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN) damaged("it does not begin as one");
  read_index();
  if (index_text(kernels).size() + bytes_of_all(kernels) != size) damaged("its size is not that of its kernels");
}

void PackReader::State::read_index() {
  const std::string title = line();
  const auto count = title.starts_with(kTitle) ? number(std::string_view(title).substr(kTitle.size())) : std::nullopt;
  if (!count || *count > kMostKernels) damaged("it does not begin as one");
  std::set<std::string> seen;
  for (std::uint64_t k = 0; k < *count; ++k) {
    const std::string text = line();
    const std::string_view entry(text);
    const std::size_t space = std::min(entry.find(' '), entry.size());
    const auto bytes = space < entry.size() ? number(entry.substr(space + 1)) : std::nullopt;
    if (!bytes || *bytes == 0 || *bytes > kLargestPackedKernel || !is_hash(entry.substr(0, space)))
      damaged(fmt::format("entry {} of its index is wrong", k + 1));
    kernels.push_back({text.substr(0, space), *bytes});
    if (!seen.insert(kernels.back().hash).second) damaged(fmt::format("kernel {} is in it twice", kernels.back().hash));
  }
}

PackReader::PackReader(const std::string& path) : state_(new State{path, std::ifstream(path, std::ios::binary)}) {
  state_->open();
}
PackReader::~PackReader() = default;

const std::vector<PackedKernel>& PackReader::kernels() const { return state_->kernels; }

std::string PackReader::next(bool wanted) {
  if (state_->read == state_->kernels.size()) internal_error("{}: read past the last kernel", state_->path);
  std::uint64_t left = state_->kernels[state_->read++].bytes;
  std::array<char, 1 << 14> part{};
  std::string code;
  while (left > 0) {
    const std::size_t now = std::min<std::uint64_t>(left, part.size());
    state_->decompress(part.data(), now);
    if (wanted) code.append(part.data(), now);
    left -= now;
  }
  return code;
}

void PackReader::finish() {
  if (state_->read != state_->kernels.size()) internal_error("{}: not read to its last kernel", state_->path);
  while (state_->hint != 0) {
    char more = 0;
    ZSTD_outBuffer out{&more, 1, 0};
    const bool left = state_->refill();
    state_->step(out);
    if (out.pos > 0) state_->damaged("it goes on after its last kernel");
    if (!left && state_->hint != 0) state_->damaged("it is cut off");
  }
  if (state_->refill()) state_->damaged("something follows its end");
}

}  // namespace nestor
