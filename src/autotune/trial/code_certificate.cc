// Certificates of code as JSON and as text.
#include "autotune/trial/code_certificate.h"

#include "support/error.h"

#include <fmt/ranges.h>

namespace nestor {
namespace {

ProofVerdict verdict_from(const std::string& name) {
  for (const ProofVerdict verdict : {ProofVerdict::proved, ProofVerdict::refuted, ProofVerdict::unproved}) {
    if (name == to_string(verdict)) return verdict;
  }
  user_error("\"{}\" is no verdict of a proof", name);
}

/// One line each under a heading; nothing for no lines.
std::string list(const char* heading, const char* before, const std::vector<std::string>& lines) {
  std::string text = lines.empty() ? "" : heading;
  for (const std::string& line : lines) text += fmt::format("  {}{}\n", before, line);
  return text;
}

std::string program_text(const ProgramProof& proof) {
  std::string text = fmt::format("\ntile program, against the nest: {}\n", to_string(proof.verdict));
  text += list("", "", proof.facts);
  if (!proof.finite.empty())
    text += fmt::format("  finite values are needed in masked places of: {}\n", fmt::join(proof.finite, ", "));
  if (!proof.reason.empty()) text += fmt::format("  {}: {}\n", to_string(proof.verdict), proof.reason);
  return text;
}

}  // namespace

nlohmann::json code_certificate_to_json(const CodeCertificate& certificate) {
  const auto& [program, kernels] = certificate;
  return {{"program",
           {{"verdict", to_string(program.verdict)},
            {"facts", program.facts},
            {"finite", program.finite},
            {"reason", program.reason}}},
          {"stages", kernels.stages},
          {"finite", kernels.needed},
          {"finite_tensors", kernels.finite},
          {"blocks", kernels.blocks},
          {"unproved", kernels.unproved}};
}

CodeCertificate code_certificate_from_json(const nlohmann::json& json) {
  try {
    const nlohmann::json& program = json.at("program");
    return {{verdict_from(program.at("verdict")), program.at("facts"), program.at("finite"), program.at("reason")},
            {json.at("stages"), json.at("finite"), json.at("finite_tensors"), json.at("blocks"), json.at("unproved")}};
  } catch (const nlohmann::json::exception& error) {
    user_error("a certificate cannot be read: {}", error.what());
  }
}

std::string describe(const CodeCertificate& certificate) {
  const GpuCertificate& kernels = certificate.kernels;
  return program_text(certificate.program) +
         list("\nwarps that copy and warps that compute, for all sizes:\n", "stages: ", kernels.stages) +
         list("\nneeds finite values in masked places:\n", "", kernels.needed) +
         list("\nthreads of a block, for all sizes:\n", "blocks: ", kernels.blocks) +
         list("\nnot proved:\n", "", kernels.unproved);
}

}  // namespace nestor
