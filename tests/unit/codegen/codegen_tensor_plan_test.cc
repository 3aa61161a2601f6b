// What a tensor plan finds in a tile program: tiles, operands, masks, sums, the order of events, the layout of shared memory.
#include "codegen/gpu/mma/pipeline/print_tensor_plan.h"
#include "support/nests/tensor_nests.h"
#include "support/simt/simt_programs.h"
#include "support/tensor/product_nests.h"
#include "support/tensor/tensor_interpreter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Kind = nvptx::Event::Kind;

TileProgram attention(Seen seen, const std::vector<std::string>& more = {}, const AttentionForm& form = {}) {
  AttentionForm own = form;
  own.seen = seen;
  return tensor_program(attention_nest(own), {.more = more});
}

// ---- tiles

TEST(TensorTiles, scores_and_results_are_fragments_and_row_values_have_no_columns) {
  const PlannedTensor attention_plan(attention(Seen::all));
  EXPECT_EQ(attention_plan.plan.row_tiles, 1);
  EXPECT_EQ(attention_plan.plan.threads(), 3 * 128);
  for (const char* tile : {"dot", "score", "power"}) EXPECT_EQ(attention_plan.fragment(tile).columns, 64) << tile;
  for (const char* row : {"largest", "total"}) EXPECT_EQ(attention_plan.fragment(row).columns, 0) << row;
  EXPECT_EQ(attention_plan.op("dot").kind, nvptx::TensorOp::Kind::product);
  EXPECT_EQ(attention_plan.op("power").kind, nvptx::TensorOp::Kind::map);
  EXPECT_EQ(attention_plan.op("total").kind, nvptx::TensorOp::Kind::reduce);
  EXPECT_EQ(attention_plan.op("out").kind, nvptx::TensorOp::Kind::store);
}

TEST(TensorTiles, operands_come_as_memory_has_them) {
  const PlannedTensor planned(tensor_program(attention_nest({.depth = 128}), {.columns = 96}));
  const nvptx::TensorOp &dot = planned.op("dot"), &weighted = planned.op("weighted");
  // Rows of q and k run along the reduced dimension; rows of v along the result's columns.
  EXPECT_FALSE(dot.a_by_row);
  EXPECT_FALSE(dot.b_by_column);
  EXPECT_TRUE(weighted.b_by_column);
  EXPECT_EQ(weighted.a_ring, -1);  // the weights stay in registers
  EXPECT_EQ(std::pair(dot.k, dot.n), std::pair(128, 96));
  EXPECT_EQ(std::pair(weighted.k, weighted.n), std::pair(96, 128));
  EXPECT_EQ(std::pair(planned.ring("q").rows, planned.ring("q").columns), std::pair(128, 128));
  EXPECT_EQ(std::pair(planned.ring("k").rows, planned.ring("k").columns), std::pair(96, 128));
  EXPECT_EQ(std::pair(planned.ring("v").rows, planned.ring("v").columns), std::pair(96, 128));
  for (const char* name : {"q", "k", "v"}) EXPECT_EQ(planned.ring(name).row_index, 1) << name;
}

TEST(TensorTiles, what_no_loop_moves_is_loaded_once_an_item) {
  const PlannedTensor planned(attention(Seen::all));
  EXPECT_FALSE(planned.ring("q").streamed);
  EXPECT_EQ(planned.ring("q").stages, 1);
  EXPECT_TRUE(planned.ring("k").streamed);
  EXPECT_EQ(planned.ring("v").stages, 2);
  EXPECT_FALSE(planned.ring("q").in_registers);
  EXPECT_TRUE(PlannedTensor(attention(Seen::all, {"a_from_registers(out.io)"})).ring("q").in_registers);
}

TEST(TensorTiles, tiles_over_the_same_columns_have_one_width) {
  // 40 columns fill 48 of a first operand; whatever is computed from or into it must reach as far.
  const PlannedTensor planned(tensor_program(attention_nest(), {.columns = 40}));
  for (const char* tile : {"dot", "score", "power"}) EXPECT_EQ(planned.fragment(tile).columns, 48) << tile;
  EXPECT_EQ(planned.fragment("weighted").columns, 64);
}

TEST(TensorTiles, more_rows_than_groups_take_at_once_are_several_tiles_each) {
  EXPECT_EQ(PlannedTensor(tensor_program(attention_nest(), {.rows = 128, .warpgroups = 1})).plan.row_tiles, 2);
  EXPECT_EQ(PlannedTensor(tensor_program(attention_nest(), {.rows = 192, .warpgroups = 3})).plan.row_tiles, 1);
}

