// nestor show: one schedule at any level, from its nest to machine code.
#include "api/operators.h"
#include "api/report.h"
#include "api/report/space_pictures.h"
#include "autotune/space/space_limits.h"
#include "autotune/trial/trial_steps.h"
#include "cli/arguments/operator_args.h"
#include "cli/arguments/schedule_source.h"
#include "cli/commands/commands.h"
#include "cli/commands/kernel_remarks.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/output.h"
#include "cli/terminal/screen.h"
#include "cli/terminal/tile_picture.h"
#include "poly/nest/nest_json.h"
#include "support/error.h"
#include "support/system/json_text.h"
#include "support/words/device_words.h"
#include "support/words/nearest_word.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace nestor::cli {
namespace {

struct ShowArgs {
  OperatorArgs problem;
  DatabaseArgs database;
  ScheduleArgs schedule;
  std::string view = "loops";
  std::string target = "sm_90";
};

/// The distinct parts of variants' names ("stats.bf16" has two): the last ones, element types, or those before them.
std::string variant_parts(const std::vector<std::string>& variants, bool types) {
  std::vector<std::string> parts;
  const auto add = [&](const std::string& part) {
    if (std::find(parts.begin(), parts.end(), part) == parts.end()) parts.push_back(part);
  };
  for (const std::string& variant : variants) {
    std::size_t begin = 0;
    for (std::size_t dot = variant.find('.'); dot != std::string::npos; begin = dot + 1, dot = variant.find('.', begin)) {
      if (!types) add(variant.substr(begin, dot - begin));
    }
    if (types) add(variant.substr(begin));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

/// Without an operator: what there is to show.
int list_operators() {
  std::vector<std::vector<std::string>> rows{{"operator", "types", "options", "sizes"}};
  nlohmann::json json = nlohmann::json::array();
  for (const OperatorEntry& entry : builtin_operators()) {
    const Nest nest = load_operator(entry.op);
    rows.push_back({entry.op, variant_parts(entry.variants, true), variant_parts(entry.variants, false), describe_sizes(nest)});
    nlohmann::json sizes = nlohmann::json::array();
    for (const SizeParam& size : nest.sizes) {
      sizes.push_back(
          {{"name", size.name}, {"min", size.min}, {"default", size.default_value}, {"specialized", size.specialized}});
    }
    json.push_back({{"op", entry.op}, {"variants", entry.variants}, {"sizes", sizes}});
  }
  if (output_mode().json) {
    print_json(json);
  } else {
    print(format_table(rows, terminal_width()) +
          "\nA variant is its options and its type, joined by dots: --variant causal.bf16\n");
  }
  return kOk;
}

/// The nest to show and its sizes: those of the operator, or of the trial alone.
std::pair<Nest, Sizes> problem_of(const ShowArgs& args) {
  if (!args.problem.source.empty()) {
    const Nest nest = args.problem.load();
    return {nest, args.problem.sizes(nest)};
  }
  if (args.schedule.trial == 0) user_error("which operator? nestor show OP; without any option nestor show lists them");
  if (!args.problem.variant.empty() || !args.problem.size_texts.empty())
    user_error("trial {} has a variant and sizes of its own: name the operator to use others", args.schedule.trial);
  const auto origin = args.database.open(true).origin(args.schedule.trial);
  if (!origin) user_error("the database has no trial {}", args.schedule.trial);
  return {nest_from_json(json_from_text(origin->nest_json, "the stored nest")), origin->problem.sizes};
}

/// On a terminal, and where isl draws it in reasonable time: the counts before it say all that matters.
void print_picture(const Schedule& schedule, const Sizes& sizes) {
  const int width = terminal_width();
  if (width == 0) return;
  try {
    print(tile_picture(spaces_of(schedule, sizes), width));
  } catch (const UserError&) {}
}

/// Of the schedule on a GPU of the target's kind, of which no time is known.
KernelRemarks remarks_on_plan(const Nest& nest, const Sizes& sizes, const Schedule& schedule, const std::string& target) {
  DeviceIdentity device;
  device.kind = "cuda";
  device.arch = target;
  device.units = GpuLimits{}.units;
  device.details = "{}";
  return remarks_on(nest, complete_sizes(nest, sizes), {trial_steps_json(nest, {}, schedule.steps()).dump(), device});
}

int run_show(const ShowArgs& args) {
  const bool nothing_asked = args.schedule.trial == 0 && args.schedule.file.empty() && !args.schedule.best;
  if (args.problem.source.empty() && nothing_asked) return list_operators();
  const std::optional<View> view = view_from(args.view);
  if (!view) user_error("'{}' is no view{}; --as takes {}", args.view, did_you_mean(args.view, view_words()), view_names());
  const auto [nest, sizes] = problem_of(args);
  const Schedule schedule = args.schedule.load(nest, sizes, args.database);
  const ViewOptions options{std::stoi(args.target.substr(3)), sizes};
  if (output_mode().json && *view == View::nest) {
    print_json(nest_to_json(schedule.nest()));
  } else if (output_mode().json && *view == View::schedule) {
    print_json(trial_steps_json(nest, {}, schedule.steps()));
  } else if (output_mode().json) {
    print_json({{"op", nest.op}, {"variant", nest.variant}, {"as", args.view}, {"text", show(schedule, *view, options)}});
  } else {
    print(show(schedule, *view, options));
    if (*view == View::tiles) print_picture(schedule, complete_sizes(nest, sizes));
    if (*view == View::plan) print(remarks_on_plan(nest, sizes, schedule, args.target));
  }
  return kOk;
}

}  // namespace

void add_show(CLI::App& app, Action& run) {
  auto args = std::make_shared<ShowArgs>();
  CLI::App* command =
      app.add_subcommand("show", "Print an operator and its schedule at any level; without OP, list the operators");
  args->problem.add_to(*command, false);
  args->database.add_to(*command);
  args->schedule.add_to(*command);
  command->add_option("--as", args->view, "view: " + view_names())->capture_default_str();
  command->add_option("--target", args->target, "GPU of the views plan and ptx")
      ->check(one_of({"sm_80", "sm_90"}, meant_device))
      ->capture_default_str();
  command->footer(R"(examples:
  nestor show
  nestor show layernorm --as nest
  nestor show softmax --as deps
  nestor show matmul --as loops --steps my_schedule.txt
  nestor show attention --variant causal.f16 --as tiles --steps my_schedule.txt --queries 4096 --keys 4096
  nestor show layernorm --best --as asm
  nestor show attention --as ptx --target sm_80
  nestor show --trial 42 --as plan
)");
  command->callback([args, &run] { run = [args] { return run_show(*args); }; });
}

}  // namespace nestor::cli
