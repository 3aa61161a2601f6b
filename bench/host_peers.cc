// Runtime, OpenBLAS, memcpy, and the peak of multiply-adds.
#include "host_peers.h"

#include "nestor/runtime.h"
#include "support/error.h"
#include "support/threads/thread_pool.h"

#include <cblas.h>
#include <dlfcn.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <vector>

namespace nestor::bench {
namespace {

template <class Function>
Function* openblas(const char* name) {
  // Loaded in the contender's process alone: the library starts its threads when it is loaded.
  static void* library = dlopen(NESTOR_OPENBLAS, RTLD_NOW);
  void* symbol = library == nullptr ? nullptr : dlsym(library, name);
  if (symbol == nullptr) user_error("no {} in {}: {}", name, NESTOR_OPENBLAS, dlerror());
  return reinterpret_cast<Function*>(symbol);
}

/// body(thread) on each of `threads` threads, once.
void on_all(const ThreadPool& pool, const std::function<void(std::int64_t)>& body) {
  const nestor_host_services* services = pool.services();
  services->parallel_for(
      services->context, pool.threads(), 0,
      [](void* closure, std::int64_t index, void*) { (*static_cast<const std::function<void(std::int64_t)>*>(closure))(index); },
      const_cast<std::function<void(std::int64_t)>*>(&body));
}

constexpr std::int64_t kChain = 20'000'000;

/// Twelve independent chains fill two pipelines of latency 4 with room to spare.
__attribute__((target("avx2,fma"))) void multiply_add_chains() {
  std::int64_t left = kChain;
  // One opaque block, loop and all, so that the chains stay in registers. What they compute (all zeros) does not matter.
  __asm__ volatile(
      "vzeroall\n"
      "1:\n"
      "vfmadd231ps %%ymm12, %%ymm13, %%ymm0\n vfmadd231ps %%ymm12, %%ymm13, %%ymm1\n"
      "vfmadd231ps %%ymm12, %%ymm13, %%ymm2\n vfmadd231ps %%ymm12, %%ymm13, %%ymm3\n"
      "vfmadd231ps %%ymm12, %%ymm13, %%ymm4\n vfmadd231ps %%ymm12, %%ymm13, %%ymm5\n"
      "vfmadd231ps %%ymm12, %%ymm13, %%ymm6\n vfmadd231ps %%ymm12, %%ymm13, %%ymm7\n"
      "vfmadd231ps %%ymm12, %%ymm13, %%ymm8\n vfmadd231ps %%ymm12, %%ymm13, %%ymm9\n"
      "vfmadd231ps %%ymm12, %%ymm13, %%ymm10\n vfmadd231ps %%ymm12, %%ymm13, %%ymm11\n"
      "decq %0\n"
      "jnz 1b\n"
      "vzeroupper\n"
      : "+r"(left)
      :
      : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13",
        "xmm14", "xmm15", "cc");
}

}  // namespace

Prepared prepare_nestor(Problem& problem, const std::string& op, const std::string& variant, const std::string& database,
                        int threads) {
  LibraryOptions options;
  options.threads = threads;
  options.use_system = false;
  const Library library = Library::open(database, options);
  const Kernel kernel = library.query(op, variant, problem.sizes());
  if (!kernel) user_error("no kernel of {} ({}) in {}; tune it first", op, variant, database);
  if (kernel.match() != MatchKind::exact) user_error("{} has no kernel of {} at these very sizes", database, op);
  std::vector<TensorArg> tensors;
  const auto info = nlohmann::json::parse(kernel.info());
  for (const auto& tensor : info.at("tensors")) {
    const auto name = tensor.at("name").get<std::string>();
    auto& from = tensor.at("output").get<bool>() ? problem.outputs() : problem.inputs();
    const auto found = from.find(name);
    if (found == from.end()) user_error("the kernel of {} takes '{}', which the definition does not have", op, name);
    tensors.push_back({const_cast<void*>(static_cast<const void*>(found->second.data()))});
  }
  return {[kernel, tensors, library, sizes = problem.sizes()] { kernel.launch(tensors, sizes); }, problem.results()};
}

Prepared prepare_sgemm(Problem& problem, int threads) {
  openblas<void(int)>("openblas_set_num_threads")(threads);
  auto* sgemm = openblas<decltype(cblas_sgemm)>("cblas_sgemm");
  const auto size = [&](const char* name) { return static_cast<int>(problem.sizes().at(name)); };
  const int m = size("m"), n = size("n"), k = size("k");
  const auto* a = static_cast<const float*>(problem.inputs().at("a").data());
  const auto* b = static_cast<const float*>(problem.inputs().at("b").data());
  auto* c = static_cast<float*>(problem.outputs().begin()->second.data());
  return {[=] { sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, n, k, 1, a, k, b, n, 0, c, n); }, problem.results()};
}

Prepared prepare_copy(Problem& problem, int threads) {
  const std::size_t bytes = problem.output_elements() * sizeof(float);
  auto from = std::make_shared<std::vector<char>>(bytes, 1);
  auto to = std::make_shared<std::vector<char>>(bytes, 2);
  auto pool = std::make_shared<ThreadPool>(threads);
  const std::size_t part = (bytes / static_cast<std::size_t>(threads) + 63) / 64 * 64;
  return {[=] {
            on_all(*pool, [&](std::int64_t thread) {
              const std::size_t begin = std::min(bytes, part * static_cast<std::size_t>(thread));
              std::memcpy(to->data() + begin, from->data() + begin, std::min(part, bytes - begin));
            });
          },
          {}};
}

double peak_flops(int threads) {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
  const ThreadPool pool(threads);
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    const auto start = std::chrono::steady_clock::now();
    on_all(pool, [](std::int64_t) { multiply_add_chains(); });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = std::max(best, 12.0 * 8 * 2 * static_cast<double>(kChain) * threads / seconds);
  }
  return best;
}

}  // namespace nestor::bench
