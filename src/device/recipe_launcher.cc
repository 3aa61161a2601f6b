// Compiles a recipe's launches once, then walks them.
#include "device/recipe_launcher.h"

#include "support/element_codec.h"
#include "support/error.h"

#include <algorithm>
#include <optional>

namespace nestor {
namespace {

constexpr int kProgrammaticInGraphs = 12030;  ///< CUDA 12.3

}  // namespace

/// Names to indices. Slots of the values: sizes, the number of multiprocessors, then one a loop.
class RecipeLauncher::Compiler {
 public:
  Compiler(RecipeLauncher& launcher, const LaunchRecipe& recipe) : launcher_(launcher), recipe_(recipe), names_(launcher.sizes_) {
    names_.emplace_back(kUnits);
    for (const ArgumentSpec& argument : recipe.arguments) {
      first_stride_.push_back(strides_);
      strides_ += argument.shape.size();
    }
  }

  std::vector<Step> compile(const std::vector<LaunchNode>& nodes) {
    std::vector<Step> steps;
    steps.reserve(nodes.size());
    for (const LaunchNode& node : nodes) steps.push_back(node.kind == LaunchNode::Kind::loop ? loop(node) : kernel(node));
    if (names_.size() > kValues) user_error("launch recipe: more than {} sizes and loops", kValues);
    return steps;
  }

 private:
  Step loop(const LaunchNode& node) {
    Step step;
    step.loop = true;
    step.bounds = {SizeFormula(node.lower, names_), SizeFormula(node.upper, names_)};
    step.variable = names_.size();
    names_.push_back(node.var);
    step.body = compile(node.children);
    names_[step.variable] = "";  // not visible from here on
    return step;
  }

  Step kernel(const LaunchNode& node) {
    Step step;
    if (node.params.size() > kParams)
      user_error("launch recipe: kernel \"{}\" has more than {} parameters", node.symbol, kParams);
    std::int64_t threads = 1, cluster = 1;
    for (std::size_t k = 0; k < 3; ++k) {
      if (node.block[k] < 1 || node.cluster[k] < 1)
        user_error("launch recipe: kernel \"{}\" has a block or cluster of less than 1", node.symbol);
      step.grid.emplace_back(node.grid[k], names_);
      step.block[k] = static_cast<unsigned>(node.block[k]);
      step.cluster[k] = static_cast<unsigned>(node.cluster[k]);
      threads *= node.block[k];
      cluster *= node.cluster[k];
    }
    if (threads > 1024) user_error("launch recipe: kernel \"{}\" has {} threads a block, more than 1024", node.symbol, threads);
    if (cluster > 16) user_error("launch recipe: kernel \"{}\" has {} blocks a cluster, more than 16", node.symbol, cluster);
    if (node.shared_bytes < 0 || node.shared_bytes > (1 << 20))
      user_error("launch recipe: kernel \"{}\" has {} bytes of shared memory", node.symbol, node.shared_bytes);
    for (const KernelParam& param : node.params) {
      step.params.push_back(compile(param));
      if (param.kind == KernelParam::Kind::tensor_map) step.maps.push_back(step.params.back().index);
    }
    step.shared_bytes = static_cast<unsigned>(node.shared_bytes);
    // Older drivers refuse such launches while a stream is captured; the kernel's wait is over at once where they are ordinary.
    step.programmatic = node.programmatic && launcher_.module_->device().identity().driver_version >= kProgrammaticInGraphs;
    step.function = launcher_.module_->function(node.symbol);
    step.function.prepare(node.shared_bytes, static_cast<int>(cluster));
    if (node.grid[0].uses(kUnits)) step.most_blocks = blocks_at_once(step);
    const auto known = [&](const CudaFunction& other) { return other.name() == step.function.name(); };
    auto& functions = launcher_.functions_;
    if (std::none_of(functions.begin(), functions.end(), known)) functions.push_back(step.function);
    return step;
  }

  /// Resident blocks share the items evenly; one that had to wait for another's end would double the time. 0: not known.
  std::int64_t blocks_at_once(const Step& step) const {
    const unsigned cluster = step.cluster[0] * step.cluster[1] * step.cluster[2];
    if (cluster > 1) return std::int64_t{step.function.clusters_at_once(step.block, cluster, step.shared_bytes)} * cluster;
    const int threads = static_cast<int>(step.block[0] * step.block[1] * step.block[2]);
    return std::int64_t{step.function.blocks_per_unit(threads, step.shared_bytes)} * launcher_.module_->device().identity().units;
  }

