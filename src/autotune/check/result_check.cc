// Making cases, running them and comparing everything.
#include "autotune/check/result_check.h"

#include "autotune/oracle/limited_bounds.h"
#include "autotune/oracle/oracle.h"
#include "autotune/oracle/reference.h"
#include "autotune/tensors/argument_bytes.h"
#include "db/devices/host_identity.h"
#include "poly/nest/nest_json.h"
#include "support/debug.h"
#include "support/error.h"
#include "support/system/available_memory.h"
#include "support/threads/thread_pool.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <set>
#include <thread>

namespace nestor {
namespace {

/// Elementary evaluations of the definition (some nanoseconds each), for all cases together, and elements that a case computes, beyond which
/// some elements of each output are compared, not all.
constexpr double kMostForAll = 4e8;
constexpr std::int64_t kMostElements = std::int64_t{1} << 22;
constexpr std::int64_t kManyBytes = std::int64_t{1} << 25;  ///< of inputs, beyond which fewer data sets are made
constexpr std::size_t kFewest = 2;      ///< of data sets, of four times as many bytes: ordinary and large data
constexpr double kMostForwards = 4e9;   ///< where single elements cannot be had
constexpr std::int64_t kSamples = 256;  ///< of an output, and runs of neighbours besides
constexpr double kMostKept = 0.7;       ///< of the memory that is left, for the data of several cases

std::string sizes_text(const Sizes& sizes) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : sizes) parts.push_back(fmt::format("{}={}", name, value));
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

std::string CheckCase::str() const { return fmt::format("{}; {} data", sizes_text(sizes), data.str()); }

std::string CheckReport::str() const {
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> ranges;
  std::set<Sizes> sizes;
  std::set<std::string> data;
  for (const CheckCase& done : cases) {
    sizes.insert(done.sizes);
    data.insert(done.data.str());
    for (const auto& [name, value] : done.sizes) {
      auto& range = ranges.emplace(name, std::pair(value, value)).first->second;
      range = {std::min(range.first, value), std::max(range.second, value)};
    }
  }
  std::vector<std::string> parts;
  for (const auto& [name, range] : ranges) {
    parts.push_back(range.first == range.second ? fmt::format("{} {}", name, range.first)
                                                : fmt::format("{} {} to {}", name, range.first, range.second));
  }
  const OutputComparison total = in_total(compared);
  const std::int64_t free = total.elements - total.promised;
  return fmt::format("{} elements{} at {} sizes ({}); data: {}; worst error {:.2g} of what is allowed", total.elements,
                     free == 0 ? "" : fmt::format(" (of {} nothing is promised)", free), sizes.size(), fmt::join(parts, ", "),
                     fmt::join(data, ", "), worst_error);
}

/// The processors, each with a copy of the definition: isl objects belong to the thread that made them.
class ResultCheck::Workers {
 public:
  explicit Workers(const Nest& definition) : text_(nest_to_json(definition)) {}

  const ThreadPool& pool() const { return pool_; }

  /// The calling thread's copy.
  const Nest& definition() {
    {
      const std::scoped_lock lock(mutex_);
      if (const auto found = copies_.find(std::this_thread::get_id()); found != copies_.end()) return found->second;
    }
    Nest copy = nest_from_json(text_);
    const std::scoped_lock lock(mutex_);
    return copies_.emplace(std::this_thread::get_id(), std::move(copy)).first->second;
  }

