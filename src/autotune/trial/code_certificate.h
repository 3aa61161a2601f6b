// CodeCertificate: what was proved of the code of one schedule when it was compiled. It is stored beside that code.
#pragma once

#include "codegen/gpu/gpu_certificate.h"
#include "codegen/proof/program_proof.h"

#include <nlohmann/json.hpp>

#include <string>

namespace nestor {

struct CodeCertificate {
  ProgramProof program;    ///< of the tile program, against the nest
  GpuCertificate kernels;  ///< of the plans that its GPU code follows, as compile_nvptx() gives it; empty on the host
};

/// Keys in order, so that equal certificates are equal texts.
nlohmann::json code_certificate_to_json(const CodeCertificate& certificate);
/// Throws UserError for what code_certificate_to_json() does not give.
CodeCertificate code_certificate_from_json(const nlohmann::json& json);

/// Facts one a line, under the headings of `nestor verify`.
std::string describe(const CodeCertificate& certificate);

}  // namespace nestor
