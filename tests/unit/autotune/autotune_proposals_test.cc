// In which order points are tried: those of others, the searcher's, and those that were put off.
#include "autotune/proposals.h"

#include <gtest/gtest.h>

#include <limits>

namespace nestor {
namespace {

Point point(int value) { return {value}; }

class FakeSpace : public Space {
 public:
  const std::vector<Parameter>& parameters() const override { return parameters_; }
  Point baseline() const override { return point(0); }
  std::vector<Point> defaults() const override { return {point(1)}; }
  Candidate candidate(const Point&) const override { return {}; }

 private:
  std::vector<Parameter> parameters_;
};

/// Proposes 1, 2, ... up to a last one.
class Counter : public Searcher {
 public:
  explicit Counter(int last) : last_(last) {}
  std::optional<Point> propose() override { return at_ < last_ ? std::optional(point(++at_)) : std::nullopt; }
  void report(const Point&, std::optional<double>) override {}

 private:
  int at_ = 0, last_;
};

/// A space of guesses that do not fit, but for those that say so.
class Narrow : public FakeSpace {
 public:
  explicit Narrow(std::vector<Point> guesses) : guesses_(std::move(guesses)) {}
  std::vector<Point> defaults() const override { return guesses_; }
  Candidate candidate(const Point& at) const override {
    Candidate candidate;
    if (at != point(5)) candidate.infeasible = "too wide";
    return candidate;
  }

 private:
  std::vector<Point> guesses_;
};

TEST(Proposals, SayWhetherAnyGuessFits) {
  const auto nothing_fits = [](const std::vector<Point>& guesses) {
    const Narrow space(guesses);
    Counter searcher(1);
    return Proposals(space, searcher).wants_sizes();
  };
  EXPECT_TRUE(nothing_fits({point(1), point(2)}));
  EXPECT_FALSE(nothing_fits({point(1), point(5)}));
  EXPECT_FALSE(nothing_fits({})) << "there is nothing to go by";
}

/// Points of lanes (0) and of tensor cores (1), whose kernels beside the main one are cut up.
class Guessed : public FakeSpace {
 public:
  const std::vector<Parameter>& parameters() const override { return parameters_; }
  Candidate candidate(const Point& at) const override {
    Candidate candidate;
    candidate.cut = at == point(1);
    return candidate;
  }

