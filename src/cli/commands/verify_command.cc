// nestor verify: checks a stored trial, or a schedule from a file, all over again and prints its certificate.
#include "api/verify.h"
#include "cli/arguments/operator_args.h"
#include "cli/arguments/schedule_source.h"
#include "cli/commands/commands.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/output.h"
#include "support/error.h"

#include <fmt/format.h>

#include <charconv>
#include <memory>

namespace nestor::cli {
namespace {

struct VerifyArgs {
  OperatorArgs problem;  ///< `source` holds the trial's id when no --steps is given
  DatabaseArgs database;
  MeasureArgs measure;
  std::string steps;
};

std::int64_t parse_trial_id(const std::string& text) {
  std::int64_t id = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (failure != std::errc() || end != text.data() + text.size() || id == 0) {
    user_error("'{}' is no trial: give the number of a stored trial, or an operator with --steps FILE", text);
  }
  return id;
}

/// A stored trial has an operator, sizes and scalars of its own.
void require_nothing_of_an_operator(const VerifyArgs& args) {
  const auto require = [&](bool given, const char* option) {
    if (given) user_error("{} goes with an operator and --steps FILE: trial {} has its own", option, args.problem.source);
  };
  require(!args.problem.size_texts.empty(), "--sizes");
  require(!args.problem.variant.empty(), "--variant");
  require(!args.measure.scalar_texts.empty(), "--set");
}

Verification verify(const VerifyArgs& args) {
  if (args.steps.empty()) {
    const MeasureOptions options = args.measure.resolve();
    const std::int64_t trial = parse_trial_id(args.problem.source);
    require_nothing_of_an_operator(args);
    return verify_trial(args.database.open(true), trial, options);
  }
  const Nest nest = args.problem.load();
  const Sizes sizes = args.problem.sizes(nest);
  ScheduleArgs source;
  source.file = args.steps;
  return verify_schedule(nest, sizes, source.load(nest, sizes, args.database), args.measure.resolve(nest));
}

int run_verify(const VerifyArgs& args) {
  const Verification result = verify(args);
  if (output_mode().json) {
    nlohmann::json json{{"passed", result.passed()},
                        {"findings", findings_to_json(result.findings)},
                        {"certificate", certificate_to_json(result.certificate)}};
    if (result.stored) json["stored_certificate"] = code_certificate_to_json(*result.stored);
    print_json(json);
  } else {
    if (!result.certificate.op.empty()) print(describe(result.certificate) + "\n");
    if (result.stored) print("as it was proved when the trial was compiled:\n" + describe(*result.stored));
    for (const Finding& finding : result.findings) {
      print(fmt::format("{}  {}: {}", finding.failed() ? "FAILED" : "ok    ", to_string(finding.check), finding.detail));
    }
    print(result.passed() ? "verified" : "not verified");
  }
  // A program that is refuted is refused, like a step: nothing was run.
  if (result.certificate.code.program.verdict == ProofVerdict::refuted) return kUserError;
  return result.passed() ? kOk : kCheckFailed;
}

}  // namespace

void add_verify(CLI::App& app, Action& run) {
  auto args = std::make_shared<VerifyArgs>();
  CLI::App* command = app.add_subcommand("verify", "Check a stored trial or a schedule file again and print its certificate");
  args->problem.add_to(*command);
  command->get_option("OP")->description("number of a stored trial; with --steps: an operator");
  args->database.add_to(*command);
  args->measure.add_to(*command);
  command->add_option("--steps", args->steps, "file with a schedule of the operator; - reads standard input");
  command->footer(R"(examples:
  nestor verify 42
  nestor verify layernorm --rows 512 --steps my_schedule.txt
Exit code 1 when a step or the tile program is refuted, 5 when anything else does not hold.
)");
  command->callback([args, &run] { run = [args] { return run_verify(*args); }; });
}

}  // namespace nestor::cli
