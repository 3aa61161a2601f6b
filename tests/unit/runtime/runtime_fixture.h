// Kernels for tests of the runtime: C sources compiled by the system's compiler, stored in a database of the test.
#pragma once

#include "db/devices/host_identity.h"
#include "unit/db/db_fixture.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

namespace nestor::test {

inline bool have_c_compiler() {
  static const bool kHave = std::system("cc --version > /dev/null 2>&1") == 0;
  return kHave;
}

/// Skips the test, with its reason, where objects cannot be made.
#define NESTOR_NEEDS_C_COMPILER() \
  if (!::nestor::test::have_c_compiler()) GTEST_SKIP() << "no C compiler (cc) to make objects with"

/// The object file of a C source.
inline std::string compile_c(const std::string& source, const std::string& flags = "-c -O2 -fPIC") {
  const TemporaryFolder folder;
  std::ofstream(folder.file("in.c")) << source;
  const std::string include = NESTOR_SOURCE_FOLDER "/include";
  const std::string command = "cc " + flags +
                              " -fno-asynchronous-unwind-tables -fno-builtin -fno-tree-loop-distribute-patterns -I" + include +
                              " -o " + folder.file("out.o") + " " + folder.file("in.c");
  if (std::system(command.c_str()) != 0) throw std::runtime_error("cc failed: " + command);
  std::ifstream file(folder.file("out.o"), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// y[rows][cols] = alpha * x[rows][cols] + offset, rows in parallel; the sum of all workspace use is checked by the kernel:
/// it copies each row through its scratch and through the workspace.
inline const char* const kScaleSource = R"c(
#include "nestor/host_abi.h"
struct closure { const float* x; float* y; int64_t xs, ys, cols; float alpha; float offset; float* workspace; };
static void row(void* context, int64_t index, void* scratch) {
  const struct closure* c = (const struct closure*)context;
  float* line = (float*)scratch;
  for (int64_t j = 0; j < c->cols; ++j) line[j] = c->x[index * c->xs + j] * c->alpha;
  for (int64_t j = 0; j < c->cols; ++j) c->workspace[index * c->cols + j] = line[j] + c->offset;
  for (int64_t j = 0; j < c->cols; ++j) c->y[index * c->ys + j] = c->workspace[index * c->cols + j];
}
void kernel(void* const* pointers, const int64_t* strides, const int64_t* sizes, const double* scalars, void* workspace,
            const nestor_host_services* services) {
  struct closure c = {(const float*)pointers[0], (float*)pointers[1], strides[0], strides[2], sizes[1], (float)scalars[0], (float)scalars[1], (float*)workspace};
  services->parallel_for(services->context, sizes[0], sizes[1] * 4, row, &c);
}
)c";

inline LaunchRecipe scale_recipe() {
  const IntExpr rows = IntExpr::variable("rows"), cols = IntExpr::variable("cols");
  LaunchRecipe made;
  made.target = "host";
  made.symbol = "kernel";
  made.arguments = {{"x", ElementType::f32, false, {rows, cols}}, {"y", ElementType::f32, true, {rows, cols}}};
  made.sizes = {"rows", "cols"};
  made.scalars = {{"alpha", ElementType::f32, 2.0}, {"offset", ElementType::i32, 0.0}};
  made.scalars[0].minimum = -1000;
  made.valid = {{{{"rows", 1}}, -1, false, 0}, {{{"cols", 1}}, 0, false, 4}};  // rows >= 1, cols divisible by 4
  made.workspace_bytes = rows * cols * IntExpr(4);
  return made;
}

/// Stores a kernel as measured on this machine at rows x cols.
inline void store_kernel(const std::string& path, const std::string& code, const LaunchRecipe& recipe, std::int64_t rows,
                         std::int64_t cols, const std::string& op = "scale",
                         const std::string& architecture = "x86-64:x86-64:+sse2", int threads = 0,
                         const std::string& digest = "d1") {
  Database database = Database::open(path);
  TrialRecord trial = ok_trial(1, code);
  trial.kernel = KernelRecord{architecture, code, recipe_to_json(recipe).dump(), ""};
  database.add_trial(host_device(threads), {op, "f32", digest, {{"rows", rows}, {"cols", cols}}}, kNest, trial);
}

/// The object of kScaleSource, compiled once a process.
inline const std::string& scale_object() {
  static const std::string kObject = compile_c(kScaleSource);
  return kObject;
}

}  // namespace nestor::test
