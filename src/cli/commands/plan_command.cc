// nestor plan: lists the problems of a grid, for tune --plan on one machine or many.
#include "api/operators.h"
#include "api/tuning_plan.h"
#include "cli/arguments/operator_args.h"
#include "cli/commands/commands.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/output.h"
#include "support/error.h"
#include "support/system/new_file.h"

#include <fmt/format.h>

#include <memory>
#include <sstream>

namespace nestor::cli {
namespace {

struct PlanArgs {
  std::vector<std::string> sources, variants, size_texts;
  std::string out = "-";
};

/// "all": every variant of a built-in operator.
std::vector<std::string> variants_of(const std::string& source, const std::vector<std::string>& given) {
  if (given.empty()) return {""};
  if (given != std::vector<std::string>{"all"}) return given;
  for (const OperatorEntry& entry : builtin_operators()) {
    if (entry.op == source) return entry.variants;
  }
  return {""};  // a file has one; a wrong name is refused when it is loaded
}

void write_file(const std::string& path, const std::string& text) {
  if (path == "-") return print(text.substr(0, text.size() - 1));
  NewFile file(path);
  file.out << text;
  file.close();
  file.rename();
}

int run_plan(const PlanArgs& args) {
  TuningPlan plan;
  std::size_t left_out = 0;
  for (const std::string& source : args.sources) {
    for (const std::string& variant : variants_of(source, args.variants)) {
      const auto nest = std::make_shared<const Nest>(load_operator(source, variant));
      const SizeGrid grid = size_grid(*nest, args.size_texts);
      left_out += grid.left_out;
      for (const Sizes& sizes : grid.points) plan.add(nest, sizes);
    }
  }
  std::ostringstream text;
  write_plan(plan, text);
  write_file(args.out, text.str());
  const auto count = static_cast<std::int64_t>(plan.problems().size());
  if (args.out != "-" && output_mode().json) print_json({{"plan", args.out}, {"problems", count}, {"left_out", left_out}});
  if (args.out != "-" && !output_mode().json) print(fmt::format("{} in {}", count_of(count, "problem"), args.out));
  if (left_out > 0 && !output_mode().json)
    print_error(fmt::format("nestor: {} left out: the operators do not take these sizes\n",
                            count_of(static_cast<std::int64_t>(left_out), "combination")));
  return kOk;
}

}  // namespace

void add_plan(CLI::App& app, Action& run) {
  auto args = std::make_shared<PlanArgs>();
  CLI::App* command = app.add_subcommand("plan", "List the problems of a grid of sizes, for tune --plan on one machine or many");
  command->add_option("OP", args->sources, "built-in operators, or paths of .nest.json files")->required();
  command
      ->add_option("--variant,--dtype", args->variants, "variants, as f32,bf16; all: every one (default: the operator's first)")
      ->delimiter(',')
      ->allow_extra_args(false);
  command
      ->add_option(
          "--sizes", args->size_texts,
          "values of sizes as name=value,value,...; --<name> does the same, e.g. --rows 1k,4k or --rows 1k..16k (doubling) or "
          "--rows 64..256+64 (others: defaults)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->take_all();
  command->add_option("--out", args->out, "file to write (default: standard output)");
  command->footer(R"(examples:
  nestor plan layernorm --dtype f32,bf16 --rows 1k..16k --width 1024,4096 --out plan.jsonl
  nestor tune --plan plan.jsonl --shard 0/4 --db share0.db --export out/share0.jsonl
  nestor db merge out/*
Plans are joined by putting one behind the other: cat a.jsonl b.jsonl > plan.jsonl
)");
  command->callback([args, &run] { run = [args] { return run_plan(*args); }; });
}

}  // namespace nestor::cli
