// The views of a schedule, from its nest down to machine code.
#include "api/report.h"
#include "autotune/target/target.h"
#include "codegen/gpu/backend.h"
#include "codegen/host/host_backend.h"
#include "codegen/tile/build/tile_classes.h"
#include "poly/algebra/all_rules.h"
#include "poly/isl/isl_tools.h"
#include "support/debug.h"
#include "support/error.h"

#include <fmt/ranges.h>
#include <isl/schedule.h>

#include <array>
#include <cstdlib>
#include <memory>

namespace nestor {
namespace {

struct ViewName {
  View view;
  std::string_view name;
};

constexpr std::array<ViewName, 11> kViews{{{View::nest, "nest"},
                                           {View::deps, "deps"},
                                           {View::tree, "tree"},
                                           {View::loops, "loops"},
                                           {View::tile, "tile"},
                                           {View::tiles, "tiles"},
                                           {View::plan, "plan"},
                                           {View::ir, "ir"},
                                           {View::assembly, "asm"},
                                           {View::ptx, "ptx"},
                                           {View::schedule, "schedule"}}};

std::string_view name_of(View view) {
  for (const ViewName& known : kViews) {
    if (known.view == view) return known.name;
  }
  return "unknown";
}

std::string show_dependences(const Schedule& schedule) {
  std::string text;
  for (const Dependence& dependence : schedule.dependences()) {
    text += fmt::format("{}\n    {}\n", describe(dependence), isl_text(dependence.relation));
  }
  return text.empty() ? "no dependences\n" : text;
}

/// isl prints a schedule tree as YAML; block style is the readable one.
std::string show_tree(const Schedule& schedule) {
  const isl::schedule tree = schedule.isl_tree();
  isl_printer* printer = isl_printer_to_str(isl_schedule_get_ctx(tree.get()));
  printer = isl_printer_set_yaml_style(printer, ISL_YAML_STYLE_BLOCK);
  printer = isl_printer_print_schedule(printer, tree.get());
  const std::unique_ptr<char, decltype(&std::free)> text(isl_printer_get_str(printer), &std::free);
  isl_printer_free(printer);
  if (!text) internal_error("isl could not print the schedule tree");
  return text.get();
}

std::string show_steps(const Schedule& schedule) {
  std::string text;
  for (const Step& step : schedule.steps()) text += describe(step) + "\n";
  return text.empty() ? "no steps: the original order\n" : text;
}

}  // namespace

std::optional<View> view_from(std::string_view name) {
  for (const ViewName& view : kViews) {
    if (view.name == name) return view.view;
  }
  return std::nullopt;
}

std::string view_names() {
  std::vector<std::string_view> names;
  names.reserve(kViews.size());
  for (const ViewName& view : kViews) names.push_back(view.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::vector<std::string> view_words() {
  std::vector<std::string> names;
  for (const ViewName& view : kViews) names.emplace_back(view.name);
  return names;
}

std::string show(const Schedule& schedule, View view, const ViewOptions& options) {
  const DebugTimer timer("view " + std::string(name_of(view)));
  switch (view) {
    case View::nest:
      return describe(schedule.nest());
    case View::deps:
      return show_dependences(schedule);
    case View::tree:
      return show_tree(schedule);
    case View::loops:
      return schedule.str();
    case View::tile:
      return describe(build_tile_program(schedule));
    case View::tiles:
      return describe(classify_tiles(schedule, complete_sizes(schedule.original_nest(), options.sizes)));
    case View::plan:
      return describe_kernels(build_tile_program(schedule), {.sm = options.sm});
    case View::ir:
      return compile_host(target_program(schedule, false), detect_host(), {.keep_ir = true}).ir;
    case View::assembly:
      return compile_host(target_program(schedule, false), detect_host(), {.keep_ir = true}).assembly;
    case View::ptx:
      return compile_nvptx(build_tile_program(schedule), {.sm = options.sm, .keep_ir = false}).kernel.code;
    case View::schedule:
      return show_steps(schedule);
  }
  internal_error("view {} has no text", name_of(view));
}

std::string describe_rules(const Nest& nest) {
  std::string text;
  for (const RuleMatch& match : find_matches(nest)) {
    std::vector<std::string> arguments{match.rule};
    arguments.insert(arguments.end(), match.target.begin(), match.target.end());
    text += fmt::format("apply_rule({})\n    {}\n", fmt::join(arguments, ", "), match.description);
  }
  return text.empty() ? "no rule applies\n" : text;
}

}  // namespace nestor