// ---- masks

std::vector<std::string> selecting(const PlannedTensor& planned) {
  std::vector<std::string> names;
  for (const nvptx::TensorOp& op : planned.plan.ops) {
    if (op.select || op.mask_a) names.push_back(op.op.name);
  }
  return names;
}

TEST(TensorMasks, one_select_of_scores_serves_a_ragged_row_of_keys) {
  const PlannedTensor planned(attention(Seen::all));
  EXPECT_THAT(selecting(planned), ElementsAre("score"));
  EXPECT_EQ(planned.op("score").outside, -std::numeric_limits<double>::infinity());
  EXPECT_EQ(planned.op("power").outside, 0.0);  // exp2(-inf - finite), without a test
}

TEST(TensorMasks, rows_without_keys_are_weighed_against_a_finite_maximum) {
  // There the maximum may still be -inf, and exp2(-inf + inf) is no number: the row's value is read as 0 then.
  for (const Seen seen : {Seen::causal, Seen::window}) {
    const PlannedTensor planned(attention(seen));
    EXPECT_THAT(selecting(planned), ElementsAre("score"));
    EXPECT_EQ(planned.op("power").outside, 0.0);
    EXPECT_TRUE(planned.op("power").finite_rows);
  }
}

TEST(TensorMasks, sums_of_scores_get_zeros) {
  const PlannedTensor planned(tensor_program(linear_attention_nest(), {.rules = {}}));
  EXPECT_THAT(selecting(planned), ElementsAre("score"));
  EXPECT_EQ(planned.op("score").outside, 0.0);
}

TEST(TensorMasks, rows_beyond_the_end_matter_to_memory_alone) {
  const PlannedTensor planned(attention(Seen::all));
  EXPECT_THAT(planned.op("correct weighted").mask, IsEmpty());
  EXPECT_FALSE(planned.op("correct weighted").memory_mask.empty());
}

TEST(TensorMasks, known_values_follow_infinities_and_zeros) {
  using samples::read;
  const double infinity = std::numeric_limits<double>::infinity();
  const auto known = [&](const ScalarExpr& expr, std::optional<double> first) {
    return nvptx::known_value(expr, {}, [&](int k) { return k == 0 ? first : std::nullopt; });
  };
  const ScalarExpr difference = minus(read(0), read(1));
  EXPECT_EQ(known(difference, -infinity), -infinity);
  EXPECT_EQ(known(ScalarExpr::make(ScalarOp::exp2, {difference}), -infinity), 0.0);
  EXPECT_EQ(known(times(read(0), read(1)), 0.0), 0.0);
  EXPECT_EQ(known(times(read(0), read(1)), 2.0), std::nullopt);
  EXPECT_TRUE(std::isnan(known(times(read(0), ScalarExpr::constant(infinity)), 0.0).value()));
  EXPECT_EQ(known(difference, 1.0), std::nullopt);
}

// ---- sums

TEST(TensorSums, a_sum_that_is_only_scaled_stays_in_lanes) {
  const PlannedTensor planned(attention(Seen::all));
  EXPECT_TRUE(planned.fragment("total").thread_sums);
  EXPECT_FALSE(planned.fragment("largest").thread_sums);  // every iteration needs it whole
}

// ---- events

const char* const kNames[] = {"full",   "empty", "load", "release", "next",  "product", "wait",   "compute",
                              "narrow", "test",  "sums", "take",    "turn?", "turn!",   "commit", "stores"};

/// "product dot", "full k", "wait 1" ...; loops and conditions in brackets.
void describe_events(const nvptx::TensorPlan& plan, const nvptx::EventNode& node, std::string& text) {
  if (node.kind == nvptx::EventNode::Kind::event) {
    const nvptx::Event& event = node.event;
    text += (text.empty() || text.back() == '[' ? "" : " ") + std::string(kNames[static_cast<int>(event.kind)]);
    if (event.kind == Kind::wait_products) text += std::to_string(event.count);
    if (event.kind == Kind::quad_reduction) {
      text += ":" + plan.buffer(event.ring).tensor;
    } else if (event.ring >= 0) {
      text += ":" + plan.buffer(plan.circular_buffers[static_cast<std::size_t>(event.ring)].buffer).name;
    } else if (event.op >= 0) {
      text += ":" + plan.ops[static_cast<std::size_t>(event.op)].op.name;
    }
    return;
  }
  const bool bracket = node.kind != nvptx::EventNode::Kind::sequence || !node.var.empty();
  if (bracket) text += text.empty() || text.back() == '[' ? "[" : " [";
  for (const nvptx::EventNode& child : node.children) describe_events(plan, child, text);
  if (bracket) text += "]";
}

