// Orders that a composite makes legal: readers of a running value, and every way in which that goes wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "poly/schedule/schedule.h"
#include "support/error.h"
#include "support/nests/apply_steps.h"
#include "support/nests/sample_nests.h"

namespace nestor {
namespace {

using ::testing::AllOf;
using testing::apply_steps;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::refusal_of;

/// All statements of scores_softmax_values under one loop over tiles of rows.
std::vector<std::string> rows_together() {
  return {"split(O.i, 32, io, ii)", "split(PV_update.i, 32, v.io, v.ii)",
          "fuse_with(v.io, io)",    "split(PV_init.i, 32, vi.io, vi.ii)",
          "fuse_with(vi.io, io)",   "split(L_update.i, 32, l.io, l.ii)",
          "fuse_with(l.io, io)",    "split(L_init.i, 32, li.io, li.ii)",
          "fuse_with(li.io, io)",   "split(P.i, 32, p.io, p.ii)",
          "fuse_with(p.io, io)",    "split(Mx_update.i, 32, m.io, m.ii)",
          "fuse_with(m.io, io)",    "split(Mx_init.i, 32, mi.io, mi.ii)",
          "fuse_with(mi.io, io)",   "split(S.i, 32, s.io, s.ii)",
          "fuse_with(s.io, io)",    "split(QK_update.i, 32, q.io, q.ii)",
          "fuse_with(q.io, io)",    "split(QK_init.i, 32, qi.io, qi.ii)",
          "fuse_with(qi.io, io)",   "parallel(io)"};
}

/// Tiles of columns, with the tile loop outermost in each statement.
std::vector<std::string> tile_columns() {
  return {"split(PV_update.j, 64, v.jo, v.ji)", "reorder(v.jo, v.ii, PV_update.d, v.ji)",
          "split(L_update.j, 64, l.jo, l.ji)",  "reorder(l.jo, l.ii, l.ji)",
          "split(P.j, 64, p.jo, p.ji)",         "reorder(p.jo, p.ii, p.ji)",
          "split(Mx_update.j, 64, m.jo, m.ji)", "reorder(m.jo, m.ii, m.ji)",
          "split(S.j, 64, s.jo, s.ji)",         "reorder(s.jo, s.ii, s.ji)",
          "split(QK_update.j, 64, q.jo, q.ji)", "reorder(q.jo, q.ii, q.ji)",
          "split(QK_init.j, 64, qi.jo, qi.ji)", "reorder(qi.jo, qi.ii, qi.ji)"};
}

/// One pass over the columns, but for the lead's part.
std::vector<std::string> join_columns() { return {"fuse_with(l.jo, v.jo)", "fuse_with(p.jo, v.jo)"}; }

std::vector<std::string> join_lead() {
  return {"fuse_with(m.jo, v.jo)", "fuse_with(s.jo, v.jo)", "fuse_with(q.jo, v.jo)", "fuse_with(qi.jo, v.jo)"};
}

Schedule before_join(samples::Mask mask, bool online) {
  Schedule schedule{samples::scores_softmax_values(mask)};
  if (online) schedule = schedule.apply(parse_step("apply_rule(online, Mx_update)"));
  return apply_steps(apply_steps(apply_steps(schedule, rows_together()), tile_columns()), join_columns());
}

TEST(CompositeSchedule, one_pass_is_refused_without_the_rule_and_the_message_names_it) {
  const Schedule schedule = before_join(samples::Mask::none, false);
  const std::string message = refusal_of(schedule, "fuse_with(m.jo, v.jo)");
  EXPECT_THAT(message, AllOf(HasSubstr("Mx_update["), HasSubstr("must come before P["), HasSubstr("(flow through Mx)")));
  EXPECT_THAT(message, HasSubstr("apply_rule(online, Mx_update) before the loop steps"));
}

class OnePass : public ::testing::TestWithParam<samples::Mask> {};

TEST_P(OnePass, is_legal_with_the_rule_and_needs_it) {
  const Schedule before = before_join(GetParam(), true);
  EXPECT_TRUE(before.active_composites().empty());
  const Schedule schedule = apply_steps(before, join_lead());
  ASSERT_EQ(schedule.active_composites().size(), 1u);
  EXPECT_EQ(schedule.active_composites()[0].lead, "Mx_update");
  EXPECT_THAT(schedule.loops_of("P"), ElementsAre("io", "v.jo", "p.ii", "p.ji"));
  EXPECT_THAT(schedule.loops_of("QK_update"), ElementsAre("io", "v.jo", "q.ii", "q.ji", "QK_update.d"));
}

INSTANTIATE_TEST_SUITE_P(Masks, OnePass, ::testing::Values(samples::Mask::none, samples::Mask::domain, samples::Mask::select));

TEST(CompositeSchedule, an_order_that_keeps_every_dependence_leaves_the_composite_inactive) {
  Schedule schedule{samples::scores_softmax_values()};
  schedule = schedule.apply(parse_step("apply_rule(online, Mx_update)"));
  EXPECT_TRUE(schedule.active_composites().empty());
  EXPECT_TRUE(apply_steps(schedule, rows_together()).active_composites().empty());
}

TEST(CompositeSchedule, fission_of_the_joint_loop_makes_it_inactive_again) {
  Schedule schedule = apply_steps(before_join(samples::Mask::none, true), {"fuse_with(m.jo, v.jo)"});
  ASSERT_EQ(schedule.active_composites().size(), 1u);
  schedule = schedule.apply(parse_step("fission(v.jo, P)"));
  EXPECT_TRUE(schedule.active_composites().empty());
}

TEST(CompositeSchedule, the_joint_reduction_loop_cannot_be_parallel) {
  const Schedule schedule = apply_steps(before_join(samples::Mask::none, true), join_lead());
  EXPECT_THAT(refusal_of(schedule, "parallel(v.jo)"), HasSubstr("is illegal"));
  EXPECT_THAT(refusal_of(schedule, "vectorize(v.jo)"), HasSubstr("is illegal"));
}

TEST(CompositeSchedule, a_reader_must_not_run_ahead_of_the_lead) {
  const Schedule schedule = apply_steps(before_join(samples::Mask::none, true), {"shift(Mx_update, m.jo, 1)"});
  EXPECT_THAT(refusal_of(schedule, "fuse_with(m.jo, v.jo)"),
              HasSubstr("Mx_update must run in or before the iteration in which P uses the same element"));
}

TEST(CompositeSchedule, a_maximum_may_run_ahead_of_its_readers) {
  const Schedule schedule =
      apply_steps(before_join(samples::Mask::none, true), {"shift(Mx_update, m.jo, -1)", "fuse_with(m.jo, v.jo)"});
  EXPECT_EQ(schedule.active_composites().size(), 1u);
}

TEST(CompositeSchedule, a_term_must_be_used_in_the_iteration_that_computes_it) {
  const Schedule schedule = apply_steps(before_join(samples::Mask::none, true), {"shift(PV_update, v.jo, 1)"});
  EXPECT_THAT(refusal_of(schedule, "fuse_with(m.jo, v.jo)"),
              HasSubstr("PV_update must use P's terms in the iteration that computes them"));
  const Schedule joined = apply_steps(before_join(samples::Mask::none, true), {"fuse_with(m.jo, v.jo)"});
  EXPECT_THAT(refusal_of(joined, "shift(L_update, v.jo, 1)"), HasSubstr("L_update must use P's terms"));
}

TEST(CompositeSchedule, a_follower_left_outside_is_refused) {
  Schedule schedule{samples::scores_softmax_values()};
  schedule = apply_steps(apply_steps(apply_steps(schedule, {"apply_rule(online, Mx_update)"}), rows_together()), tile_columns());
  EXPECT_THAT(refusal_of(schedule, "fuse_with(m.jo, p.jo)"), HasSubstr("is illegal"));
}

TEST(CompositeSchedule, lead_and_reader_fused_below_the_tile_are_refused) {
  // Inside one tile the reader would see a maximum that moves between two of its points, and no follower is corrected there.
  const Schedule schedule =
      apply_steps(before_join(samples::Mask::none, true), {"fuse_with(m.jo, v.jo)", "fuse_with(m.ii, p.ii)"});
  EXPECT_EQ(schedule.active_composites().size(), 1u);
  EXPECT_THAT(refusal_of(schedule, "fuse_with(m.ji, p.ji)"),
              HasSubstr("within an iteration of the loops they share, Mx_update must come before P"));
}

TEST(CompositeSchedule, compute_at_follows_the_instances_that_use_the_same_element) {
  const Schedule schedule = apply_steps(before_join(samples::Mask::none, true), {"compute_at(Mx_update, v.jo)"});
  EXPECT_EQ(schedule.active_composites().size(), 1u);
  EXPECT_THAT(schedule.loops_of("Mx_update"), ElementsAre("io", "v.jo", "m.ii", "m.ji"));
}

/// row_norm with rows together and columns in tiles.
Schedule norm_before_join(bool moments) {
  Schedule schedule{samples::row_norm()};
  if (moments) schedule = schedule.apply(parse_step("apply_rule(moments, mean_update)"));
  return apply_steps(
      schedule, {"fuse_with(variance_update.i, out.i)", "fuse_with(variance_init.i, out.i)", "fuse_with(mean_update.i, out.i)",
                 "fuse_with(mean_init.i, out.i)", "split(variance_update.k, 8, ko, ki)", "split(mean_update.k, 8, mo, mi)"});
}

TEST(CompositeSchedule, mean_and_variance_in_one_pass_need_their_rule) {
  EXPECT_THAT(refusal_of(norm_before_join(false), "fuse_with(mo, ko)"), HasSubstr("apply_rule(moments, mean_update)"));
  const Schedule schedule = apply_steps(norm_before_join(true), {"fuse_with(mo, ko)"});
  ASSERT_EQ(schedule.active_composites().size(), 1u);
  EXPECT_EQ(schedule.active_composites()[0].rule, "moments");
  EXPECT_NO_THROW(apply_steps(schedule, {"parallel(out.i)"}));
}

TEST(CompositeSchedule, a_correction_that_counts_points_needs_the_same_iteration) {
  const std::string message =
      refusal_of(apply_steps(norm_before_join(true), {"shift(mean_update, mo, -1)"}), "fuse_with(mo, ko)");
  EXPECT_THAT(message, HasSubstr("mean_update must run in the iteration in which variance_update uses the same element"));
}

}  // namespace
}  // namespace nestor
