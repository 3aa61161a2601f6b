// Peers of host kernels that are not Halide's: OpenBLAS sgemm and a plain parallel memory copy, with the same cold caches
// as the tuner's own measurements. One JSON line: {"peer", "threads", "ms", "samples", ...}.
#include "autotune/measure/cold_cache.h"
#include "autotune/measure/measurer.h"
#include "support/error.h"
#include "support/thread_pool.h"

#include <cblas.h>
#include <nlohmann/json.hpp>

#include <charconv>
#include <chrono>
#include <cstring>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

extern "C" void openblas_set_num_threads(int threads);

namespace {

constexpr int kRepetitions = 15;

std::int64_t integer(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size() || value < 1)
    nestor::user_error("'{}' is not a positive integer", text);
  return value;
}

std::vector<double> measure(int threads, const std::function<void()>& run) {
  nestor::ColdCache cold(threads);
  std::vector<double> samples;
  run();
  for (int k = 0; k < kRepetitions; ++k) {
    cold.flush();
    const auto start = std::chrono::steady_clock::now();
    run();
    samples.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  return samples;
}

nlohmann::json sgemm(int m, int n, int k, int threads) {
  openblas_set_num_threads(threads);
  std::vector<float> a(static_cast<std::size_t>(m) * k, 0.5f), b(static_cast<std::size_t>(k) * n, 0.25f),
      c(static_cast<std::size_t>(m) * n);
  const auto samples = measure(threads, [&] {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, n, k, 1, a.data(), k, b.data(), n, 0, c.data(), n);
  });
  return {{"peer", "openblas sgemm"}, {"m", m}, {"n", n}, {"k", k}, {"samples", samples}, {"ms", nestor::median(samples)}};
}

/// memcpy, each thread its own contiguous part.
nlohmann::json copy(std::int64_t bytes, int threads) {
  struct Job {
    std::vector<char> from, to;
    std::int64_t part;
  } job{std::vector<char>(bytes, 1), std::vector<char>(bytes, 2), (bytes + threads - 1) / threads};
  nestor::ThreadPool pool(threads);
  const auto* services = pool.services();
  const auto samples = measure(threads, [&] {
    services->parallel_for(
        services->context, threads, 0,
        [](void* closure, std::int64_t index, void*) {
          auto& j = *static_cast<Job*>(closure);
          const auto begin = index * j.part;
          const auto end = std::min<std::int64_t>(begin + j.part, static_cast<std::int64_t>(j.from.size()));
          std::memcpy(j.to.data() + begin, j.from.data() + begin, static_cast<std::size_t>(end - begin));
        },
        &job);
  });
  return {{"peer", "memcpy"}, {"bytes", bytes}, {"samples", samples}, {"ms", nestor::median(samples)}};
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  try {
    if (args.size() == 5 && args[0] == "sgemm") {
      const int threads = static_cast<int>(integer(args[4]));
      std::cout << sgemm(static_cast<int>(integer(args[1])), static_cast<int>(integer(args[2])),
                         static_cast<int>(integer(args[3])), threads)
                << '\n';
    } else if (args.size() == 3 && args[0] == "copy") {
      std::cout << copy(integer(args[1]), static_cast<int>(integer(args[2]))) << '\n';
    } else {
      nestor::user_error("usage: host_peers sgemm M N K THREADS | host_peers copy BYTES THREADS");
    }
  } catch (const nestor::Error& error) {
    std::cerr << "host_peers: " << error.what() << '\n';
    return 2;
  }
  return 0;
}
