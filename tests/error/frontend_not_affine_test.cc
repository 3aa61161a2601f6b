// Definitions that are not affine are refused with the Func, the expression and the reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "error/frontend_parts.h"

namespace {

using namespace Halide;
using nestor::HalideDefinition;
using nestor::testing::frontend_refusal;
using nestor::testing::FrontendParts;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(FrontendNotAffine, ProductOfTwoUnknowns) {
  FrontendParts p;
  p.out(p.i) = p.x(p.i * p.m);
  EXPECT_THAT(frontend_refusal(p.define()),
              AllOf(HasSubstr("Func 'out'"), HasSubstr("index of 'x'"), HasSubstr("i*m"), HasSubstr("not affine")));
}

TEST(FrontendNotAffine, GatherDependsOnData) {
  FrontendParts p;
  p.out(p.i) = p.x(clamp(p.at(p.i), 0, p.n - 1));
  EXPECT_THAT(frontend_refusal(p.define()),
              AllOf(HasSubstr("Func 'out'"), HasSubstr("index of 'x'"), HasSubstr("at"), HasSubstr("depends on data")));
}

TEST(FrontendNotAffine, HistogramDependsOnData) {
  FrontendParts p;
  RDom r(0, p.m, "r");
  p.out(p.i) = 0.0f;
  p.out(clamp(p.at(r), 0, p.n - 1)) += 1.0f;
  EXPECT_THAT(frontend_refusal(p.define()),
              AllOf(HasSubstr("Func 'out', update 0"), HasSubstr("index of 'out'"), HasSubstr("depends on data")));
}

TEST(FrontendNotAffine, WhereDependsOnData) {
  FrontendParts p;
  RDom r(0, p.m, "r");
  r.where(p.x(r) > 0.0f);
  p.out(p.i) = 0.0f;
  p.out(p.i) += p.x(r);
  EXPECT_THAT(frontend_refusal(p.define()),
              AllOf(HasSubstr("Func 'out', update 0"), HasSubstr("where condition"), HasSubstr("not affine")));
}

TEST(FrontendNotAffine, WhereWithProduct) {
  FrontendParts p;
  RDom r(0, p.m, "r");
  r.where(r * p.i < p.n);
  p.out(p.i) = 0.0f;
  p.out(p.i) += p.x(r);
  EXPECT_THAT(frontend_refusal(p.define()), AllOf(HasSubstr("where condition"), HasSubstr("multiplies two unknowns")));
}

TEST(FrontendNotAffine, BoundDependsOnScalarArgument) {
  FrontendParts p;
  Param<int> count("count");
  RDom r(0, count, "r");
  p.out(p.i) = 0.0f;
  p.out(p.i) += p.x(r);
  HalideDefinition definition = p.define();
  definition.scalars = {{count, 4}};
  EXPECT_THAT(frontend_refusal(definition), AllOf(HasSubstr("bound of reduction variable 'r'"), HasSubstr("scalar argument")));
}

TEST(FrontendNotAffine, DivisionBySize) {
  FrontendParts p;
  p.out(p.i) = p.x(p.i / p.m);
  EXPECT_THAT(frontend_refusal(p.define()), AllOf(HasSubstr("index of 'x'"), HasSubstr("positive constant")));
}

TEST(FrontendNotAffine, UndeclaredInputExtent) {
  FrontendParts p;
  p.out(p.i) = p.x(min(p.i, p.x.dim(0).extent() - 1));
  EXPECT_THAT(frontend_refusal(p.define()), AllOf(HasSubstr("input 'x'"), HasSubstr("extents were not declared")));
}

TEST(FrontendNotAffine, RequirementAndExtent) {
  FrontendParts p;
  p.out(p.i) = p.x(p.i);
  HalideDefinition definition = p.define();
  definition.require = {p.n * p.m < 100};
  EXPECT_THAT(frontend_refusal(definition), AllOf(HasSubstr("requirement"), HasSubstr("not affine")));
  definition = p.define();
  definition.outputs = {{p.out, {p.n * p.m}}};
  EXPECT_THAT(frontend_refusal(definition), AllOf(HasSubstr("extent"), HasSubstr("not affine")));
}

}  // namespace
