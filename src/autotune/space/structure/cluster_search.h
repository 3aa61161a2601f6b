// Cluster search: which statements may share loops, and which of those loops are parallel. Proved by applying the steps.
#pragma once

#include "autotune/space/structure/nest_structure.h"
#include "poly/schedule/schedule.h"

#include <cstdint>
#include <vector>

namespace nestor {

/// How far statements are fused. careful: while the common loops stay as many; maximal: while one is left.
enum class Fusion : std::uint8_t { none, careful, maximal };

/// Units in textual order, cut into clusters as large as `fusion` and legality allow.
std::vector<Cluster> find_clusters(const Schedule& base, const NestStructure& structure, Fusion fusion);

/// The same of some units alone, in textual order.
std::vector<Cluster> find_clusters_of(const Schedule& base, const NestStructure& structure, const std::vector<int>& units,
                                      Fusion fusion);

/// By unit of the cluster: units of one number can share the loop on axis `stream`; -1: it has none.
std::vector<int> find_stream_groups(const Schedule& base, const NestStructure& structure, const Cluster& cluster, int stream);

}  // namespace nestor