 private:
  nlohmann::json text_;
  ThreadPool pool_{host_threads()};
  std::mutex mutex_;
  std::map<std::thread::id, Nest> copies_;
};

ResultCheck::ResultCheck(Nest definition, std::map<std::string, double> scalars, std::uint64_t seed)
    : definition_(std::move(definition)), scalars_(std::move(scalars)), seed_(seed) {}
ResultCheck::~ResultCheck() = default;
ResultCheck::ResultCheck(ResultCheck&&) noexcept = default;

std::int64_t ResultCheck::bytes_of_cases(const Sizes& sizes, std::int64_t count) const {
  const ArgumentBytes bytes = argument_bytes(definition_, sizes);
  // Inputs of each case, and those of one more while special values are put into them.
  const std::int64_t arguments = saturating_multiply(count + 1, saturating_add(bytes.inputs, bytes.outputs));
  // Each element that is computed has a value in double, an error and, where it is compared, a sample.
  const auto samples = bytes.computed > kMostElements ? 0 : static_cast<std::int64_t>(sizeof(OracleSample)) * bytes.computed;
  const auto reference = saturating_add(samples, saturating_multiply(2 * sizeof(double), bytes.computed));
  return saturating_add(arguments, saturating_multiply(count, reference));
}

bool ResultCheck::has_room(std::int64_t bytes) {
  return static_cast<double>(bytes) <= kMostKept * static_cast<double>(available_memory().bytes);
}

const ResultCheck::Expected& ResultCheck::expected(const CheckCase& wanted) {
  prepare({wanted});
  return expected_.at(wanted.str());
}

void ResultCheck::prepare(const std::vector<CheckCase>& cases) {
  struct Job {
    const CheckCase* wanted;
    ElementLists finite{};
    Expected made{};
    std::optional<Reference> reference{};  ///< nothing: some elements are evaluated, each alone
  };
  std::map<std::string, Job> jobs;
  std::map<Sizes, std::vector<Job*>> of_sizes;
  for (const CheckCase& wanted : cases) {
    const std::string key = wanted.str();
    if (expected_.contains(key) || jobs.contains(key)) continue;
    Job& job = jobs.emplace(key, Job{&wanted, finite_at(wanted)}).first->second;
    of_sizes[wanted.sizes].push_back(&job);
  }
  if (jobs.empty()) return;
  std::int64_t needed = 0;
  std::map<Sizes, std::int64_t> computed;
  for (const auto& [sizes, found] : of_sizes) {
    computed.emplace(sizes, argument_bytes(definition_, sizes).computed);
    needed = saturating_add(needed, bytes_of_cases(sizes, static_cast<std::int64_t>(found.size())));
  }
  if (jobs.size() > 1 && !has_room(needed)) {
    keeps_ = false;  // one after the other, as they are asked for
    return;
  }
  require_memory({needed}, fmt::format("checking {} in {} cases", definition_.op, jobs.size()));
  const DebugTimer timer(fmt::format("reference values of {} cases", jobs.size()));
  if (!workers_) workers_ = std::make_unique<Workers>(definition_);
  const double most = kMostForAll / static_cast<double>(jobs.size());
  std::vector<std::vector<Job*>> groups;
  for (auto& [sizes, found] : of_sizes) groups.push_back(std::move(found));
  for_each(workers_->pool(), groups.size(), [&](std::size_t k) {
    const Nest& nest = workers_->definition();
    std::optional<Reference> compiled;
    for (Job* job : groups[k]) {
      job->made.inputs = make_data(nest, job->wanted->sizes, job->wanted->data, seed_, job->finite);
      if (!compiled) compiled.emplace(nest, job->wanted->sizes, scalars_, job->made.inputs);
      const bool many = compiled->full_cost() > most || computed.at(job->wanted->sizes) > kMostElements;
      if (compiled->backward_possible() && many) continue;
      compiled->compile_all();
      job->reference.emplace(compiled->copy_for(job->made.inputs));
    }
  });
  const bool narrows = may_round_operands(definition_);  // other threads have other isl contexts
  std::vector<Job*> all;
  for (auto& entry : jobs) all.push_back(&entry.second);
  for_each(workers_->pool(), all.size(), [&](std::size_t k) {
    Job& job = *all[k];
    if (job.reference) {
      job.reference->evaluate_all(kMostForwards);
      job.made.samples = all_samples(*job.reference, definition_, std::numeric_limits<std::int64_t>::max());
    } else {  // a reference that gives single elements belongs to the thread that made it
      job.made.samples = some_samples(workers_->definition(), job.wanted->sizes, scalars_, job.made.inputs, kSamples, seed_);
    }
    const bool ordinary = job.wanted->data.kind == DataKind::ordinary;
    if (ordinary && job.reference) limit_bounds_of(*job.reference, job.made.inputs, job.made.samples, definition_, narrows);
    if (ordinary && !job.reference) limit_bounds(job.made.samples, definition_, narrows);
    job.made.compared = compared_outputs(job.made.samples, definition_);
    job.reference.reset();
  });
  for (auto& [key, job] : jobs) expected_.emplace(key, std::move(job.made));
}

ElementLists ResultCheck::finite_at(const CheckCase& wanted) {
  if (wanted.data.special.empty()) return {};
  if (!masked_) masked_ = std::make_unique<MaskedFactors>(definition_);
  auto found = masked_places_.find(wanted.sizes);
  if (found == masked_places_.end()) {
    const DebugTimer timer("masked places");
    found = masked_places_.emplace(wanted.sizes, masked_->at(wanted.sizes)).first;
  }
  ElementLists places = found->second;
  std::erase_if(places, [&](const auto& list) { return list.first != wanted.data.special; });
  return places;
}

std::optional<ResultCheck::Launched> ResultCheck::launch(const CheckCase& wanted, const KernelRun& kernel) {
  const auto known = expected_.find(wanted.str());
  Launched launched{wanted,
                    known != expected_.end() ? known->second.inputs
                                             : make_data(definition_, wanted.sizes, wanted.data, seed_, finite_at(wanted)),
                    {},
                    ++generation_};
  for (const Tensor& tensor : definition_.tensors) {
    if (tensor.role != TensorRole::output) continue;
    HostTensor& output = launched.tensors.at(tensor.name);
    output.bytes.resize(static_cast<std::size_t>(output.elements()) * size_in_bytes(output.type));
    fill_poison(output, generation_);
  }
  launched.run = kernel(wanted.sizes, launched.tensors);
  return launched.run.refused ? std::nullopt : std::optional(std::move(launched));
}

std::optional<ResultCheck::Launched> ResultCheck::launch_near(const Sizes& sizes, const std::vector<std::string>& dynamic,
                                                              const KernelRun& kernel) {
  if (auto launched = launch({sizes, {}}, kernel)) return launched;
  for (const std::vector<std::string>& names : {lengths_of_rows(sizes, dynamic), dynamic}) {
    const auto rounded = rounded_up(sizes, names);
    if (!rounded || *rounded == sizes) continue;
    if (auto launched = launch({*rounded, {}}, kernel)) return launched;
  }
  return std::nullopt;
}

void ResultCheck::compare(const std::vector<Launched>& all, CheckReport& report) {
  std::vector<CheckCase> cases;
  for (const Launched& each : all) cases.push_back(each.wanted);
  prepare(cases);
  for (const Launched& each : all) {
    if (!report.wrong.empty()) return;
    const Expected& expected = this->expected(each.wanted);
    std::string wrong = each.run.damage;
    report.cases.push_back(each.wanted);
    add(report.compared, expected.compared);
    if (wrong.empty()) {
      std::string where;
      const double worst = worst_error(expected.samples, each.tensors, &where, each.generation);
      report.worst_error = std::max(report.worst_error, worst);
      if (worst > 1) {
        wrong = where;
        report.lost_infinity = only_loses_infinities(expected.samples, each.tensors, each.generation);
      }
    }
    if (!wrong.empty()) report.wrong = fmt::format("at {}: {}", each.wanted.str(), wrong);
    if (!keeps_) expected_.erase(each.wanted.str());
  }
}

CheckReport ResultCheck::run(const CheckSizes& sizes, const KernelRun& kernel) {
  const DebugTimer timer("comparing a kernel in full");
  CheckReport report;
  std::optional<Sizes> varied;
  std::vector<Launched> launched;
  // Which sizes are refused is known before reference values are computed, for all of them at once where there is room.
  const auto take = [&](std::optional<Launched> found, bool together) {
    if (!found) return;
    launched.push_back(std::move(*found));
    if (together && launched.back().run.damage.empty()) return;
    compare(launched, report);
    launched.clear();
  };
  const bool together = fit_together(sizes.sizes);
  for (std::size_t k = 0; k < sizes.sizes.size() && report.wrong.empty(); ++k) {
    auto found = launch_near(sizes.sizes[k], sizes.dynamic, kernel);
    if (found && (!varied || k <= sizes.varied)) varied = found->wanted.sizes;
    take(std::move(found), together);
  }
  // Where single elements take seconds, those of all cases are evaluated at once.
  const bool costly = varied && costs_seconds(*varied);
  if (!costly) {
    compare(launched, report);
    launched.clear();
  }
  const bool few = varied && argument_bytes(definition_, *varied).inputs > kManyBytes;
  std::vector<DataSet> sets = varied ? data_sets(definition_, few) : std::vector<DataSet>{};
  if (varied && (costly || argument_bytes(definition_, *varied).inputs > 4 * kManyBytes))
    sets.resize(std::min<std::size_t>(sets.size(), kFewest));
  const bool sets_together = varied && fit_together(std::vector<Sizes>(sets.size(), *varied));
  for (const DataSet& data : sets) {
    if (report.wrong.empty() && data.kind != DataKind::ordinary) take(launch({*varied, data}, kernel), sets_together);
  }
  compare(launched, report);
  if (!varied && report.wrong.empty()) report.wrong = "it cannot be launched at any of the sizes where it is to be checked";
  return report;
}

bool ResultCheck::costs_seconds(const Sizes& sizes) {
  constexpr double kSomeSeconds = 5e7;  ///< evaluations, of some nanoseconds to some tens of them
  if (!cost_) cost_ = std::make_unique<DefinitionCost>(definition_);
  const auto cost = cost_->at(sizes);
  // Cases that have no room beside each other are evaluated one after the other.
  const bool together = has_room(bytes_of_cases(sizes, static_cast<std::int64_t>(data_sets(definition_, false).size())));
  if (!cost || *cost <= (together ? kMostForAll : kSomeSeconds)) return false;
  try {
    const auto first = cost_of_first_elements(definition_, sizes);
    return first && *first > kSomeSeconds;
  } catch (const UserError&) {  // it takes too long to find out
    return false;
  }
}

bool ResultCheck::fit_together(const std::vector<Sizes>& cases) const {
  constexpr std::int64_t kCopies = 3;  // what was launched, what is compared with, and one more on the way
  std::int64_t needed = 0;
  for (const Sizes& sizes : cases)
    needed = saturating_add(needed, saturating_multiply(kCopies, argument_bytes(definition_, sizes).all()));
  return has_room(needed);
}

std::vector<std::string> ResultCheck::lengths_of_rows(const Sizes& sizes, const std::vector<std::string>& dynamic) const {
  std::vector<std::string> found;
  for (const std::string& name : dynamic) {
    Sizes longer = sizes;
    ++longer.at(name);
    const bool is_length = std::any_of(definition_.tensors.begin(), definition_.tensors.end(), [&](const Tensor& tensor) {
      return tensor.role != TensorRole::temporary && !tensor.shape.empty() &&
             shape_at(tensor, longer).back() != shape_at(tensor, sizes).back();
    });
    if (is_length) found.push_back(name);
  }
  return found;
}

std::optional<Sizes> ResultCheck::rounded_up(Sizes sizes, const std::vector<std::string>& names) const {
  for (const std::string& name : names) sizes.at(name) = (sizes.at(name) + 7) / 8 * 8;
  try {
    return complete_sizes(definition_, sizes);
  } catch (const UserError&) {
    return std::nullopt;
  }
}

}  // namespace nestor
