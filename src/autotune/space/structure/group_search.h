// FusionGroup search: which statements may share loops, and which of those loops are parallel. Proved by applying the steps.
#pragma once

#include "autotune/space/structure/nest_structure.h"
#include "poly/schedule/schedule.h"

#include <array>
#include <cstdint>
#include <vector>

namespace nestor {

/// How far statements are fused. careful: while the common loops stay as many; related: the same, of statements that share a tensor; maximal:
/// while one is left; prepared: the same, but what products of matrices need and do not take part in stands before them
/// (find_prepared_groups); apart: such a preparation, and the products are fused carefully; alike: of statements that share a tensor and have
/// the same parallel loops, all of them, with later sums of the same input that need nothing of what stands between, and with what such sums
/// start from, but without readers of what a guarded product stores; connected: careful, of statements that computed values lead from one
/// to the other, so that results of inputs alone stand apart; rows: as alike, but what is no product of matrices also shares fewer loops,
/// while a block may keep what each of their iterations makes; products: also with fewer loops, while each
/// product keeps one along results that one of its operands lacks.
enum class Fusion : std::uint8_t { none, careful, maximal, prepared, apart, related, alike, connected, rows, products };

/// Values of the parameter "fusion" are places in this list.
inline constexpr std::array<Fusion, 9> kFusions{Fusion::none,      Fusion::careful, Fusion::maximal,
                                                Fusion::prepared,  Fusion::apart,   Fusion::alike,
                                                Fusion::connected, Fusion::rows,    Fusion::products};

/// The value of the parameter "fusion" for one of these.
std::int64_t place_of(Fusion fusion);

/// Units in textual order, cut into fusion_groups as large as `fusion` and legality allow.
std::vector<FusionGroup> find_fusion_groups(const Schedule& base, const NestStructure& structure, Fusion fusion);

/// The same of some loop groups alone, in textual order.
std::vector<FusionGroup> find_fusion_groups_of(const Schedule& base, const NestStructure& structure,
                                               const std::vector<int>& loop_groups, Fusion fusion);

/// By loop group of the fusion group: loop groups of one number can share the loop on axis `reduction_axis`; -1: it has none.
std::vector<int> find_reduction_groups(const Schedule& base, const NestStructure& structure, const FusionGroup& group,
                                       int reduction_axis);

}  // namespace nestor