 private:
  std::vector<Parameter> parameters_{{"warpgroups", {0, 2}}};
};

TEST(Proposals, SayWhetherTheFirstGuessIsWholeAndOnTensorCores) {
  const Guessed space;
  const std::vector<Point> both{point(1), point(0)};
  EXPECT_TRUE(starts_on_tensor_cores(space, both));
  EXPECT_FALSE(starts_on_tensor_cores(space, {point(0), point(1)}));
  EXPECT_FALSE(starts_whole(space, both)) << "a later one is, of lanes";
  EXPECT_TRUE(has_feasible_guess(space, both));
  EXPECT_TRUE(starts_whole(space, {point(0)}));
  EXPECT_FALSE(starts_whole(space, {}) || starts_on_tensor_cores(space, {}));
}

TEST(Proposals, PointsOfOthersComeFirstAndOnce) {
  const FakeSpace space;
  Counter searcher(2);
  Proposals proposals(space, searcher);
  proposals.try_soon(point(7));
  proposals.try_soon(point(7));
  EXPECT_EQ(proposals.soon(), 1U);
  std::vector<std::string> origins;
  std::vector<Point> points;
  while (const auto next = proposals.next(true)) {
    points.push_back(next->point);
    origins.emplace_back(next->origin);
  }
  EXPECT_EQ(points, (std::vector<Point>{point(7), point(1), point(2)}));
  EXPECT_EQ(origins, (std::vector<std::string>{"neighbour", "guess", "search"}));
}

TEST(Proposals, WhatWasPutOffComesWhenPatienceEndsOrNothingElseIsLeft) {
  const FakeSpace space;
  Counter searcher(3);
  Proposals proposals(space, searcher);
  EXPECT_TRUE(proposals.put_off(proposals.next(true).value()));
  EXPECT_EQ(proposals.next(true)->point, point(2));
  const Proposal waited = proposals.next(false).value();
  EXPECT_EQ(waited.point, point(1));
  EXPECT_STREQ(waited.origin, "guess");
  EXPECT_FALSE(proposals.put_off(waited)) << "only once";
  EXPECT_TRUE(proposals.put_off(proposals.next(true).value()));
  EXPECT_EQ(proposals.next(true)->point, point(3)) << "patient, but there is nothing else";
  EXPECT_FALSE(proposals.next(true));
}

TEST(Proposals, WhatWasPutOffComesBehindTheGuessesWhereNoneOfThemWasWorthTrying) {
  const FakeSpace space;
  for (const bool any : {false, true}) {
    Counter searcher(9);
    Proposals proposals(space, searcher);
    EXPECT_TRUE(proposals.put_off(proposals.next(true).value()));
    if (any) proposals.tried();
    EXPECT_EQ(proposals.next(true)->point, point(2)) << "the baseline";
    EXPECT_EQ(proposals.next(true)->point, point(any ? 3 : 1));
  }
}

TEST(Proposals, TheLastGuessesComeFirstWhereTheOthersAreInDoubt) {
  std::vector<Point> guesses;
  for (int k = 1; k <= 40; ++k) guesses.push_back(point(k));
  const Narrow space(guesses);
  Counter searcher(40);
  Proposals proposals(space, searcher);
  EXPECT_EQ(proposals.next(true)->point, point(1));
  proposals.try_guesses_backwards();
  for (int k = 40; k > 0; --k) {
    const auto next = proposals.next(true);
    EXPECT_EQ(next->point, point(k));
    EXPECT_EQ(std::string(next->origin), "guess");
  }
  EXPECT_EQ(proposals.next(true)->point, point(2));
}

/// Guesses on tensor cores, and some that leave them alone: the first of these has no room.
class Mixed : public FakeSpace {
 public:
  const std::vector<Parameter>& parameters() const override { return parameters_; }
  std::vector<Point> defaults() const override { return {{1, 0}, {1, 1}, {1, 2}, {0, 0}, {0, 1}, {0, 2}, {0, 3}}; }
  Candidate candidate(const Point& at) const override {
    Candidate candidate;
    if (at == Point{0, 0}) candidate.infeasible = "too wide";
    return candidate;
  }

