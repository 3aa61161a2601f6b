// Definitions that are not affine are refused with the Func, the expression and the reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "frontend/halide_frontend.h"
#include "support/error.h"

namespace {

using namespace Halide;
using nestor::HalideDefinition;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal(const HalideDefinition& definition) {
  try {
    nestor::extract_nest(definition);
  } catch (const nestor::UserError& error) {
    return error.what();
  }
  return "(accepted)";
}

struct Parts {
  Param<int> n{"n"}, m{"m"};
  ImageParam x{Float(32), 1, "x"}, at{Int(32), 1, "at"};
  Var i{"i"}, j{"j"};
  Func out{"out"};
  HalideDefinition define() const { return {.op = "bad", .variant = "test", .outputs = {{out, {n}}}, .sizes = {{n, 8}, {m, 8}}}; }
};

TEST(FrontendNotAffine, ProductOfTwoUnknowns) {
  Parts p;
  p.out(p.i) = p.x(p.i * p.m);
  EXPECT_THAT(refusal(p.define()),
              AllOf(HasSubstr("Func 'out'"), HasSubstr("index of 'x'"), HasSubstr("i*m"), HasSubstr("not affine")));
}

TEST(FrontendNotAffine, GatherDependsOnData) {
  Parts p;
  p.out(p.i) = p.x(clamp(p.at(p.i), 0, p.n - 1));
  EXPECT_THAT(refusal(p.define()),
              AllOf(HasSubstr("Func 'out'"), HasSubstr("index of 'x'"), HasSubstr("at"), HasSubstr("depends on data")));
}

TEST(FrontendNotAffine, HistogramDependsOnData) {
  Parts p;
  RDom r(0, p.m, "r");
  p.out(p.i) = 0.0f;
  p.out(clamp(p.at(r), 0, p.n - 1)) += 1.0f;
  EXPECT_THAT(refusal(p.define()),
              AllOf(HasSubstr("Func 'out', update 0"), HasSubstr("index of 'out'"), HasSubstr("depends on data")));
}

TEST(FrontendNotAffine, WhereDependsOnData) {
  Parts p;
  RDom r(0, p.m, "r");
  r.where(p.x(r) > 0.0f);
  p.out(p.i) = 0.0f;
  p.out(p.i) += p.x(r);
  EXPECT_THAT(refusal(p.define()),
              AllOf(HasSubstr("Func 'out', update 0"), HasSubstr("where condition"), HasSubstr("not affine")));
}

TEST(FrontendNotAffine, WhereWithProduct) {
  Parts p;
  RDom r(0, p.m, "r");
  r.where(r * p.i < p.n);
  p.out(p.i) = 0.0f;
  p.out(p.i) += p.x(r);
  EXPECT_THAT(refusal(p.define()), AllOf(HasSubstr("where condition"), HasSubstr("multiplies two unknowns")));
}

TEST(FrontendNotAffine, BoundDependsOnScalarArgument) {
  Parts p;
  Param<int> count("count");
  RDom r(0, count, "r");
  p.out(p.i) = 0.0f;
  p.out(p.i) += p.x(r);
  HalideDefinition definition = p.define();
  definition.scalars = {{count, 4}};
  EXPECT_THAT(refusal(definition), AllOf(HasSubstr("bound of reduction variable 'r'"), HasSubstr("scalar argument")));
}

TEST(FrontendNotAffine, DivisionBySize) {
  Parts p;
  p.out(p.i) = p.x(p.i / p.m);
  EXPECT_THAT(refusal(p.define()), AllOf(HasSubstr("index of 'x'"), HasSubstr("positive constant")));
}

TEST(FrontendNotAffine, UndeclaredInputExtent) {
  Parts p;
  p.out(p.i) = p.x(min(p.i, p.x.dim(0).extent() - 1));
  EXPECT_THAT(refusal(p.define()), AllOf(HasSubstr("input 'x'"), HasSubstr("extents were not declared")));
}

TEST(FrontendNotAffine, RequirementAndExtent) {
  Parts p;
  p.out(p.i) = p.x(p.i);
  HalideDefinition definition = p.define();
  definition.require = {p.n * p.m < 100};
  EXPECT_THAT(refusal(definition), AllOf(HasSubstr("requirement"), HasSubstr("not affine")));
  definition = p.define();
  definition.outputs = {{p.out, {p.n * p.m}}};
  EXPECT_THAT(refusal(definition), AllOf(HasSubstr("extent"), HasSubstr("not affine")));
}

}  // namespace
