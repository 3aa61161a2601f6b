// GPU candidates of a nest with sums over rows beside work on rows: proposed from its structure, legal, and right when they run.
#include "autotune/space/gpu/gpu_steps.h"
#include "autotune/space/gpu/known_sizes.h"
#include "autotune/space/gpu/transposed_rows.h"
#include "autotune/space/nest/nest_candidate.h"
#include "autotune/space/nest/nest_space.h"
#include "autotune/space/structure/rule_variants.h"
#include "autotune/trial/trial_steps.h"
#include "codegen/gpu/backend.h"
#include "codegen/gpu/kernel_plans.h"
#include "codegen/tile/analysis/tile_rewrite.h"
#include "codegen/tile/tile_program.h"
#include "support/error.h"
#include "support/nests/algebra_nests.h"
#include "support/nests/sample_nests.h"
#include "support/simt/simt_image.h"
#include "unit/autotune/searched_problem.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace nestor {
namespace {

using testing::SearchedProblem;

bool has_step(const Candidate& candidate, const std::string& name, const std::string& argument) {
  return std::any_of(candidate.steps.begin(), candidate.steps.end(), [&](const Step& step) {
    return step.name == name && std::any_of(step.args.begin(), step.args.end(), [&](const nlohmann::json& arg) {
             return arg.is_string() && arg.get<std::string>() == argument;
           });
  });
}

/// The loop over blocks is one over parts of rows: a split by the size of a part.
bool takes_parts(const Candidate& candidate) {
  std::string size;
  for (const Step& step : candidate.steps) {
    if (step.name == "apply_rule" && step.args.at(0) == "split_reduction") size = step.args.at(4).get<std::string>();
    if (step.name == "split" && step.args.at(0) == "dx.r") return std::to_string(step.args.at(1).get<std::int64_t>()) == size;
  }
  return false;
}

TEST(GpuSpace, BlocksTakePartsOfTheRowsByDefault) {
  const SearchedProblem problem(samples::row_gradient(), {{"rows", 400}, {"cols", 512}});
  const Candidate first = problem.space->candidate(problem.space->defaults().front());
  EXPECT_EQ(first.infeasible, "");
  EXPECT_TRUE(takes_parts(first));
  for (const char* tensor : {"x", "dy"}) EXPECT_TRUE(has_step(first, "stage", tensor)) << tensor;
}

/// By how much a candidate cuts the loops of a statement: {loop: tile}.
std::map<std::string, std::int64_t> tiles_of(const Candidate& candidate) {
  std::map<std::string, std::int64_t> tiles;
  for (const Step& step : candidate.steps) {
    if (step.name == "split") tiles[step.args.at(0).get<std::string>()] = step.args.at(1).get<std::int64_t>();
  }
  return tiles;
}

TEST(GpuSpace, FirstGuessesOfProductsOfFloatsGiveEachThreadABlockOfSums) {
  SearchedProblem problem(samples::matmul(600, 700, 90), {});
  const Point first = problem.space->defaults().front();
  const auto tiles = tiles_of(problem.space->candidate(first));
  ASSERT_EQ(tiles.size(), 4u) << "rows and columns of the sums and of their start";
  for (const auto& [loop, tile] : tiles) EXPECT_EQ(tile, 128) << loop;
  EXPECT_EQ(problem.difference(first, {{"M", 131}, {"N", 70}, {"K", 37}}), "");
}

TEST(GpuSpace, FewSumsAreGuessedInSmallerBlocks) {
  SearchedProblem problem(samples::matmul(90, 100, 90), {});
  for (const auto& [loop, tile] : tiles_of(problem.space->candidate(problem.space->defaults().front())))
    EXPECT_EQ(tile, loop.ends_with(".i") ? 48 : 64) << loop << ": 90 rows fill two tiles of 48 better";
}

/// Means of columns, and what is left of x without them.
Nest column_means() {
  using samples::read;
  return samples::NestBuilder("column_means", {{"rows", 3000}, {"cols", 64}})
      .context("rows >= 1 and cols >= 1")
      .tensor("x", TensorRole::input, {"rows", "cols"})
      .tensor("mean", TensorRole::temporary, {"cols"})
      .tensor("y", TensorRole::output, {"rows", "cols"})
      .statement("mean_init[c] : 0 <= c < cols", "mean[c]", {}, ScalarExpr::constant(0.0))
      .statement("mean[c, r] : 0 <= c < cols and 0 <= r < rows", "mean[c]", {"x[r, c]"}, read(0), ReductionOp::add)
      .statement("y[r, c] : 0 <= r < rows and 0 <= c < cols", "y[r, c]", {"x[r, c]", "mean[c]"},
                 ScalarExpr::make(ScalarOp::sub, {read(0), read(1)}))
      .build();
}

TEST(GpuSpace, FewColumnsAreSummedInPartsByNarrowBlocks) {
  SearchedProblem problem(column_means(), {});
  const Point first = problem.space->defaults().front();
  const Candidate candidate = problem.space->candidate(first);
  EXPECT_EQ(candidate.infeasible, "");
  EXPECT_TRUE(has_step(candidate, "apply_rule", "split_reduction"));
  EXPECT_EQ(problem.difference(first, {{"rows", 301}, {"cols", 70}}), "");
  // Parts share a kernel with their start. What only shares the columns does not: it has rows of its own.
  const auto fused = [&](const std::string& loop) {
    return std::any_of(candidate.steps.begin(), candidate.steps.end(), [&](const Step& step) {
      return step.name == "fuse_with" && step.args.front().get<std::string>().starts_with(loop);
    });
  };
  EXPECT_TRUE(fused("mean_part_init.")) << "two kernels";
  EXPECT_FALSE(fused("mean_combine.")) << "a block for some columns would run through all rows";
}

/// Means over all places and a group's channels, which lie next to each other.
Nest channels_last_groups() {
  using samples::read;
  const std::string group = "0 <= n < images and 0 <= g < groups", point = group + " and 0 <= s < places and 0 <= c < share";
  return samples::NestBuilder("channels_last", {{"images", 3}, {"places", 1500}, {"groups", 8}, {"share", 10}})
      .context("images >= 1 and places >= 1 and groups >= 1 and share >= 1")
      .tensor("x", TensorRole::input, {"images", "places", "groups", "share"})
      .tensor("mean", TensorRole::temporary, {"images", "groups"})
      .tensor("y", TensorRole::output, {"images", "places", "groups", "share"})
      .statement("mean_init[n, g] : " + group, "mean[n, g]", {}, ScalarExpr::constant(0.0))
      .statement("mean[n, g, s, c] : " + point, "mean[n, g]", {"x[n, s, g, c]"}, read(0), ReductionOp::add)
      .statement("y[n, s, g, c] : " + point, "y[n, s, g, c]", {"x[n, s, g, c]", "mean[n, g]"},
                 ScalarExpr::make(ScalarOp::sub, {read(0), read(1)}))
      .build();
}

/// A block for one sum would have work for ten of its threads.
TEST(GpuSpace, SumsOverShortRunsOfMemoryAreCutAlongTheOtherAxis) {
  SearchedProblem problem(channels_last_groups(), {});
  const auto in_parts = [&](const Point& point) {
    return has_step(problem.space->candidate(point), "apply_rule", "split_reduction");
  };
  const std::vector<Point> guesses = problem.space->defaults();
  const auto found = std::find_if(guesses.begin(), guesses.end(), in_parts);
  ASSERT_LT(found - guesses.begin(), 3) << "among the first";
  EXPECT_EQ(problem.space->candidate(*found).infeasible, "");
  EXPECT_EQ(problem.difference(*found, {{"images", 2}, {"places", 133}, {"groups", 5}, {"share", 7}}), "");
}

TEST(GpuSpace, SizesOfShortRowsAreKnown) {
  using Names = std::set<std::string>;
  const Nest nest = channels_last_groups();
  const auto sizes = [](std::int64_t groups, std::int64_t share) {
    return Sizes{{"images", 3}, {"places", 50}, {"groups", groups}, {"share", share}};
  };
  EXPECT_EQ(sizes_of_short_rows(nest, sizes(8, 10)), (Names{"groups", "share"})) << "a run of 80 elements";
  EXPECT_EQ(sizes_of_short_rows(nest, sizes(100, 10)), Names{"share"});
  EXPECT_EQ(sizes_of_short_rows(nest, sizes(8, 64)), Names{"share"});
  EXPECT_EQ(sizes_of_short_rows(nest, sizes(8, 65)), Names{});
  // Sums over channels and places, which lie further in.
  using samples::read;
  const std::string point = "0 <= n < images and 0 <= c < share and 0 <= s < places";
  const Nest planes = samples::NestBuilder("planes", {{"images", 3}, {"share", 10}, {"places", 1500}})
                          .context("images >= 1 and share >= 1 and places >= 1")
                          .tensor("x", TensorRole::input, {"images", "share", "places"})
                          .tensor("sum", TensorRole::output, {"images"})
                          .statement("init[n] : 0 <= n < images", "sum[n]", {}, ScalarExpr::constant(0.0))
                          .statement("sum[n, c, s] : " + point, "sum[n]", {"x[n, c, s]"}, read(0), ReductionOp::add)
                          .build();
  EXPECT_EQ(sizes_of_short_rows(planes, {{"images", 3}, {"share", 10}, {"places", 1500}}), Names{"share"});
  EXPECT_EQ(sizes_of_short_rows(planes, {{"images", 3}, {"share", 300}, {"places", 1500}}), Names{});
  EXPECT_EQ(sizes_of_short_rows(planes, {{"images", 3}, {"share", 300}, {"places", 112}}), Names{"places"});
}

/// Five taps of each channel, which lie side by side.
Nest channel_taps(bool causal = false) {
  using samples::operator*, samples::read;
  const std::string element = "0 <= t < times and 0 <= c < cols", seen = causal ? " and k <= t" : "";
  return samples::NestBuilder("channel_taps", {{"times", 3000}, {"cols", 256}})
      .context("times >= 1 and cols >= 1")
      .tensor("x", TensorRole::input, {causal ? "times" : "times + 4", "cols"})
      .tensor("w", TensorRole::input, {"5", "cols"})
      .tensor("sums", TensorRole::temporary, {"times", "cols"})
      .tensor("y", TensorRole::output, {"times", "cols"})
      .statement("sums_init[t, c] : " + element, "sums[t, c]", {}, ScalarExpr::constant(0.0))
      .statement("sums[t, c, k] : " + element + " and 0 <= k < 5" + seen, "sums[t, c]",
                 {causal ? "x[t - k, c]" : "x[t + k, c]", "w[k, c]"}, read(0) * read(1), ReductionOp::add)
      .statement("y[t, c] : " + element, "y[t, c]", {"sums[t, c]"}, read(0) * read(0))
      .build();
}

/// Kernels that read the tensor.
int kernels_reading(SearchedProblem& problem, const Candidate& candidate, const std::string& tensor) {
  const TileProgram program = build_tile_program(problem.schedules.replay(candidate.steps));
  const auto plans = plan_kernels(program, {});
  int kernels = 0;
  for (const nvptx::KernelPlan& kernel : plans->launches.kernels) {
    bool found = false;
    nvptx::for_each_op(kernel.body, [&](const TileOp& op, bool) {
      for (const TileAccess& read : op.reads) found = found || program.buffers.at(read.buffer).name == tensor;
    });
    kernels += found ? 1 : 0;
  }
  return kernels;
}

TEST(GpuSpace, StatisticsOfChannelsReadTheirInputInOneKernel) {
  SearchedProblem problem(samples::channel_norm(), {{"N", 8}, {"S", 400}, {"C", 48}});
  int parts = 0;
  for (const Point& point : problem.space->defaults()) {
    const Candidate candidate = problem.space->candidate(point);
    const auto values = named_values(*problem.space, point);
    if (!candidate.infeasible.empty() || kFusions.at(static_cast<std::size_t>(values.at("fusion"))) != Fusion::alike) continue;
    EXPECT_EQ(kernels_reading(problem, candidate, "x"), 2) << "statistics, and what they are for";
    EXPECT_EQ(problem.difference(point, {{"N", 3}, {"S", 37}, {"C", 19}}), "");
    parts += values.at("split_axis") >= 0 ? 1 : 0;
  }
  EXPECT_GE(parts, 2) << "along images, and along places";
}

/// Of guesses for sums across memory: how many there are that fit, and whether all of them are cut.
std::pair<int, bool> guesses_of_column_sums(const Nest& nest, const Sizes& sizes) {
  const SearchedProblem problem(nest, sizes);
  std::pair<int, bool> found{0, true};
  for (const Point& point : problem.space->defaults()) {
    const Fusion fusion = kFusions.at(static_cast<std::size_t>(named_values(*problem.space, point).at("fusion")));
    const Candidate candidate = problem.space->candidate(point);
    if (!candidate.infeasible.empty() || (fusion != Fusion::none && fusion != Fusion::alike)) continue;
    ++found.first;
    found.second = found.second && candidate.cut;
  }
  return found;
}

TEST(GpuSpace, KernelsApartDoNotHideThatRowsNeedAKnownLength) {
  const auto rows = guesses_of_column_sums(samples::row_gradient(), {{"rows", 400}, {"cols", 512}});
  EXPECT_GE(rows.first, 2) << "for its sums over rows, beside work on rows";
  EXPECT_TRUE(rows.second);
  const auto channels = guesses_of_column_sums(samples::channel_norm(), {{"N", 8}, {"S", 400}, {"C", 48}});
  EXPECT_GE(channels.first, 2);
  EXPECT_FALSE(channels.second) << "nothing else would do";
}

TEST(GpuSpace, ThreadsShareElementsOfShortSumsAndNotTheirTerms) {
  SearchedProblem problem(channel_taps(), {});
  const std::vector<Point> guesses = problem.space->defaults();
  const auto found = std::find_if(guesses.begin(), guesses.end(), [&](const Point& point) {
    const NamedValues values = named_values(*problem.space, point);
    return value_or(values, "tile.c", 0) == 128 && value_or(values, "tile.t", 0) == 8 && value_or(values, "threads", 0) == 128;
  });
  ASSERT_NE(found, guesses.end());
  EXPECT_EQ(problem.difference(*found, {{"times", 37}, {"cols", 70}}), "");
}

/// Rows of a run that an op of the candidate's kernels sums up together; 1: none does.
int longest_run(SearchedProblem& problem, const Candidate& candidate) {
  const auto plans = plan_kernels(build_tile_program(problem.schedules.replay(candidate.steps)), {});
  int run = 1;
  for (const auto& kernel : plans->kernels) {
    for (const nvptx::BlockPlan& body : kernel.bodies) {
      for (const nvptx::BlockOp& op : body.ops) run = std::max(run, op.window.empty() ? 1 : op.layout.run);
    }
  }
  return run;
}

TEST(GpuSpace, ThreadsSumUpNeighboursOfWindowsTogether) {
  for (const bool causal : {false, true}) {
    SearchedProblem problem(channel_taps(causal), {});
    std::set<int> runs;
    for (const Point& point : problem.space->defaults()) {
      if (runs.size() == 2) break;
      if (!runs.insert(longest_run(problem, problem.space->candidate(point))).second) continue;
      for (const std::int64_t times : {37, 3}) EXPECT_EQ(problem.difference(point, {{"times", times}, {"cols", 72}}), "");
    }
    EXPECT_EQ(runs, (std::set<int>{causal ? 1 : 4, 8})) << "the first guesses, causal: " << causal;
  }
  using Names = std::set<std::string>;
  EXPECT_EQ(sizes_of_short_rows(channel_taps(), {{"times", 3000}, {"cols", 256}}), Names{"cols"});
  EXPECT_EQ(sizes_of_short_rows(channel_taps(), {{"times", 100}, {"cols", 256}}), (Names{"cols", "times"}));
}

/// y[i] = x[i] / |x|: the size is a single number, of no dims.
Nest unit_vector() {
  using samples::operator*, samples::read;
  const std::string element = "0 <= i < cols";
  return samples::NestBuilder("unit_vector", {{"cols", 5000}})
      .context("cols >= 1")
      .tensor("x", TensorRole::input, {"cols"})
      .tensor("size", TensorRole::temporary, {})
      .tensor("y", TensorRole::output, {"cols"})
      .statement("size_init[]", "size[]", {}, ScalarExpr::constant(0.0))
      .statement("size[i] : " + element, "size[]", {"x[i]"}, read(0) * read(0), ReductionOp::add)
      .statement("y[i] : " + element, "y[i]", {"x[i]", "size[]"}, ScalarExpr::make(ScalarOp::div, {read(0), read(1)}))
      .build();
}

/// The mean of |x - y| over rows and columns: for each plane, or one number of all planes.
Nest plane_losses(bool one) {
  using samples::operator*, samples::read;
  const std::string plane = one ? "" : "b", point = "0 <= b < planes and 0 <= r < rows and 0 <= c < cols";
  const std::string planes = one ? "" : " : 0 <= b < planes";
  return samples::NestBuilder("plane_losses", {{"planes", 200}, {"rows", 700}, {"cols", 300}})
      .context("planes >= 1 and rows >= 1 and cols >= 1")
      .tensor("x", TensorRole::input, {"planes", "rows", "cols"})
      .tensor("y", TensorRole::input, {"planes", "rows", "cols"})
      .tensor("apart", TensorRole::temporary, {"planes", "rows", "cols"})
      .tensor("loss", TensorRole::output, one ? std::vector<std::string>{} : std::vector<std::string>{"planes"})
      .statement("apart[b, r, c] : " + point, "apart[b, r, c]", {"x[b, r, c]", "y[b, r, c]"},
                 ScalarExpr::make(ScalarOp::sub, {read(0), read(1)}))
      .statement("init[" + plane + "]" + planes, "loss[" + plane + "]", {}, ScalarExpr::constant(0.0))
      .statement("sum[b, r, c] : " + point, "loss[" + plane + "]", {"apart[b, r, c]"}, read(0) * read(0), ReductionOp::add)
      .build();
}

TEST(GpuSpace, ValuesThatSumsOfPlanesReadAreComputedThere) {
  SearchedProblem problem(plane_losses(false), {});
  for (const Point& point : problem.space->defaults()) {
    const Candidate candidate = problem.space->candidate(point);
    if (!candidate.infeasible.empty()) continue;
    EXPECT_TRUE(has_step(candidate, "apply_rule", "recompute")) << "the first guess that fits";
    const TileProgram program = build_tile_program(problem.schedules.replay(candidate.steps));
    EXPECT_EQ(plan_kernels(program, {})->launches.kernels.size(), 1U);
    EXPECT_EQ(problem.difference(point, {{"planes", 2}, {"rows", 19}, {"cols", 23}}), "");
    return;
  }
  FAIL() << "no guess fits";
}

TEST(GpuSpace, OneNumberOfAllIsGuessedInParts) {
  SearchedProblem problem(plane_losses(true), {});
  for (const Point& point : problem.space->defaults()) {
    const auto values = named_values(*problem.space, point);
    if (value_or(values, "split_axis", -1) < 0 || kFusions.at(static_cast<std::size_t>(values.at("fusion"))) != Fusion::alike)
      continue;
    EXPECT_EQ(problem.difference(point, {{"planes", 9}, {"rows", 5}, {"cols", 7}}), "");
    return;
  }
  FAIL() << "one block would have all the work";
}

/// One number of all of x y, and the sum of each column of y: what the gradients of a scale and a shift are.
Nest scale_gradients() {
  using samples::operator*, samples::read;
  const std::string point = "0 <= r < rows and 0 <= c < cols";
  return samples::NestBuilder("scale_gradients", {{"rows", 16384}, {"cols", 2048}})
      .context("rows >= 1 and cols >= 1")
      .tensor("x", TensorRole::input, {"rows", "cols"})
      .tensor("y", TensorRole::input, {"rows", "cols"})
      .tensor("scale", TensorRole::output, {})
      .tensor("shift", TensorRole::output, {"cols"})
      .statement("scale_init[]", "scale[]", {}, ScalarExpr::constant(0.0))
      .statement("scale[r, c] : " + point, "scale[]", {"x[r, c]", "y[r, c]"}, read(0) * read(1), ReductionOp::add)
      .statement("shift_init[c] : 0 <= c < cols", "shift[c]", {}, ScalarExpr::constant(0.0))
      .statement("shift[r, c] : " + point, "shift[c]", {"y[r, c]"}, read(0), ReductionOp::add)
      .build();
}

TEST(GpuSpace, PartsOfOneNumberCutNoSumsOfColumnsFirst) {
  SearchedProblem problem(scale_gradients(), {});
  for (const Point& point : problem.space->defaults()) {
    const Candidate candidate = problem.space->candidate(point);
    if (!candidate.infeasible.empty() || !has_step(candidate, "apply_rule", "split_reduction")) continue;
    EXPECT_EQ(problem.difference(point, {{"rows", 37}, {"cols", 45}}), "");
    for (const Step& step : candidate.steps) {
      if (step.name == "apply_rule" && step.args.at(0) == "split_reduction") {
        EXPECT_EQ(step.args.at(1), "scale");
        EXPECT_EQ(step.args.at(2), "c");
      }
    }
    return;
  }
  FAIL() << "one block would have all of the number's work";
}

/// Each of four images is longer than what a cluster keeps.
TEST(GpuSpace, RowsLongerThanAnyClusterHaveClustersWhereTheyAreFew) {
  NestStructure structure;
  structure.axes = {{"row", 4}, {"column", std::int64_t{1} << 24}};
  FusionGroup group;
  group.axes = {0};
  const GpuShape few = longest_shape(structure, group, *gpu_space_limits(90, 227 << 10, 132).gpu);
  EXPECT_EQ(few.cluster, 16);
  EXPECT_EQ(few.threads, 1024);
  structure.axes[0].extent = 500;
  EXPECT_EQ(longest_shape(structure, group, *gpu_space_limits(90, 227 << 10, 132).gpu).cluster, 1);
}

TEST(GpuSpace, SingleNumbersHaveGuesses) {
  SearchedProblem problem(unit_vector(), {});
  int right = 0;
  for (const Point& point : problem.space->defaults()) {
    if (problem.space->candidate(point).infeasible.empty() && right < 3) {
      EXPECT_EQ(problem.difference(point, {{"cols", 37}}), "");
      ++right;
    }
  }
  EXPECT_EQ(right, 3);
}

/// y[g, n] = sum over f of x[f, n] w[f, g]: each g reads all of x again.
TEST(GpuSpace, RepeatedReadsAreThoseOfTheLargestOperand) {
  using samples::operator*, samples::read;
  const std::string element = "0 <= g < heads and 0 <= n < cols";
  const Nest nest = samples::NestBuilder("mixing", {{"heads", 16}, {"cols", 4096}})
                        .tensor("x", TensorRole::input, {"heads", "cols"})
                        .tensor("w", TensorRole::input, {"heads", "heads"})
                        .tensor("y", TensorRole::output, {"heads", "cols"})
                        .statement("init[g, n] : " + element, "y[g, n]", {}, ScalarExpr::constant(0.0))
                        .statement("sum[g, n, f] : " + element + " and 0 <= f < heads", "y[g, n]", {"x[f, n]", "w[f, g]"},
                                   read(0) * read(1), ReductionOp::add)
                        .build();
  SearchedProblem problem(nest, {});
  RuleVariants variants(problem.schedules, problem.sizes);
  const RuleVariant& variant = variants.at({});
  const FusionGroup& group = variants.heaviest(variant, Fusion::maximal);
  const int axis = axis_of_repeated_reads(nest, variant.structure, group);
  ASSERT_GE(axis, 0);
  EXPECT_EQ(variant.structure.axes[static_cast<std::size_t>(axis)].extent, 16);
  const NamedValues values = values_of_repeated_reads(variant.structure, group, axis);
  EXPECT_EQ(values.at("tile.g"), 8) << "less than all, as there may be more in another launch";
  EXPECT_EQ(values.at("tile.n"), 128);
}

TEST(GpuSpace, EveryNumberOfPartsComputesTheGradients) {
  SearchedProblem problem(samples::row_gradient(), {{"rows", 90}, {"cols", 512}});
  for (const Parameter& parameter : problem.space->parameters()) {
    if (parameter.name != "num_splits") continue;
    ASSERT_FALSE(parameter.choices.empty());
    for (const std::int64_t parts : parameter.choices) {
      const Point point = problem.with({{"num_splits", parts}, {"threads", 64}});
      EXPECT_TRUE(takes_parts(problem.space->candidate(point))) << parts;
      EXPECT_EQ(problem.difference(point, problem.sizes), "") << parts;
    }
  }
}

TEST(GpuSpace, AKernelServesOtherNumbersOfRows) {
  SearchedProblem problem(samples::row_gradient(), {{"rows", 90}, {"cols", 256}});
  for (const std::int64_t rows : {1, 7, 91}) {
    EXPECT_EQ(problem.difference(problem.with({{"threads", 32}}), {{"rows", rows}, {"cols", 256}}), "") << rows;
  }
}

TEST(GpuSpace, OtherChoicesBesidePartsComputeTheGradientsToo) {
  SearchedProblem problem(samples::row_gradient(), {{"rows", 60}, {"cols", 512}});
  for (const std::map<std::string, std::int64_t>& changes :
       std::vector<std::map<std::string, std::int64_t>>{{{"prefetch", 0}},
                                                        {{"prefetch", 3}, {"staging", 2}},
                                                        {{"staging", 0}},
                                                        {{"threads", 32}, {"cluster", 2}},
                                                        {{"streaming", 3}},
                                                        {{"split_axis", -1}}}) {
    std::map<std::string, std::int64_t> all = changes;
    all.try_emplace("threads", 64);
    const Point point = problem.with(all);
    EXPECT_EQ(takes_parts(problem.space->candidate(point)), !changes.contains("split_axis"));
    EXPECT_EQ(problem.difference(point, problem.sizes), "") << ::testing::PrintToString(changes);
  }
}

TEST(GpuSpace, RowsBesideProductsMayBeLongerThanAnyCluster) {
  NestStructure structure;
  structure.axes = {{"row", 64}, {"column", std::int64_t{1} << 24}};
  structure.loop_groups = {{"sum", {"sum"}, {"sum.row", "sum.column"}, {0, 1}, {false, true}, {64, std::int64_t{1} << 24}, 64e7}};
  FusionGroup group;
  group.loop_groups = {0};
  group.axes = {0};
  const GpuLimits limits = *gpu_space_limits(80, 163 << 10, testing::kUnits).gpu;
  ASSERT_TRUE(likely_shapes(points_per_work_tile(structure, group), limits).empty());
  const NamedValues values = values_beside_products(structure, group, limits);
  EXPECT_EQ(values.at("threads"), limits.most_threads);
  EXPECT_EQ(values.at("tile.row"), 1);
}

/// sum[p, i] = sum over the n of part p of y[n] x[n, i]: threads take columns of x side by side, whatever its rows are weighed by.
TEST(GpuSpace, SumsOfWeighedRowsRunAlongColumns) {
  const std::string part = "0 <= i < I and 0 <= p and 993 p <= n < 993 p + 993 and n < N";
  const Nest nest = samples::NestBuilder("weighed", {{"N", 65536}, {"I", 127}})
                        .tensor("x", TensorRole::input, {"N", "I"})
                        .tensor("y", TensorRole::input, {"N"})
                        .tensor("sum", TensorRole::output, {"floor((N - 1)/993) + 1", "I"})
                        .statement("sum[i, p, n] : " + part, "sum[p, i]", {"y[n]", "x[n, i]"},
                                   samples::operator*(samples::read(0), samples::read(1)), ReductionOp::add)
                        .build();
  NestStructure structure;
  structure.axes = {{"i", 127}, {"p", 66}, {"n", 993}};
  structure.loop_groups = {{"sum", {"sum"}, {"sum.i", "sum.p", "sum.n"}, {0, 1, 2}, {false, false, true}, {127, 66, 993}, 8e6}};
  FusionGroup group;
  group.loop_groups = {0};
  group.axes = {0, 1};
  EXPECT_EQ(axis_of_column_sums(nest, structure, group), 0);
}

TEST(GpuSpace, CopiesBesideProductsKeepAllUnitsBusy) {
  const GpuLimits limits = *gpu_space_limits(90, 227 << 10, 132).gpu;
  const auto rows_of = [&](std::int64_t rows, std::int64_t columns) {
    NestStructure structure;
    structure.axes = {{"row", rows}, {"column", columns}};
    structure.loop_groups = {{"copy", {"copy"}, {"copy.row", "copy.column"}, {0, 1}, {false, false}, {rows, columns}, 1e6}};
    FusionGroup group;
    group.loop_groups = {0};
    group.axes = {0, 1};
    return values_beside_products(structure, group, limits).at("tile.row");
  };
  EXPECT_EQ(rows_of(128, 128), 1) << "a weight: 128 blocks for 132 units";
  EXPECT_EQ(rows_of(1024, 128), 4);
  EXPECT_GE(rows_of(1 << 20, 128), 16) << "some for each thread";
}

/// Sums of 16 terms for each of eight places in a word: a block has words enough for its threads.
TEST(GpuSpace, SumsOfFewTermsBesideProductsTakeWholeShortAxes) {
  const GpuLimits limits = *gpu_space_limits(90, 227 << 10, 132).gpu;
  const auto tiles_of = [&](std::int64_t rows, std::int64_t terms) {
    NestStructure structure;
    structure.axes = {{"row", rows}, {"word", 256}, {"place", 8}, {"term", terms}};
    structure.loop_groups = {{"sum",
                              {"sum"},
                              {"sum.row", "sum.word", "sum.place", "sum.term"},
                              {0, 1, 2, 3},
                              {false, false, false, true},
                              {rows, 256, 8, terms},
                              1e8}};
    FusionGroup group;
    group.loop_groups = {0};
    group.axes = {0, 1, 2};
    const NamedValues values = values_beside_products(structure, group, limits);
    return std::vector{values.at("tile.row"), values.at("tile.word"), values.at("tile.place")};
  };
  EXPECT_EQ(tiles_of(2048, 16), (std::vector<std::int64_t>{1, 64, 0}));
  EXPECT_EQ(tiles_of(8, 16).at(1), 1) << "few blocks would leave the chip idle";
  EXPECT_EQ(tiles_of(2048, 4096).at(1), 1) << "rows of terms for all threads";
}

TEST(GpuSpace, EachStatementInKernelsOfItsOwnAlwaysFits) {
  for (const Nest& nest : {samples::row_gradient(), samples::matmul(), samples::softmax()}) {
    for (const std::int64_t size : {3, 4096}) {
      Sizes sizes;
      for (const SizeParam& each : nest.sizes) sizes[each.name] = size;
      const SearchedProblem problem(nest, sizes);
      EXPECT_EQ(problem.space->candidate(problem.space->baseline()).infeasible, "") << nest.op << " " << size;
    }
  }
}

}  // namespace
}  // namespace nestor
