// Likely points of recurrences, triangular systems and running sums.
#pragma once

#include "autotune/space/gpu/points/point_source.h"

namespace nestor {

/// Recurrences: each thread runs through a serial loop; of two such loops, threads share wavefronts.
void add_recurrences(const GpuPointSource& source, const RuleChoice& choice, bool systems, std::vector<NamedValues>& points);

/// A recurrence of each of many rows in one kernel with what comes before and behind it: a block has a row, which it reads from near memory
/// again in each step.
void add_row_sequences(const GpuPointSource& source, const RuleChoice& choice, std::vector<NamedValues>& points);

/// Recurrences of elementwise values, within loops that all share: each thread takes a few elements through all steps.
void add_own_elements(const GpuPointSource& source, const RuleChoice& choice, std::vector<NamedValues>& points);

/// A block goes through the steps of a sequence, or threads through those of many short ones; each step of all sequences has a
/// launch for each statement, or one kernel of tiles along the last two common axes.
void add_distributed(const GpuPointSource& source, const RuleChoice& choice, std::vector<NamedValues>& points);

/// Is a step of one sequence, in the heaviest recurrence of this kind, work for more than a thread, or are there sequences enough for the
/// lanes of all multiprocessors; and is it a good part of all work?
bool has_large_steps(const GpuPointSource& source, const RuleChoice& choice);

/// Are triangular systems a good part of the work?
bool solves_systems(const GpuPointSource& source, const RuleChoice& choice);

/// Are running sums the heaviest statements?
bool is_of_prefixes(const GpuPointSource& source, const RuleChoice& choice);

/// Running sums: a block has whole rows of them, and what else stays there. Of few results made of all rows a block has a part,
/// tile by tile.
void add_prefixes(const GpuPointSource& source, const RuleChoice& choice, std::vector<NamedValues>& points);

}  // namespace nestor
