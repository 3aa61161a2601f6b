// Counting verdicts by source and refusals by reason.
#include "soak/tally.h"

#include "db/devices/host_identity.h"

#include <algorithm>

namespace nestor::soak {
namespace {

constexpr std::size_t kReasonsShown = 12;

std::vector<std::pair<std::string, std::int64_t>> by_count(const std::map<std::string, std::int64_t>& counts) {
  std::vector<std::pair<std::string, std::int64_t>> sorted(counts.begin(), counts.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return sorted;
}

}  // namespace

void Tally::add(const Report& report) {
  const Outcome& outcome = report.outcome;
  ++candidates_;
  runs_ += outcome.runs;
  ++verdicts_[outcome.verdict];
  ++sources_[report.source][outcome.verdict];
  if (is_finding(outcome.verdict)) {
    ++findings_;
  } else if (outcome.verdict != Verdict::right) {
    ++reasons_[kind_of_reason(outcome.detail)];
  }
  if (outcome.generate_s > longest_s_) {
    longest_s_ = outcome.generate_s;
    longest_ = report.source;
  }
}

void Tally::add_lost_group(const std::string& source, const Outcome& outcome, const nlohmann::json&) {
  if (is_finding(outcome.verdict)) {
    ++findings_;
    ++verdicts_[outcome.verdict];
    ++sources_[source][outcome.verdict];
  } else {
    ++reasons_["problem: " + kind_of_reason(outcome.detail)];
  }
}

std::int64_t Tally::count(Verdict verdict) const {
  const auto found = verdicts_.find(verdict);
  return found == verdicts_.end() ? 0 : found->second;
}

std::string Tally::line(double elapsed_s) const {
  return fmt::format("{:.0f} s  {} candidates ({:.1f} a second): {} right, {} refused, {} infeasible, {} unproved, {} findings",
                     elapsed_s, candidates_, static_cast<double>(candidates_) / std::max(elapsed_s, 1e-3), count(Verdict::right),
                     count(Verdict::refused), count(Verdict::infeasible), count(Verdict::unproved), findings_);
}

std::string Tally::text(double elapsed_s) const {
  std::string text = line(elapsed_s) + "\n";
  text += fmt::format(
      "wrong {}, refuted {}, internal errors {}, crashes {}, longer than the limit {}, stuck {}, out of memory {}; {} runs "
      "compared\n",
      count(Verdict::wrong), count(Verdict::refuted), count(Verdict::internal_error), count(Verdict::crash), count(Verdict::slow),
      count(Verdict::stuck), count(Verdict::memory), runs_);
  text += fmt::format("longest from steps to code: {:.1f} s ({})\n", longest_s_, longest_);
  const auto reasons = by_count(reasons_);
  for (std::size_t k = 0; k < std::min(reasons.size(), kReasonsShown); ++k)
    text += fmt::format("{:8}  {}\n", reasons[k].second, reasons[k].first);
  return text;
}

nlohmann::json Tally::json() const {
  nlohmann::json counts = nlohmann::json::object(), sources = nlohmann::json::object(), reasons = nlohmann::json::object();
  for (int verdict = 0; verdict <= static_cast<int>(Verdict::memory); ++verdict)
    counts[std::string(to_string(static_cast<Verdict>(verdict)))] = count(static_cast<Verdict>(verdict));
  for (const auto& [name, verdicts] : sources_) {
    for (const auto& [verdict, number] : verdicts) sources[name][std::string(to_string(verdict))] = number;
  }
  for (const auto& [reason, number] : reasons_) reasons[reason] = number;
  return {{"candidates", candidates_}, {"runs", runs_},      {"findings", findings_},           {"counts", counts},
          {"sources", sources},        {"refused", reasons}, {"longest_generate_s", longest_s_}};
}

std::string hardware_text() {
  const DeviceIdentity host = host_device();
  return fmt::format("{}, {} threads", host.name, host.units);
}

}  // namespace nestor::soak
