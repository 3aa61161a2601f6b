// Proof that a tensor plan's roles share their circular buffers and fragments rightly, from the finished plan alone: its events, circular buffers, fragments and
// ops beside the tile program, not how they were made. It holds for all sizes the program is valid for, so for any number of iterations and
// of work tiles.
//
// The argument. Both roles are read as straight blocks, each run once or by a loop (tensor_roles.h).
//  1. Within a block, symbolic execution: a tile is held from wait_full to release and read in between only; a product's tiles are not
//     released, and its sums and its operand not touched, before a wait_products has ended it; sums in lanes are added up once. Nothing is
//     in flight at a block's ends. An iteration of a loop, and the blocks that run together on one condition, leave tiles held, turns and
//     sums as they found them: by induction over iterations the same holds for any number of them, and over work tiles, since a work tile leaves
//     no tile held.
//  2. Tiles have numbers: how many were loaded (waited for, released) before. These are linear in trip counts and loop counters, and isl
//     proves for all of them that a work tile loads as many tiles as it waits for and in the same order over all circular buffers, and that a product
//     finds the tile loaded for its own value of the loop's variable. With 1. releases are as many, so both roles start the next work tile at the
//     same numbers, and stage and phase, which follow from the number alone, agree.
//  3. A load directly follows its wait_empty, which waits for the releases of the tile `stages` before by all warpgroups: no stage is overwritten
//     while it is held, and neither barrier gets more than one phase ahead of who waits for it, so that parities suffice.
//  4. No deadlock. Suppose all that is left waits. If the producer is done, every tile has been loaded, so only turns are waited for, and the
//     warpgroup whose turn it is goes on. Else the producer stands before its load of tile k + stages of a circular buffer, since some warpgroup g has not
//     released tile k. A warpgroup that waits for a tile waits for one that is not loaded, so for this load or a later one in the common order;
//     it has therefore passed what comes before its own wait for tile k + stages, the release of tile k among it. So g waits for a turn, and
//     the warpgroup h whose turn it is (one always has it: turns go round in order, one arrival being there at first) waits for a tile and has
//     released tile k. As no release stands within a turn, h released it before the wait_turn at which g stands, or before one that g has
//     passed; all warpgroups run the same program, so g has released it too.
//  5. Each op runs once at each iteration that the tile program gives it, and any two accesses to one tile, one of them a write, keep the
//     tile program's order (isl, pair by pair). A late product's operand counts as such a tile, written by `narrow`.
//  6. In a cluster, blocks take the same work tiles, and run the same programs with the same bounds, which follow from sizes and the work tile alone.
//     Each has its own stages and barriers. A shared tile is copied in shares, one a block, to the stage of the same number in all blocks, and
//     a release tells the producer warps of all of them; both reach all blocks or (circular buffers of a block's own rows) none of the others. So a stage
//     is full when all blocks have copied their shares, since its barrier waits for the bytes of all, and is free for any producer warp
//     when the warpgroups of all blocks have released it: 1. and 3. hold as they stand, with "all warpgroups" read as those of all blocks. A share
//     may arrive before the block's own warp has said how many bytes to wait for, but not before the phase of the tile before has ended:
//     its sender has waited for releases by the warpgroups of that block, which had waited for that phase. In 4., let the producer be the one,
//     of all blocks, that stands first in the common order of loads: what comes before has been copied in all shares, so whoever waits for
//     a tile waits for this load or a later one, and the argument goes on within the block of g. Blocks meet at the start, before which
//     nobody sends (barriers are ready). At its end a producer warp waits until all stages of shared tiles are free. By then nobody sends to its
//     block any more: its warpgroups have waited for all tiles, and all blocks have released them. So its shared memory has lived long enough,
//     and no deadlock is added: producers that wait there have loaded everything.
//  7. With ping_pong_tiles the n-th work tile of a block is that of warpgroup n modulo their number; a stage has one reader. No bound depends on
//     where a work tile lies, so all bring the same numbers of tiles, and a warpgroup knows the number of each of its own without seeing those of
//     others. 1., 2. and 5. hold work tile by work tile. In 3. parities suffice since a work tile's tiles are waited for within its turn, and
//     it is passed on after all of them have arrived: turns go round in the order of work tiles, so whoever waits for tile k + stages knows that
//     tile k has arrived, and its stage is filled once more only when it is released. In 4., let the producer stand before its load of tile
//     k + stages, since g, whose tile k is, has not released it. If g waits for a tile, that is not loaded, so not before this one in the common
//     order: either in a work tile after that of tile k, all of whose tiles g has released (1.), or in the same one, where 4. holds as it
//     stands. If g waits for its turn, it has released the tiles of all of its work tiles before, so tile k is of the one that it
//     waits for; the holder of the turn is in an earlier one, whose tiles come before tile k in the common order, and have been loaded.
//
//  8. Values. The tile program defines elements at the points of its ops. What an op's code leaves otherwise, or changes beside its points, is
//     spoilt (tensor_effects.h). By induction over the program's order, in which 5. lets ops run, whatever is read is right: its last writer in
//     the tile program has left it right, or it would be spoilt there; and no op since has spoilt it (isl, pair by pair, at one iteration and
//     from one to later ones). Where results depend on elements that are no points, these have neutral values.
//
//  9. Column tests. A condition on inputs that all rows of a tile share is read by the lanes of each warp, a column each, at the iteration of
//     its op. Where all have the usual outcome the op's value is that with the condition known; else it is computed with each column's own.
//
// 10. Memory. What an op reads of memory that an op of the same kernel writes, no other thread of the block writes: rows and columns are
//     shared out to threads alike in all ops, and a store that goes through shared memory is another thread's. 5. gives the order within a thread.
//
// With copies by all threads (TensorCores::mma) there is one role, and 1., 5. and the last part of 2. hold as above. In place of the rest:
//  3. A tile's number gives its stage, for loads (those of iterations beyond the last one, which copy nothing, are counted too) as for
//     releases. A tile is waited for behind a barrier, and before that behind a wait of every thread for the batch of its own part of the
//     copy: batches are counted like tiles, and isl proves that the load of the same number belongs to one of those that have arrived. A
//     load into a stage that has been used stands behind a barrier that follows the release of the tile `stages` before by all threads (all
//     run the same program), and in resident blocks behind one that follows the work tile before. Whatever is copied is read.
//  4. No deadlock: all threads come to the same barriers, since bounds and conditions are the same for all.
#pragma once

#include "codegen/gpu/mma/plan/tensor_plan.h"
#include "codegen/tile/analysis/bound_space.h"

#include <string>
#include <vector>

namespace nestor::nvptx {

struct TensorCertificate {
  std::vector<std::string> proved;      ///< sentences, one a fact; meaningful without violations only
  std::vector<std::string> violations;  ///< what could not be proved
};

/// Throws UserError when the proof exceeds the isl budget. `known`: answers of earlier proofs, to which this one's are added.
TensorCertificate check_tensor_plan(const TensorPlan& plan, BoundAnswers& known);
TensorCertificate check_tensor_plan(const TensorPlan& plan);

}  // namespace nestor::nvptx