std::string events_of(const TileProgram& program, bool producer = false, const NvptxTarget& target = {}) {
  const PlannedTensor planned(program, target);
  std::string text;
  describe_events(planned.plan, producer ? planned.plan.producer : planned.plan.consumer, text);
  return text;
}

TileProgram two_products(const std::vector<std::string>& more = {}) {
  return tensor_program(linear_attention_nest(), {.rules = {}, .more = more});
}

TEST(TensorEvents, each_operand_is_waited_for_and_released_when_its_product_has_ended) {
  const std::string body =
      "full:k product:dot wait0 release:k compute:score narrow:weighted full:v product:weighted wait0 release:v";
  EXPECT_EQ(events_of(two_products()), "full:q compute:weighted_init [" + body + "] [" + body + "] release:q compute:out");
  EXPECT_EQ(events_of(two_products(), true), "empty:q load:q [empty:k load:k empty:v load:v] [empty:k load:k empty:v load:v]");
}

TEST(TensorEvents, overlap_issues_the_products_of_two_iterations_together) {
  const std::string first = "[full:k product:dot wait0 release:k compute:score narrow:weighted]";
  const std::string body =
      "[full:k product:dot [full:v product:weighted] wait1 release:k compute:score wait0 release:v narrow:weighted]";
  const std::string last = "[full:v product:weighted wait0 release:v]";
  EXPECT_EQ(events_of(two_products({"intra_warpgroup_overlap(out.io)"})),
            "full:q compute:weighted_init [" + first + " " + body + " " + body + " " + last + "] release:q compute:out");
  const std::string loads = "[empty:k load:k [empty:v load:v]]";
  EXPECT_EQ(events_of(two_products({"intra_warpgroup_overlap(out.io)"}), true),
            "empty:q load:q [[empty:k load:k] " + loads + " " + loads + " [empty:v load:v]]");
}

TEST(TensorEvents, what_late_products_write_is_touched_under_their_cover) {
  const std::string text = events_of(attention(Seen::all, {"intra_warpgroup_overlap(out.io)"}));
  const std::string order =
      "compute:score compute:save largest compute:largest compute:correct total compute:power compute:total wait0 release:v "
      "compute:correct weighted narrow:weighted";
  EXPECT_THAT(text, HasSubstr(order));
}

/// Attention less half of another with the same values.
std::string events_of_two_maps(const std::vector<std::string>& more = {}) {
  return events_of(tensor_program(attention_nest({.maps = 2}), {.rules = two_map_rules(), .more = more}));
}

TEST(TensorEvents, products_that_read_the_same_tile_share_it_from_the_first_to_the_last) {
  const PlannedTensor planned(tensor_program(attention_nest({.maps = 2}), {.rules = two_map_rules()}));
  EXPECT_EQ(planned.op("weighted").b_ring, planned.op("weighted2").b_ring);
  const std::string text = events_of_two_maps();
  EXPECT_THAT(text, HasSubstr("full:v product:weighted compute:total full:k2 product:dot2 wait0 release:k2 compute:score2"));
  EXPECT_THAT(text, HasSubstr("narrow:weighted2 product:weighted2 compute:total2 wait0 release:v]"));
  EXPECT_THAT(text, Not(HasSubstr("full:v product:weighted2")));
}

TEST(TensorEvents, late_products_of_two_chains_share_a_tile) {
  EXPECT_THAT(events_of_two_maps({"intra_warpgroup_overlap(out.io)"}),
              HasSubstr("[full:k product:dot [full:v product:weighted product:weighted2] wait2 release:k compute:score"));
}

TEST(TensorEvents, chain_by_chain_each_computes_under_the_late_products_of_the_one_before) {
  const std::string text = events_of_two_maps({"intra_warpgroup_overlap(out.io, 1)", "ping_pong(out.io)"});
  EXPECT_THAT(text, HasSubstr("turn? [full:k product:dot] [product:weighted2] turn! [wait1 release:k compute:score "));
  EXPECT_THAT(text, HasSubstr("wait0 release:v narrow:weighted] turn? [full:k2 product:dot2] [full:v product:weighted] turn! "
                              "[wait1 release:k2 compute:score2 "));
  EXPECT_THAT(text, HasSubstr("compute:total2 wait0 narrow:weighted2]"));
}

