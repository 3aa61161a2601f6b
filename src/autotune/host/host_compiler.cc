// Scratch memory, object code, sizes to check at.
#include "autotune/host/host_compiler.h"

#include "autotune/check/check_sizes.h"
#include "codegen/host/host_backend.h"
#include "support/element_codec.h"

namespace nestor {
namespace {

/// Bytes of scratch memory one task takes, where they are constant. Throws UserError if they do not fit 64 bits.
std::int64_t scratch_bytes(const TileProgram& program) {
  std::int64_t total = 0;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.memory != Memory::scratch) continue;
    IntExpr bytes = static_cast<std::int64_t>(size_in_bytes(buffer.type));
    for (const IntExpr& extent : buffer.extents) bytes = bytes * IntExpr(extent.as_constant().value_or(1));
    total = compute_binary(IntOp::add, total, bytes.value());
  }
  return total;
}

constexpr std::int64_t kScratchLimit = 16 << 20;

}  // namespace

std::string HostCompiler::refusal(const TileProgram& program) const {
  const std::int64_t scratch = scratch_bytes(program);
  return scratch > kScratchLimit ? fmt::format("one task needs {} KiB of scratch memory", scratch >> 10) : "";
}

GpuCertificate HostCompiler::generate(const TileProgram& program, CompiledTrial& compiled) {
  const CompiledKernel kernel = compile_host(program, detect_host()).kernel;
  compiled.kernel = {kernel.architecture, kernel.code, recipe_to_json(kernel.recipe).dump(), ""};
  compiled.periods = periods_to_text(size_periods(program));
  return {};
}

}  // namespace nestor
