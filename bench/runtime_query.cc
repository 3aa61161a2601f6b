// How long a query takes: remembered (warm), from the database (cold), and opening a database of 100,000 trials. Where there is
// a GPU, also what a launch costs its thread.
#include "db/database.h"
#include "db/devices/cuda_identity.h"
#include "db/devices/host_identity.h"
#include "nestor/runtime.h"
#include "support/launch_recipe.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <benchmark/benchmark.h>

#include <unistd.h>
#include <cstdio>
#include <filesystem>
#include <string>

namespace nestor {
namespace {

constexpr int kOps = 50, kProblems = 20, kTrialsOfProblem = 100;  // 100,000 rows

// An object that can be loaded; it is never launched.
std::string object_code(const std::string& folder) {
  const std::string command =
      "echo 'void kernel(void) {}' | cc -x c -c -O2 -fPIC -o " + folder + "/k.o - && cat " + folder + "/k.o";
  std::string code;
  FILE* pipe = popen(command.c_str(), "r");
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) code += static_cast<char>(c);
  if (pclose(pipe) != 0) throw std::runtime_error("cc is needed to make an object");
  return code;
}

std::string recipe() {
  LaunchRecipe made;
  made.target = "host";
  made.symbol = "kernel";
  made.sizes = {"rows", "cols"};
  made.valid = {{{{"cols", 1}}, 0, false, 4}};
  return recipe_to_json(made).dump();
}

// 1,000 trials through the interface, then 99 copies of each.
void fill(const std::string& path, const std::string& code) {
  const DeviceIdentity device = host_device();
  Database database = Database::open(path);
  TrialRecord trial;
  trial.median_ms = 1;
  trial.samples_ms = {1, 1, 1};
  trial.toolchain = "bench";
  trial.steps = "[\"" + std::string(1000, 's') + "\"]";
  trial.kernel = KernelRecord{"x86-64:x86-64:", code, recipe(), ""};
  for (int op = 0; op < kOps; ++op) {
    for (int k = 0; k < kProblems; ++k) {
      database.add_trial(
          device,
          {"op" + std::to_string(op), "f32", "d" + std::to_string(op), {{"rows", 1 << (k % 10)}, {"cols", k < 10 ? 64 : 256}}},
          "{}", trial);
    }
  }
  // The other rows as copies: the benchmark measures reading.
  SQLite::Database raw(path, SQLite::OPEN_READWRITE);
  SQLite::Statement copy(
      raw,
      "WITH RECURSIVE n(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM n WHERE k < ?)"
      " INSERT INTO trial (device_id, problem_id, kernel_id, status, median_ms, created, toolchain, reason, samples, steps)"
      " SELECT device_id, problem_id, kernel_id, status, median_ms + k, created, toolchain, reason, samples, steps FROM trial, "
      "n");
  copy.bind(1, kTrialsOfProblem - 1);
  copy.exec();
}

// Built once; removed at exit.
const std::string& large_database() {
  static const struct Holder {
    std::string folder = (std::filesystem::temp_directory_path() / "nestor_bench_XXXXXX").string();
    std::string path;
    Holder() {
      if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
      path = folder + "/large.db";
      fill(path, object_code(folder));
    }
    ~Holder() { std::filesystem::remove_all(folder); }
  } kHolder;
  return kHolder.path;
}

Library open_library() { return Library::open(large_database(), {.threads = 0, .system_path = "", .use_system = false}); }

void warm_query(benchmark::State& state) {
  static const Library library = open_library();
  for (auto _ : state) benchmark::DoNotOptimize(library.query("op7", "f32", {{"rows", 128}, {"cols", 64}}));
}
BENCHMARK(warm_query)->Threads(1)->Threads(2);

void warm_query_with_a_map(benchmark::State& state) {
  const Library library = open_library();
  const Sizes sizes{{"rows", 128}, {"cols", 64}};
  for (auto _ : state) benchmark::DoNotOptimize(library.query("op7", "f32", sizes));
}
BENCHMARK(warm_query_with_a_map);

// Not in the table: each size is asked for once. Exact and nearest sizes in turn.
void cold_query(benchmark::State& state) {
  const Library library = open_library();
  std::int64_t rows = 0;
  for (auto _ : state) benchmark::DoNotOptimize(library.query("op7", "f32", {{"rows", ++rows}, {"cols", 64}}));
}
BENCHMARK(cold_query)->Unit(benchmark::kMicrosecond);

void open_100000_rows(benchmark::State& state) {
  large_database();
  for (auto _ : state) benchmark::DoNotOptimize(open_library());
}
BENCHMARK(open_100000_rows)->Unit(benchmark::kMicrosecond);

void open_and_first_query(benchmark::State& state) {
  large_database();
  for (auto _ : state) benchmark::DoNotOptimize(open_library().query("op7", "f32", {{"rows", 128}, {"cols", 64}}));
}
BENCHMARK(open_and_first_query)->Unit(benchmark::kMicrosecond);

// A kernel that does nothing, of two tensors: what is left is the launch.
LaunchRecipe empty_recipe() {
  LaunchRecipe made;
  made.target = "nvptx";
  const IntExpr rows = IntExpr::variable("rows");
  made.arguments = {{"x", ElementType::f32, false, {rows}}, {"y", ElementType::f32, true, {rows}}};
  made.sizes = {"rows"};
  LaunchNode node;
  node.symbol = "empty";
  node.grid[0] = rows;
  node.block = {32, 1, 1};
  using Kind = KernelParam::Kind;
  node.params = {{Kind::pointer, 0, 0, ""}, {Kind::pointer, 1, 0, ""}, {Kind::size, 0, 0, "rows"}};
  made.launches = {node};
  return made;
}

constexpr const char* kEmptyPtx =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry empty(.param .u64 x, .param .u64 y, .param .u64 rows)\n{\n  ret;\n}\n";

// The same with tensor maps of both tensors and a work counter.
LaunchRecipe empty_tiled_recipe() {
  LaunchRecipe made = empty_recipe();
  using Kind = KernelParam::Kind;
  made.launches[0].params = {
      {Kind::tensor_map, 0, 0, "x", {4}, 0}, {Kind::tensor_map, 1, 0, "y", {4}, 0}, {Kind::counter, 0, 0, ""}};
  return made;
}

constexpr const char* kEmptyTiledPtx =
    ".version 8.0\n.target sm_90\n.address_size 64\n"
    ".visible .entry empty(.param .align 64 .b8 x[128], .param .align 64 .b8 y[128], .param .u64 counter)\n{\n  ret;\n}\n";

// A query and a launch in a stream, with or without asking where the tensors lie, of a kernel with pointers or tensor maps.
void gpu_query_and_launch(benchmark::State& state) {
  std::string why;
  if (CudaDriver::find(&why) == nullptr) return state.SkipWithError(why.c_str());
  const CudaDevicePtr device = CudaDevice::open(0);
  const bool tiled = state.range(1) != 0;
  if (tiled && device->identity().sm < 90) return state.SkipWithError("no tensor maps on this GPU");
  const std::string path = std::filesystem::path(large_database()).parent_path() / "gpu.db";
  std::filesystem::remove(path);
  TrialRecord trial;
  trial.median_ms = 1;
  trial.toolchain = "bench";
  trial.steps = "[]";
  trial.kernel = tiled ? KernelRecord{"sm_90", kEmptyTiledPtx, recipe_to_json(empty_tiled_recipe()).dump(), ""}
                       : KernelRecord{"sm_80", kEmptyPtx, recipe_to_json(empty_recipe()).dump(), ""};
  Database::open(path).add_trial(cuda_device_identity(device->identity()), {"empty", "f32", "d", {{"rows", 4}}}, "{}", trial);
  const Library library = Library::open(path, {.threads = 0, .system_path = "", .use_system = false});
  const DeviceBuffer x(device, 16), y(device, 16);
  const CudaStream stream(device);
  const TensorArg tensors[] = {{x.data()}, {y.data()}};
  const NamedSize sizes[] = {{"rows", 4}};
  const LaunchOptions options{.stream = stream.handle(), .check_memory = state.range(0) != 0};
  int launched = 0;
  for (auto _ : state) {
    library.query("empty", "f32", sizes, "cuda").launch(tensors, sizes, {}, options);
    if (++launched % 512 == 0) {  // the queue of a stream is finite
      state.PauseTiming();
      stream.synchronise();
      state.ResumeTiming();
    }
  }
}
BENCHMARK(gpu_query_and_launch)->ArgNames({"check_memory", "tensor_maps"})->ArgsProduct({{0, 1}, {0, 1}})->Iterations(20000);

}  // namespace
}  // namespace nestor

BENCHMARK_MAIN();
