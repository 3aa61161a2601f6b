// Picks a problem from the database's summary.
#include "cli/arguments/report_choice.h"

#include "api/operators.h"
#include "autotune/target/target.h"
#include "cli/arguments/device_choice.h"
#include "support/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace nestor::cli {
namespace {

using Row = Database::ProblemSummary;

constexpr std::size_t kMostListed = 6;

std::string row_text(const Row& row) {
  std::string sizes;
  for (const auto& [name, value] : row.problem.sizes) sizes += fmt::format("{}{}={}", sizes.empty() ? "" : ",", name, value);
  return fmt::format("{} --variant {} --sizes {} (on {}, {} trials)", row.problem.op, row.problem.variant, sizes,
                     row.device.key(), row.trials);
}

/// What the arguments ask for.
class Filter {
 public:
  explicit Filter(const ReportChoice& choice) : choice_(choice) {
    if (choice.problem.source.empty()) return;
    nest_ = choice.problem.load();
    choice.problem.sizes(*nest_);  // checks names and values
    for (const std::string& text : choice.problem.size_texts) {
      auto [name, value] = parse_size(text);
      std::replace(name.begin(), name.end(), '-', '_');
      sizes_[name] = value;
    }
  }

  bool of_operator(const Row& row) const { return !nest_ || row.problem.op == nest_->op; }
  bool fits(const Row& row) const {
    if (!of_operator(row) || (!choice_.problem.variant.empty() && nest_ && row.problem.variant != nest_->variant)) return false;
    if (!choice_.device.empty() && !is_meant(row.device, choice_.device)) return false;
    return std::all_of(sizes_.begin(), sizes_.end(), [&](const auto& size) {
      const auto found = row.problem.sizes.find(size.first);
      return found != row.problem.sizes.end() && found->second == size.second;
    });
  }

 private:
  const ReportChoice& choice_;
  std::optional<Nest> nest_;
  Sizes sizes_;
};

[[noreturn]] void nothing_fits(const std::vector<Row>& rows, const Filter& filter, const ReportChoice& choice,
                               const DatabaseArgs& place) {
  std::string known;
  std::size_t listed = 0;
  for (const Row& row : rows) {
    if (filter.of_operator(row) && listed++ < kMostListed) known += "\n  " + row_text(row);
  }
  if (listed > kMostListed)
    known += fmt::format("\n  and {} more: nestor db summary{}", listed - kMostListed, database_option(place));
  const std::string op = choice.problem.source.empty() ? "layernorm" : choice.problem.source;
  if (listed == 0) {
    user_error(
        "{} has no trials{}: make some with 'nestor tune {}{}', or import the shipped ones with 'nestor db import --shipped{}'",
        place.resolved_path(), choice.problem.source.empty() ? "" : " of " + op, op, database_option(place),
        database_option(place));
  }
  user_error("no trial in {} fits; there are:{}", place.resolved_path(), known);
}

void require_device(const std::vector<Row>& rows, const std::string& device) {
  std::vector<DeviceIdentity> known;
  for (const Row& row : rows) known.push_back(row.device);
  if (std::none_of(known.begin(), known.end(), [&](const auto& each) { return is_meant(each, device); }))
    refuse_device(device, known);
}

}  // namespace

std::string database_option(const DatabaseArgs& place) { return place.path.empty() ? "" : " --db " + place.path; }

ReportRequest ReportChoice::request(const Database& database, const DatabaseArgs& place) const {
  ReportRequest request;
  if (trial != 0) {
    if (!problem.source.empty()) user_error("trial {} has an operator and sizes of its own: leave out {}", trial, problem.source);
    request = request_for_trial(database, trial);
  } else {
    const Filter filter(*this);
    const std::vector<Row> rows = database.summary();
    if (!device.empty() && !rows.empty()) require_device(rows, device);
    std::vector<Row> fitting;
    std::copy_if(rows.begin(), rows.end(), std::back_inserter(fitting), [&](const Row& row) { return filter.fits(row); });
    if (fitting.empty()) nothing_fits(rows, filter, *this, place);
    const std::string here = device_identity_host().key();
    const auto worth = [&](const Row& row) { return std::pair(row.device.key() == here, row.trials); };
    const auto chosen =
        std::max_element(fitting.begin(), fitting.end(), [&](const Row& a, const Row& b) { return worth(a) < worth(b); });
    request.device = chosen->device;
    request.problem = chosen->problem;
  }
  request.against = against;
  request.options = database_option(place);
  return request;
}

}  // namespace nestor::cli