TEST(TensorEvents, with_two_chains_under_way_none_waits_for_products_of_its_own) {
  const std::string text = events_of_two_maps({"intra_warpgroup_overlap(out.io, 2)"});
  EXPECT_THAT(text, HasSubstr("[full:v product:weighted] [full:k product:dot] [compute:score2 "));
  EXPECT_THAT(text, HasSubstr("wait0 release:k narrow:weighted2] [product:weighted2] [full:k2 product:dot2] [compute:score "));
  EXPECT_THAT(text, HasSubstr("wait0 release:v release:k2 narrow:weighted]"));
  // With stagger the first operand's stage is given back amid the exponentials of the chain that it was for.
  const std::string staggered = events_of_two_maps({"intra_warpgroup_overlap(out.io, 2)", "early_release(out.io)"});
  EXPECT_THAT(staggered, HasSubstr("compute:power2 release:k2 compute:total2 wait0 "));
  EXPECT_THAT(staggered, HasSubstr("compute:power release:k compute:total wait0 "));
  EXPECT_THAT(staggered, HasSubstr("wait0 release:v narrow:weighted]"));
}

TEST(TensorEvents, turns_stand_around_the_products_that_are_issued_together) {
  EXPECT_THAT(events_of(two_products({"ping_pong(out.io)"})), HasSubstr("[turn? full:k product:dot turn! wait0"));
  EXPECT_THAT(events_of(two_products({"intra_warpgroup_overlap(out.io)", "ping_pong(out.io)"})),
              HasSubstr("[turn? full:k product:dot [full:v product:weighted] turn! wait1"));
}

TEST(TensorEvents, a_held_operand_frees_its_tile_at_once) {
  EXPECT_THAT(events_of(two_products({"a_from_registers(out.io)"})), HasSubstr("full:q take:q release:q compute:weighted_init"));
}

TEST(TensorEvents, sums_in_lanes_are_added_up_once_before_they_are_used) {
  EXPECT_THAT(events_of(attention(Seen::all)), ::testing::EndsWith("release:q sums:total compute:out"));
}

// ---- shared memory

using Extent = std::pair<std::int64_t, std::int64_t>;

/// Bytes of every circular buffer, and of the tile that results leave through when `with_store`.
std::vector<Extent> extents_of(const PlannedTensor& planned, bool with_store) {
  std::vector<Extent> parts;
  for (const nvptx::CircularBuffer& ring : planned.plan.circular_buffers) {
    EXPECT_EQ(ring.offset % 1024, 0);
    parts.emplace_back(ring.offset, ring.offset + ring.stages * ring.stage_bytes());
  }
  const std::int64_t stage = planned.op("out").stage_offset;
  if (with_store) parts.emplace_back(stage, stage + 128 * 128);
  std::sort(parts.begin(), parts.end());
  EXPECT_LE(parts.back().second, planned.plan.barriers_offset);
  EXPECT_LT(planned.plan.barriers_offset, planned.plan.shared_bytes);
  return parts;
}

void expect_apart(const std::vector<Extent>& parts) {
  for (std::size_t k = 1; k < parts.size(); ++k) EXPECT_LE(parts[k - 1].second, parts[k].first);
}

TEST(TensorMemory, results_leave_through_the_operand_that_stayed_for_the_item) {
  const PlannedTensor planned(attention(Seen::all));
  ASSERT_TRUE(planned.op("out").through_shared);
  EXPECT_EQ(planned.op("out").row_index, 1);
  EXPECT_EQ(planned.op("out").stage_offset, planned.ring("q").offset);
  EXPECT_EQ(planned.ring("k").stage_bytes(), 64 * 128);
  expect_apart(extents_of(planned, false));
}

TEST(TensorMemory, or_through_a_tile_of_their_own_where_the_next_items_operand_is_under_way) {
  expect_apart(extents_of(PlannedTensor(attention(Seen::all, {"persistent(out.io, 1)"})), true));
}

TEST(TensorMemory, or_through_the_operands_after_all_where_there_is_no_room_and_the_next_one_waits) {
  NvptxTarget target;
  target.shared_limit = 56 << 10;
  const PlannedTensor planned(attention(Seen::all, {"persistent(out.io, 1)"}), target);
  EXPECT_EQ(planned.op("out").stage_offset, planned.ring("q").offset);
  expect_apart(extents_of(planned, false));
  EXPECT_THAT(events_of(attention(Seen::all, {"persistent(out.io, 1)"}), false, target),
              ::testing::EndsWith("compute:out stores release:q"));
  // Operands in registers have given their place to the next ones by then.
  EXPECT_THROW(PlannedTensor(attention(Seen::all, {"a_from_registers(out.io)", "persistent(out.io, 1)"}), target), UserError);
}

