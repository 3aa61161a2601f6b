// What a user reads when a step is mistyped or does not fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "poly/schedule/schedule.h"
#include "support/error.h"
#include "support/nests/sample_nests.h"

namespace nestor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// The message of the UserError that `step` causes after `before`; empty when there is none.
std::string error_of(const Nest& nest, const std::vector<std::string>& before, const std::string& step) {
  Schedule schedule{nest};
  for (const std::string& text : before) schedule = schedule.apply(parse_step(text));
  try {
    schedule.apply(parse_step(step));
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

std::string matmul_error(const std::string& step) { return error_of(samples::matmul(), {}, step); }

TEST(StepError, unknown_step_lists_the_steps) {
  EXPECT_THAT(matmul_error("splti(k, 4, a, b)"), AllOf(HasSubstr("no step `splti`"), HasSubstr("split, tile")));
}

TEST(StepError, wrong_number_of_arguments_shows_the_right_ones) {
  EXPECT_THAT(matmul_error("split(k, 4)"), HasSubstr("split takes (loop, factor, outer, inner), but 2 arguments were given"));
  EXPECT_THAT(matmul_error("reverse()"), HasSubstr("0 arguments were given"));
}

TEST(StepError, wrong_type_of_argument_is_named) {
  EXPECT_THAT(matmul_error("split(k, four, a, b)"), HasSubstr("argument 2 must be an integer"));
  EXPECT_THAT(matmul_error("split(3, 4, a, b)"), HasSubstr("argument 1 must be a name"));
}

TEST(StepError, factor_out_of_range) {
  EXPECT_THAT(matmul_error("split(k, 0, a, b)"), HasSubstr("argument 2 must be between 1 and"));
  EXPECT_THAT(matmul_error("split(k, 99999999999, a, b)"), HasSubstr("must be between"));
  EXPECT_THAT(matmul_error("skew(C_update.i, C_update.j, 99999999999)"), HasSubstr("must be between"));
}

TEST(StepError, factors_of_many_steps_cannot_overflow) {
  const std::vector<std::string> splits{"split(k, 1000000, a, b)", "split(a, 1000000, c, d)"};
  EXPECT_THAT(error_of(samples::matmul(), splits, "split(c, 1000000, e, f)"), HasSubstr("too large for statement C_update"));
}

TEST(StepError, unknown_loop_lists_the_loops) {
  EXPECT_THAT(matmul_error("parallel(q)"), AllOf(HasSubstr("no loop `q`"), HasSubstr("C_init.i, C_init.j, C_update.i")));
}

TEST(StepError, ambiguous_dimension_lists_the_candidates) {
  EXPECT_THAT(matmul_error("parallel(i)"), AllOf(HasSubstr("`i` may mean"), HasSubstr("C_init.i, C_update.i")));
}

TEST(StepError, unknown_statement_and_tensor_list_what_there_is) {
  EXPECT_THAT(matmul_error("shift(D, k, 1)"), AllOf(HasSubstr("no statement `D`"), HasSubstr("C_init, C_update")));
  EXPECT_THAT(matmul_error("streaming(D)"), AllOf(HasSubstr("no tensor `D`"), HasSubstr("A, B, C")));
}

TEST(StepError, loop_names_must_be_new_and_well_formed) {
  EXPECT_THAT(matmul_error("split(k, 4, C_update.i, ki)"), HasSubstr("there is a loop `C_update.i` already"));
  EXPECT_THAT(matmul_error("split(k, 4, ko, ko)"), HasSubstr("different names"));
  EXPECT_THAT(matmul_error("split(k, 4, k-o, ki)"), HasSubstr("cannot name a loop"));
  EXPECT_THAT(matmul_error("split(k, 4, M, ki)"), HasSubstr("name of a size"));
}

TEST(StepError, imperfect_chain_says_fission_first) {
  const std::vector<std::string> fused{"fuse_with(C_init.i, C_update.i)"};
  EXPECT_THAT(error_of(samples::matmul(), fused, "reorder(C_update.k, C_update.i)"),
              HasSubstr("fission(C_update.i, C_update) first"));
  EXPECT_THAT(error_of(samples::matmul(), fused, "tile(C_update.i, C_update.j, a, b, c, d, 2, 2)"), HasSubstr("fission"));
  EXPECT_EQ(error_of(samples::matmul(), {fused[0], "fission(C_update.i, C_update)"}, "reorder(C_update.k, C_update.i_f)"), "");
}

TEST(StepError, loops_of_different_nests_are_not_nested) {
  EXPECT_THAT(matmul_error("reorder(C_init.i, C_update.i)"), HasSubstr("not nested in one another"));
  EXPECT_THAT(matmul_error("skew(C_init.i, C_update.i, 1)"), HasSubstr("must be inside"));
  EXPECT_THAT(matmul_error("skew(C_update.j, C_update.i, 1)"), HasSubstr("loop C_update.i must be inside C_update.j"));
  EXPECT_THAT(matmul_error("fuse_with(C_init.j, C_update.j)"), HasSubstr("fuse the loops around them first"));
  EXPECT_THAT(matmul_error("tile(C_update.j, C_update.i, a, b, c, d, 2, 2)"), HasSubstr("name the outer one first"));
}

TEST(StepError, a_loop_is_no_partner_of_itself) {
  EXPECT_THAT(matmul_error("fuse_with(C_update.i, C_update.i)"), HasSubstr("cannot be fused with itself"));
  EXPECT_THAT(matmul_error("reorder(C_update.i, C_update.i)"), HasSubstr("named twice"));
}

TEST(StepError, fission_needs_two_parts) {
  EXPECT_THAT(matmul_error("fission(C_update.i, C_init)"), HasSubstr("is not inside loop C_update.i"));
  EXPECT_THAT(matmul_error("fission(C_update.k, C_update)"), HasSubstr("nothing comes before C_update"));
}

TEST(StepError, fission_of_a_recurrence_names_the_instances) {
  const Nest nest = samples::NestBuilder("recurrence", {{"N", 8}})
                        .context("N >= 2")
                        .tensor("a", TensorRole::output, {"N"})
                        .tensor("b", TensorRole::output, {"N"})
                        .statement("one[i] : 1 <= i < N", "a[i]", {"b[i - 1]"}, samples::read(0))
                        .statement("two[i] : 1 <= i < N", "b[i]", {"a[i]"}, samples::read(0))
                        .join_last()
                        .build();
  EXPECT_THAT(error_of(nest, {}, "fission(i, two)"),
              AllOf(HasSubstr("two[i=1] must come before one[i=2] (flow through b)"), HasSubstr("for example at N=3")));
}

TEST(StepError, lanes_that_update_elements_of_each_other_are_refused) {
  const auto nest = [](const std::string& element) {
    return samples::NestBuilder("overlapping", {{"n", 9}, {"m", 4}})
        .tensor("x", TensorRole::input, {"n", "m"})
        .tensor("out", TensorRole::output, {"2n + m"})
        .statement("z[b] : 0 <= b < 2n + m", "out[b]", {}, samples::number(0))
        .statement("u[i, j] : 0 <= i < n and 0 <= j < m", "out[" + element + "]", {"x[i, j]"}, samples::read(0), ReductionOp::add)
        .build();
  };
  for (const std::string step : {"vectorize(u.i)", "gpu_lanes(u.i)"}) {
    for (const std::string element : {"i + j", "floor(i / 3)", "2i + j", "i mod 2"}) {
      EXPECT_THAT(error_of(nest(element), {"apply_rule(reassociate)"}, step),
                  AllOf(HasSubstr("is illegal"), HasSubstr("two iterations of u.i update one element")))
          << element;
    }
    EXPECT_EQ(error_of(nest("j"), {"apply_rule(reassociate)"}, step), "") << "lanes have partial sums of the same elements";
    EXPECT_EQ(error_of(nest("i"), {"apply_rule(reassociate)"}, step), "") << "lanes have elements of their own";
  }
  EXPECT_THAT(error_of(nest("floor(i / 3)"), {"apply_rule(reassociate)", "split(u.i, 3, io, ii)"}, "vectorize(io)"), "");
}

TEST(StepError, marked_loops_are_split_before_marking) {
  EXPECT_THAT(error_of(samples::matmul(), {"vectorize(C_update.j)"}, "split(C_update.j, 8, jo, ji)"),
              HasSubstr("split it first"));
}

TEST(StepError, tensor_cores_belong_to_a_grid_and_their_options_to_them) {
  EXPECT_THAT(matmul_error("tensor_cores(C_update.i, 2)"), HasSubstr("apply gpu_blocks(C_update.i) first"));
  const std::vector<std::string> grid{"gpu_blocks(C_update.i)"};
  for (const std::string step : {"intra_warpgroup_overlap", "ping_pong", "a_from_registers", "early_release"}) {
    EXPECT_THAT(error_of(samples::matmul(), grid, step + "(C_update.i)"), HasSubstr("apply tensor_cores(C_update.i, 2) first"));
  }
  EXPECT_THAT(error_of(samples::matmul(), grid, "tensor_cores(C_update.i, 4)"), HasSubstr("argument 2 must be between 1 and 3"));
  EXPECT_THAT(error_of(samples::matmul(), grid, "tensor_cores(C_update.i, 2, 17)"),
              HasSubstr("argument 3 must be between 1 and 16"));
  EXPECT_EQ(error_of(samples::matmul(), {grid[0], "tensor_cores(C_update.i, 2)"}, "intra_warpgroup_overlap(C_update.i)"), "");
  EXPECT_EQ(error_of(samples::matmul(), {grid[0], "tensor_cores(C_update.i, 2)"}, "intra_warpgroup_overlap(C_update.i, 2)"), "");
  EXPECT_THAT(error_of(samples::matmul(), {grid[0], "tensor_cores(C_update.i, 2)"}, "intra_warpgroup_overlap(C_update.i, 3)"),
              HasSubstr("argument 2 must be between 1 and 2"));
  EXPECT_THAT(error_of(samples::matmul(), grid, "exp2_polynomial(C_update.i, 2)"),
              HasSubstr("apply tensor_cores(C_update.i, 2) first"));
  EXPECT_THAT(error_of(samples::matmul(), {grid[0], "tensor_cores(C_update.i, 2)"}, "exp2_polynomial(C_update.i, 17)"),
              HasSubstr("argument 2 must be between 0 and 16"));
  EXPECT_THAT(error_of(samples::matmul(), {grid[0], "tensor_cores(C_update.i, 2)"}, "dynamic_scheduler(C_update.i)"),
              HasSubstr("apply persistent(C_update.i, 1) first"));
}

TEST(StepError, values_of_knobs_that_no_machine_takes) {
  const std::vector<std::string> grid{"gpu_blocks(C_update.i)"};
  EXPECT_THAT(error_of(samples::matmul(), grid, "gpu_threads(C_update.i, 48)"),
              HasSubstr("count must be a multiple of 32, not 48"));
  EXPECT_THAT(error_of(samples::matmul(), grid, "cluster(C_update.i, 3)"), HasSubstr("blocks must be a power of two, not 3"));
  EXPECT_THAT(error_of(samples::matmul(), grid, "cluster(C_update.i, 32)"), HasSubstr("argument 2 must be between 1 and 16"));
  EXPECT_THAT(error_of(samples::matmul(), grid, "min_blocks(C_update.i)"),
              HasSubstr("min_blocks takes (loop, blocks), but 1 argument was given"));
  EXPECT_THAT(matmul_error("cluster(C_update.i, 2)"), HasSubstr("apply gpu_blocks(C_update.i) first"));
}

TEST(StepError, stage_explains_what_it_cannot_copy) {
  EXPECT_THAT(matmul_error("stage(A, C_update.i, cellar)"),
              HasSubstr("argument 3 must be an integer; stage takes (tensor, loop[, stages])"));
  EXPECT_THAT(matmul_error("stage(A, C_init.i)"), HasSubstr("nothing in loop C_init.i reads A"));
  const Nest nest = samples::row_norm();
  const std::vector<std::string> fused{"fuse_with(variance_update.i, out.i)"};
  EXPECT_THAT(error_of(nest, fused, "stage(variance, out.i)"), HasSubstr("written by variance_update inside loop out.i"));
  EXPECT_THAT(error_of(nest, {"stage(variance, out.i)"}, fused[0]), HasSubstr("would be stale"));
}

TEST(StepError, temporaries_do_not_bypass_the_caches) {
  EXPECT_THAT(error_of(samples::row_norm(), {}, "streaming(mean)"), HasSubstr("is a temporary"));
}

TEST(StepError, algebra_comes_first) {
  EXPECT_THAT(error_of(samples::matmul(), {"split(k, 4, ko, ki)"}, "apply_rule(reassociate)"), HasSubstr("before any loop step"));
  EXPECT_THAT(matmul_error("apply_rule(no_such_rule)"), HasSubstr("no_such_rule"));
}

TEST(StepError, text_that_is_no_step) {
  for (const std::string text :
       {"", "  ", "(i)", "split(i, 4", "split(i, , a, b)", "split(i, 4, a, b) c", "split(i, 99999999999999999999, a, b)"}) {
    EXPECT_THROW(parse_step(text), UserError) << text;
  }
}

TEST(StepError, json_that_is_no_step_or_schedule) {
  for (const char* text :
       {"3", "{}", R"({"name": 3})", R"({"name": "split", "args": 3})", R"({"name": "split", "args": [1.5]})"}) {
    EXPECT_THROW(step_from_json(nlohmann::json::parse(text)), UserError) << text;
  }
  for (const char* text : {"[]", R"({"nest": 3, "steps": []})", R"({"nest": "x"})", R"({"steps": []})"}) {
    EXPECT_THROW(schedule_from_json(samples::matmul(), nlohmann::json::parse(text)), UserError) << text;
  }
}

TEST(StepError, schedule_of_another_nest_names_both_digests_and_the_operator) {
  const nlohmann::json json = schedule_to_json(Schedule{samples::matmul()});
  try {
    schedule_from_json(samples::row_norm(), json);
    FAIL() << "accepted";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr(json["nest"].get<std::string>()), HasSubstr("(matmul)"), HasSubstr("row_norm is the nest ")));
  }
}

}  // namespace
}  // namespace nestor