  Param compile(const KernelParam& param) {
    Param out{param.kind};
    switch (param.kind) {
      case KernelParam::Kind::pointer:
        out.index = argument(param);
        break;
      case KernelParam::Kind::stride: {
        const std::size_t k = argument(param);
        if (param.dim < 0 || static_cast<std::size_t>(param.dim) >= recipe_.arguments[k].shape.size())
          user_error("launch recipe: a parameter is stride {} of \"{}\", which does not exist", param.dim,
                     recipe_.arguments[k].name);
        out.index = first_stride_[k] + static_cast<std::size_t>(param.dim);
        break;
      }
      case KernelParam::Kind::size:
      case KernelParam::Kind::loop:
        out.index = slot(param.name);
        break;
      case KernelParam::Kind::scalar: {
        const auto found = std::find_if(recipe_.scalars.begin(), recipe_.scalars.end(),
                                        [&](const ScalarSpec& scalar) { return scalar.name == param.name; });
        if (found == recipe_.scalars.end())
          user_error("launch recipe: a parameter is the scalar \"{}\", which does not exist", param.name);
        out.index = static_cast<std::size_t>(found - recipe_.scalars.begin());
        out.type = found->type;
        break;
      }
      case KernelParam::Kind::workspace:
        break;
      case KernelParam::Kind::tensor_map:
        out.index = map(param);
        break;
      case KernelParam::Kind::counter:
        if (!launcher_.counters_) launcher_.counters_ = std::make_unique<WorkCounters>(launcher_.module_->device_ptr());
        break;
    }
    return out;
  }

  // Kernels and parameters with the same map share it.
  std::size_t map(const KernelParam& param) {
    auto& maps = launcher_.maps_;
    const auto found = std::find_if(maps.begin(), maps.end(), [&](const Map& known) { return known.maker.makes(param); });
    if (found != maps.end()) return static_cast<std::size_t>(found - maps.begin());
    if (maps.size() == kMaps) user_error("launch recipe: more than {} tensor maps", kMaps);
    if (param.held) {
      maps.push_back(map_of_workspace(param));
    } else {
      const std::size_t k = argument(param);
      maps.push_back({{launcher_.module_->device(), recipe_.arguments[k], param, launcher_.sizes_}, k, first_stride_[k]});
    }
    return maps.size() - 1;
  }

  Map map_of_workspace(const KernelParam& param) const {
    const ArgumentSpec tensor{param.name, param.held->type, false, param.held->shape};
    Map map{{launcher_.module_->device(), tensor, param, launcher_.sizes_}};
    map.offset.emplace_back(param.held->offset, launcher_.sizes_);
    for (const IntExpr& stride : param.held->strides) map.strides.emplace_back(stride, launcher_.sizes_);
    return map;
  }

  std::size_t argument(const KernelParam& param) const {
    if (param.index < 0 || static_cast<std::size_t>(param.index) >= recipe_.arguments.size())
      user_error("launch recipe: a parameter belongs to argument {}; there are {}", param.index, recipe_.arguments.size());
    return static_cast<std::size_t>(param.index);
  }

  std::size_t slot(const std::string& name) const {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (name.empty() || found == names_.end()) user_error("launch recipe: a parameter is \"{}\", which is no size or loop", name);
    return static_cast<std::size_t>(found - names_.begin());
  }

  RecipeLauncher& launcher_;
  const LaunchRecipe& recipe_;
  std::vector<std::string> names_;
  std::vector<std::size_t> first_stride_;
  std::size_t strides_ = 0;
};

/// One launch: the values and a place for the parameters, on the stack.
class RecipeLauncher::Run {
 public:
  Run(const RecipeLauncher& launcher, const LaunchValues& values, cuda::Stream stream)
      : launcher_(launcher), given_(values), stream_(stream) {
    std::copy(values.sizes.begin(), values.sizes.end(), values_.begin());
    values_[values.sizes.size()] = launcher.module_->device().identity().units;
  }

  void set_counter(void* counter) { counter_ = counter; }

  /// `check` alone looks at the grids and makes the tensor maps; otherwise kernels are launched.
  void walk(const std::vector<Step>& steps, bool check) {
    for (const Step& step : steps) {
      if (!step.loop) {
        std::array<unsigned, 3> grid;
        if (!grid_of(step, grid)) continue;
        make_maps(step);
        if (!check) launch(step, grid);
        continue;
      }
      const std::int64_t upper = step.bounds[1].evaluate(values_);
      for (std::int64_t at = step.bounds[0].evaluate(values_); at < upper; ++at) {
        values_[step.variable] = at;
        walk(step.body, check);
      }
    }
  }