TEST(TensorMemory, blocks_of_32_columns_leave_where_64_do_not_divide_them) {
  for (const auto& [columns, width] : {std::pair(64, 64), {96, 32}, {128, 64}, {160, 32}, {224, 32}}) {
    const PlannedTensor planned(product_program({}, {.columns = columns}));
    ASSERT_TRUE(planned.op("out").through_shared) << columns;
    EXPECT_EQ(planned.op("out").stage_columns, width);
    EXPECT_EQ(planned.op("out").stage_blocks, columns / width);
  }
  EXPECT_FALSE(PlannedTensor(product_program({}, {.columns = 80})).op("out").through_shared);
}

TEST(TensorMemory, results_of_32_bits_are_stored_element_by_element) {
  EXPECT_FALSE(PlannedTensor(attention(Seen::all, {}, {.result = ElementType::f32})).op("out").through_shared);
}

// Copies write whole units of 16 bytes, beyond the end of a row as well.
TEST(TensorMemory, results_whose_rows_are_no_multiple_of_16_bytes_are_stored_element_by_element) {
  EXPECT_TRUE(PlannedTensor(attention(Seen::all, {}, {.depth = 56})).op("out").through_shared);
  EXPECT_FALSE(PlannedTensor(attention(Seen::all, {}, {.depth = 60})).op("out").through_shared);
}

// ---- the interpreter that other tests rely on

/// What it says when the consumers' events are changed.
std::string complaint(const std::function<void(std::vector<nvptx::EventNode>&)>& spoil) {
  const TileProgram program =
      tensor_program(linear_attention_nest(ElementType::f16, 16), {.rules = {}, .rows = 64, .columns = 16, .warpgroups = 1});
  PlannedTensor planned(program);
  for (nvptx::EventNode& node : planned.plan.consumer.children) {
    if (node.kind == nvptx::EventNode::Kind::loop) spoil(node.children);
  }
  std::map<std::string, std::vector<double>> memory;
  for (const char* name : {"q", "k", "v", "out"}) memory[name].assign(130 * 16, 1);
  try {
    TensorInterpreter(planned.plan, {{"H", 1}, {"Q", 130}, {"K", 130}}, {{"scale", 1}}, memory, {}).run();
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}

std::size_t find(const std::vector<nvptx::EventNode>& events, Kind kind, std::size_t from = 0) {
  while (events.at(from).event.kind != kind) ++from;
  return from;
}

TEST(TensorInterpreter, finds_what_a_gpu_would_get_wrong_silently) {
  EXPECT_EQ(complaint([](auto&) {}), "");
  EXPECT_THAT(
      complaint([](auto& events) { std::swap(events[find(events, Kind::wait_products)], events[find(events, Kind::release)]); }),
      HasSubstr("a tile is released under a product"));
  EXPECT_THAT(
      complaint([](auto& events) { events.erase(events.begin() + static_cast<std::ptrdiff_t>(find(events, Kind::release))); }),
      HasSubstr("roles wait for each other for ever"));
  EXPECT_THAT(
      complaint([](auto& events) { events.erase(events.begin() + static_cast<std::ptrdiff_t>(find(events, Kind::wait_full))); }),
      HasSubstr("before it has arrived"));
  EXPECT_THAT(
      complaint([](auto& events) { std::swap(events[find(events, Kind::wait_products)], events[find(events, Kind::compute)]); }),
      HasSubstr("a tile is read under a product"));
}

// ---- as text

TEST(TensorPlanText, has_values_stages_and_the_events_of_every_role) {
  const PlannedTensor planned(attention(Seen::causal));
  const std::string text = nvptx::describe(planned.plan);
  for (const char* part :
       {"2 consumer warpgroups of 64 rows and a producer warp", "score: registers, 64 columns", "(k): [", "2 stages from byte",
        "consumers:", "producer:", "wait_full", "product dot", "wait_products but", "release", "wait_empty", "load"})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_LT(text.find("consumers:"), text.find("producer:"));
}

TEST(TensorPlanText, of_all_threads_has_one_role) {
  NvptxTarget older;
  older.sm = 80;
  const PlannedTensor planned(attention(Seen::all), older);
  const std::string text = nvptx::describe(planned.plan);
  EXPECT_THAT(text, HasSubstr("all threads:"));
  EXPECT_THAT(text, HasSubstr("commit_copies"));
  EXPECT_THAT(text, Not(HasSubstr("producer:")));
}

}  // namespace
}  // namespace nestor::testing
