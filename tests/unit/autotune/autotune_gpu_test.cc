// Measuring on a GPU, with a driver that runs the test's own functions as kernels: what is right is timed, and whatever a
// kernel does wrong is found.
#include "autotune/check/check_sizes.h"
#include "autotune/gpu/gpu_memory.h"
#include "autotune/measure_schedules.h"
#include "autotune/trial/trial_steps.h"
#include "autotune/tuner.h"
#include "autotune/workers/worker_process.h"
#include "codegen/gpu/backend.h"
#include "codegen/tile/tile_program.h"
#include "support/cuda/fake_cuda_use.h"
#include "support/element_codec.h"
#include "support/error.h"
#include "support/nests/sample_nests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <thread>

namespace nestor {
namespace {

using testing::FakeCuda;
using testing::FakeLaunch;
using ::testing::HasSubstr;

constexpr std::int64_t kCount = 5003;

/// y = 2 x
Nest doubled_vector() {
  return samples::NestBuilder("doubled", {{"n", kCount}})
      .tensor("x", TensorRole::input, {"n"})
      .tensor("y", TensorRole::output, {"n"})
      .statement("S[i] : 0 <= i < n", "y[i]", {"x[i]"}, ScalarExpr::make(ScalarOp::mul, {samples::number(2), samples::read(0)}))
      .build();
}

/// The tools' kernels, as their PTX has them.
void find_word(const FakeLaunch& launch) {
  const auto* words = reinterpret_cast<const std::uint32_t*>(launch.params.at(0));
  auto& result = *reinterpret_cast<std::uint64_t*>(launch.params.at(5));
  const auto pattern = static_cast<std::uint32_t>(launch.params.at(2)), ones = static_cast<std::uint32_t>(launch.params.at(3)),
             highs = static_cast<std::uint32_t>(launch.params.at(4));
  for (std::uint64_t k = 0; k < launch.params.at(1); ++k) {
    const std::uint32_t difference = words[k] ^ pattern;
    if (((difference - ones) & ~difference & highs) != 0) result = std::min(result, k);
  }
}

void digest_words(const FakeLaunch& launch) {
  const auto* words = reinterpret_cast<const std::uint32_t*>(launch.params.at(0));
  for (std::uint64_t k = 0; k < launch.params.at(1); ++k)
    *reinterpret_cast<std::uint64_t*>(launch.params.at(2)) += words[k] * (2 * k + 1);
}

class Gpu : public ::testing::Test {
 protected:
  Gpu() : nest_(doubled_vector()), schedule_(nest_for_tuning(nest_, {{"n", kCount}})) {
    // The fake cannot read what ptxas makes.
    ::setenv("NESTOR_PTXAS", "/nonexistent", 1);
    fake_.kernels["find_word"] = find_word;
    fake_.kernels["digest_words"] = digest_words;
    recipe_ = compile_nvptx(build_tile_program(schedule_), NvptxTarget{}).kernel.recipe;
    options_.target = target_from("cuda");
    options_.run_timeout_s = 20;
    options_.flush_bytes = 1 << 16;
  }
  ~Gpu() override {
    ::unsetenv("NESTOR_PTXAS");
    fake_.reset();
  }

  /// The kernel does `work` on x and y after it has doubled all elements but one; at smaller sizes it does `small_work`.
  void kernel_also(
      std::function<void(const float* x, float* y)> work, std::int64_t left_out = -1,
      std::function<void(float* y, std::int64_t n)> small_work = [](float*, std::int64_t) {}) {
    fake_.kernels[recipe_.launches.at(0).symbol] = [this, work = std::move(work), left_out,
                                                    small_work = std::move(small_work)](const FakeLaunch& launch) {
      float* pointers[2] = {};
      std::int64_t n = kCount;
      for (std::size_t k = 0; k < launch.params.size(); ++k) {
        const KernelParam& param = recipe_.launches.at(0).params.at(k);
        if (param.kind == KernelParam::Kind::pointer) pointers[param.index] = reinterpret_cast<float*>(launch.params[k]);
        if (param.kind == KernelParam::Kind::size) n = static_cast<std::int64_t>(launch.params[k]);
      }
      for (std::int64_t i = 0; i < n; ++i) {
        if (i != left_out) pointers[1][i] = 2 * pointers[0][i];
      }
      n == kCount ? work(pointers[0], pointers[1]) : small_work(pointers[1], n);
    };
  }
  TrialRecord measure() { return measure_schedule(schedule_, nest_, {{"n", kCount}}, options_); }

