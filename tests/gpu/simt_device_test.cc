// The cases of simt_cases.h, tensor_mma_cases.h and tensor_cluster_cases.h on a real GPU: PTX and recipe from the SIMT back end, launched as the runtime does, against
// interpret().
#include "device/recipe_launcher.h"
#include "gpu/gpu_fixture.h"
#include "support/simt/simt_cases.h"
#include "support/tensor/tensor_cluster_cases.h"
#include "support/tensor/tensor_mma_cases.h"

#include <gtest/gtest.h>

namespace nestor::testing {
namespace {

/// Device copies of every argument and the workspace.
class DeviceImage {
 public:
  DeviceImage(const CudaDevicePtr& device, const LaunchRecipe& recipe, const CheckData& data, const SimtCase& test) {
    for (std::size_t k = 0; k < recipe.arguments.size(); ++k) {
      const auto bytes = size_in_bytes(recipe.arguments[k].type);
      std::vector<char> host(static_cast<std::size_t>(data.arguments[k].elements) * bytes, 0);
      encode(data.arguments[k], recipe.arguments[k].type, host.data());
      shifts_.push_back(static_cast<std::size_t>(test.options.misalignment) * bytes);
      buffers_.emplace_back(device, std::max<std::size_t>(1, host.size() + shifts_.back()));
      buffers_.back().upload(host.data(), host.size(), shifts_.back());
      pointers.push_back(reinterpret_cast<void*>(buffers_.back().address() + shifts_.back()));
      strides.insert(strides.end(), data.arguments[k].strides.begin(), data.arguments[k].strides.end());
      host_.push_back(std::move(host));
    }
  }
  const char* fetch(std::size_t argument) {
    buffers_[argument].download(host_[argument].data(), host_[argument].size(), shifts_[argument]);
    return host_[argument].data();
  }

  std::vector<void*> pointers;
  std::vector<std::int64_t> strides;

 private:
  std::vector<DeviceBuffer> buffers_;
  std::vector<std::size_t> shifts_;
  std::vector<std::vector<char>> host_;
};

/// The first difference between what kernels for `sm` compute and what the program says; empty without any.
std::string difference_on(const CudaDevicePtr& device, const SimtCase& test, int sm) {
  NvptxTarget target;
  target.sm = sm;
  target.threads = test.threads;
  target.shared_limit = device->identity().shared_bytes_per_block;
  const CompiledNvptx compiled = compile_nvptx(test.program, target);
  const LaunchRecipe& recipe = compiled.kernel.recipe;
  const CheckData data = make_data(test.program, recipe, test.sizes, test.options);
  const RecipeLauncher launcher(CudaModule::load(device, compiled.kernel.code), recipe);
  DeviceImage image(device, recipe, data, test);
  std::vector<std::int64_t> sizes;
  for (const std::string& name : launcher.size_names()) {
    const auto given = test.sizes.find(name);
    sizes.push_back(given != test.sizes.end() ? given->second : recipe.fixed_sizes.at(name));
  }
  std::vector<double> scalars;
  for (const ScalarSpec& scalar : recipe.scalars) scalars.push_back(scalar.default_value);
  const DeviceBuffer workspace(device, static_cast<std::size_t>(launcher.workspace_bytes(sizes)));
  const CudaStream stream(device);
  launcher.launch({image.pointers, image.strides, sizes, scalars, workspace.data()}, stream);
  stream.synchronise(test.name);
  return compare(recipe, data, test.options, [&](std::size_t k) { return image.fetch(k); });
}

class SimtDevice : public test::GpuTest, public ::testing::WithParamInterface<SimtCase> {};

TEST_P(SimtDevice, kernels_compute_what_the_program_says) {
  EXPECT_EQ(difference_on(device, GetParam(), device->identity().sm >= 90 ? 90 : 80), "");
}

INSTANTIATE_TEST_SUITE_P(cases, SimtDevice, ::testing::ValuesIn(simt_cases()), [](const auto& info) { return info.param.name; });

class TensorMmaDevice : public test::GpuTest, public ::testing::WithParamInterface<SimtCase> {};

TEST_P(TensorMmaDevice, kernels_of_compute_capability_8_compute_what_the_program_says) {
  EXPECT_EQ(difference_on(device, GetParam(), 80), "");
}

INSTANTIATE_TEST_SUITE_P(cases, TensorMmaDevice, ::testing::ValuesIn(tensor_mma_cases()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(large, TensorMmaDevice, ::testing::ValuesIn(large_tensor_mma_cases()),
                         [](const auto& info) { return info.param.name; });

class TensorClusterDevice : public test::GpuTest, public ::testing::WithParamInterface<SimtCase> {};

TEST_P(TensorClusterDevice, blocks_that_share_tiles_compute_what_the_program_says) {
  if (device->identity().sm < 90) GTEST_SKIP() << device->identity().name << " has no clusters";
  EXPECT_EQ(difference_on(device, GetParam(), 90), "");
}

INSTANTIATE_TEST_SUITE_P(cases, TensorClusterDevice, ::testing::ValuesIn(tensor_cluster_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace nestor::testing
