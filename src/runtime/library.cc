// Library and Kernel: remembered answers first, else the database.
#include "runtime/library.h"

#include "db/devices/host_identity.h"
#include "db/no_match.h"
#include "support/error.h"
#include "support/scalar_range.h"

#include <nlohmann/json.hpp>

#include <filesystem>

namespace nestor {
namespace {

using nlohmann::json;

Sizes to_map(std::span<const NamedSize> sizes) {
  Sizes map;
  for (const NamedSize& size : sizes) {
    if (!map.emplace(size.name, size.value).second) user_error("size \"{}\" is given twice", size.name);
  }
  return map;
}

json tensors_to_json(const LaunchRecipe& recipe) {
  json tensors = json::array();
  for (const ArgumentSpec& argument : recipe.arguments) {
    json shape = json::array();
    for (const IntExpr& extent : argument.shape) shape.push_back(extent.str());
    tensors.push_back(
        {{"name", argument.name}, {"type", to_string(argument.type)}, {"output", argument.output}, {"shape", shape}});
  }
  return tensors;
}

std::string info_text(const Match& match, const LaunchRecipe& recipe, const std::string& device) {
  json scalars = json::array(), valid = json::array();
  for (const ScalarSpec& scalar : recipe.scalars) {
    scalars.push_back({{"name", scalar.name}, {"type", to_string(scalar.type)}, {"default", scalar.default_value}});
    range_to_json(scalar, scalars.back());
  }
  for (const SizeConstraint& constraint : recipe.valid) valid.push_back(constraint.str());
  return json{{"match", to_string(match.kind)},
              {"distance", match.distance},
              {"device", device},
              {"op", match.problem.op},
              {"variant", match.problem.variant},
              {"nest_digest", match.problem.nest_digest},
              {"measured",
               {{"sizes", match.problem.sizes},
                {"median_ms", match.trial.median_ms},
                {"device", match.device.key()},
                {"trial", match.trial.id}}},
              {"kernel", {{"hash", match.trial.kernel->hash}, {"architecture", match.trial.kernel->architecture}}},
              {"tensors", tensors_to_json(recipe)},
              {"sizes", recipe.sizes},
              {"fixed_sizes", recipe.fixed_sizes},
              {"scalars", scalars},
              {"valid", valid}}
      .dump();
}

// Sizes of a map as an array on the stack, so that asking with a map allocates nothing either.
class SizeArray {
 public:
  explicit SizeArray(const Sizes& sizes) {
    if (sizes.size() > values_.size()) user_error("{} sizes are too many; at most {}", sizes.size(), values_.size());
    for (const auto& [name, value] : sizes) values_[count_++] = {name, value};
  }
  operator std::span<const NamedSize>() const { return {values_.data(), count_}; }

