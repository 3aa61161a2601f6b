// What a user reads when a kernel cannot use tensor cores.
#include "codegen/gpu/backend.h"
#include "codegen/tile/analysis/tile_rewrite.h"
#include "support/nests/tensor_nests.h"
#include "support/simt/simt_programs.h"
#include "support/tensor/product_chain.h"
#include "support/tensor/product_nests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal(const TileProgram& program, const NvptxTarget& target = {}) {
  try {
    compile_nvptx(program, target);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

/// Attention that fits; every test spoils it in one place.
const TileProgram& attention() {
  static const TileProgram program = tensor_program(attention_nest({.depth = 16}), {.rows = 64, .columns = 32, .warpgroups = 1});
  return program;
}

TileTree edited(const TileTree& tree, const std::function<void(TileNode&)>& edit) {
  TileNode node = *tree;
  for (TileTree& child : node.children) child = edited(child, edit);
  edit(node);
  return std::make_shared<const TileNode>(std::move(node));
}

std::string refusal_with_op(const std::string& name, const std::function<void(TileOp&)>& edit) {
  TileProgram program = attention();
  program.root = edited(program.root, [&](TileNode& node) {
    if (node.kind == TileNode::Kind::op && node.op.name == name) edit(node.op);
  });
  return refusal(program);
}

std::string refusal_with_buffer(const std::string& name, const std::function<void(Buffer&)>& edit) {
  TileProgram program = attention();
  for (Buffer& buffer : program.buffers) {
    if (buffer.name == name) edit(buffer);
  }
  return refusal(program);
}

/// Spoils the loop over key tiles.
std::string refusal_with_stream(const std::function<void(TileNode&)>& edit) {
  TileProgram program = attention();
  program.root = edited(program.root, [&](TileNode& node) {
    if (node.kind == TileNode::Kind::loop && node.loop_kind == LoopKind::serial) edit(node);
  });
  return refusal(program);
}

TEST(TensorError, nothing_is_wrong_with_what_the_tests_start_from) { EXPECT_EQ(refusal(attention()), ""); }

TEST(TensorError, a_constant_within_a_sum_of_products) {
  EXPECT_THAT(refusal_with_op("dot",
                              [](TileOp& op) {
                                op.value = times(op.value, ScalarExpr::constant(0.5));
                                op.contraction->scale = 0.5;
                              }),
              HasSubstr("cannot use tensor cores: dot multiplies by 0.5 within its sum: multiply the sum by it instead."));
}

TEST(TensorError, chain_by_chain_with_one_chain) {
  EXPECT_THAT(refusal(tensor_program(attention_nest({.depth = 16}), {.more = {"intra_warpgroup_overlap(out.io, 2)"}})),
              AllOf(HasSubstr("cannot overlap products chain by chain"), HasSubstr("there is one chain"),
                    HasSubstr("Leave in_flight out of intra_warpgroup_overlap")));
}

TEST(TensorError, chain_by_chain_with_a_chain_that_nothing_can_run_beside) {
  const auto without = [](const std::string& name) {
    TileProgram program = tensor_program(attention_nest({.depth = 16, .maps = 2}),
                                         {.rules = two_map_rules(), .more = {"intra_warpgroup_overlap(out.io, 1)"}});
    program.root = edited(program.root, [&](TileNode& node) {
      if (node.kind == TileNode::Kind::op && node.op.name == name) node.kind = TileNode::Kind::sequence;
    });
    return refusal(program);
  };
  EXPECT_EQ(without("nothing"), "");
  EXPECT_THAT(without("weighted2"), AllOf(HasSubstr("the ops around dot2 depend on no others of their loop"),
                                          HasSubstr("end in no product that only the next iteration needs")));
  EXPECT_THAT(without("dot2"), HasSubstr("do not begin with a product of two operands in memory"));
}

TEST(TensorError, ping_pong_on_other_devices) {
  const TileProgram program = tensor_program(attention_nest({.depth = 16}), {.more = {"ping_pong(out.io)"}});
  EXPECT_EQ(refusal(program), "");
  EXPECT_THAT(refusal(program, older()),
              HasSubstr("step `ping_pong` needs compute capability 9.0 or newer, not 8.0: leave the step out"));
  const TileProgram chains = tensor_program(attention_nest({.depth = 16, .maps = 2}),
                                            {.rules = two_map_rules(), .more = {"intra_warpgroup_overlap(out.io, 1)"}});
  EXPECT_THAT(refusal(chains, older()), HasSubstr("step `intra_warpgroup_overlap` with `in_flight` needs compute capability 9.0 "
                                                  "or newer, not 8.0: leave the argument out"));
}

TEST(TensorError, work_tiles_that_warpgroups_cannot_take_in_turn) {
  const auto refusal_of = [](Seen seen, std::vector<std::string> more) {
    more.emplace_back("ping_pong_tiles(out.io)");
    return refusal(
        tensor_program(attention_nest({.seen = seen, .depth = 16}), {.rows = 64, .columns = 32, .more = std::move(more)}));
  };
  const std::string stays = "persistent(out.io, 1)";
  EXPECT_EQ(refusal_of(Seen::all, {stays}), "");
  TileProgram once = tensor_program(attention_nest({.depth = 16}), {.rows = 64, .columns = 32});
  once.root = edited(once.root, [](TileNode& node) {
    if (node.knobs.contains("warpgroups")) node.knobs["ping_pong_tiles"] = 1;
  });
  EXPECT_THAT(refusal(once), HasSubstr("a block that does not stay has one: add persistent"));
  EXPECT_THAT(refusal_of(Seen::all, {stays, "dynamic_scheduler(out.io)"}), HasSubstr("leave out dynamic_scheduler"));
  EXPECT_THAT(refusal_of(Seen::all, {stays, "ping_pong(out.io)"}), HasSubstr("leave out ping_pong"));
  EXPECT_THAT(refusal_of(Seen::causal, {stays}),
              HasSubstr("all work tiles have as many iterations, and here out_io tells how many: leave it out"));
}

TEST(TensorError, programmatic_launches_on_other_devices) {
  const TileProgram program = product_chain(product_chain_nest(), {"programmatic_launch(out.io)"});
  EXPECT_EQ(refusal(program), "");
  EXPECT_THAT(refusal(program, older()),
              HasSubstr("step `programmatic_launch` needs compute capability 9.0 or newer, not 8.0: leave the step out"));
}

TEST(TensorError, operands_in_the_workspace_that_no_copy_can_bring) {
  TileProgram program = product_chain(product_chain_nest());
  const auto low = std::find_if(program.buffers.begin(), program.buffers.end(), [](const Buffer& b) { return b.name == "low"; });
  ASSERT_NE(low, program.buffers.end());
  program.root = edited(program.root, [&](TileNode& node) {
    if (node.kind == TileNode::Kind::op && node.op.name == "out")
      node.op.write.buffer = static_cast<int>(low - program.buffers.begin());
  });
  EXPECT_THAT(refusal(program),
              HasSubstr("sum reads low, which the same kernel writes: compute it in a kernel of its own before"));
  // Four columns are too few to pad rows for.
  EXPECT_THAT(refusal(product_chain(product_chain_nest("4"))),
              HasSubstr("sum reads low, whose rows are no multiple of 8 elements in memory"));
  EXPECT_EQ(refusal(product_chain(product_chain_nest("20"))), "");
}

TEST(TensorError, clusters_on_other_devices) {
  const TileProgram program = tensor_program(attention_nest({.depth = 16}), {.more = {"cluster(out.io, 2)"}});
  EXPECT_EQ(refusal(program), "");
  EXPECT_THAT(refusal(program, older()), HasSubstr("step `cluster` needs compute capability 9.0 or newer, not 8.0"));
  EXPECT_THROW(certify_kernels(program, older()), UserError);
}

TEST(TensorError, packs_of_rows_on_other_devices) {
  const TileProgram program =
      tensor_program(attention_nest({.depth = 16, .grouped = true}), {.rows = 64, .columns = 32, .warpgroups = 1, .pack = 4});
  EXPECT_EQ(refusal(program), "");
  EXPECT_THAT(refusal(program, older()),
              AllOf(HasSubstr("rows of two loops, 4 of one for each of the other"),
                    HasSubstr("compute capability 9.0 or newer, not 8.0"), HasSubstr("do not split the outer one")));
}

TEST(TensorError, packs_of_too_many_rows) {
  const TileProgram program =
      tensor_program(attention_nest({.depth = 16, .grouped = true}), {.rows = 64, .columns = 32, .warpgroups = 1, .pack = 16});
  EXPECT_THAT(refusal(program), AllOf(HasSubstr("dot has rows along dot_gi and dot_ii"),
                                      HasSubstr("one of the two may have 8 values at most in a tile")));
}

TEST(TensorError, packs_that_one_product_has_not) {
  TileProgram program =
      tensor_program(attention_nest({.depth = 16, .grouped = true}), {.rows = 64, .columns = 32, .warpgroups = 1, .pack = 4});
  program.root = edited(program.root, [&](TileNode& node) {
    if (node.kind != TileNode::Kind::op || node.op.name != "dot") return;
    for (OpDim& dim : node.op.dims) {
      if (dim.var == "dot_gi") dim.upper = IntExpr(1);
    }
  });
  EXPECT_THAT(refusal(program), HasSubstr("has one row where other products have a pack of them"));
}

TEST(TensorError, work_tiles_that_each_block_of_a_cluster_would_draw) {
  const TileProgram program = tensor_program(
      attention_nest({.depth = 16}), {.more = {"persistent(out.io, 1)", "dynamic_scheduler(out.io)", "cluster(out.io, 2)"}});
  EXPECT_THAT(refusal(program), AllOf(HasSubstr("with a dynamic scheduler a block draws work tiles for itself"),
                                      HasSubstr("clusters of 2 blocks"), HasSubstr("leave out dynamic_scheduler or cluster")));
}

TEST(TensorError, tiles_that_blocks_cannot_share_out) {
  const TileProgram program = tensor_program(attention_nest({.depth = 16}),
                                             {.rows = 256, .columns = 48, .warpgroups = 1, .more = {"cluster(out.io, 4)"}});
  EXPECT_THAT(refusal(program),
              AllOf(HasSubstr("4 blocks of a cluster cannot share out a tile of 'k' with 48 rows of 16 elements"),
                    HasSubstr("choose a multiple of 32 rows, or a smaller cluster")));
}

TEST(TensorError, kernels_without_products) {
  const std::string message = refusal(norm_program(ElementType::f16, 1024, 1, false, {.warpgroups = 2}));
  EXPECT_THAT(message, AllOf(HasSubstr("asks for tensor cores"), HasSubstr("none of its ops is a product of two 16-bit tiles")));
}

TEST(TensorError, operands_of_other_types) {
  const TileProgram single = tensor_program(attention_nest({.type = ElementType::f32, .result = ElementType::f32, .depth = 16}));
  EXPECT_THAT(refusal(single), HasSubstr("dot has operands that are not f16 or bf16"));
  EXPECT_EQ(refusal_with_buffer("v", [](Buffer& v) { v.type = ElementType::bf16; }), "") << "a product of its own";
  EXPECT_THAT(refusal_with_buffer("power", [](Buffer& weights) { weights.type = ElementType::bf16; }),
              HasSubstr("weighted mixes element types"));
  EXPECT_THAT(refusal_with_buffer("q", [](Buffer& q) { q.type = ElementType::bf16; }), HasSubstr("dot mixes element types"));
  EXPECT_THAT(refusal_with_buffer("score", [](Buffer& s) { s.type = ElementType::i32; }),
              HasSubstr("score keeps integers in a tile"));
}

TEST(TensorError, operands_that_no_copy_can_bring) {
  const std::string strided =
      refusal_with_op("dot", [](TileOp& op) { op.reads[1].index.back() = IntExpr(2) * op.reads[1].index.back(); });
  EXPECT_THAT(strided, HasSubstr("dot reads k other than by rows of neighbouring elements"));
  const std::string many = refusal(tensor_program(attention_nest({.depth = 16}), {.rows = 320, .columns = 32, .warpgroups = 1}));
  EXPECT_THAT(many, AllOf(HasSubstr("a tile of 'q' has 320 rows"), HasSubstr("256 at most"), HasSubstr("choose smaller tiles")));
}

TEST(TensorError, shared_memory_tells_what_is_needed_and_what_there_is) {
  const TileProgram program = tensor_program(attention_nest({.depth = 128}), {.columns = 128, .stages = 4});
  EXPECT_THAT(refusal(program), AllOf(HasSubstr("needs 296448 bytes of shared memory"), HasSubstr("a block has 232448"),
                                      HasSubstr("smaller tiles or fewer stages")));
}

TEST(TensorError, operands_and_sums_in_the_wrong_place) {
  EXPECT_EQ(refusal_with_buffer("dot", [](Buffer& dot) { dot.memory = Memory::workspace; }), "") << "it moves to a tile";
  EXPECT_THAT(refusal_with_buffer("dot", [](Buffer& dot) { dot.memory = Memory::argument; }),
              HasSubstr("dot writes memory: sum into a tile first"));
  TileProgram program = attention();
  program.buffers.push_back(program.buffers.back());
  program.buffers.back().extents = {IntExpr(1), IntExpr(32), IntExpr(16)};
  program.root = edited(program.root, [&](TileNode& node) {
    if (node.kind != TileNode::Kind::op || node.op.name != "dot") return;
    node.op.reads[1] = {static_cast<int>(program.buffers.size()) - 1, {IntExpr(0), var("dot_ji"), var("dot_e")}};
  });
  // What is in registers is the first operand: its rows are the columns of before.
  EXPECT_THAT(refusal(program), HasSubstr("dot uses the rows of another product as columns"));
}

TEST(TensorError, rows) {
  const auto tall = [](TileOp& op) {
    op.dims[0].upper = IntExpr(500);
    op.dims[0].max_extent = 500;
  };
  EXPECT_THAT(refusal_with_op("largest_init", tall),
              HasSubstr("largest_init has 500 rows where 1 warpgroups take 64 each, 64 in all"));
  const auto unknown = [](TileOp& op) {
    op.dims[0].upper = var("anything");
    op.dims[0].max_extent.reset();
  };
  EXPECT_THAT(refusal_with_op("largest_init", unknown), HasSubstr("largest_init has unknown rows"));
  const auto without = [](TileOp& op) {
    op.write.index[1] = IntExpr(0);
    op.dims.clear();
  };
  EXPECT_THAT(refusal_with_op("largest_init", without), HasSubstr("largest_init keeps values that no row belongs to"));
  const auto turned = [](TileOp& op) { std::swap(op.reads[0].index[1], op.reads[0].index[2]); };
  EXPECT_THAT(refusal_with_op("weighted", turned), HasSubstr("uses the rows of another product as columns"));
}

TEST(TensorError, reductions_of_rows) {
  const auto other = [](TileOp& op) { std::swap(op.dims[0].reduced, op.dims[1].reduced); };
  EXPECT_THAT(refusal_with_op("total", other), HasSubstr("total reduces its rows"));
  const auto alone = [](TileOp& op) {
    op.reads[0].index[2] = IntExpr(0);
    op.dims.pop_back();
  };
  EXPECT_THAT(refusal_with_op("total", alone), HasSubstr("total finds rows and columns of power at other indices than power"));
}

TEST(TensorError, ops_of_another_shape) {
  EXPECT_THAT(refusal_with_op("score", [](TileOp& op) { op.kind = OpKind::points; }),
              HasSubstr("score is no operation on whole tiles"));
  const auto deeper = [](TileOp& op) { op.dims.push_back(reduced_dim("x", 0, 4)); };
  EXPECT_THAT(refusal_with_op("dot", deeper), HasSubstr("dot is a product of more than rows, columns and one reduced dimension"));
  const auto wider = [](TileOp& op) { op.dims.push_back(parallel_dim("x", 0, 4)); };
  EXPECT_THAT(refusal_with_op("score", wider), HasSubstr("score has more dimensions than rows and columns"));
  const auto moved = [](TileOp& op) { op.reads[0].index[2] = op.reads[0].index[2] + IntExpr(1); };
  EXPECT_THAT(refusal_with_op("score", moved), HasSubstr("score reaches a tile at score_ji + 1, not at its own position"));
  const auto open = [](TileOp& op) {
    op.dims[1].upper = var("anything");
    op.dims[1].max_extent.reset();
  };
  EXPECT_THAT(refusal_with_op("score", open), HasSubstr("score has as many columns as"));
}

TEST(TensorError, parts_of_tiles_that_copies_bring_whole) {
  const auto narrower = [](TileOp& op) { op.dims[2].upper = IntExpr(12); };
  EXPECT_THAT(refusal_with_op("dot", narrower),
              AllOf(HasSubstr("dot adds up a part of its tile of q, and not up to the end of q"), HasSubstr("11 >= #column")));
  const auto guarded = [](TileOp& op) { op.guard = IntExpr::make(IntOp::ge, {var("dot_ii"), var("dot_e")}); };
  EXPECT_THAT(refusal_with_op("dot", guarded), HasSubstr("dot adds up a part of its tile of q"));
}

TEST(TensorError, control_flow) {
  EXPECT_THAT(refusal_with_stream([](TileNode& loop) { loop.step = 2; }), HasSubstr("loop total_jo has step 2"));
  const auto nested = [](TileNode& node) {
    const TileTree inner = std::make_shared<const TileNode>(node);
    node.var = "again";
    node.children = {inner};
  };
  EXPECT_THAT(refusal_with_stream(nested), HasSubstr("loop total_jo stands inside another one"));
  const auto conditional = [](TileNode& node) {
    const TileTree inner = std::make_shared<const TileNode>(node);
    node = {};
    node.kind = TileNode::Kind::condition;
    node.condition = IntExpr::make(IntOp::gt, {var("K"), IntExpr(5)});
    node.children = {inner};
  };
  EXPECT_EQ(refusal_with_stream(conditional), "");
}

TEST(TensorError, halves_of_operands_that_are_not_computed) {
  const TileProgram program = product_program({}, {.more = {"operand_halves(out.io)"}});
  EXPECT_THAT(refusal(program), HasSubstr("has no product with a first operand computed in f32: leave out operand_halves"));
}

}  // namespace
}  // namespace nestor::testing
