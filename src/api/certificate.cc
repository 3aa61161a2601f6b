// The certificate: replays a schedule's steps and checks every dependence against the final order, with isl alone.
#include "api/report.h"
#include "autotune/check/masked_places.h"
#include "codegen/gpu/backend.h"
#include "poly/algebra/all_rules.h"
#include "poly/isl/context.h"
#include "poly/nest/nest_json.h"
#include "support/error.h"

#include <fmt/ranges.h>
#include <isl/map.h>
#include <isl/schedule.h>
#include <isl/union_map.h>

#include <algorithm>

namespace nestor {
namespace {

/// { Source[] -> Sink[] }: pairs of `dependence` that `order`, { Statement[] -> time[] }, does not keep in order.
isl::union_map out_of_order(const isl::map& dependence, const isl::union_map& order) {
  isl::union_map pairs = isl::manage(isl_union_map_from_map(dependence.copy()));
  isl_union_map* source_time = isl_union_map_intersect_domain(order.copy(), isl_union_map_domain(pairs.copy()));
  isl_union_map* sink_time = isl_union_map_intersect_domain(order.copy(), isl_union_map_range(pairs.copy()));
  isl_union_map* not_before = isl_union_map_lex_ge_union_map(source_time, sink_time);
  return isl::manage(isl_union_map_intersect(not_before, pairs.release()));
}

bool names(const std::vector<std::string>& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

/// The composite that lets `dependence` go: it runs among the statements that are accumulated together.
const Composite* relaxing_composite(const Schedule& schedule, const Dependence& dependence,
                                    const std::vector<Composite>& active) {
  for (const Composite& composite : active) {
    std::vector<std::string> members = composite.mediators;
    members.push_back(composite.lead);
    for (const Follower& follower : composite.followers) members.push_back(follower.statement);
    // Statements derived from the leading value inside the composite's range count as its own.
    for (const Statement& statement : schedule.nest().statements) {
      if (statement.write.tensor == composite.lead_tensor) members.push_back(statement.name);
    }
    if (names(members, dependence.source) && names(members, dependence.sink)) return &composite;
  }
  return nullptr;
}

std::string verdict_of(const Schedule& schedule, const Dependence& dependence, const isl::union_map& order,
                       const std::vector<Composite>& active) {
  if (out_of_order(dependence.relation, order).is_empty()) return "respected";
  if (dependence.reduction && schedule.reassociation_allowed()) return "relaxed: the reduction may be reassociated";
  if (const Composite* composite = relaxing_composite(schedule, dependence, active)) {
    const std::string behind =
        composite->threshold > 0
            ? fmt::format("; it stays behind by up to {:g} doublings of their terms, and no result depends on that",
                          composite->threshold)
            : "";
    return fmt::format("relaxed: {} is accumulated together with its followers (rule {}){}", composite->lead, composite->rule,
                       behind);
  }
  internal_error("the order breaks '{}' and no rule relaxes it; schedule: {}", describe(dependence),
                 schedule_to_json(schedule).dump());
}

std::vector<Certificate::DependenceProof> prove_dependences(const Schedule& schedule) {
  std::vector<Certificate::DependenceProof> proofs;
  const std::vector<Composite> active = schedule.active_composites();
  with_isl_budget("checking the dependences of a certificate", [&] {
    const isl::schedule tree = schedule.isl_tree();
    const isl::union_map order = isl::manage(isl_schedule_get_map(tree.get()));
    for (const Dependence& dependence : schedule.dependences()) {
      proofs.push_back({describe(dependence), verdict_of(schedule, dependence, order, active)});
    }
  });
  return proofs;
}

std::vector<Certificate::RuleUse> used_rules(const Schedule& schedule) {
  std::vector<Certificate::RuleUse> used;
  for (const Step& step : schedule.steps()) {
    if (step.name != "apply_rule" || step.args.empty()) continue;
    const Rule& applied = rule(step.args.front().get<std::string>());
    used.push_back({describe(step), applied.summary, applied.proof, applied.rounding});
  }
  return used;
}

std::string describe_buffer(const Buffer& buffer) {
  std::vector<std::string> extents;
  extents.reserve(buffer.extents.size());
  for (const IntExpr& extent : buffer.extents) extents.push_back(extent.str());
  return fmt::format("{} {}[{}] {}", to_string(buffer.memory), buffer.name, fmt::join(extents, ", "), to_string(buffer.type));
}

bool has_blocks(const TileTree& tree) {
  return tree->loop_kind == LoopKind::gpu_block || std::any_of(tree->children.begin(), tree->children.end(), has_blocks);
}

/// A schedule may still be on its way to a kernel that fits: then the certificate says what is missing.
GpuCertificate certified_kernels(const TileProgram& program, const NvptxTarget& target) {
  if (!has_blocks(program.root)) return {};
  try {
    return certify_kernels(program, target);
  } catch (const UserError& error) {
    GpuCertificate nothing;
    nothing.blocks.push_back(fmt::format("nothing is proved: {}", error.what()));
    return nothing;
  }
}

CodeCertificate certified_code(const Schedule& schedule, const TileProgram& program, const NvptxTarget& target) {
  CodeCertificate code;
  code.program = prove_program(program, schedule);
  // What back ends make of a program that is wrong says nothing.
  if (code.program.verdict != ProofVerdict::refuted) code.kernels = certified_kernels(program, target);
  prove_operands(program, schedule, code.kernels.zeroed, code.program);
  return code;
}

/// As it is shown: with all tensors that must be finite.
CodeCertificate shown_code(const Certificate& certificate) {
  CodeCertificate code = certificate.code;
  code.program.finite = certificate.finite;
  return code;
}

}  // namespace

Certificate certify(const Schedule& schedule, const TileProgram& program, const NvptxTarget& target,
                    const std::optional<CodeCertificate>& compiled) {
  const Schedule replayed = Schedule(schedule.original_nest()).apply_all(schedule.steps());
  Certificate certificate;
  certificate.op = schedule.original_nest().op;
  certificate.variant = schedule.original_nest().variant;
  certificate.nest_digest = digest(schedule.original_nest());
  for (const Step& step : replayed.steps()) certificate.steps.push_back(describe(step));
  certificate.rules = used_rules(replayed);
  certificate.dependences = prove_dependences(replayed);
  for (const SizeConstraint& constraint : program.valid) certificate.valid_sizes.push_back(constraint.str());
  for (const Buffer& buffer : program.buffers) certificate.buffers.push_back(describe_buffer(buffer));
  certificate.code = compiled ? *compiled : certified_code(replayed, program, target);
  if (certificate.code.program.verdict != ProofVerdict::refuted)
    certificate.finite = finite_tensors(replayed, certificate.code.program, certificate.code.kernels.finite);
  return certificate;
}

std::string describe(const Certificate& certificate) {
  std::string text = fmt::format("certificate of {} ({}), nest {} (compile-time sizes fixed)\n", certificate.op,
                                 certificate.variant, certificate.nest_digest);
  text += fmt::format("\nsteps, each proved when replayed: {}\n", certificate.steps.size());
  for (const std::string& step : certificate.steps) text += fmt::format("  {}\n", step);
  text += fmt::format("\nrules of algebra: {}\n", certificate.rules.size());
  for (const Certificate::RuleUse& use : certificate.rules) {
    text += fmt::format("  {}: {}\n    proof: {}\n    rounding: {}\n", use.step, use.summary, use.proof, use.rounding);
  }
  text += fmt::format("\ndependences, checked against the final order: {}\n", certificate.dependences.size());
  for (const Certificate::DependenceProof& proof : certificate.dependences) {
    text += fmt::format("  {}\n    {}\n", proof.dependence, proof.verdict);
  }
  text += describe(shown_code(certificate));
  text += "\nbuffers and their bounds:\n";
  for (const std::string& buffer : certificate.buffers) text += fmt::format("  {}\n", buffer);
  text += "\nvalid for sizes with:\n";
  for (const std::string& constraint : certificate.valid_sizes) text += fmt::format("  {}\n", constraint);
  return text;
}

nlohmann::json certificate_to_json(const Certificate& certificate) {
  nlohmann::json json{{"op", certificate.op},       {"variant", certificate.variant}, {"nest", certificate.nest_digest},
                      {"steps", certificate.steps}, {"buffers", certificate.buffers}, {"valid", certificate.valid_sizes}};
  json.update(code_certificate_to_json(shown_code(certificate)));
  json["rules"] = nlohmann::json::array();
  for (const Certificate::RuleUse& use : certificate.rules) {
    json["rules"].push_back({{"step", use.step}, {"summary", use.summary}, {"proof", use.proof}, {"rounding", use.rounding}});
  }
  json["dependences"] = nlohmann::json::array();
  for (const Certificate::DependenceProof& proof : certificate.dependences) {
    json["dependences"].push_back({{"dependence", proof.dependence}, {"verdict", proof.verdict}});
  }
  return json;
}

}  // namespace nestor