  FakeCuda& fake_ = testing::use_fake_cuda();
  Nest nest_;
  Schedule schedule_;
  LaunchRecipe recipe_;
  MeasureOptions options_;
};

TEST_F(Gpu, ARightKernelIsTimedAndReportedOn) {
  kernel_also([](const float*, float*) {});
  const TrialRecord trial = measure();
  ASSERT_EQ(trial.status, TrialStatus::ok) << trial.reason;
  EXPECT_EQ(trial.reason, "");
  EXPECT_EQ(trial.max_error, 0);
  EXPECT_GT(trial.median_ms, 0);
  EXPECT_GE(trial.samples_ms.size(), 7u);
  ASSERT_TRUE(trial.kernel.has_value());
  EXPECT_EQ(trial.kernel->architecture, "sm_90");
  EXPECT_THAT(trial.kernel->code, HasSubstr(".visible .entry"));
  const nlohmann::json report = nlohmann::json::parse(trial.report);
  EXPECT_EQ(report.at("assembler"), "driver");
  EXPECT_EQ(report.at("argument_bytes"), 8 * kCount);
  EXPECT_EQ(report.at("kernels").at(0).at("registers"), 32);
  EXPECT_EQ(report.at("kernels").at(0).at("threads"), recipe_.launches.at(0).block[0]);
  EXPECT_LT(report.at("half_width").get<double>(), 0.005);
}

TEST_F(Gpu, ADeviceTakenForAnOlderOneGetsKernelsForThat) {
  options_.target = target_from("cuda:1/sm_80");
  EXPECT_EQ(options_.target.str(), "cuda:1/sm_80");
  EXPECT_EQ(gpu_facts(options_.target).sm, 80);
  EXPECT_EQ(device_identity(options_.target).arch, "sm_80");
  EXPECT_EQ(device_identity(target_from("cuda:1")).arch, "sm_90");
  kernel_also([](const float*, float*) {});
  const TrialRecord trial = measure();
  ASSERT_EQ(trial.status, TrialStatus::ok) << trial.reason;
  EXPECT_EQ(trial.kernel->architecture, "sm_80");
  EXPECT_THAT(trial.kernel->code, HasSubstr(".target sm_80"));
}

TEST_F(Gpu, EveryWayToBeWrongIsFound) {
  struct Case {
    const char* what;
    std::function<void(const float*, float*)> work;
    std::int64_t left_out = -1;
    std::function<void(float*, std::int64_t)> small_work = [](float*, std::int64_t) {};
  };
  const auto nothing = [](const float*, float*) {};
  const Case cases[] = {
      {"should be", [](const float*, float* y) { y[kCount - 1] += 1; }},
      {"element 4000 of y was not written", nothing, 4000},
      {"element 5002 of y was not written", nothing, 5002},
      {"should be", nothing, -1, [](float* y, std::int64_t n) { y[n - 1] += n % 2 == 0 ? 1 : 0; }},
      {"should be", nothing, -1,
       [](float* y, std::int64_t n) {
         y[0] = std::isfinite(y[0]) ? y[0] : 0;
         y[n / 2] = std::fabs(y[n / 2]);
       }},
      {"memory around y was written", nothing, -1, [](float* y, std::int64_t n) { y[n] = 1; }},
      {"memory around y was written", [](const float*, float* y) { y[kCount] = 1; }},
      {"memory around y was written", [](const float*, float* y) { y[-1] = 1; }},
      {"memory around x was written", [](const float* x, float*) { const_cast<float*>(x)[kCount + 2] = 1; }},
      {"the input x was written", [](const float* x, float*) { const_cast<float*>(x)[17] = 1; }},
      {"wrong after repeated runs", [runs = 0](const float*, float* y) mutable { y[0] += ++runs > 3 ? 1 : 0; }},
  };
  for (const Case& wrong : cases) {
    kernel_also(wrong.work, wrong.left_out, wrong.small_work);
    const TrialRecord trial = measure();
    EXPECT_EQ(trial.status, TrialStatus::wrong) << wrong.what;
    EXPECT_THAT(trial.reason, HasSubstr(wrong.what));
    EXPECT_FALSE(trial.kernel.has_value());
  }
}

TEST_F(Gpu, AHangingKernelIsKilled) {
  kernel_also([](const float*, float*) { std::this_thread::sleep_for(std::chrono::hours(1)); });
  options_.run_timeout_s = 0.5;
  const TrialRecord trial = measure();
  EXPECT_EQ(trial.status, TrialStatus::timeout);
  EXPECT_THAT(trial.reason, HasSubstr("0.5 s of running"));
}

TEST_F(Gpu, FailuresOfTheDriverAreRowsWithItsWords) {
  kernel_also([](const float*, float*) {});
  fake_.fail["cuLaunchKernel"] = fake_.fail["cuLaunchKernelEx"] = 700;
  // The tools launch kernels as well, before the first candidate: their failure is the device's.
  EXPECT_THROW(measure(), DeviceError);
  fake_.fail.clear();
  fake_.fail["cuEventElapsedTime"] = 700;
  const TrialRecord trial = measure();
  EXPECT_EQ(trial.status, TrialStatus::crash);
  EXPECT_THAT(trial.reason, HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
}

TEST_F(Gpu, NoMemoryIsSaidClearly) {
  fake_.fail["cuMemAlloc_v2"] = 2;
  try {
    measure();
    FAIL() << "measured";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("CUDA_ERROR_OUT_OF_MEMORY"));
  }
}

/// The steps of trials that one device measured, without what its point in the space is called.
std::set<std::string> schedules_of(const std::vector<TrialRecord>& trials, bool own) {
  std::set<std::string> found;
  for (const TrialRecord& trial : trials) {
    if (trial.own_device == own && trial.status == TrialStatus::ok)
      found.insert(nlohmann::json::parse(trial.steps).at("steps").dump());
  }
  return found;
}

TEST_F(Gpu, ASearchStoresItsTrialsUnderTheDeviceThatMeasuredAndRacesTheFastestOnTheFirst) {
  kernel_also([](const float*, float*) {});
  const auto folder = std::filesystem::temp_directory_path() / ("nestor_gpu_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  TuneRequest request;
  request.nest = nest_;
  request.max_trials = 40;  // enough that a device that starts late has some of them
  request.time_budget_s = 60;
  request.measure = options_;
  request.measure.target = target_from("cuda", 2);
  request.database = (folder / "tuning.db").string();
  const TuneResult result = tune(request);
  EXPECT_EQ(result.device.kind, "cuda");
  EXPECT_EQ(result.device.name, "Fake H200");
  EXPECT_EQ(result.device.units, 132);
  EXPECT_GT(result.trials, 0);
  const Database database = Database::open(request.database);
  const auto rows = database.trials(device_identity(request.measure.target), result.problem);
  EXPECT_EQ(static_cast<int>(rows.size()), result.trials);
  EXPECT_EQ(database.devices().size(), 2u) << "all of them have measured";
  ASSERT_TRUE(result.best.has_value());
  EXPECT_TRUE(result.best->own_device) << "times of two devices are not compared";
  const std::set<std::string> first = schedules_of(rows, true), others = schedules_of(rows, false);
  std::size_t again = 0;
  for (const std::string& schedule : others) again += first.contains(schedule) ? 1 : 0;
  EXPECT_GE(again, std::min<std::size_t>(others.size(), 3)) << "the fastest of others are measured on the first";
  EXPECT_TRUE(std::any_of(rows.begin(), rows.end(), [](const TrialRecord& row) {
    return row.own_device && row.report.find("\"origin\":\"finalist\"") != std::string::npos;
  }));
  for (const TrialRecord& row : rows) {
    EXPECT_EQ(row.status == TrialStatus::ok && row.report.empty(), false);
  }
  std::filesystem::remove_all(folder);
}

TEST_F(Gpu, AStoredKernelIsCheckedAsItIs) {
  kernel_also([](const float*, float*) {});
  const TrialRecord trial = measure();
  ASSERT_TRUE(trial.kernel.has_value()) << trial.reason;
  EXPECT_EQ(measure_stored_kernel(nest_, {{"n", kCount}}, *trial.kernel,
                                  periods_to_text(size_periods(build_tile_program(schedule_))), options_)
                .status,
            TrialStatus::ok);
  kernel_also([](const float*, float* y) { y[0] += 1; });
  EXPECT_EQ(measure_stored_kernel(nest_, {{"n", kCount}}, *trial.kernel,
                                  periods_to_text(size_periods(build_tile_program(schedule_))), options_)
                .status,
            TrialStatus::wrong);
}

TEST_F(Gpu, ThisProcessNeverUsesTheDriver) {
  kernel_also([](const float*, float*) {});
  measure();
  EXPECT_EQ(fake_.contexts, 0);
  EXPECT_TRUE(fake_.memory.empty());
  EXPECT_TRUE(fake_.launches.empty());
}

/// Runs `work` in a process of its own, since this one may not use the driver; what it returns is "" when all is well.
std::string in_child(const std::function<std::string()>& work) {
  WorkerProcess child;
  child.start(0, [&](int socket) {
    std::string said;
    try {
      said = work();
    } catch (const std::exception& error) {
      said = error.what();
    }
    send_message(socket, {{"said", said}});
  });
  const auto answer = receive_message(child.socket());
  return answer ? answer->at("said").get<std::string>() : child.end(true);
}

TEST_F(Gpu, TheToolsFindEveryElementAtEveryPlace) {
  EXPECT_EQ(in_child([] {
              const CudaDevicePtr device = CudaDevice::open(0);
              const ContextScope scope(*device);
              const CudaStream stream(device);
              const GpuTools tools(device);
              for (const int width : {1, 2, 4}) {
                constexpr std::int64_t kElements = 41;
                const DeviceBuffer buffer(device, static_cast<std::size_t>(kElements * width));
                const std::uint32_t pattern = width == 1 ? 0xad : width == 2 ? 0x7dad : 0x7fbadbad;
                buffer.fill_bytes(0x11, stream);
                if (tools.find(buffer.address(), kElements, width, pattern, stream))
                  return std::string("found what is not there");
                const std::uint64_t before = tools.digest(buffer.address(), kElements * width, stream);
                for (std::int64_t k = 0; k < kElements; ++k) {
                  buffer.fill_bytes(0x11, stream);
                  buffer.upload(&pattern, static_cast<std::size_t>(width), static_cast<std::size_t>(k * width));
                  if (tools.find(buffer.address(), kElements, width, pattern, stream) != k)
                    return fmt::format("not found: {}", k);
                  if (tools.digest(buffer.address(), kElements * width, stream) == before)
                    return fmt::format("equal digest: {}", k);
                }
              }
              return std::string();
            }),
            "");
}

}  // namespace
}  // namespace nestor
