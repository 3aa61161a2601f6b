// The kernels as PTX, written by hand: grid-stride loops over words.
#include "autotune/gpu/gpu_tools.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace nestor {
namespace {

/// find_word: the smallest number of a word that, compared with `pattern`, has an equal element: the subtraction borrows from
/// an element's highest bit where its difference is 0. digest_words: the sum of word * (2 * number + 1).
constexpr const char* kPtx = R"ptx(
.version 7.0
.target sm_80
.address_size 64

.visible .entry find_word(.param .u64 words, .param .u64 count, .param .u32 pattern, .param .u32 ones, .param .u32 highs,
                          .param .u64 result)
{
  .reg .pred %p<3>;
  .reg .b32 %r<12>;
  .reg .b64 %d<9>;
  ld.param.u64 %d1, [words];
  ld.param.u64 %d2, [count];
  ld.param.u32 %r1, [pattern];
  ld.param.u32 %r2, [ones];
  ld.param.u32 %r3, [highs];
  ld.param.u64 %d7, [result];
  mov.u32 %r4, %ctaid.x;
  mov.u32 %r5, %ntid.x;
  mov.u32 %r6, %tid.x;
  mov.u32 %r7, %nctaid.x;
  cvt.u64.u32 %d8, %r6;
  mad.wide.u32 %d3, %r4, %r5, %d8;
  mul.wide.u32 %d4, %r7, %r5;
  setp.ge.u64 %p1, %d3, %d2;
  @%p1 bra DONE;
LOOP:
  shl.b64 %d5, %d3, 2;
  add.u64 %d6, %d1, %d5;
  ld.global.u32 %r8, [%d6];
  xor.b32 %r8, %r8, %r1;
  sub.u32 %r9, %r8, %r2;
  not.b32 %r10, %r8;
  and.b32 %r9, %r9, %r10;
  and.b32 %r9, %r9, %r3;
  setp.eq.u32 %p2, %r9, 0;
  @%p2 bra NEXT;
  red.global.min.u64 [%d7], %d3;
NEXT:
  add.u64 %d3, %d3, %d4;
  setp.lt.u64 %p1, %d3, %d2;
  @%p1 bra LOOP;
DONE:
  ret;
}

.visible .entry digest_words(.param .u64 words, .param .u64 count, .param .u64 result)
{
  .reg .pred %p<2>;
  .reg .b32 %r<9>;
  .reg .b64 %d<12>;
  ld.param.u64 %d1, [words];
  ld.param.u64 %d2, [count];
  ld.param.u64 %d7, [result];
  mov.u32 %r4, %ctaid.x;
  mov.u32 %r5, %ntid.x;
  mov.u32 %r6, %tid.x;
  mov.u32 %r7, %nctaid.x;
  cvt.u64.u32 %d8, %r6;
  mad.wide.u32 %d3, %r4, %r5, %d8;
  mul.wide.u32 %d4, %r7, %r5;
  mov.u64 %d9, 0;
  setp.ge.u64 %p1, %d3, %d2;
  @%p1 bra DONE;
LOOP:
  shl.b64 %d5, %d3, 2;
  add.u64 %d6, %d1, %d5;
  ld.global.u32 %r8, [%d6];
  cvt.u64.u32 %d10, %r8;
  shl.b64 %d11, %d3, 1;
  or.b64 %d11, %d11, 1;
  mad.lo.u64 %d9, %d10, %d11, %d9;
  add.u64 %d3, %d3, %d4;
  setp.lt.u64 %p1, %d3, %d2;
  @%p1 bra LOOP;
  red.global.add.u64 [%d7], %d9;
DONE:
  ret;
}
)ptx";

/// One in every element of a word, and the highest bit of every element.
struct ElementBits {
  std::uint32_t ones, highs;
};

ElementBits bits_of(int width) {
  if (width == 1) return {0x01010101, 0x80808080};
  if (width == 2) return {0x00010001, 0x80008000};
  return {1, 0x80000000};
}

std::uint32_t repeated(std::uint32_t pattern, int width) {
  if (width == 1) return pattern * 0x01010101u;
  return width == 2 ? pattern * 0x00010001u : pattern;
}

}  // namespace

GpuTools::GpuTools(const CudaDevicePtr& device)
    : module_(CudaModule::load(device, kPtx)),
      find_(module_->function("find_word")),
      digest_(module_->function("digest_words")),
      result_(device, sizeof(std::uint64_t)) {}

std::uint64_t GpuTools::run(const CudaFunction& function, std::uint64_t initial, std::int64_t words, void** params,
                            const CudaStream& stream) const {
  constexpr std::int64_t kThreads = 256, kBlocksPerUnit = 8;
  stream.copy_to_device(result_.address(), &initial, sizeof initial);
  const std::int64_t blocks =
      std::clamp<std::int64_t>((words + kThreads - 1) / kThreads, 1, module_->device().identity().units * kBlocksPerUnit);
  function.launch({static_cast<unsigned>(blocks), 1, 1}, {.block = {kThreads, 1, 1}}, stream, params);
  std::uint64_t result = 0;
  stream.copy_to_host(&result, result_.address(), sizeof result);
  stream.synchronise(function.name());
  return result;
}

std::optional<std::int64_t> GpuTools::find(cuda::Address at, std::int64_t elements, int width, std::uint32_t pattern,
                                           const CudaStream& stream) const {
  const int in_word = 4 / width;
  std::int64_t words = elements / in_word;
  ElementBits bits = bits_of(width);
  std::uint32_t whole = repeated(pattern, width);
  cuda::Address result_at = result_.address();
  std::int64_t candidate = words;
  if (words > 0) {
    constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();
    void* params[] = {&at, &words, &whole, &bits.ones, &bits.highs, &result_at};
    const std::uint64_t found = run(find_, kNone, words, params, stream);
    if (found != kNone) candidate = static_cast<std::int64_t>(found);
  }
  // The word that holds it, or the elements behind the last whole word.
  const std::int64_t first = candidate * in_word, last = std::min(first + in_word, elements);
  if (first >= last) return std::nullopt;
  unsigned char raw[4] = {};
  stream.copy_to_host(raw, at + static_cast<cuda::Address>(first * width), static_cast<std::size_t>((last - first) * width));
  stream.synchronise();
  for (std::int64_t e = first; e < last; ++e) {
    if (std::memcmp(raw + (e - first) * width, &pattern, static_cast<std::size_t>(width)) == 0) return e;
  }
  return std::nullopt;
}

std::uint64_t GpuTools::digest(cuda::Address at, std::int64_t bytes, const CudaStream& stream) const {
  std::int64_t words = bytes / 4;
  cuda::Address result_at = result_.address();
  void* params[] = {&at, &words, &result_at};
  std::uint64_t digest = words > 0 ? run(digest_, 0, words, params, stream) : 0;
  std::uint32_t tail = 0;
  if (bytes % 4 != 0) {
    stream.copy_to_host(&tail, at + static_cast<cuda::Address>(4 * words), static_cast<std::size_t>(bytes % 4));
    stream.synchronise();
  }
  return digest + tail * static_cast<std::uint64_t>(2 * words + 1);
}

}  // namespace nestor
