// The cases that GPU code must get right, emulated and on a device: programs, sizes, addresses, threads.
#pragma once

#include "support/nests/bordered_steps.h"
#include "support/nests/scheduled_programs.h"
#include "support/simt/simt_check.h"
#include "support/simt/simt_pair_programs.h"
#include "support/simt/simt_part_programs.h"
#include "support/simt/simt_prefix_programs.h"
#include "support/simt/simt_programs.h"
#include "support/simt/simt_triangular_programs.h"
#include "support/simt/simt_window_programs.h"

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace nestor::testing {

/// A tile program, or how one is made: schedules take isl a tenth of a second each, so only the test that needs one makes it.
class MadeProgram {
 public:
  MadeProgram(TileProgram program) : made_(std::make_shared<Made>(Made{nullptr, std::move(program)})) {}
  template <typename Make>
    requires std::is_invocable_r_v<TileProgram, Make>
  MadeProgram(Make make) : made_(std::make_shared<Made>(Made{std::move(make), {}})) {}

  const TileProgram& operator*() const {
    if (!made_->program) made_->program = made_->make();
    return *made_->program;
  }
  const TileProgram* operator->() const { return &**this; }
  operator const TileProgram&() const { return **this; }

 private:
  struct Made {
    std::function<TileProgram()> make;
    std::optional<TileProgram> program;
  };
  std::shared_ptr<Made> made_;  // by all copies of a case
};

struct SimtCase {
  std::string name;
  MadeProgram program;
  Sizes sizes;
  CheckOptions options;
  int threads = 256;
};

inline std::ostream& operator<<(std::ostream& out, const SimtCase& c) { return out << c.name; }

class CaseList {
 public:
  /// The name may repeat: cases are numbered.
  CaseList& add(const std::string& name, MadeProgram program, Sizes sizes, CheckOptions options = {}, int threads = 256) {
    cases_.push_back({name + "_" + std::to_string(cases_.size()), std::move(program), std::move(sizes), options, threads});
    return *this;
  }
  std::vector<SimtCase> cases_;
};

inline std::vector<SimtCase> simt_cases() {
  constexpr ElementType f32 = ElementType::f32, f16 = ElementType::f16, bf16 = ElementType::bf16;
  const CheckOptions plain{}, half{.tolerance = 2e-3}, bfloat{.tolerance = 1e-2};
  CaseList list;
  for (std::int64_t n : {1, 8, 1000, 4096, 5003}) {
    list.add("vector_f32", vector_program(f32), {{"n", n}});
    list.add("vector_f16", vector_program(f16), {{"n", n}}, half);
  }
  list.add("vector_bf16", vector_program(bf16), {{"n", 4096}}, bfloat);
  list.add("vector_misaligned", vector_program(f32), {{"n", 4096}}, {.misalignment = 1});
  // Columns whose elements lie apart, with all between them read as well or not.
  for (std::int64_t cols : {1, 8, 13, 200}) {
    list.add("strided", strided_program(f32, 2, 1), {{"rows", 3}, {"cols", cols}});
    list.add("strided_f16", strided_program(f16, 2, 1), {{"rows", 2}, {"cols", cols}}, half);
    list.add("strided_bf16_by_4", strided_program(bf16, 4, 3, 2), {{"rows", 2}, {"cols", cols}}, bfloat);
    list.add("strided_by_3", strided_program(f32, 3, 2, 1), {{"rows", 2}, {"cols", cols}});
    list.add("strided_with_gaps", strided_program(f32, 4, 2, 1), {{"rows", 3}, {"cols", cols}});
  }
  list.add("strided_misaligned", strided_program(f32, 2, 1), {{"rows", 3}, {"cols", 64}}, {.misalignment = 1});
  // One row a block, kept in registers.
  list.add("row_f32", norm_program(f32, 1024, 1), {{"batch", 3}});
  list.add("row_bf16", norm_program(bf16, 1024, 1), {{"batch", 3}}, bfloat);
  list.add("row_f16_96_threads", norm_program(f16, 768, 1), {{"batch", 2}}, half);
  list.add("row_f32_long", norm_program(f32, 8192, 1), {{"batch", 2}});
  list.add("row_streaming", norm_program(f16, 1024, 1, true), {{"batch", 2}}, half);
  // Several rows a block, the last block partial.
  list.add("rows_f16", norm_program(f16, 128, 8), {{"batch", 13}}, half);
  list.add("rows_f32", norm_program(f32, 512, 4), {{"batch", 7}});
  list.add("rows_across_warps", norm_program(f32, 4096, 2), {{"batch", 5}});
  // Resident blocks, copies one work tile ahead, clusters.
  const GridShape resident{.threads = 64, .persistent = 2}, cluster{.threads = 64, .cluster = 4};
  const GridShape both{.threads = 32, .persistent = 16, .cluster = 8};
  list.add("resident", norm_program(f32, 512, 1, true, resident), {{"batch", 11}});
  for (int slots : {1, 2, 3, 4}) {
    list.add("resident_rows", norm_program(f16, 256, 4, true, resident, slots), {{"batch", 37}}, half);
    list.add("resident_f32", norm_program(f32, 100, 3, false, resident, slots), {{"batch", 38}});
    list.add("resident_misaligned", norm_program(bf16, 1024, 1, true, resident, slots), {{"batch", 9}},
             {.misalignment = 1, .tolerance = 1e-2});
    list.add("resident_cluster", norm_program(bf16, 4096, 1, true, both, slots), {{"batch", 11}}, bfloat);
  }
  list.add("cluster", norm_program(f32, 2048, 1, true, cluster), {{"batch", 3}});
  list.add("cluster_odd_width", norm_program(f16, 2001, 1, false, cluster), {{"batch", 2}}, half);
  list.add("cluster_rows", norm_program(f32, 1024, 2, false, cluster), {{"batch", 5}});
  list.add("cluster_of_many_warps", norm_program(f32, 8192, 1, false, {.threads = 128, .cluster = 16}), {{"batch", 2}});
  list.add("cluster_gathers", norm_program(f32, 16 * 512 * 2 - 3, 1, false, {.threads = 512, .persistent = 8, .cluster = 16}),
           {{"batch", 4}});
  list.add("cluster_gathers_rows", norm_program(f16, 8 * 608 * 8, 2, true, {.threads = 608, .persistent = 4, .cluster = 8}, 2),
           {{"batch", 5}}, half);
  // The factors that all work tiles share are in the threads' own shared memory, as registers for all blocks of a multiprocessor are few.
  const GridShape crowded{.threads = 64, .persistent = 16, .cluster = 2};
  for (std::int64_t width : {4608, 4600, 4599}) {
    const int slots = width % 8 == 0 ? 2 : 1;
    list.add("cluster_crowded", norm_program(f32, width, 1, false, crowded, slots), {{"batch", 21}});
    list.add("cluster_crowded_f16", norm_program(f16, width, 1, false, crowded, slots), {{"batch", 21}}, half);
  }
  for (int blocks : {2, 4, 8, 16}) {
    const GridShape shape{.threads = 64, .persistent = blocks, .cluster = blocks};
    const std::int64_t width = 64 * blocks * 8;
    list.add("cluster_items", norm_program(f32, width - 5, 1, false, shape), {{"batch", 13}});
    list.add("cluster_items_of_rows", norm_program(f16, width, 3, true, shape, 2), {{"batch", 20}}, half);
  }
  // Many rows a block, one after the other, with partial column sums; groups of threads combine them.
  for (int slots : {1, 2, 4}) {
    list.add("column_parts", column_parts_program(f32, 256, 5, slots, {.threads = 64}), {{"batch", 23}});
    list.add("column_parts_bf16", column_parts_program(bf16, 1024, 4, slots), {{"batch", 37}}, bfloat);
  }
  list.add("column_parts_known", column_parts_program(f32, 256, 4, 3, {.threads = 32}, 12), {});
  list.add("column_parts_misaligned", column_parts_program(f16, 512, 3, 3), {{"batch", 8}},
           {.misalignment = 1, .tolerance = 8e-3});
  for (int slots : {1, 3}) list.add("column_parts_odd_width", column_parts_program(f32, 201, 5, slots), {{"batch", 33}});
  list.add("column_parts_short", column_parts_program(f32, 100, 3, 3), {{"batch", 38}});
  list.add("column_parts_many", column_parts_program(f32, 96, 1, 1, {.threads = 32}), {{"batch", 150}});
  list.add("column_parts_of_resident_blocks", column_parts_program(f32, 128, 3, 2, {.threads = 32, .persistent = 2}),
           {{"batch", 40}});
  list.add("column_parts_of_clusters", column_parts_program(bf16, 2048, 3, 2, {.threads = 64, .cluster = 4}), {{"batch", 11}},
           bfloat);
  for (int threads : {32, 96, 512})
    list.add("column_parts_threads", column_parts_program(f32, 256, 5, 2), {{"batch", 61}}, plain, threads);
  // Awkward widths, padding between rows, odd addresses.
  list.add("row_odd_width", norm_program(f32, 1001, 1), {{"batch", 2}});
  list.add("row_padded", norm_program(f32, 1024, 1), {{"batch", 3}}, {.row_padding = 3});
  list.add("row_padded_aligned", norm_program(f16, 1024, 4), {{"batch", 5}}, {.row_padding = 8, .tolerance = 2e-3});
  list.add("row_misaligned", norm_program(bf16, 1024, 4), {{"batch", 5}}, {.misalignment = 1, .tolerance = 1e-2});
  for (std::int64_t cols : {1, 31, 1000, 4104}) list.add("unknown_width", softmax_program(f32), {{"rows", 3}, {"cols", cols}});
  list.add("unknown_width_f16", softmax_program(f16), {{"rows", 2}, {"cols", 2048}}, half);
  // Rows that share what they read along columns: of whole and ragged batches, of two dims, beside odd widths and addresses.
  for (const std::int64_t tile : {0, 40, 64}) {
    for (const std::int64_t cols : {1, 37, 256, 1000})
      list.add("shared_by_rows", scaled_rows_program(f32, tile), {{"planes", 3}, {"rows", 45}, {"cols", cols}}, plain, 64);
    list.add("shared_by_rows_f16", scaled_rows_program(f16, tile), {{"planes", 1}, {"rows", 130}, {"cols", 256}}, half, 128);
    list.add("shared_by_rows_bf16", scaled_rows_program(bf16, tile), {{"planes", 2}, {"rows", 7}, {"cols", 512}}, bfloat, 32);
    list.add("shared_by_rows_misaligned", scaled_rows_program(f16, tile), {{"planes", 2}, {"rows", 70}, {"cols", 256}},
             {.misalignment = 1, .tolerance = 2e-3}, 32);
  }
  for (bool columns : {false, true}) {
    list.add(columns ? "column_sums" : "row_sums", sum_program(f32, columns), {{"rows", 37}, {"cols", 300}});
    list.add(columns ? "column_sums" : "row_sums", sum_program(f16, columns), {{"rows", 5}, {"cols", 4096}}, half);
  }
  // Several reductions in one pass over their columns: of one warp and of several, of one row and of many.
  for (const std::int64_t tile : {1, 8, 64}) {
    for (const std::int64_t cols : {1, 37, 1000})
      list.add("joined_sums", joined_sums_program(f32, tile), {{"rows", 70}, {"cols", cols}}, {.tolerance = 1e-4},
               tile == 8 ? 64 : 256);
    list.add("joined_sums_f16", joined_sums_program(f16, tile), {{"rows", 9}, {"cols", 512}}, half, 128);
  }
  list.add("joined_maps", joined_maps_program(8), {{"rows", 21}, {"cols", 70}}, {}, 64);
  list.add("joined_maps_of_rows", joined_maps_program(1), {{"rows", 5}, {"cols", 33}}, {}, 32);
  list.add("joined_sums_known", joined_sums_program(f32, 8, 300), {{"rows", 20}}, {.tolerance = 1e-4}, 64);
  // A thread's rows share each column: as many of them as registers, ragged ends, rows of more than two, no pairs at all.
  for (const Self self : {Self::counts, Self::is_guarded, Self::is_selected}) {
    for (const std::int64_t tile : {4, 8, 16}) {
      list.add("pairs", pair_forces_program(tile, self), {{"n", 37}, {"of", 70}}, {.tolerance = 1e-4}, 64);
      list.add("pairs", pair_forces_program(tile, self, false, 2), {{"n", 2 * tile}, {"of", 64}}, {.tolerance = 1e-4}, 64);
    }
    list.add("pairs_least", pair_forces_program(8, self, true), {{"n", 45}, {"of", 33}}, {.tolerance = 1e-4}, 64);
    list.add("pairs_one", pair_forces_program(8, self), {{"n", 1}, {"of", 1}}, {.tolerance = 1e-4}, 64);
  }
  // Counts of keys by bins: a key is loaded once for all bins of a thread. Triangles, ragged ends, fewer bins than threads, no keys.
  for (const bool weighed : {false, true}) {
    for (const std::int64_t tile : {8, 32, 64}) {
      list.add("counts", key_counts_program(tile, weighed), {{"bins", 70}, {"n", 37}}, {.tolerance = 1e-5}, 32);
      list.add("counts", key_counts_program(tile, weighed), {{"bins", 64}, {"n", 130}}, {.tolerance = 1e-5}, 64);
    }
    list.add("counts_of_none", key_counts_program(32, weighed), {{"bins", 5}, {"n", 1}}, {.tolerance = 1e-5}, 32);
  }
  // Terms of which data says to which sum they belong: along memory and across it, more terms than a warp and none, no sum's, ragged ends.
  for (const std::int64_t columns : {0, 1, 5, 64}) {
    for (const bool twice : {false, true}) {
      for (const std::int64_t terms : {1, 31, 70}) {
        list.add("scattered", scatter_program({.columns = columns, .falls = terms == 31, .twice = twice}, columns == 5 ? 64 : 32),
                 {{"rows", 2}, {"places", 90}, {"terms", terms}}, {.tolerance = 1e-5});
      }
    }
    list.add("scattered_unknown", scatter_program({.columns = columns, .known = false}, 64),
             {{"rows", 2}, {"places", 45}, {"terms", 40}}, {.tolerance = 1e-5});
  }
  list.add("scattered_largest",
           scatter_program({.other = -std::numeric_limits<double>::infinity(), .combine = ReductionOp::max}, 32),
           {{"rows", 2}, {"places", 64}, {"terms", 40}});
  list.add("scattered_to_all", scatter_program({.columns = 5, .other = 0.5}, 32), {{"rows", 2}, {"places", 64}, {"terms", 40}},
           {.tolerance = 1e-5});
  list.add("scattered_by_sums", scatter_program({.columns = 5, .follows_sum = true}, 32),
           {{"rows", 2}, {"places", 64}, {"terms", 40}}, {.tolerance = 1e-5});
  // Sums over several dims: lanes take columns, and groups rows; both meet, within a block and in a cluster.
  for (const std::int64_t threads : {32, 64, 256, 608}) {
    const GridShape shape{.threads = static_cast<int>(threads)};
    list.add("plane_sums", plane_sums_program(f32, 13, 21, shape), {{"planes", 3}});
    list.add("plane_sums_f16", plane_sums_program(f16, 40, 64, shape), {{"planes", 2}}, half);
    list.add("plane_sums_unknown", plane_sums_program(f32, 0, 0, shape), {{"planes", 2}, {"rows", 45}, {"cols", 37}});
    list.add("plane_sums_of_many_columns", plane_sums_program(f16, 9, 1200, shape), {{"planes", 2}}, half);
  }
  list.add("plane_sums_misaligned", plane_sums_program(f16, 40, 64), {{"planes", 2}}, {.misalignment = 1, .tolerance = 2e-3});
  for (const int blocks : {2, 8, 16}) {
    list.add("plane_sums_of_clusters", plane_sums_program(f32, 50, 24, {.threads = 64, .cluster = blocks}), {{"planes", 3}});
    list.add("plane_sums_of_clusters", plane_sums_program(f16, 300, 40, {.threads = 512, .cluster = blocks}), {{"planes", 1}},
             half);
  }
  list.add("product_tails", product_program(f32, false, false), {{"m", 70}, {"n", 130}, {"k", 45}});
  list.add("product_whole", product_program(f32, false, false), {{"m", 128}, {"n", 64}, {"k", 64}});
  list.add("product_transposed", product_program(f32, true, false), {{"m", 64}, {"n", 128}, {"k", 96}});
  list.add("product_tiny", product_program(f32, false, false), {{"m", 1}, {"n", 5}, {"k", 3}});
  // The reference rounds after every term of the sum, the kernel once.
  list.add("product_batch", product_program(f16, true, true), {{"batch", 2}, {"m", 33}, {"n", 72}, {"k", 40}},
           {.tolerance = 8e-3});
  list.add("product_bf16", product_program(bf16, false, false), {{"m", 64}, {"n", 64}, {"k", 32}}, {.tolerance = 4e-2});
  list.add("stream_product", tiled_product_program(f32, 64, 32), {{"m", 100}, {"n", 130}, {"k", 70}});
  list.add("stream_product_f16", tiled_product_program(f16, 64, 64), {{"m", 64}, {"n", 128}, {"k", 128}}, half);
  for (std::int64_t columns : {2, 3, 7, 22})
    list.add("narrow_product", tiled_product_program(f32, 96, 8, columns), {{"m", 100}, {"n", 2 * columns - 1}, {"k", 13}}, plain,
             32);
  // Tiles of f32 operands are copied ahead: each order of both, whole tiles and ragged ones, fewer ks than tiles, none, odd addresses.
  for (const int form : {0, 1, 2, 3}) {
    const TileProgram program = blocked_product_program(64, 32, form % 2 != 0, form / 2 != 0);
    list.add("blocked_product", program, {{"m", 70}, {"n", 40}, {"k", 133}}, {.tolerance = 1e-4}, 64);
    list.add("blocked_product", program, {{"m", 64}, {"n", 64}, {"k", 96}}, {.tolerance = 1e-4}, 64);
    list.add("blocked_product", program, {{"m", 5}, {"n", 36}, {"k", 64}}, {.misalignment = 1, .tolerance = 1e-4}, 32);
    list.add("blocked_product", program, {{"m", 9}, {"n", 12}, {"k", 3}}, plain, 64);
    list.add("blocked_product_narrow", blocked_product_program(16, 20, form % 2 != 0, form / 2 != 0),
             {{"m", 20}, {"n", 44}, {"k", 68}}, {.tolerance = 1e-4}, 32);
    for (const ElementType type : {f32, bf16}) {
      for (const PairTerms terms : {PairTerms::squares, PairTerms::weighted}) {
        list.add("blocked_terms", blocked_product_program(64, 32, form % 2 != 0, form / 2 != 0, 0, type, terms),
                 {{"m", 70}, {"n", 40}, {"k", 83}}, {.tolerance = 1e-3}, 64);
      }
    }
    list.add("blocked_product_odd", blocked_product_program(12, 7, form % 2 != 0, form / 2 != 0, 5),
             {{"m", 13}, {"n", 15}, {"k", 50}}, {.tolerance = 1e-4}, 32);
  }
  list.add("one_pass", streaming_attention_program(f32, 64, false), {{"heads", 2}, {"s", 128}});
  list.add("one_pass_masked", streaming_attention_program(f32, 32, true, false, 32), {{"heads", 1}, {"s", 100}});
  list.add("one_pass_masked_f16", streaming_attention_program(f16, 64, true), {{"heads", 1}, {"s", 128}}, half);
  for (bool prefix : {false, true}) {
    list.add(prefix ? "one_pass_mask_of_two_parts" : "one_pass_biased", [prefix] { return scheduled_scores_program(prefix); },
             {{"R", 37}, {"C", 70}, {"D", 12}, {"P", 21}});
  }
  for (int slots : {2, 3})
    for (std::int64_t rows : {32, 31}) list.add("strided_copies", strided_copies_program(slots), {{"R", rows}, {"C", 2}});
  list.add("masked_product", masked_product_program(), {{"n", 100}});
  for (OpKind kind : {OpKind::contract, OpKind::reduce}) list.add("ragged_sums", ragged_sums_program(kind), {{"n", 9}});
  // Launches in loops, sequential dims, other orders, other types.
  list.add("time_steps", relaxation_program(), {{"steps", 3}, {"n", 50}});
  list.add("wavefronts", wavefront_program(), {{"n", 20}});
  list.add("running_sums", running_sum_program(), {{"rows", 70}, {"cols", 33}});
  // Sums of all that stands before or behind: of one warp and of several, at once and pass by pass, of no, one and ragged columns.
  for (const bool backward : {false, true}) {
    for (const bool exclusive : {false, true}) {
      PrefixForm form{.backward = backward, .exclusive = exclusive};
      for (const std::int64_t cols : {0, 1, 2, 31, 37, 256, 1000})
        list.add("prefix_unknown", prefix_program(form), {{"rows", 2}, {"cols", cols}}, {.tolerance = 1e-4}, 64);
      form.kept = true;
      for (const std::int64_t cols : {1, 3, 20, 256, 700, 1024}) {
        form.columns = cols;
        list.add("prefix_kept", prefix_program(form), {{"rows", 3}}, {.tolerance = 1e-4}, cols == 256 ? 32 : 128);
      }
      form.columns = 24;
      form.rows_tile = 8;
      list.add("prefix_rows", prefix_program(form), {{"rows", 19}}, {.tolerance = 1e-4}, 64);
      form.columns = 520;
      form.rows_tile = 3;
      list.add("prefix_rows_across_warps", prefix_program(form), {{"rows", 5}}, {.tolerance = 1e-4}, 128);
      PrefixForm down{.rows_tile = 16, .backward = backward, .exclusive = exclusive, .down = true};
      for (const std::int64_t cols : {0, 1, 7, 8, 21})
        list.add("prefix_down", prefix_program(down), {{"rows", 37}, {"cols", cols}}, {.tolerance = 1e-4}, 32);
      down.kept = true;
      down.columns = 19;
      down.type = f16;
      list.add("prefix_down_kept", prefix_program(down), {{"rows", 37}}, half, 32);
    }
    for (const ReductionOp combine : {ReductionOp::max, ReductionOp::min, ReductionOp::mul}) {
      PrefixForm form{
          .columns = 150, .backward = backward, .combine = combine, .kept = true, .adds = combine != ReductionOp::mul};
      list.add("prefix_others", prefix_program(form), {{"rows", 3}}, {.tolerance = 1e-4}, 64);
      list.add("prefix_others_unknown", prefix_program({.backward = backward, .combine = combine}), {{"rows", 2}, {"cols", 140}},
               {.tolerance = 1e-4}, 64);
    }
    for (const std::int64_t shift : {1, 3}) {
      for (const std::int64_t cols : {3, 9, 300}) {
        list.add("prefix_shifted",
                 prefix_program({.columns = cols, .backward = backward, .kept = true, .adds = true, .shift = shift}),
                 {{"rows", 3}}, {.tolerance = 1e-4}, 64);
        list.add("prefix_shifted_down",
                 prefix_program({.rows_tile = 4, .backward = backward, .adds = true, .down = true, .shift = shift}),
                 {{"rows", 9}, {"cols", cols}}, {.tolerance = 1e-4}, 32);
        list.add("prefix_shifted_unknown", prefix_program({.backward = backward, .adds = true, .shift = shift}),
                 {{"rows", 3}, {"cols", cols}}, {.tolerance = 1e-4}, 64);
      }
      list.add("prefix_shifted_rows",
               prefix_program({.rows_tile = 4, .columns = 128, .backward = backward, .kept = true, .adds = true, .shift = shift}),
               {{"rows", 10}}, {.tolerance = 1e-4}, 128);
    }
    list.add("prefix_infinite", prefix_program({.columns = 300, .backward = backward, .kept = true, .infinite = true}),
             {{"rows", 5}}, {.tolerance = 1e-4}, 64);
    list.add("prefix_added", prefix_program({.rows_tile = 2, .backward = backward, .adds = true}), {{"rows", 5}, {"cols", 99}},
             {.tolerance = 1e-4}, 64);
    list.add("prefix_bf16", prefix_program({.type = bf16, .columns = 512, .backward = backward, .kept = true}), {{"rows", 3}},
             bfloat, 32);
    list.add("prefix_misaligned", prefix_program({.columns = 512, .backward = backward, .kept = true}), {{"rows", 3}},
             {.misalignment = 1, .tolerance = 1e-4}, 64);
  }
  for (const bool falls : {false, true}) {
    for (const bool twice : {false, true})
      list.add("lookup", lookup_program({.falls = falls, .twice = twice}), {{"rows", 9}, {"keys", 43}}, plain, 64);
    for (const std::int64_t words : {0, 1, 30})
      list.add("lookup_unknown", lookup_program({.words = 0, .falls = falls}), {{"rows", 5}, {"keys", 7}, {"words", words}},
               plain, 32);
  }
  for (const std::int64_t keys : {64, 128})
    list.add("lookup_vectors", lookup_program({}), {{"rows", 9}, {"keys", keys}}, plain, 32);
  list.add("lookup_least", lookup_program({.other = std::numeric_limits<double>::infinity(), .combine = ReductionOp::min}),
           {{"rows", 9}, {"keys", 43}}, plain, 64);
  list.add("lookup_of_all", lookup_program({.words = 0, .other = 0.5}), {{"rows", 9}, {"keys", 43}, {"words", 20}},
           {.tolerance = 1e-5}, 64);
  list.add("lookup_by_terms", lookup_program({.twice = true, .follows = true}), {{"rows", 9}, {"keys", 43}}, {.tolerance = 1e-5},
           64);
  for (const bool backward : {false, true}) {
    for (const std::int64_t steps : {0, 1, 7, 8, 9, 30})
      list.add("recurrence", recurrence_program(false, backward), {{"rows", 37}, {"steps", steps}}, plain, 32);
    list.add("recurrence_in_scratch", recurrence_program(true, backward), {{"rows", 50}, {"steps", 1}}, plain, 64);
  }
  // Triangular systems: no whole tile of rows, one, several; rows of whole vectors and not; terms that end earlier, or that are not done yet.
  for (const std::int64_t steps : {1, 2, 15, 16, 17, 20, 33, 48, 64}) {
    list.add("triangular", triangular_program({.steps = steps}), {{"systems", 2}, {"cols", 43}}, {.tolerance = 1e-5}, 64);
    list.add("triangular_in_scratch", triangular_program({.steps = steps, .scratch = true}), {{"systems", 2}, {"cols", 43}},
             {.tolerance = 1e-5}, 64);
  }
  for (const std::int64_t steps : {0, 1, 3, 16, 21, 32, 50})
    list.add("triangular_unknown", triangular_program({}), {{"systems", 2}, {"cols", 5}, {"steps", steps}}, {.tolerance = 1e-5},
             32);
  const Sizes one_system{{"systems", 1}, {"cols", 37}};
  for (const std::int64_t apart : {2, 5, 17})
    for (const std::int64_t row : {std::int64_t{0}, apart})
      list.add("triangular_apart", triangular_program({.steps = 36, .apart = apart, .row = row}), one_system, {.tolerance = 1e-5},
               64);
  list.add("triangular_bounds", triangular_program({.steps = 36, .guarded = false}), one_system, {.tolerance = 1e-5}, 64);
  list.add("triangular_backward", triangular_program({.steps = 37, .backward = true}), one_system, {.tolerance = 1e-5}, 64);
  list.add("triangular_later", triangular_program({.steps = 36, .first = 3, .row = 5}), one_system, {.tolerance = 1e-5}, 64);
  list.add("triangular_divided", triangular_program({.steps = 36, .divided = true}), one_system, {.tolerance = 1e-3}, 64);
  list.add("triangular_ahead", triangular_program({.steps = 20, .ahead = true}), one_system, {.tolerance = 1e-5}, 64);
  list.add("triangular_of_integers", triangular_program({.steps = 20, .type = ElementType::i32}), one_system, plain, 64);
  list.add("triangular_misaligned", triangular_program({.steps = 36}), one_system, {.misalignment = 1, .tolerance = 1e-5}, 64);
  list.add("block_steps", block_steps_program(), {{"rows", 3}, {"steps", 5}});
  for (const std::int64_t shift : {0, 37})
    list.add("stepped_columns", stepped_columns_program(shift), {{"rows", 3}, {"steps", 5}}, plain, 64);
  list.add("transpose", transpose_program(f32), {{"rows", 50}, {"cols", 70}});
  list.add("transpose_f16", transpose_program(f16), {{"rows", 64}, {"cols", 64}});
  for (const std::int64_t width : {3, 10, 12, 20, 24, 31}) {
    list.add("narrow_rows", narrow_rows_program(f32, width), {{"rows", 150}});
    list.add("narrow_rows_f16", narrow_rows_program(f16, width), {{"rows", 97}}, half, 512);
  }
  list.add("narrow_rows_misaligned", narrow_rows_program(f16, 12), {{"rows", 70}}, {.misalignment = 1, .tolerance = 2e-3});
  // Windows: neighbouring rows summed up together, whole tiles and ragged ones, beside odd widths and addresses.
  const Sizes places{{"high", 5}, {"across", 19}, {"maps", 64}};
  for (const ElementType type : {f32, f16, bf16}) {
    const CheckOptions within = type == f32 ? plain : type == f16 ? half : bfloat;
    list.add("windows", window_program({.type = type}), places, within, 32);
    list.add("windows_misaligned", window_program({.type = type}), places, {.misalignment = 1, .tolerance = within.tolerance},
             32);
    list.add("windows_known",
             window_program({.type = type, .rows_tile = 4, .columns_tile = 8, .taps = 5, .maps = 32, .across = 16}),
             {{"high", 6}}, within, 32);
    list.add("windows_then_norm",
             window_program({.type = type, .rows_tile = 4, .columns_tile = 8, .maps = 96, .across = 16, .norm = true}),
             {{"high", 7}}, {.tolerance = std::max(within.tolerance, 1e-5)}, 64);
  }
  list.add("windows_of_ragged_tiles_then_norm", window_program({.rows_tile = 3, .maps = 40, .norm = true}),
           {{"high", 4}, {"across", 21}}, {.tolerance = 1e-5}, 64);
  list.add("windows_odd_width", window_program({.columns_tile = 16}), {{"high", 3}, {"across", 33}, {"maps", 37}}, plain, 64);
  list.add("windows_strided", window_program({.type = f16, .columns_tile = 2, .stride = 2, .largest = true}), places, half, 32);
  list.add("windows_dilated", window_program({.type = bf16, .dilation = 3}), places, bfloat, 32);
  list.add("windows_added", window_program({.type = f16, .rows_tile = 1, .taps = 7, .adds = true}), places, half, 32);
  for (const ElementType type : {bf16, f32}) {
    const CheckOptions within = type == f32 ? CheckOptions{.tolerance = 1e-5} : bfloat;
    const std::int64_t tile = type == f32 ? 8 : 2;
    list.add("windows_padded", window_program({.type = type, .columns_tile = tile, .padded = true}), places, within, 32);
    list.add(
        "windows_padded_known",
        window_program({.type = type, .columns_tile = tile, .taps = 5, .maps = 64, .across = 16, .norm = true, .padded = true}),
        {{"high", 5}}, within, 32);
  }
  list.add("windows_padded_channels_first",
           window_program({.type = f16, .rows_tile = 8, .columns_tile = 32, .maps = 2, .channels_first = true, .padded = true}),
           {{"high", 13}, {"across", 37}}, half, 32);
  list.add("windows_channels_first",
           window_program({.type = f16, .rows_tile = 8, .columns_tile = 64, .maps = 3, .channels_first = true}),
           {{"high", 21}, {"across", 70}}, half, 32);
  list.add("borders_of_tiles", [] { return samples::tiled_bordered_steps(); }, {{"T", 3}, {"H", 11}, {"W", 70}}, plain, 64);
  list.add("integers", integer_program(), {{"rows", 9}, {"cols", 77}});
  for (std::int64_t width : {188, 192}) list.add("short_tiles", short_tiles_program(width), {{"n", 1}});
  list.add("sums_in_a_loop", sums_in_a_loop_program(), {{"rows", 77}}, plain, 32);
  list.add("functions", functions_program(), {{"n", 300}}, {.spread = 3});
  for (int threads : {32, 96, 512}) {
    list.add("threads", norm_program(f32, 1000, 2), {{"batch", 3}}, plain, threads);
    list.add("threads_product", tiled_product_program(f32, 64, 32), {{"m", 70}, {"n", 64}, {"k", 40}}, plain, threads);
  }
  return list.cases_;
}

}  // namespace nestor::testing
