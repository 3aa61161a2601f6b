// nestor_emit_ptx NAME [SM]: prints the PTX of a hand-built tile program; `ir NAME` prints its LLVM IR instead. For FileCheck tests.
#include "codegen/gpu/backend.h"
#include "support/error.h"
#include "support/nests/tensor_nests.h"
#include "support/simt/simt_programs.h"

#include <cstdio>
#include <cstring>
#include <functional>

namespace {

using nestor::ElementType;
using nestor::TileProgram;
using namespace nestor::testing;

const std::map<std::string, std::function<TileProgram()>>& programs() {
  static const std::map<std::string, std::function<TileProgram()>> all{
      {"vector_f16", [] { return vector_program(ElementType::f16); }},
      {"norm_f32", [] { return norm_program(ElementType::f32, 1024, 4); }},
      {"norm_f16", [] { return norm_program(ElementType::f16, 1024, 1); }},
      {"norm_bf16", [] { return norm_program(ElementType::bf16, 4096, 1); }},
      {"norm_streaming", [] { return norm_program(ElementType::f16, 1024, 1, true); }},
      {"cluster_norm_bf16",
       [] { return norm_program(ElementType::bf16, 16384, 1, true, {.threads = 256, .persistent = 1, .cluster = 8}, 2); }},
      {"softmax_f32", [] { return softmax_program(ElementType::f32); }},
      {"product_f16", [] { return product_program(ElementType::f16, false, false); }},
      {"tiled_product_f32", [] { return tiled_product_program(ElementType::f32, 64, 32); }},
      {"attention_f16", [] { return streaming_attention_program(ElementType::f16, 64, true); }},
      {"tensor_attention",
       [] {
         const AttentionForm form{.seen = Seen::causal, .depth = 128};
         return tensor_program(attention_nest(form),
                               {.columns = 128, .more = {"intra_warpgroup_overlap(out.io)", "ping_pong(out.io)"}});
       }},
      {"tensor_cluster",
       [] {
         return tensor_program(attention_nest({.depth = 128}),
                               {.rows = 256,
                                .columns = 128,
                                .more = {"intra_warpgroup_overlap(out.io)", "ping_pong(out.io)", "cluster(out.io, 2)"}});
       }},
      {"tensor_held",
       [] { return tensor_program(attention_nest(), {.more = {"a_from_registers(out.io)", "persistent(out.io, 1)"}}); }},
      {"tensor_linear", [] { return tensor_program(linear_attention_nest(ElementType::bf16), {.rules = {}}); }},
      {"mma_attention",
       [] {
         const AttentionForm form{.seen = Seen::causal, .depth = 128};
         return tensor_program(attention_nest(form), {.columns = 64, .stages = 1});
       }},
      {"mma_held",
       [] {
         return tensor_program(
             attention_nest(),
             {.stages = 3, .more = {"intra_warpgroup_overlap(out.io)", "a_from_registers(out.io)", "persistent(out.io, 1)"}});
       }},
      {"mma_linear", [] { return tensor_program(linear_attention_nest(ElementType::bf16), {.rules = {}}); }},
      {"transpose_f32", [] { return transpose_program(ElementType::f32); }},
      {"wavefront", [] { return wavefront_program(); }},
  };
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  const bool ir = argc > 1 && std::strcmp(argv[1], "ir") == 0;
  const char* name = argc > 1 + ir ? argv[1 + ir] : "";
  const auto found = programs().find(name);
  if (found == programs().end()) {
    std::fprintf(stderr, "usage: nestor_emit_ptx [ir] NAME [SM]; names:");
    for (const auto& [known, make] : programs()) std::fprintf(stderr, " %s", known.c_str());
    std::fprintf(stderr, "\n");
    return 2;
  }
  try {
    nestor::NvptxTarget target;
    if (argc > 2 + ir) target.sm = std::atoi(argv[2 + ir]);
    const nestor::CompiledNvptx compiled = nestor::compile_nvptx(found->second(), target);
    std::fputs(ir ? compiled.ir.c_str() : compiled.kernel.code.c_str(), stdout);
  } catch (const nestor::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
