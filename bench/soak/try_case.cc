// Replay, code generation, running and comparing, with every way to fail told apart.
#include "soak/try_case.h"

#include "autotune/target/target.h"
#include "codegen/gpu/backend.h"
#include "codegen/gpu/ptx/ptxas.h"
#include "codegen/host/host_backend.h"
#include "codegen/proof/program_proof.h"
#include "codegen/tile/tile_program.h"
#include "poly/isl/candidate_time.h"
#include "soak/device_server.h"
#include "soak/draw_sizes.h"
#include "support/error.h"

#include <fmt/ranges.h>
#include <sys/resource.h>
#include <cctype>
#include <new>

namespace nestor::soak {
namespace {

constexpr std::int64_t kSharedLimit = 227 << 10;

double processor_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

std::unique_ptr<LoadedCandidate> load(const Generated& generated, Engine engine, const TryOptions& options) {
  switch (engine) {
    case Engine::host:
      return load_on_host(generated, options.threads);
    case Engine::emulator:
      return load_in_emulator(generated, options.seed);
    case Engine::device:
      break;
  }
  return load_on_device(generated, options.device);
}

std::string describe(const Run& run) {
  std::string sizes;
  for (const auto& [name, value] : run.sizes) sizes += fmt::format("{}{} = {}", sizes.empty() ? "" : ", ", name, value);
  return fmt::format("at {}, data \"{}\", seed {}", sizes, run.data, run.seed);
}

Outcome run_all(const Nest& nest, const Generated& generated, Engine engine, const std::vector<PreparedRun>& runs,
                const TryOptions& options) {
  Outcome outcome;
  std::unique_ptr<LoadedCandidate> loaded;
  std::string invalid;
  for (const PreparedRun& prepared : runs) {
    if (!is_valid_for(generated.kernel.recipe.valid, prepared.run.sizes, &invalid)) continue;
    if (!loaded) loaded = load(generated, engine, options);
    HostTensors results;
    std::string wrong;
    try {
      wrong = loaded->run(prepared.run.sizes, *prepared.data, results);
    } catch (const UserError& error) {  // a launch may refuse sizes: rows that tensor copies cannot start at
      invalid = error.what();
      continue;
    }
    if (wrong.empty()) wrong = difference(nest, *prepared.data, results);
    ++outcome.runs;
    if (wrong.empty()) continue;
    outcome.verdict = Verdict::wrong;
    outcome.detail = fmt::format("{}; {}", wrong, describe(prepared.run));
    return outcome;
  }
  if (outcome.runs == 0) {
    outcome.verdict = Verdict::infeasible;
    outcome.detail = "not valid at any of the sizes: " + invalid;
  }
  return outcome;
}

NvptxTarget target_of(int sm) {
  NvptxTarget target;
  target.sm = sm;
  target.shared_limit = kSharedLimit;
  return target;
}

/// The runs, with finite values wherever the certificate of the candidate asks for them (docs/values.md, masked places).
std::vector<PreparedRun> runs_for(const Nest& nest, const Schedule& schedule, const TileProgram& program,
                                  const ProgramProof& proof, int sm, const std::vector<PreparedRun>& runs) {
  const GpuCertificate kernels = sm > 0 ? certify_kernels(program, target_of(sm)) : GpuCertificate{};
  const std::vector<std::string> finite = finite_tensors(schedule, proof, kernels.finite);
  std::vector<PreparedRun> result = runs;
  for (PreparedRun& prepared : result) {
    if (finite.empty() || !is_special(prepared.run.data)) continue;
    const ElementLists places = masked_places(schedule, finite, prepared.run.sizes);
    if (has_special(*prepared.data, places))
      prepared.data = std::make_shared<const ProblemData>(make_problem_data(nest, prepared.run, kReferenceLimit, places));
  }
  return result;
}

Outcome failed(Verdict verdict, const std::string& detail) { return {verdict, detail}; }

}  // namespace

Generated generate(const TileProgram& program, Engine engine, int sm) {
  if (engine == Engine::host) return {compile_host(program, detect_host()).kernel, "", "", ""};
  NvptxTarget target = target_of(sm);
  target.keep_ir = engine == Engine::emulator;
  CompiledNvptx compiled = compile_nvptx(program, target);
  Generated generated{std::move(compiled.kernel), std::move(compiled.ir), "",
                      fmt::format("{}", fmt::join(compiled.certificate.unproved, "; "))};
  if (engine == Engine::device) {
    PtxasReport report = run_ptxas(generated.kernel.code, generated.kernel.architecture);
    if (report.available && !report.accepted) internal_error("ptxas refuses the code: {}", report.log);
    generated.binary = std::move(report.cubin);
  }
  return generated;
}

Outcome try_case(const Nest& nest, Engine engine, int sm, const std::function<Schedule()>& replay,
                 const std::vector<PreparedRun>& runs, const TryOptions& options) {
  const double start = processor_seconds();
  double generate_s = 0;
  const auto ended = [&](Outcome outcome) {
    outcome.generate_s = generate_s > 0 ? generate_s : processor_seconds() - start;
    return outcome;
  };
  try {
    ProgramProof proof;
    Generated generated;
    std::vector<PreparedRun> allowed;
    std::string contradicted;  // what checks the plans of a program that is wrong finds that as well
    with_candidate_time([&] {
      const Schedule schedule = replay();
      const TileProgram program = target_program(schedule, engine != Engine::host);
      proof = prove_program(program, schedule);
      allowed = runs_for(nest, schedule, program, proof, sm, runs);
      try {
        generated = generate(program, engine, sm);
      } catch (const InternalError& error) {
        if (proof.verdict != ProofVerdict::refuted) throw;
        contradicted = error.what();
      }
    });
    if (!contradicted.empty()) return ended(failed(Verdict::refuted, fmt::format("{} ({})", proof.reason, contradicted)));
    generate_s = processor_seconds() - start;
    if (options.generated) options.generated(generate_s);
    Outcome outcome = run_all(nest, generated, engine, allowed, options);
    const bool proved = proof.verdict == ProofVerdict::proved && generated.open.empty();
    if (!proved && outcome.verdict <= Verdict::wrong) {
      // Never served, so that a wrong one is none that anybody meets; what it computes says who is at fault.
      const std::string computes =
          outcome.verdict == Verdict::wrong ? "WRONG " + outcome.detail : fmt::format("right in {} runs", outcome.runs);
      outcome.verdict = proof.verdict == ProofVerdict::refuted ? Verdict::refuted : Verdict::unproved;
      outcome.detail = fmt::format("{} ({})", proof.verdict == ProofVerdict::proved ? generated.open : proof.reason, computes);
    }
    return ended(outcome);
  } catch (const UserError& error) {
    return ended(failed(Verdict::refused, error.what()));
  } catch (const std::bad_alloc&) {
    return ended(failed(Verdict::memory, "out of memory"));
  } catch (const DeviceError& error) {
    return ended(failed(Verdict::crash, error.what()));
  } catch (const std::exception& error) {
    return ended(failed(Verdict::internal_error, error.what()));
  }
}

std::string kind_of_reason(const std::string& reason) {
  constexpr std::size_t kLongest = 90;
  std::string kind;
  bool quoted = false;
  for (std::size_t k = 0; k < reason.size() && kind.size() < kLongest; ++k) {
    const char c = reason[k];
    if (c == '`') quoted = !quoted;
    const bool number = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (quoted || c == '\n') continue;
    if (number && !kind.empty() && kind.back() == '#') continue;
    kind += number ? '#' : c;
  }
  return kind;
}

}  // namespace nestor::soak
