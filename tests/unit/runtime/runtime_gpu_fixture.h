// A database with one GPU kernel, for tests of the runtime over the fake driver.
#pragma once

#include "db/devices/cuda_identity.h"
#include "nestor/runtime.h"
#include "unit/db/db_fixture.h"
#include "unit/device/device_fixture.h"

#include <cstring>
#include <optional>

namespace nestor::test {

/// Stores a kernel as measured on the first GPU at rows x 64.
inline void store_gpu_kernel(const std::string& path, const std::string& code, const LaunchRecipe& recipe, std::int64_t rows,
                             const std::string& op = "scale", const std::string& architecture = "sm_90") {
  Database database = Database::open(path);
  TrialRecord trial = ok_trial(1, code);
  trial.kernel = KernelRecord{architecture, code, recipe_to_json(recipe).dump(), ""};
  database.add_trial(cuda_device_identity(CudaDevice::identify(0)), {op, "f32", "d1", {{"rows", rows}, {"cols", 64}}}, kNest,
                     trial);
}

/// y = alpha * x, row by row through the workspace, as the parameters of row_recipe() say.
inline void run_rows_kernel(const FakeLaunch& launch) {
  const auto& p = launch.params;
  const auto* x = reinterpret_cast<const float*>(p[0]);
  auto* y = reinterpret_cast<float*>(p[1]);
  auto* workspace = reinterpret_cast<float*>(p[7]);
  float alpha = 0;
  std::memcpy(&alpha, &p[6], sizeof(alpha));
  for (std::uint64_t i = 0; i < p[4]; ++i) {
    for (std::uint64_t j = 0; j < p[5]; ++j) workspace[j] = alpha * x[i * p[2] + j];
    std::memcpy(y + i * p[3], workspace, 4 * p[5]);
  }
}

/// row_recipe() with a workspace of a row.
inline LaunchRecipe served_recipe() {
  LaunchRecipe recipe = row_recipe();
  recipe.workspace_bytes = IntExpr::variable("cols") * IntExpr(4);
  return recipe;
}

/// A library with "scale", its kernel, and 8 x 64 tensors on the first GPU: x counts from 0, y holds -1.
class GpuRuntimeTest : public FakeCudaTest {
 protected:
  static constexpr std::int64_t kRows = 8, kCols = 64;
  void SetUp() override {
    fake.kernels["rows_kernel"] = run_rows_kernel;
    store_gpu_kernel(path, row_ptx(), served_recipe(), kRows);
    open();
    x = DeviceBuffer(CudaDevice::open(0), 4 * kRows * kCols);
    y = DeviceBuffer(CudaDevice::open(0), 4 * kRows * kCols);
    std::vector<float> numbers(kRows * kCols);
    for (std::size_t k = 0; k < numbers.size(); ++k) numbers[k] = static_cast<float>(k);
    x.upload(numbers.data(), x.bytes());
    y.fill_words(0xbf800000);
  }
  void open() { library = Library::open(path, {.threads = 1, .system_path = "", .use_system = false}); }
  Kernel query(const std::string& device = "cuda", std::int64_t rows = kRows) const {
    return library->query("scale", "f32", {{"rows", rows}, {"cols", kCols}}, device);
  }
  std::vector<float> result() const {
    std::vector<float> values(kRows * kCols);
    y.download(values.data(), y.bytes());
    return values;
  }

  TemporaryFolder folder;
  std::string path = folder.file("t.db");
  std::optional<Library> library;
  DeviceBuffer x, y;
  const std::array<NamedSize, 2> sizes{NamedSize{"rows", kRows}, NamedSize{"cols", kCols}};
};

}  // namespace nestor::test
