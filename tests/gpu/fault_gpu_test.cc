// A kernel that touches memory it must not: the error names it. A program of its own, because the context is lost after it.
#include "device/recipe_launcher.h"
#include "gpu/gpu_fixture.h"
#include "gpu/gpu_kernels.h"

namespace nestor {
namespace {

using namespace test;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Fault : public GpuTest {};

TEST_F(Fault, AnIllegalAddressNamesTheKernelAndLosesTheContext) {
  const RecipeLauncher launcher(CudaModule::load(device, scale_ptx()), scale_recipe_gpu());
  const CudaStream stream(device);
  const std::array<void*, 2> pointers{reinterpret_cast<void*>(0x100), reinterpret_cast<void*>(0x200)};
  const std::array<std::int64_t, 4> strides{64, 1, 64, 1};
  const std::array<std::int64_t, 2> sizes{64, 64};
  const std::array<double, 1> scalars{2};
  launcher.launch({pointers, strides, sizes, scalars, nullptr}, stream);
  try {
    stream.synchronise("scale_kernel");
    FAIL() << "nothing was thrown";
  } catch (const CudaError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("cuStreamSynchronize failed for kernel \"scale_kernel\""),
                                    HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS")));
    EXPECT_TRUE(error.context_lost());
  }
  EXPECT_THROW(device->synchronise(), CudaError);
}

}  // namespace
}  // namespace nestor
