// The cases of simt_cases.h on a real GPU: PTX and recipe from the SIMT back end, launched through the driver, against interpret().
#include "support/cuda_driver.h"
#include "support/simt_cases.h"

#include <gtest/gtest.h>

#include <memory>

namespace nestor::testing {
namespace {

/// One driver for the whole program; `reason` says why there is none.
CudaDriver* driver(std::string& reason) {
  static std::string why;
  static const std::unique_ptr<CudaDriver> opened = CudaDriver::open(why);
  reason = why;
  return opened.get();
}

/// Device copies of every argument and the workspace, released at the end.
class DeviceImage {
 public:
  DeviceImage(CudaDriver& cuda, const LaunchRecipe& recipe, const CheckData& data, const SimtCase& test) : cuda_(cuda) {
    launch.sizes = test.sizes;
    for (std::size_t k = 0; k < recipe.arguments.size(); ++k) {
      const auto bytes = size_in_bytes(recipe.arguments[k].type);
      std::vector<char> host(static_cast<std::size_t>(data.arguments[k].elements) * bytes, 0);
      encode(data.arguments[k], recipe.arguments[k].type, host.data());
      const std::size_t shift = static_cast<std::size_t>(test.options.misalignment) * bytes;
      allocations_.push_back(cuda.allocate(host.size() + shift));
      launch.pointers.push_back(allocations_.back() + shift);
      launch.strides.push_back(data.arguments[k].strides);
      cuda.upload(launch.pointers.back(), host.data(), host.size());
      host_.push_back(std::move(host));
    }
    const std::map<std::string, std::int64_t> values(test.sizes.begin(), test.sizes.end());
    allocations_.push_back(cuda.allocate(static_cast<std::size_t>(evaluate_in(recipe.workspace_bytes, values))));
    launch.workspace = allocations_.back();
  }
  ~DeviceImage() {
    for (std::uint64_t address : allocations_) {
      try {
        cuda_.release(address);
      } catch (const DeviceError&) {  // a failed kernel fails everything after it; the test has said so already
      }
    }
  }
  DeviceImage(const DeviceImage&) = delete;
  DeviceImage& operator=(const DeviceImage&) = delete;

  const char* fetch(std::size_t argument) {
    cuda_.download(host_[argument].data(), launch.pointers[argument], host_[argument].size());
    return host_[argument].data();
  }

  LaunchData launch;

 private:
  CudaDriver& cuda_;
  std::vector<std::uint64_t> allocations_;
  std::vector<std::vector<char>> host_;
};

class SimtDevice : public ::testing::TestWithParam<SimtCase> {};

TEST_P(SimtDevice, kernels_compute_what_the_program_says) {
  std::string reason;
  CudaDriver* cuda = driver(reason);
  if (cuda == nullptr) GTEST_SKIP() << reason;
  if (cuda->sm() < 80) GTEST_SKIP() << "the device's compute capability is below 8.0";
  const SimtCase& test = GetParam();
  NvptxTarget target;
  target.sm = cuda->sm() >= 90 ? 90 : 80;
  target.threads = test.threads;
  target.shared_limit = target.sm == 90 ? 227 * 1024 : 99 * 1024;
  const CompiledNvptx compiled = compile_nvptx(test.program, target);
  const LaunchRecipe& recipe = compiled.kernel.recipe;
  const CheckData data = make_data(test.program, recipe, test.sizes, test.options);
  void* module = cuda->load_module(compiled.kernel.code);
  DeviceImage image(*cuda, recipe, data, test);
  launch_recipe(recipe, image.launch, [&](const LaunchNode& node, std::int64_t blocks, std::vector<void*>& params) {
    cuda->launch(module, node.symbol, static_cast<unsigned>(blocks), static_cast<unsigned>(node.block[0]),
                 static_cast<unsigned>(node.shared_bytes), params);
  });
  cuda->synchronise();
  EXPECT_EQ(compare(recipe, data, test.options, [&](std::size_t k) { return image.fetch(k); }), "");
  cuda->unload_module(module);
}

INSTANTIATE_TEST_SUITE_P(cases, SimtDevice, ::testing::ValuesIn(simt_cases()), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace nestor::testing