 private:
  std::array<NamedSize, PreparedLaunch::kSizes> values_;
  std::size_t count_ = 0;
};

void require_digest(std::string_view digest) {
  constexpr std::size_t kDigits = 32;
  const bool good = digest.size() == kDigits && digest.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  if (!good) user_error("\"{}\" is no digest of a nest: those are {} digits, 0 to 9 and a to f", digest, kDigits);
}

const KernelState& require(const std::shared_ptr<const KernelState>& state) {
  if (!state) user_error("there is no kernel to launch: the query found none");
  return *state;
}

}  // namespace

Library::Impl::Impl(std::function<Database()> open, std::string system, int thread_count)
    : threads(thread_count > 0 ? thread_count : host_threads()),
      system_(std::move(system)),
      look_ups_([open = std::move(open)] { return std::make_unique<LookUps>(open()); }) {
  const NoFork whole;
  look_ups_.get();
}

std::shared_ptr<Library::Impl> Library::Impl::open(const std::string& path, const LibraryOptions& options) {
  if (options.threads < 0) user_error("a kernel cannot run with {} threads", options.threads);
  std::string user = path.empty() ? Database::default_path() : path;
  std::string system;
  if (options.use_system) system = options.system_path.empty() ? Database::default_system_path() : options.system_path;
  std::error_code ignored;
  if (path.empty() && !std::filesystem::exists(user, ignored)) {
    if (system.empty()) user_error("there is no tuning database at {}: `nestor tune` makes one", user);
    user = std::exchange(system, "");
  }
  const auto open_both = [user, system] { return Database::open(user, {.read_only = true, .system_path = system}); };
  return std::make_shared<Impl>(open_both, system, options.threads);
}

const std::shared_ptr<const KernelState>* Library::Impl::query(const KernelKey& key) {
  if (const auto* remembered = table.find(key)) return remembered;
  if (key.op.empty()) require_digest(key.digest);
  const NoFork whole;  // SQLite has locks of its own
  LookUps& shared = look_ups_.get();
  const std::lock_guard lock(shared.mutex);
  if (const auto* remembered = table.find(key)) return remembered;
  return look_up(shared, key);
}

std::int64_t Library::Impl::waiting(const KernelKey& key) {
  const NoFork whole;  // SQLite has locks of its own
  LookUps& shared = look_ups_.get();
  const std::lock_guard lock(shared.mutex);
  return shared.database.waiting(std::string(key.op), std::string(key.variant), std::string(key.digest));
}

void Library::Impl::refresh() {
  table.clear();
  const NoFork whole;
  LookUps& shared = look_ups_.get();
  const std::lock_guard lock(shared.mutex);
  shared.records.reset();
}

std::string Library::Impl::why_none(const KernelKey& key) {
  const NoFork whole;
  LookUps& shared = look_ups_.get();
  const std::lock_guard lock(shared.mutex);
  if (!shared.records) {
    shared.records = shared.database.summary();
    std::error_code ignored;
    if (!system_.empty() && std::filesystem::exists(system_, ignored)) {
      const auto more = Database::open(system_, {.read_only = true}).summary();
      shared.records->insert(shared.records->end(), more.begin(), more.end());
    }
  }
  const Asked asked{std::string(key.op),
                    std::string(key.variant),
                    std::string(key.digest),
                    to_map(key.sizes),
                    {device(shared, key.device).identity()}};
  return why_no_match(*shared.records, asked);
}

const std::shared_ptr<const KernelState>* Library::Impl::look_up(LookUps& shared, const KernelKey& key) {
  const Device& on = device(shared, key.device);
  const Match match = shared.database.query(on.identity(), std::string(key.op), std::string(key.variant), std::string(key.digest),
                                            to_map(key.sizes));
  if (match.kind == MatchKind::none) return nullptr;
  const LaunchRecipe recipe = recipe_from_json(json::parse(match.trial.kernel->recipe));
  const std::string title = fmt::format("{} ({})", match.problem.op, match.problem.variant);
  auto state =
      std::make_shared<const KernelState>(KernelState{match.kind, match.distance, info_text(match, recipe, on.name()),
                                                      LaunchPlan(recipe, title), load(shared, on, *match.trial.kernel, recipe)});
  return &table.insert(key, std::move(state));
}

const Device& Library::Impl::device(LookUps& shared, std::string_view name) const {
  const auto found = shared.devices.find(name);
  if (found != shared.devices.end()) return *found->second;
  std::shared_ptr<const Device> made = make_device(name, threads);
  made = shared.devices.try_emplace(made->name(), made).first->second;  // "cuda" and "cuda:0" are one
  return *shared.devices.try_emplace(std::string(name), made).first->second;
}

// Several sizes often share one kernel.
std::shared_ptr<const LoadedKernel> Library::Impl::load(LookUps& shared, const Device& device, const KernelRecord& kernel,
                                                        const LaunchRecipe& recipe) {
  const std::string key = device.name() + "/" + kernel.hash;
  const auto found = shared.loaded.find(key);
  if (found != shared.loaded.end()) return found->second;
  return shared.loaded.emplace(key, device.load(kernel, recipe)).first->second;
}

Library::Library(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Library Library::open(const std::string& path, const LibraryOptions& options) { return Library(Impl::open(path, options)); }

Kernel Library::query(std::string_view op, std::string_view variant, std::span<const NamedSize> sizes,
                      std::string_view device) const {
  if (op.empty()) user_error("the operator's name is empty");
  const auto* state = impl_->query({op, variant, device, sizes});
  return state == nullptr ? Kernel() : Kernel(*state);
}

Kernel Library::query(std::string_view op, std::string_view variant, const Sizes& sizes, std::string_view device) const {
  return query(op, variant, std::span<const NamedSize>(SizeArray(sizes)), device);
}

Kernel Library::query(std::string_view op, std::string_view variant, std::initializer_list<NamedSize> sizes,
                      std::string_view device) const {
  return query(op, variant, std::span<const NamedSize>(sizes.begin(), sizes.size()), device);
}

Kernel Library::query_nest(std::string_view digest, std::span<const NamedSize> sizes, std::string_view device) const {
  const auto* state = impl_->query({"", "", device, sizes, digest});
  return state == nullptr ? Kernel() : Kernel(*state);
}

Kernel Library::query_nest(std::string_view digest, const Sizes& sizes, std::string_view device) const {
  return query_nest(digest, std::span<const NamedSize>(SizeArray(sizes)), device);
}

void Library::refresh() { impl_->refresh(); }

int Library::threads() const { return impl_->threads; }

MatchKind Kernel::match() const { return state_ ? state_->match : MatchKind::none; }
double Kernel::distance() const { return state_ ? state_->distance : 0; }
std::string_view Kernel::info() const { return state_ ? std::string_view(state_->info) : R"({"match":"none"})"; }

void Kernel::launch(std::span<const TensorArg> tensors, std::span<const NamedSize> sizes, std::span<const NamedScalar> scalars,
                    const LaunchOptions& options) const {
  require(state_).launch(tensors, sizes, scalars, options);
}

void Kernel::launch(std::span<const TensorArg> tensors, const Sizes& sizes, std::span<const NamedScalar> scalars,
                    const LaunchOptions& options) const {
  require(state_).launch(tensors, SizeArray(sizes), scalars, options);
}

void Kernel::launch(std::initializer_list<TensorArg> tensors, std::initializer_list<NamedSize> sizes,
                    std::initializer_list<NamedScalar> scalars, const LaunchOptions& options) const {
  require(state_).launch({tensors.begin(), tensors.size()}, {sizes.begin(), sizes.size()}, {scalars.begin(), scalars.size()},
                         options);
}

}  // namespace nestor