 private:
  // False when there is nothing to launch.
  bool grid_of(const Step& step, std::array<unsigned, 3>& grid) const {
    constexpr std::array<std::int64_t, 3> kLargest{(std::int64_t{1} << 31) - 1, 65535, 65535};
    bool any = true;
    for (std::size_t k = 0; k < 3; ++k) {
      std::int64_t blocks = step.grid[k].evaluate(values_);
      if (k == 0 && step.most_blocks > 0) blocks = std::min(blocks, step.most_blocks);
      if (blocks < 0 || blocks > kLargest[k])
        user_error("kernel \"{}\" would have {} blocks along {} at these sizes; 0 to {} are possible", step.function.name(),
                   blocks, "xyz"[k], kLargest[k]);
      if (blocks % step.cluster[k] != 0)
        user_error("kernel \"{}\" would have {} blocks along {} at these sizes, no multiple of its cluster of {}",
                   step.function.name(), blocks, "xyz"[k], step.cluster[k]);
      grid[k] = static_cast<unsigned>(blocks);
      any = any && blocks > 0;
    }
    return any;
  }

  // Once a launch each, and only for kernels with a grid: without one, arguments may have no elements, hence no map.
  void make_maps(const Step& step) {
    for (const std::size_t k : step.maps) {
      const Map& map = launcher_.maps_[k];
      if ((made_ >> k & 1) == 0 && map.offset.empty())
        map.maker.make(given_.pointers[map.argument], given_.strides.data() + map.first_stride, given_.sizes, maps_[k]);
      if ((made_ >> k & 1) == 0 && !map.offset.empty()) make_workspace_map(map, maps_[k]);
      made_ |= 1U << k;
    }
  }

  void make_workspace_map(const Map& map, cuda::TensorMap& made) const {
    std::array<std::int64_t, TensorView::kRank> strides{};
    for (std::size_t k = 0; k < map.strides.size(); ++k) strides[k] = map.strides[k].evaluate(given_.sizes);
    strides[map.strides.size()] = 1;  // the last index is dense
    map.maker.make(static_cast<std::byte*>(given_.workspace) + map.offset[0].evaluate(given_.sizes), strides.data(), given_.sizes,
                   made);
  }

  void launch(const Step& step, const std::array<unsigned, 3>& grid) {
    for (std::size_t k = 0; k < step.params.size(); ++k) {
      const Param& param = step.params[k];
      if (param.kind == KernelParam::Kind::tensor_map) {
        params_[k] = &maps_[param.index];
        continue;
      }
      bits_[k] = value_of(param);
      params_[k] = &bits_[k];
    }
    step.function.launch(grid, {step.block, step.cluster, step.shared_bytes, step.programmatic}, stream_, params_.data());
  }

  std::uint64_t value_of(const Param& param) const {
    switch (param.kind) {
      case KernelParam::Kind::pointer:
        return reinterpret_cast<std::uint64_t>(given_.pointers[param.index]);
      case KernelParam::Kind::stride:
        return static_cast<std::uint64_t>(given_.strides[param.index]);
      case KernelParam::Kind::scalar: {
        std::uint64_t bits = 0;
        store_element(param.type, reinterpret_cast<std::byte*>(&bits), 0, given_.scalars[param.index]);
        return bits;
      }
      case KernelParam::Kind::workspace:
        return reinterpret_cast<std::uint64_t>(given_.workspace);
      case KernelParam::Kind::counter:
        return reinterpret_cast<std::uint64_t>(counter_);
      default:
        return static_cast<std::uint64_t>(values_[param.index]);
    }
  }

  const RecipeLauncher& launcher_;
  const LaunchValues& given_;
  cuda::Stream stream_;
  void* counter_ = nullptr;
  std::uint32_t made_ = 0;  // a bit for each of maps_
  static_assert(kMaps <= 32);
  std::array<std::int64_t, kValues> values_;
  std::array<std::uint64_t, kParams> bits_;
  std::array<void*, kParams> params_;
  std::array<cuda::TensorMap, kMaps> maps_;
};

RecipeLauncher::RecipeLauncher(std::shared_ptr<const CudaModule> module, const LaunchRecipe& recipe)
    : module_(std::move(module)), sizes_(nestor::size_names(recipe)), workspace_(recipe.workspace_bytes, sizes_) {
  if (recipe.target != "nvptx") user_error("launch recipe: the target is \"{}\", not a GPU's", recipe.target);
  steps_ = Compiler(*this, recipe).compile(recipe.launches);
  single_ = steps_.size() == 1 && !steps_.front().loop;
}

std::int64_t RecipeLauncher::workspace_bytes(std::span<const std::int64_t> sizes) const {
  const std::int64_t bytes = workspace_.evaluate(sizes);
  if (bytes < 0) user_error("the workspace would have {} bytes at these sizes", bytes);
  return bytes;
}

void RecipeLauncher::launch(const LaunchValues& values, cuda::Stream stream) const {
  const ContextScope scope(module_->device());
  Run run(*this, values, stream);
  if (!single_ || counters_) run.walk(steps_, true);
  std::optional<WorkCounters::Lease> counter;
  if (counters_) run.set_counter(counter.emplace(*counters_, stream).data());
  run.walk(steps_, false);
}

}  // namespace nestor
