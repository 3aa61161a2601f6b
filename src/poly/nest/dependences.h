// Dependences of a nest: which statement instances must keep their order.
#pragma once

#include "poly/nest/nest.h"

#include <string>
#include <vector>

namespace nestor {

enum class DependenceKind : std::uint8_t { flow, anti, output };
std::string_view to_string(DependenceKind kind);

/// All ordered pairs { Source[dims] -> Sink[dims] } of instances that touch one element of `tensor` (memory based: every
/// conflicting pair, not only the last writer), source before sink in the nest's original order.
struct Dependence {
  DependenceKind kind;
  std::string source;
  std::string sink;
  std::string tensor;
  isl::map relation;
  /// Both ends are the same accumulation (same statement, a reduction, same element): its order is free once a rule
  /// allows reassociation; parts may not run concurrently without a combine step.
  bool reduction = false;
};

/// Computes all dependences under the nest's context, exactly. Runs under an isl budget. Pairs of two statements that are a
/// flow dependence through a tensor are not listed once more as anti or output.
std::vector<Dependence> compute_dependences(const Nest& nest);

/// One line: "flow: mean_update[i, k] -> out[i, c] through mean".
std::string describe(const Dependence& dependence);

}  // namespace nestor
