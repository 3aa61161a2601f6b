// PTX and ptxas.
#include "autotune/gpu/gpu_compiler.h"

#include "autotune/check/check_sizes.h"
#include "autotune/workers/worker_process.h"
#include "codegen/gpu/backend.h"
#include "codegen/gpu/kernel_plans.h"
#include "codegen/gpu/ptx/ptxas.h"
#include "codegen/gpu/simt/plan/block_work.h"

#include <sstream>

namespace nestor {
namespace {

/// Lines of an assembler's log that complain: errors, and warnings that a kernel will be slow (C75xx).
nlohmann::json complaints_in(const std::string& log) {
  nlohmann::json lines = nlohmann::json::array();
  std::istringstream text(log);
  for (std::string line; std::getline(text, line);) {
    if (line.find("error") != std::string::npos || line.find("warning") != std::string::npos ||
        line.find("(C7") != std::string::npos) {
      lines.push_back(line);
    }
  }
  return lines;
}

}  // namespace

std::string assemble(CompiledTrial& compiled) {
  const PtxasReport report = run_ptxas(compiled.kernel.code, compiled.kernel.architecture);
  if (!report.available) return "";
  const nlohmann::json complaints = complaints_in(report.log);
  if (!report.accepted) return "ptxas: " + (complaints.empty() ? report.log : complaints.front().get<std::string>());
  compiled.binary = report.cubin;
  const nlohmann::json json{{"registers", report.registers},
                            {"spill_bytes", report.spill_bytes},
                            {"stack_bytes", report.stack_bytes},
                            {"complaints", complaints}};
  compiled.report = nlohmann::json{{"ptxas", json}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return "";
}

void GpuCompiler::plan(const TileProgram& program, CompiledTrial& compiled) {
  NvptxTarget target;
  target.sm = problem_->gpu.sm;
  target.shared_limit = problem_->gpu.shared_limit;
  target.keep_ir = false;
  plans_ = plan_kernels(program, target);
  for (const PlannedKernel& kernel : plans_->kernels) {
    if (!kernel.tensor)
      compiled.least_ms += nvptx::least_clocks(kernel.bodies.front(), problem_->sizes, problem_->gpu.units) / nvptx::kClocksPerMs;
  }
}

GpuCertificate GpuCompiler::generate(const TileProgram& program, CompiledTrial& compiled) {
  const CompiledNvptx code = compile_planned(program, std::move(plans_));
  compiled.kernel = {code.kernel.architecture, code.kernel.code, recipe_to_json(code.kernel.recipe).dump(), ""};
  compiled.periods = periods_to_text(size_periods(program));
  return code.certificate;
}

std::string GpuCompiler::finish(CompiledTrial& compiled, double generated_ms) {
  const auto start = WorkerClock::now();
  if (std::string refused = assemble(compiled); !refused.empty()) return refused;
  // Machine code for an older architecture does not run on the device, whose driver compiles the PTX instead.
  if (problem_->options.target.sm > 0) compiled.binary.clear();
  nlohmann::json report = compiled.report.empty() ? nlohmann::json::object() : nlohmann::json::parse(compiled.report);
  report["compile_ms"] = generated_ms;
  report["assemble_ms"] = milliseconds_since(start);
  compiled.report = report.dump();
  return "";
}

}  // namespace nestor
