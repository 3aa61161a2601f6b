// The proof of a finished tile program: that it computes what its nest defines, for all sizes that it admits (docs/proofs.md).
#pragma once

#include "codegen/tile/tile_program.h"
#include "codegen/tile/zeroed_operand.h"
#include "poly/schedule/schedule.h"

#include <cstdint>
#include <string>
#include <vector>

namespace nestor {

/// What became of a proof. refuted: an obligation is broken, which is a bug of Nestor. unproved: it could not be decided, within the
/// budget or at all.
enum class ProofVerdict : std::uint8_t { proved, refuted, unproved };
std::string_view to_string(ProofVerdict verdict);

struct ProgramProof {
  ProofVerdict verdict = ProofVerdict::unproved;
  std::vector<std::string> facts;  ///< what was shown, in sentences
  std::vector<std::string>
      finite;          ///< tensors that must be finite in masked places, where their elements meet a factor 0 (docs/values.md)
  std::string reason;  ///< unless proved: the obligation, the op, and a point with its sizes, or why it stays open
};

/// isl operations that the proof of one program may take.
inline constexpr std::uint64_t kProofBudget = 20'000'000;

/// Proves `program` against the nest of `schedule` after its rules, those rules' composites and dependences. Of the schedule's steps
/// nothing is used. Shares no code with steps and builder. Every failure is a value.
ProgramProof prove_program(const TileProgram& program, const Schedule& schedule, std::uint64_t budget = kProofBudget);

/// Proves that each of `operands` holds values wherever its op may read it: what nobody has written may be NaN, and 0 times that is no 0.
/// Inputs do; elements of other tensors are written before the op starts. Adds a fact to a proved `proof`; else makes it unproved.
void prove_operands(const TileProgram& program, const Schedule& schedule, const std::vector<ZeroedOperand>& operands,
                    ProgramProof& proof, std::uint64_t budget = kProofBudget);

}  // namespace nestor
