// Making cases, running them and comparing everything.
#include "autotune/check/result_check.h"

#include "autotune/oracle/oracle.h"
#include "autotune/oracle/reference.h"
#include "support/debug.h"
#include "support/error.h"
#include "support/thread_pool.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <set>
#include <thread>

namespace nestor {
namespace {

constexpr double kCostLimit = 4e8;

/// body(0) to body(count - 1), on as many threads as there are processors. Throws the first exception that one threw.
void for_each_on_threads(std::size_t count, const std::function<void(std::size_t)>& body) {
  struct Work {
    const std::function<void(std::size_t)>& body;
    std::atomic<bool> failed{false};
    std::exception_ptr failure{};
  } work{body};
  ThreadPool pool(
      static_cast<int>(std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, std::max<std::size_t>(count, 1))));
  const nestor_host_services& services = *pool.services();
  services.parallel_for(
      services.context, static_cast<std::int64_t>(count), 0,
      [](void* closure, std::int64_t index, void*) {
        Work& shared = *static_cast<Work*>(closure);
        if (shared.failed) return;
        try {
          shared.body(static_cast<std::size_t>(index));
        } catch (...) {
          if (!shared.failed.exchange(true)) shared.failure = std::current_exception();
        }
      },
      &work);
  if (work.failure) std::rethrow_exception(work.failure);
}

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
  return fmt::format("{} elements at {} sizes ({}); data: {}; worst error {:.2g} of what is allowed", elements, sizes.size(),
                     fmt::join(parts, ", "), fmt::join(data, ", "), worst_error);
}

ResultCheck::ResultCheck(Nest definition, std::map<std::string, double> scalars, std::uint64_t seed)
    : definition_(std::move(definition)), scalars_(std::move(scalars)), seed_(seed) {}
ResultCheck::~ResultCheck() = default;
ResultCheck::ResultCheck(ResultCheck&&) noexcept = default;

const ResultCheck::Expected& ResultCheck::expected(const CheckCase& wanted) {
  prepare({wanted});
  return expected_.at(wanted.str());
}

void ResultCheck::prepare(const std::vector<CheckCase>& cases) {
  struct Job {
    const CheckCase* wanted;
    Expected* made;
    const Reference* compiled;  ///< for its sizes
  };
  std::map<Sizes, std::unique_ptr<Reference>> compiled;
  std::map<std::string, Expected> made;  // kept when all are whole
  std::vector<Job> jobs;
  for (const CheckCase& wanted : cases) {
    const std::string key = wanted.str();
    if (expected_.contains(key) || made.contains(key)) continue;
    Expected& fresh = made.emplace(key, Expected{make_data(definition_, wanted.sizes, wanted.data, seed_, finite_at(wanted)), {}})
                          .first->second;
    std::unique_ptr<Reference>& reference = compiled[wanted.sizes];
    if (!reference) {
      reference = std::make_unique<Reference>(definition_, wanted.sizes, scalars_, fresh.inputs);
      reference->compile_all();
    }
    jobs.push_back({&wanted, &fresh, reference.get()});
  }
  for_each_on_threads(jobs.size(), [&](std::size_t k) {
    const Job& job = jobs[k];
    Reference reference = job.compiled->copy_for(job.made->inputs);
    reference.evaluate_all(kCostLimit);
    job.made->samples = all_samples(reference, definition_, std::numeric_limits<std::int64_t>::max());
    if (job.wanted->data.kind == DataKind::ordinary) limit_bounds(job.made->samples, definition_);
  });
  expected_.merge(made);
}

ElementLists ResultCheck::finite_at(const CheckCase& wanted) {
  if (wanted.data.special.empty()) return {};
  if (!masked_) masked_ = std::make_unique<MaskedFactors>(definition_);
  ElementLists places = masked_->at(wanted.sizes);
  std::erase_if(places, [&](const auto& list) { return list.first != wanted.data.special; });
  return places;
}

bool ResultCheck::check(const CheckCase& wanted, const KernelRun& kernel, CheckReport& report) {
  const Expected& expected = this->expected(wanted);
  HostTensors tensors = expected.inputs;
  ++generation_;
  for (const Tensor& tensor : definition_.tensors) {
    if (tensor.role != TensorRole::output) continue;
    HostTensor& output = tensors.at(tensor.name);
    output.bytes.resize(static_cast<std::size_t>(output.elements()) * size_in_bytes(output.type));
    fill_poison(output, generation_);
  }
  CheckRun run = kernel(wanted.sizes, tensors);
  if (run.refused) return false;
  std::string wrong = std::move(run.damage);
  report.cases.push_back(wanted);
  report.elements += static_cast<std::int64_t>(expected.samples.size());
  for (const OracleSample& sample : expected.samples) report.comparable += std::isfinite(sample.bound);
  if (wrong.empty()) {
    std::string where;
    const double worst = worst_error(expected.samples, tensors, &where, generation_);
    report.worst_error = std::max(report.worst_error, worst);
    if (worst > 1) wrong = where;
  }
  if (!wrong.empty()) report.wrong = fmt::format("at {}: {}", wanted.str(), wrong);
  return true;
}

CheckReport ResultCheck::run(const CheckSizes& sizes, const KernelRun& kernel) {
  const DebugTimer timer("comparing a kernel in full");
  CheckReport report;
  std::optional<Sizes> varied;
  std::vector<CheckCase> cases;
  for (const Sizes& at : sizes.sizes) cases.push_back({at, {}});
  prepare(cases);
  for (std::size_t k = 0; k < sizes.sizes.size() && report.wrong.empty(); ++k) {
    std::optional<Sizes> accepted = sizes.sizes[k];
    if (!check({*accepted, {}}, kernel, report)) {
      accepted = rounded_up(*accepted, sizes.dynamic);
      if (!accepted || !check({*accepted, {}}, kernel, report)) continue;
    }
    if (!varied || k <= sizes.varied) varied = accepted;
  }
  cases.clear();
  for (const DataSet& data : data_sets(definition_)) {
    if (varied && report.wrong.empty() && data.kind != DataKind::ordinary) cases.push_back({*varied, data});
  }
  prepare(cases);
  for (const CheckCase& wanted : cases) {
    if (report.wrong.empty()) check(wanted, kernel, report);
  }
  if (!varied && report.wrong.empty()) report.wrong = "it cannot be launched at any of the sizes where it is to be checked";
  return report;
}

std::optional<Sizes> ResultCheck::rounded_up(Sizes sizes, const std::vector<std::string>& dynamic) const {
  for (const std::string& name : dynamic) sizes.at(name) = (sizes.at(name) + 7) / 8 * 8;
  try {
    return complete_sizes(definition_, sizes);
  } catch (const UserError&) {
    return std::nullopt;
  }
}

}  // namespace nestor
