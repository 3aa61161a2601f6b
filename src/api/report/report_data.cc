// Gathers trials, work, roofs, the schedule's story, its iteration spaces and its timeline.
#include "api/report.h"
#include "api/report/device_roofs.h"
#include "api/report/kernel_report.h"
#include "api/report/schedule_story.h"
#include "api/report/space_pictures.h"
#include "api/report/trial_columns.h"
#include "api/report/warp_timeline.h"
#include "autotune/space/nest/nest_space.h"
#include "autotune/target/target.h"
#include "autotune/target/toolchain.h"
#include "autotune/trial/base_schedules.h"
#include "autotune/trial/trial_problem.h"
#include "autotune/trial/trial_spelling.h"
#include "autotune/trial/trial_steps.h"
#include "autotune/tuner.h"
#include "poly/nest/nest_json.h"
#include "support/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>

namespace nestor {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostRelatives = 64;  ///< other problems of the operator beside this one's trials

Json work_json(const NestWork& work) {
  return {{"bytes", work.bytes},
          {"tensor_flops", work.tensor_flops},
          {"scalar_flops", work.scalar_flops},
          {"special", work.special},
          {"exact", work.exact}};
}

std::string sizes_text(const Sizes& sizes) {
  std::string text;
  for (const auto& [name, value] : sizes) text += fmt::format("{}{}={}", text.empty() ? "" : ", ", name, value);
  return text;
}

/// A word of a command line: quoted where a shell would read more into it. Names come from databases that others may have filled.
std::string shell_word(const std::string& word) {
  const auto plain = [](unsigned char c) { return std::isalnum(c) != 0 || std::strchr("_-./=,:+", c) != nullptr; };
  if (!word.empty() && word.front() != '-' && std::all_of(word.begin(), word.end(), plain)) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

/// One report under construction.
class Collector {
 public:
  Collector(const Database& database, const ReportRequest& request)
      : database_(database), request_(request), trials_(database.trials(request.device, request.problem)) {
    if (trials_.empty())
      user_error("there is no trial of {} ({}) at {} on {}; make some with: nestor tune {}{}", request.problem.op,
                 request.problem.variant, sizes_text(request.problem.sizes), request.device.key(), problem_words(),
                 request.options);
    origin_ = database.origin(trials_.front().id).value();
    nest_ = nest_from_json(Json::parse(origin_.nest_json));
  }

  Json run() {
    choose();
    head();
    data_["trials"] = trial_columns(trials_, guarded("the starting point", [&] { return baseline_key(); }));
    if (subject_) data_["subject"] = trial_in_full(*subject_);
    if (against_) data_["against"] = trial_in_full(*against_);
    add_work();
    if (!request_.live) add_schedule();
    commands();
    data_["notes"] = notes_;
    return std::move(data_);
  }

 private:
  /// What fails is a note on the page.
  template <class F>
  auto guarded(const std::string& what, F&& work) -> decltype(work()) {
    try {
      return work();
    } catch (const std::exception& error) {
      notes_.push_back(fmt::format("{}: {}", what, error.what()));
      return {};
    }
  }

  /// The problem as arguments of a command.
  std::string problem_words() const {
    std::string text = shell_word(request_.problem.op);
    if (!request_.problem.variant.empty()) text += " --variant " + shell_word(request_.problem.variant);
    std::string sizes;
    for (const auto& [name, value] : request_.problem.sizes)
      sizes += fmt::format("{}{}={}", sizes.empty() ? "" : ",", name, value);
    return sizes.empty() ? text : text + " --sizes " + shell_word(sizes);
  }

  const TrialRecord* find(std::int64_t id) const {
    const auto found = std::find_if(trials_.begin(), trials_.end(), [&](const TrialRecord& trial) { return trial.id == id; });
    return found == trials_.end() ? nullptr : &*found;
  }

  void choose() {
    best_ = database_.best(request_.device, request_.problem, Database::Kernels::unchecked_too);
    if (request_.trial != 0) {
      subject_ = database_.trial(request_.trial);
      if (!subject_ || find(request_.trial) == nullptr) user_error("trial {} is not one of this problem", request_.trial);
    } else {
      subject_ = best_;
    }
    if (request_.against == 0) return;
    if (find(request_.against) == nullptr)
      user_error("trial {} is not one of {} ({}) at {} on {}: --against takes a trial of the same problem", request_.against,
                 request_.problem.op, request_.problem.variant, sizes_text(request_.problem.sizes), request_.device.key());
    against_ = database_.trial(request_.against);
  }

  void head() {
    data_ = report_data_before(request_);
    data_["best"] = best_ ? Json(best_->id) : Json();
  }

  std::string baseline_key() const {
    if (request_.live || trials_.size() < 2) return "";
    const TrialProblem problem = trial_problem(nest_, request_.problem.sizes);
    BaseSchedules schedules(problem.start);
    const auto space = make_nest_space(schedules, problem.sizes, space_limits(request_.device));
    return trial_key(trial_steps_json(problem, space->candidate(space->baseline()).steps));
  }

  void add_work() {
    const NestWork work = guarded("the work of the definition", [&] { return work_of(nest_, request_.problem.sizes); });
    const std::vector<Roof> roofs = roofs_of(request_.device);
    const std::vector<double> times = roof_times(roofs, work);
    data_["work"] = work_json(work);
    data_["roofs"] = Json::array();
    for (std::size_t k = 0; k < roofs.size(); ++k)
      data_["roofs"].push_back({{"name", roofs[k].name}, {"per_second", roofs[k].per_second}, {"ms", times[k]}});
    data_["relatives"] = request_.live ? Json::array() : guarded("other problems", [&] { return relatives(); });
  }

  /// The best of the operator's other problems on this device.
  Json relatives() const {
    Json list = Json::array();
    for (const Database::ProblemSummary& row : database_.summary()) {
      if (row.device.key() != request_.device.key() || row.problem.op != request_.problem.op || row.best_ms <= 0) continue;
      if (row.problem.variant == request_.problem.variant && row.problem.sizes == request_.problem.sizes) continue;
      if (list.size() == kMostRelatives) break;
      const auto best = database_.best(row.device, row.problem);
      const auto origin = best ? database_.origin(best->id) : std::nullopt;
      if (!origin) continue;
      const Nest nest = nest_from_json(Json::parse(origin->nest_json));
      list.push_back({{"id", best->id},
                      {"variant", row.problem.variant},
                      {"sizes", sizes_text(row.problem.sizes)},
                      {"ms", best->median_ms},
                      {"work", work_json(work_of(nest, row.problem.sizes))}});
    }
    return list;
  }

  void add_schedule() {
    data_["nest"] = guarded("the nest", [&] { return describe(nest_); });
    if (!subject_) return;
    const auto schedule = guarded("the schedule", [&] { return std::optional(replay(*subject_)); });
    if (!schedule) return;
    const Sizes sizes = complete_sizes(nest_, request_.problem.sizes);
    data_["story"] = guarded("the schedule step by step", [&] { return story_of(*schedule); });
    data_["dependences"] = guarded("dependences", [&] { return dependences_json(*schedule); });
    data_["spaces"] = guarded("the iteration space", [&] { return spaces_of(*schedule, sizes); });
    const auto program = guarded("the tile program", [&] { return std::optional(build_tile_program(*schedule)); });
    if (program) {
      data_["certificate"] = guarded(
          "the certificate", [&] { return certificate_to_json(certify(*schedule, *program, nvptx_target(request_.device))); });
      if (request_.device.kind == "cuda")
        data_["warps"] = guarded("the warps' time", [&] { return timelines_of(*program, nvptx_target(request_.device), sizes); });
    }
    if (against_) data_["against_loops"] = guarded("the other schedule", [&] { return replay(*against_).str(); });
  }

  Schedule replay(const TrialRecord& trial) const {
    return replay_trial_steps(nest_, request_.problem.sizes, Json::parse(trial.steps));
  }

  void commands() {
    Json list = Json::array();
    const auto add = [&](const std::string& what, const std::string& command) {
      list.push_back({what, command + request_.options});
    };
    const std::string problem = problem_words();
    add("search on", "nestor tune " + problem + (request_.device.kind == "cuda" ? " --target cuda" : " --target host"));
    add("ask for the best kernel", "nestor query " + problem);
    if (subject_) {
      add("check this trial again", fmt::format("nestor verify {}", subject_->id));
      add("its loops", fmt::format("nestor show --trial {} --as loops", subject_->id));
      add("its plan", fmt::format("nestor show --trial {} --as plan", subject_->id));
      add("this page again", fmt::format("nestor report --trial {} -o report.html", subject_->id));
    }
    data_["commands"] = list;
    data_["options"] = request_.options;
  }

  const Database& database_;
  const ReportRequest& request_;
  const std::vector<TrialRecord> trials_;
  Database::Origin origin_;
  Nest nest_;
  std::optional<TrialRecord> best_, subject_, against_;
  Json data_;
  std::vector<std::string> notes_;
};

}  // namespace

Json report_data_before(const ReportRequest& request) {
  const DeviceIdentity& device = request.device;
  Json details = json_or_discarded(device.details);
  if (!details.is_object()) details = nullptr;
  return {{"format", 1},
          {"program", measuring_toolchain()},
          {"live", request.live},
          {"problem",
           {{"op", request.problem.op},
            {"variant", request.problem.variant},
            {"digest", request.problem.nest_digest},
            {"sizes", request.problem.sizes}}},
          {"device",
           {{"kind", device.kind},
            {"name", device.name},
            {"arch", device.arch},
            {"units", device.units},
            {"key", device.key()},
            {"details", std::move(details)}}},
          {"best", nullptr},
          {"subject", nullptr},
          {"against", nullptr},
          {"notes", Json::array()}};
}

ReportRequest request_for_trial(const Database& database, std::int64_t trial) {
  const auto origin = database.origin(trial);
  if (!origin) user_error("the database has no trial {}", trial);
  ReportRequest request;
  request.device = origin->device;
  request.problem = origin->problem;
  request.trial = trial;
  return request;
}

Json report_data(const Database& database, const ReportRequest& request) { return Collector(database, request).run(); }

}  // namespace nestor