 private:
  std::vector<Parameter> parameters_{{"warpgroups", {0, 2}}, {"threads", {32, 64, 128, 256}}};
};

TEST(Proposals, GuessesOfAnotherKindComeNextWhereSomeWereRefused) {
  const Mixed space;
  Counter searcher(1);
  Proposals proposals(space, searcher);
  proposals.try_other_guesses();
  EXPECT_EQ(proposals.next(true)->point, (Point{0, 1})) << "the first of lanes that fits";
  EXPECT_EQ(proposals.next(true)->point, (Point{0, 3})) << "the last one";
  EXPECT_EQ(proposals.next(true)->point, point(1));
}

TEST(Proposals, AFewRefusalsAreEnough) {
  Doubt refusals(4);
  for (int k = 0; k < 3; ++k) refusals.note(true, false);
  EXPECT_FALSE(refusals.holds());
  refusals.note(true, false);
  EXPECT_TRUE(refusals.holds());
  refusals.note(false, true);
  EXPECT_FALSE(refusals.holds()) << "something is correct";
}

TEST(Proposals, OperandsAreRoundedAsLongAsThatEndsRight) {
  using Form = OperandRounding::Form;
  EXPECT_EQ(OperandRounding::form_of({{"warpgroups", 2}, {"operand_halves", 1}}), Form::halves);
  EXPECT_EQ(OperandRounding::form_of({{"warpgroups", 2}, {"operand_halves", 0}}), Form::rounded);
  EXPECT_EQ(OperandRounding::form_of({{"warpgroups", 0}, {"operand_halves", 1}}), Form::none);
  EXPECT_EQ(OperandRounding::form_of({{"warpgroups", 2}}), Form::none);
  EXPECT_EQ(OperandRounding::form_of({{"warpgroups", 2}, {"rule.bf16x3", 1}}), Form::halves) << "parts of operands round none";
  EXPECT_EQ(OperandRounding::form_of({{"warpgroups", 2}, {"rule.bf16x3", 0}}), Form::rounded);
  EXPECT_EQ(OperandRounding::form_of({{"warpgroups", 2}, {"operand_halves", 0}, {"rule.bf16x3", 1}}), Form::halves);
  EXPECT_EQ(OperandRounding::form_of({{"warpgroups", 0}, {"rule.bf16x3", 1}}), Form::none);
  const auto after = [](Form form, int wrong, int right) {
    OperandRounding rounding;
    for (int k = 0; k < wrong; ++k) rounding.note(form, true, false);
    for (int k = 0; k < right; ++k) rounding.note(form, false, true);
    return rounding;
  };
  for (const Form form : {Form::none, Form::rounded, Form::halves}) {
    EXPECT_FALSE(after(Form::none, 9, 9).needless(form));
    EXPECT_FALSE(after(Form::rounded, 3, 0).needless(form)) << "too few";
    EXPECT_FALSE(after(Form::rounded, 0, 1).needless(form)) << "too few";
    EXPECT_FALSE(after(Form::rounded, 7, 1).needless(form)) << "not always wrong, not always right";
    EXPECT_FALSE(after(Form::halves, 9, 9).needless(form));
    EXPECT_EQ(after(Form::rounded, 4, 0).needless(form), form == Form::rounded);
    EXPECT_EQ(after(Form::rounded, 0, 2).needless(form), form == Form::halves);
  }
  OperandRounding neither = after(Form::rounded, 9, 0);
  for (int k = 0; k < 4; ++k) neither.note(Form::halves, true, false);
  EXPECT_FALSE(neither.needless(Form::rounded)) << "what is wrong is something else";
  neither.note(Form::halves, false, true);
  EXPECT_TRUE(neither.needless(Form::rounded));
}

TEST(OperandRounding, ExplainsSmallErrorsOfFormsThatRoundAlone) {
  const NamedValues rounded{{"warpgroups", 2}, {"operand_halves", 0}}, halves{{"warpgroups", 2}, {"operand_halves", 1}};
  const NamedValues lanes{{"warpgroups", 0}, {"operand_halves", 0}}, exact{{"warpgroups", 2}};
  EXPECT_TRUE(OperandRounding::explains(rounded, 2.5, false));
  EXPECT_TRUE(OperandRounding::explains(halves, 16, false));
  EXPECT_FALSE(OperandRounding::explains(lanes, 2.5, false));
  EXPECT_FALSE(OperandRounding::explains(exact, 2.5, false));
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  for (const double error : {0.0, 17.0, kInfinite, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_FALSE(OperandRounding::explains(rounded, error, false)) << error;
  EXPECT_TRUE(OperandRounding::explains(exact, kInfinite, true)) << "a weight that vanishes in 16 bits, times infinity";
  EXPECT_FALSE(OperandRounding::explains(lanes, kInfinite, true)) << "lanes multiply in f32";
}

TEST(Proposals, CandidatesAreInDoubtWhereManyWereWrongAndNoneRight) {
  Doubt doubt, relieved;
  for (int k = 0; k < 15; ++k) doubt.note(true, false);
  relieved = doubt;
  EXPECT_FALSE(doubt.holds());
  doubt.note(false, false);  // too slow to be compared, or refused
  EXPECT_FALSE(doubt.holds());
  doubt.note(true, false);
  EXPECT_TRUE(doubt.holds());
  relieved.note(false, true);
  for (int k = 0; k < 20; ++k) relieved.note(true, false);
  EXPECT_FALSE(relieved.holds());
}

TEST(Proposals, NoMoreThanAFewArePutOff) {
  const FakeSpace space;
  Counter searcher(100);
  Proposals proposals(space, searcher);
  proposals.tried();
  int put_off = 0;
  while (proposals.put_off(proposals.next(true).value())) ++put_off;
  EXPECT_EQ(put_off, 64);
}

TEST(Proposals, TheFirstGuessIsTheSpacesOwn) {
  const FakeSpace space;
  Counter searcher(1);
  EXPECT_EQ(Proposals(space, searcher).first_guess(), point(1));
}

}  // namespace
}  // namespace nestor
