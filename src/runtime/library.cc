// Library and Kernel: remembered answers first, else the database.
#include "runtime/library.h"

#include "db/devices/host_identity.h"
#include "db/no_match.h"
#include "device/cuda.h"
#include "support/error.h"
#include "support/scalar_range.h"
#include "support/system/json_text.h"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <set>

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

/// What `count` says of a key's definition; it is asked once.
template <class Count>
std::int64_t counted(std::map<std::string, std::int64_t>& known, const KernelKey& key, const Count& count) {
  const std::string definition = fmt::format("{}\n{}\n{}", key.op, key.variant, key.digest);
  const auto found = known.find(definition);
  return found != known.end() ? found->second : known.emplace(definition, count()).first->second;
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

/// What belongs to the kernel: the same for all sizes that it serves.
std::string info_text(const Match& match, const LaunchRecipe& recipe, const std::string& device) {
  json scalars = json::array(), valid = json::array();
  for (const ScalarSpec& scalar : recipe.scalars) {
    scalars.push_back(
        {{"name", scalar.name}, {"type", to_string(scalar.type)}, {"default", number_to_json(scalar.default_value)}});
    range_to_json(scalar, scalars.back());
  }
  for (const SizeConstraint& constraint : recipe.valid) valid.push_back(constraint.str());
  return json{{"device", device},
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
              {"valid", valid},
              {"passed_over", match.passed_over}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
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
  std::array<NamedSize, LaunchLimits::kSizes> values_;
  std::size_t count_ = 0;
};

void require_digest(std::string_view digest) {
  constexpr std::size_t kDigits = 32;
  const bool good = digest.size() == kDigits && digest.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  if (!good) user_error("\"{}\" is no digest of a nest: those are {} digits, 0 to 9 and a to f", digest, kDigits);
}

std::shared_ptr<const KernelState> usable(std::shared_ptr<const KernelState> state) {
  if (state->refused == KernelState::Refused::user) user_error("{}", state->reason);
  if (state->refused == KernelState::Refused::device) throw DeviceError(state->reason);
  return state;
}

const KernelState& require(const std::shared_ptr<const KernelState>& state) {
  if (!state) user_error("there is no kernel to launch: the query found none");
  return *state;
}

}  // namespace

Library::Impl::Impl(std::function<Database()> open, std::string system, int thread_count)
    : threads(thread_count > 0 ? thread_count : host_threads()),
      system_(std::move(system)),
      look_ups_([this, open = std::move(open)] {
        auto made = std::make_unique<LookUps>(open());
        if (unsigned_ >= 0) made->database.allow_unsigned(unsigned_ > 0);
        return made;
      }) {
  const NoFork whole;
  look_ups_.get();
}

std::shared_ptr<Library::Impl> Library::Impl::open(const std::string& path, const LibraryOptions& options) {
  if (options.threads < 0) user_error("a kernel cannot run with {} threads", options.threads);
  std::string user = path.empty() ? Database::default_path_if_any() : path;
  std::string system;
  if (options.use_system) system = options.system_path.empty() ? Database::default_system_path() : options.system_path;
  std::error_code ignored;
  if (path.empty() && !std::filesystem::exists(user, ignored)) {
    if (system.empty()) user_error("there is no tuning database at {}: `nestor tune` makes one", Database::default_path());
    user = std::exchange(system, "");
  }
  const DatabaseOptions wanted{.read_only = true, .system_path = system, .allow_unsigned = options.allow_unsigned};
  return std::make_shared<Impl>([user, wanted] { return Database::open(user, wanted); }, system, options.threads);
}

std::shared_ptr<const KernelState> Library::Impl::query(const KernelKey& key) {
  if (auto remembered = table_.find(key)) return usable(std::move(remembered));
  if (key.op.empty()) require_digest(key.digest);
  const NoFork whole;  // SQLite has locks of its own
  LookUps& shared = look_ups_.get();
  const std::lock_guard lock(shared.mutex);
  if (auto remembered = table_.find(key)) return usable(std::move(remembered));
  return usable(table_.insert(key, look_up(shared, key)));
}

void Library::Impl::allow_unsigned(bool allowed) {
  unsigned_ = allowed ? 1 : 0;
  {
    const NoFork whole;
    LookUps& shared = look_ups_.get();
    const std::lock_guard lock(shared.mutex);
    shared.database.allow_unsigned(allowed);
  }
  refresh();
}

void Library::Impl::refresh() {
  const NoFork whole;
  table_.clear();
  LookUps& shared = look_ups_.get();
  const std::lock_guard lock(shared.mutex);
  shared.records.reset();
  shared.waiting.clear();
  shared.damaged.clear();
  std::erase_if(shared.cores, [](const auto& entry) { return entry.second.expired(); });
  std::erase_if(shared.loaded, [](const auto& entry) { return entry.second.expired(); });
}

std::string Library::Impl::why_none(LookUps& shared, const KernelKey& key) const {
  if (!shared.records) {
    shared.records = shared.database.summary();
    std::error_code ignored;
    if (!system_.empty() && std::filesystem::exists(system_, ignored)) {
      const auto more = Database::open(system_, {.read_only = true}).summary();
      shared.records->insert(shared.records->end(), more.begin(), more.end());
    }
  }
  Asked asked{std::string(key.op),
              std::string(key.variant),
              std::string(key.digest),
              to_map(key.sizes),
              {device(shared, key.device).identity()}};
  asked.damaged = [&] {
    return counted(shared.damaged, key, [&] { return shared.database.damaged(asked.op, asked.variant, asked.digest); });
  };
  return why_no_match(*shared.records, asked);
}

std::string Library::Impl::reason_of(LookUps& shared, const KernelKey& key, const std::vector<std::string>& passed_over) const {
  const std::string what =
      key.op.empty() ? fmt::format("the nest {}", key.digest) : fmt::format("\"{}\" ({})", key.op, key.variant);
  std::string reason = fmt::format("no kernel of {} for {} fits these sizes: {}; `nestor tune` makes one", what, key.device,
                                   why_none(shared, key));
  const std::int64_t waiting = counted(shared.waiting, key, [&] {
    return shared.database.waiting(std::string(key.op), std::string(key.variant), std::string(key.digest));
  });
  if (waiting > 0)
    reason += fmt::format(
        "; {} that this revision has not checked, or that no trusted key signed, are not served: `nestor db check --run`",
        waiting);
  for (const std::string& why : std::set<std::string>(passed_over.begin(), passed_over.end())) reason += "; " + why;
  return reason;
}

std::shared_ptr<const KernelState> Library::Impl::look_up(LookUps& shared, const KernelKey& key) {
  const Device& on = device(shared, key.device);
  using Refused = KernelState::Refused;
  Refused refused = Refused::no;
  std::vector<std::string> passed_over;
  std::vector<std::shared_ptr<const LoadedKernel>> held;  // until the answer holds it
  const TryKernel loads = [&](const TrialRecord& trial) {
    try {
      const LaunchRecipe recipe = recipe_from_json(json::parse(trial.kernel->recipe));
      LaunchPlan(recipe, std::string(key.op));
      held.push_back(load(shared, on, *trial.kernel, recipe));
    } catch (const CudaError& error) {
      if (error.context_lost() || error.out_of_memory()) throw;
      refused = Refused::device;
      passed_over.emplace_back(error.what());
      user_error("{}", error.what());
    } catch (const UserError& error) {
      if (refused == Refused::no) refused = Refused::user;
      passed_over.emplace_back(error.what());
      throw;
    }
  };
  const Match match = shared.database.query(on.identity(), std::string(key.op), std::string(key.variant), std::string(key.digest),
                                            to_map(key.sizes), loads);
  if (match.kind == MatchKind::none)
    return std::make_shared<const KernelState>(KernelState{.reason = reason_of(shared, key, passed_over), .refused = refused});
  return kept(shared, {match.kind, match.distance, core_of(shared, match, on)});
}

std::shared_ptr<const KernelCore> Library::Impl::core_of(LookUps& shared, const Match& match, const Device& device) {
  const KernelRecord& kernel = *match.trial.kernel;
  const LaunchRecipe recipe = recipe_from_json(json::parse(kernel.recipe));
  std::string info = info_text(match, recipe, device.name());
  std::weak_ptr<const KernelCore>& place = shared.cores[info];
  if (auto known = place.lock()) return known;
  const std::string title = fmt::format("{} ({})", match.problem.op, match.problem.variant);
  auto made = std::make_shared<const KernelCore>(
      KernelCore{std::move(info), LaunchPlan(recipe, title), load(shared, device, kernel, recipe)});
  place = made;
  return made;
}

std::shared_ptr<const KernelState> Library::Impl::kept(LookUps& shared, KernelState state) const {
  const std::tuple key(state.core.get(), state.match, state.distance);
  const auto found = shared.kept.find(key);
  if (found != shared.kept.end()) return found->second;
  auto made = std::make_shared<const KernelState>(std::move(state));
  if (keep_answers_) shared.kept.emplace(key, made);
  return made;
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
  std::weak_ptr<const LoadedKernel>& place = shared.loaded[key];
  if (auto known = place.lock()) return known;
  std::shared_ptr<const LoadedKernel> made = device.load(kernel, recipe);
  place = made;
  return made;
}

Library::Library(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Library Library::open(const std::string& path, const LibraryOptions& options) { return Library(Impl::open(path, options)); }

Kernel Library::query(std::string_view op, std::string_view variant, std::span<const NamedSize> sizes,
                      std::string_view device) const {
  if (op.empty()) user_error("the operator's name is empty");
  std::shared_ptr<const KernelState> state = impl_->query({op, variant, device, sizes});
  return state->core ? Kernel(std::move(state)) : Kernel();
}

Kernel Library::query(std::string_view op, std::string_view variant, const Sizes& sizes, std::string_view device) const {
  return query(op, variant, std::span<const NamedSize>(SizeArray(sizes)), device);
}

Kernel Library::query(std::string_view op, std::string_view variant, std::initializer_list<NamedSize> sizes,
                      std::string_view device) const {
  return query(op, variant, std::span<const NamedSize>(sizes.begin(), sizes.size()), device);
}

Kernel Library::query_nest(std::string_view digest, std::span<const NamedSize> sizes, std::string_view device) const {
  std::shared_ptr<const KernelState> state = impl_->query({"", "", device, sizes, digest});
  return state->core ? Kernel(std::move(state)) : Kernel();
}

Kernel Library::query_nest(std::string_view digest, const Sizes& sizes, std::string_view device) const {
  return query_nest(digest, std::span<const NamedSize>(SizeArray(sizes)), device);
}

void Library::refresh() { impl_->refresh(); }

int Library::threads() const { return impl_->threads; }

MatchKind Kernel::match() const { return state_ ? state_->match : MatchKind::none; }
double Kernel::distance() const { return state_ ? state_->distance : 0; }
std::string_view Kernel::info() const { return state_ ? std::string_view(state_->core->info) : R"({"match":"none"})"; }

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
