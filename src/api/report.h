// What people read about a schedule: its views at every level, and the certificate of why it is right.
#pragma once

#include "autotune/trial/code_certificate.h"
#include "codegen/gpu/target/gpu_target.h"
#include "codegen/tile/tile_program.h"
#include "poly/schedule/schedule.h"

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace nestor {

/// What `show` prints.
enum class View : std::uint8_t { nest, deps, tree, loops, tile, tiles, plan, ir, assembly, ptx, schedule };
/// By the name the command line takes: "nest", "deps", ..., "asm" for assembly. nullopt for anything else.
std::optional<View> view_from(std::string_view name);
/// "nest, deps, tree, loops, tile, tiles, plan, ir, asm, ptx, schedule"
std::string view_names();
/// The names one by one.
std::vector<std::string> view_words();

/// What some views need besides the schedule.
struct ViewOptions {
  int sm = 90;    ///< plan, ptx: compute capability times ten
  Sizes sizes{};  ///< tiles: the sizes to count at; missing ones take their default
};

/// Text of one view. Throws UserError when the schedule cannot be compiled for that target.
std::string show(const Schedule& schedule, View view, const ViewOptions& options = {});

/// Why a schedule computes what its nest defines, in parts that can be checked again.
struct Certificate {
  struct RuleUse {
    std::string step, summary, proof, rounding;
  };
  struct DependenceProof {
    std::string dependence;
    std::string verdict;  ///< "respected", or what relaxes it
  };
  std::string op, variant, nest_digest;
  std::vector<std::string> steps;
  std::vector<RuleUse> rules;
  std::vector<DependenceProof> dependences;
  std::vector<std::string> valid_sizes;  ///< the kernel's conditions on sizes
  std::vector<std::string> buffers;      ///< every buffer of the tile program with its bound
  CodeCertificate code;                  ///< of the tile program and of its GPU kernels, as compiling gives it
  std::vector<std::string> finite;       ///< tensors that must be finite in masked places, the kernels' needs included
};

/// Replays the steps from the original nest (which proves each of them again) and states what was proved.
/// `target`: of the GPU whose kernels are proved. `compiled`: the certificate that compiling for it gave; proved again without one.
Certificate certify(const Schedule& schedule, const TileProgram& program, const NvptxTarget& target = {},
                    const std::optional<CodeCertificate>& compiled = std::nullopt);
std::string describe(const Certificate& certificate);
nlohmann::json certificate_to_json(const Certificate& certificate);

/// Rules that apply to the nest as it stands, one a line: the step to type and what it does.
std::string describe_rules(const Nest& nest);

}  // namespace nestor
