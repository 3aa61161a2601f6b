// All obligations in turn, under one budget.
#include "codegen/proof/program_proof.h"

#include "codegen/proof/model/outcome.h"
#include "codegen/proof/obligations.h"
#include "poly/isl/context.h"
#include "poly/isl/time_limit.h"
#include "support/debug.h"
#include "support/error.h"

#include <fmt/format.h>
#include <isl/ctx.h>

#include <algorithm>
#include <functional>

namespace nestor {
namespace {

using proof::ProgramModel;
using proof::Run;
using proof::Subject;

/// Composites that the program follows: it has ops that move or correct for their leads.
std::vector<Composite> followed(const ProgramModel& model, const std::vector<Composite>& composites) {
  std::vector<Composite> result;
  const auto claimed = [&](const Run& run, const Composite& composite) {
    return !run.is_role(OpRole::statement) && !run.is_role(OpRole::stage) && run.op().claim.lead == composite.lead;
  };
  for (const Composite& composite : composites) {
    if (std::any_of(model.runs().begin(), model.runs().end(), [&](const Run& run) { return claimed(run, composite); }))
      result.push_back(composite);
  }
  for (const Run& run : model.runs()) {
    if (run.is_role(OpRole::statement) || run.is_role(OpRole::stage)) continue;
    if (std::none_of(result.begin(), result.end(), [&](const Composite& composite) { return claimed(run, composite); }))
      throw proof::BrokenObligation(fmt::format("{} belongs to no composite that a rule states", proof::title(run)));
  }
  return result;
}

/// Composites that back ends may use are the rules' own, and no op follows them.
void prove_offers(const TileProgram& program, const std::vector<Composite>& stated, const std::vector<Composite>& followed) {
  const auto text = [](const Composite& composite) {
    const auto none = [](int) { return std::string("?"); };
    std::string all = composite.lead + "|" + composite.lead_tensor + "|" + composite.view.str(none, none) + "|" +
                      composite.corrected_by().str(none, none);
    for (const std::string& mediator : composite.mediators) all += "|" + mediator;
    for (const Follower& follower : composite.followers)
      all += "|" + follower.statement + "=" + follower.correction.str(none, none);
    return all;
  };
  for (const Composite& offer : program.composites) {
    const auto same = [&](const Composite& composite) { return text(composite) == text(offer); };
    const auto leads = [&](const Composite& composite) { return composite.lead == offer.lead; };
    if (std::none_of(stated.begin(), stated.end(), same) || std::any_of(followed.begin(), followed.end(), leads))
      throw proof::BrokenObligation(fmt::format("no rule offers the composite of {} that the program passes on", offer.lead));
  }
}

struct Obligation {
  const char* name;
  void (*prove)(const Subject&);
  const char* fact;  ///< what it shows
};

const std::vector<Obligation>& obligations() {
  static const std::vector<Obligation> all{
      {"interface", proof::prove_interface,
       "its arguments are the nest's, and every size that it admits lies in the nest's context"},
      {"meaning", proof::prove_meaning, "each op computes its statement's value from its statement's elements"},
      {"coverage", proof::prove_coverage, "every instance of every statement runs exactly once"},
      {"bounds", proof::prove_bounds, "every access lies inside its buffer"},
      {"points", proof::prove_points,
       "points that run side by side update no element in common, reductions by the op that combines them apart"},
      {"order", proof::prove_order,
       "every dependence that no rule relaxes goes forward in time, and stays in one copy of its buffer"},
      {"tasks", proof::prove_tasks, "tasks that run at once write nothing that another one touches"},
      {"copies", proof::prove_stages, "copies hold what their readers read"},
      {"extra points", proof::prove_extra_points,
       "points beyond the instances write only what nobody reads, or add neutral terms"},
      {"composites", proof::prove_composites, "leading values are saved, moved and corrected for as their theorem asks"},
  };
  return all;
}

void prove_all(const TileProgram& program, const Schedule& schedule, ProgramProof& result, std::string& open) {
  open = "reading the program";
  const ProgramModel model(program, schedule.nest());
  open = "dependences";
  std::set<std::string> finite;
  const Subject subject{model, schedule.dependences(), followed(model, schedule.composites()), schedule.reassociation_allowed(),
                        finite};
  prove_offers(program, schedule.composites(), subject.composites);
  for (const Obligation& obligation : obligations()) {
    const DebugTimer timer(fmt::format("proof: {}", obligation.name));
    open = obligation.name;
    obligation.prove(subject);
    const bool idle = obligation.prove == proof::prove_composites && subject.composites.empty();
    if (!idle) result.facts.emplace_back(obligation.fact);
  }
  result.finite.assign(finite.begin(), finite.end());
}

/// Runs `prove`, which names what it is at; whatever ends it early is a verdict of `result`.
void within_budget(std::uint64_t budget, ProgramProof& result, const std::function<void(std::string& open)>& prove) {
  std::string open;
  isl_ctx* context = isl_context().get();
  isl_ctx_reset_error(context);
  const double seconds = std::max(1.0, static_cast<double>(budget) / static_cast<double>(kProofBudget)) * kIslSeconds;
  result.verdict = ProofVerdict::unproved;
  {
    const IslTimeLimit time(context, seconds);
    const IslBudget limit(budget);
    try {
      prove(open);
      result.verdict = ProofVerdict::proved;
    } catch (const proof::BrokenObligation& broken) {
      result.verdict = ProofVerdict::refuted;
      result.reason = broken.what();
    } catch (const proof::OpenObligation& undecided) {
      result.reason = fmt::format("{}: {}", open, undecided.what());
    } catch (const isl::exception& failure) {
      result.reason = fmt::format("{}: {}", open, failure.what());
    } catch (const UserError& error) {
      result.reason = fmt::format("{}: {}", open, error.what());
    }
    // Behind an overrun isl answers nothing, and its silence may be taken for an answer.
    const bool late = isl_ctx_aborted(context) != 0;
    if (late || isl_ctx_last_error(context) == isl_error_quota) {
      result.verdict = ProofVerdict::unproved;
      result.reason =
          fmt::format("{}: it takes more than {}", open,
                      late ? fmt::format("{:.0f} seconds of isl's work", seconds) : fmt::format("{} isl operations", budget));
    }
  }
  isl_ctx_reset_error(context);
}

}  // namespace

std::string_view to_string(ProofVerdict verdict) {
  switch (verdict) {
    case ProofVerdict::proved:
      return "proved";
    case ProofVerdict::refuted:
      return "refuted";
    case ProofVerdict::unproved:
      break;
  }
  return "unproved";
}

ProgramProof prove_program(const TileProgram& program, const Schedule& schedule, std::uint64_t budget) {
  const DebugTimer timer("proof");
  ProgramProof result;
  within_budget(budget, result, [&](std::string& open) { prove_all(program, schedule, result, open); });
  return result;
}

void prove_operands(const TileProgram& program, const Schedule& schedule, const std::vector<ZeroedOperand>& operands,
                    ProgramProof& proof, std::uint64_t budget) {
  if (operands.empty() || proof.verdict != ProofVerdict::proved) return;
  const DebugTimer timer("proof: operands");
  bool computed = false;
  within_budget(budget, proof, [&](std::string& open) {
    open = "operands";
    computed = proof::prove_written(ProgramModel(program, schedule.nest()), operands);
  });
  if (computed && proof.verdict == ProofVerdict::proved)
    proof.facts.emplace_back("elements of temporaries that products of whole tiles multiply by 0 have been written before");
}

}  // namespace nestor
