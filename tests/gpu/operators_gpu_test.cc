// Every operator and variant on a real GPU, launched by this process itself, so that a sanitizer sees each kernel to its end:
// schedules of the search space at small sizes, each argument in memory of exactly its size, against the oracle.
// scripts/sanitize_gpu.sh runs this program under compute-sanitizer.
//
// Environment: NESTOR_GPU_KERNELS, kernels of each variant and sizes (3). NESTOR_GPU_SEED, of the choices that are drawn (1).
// NESTOR_GPU_POISON=0 leaves outputs as the driver gives the memory (for initcheck). NESTOR_GPU_KERNEL_FOLDER: kernels found
// there are not made again, others are written there; where there is no GPU, for an H200.
#include "api/operators.h"
#include "autotune/oracle/oracle.h"
#include "autotune/space/nest/nest_space.h"
#include "autotune/trial/trial_steps.h"
#include "codegen/gpu/backend.h"
#include "codegen/tile/tile_program.h"
#include "device/recipe_launcher.h"
#include "support/error.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <random>
#include <set>

namespace nestor {
namespace {

/// The setting of that name in the environment.
int setting(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

/// Small sizes: even ones, for which accesses of 16 bytes and tiles fit, and odd ones, for which they do not. Sizes with small
/// defaults count things like heads and steps.
Sizes small_sizes(const Nest& nest, bool odd) {
  constexpr std::int64_t kFew = 64;
  const auto large = std::count_if(nest.sizes.begin(), nest.sizes.end(),
                                   [](const SizeParam& size) { return !size.specialized && size.default_value > kFew; });
  // One free size counts rows: more of them than blocks that are there at once take in turn.
  const std::int64_t free_size = odd ? 37 : large == 1 ? 600 : large == 2 ? 200 : 70;
  Sizes sizes;
  for (const SizeParam& size : nest.sizes) {
    const std::int64_t usual = size.default_value;
    const std::int64_t wanted = size.specialized ? usual - (odd ? 3 : 0)
                                : usual > kFew   ? free_size
                                                 : std::min<std::int64_t>(usual, 3);
    sizes[size.name] = std::max(wanted, size.min);
  }
  return sizes;
}

struct Kernel {
  CompiledKernel code;
  std::string steps;
};

/// What is compiled for where there is no GPU.
CudaIdentity h200() {
  CudaIdentity gpu;
  gpu.sm = 90;
  gpu.units = 132;
  gpu.shared_bytes_per_block = 227 << 10;
  return gpu;
}

/// Kernels of the space: first guesses, evenly among them, and as many with some random choices in place of a guess's. The definition's own
/// order where those give none.
std::vector<Kernel> make_kernels(const Nest& nest, const Sizes& sizes, const CudaIdentity& gpu, int wanted) {
  constexpr int kMostTries = 60, kChanges = 4;
  BaseSchedules schedules(nest_for_tuning(nest, sizes));
  const int sm = std::min(gpu.sm, 90);
  const auto space = make_nest_space(schedules, sizes, gpu_space_limits(sm, gpu.shared_bytes_per_block, gpu.units));
  const std::vector<Point> guesses = space->defaults();
  const std::size_t stride = std::max<std::size_t>(2 * guesses.size() / static_cast<std::size_t>(wanted + 1), 1);
  std::mt19937 random(static_cast<unsigned>(setting("NESTOR_GPU_SEED", 1)));
  std::vector<Kernel> kernels;
  std::set<std::string> known;
  std::size_t guess = 0;
  const auto try_steps = [&](const std::vector<Step>& chosen) {
    std::string steps;
    for (const Step& step : chosen) steps += describe(step) + "\n";
    if (!known.insert(steps).second) return;
    try {
      const TileProgram program = build_tile_program(schedules.replay(chosen));
      std::string why;
      if (!is_valid_for(program.valid, sizes, &why)) return;
      NvptxTarget target;
      target.sm = sm;
      target.shared_limit = gpu.shared_bytes_per_block;
      kernels.push_back({compile_nvptx(program, target).kernel, steps});
    } catch (const UserError&) {  // these steps give no kernel: too much memory, or no proof within the budget
    }
  };
  for (int tries = 0; tries < kMostTries && kernels.size() < static_cast<std::size_t>(wanted); ++tries) {
    const bool drawn = kernels.size() * 2 >= static_cast<std::size_t>(wanted) || guess >= guesses.size();
    Point point = guesses[drawn ? random() % guesses.size() : guess];
    if (!drawn) guess += stride;
    for (int change = 0; drawn && change < kChanges; ++change) {
      const std::size_t which = random() % point.size();
      point[which] = static_cast<int>(random() % space->parameters()[which].choices.size());
    }
    const Candidate candidate = space->candidate(point);
    if (candidate.infeasible.empty()) try_steps(candidate.steps);
  }
  if (kernels.empty()) try_steps({});  // the definition as it stands
  return kernels;
}

/// The kernels in the file or, where there is none, those that `make` makes. `file` "": none is kept.
std::vector<Kernel> kept_kernels(const std::string& file, const std::function<std::vector<Kernel>()>& make) {
  if (file.empty()) return make();
  std::vector<Kernel> kernels;
  if (std::ifstream in(file); in) {
    for (const nlohmann::json& one : nlohmann::json::parse(in))
      kernels.push_back({{one.at("architecture"), one.at("code"), recipe_from_json(one.at("recipe"))}, one.at("steps")});
    return kernels;
  }
  kernels = make();
  nlohmann::json all = nlohmann::json::array();
  for (const Kernel& kernel : kernels) {
    all.push_back({{"architecture", kernel.code.architecture},
                   {"code", kernel.code.code},
                   {"recipe", recipe_to_json(kernel.code.recipe)},
                   {"steps", kernel.steps}});
  }
  std::filesystem::create_directories(std::filesystem::path(file).parent_path());
  std::ofstream(file) << all;
  return kernels;
}

/// A problem's arguments on the device.
class Arguments {
 public:
  /// `poison`: outputs start with a pattern that no kernel writes by chance, else as the driver gives the memory.
  Arguments(const CudaDevicePtr& device, HostTensors tensors, bool poison)
      : device_(device), tensors_(std::move(tensors)), poison_(poison) {}

  /// Runs the kernel once and fetches the outputs.
  const HostTensors& run(const CompiledKernel& kernel, const Sizes& given) {
    const LaunchRecipe& recipe = kernel.recipe;
    const RecipeLauncher launcher(CudaModule::load(device_, kernel.code), recipe);
    std::vector<DeviceBuffer> buffers;
    std::vector<void*> pointers;
    std::vector<std::int64_t> strides, sizes;
    std::vector<double> scalars;
    for (const ArgumentSpec& spec : recipe.arguments) {
      const HostTensor& tensor = tensors_.at(spec.name);
      buffers.emplace_back(device_, tensor.bytes.size());
      if (!spec.output) buffers.back().upload(tensor.bytes.data(), tensor.bytes.size());
      if (spec.output && poison_) buffers.back().fill_bytes(0xff);
      pointers.push_back(buffers.back().data());
      std::vector<std::int64_t> dense(tensor.shape.size(), 1);
      for (std::size_t k = dense.size(); k-- > 1;) dense[k - 1] = dense[k] * tensor.shape[k];
      strides.insert(strides.end(), dense.begin(), dense.end());
    }
    for (const std::string& name : launcher.size_names()) sizes.push_back(given.at(name));
    for (const ScalarSpec& scalar : recipe.scalars) scalars.push_back(scalar.default_value);
    const DeviceBuffer workspace(device_, static_cast<std::size_t>(launcher.workspace_bytes(sizes)));
    if (poison_) workspace.fill_bytes(0xff);
    device_->synchronise();
    const CudaStream stream(device_);
    launcher.launch({pointers, strides, sizes, scalars, workspace.data()}, stream);
    stream.synchronise(launcher.functions().front().name());
    for (std::size_t k = 0; k < buffers.size(); ++k) {
      HostTensor& tensor = tensors_.at(recipe.arguments[k].name);
      if (recipe.arguments[k].output) buffers[k].download(tensor.bytes.data(), tensor.bytes.size());
    }
    return tensors_;
  }
  const HostTensors& tensors() const { return tensors_; }

 private:
  CudaDevicePtr device_;
  HostTensors tensors_;
  bool poison_;
};

struct Problem {
  std::string op, variant;
};

std::ostream& operator<<(std::ostream& out, const Problem& problem) { return out << problem.op << " " << problem.variant; }

std::vector<Kernel> kernels_of(const Problem& problem, const Nest& nest, const Sizes& sizes, bool odd, const CudaIdentity& gpu) {
  const char* folder = std::getenv("NESTOR_GPU_KERNEL_FOLDER");
  const std::string file =
      folder == nullptr ? "" : fmt::format("{}/{}.{}.{}.json", folder, problem.op, problem.variant, odd ? "odd" : "even");
  return kept_kernels(file, [&] { return make_kernels(nest, sizes, gpu, setting("NESTOR_GPU_KERNELS", 3)); });
}

class OperatorsOnGpu : public ::testing::TestWithParam<Problem> {};

TEST_P(OperatorsOnGpu, kernels_of_the_space_compute_what_the_operator_says) {
  std::string why_none;
  const CudaDevicePtr device = CudaDriver::find(&why_none) == nullptr ? nullptr : CudaDevice::open(0);
  if (device == nullptr && std::getenv("NESTOR_GPU_KERNEL_FOLDER") == nullptr) GTEST_SKIP() << why_none;
  const Nest nest = load_operator(GetParam().op, GetParam().variant);
  std::map<std::string, double> scalars;
  for (const ScalarParam& scalar : nest.scalars) scalars[scalar.name] = scalar.default_value;
  std::size_t launched = 0;
  for (const bool odd : {false, true}) {
    const Sizes sizes = complete_sizes(nest, small_sizes(nest, odd));
    const std::vector<Kernel> kernels = kernels_of(GetParam(), nest, sizes, odd, device == nullptr ? h200() : device->identity());
    EXPECT_FALSE(kernels.empty()) << "the space has no kernel at these sizes";
    if (device == nullptr) continue;
    Arguments arguments(device, make_arguments(nest, sizes, 1), setting("NESTOR_GPU_POISON", 1) != 0);
    const auto expected = reference_samples(nest, sizes, scalars, arguments.tensors(), 300, 1);
    for (const Kernel& kernel : kernels) {
      std::string where;
      try {
        EXPECT_LE(worst_error(expected, arguments.run(kernel.code, sizes), &where), 1) << where << "\n" << kernel.steps;
        ++launched;
      } catch (const UserError& error) {
        // Rows that tensor copies cannot start at are refused, as the tuner would see it.
        if (std::string(error.what()).find("is copied by tensor maps") == std::string::npos) throw;
        std::cout << "refused: " << error.what() << std::endl;
      }
    }
  }
  if (device == nullptr) GTEST_SKIP() << "kernels are made, but not run: " << why_none;
  EXPECT_GT(launched, 0u) << "all kernels were refused";
  std::cout << "launched " << launched << " kernels" << std::endl;
}

std::vector<Problem> problems() {
  std::vector<Problem> all;
  for (const OperatorEntry& entry : builtin_operators()) {
    for (const std::string& variant : entry.variants) all.push_back({entry.op, variant});
  }
  return all;
}

/// Two underscores between operator and variant, so that a filter can tell an operator from one whose name begins alike.
std::string test_name(const ::testing::TestParamInfo<Problem>& info) {
  std::string name = info.param.op + "__" + info.param.variant;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(all, OperatorsOnGpu, ::testing::ValuesIn(problems()), test_name);

}  // namespace
}  // namespace nestor
