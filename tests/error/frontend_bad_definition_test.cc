// Definitions that name, type or bound something wrongly.
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

TEST(FrontendBadDefinition, OutputBoxHasTheWrongRank) {
  FrontendParts p;
  p.out(p.i) = p.x(p.i);
  HalideDefinition definition = p.define();
  definition.outputs = {{p.out, {}}};
  EXPECT_THAT(frontend_refusal(definition), AllOf(HasSubstr("Func 'out'"), HasSubstr("1 dimensions"), HasSubstr("0 extents")));
  definition.outputs = {{p.out, {Expr()}}};
  EXPECT_THAT(frontend_refusal(definition), HasSubstr("undefined"));
}

TEST(FrontendBadDefinition, NoOutput) {
  FrontendParts p;
  HalideDefinition definition = p.define();
  EXPECT_THAT(frontend_refusal(definition), AllOf(HasSubstr("'out'"), HasSubstr("no definition")));
  definition.outputs.clear();
  EXPECT_THAT(frontend_refusal(definition), HasSubstr("no output Func"));
}

TEST(FrontendBadDefinition, UsedFuncIsUndefined) {
  FrontendParts p;
  ImageParam unused(Float(32), 1, "unused");
  Func helper("helper");
  helper.define_extern("some_c_function", {}, Float(32), 1);
  p.out(p.i) = helper(p.i);
  EXPECT_THAT(frontend_refusal(p.define()), AllOf(HasSubstr("Func 'helper'"), HasSubstr("external function 'some_c_function'")));
}

TEST(FrontendBadDefinition, ExternalCall) {
  FrontendParts p;
  p.out(p.i) = Internal::Call::make(Float(32), "my_function", {p.x(p.i)}, Internal::Call::Extern);
  EXPECT_THAT(frontend_refusal(p.define()),
              AllOf(HasSubstr("Func 'out'"), HasSubstr("my_function"), HasSubstr("external function")));
}

TEST(FrontendBadDefinition, UnknownMathematicalFunction) {
  FrontendParts p;
  p.out(p.i) = asin(p.x(p.i));
  EXPECT_THAT(frontend_refusal(p.define()), AllOf(HasSubstr("asin_f32"), HasSubstr("known functions")));
}

TEST(FrontendBadDefinition, UnlistedParameter) {
  FrontendParts p;
  Param<int> k("k");
  Param<float> scale("scale");
  p.out(p.i) = p.x(p.i + k);
  EXPECT_THAT(frontend_refusal(p.define()), AllOf(HasSubstr("'k'"), HasSubstr("nor a listed size")));
  Func scaled("out");
  scaled(p.i) = p.x(p.i) * scale;
  HalideDefinition definition = p.define();
  definition.outputs = {{scaled, {p.n}}};
  EXPECT_THAT(frontend_refusal(definition), AllOf(HasSubstr("Func 'out'"), HasSubstr("scale")));
}

TEST(FrontendBadDefinition, TypesThatNestorDoesNotStore) {
  FrontendParts p;
  ImageParam d(Float(64), 1, "d");
  p.out(p.i) = cast<float>(d(p.i));
  EXPECT_THAT(frontend_refusal(p.define()), AllOf(HasSubstr("float64"), HasSubstr("f32, f16, bf16")));
  ImageParam b(UInt(8), 1, "b");
  Func bytes("out");
  bytes(p.i) = cast<float>(b(p.i));
  HalideDefinition definition = p.define();
  definition.outputs = {{bytes, {p.n}}};
  EXPECT_THAT(frontend_refusal(definition), HasSubstr("uint8"));
  Func doubles("out");
  doubles(p.i) = cast<float>(cast<double>(p.x(p.i)) * cast<double>(p.x(p.i)));
  definition.outputs = {{doubles, {p.n}}};
  EXPECT_THAT(frontend_refusal(definition), HasSubstr("float64"));
}

TEST(FrontendBadDefinition, ConstantBuffer) {
  FrontendParts p;
  Buffer<float> table(8);
  p.out(p.i) = table(p.i);
  EXPECT_THAT(frontend_refusal(p.define()), AllOf(HasSubstr("constant buffer"), HasSubstr("ImageParam")));
}

TEST(FrontendBadDefinition, ReadsOutsideInputs) {
  FrontendParts p;
  p.out(p.i) = p.x(p.i - 1);
  EXPECT_THAT(frontend_refusal(p.define()), AllOf(HasSubstr("input 'x'"), HasSubstr("outside"), HasSubstr("-1")));
  Func beyond("out");
  beyond(p.i) = p.x(p.i + 1);
  HalideDefinition definition = p.define();
  definition.outputs = {{beyond, {p.n}}};
  definition.inputs = {{p.x, {p.n}}};
  EXPECT_THAT(frontend_refusal(definition), AllOf(HasSubstr("input 'x'"), HasSubstr("outside")));
}

TEST(FrontendBadDefinition, UpdateWritesOutsideTheOutput) {
  FrontendParts p;
  RDom r(0, p.n + 1, "r");
  p.out(p.i) = 0.0f;
  p.out(r) += 1.0f;
  EXPECT_THAT(frontend_refusal(p.define()), AllOf(HasSubstr("Func 'out'"), HasSubstr("outside its output box")));
}

TEST(FrontendBadDefinition, OutputLeftUnwritten) {
  FrontendParts p;
  RDom r(1, p.n - 1, "r");
  p.out(p.i) = undef<float>();
  p.out(r) = p.x(r);
  EXPECT_THAT(frontend_refusal(p.define()), AllOf(HasSubstr("Func 'out'"), HasSubstr("never written")));
}

TEST(FrontendBadDefinition, TemporaryReadBeforeItIsWritten) {
  FrontendParts p;
  RDom r(1, p.n - 1, "r");
  Func half("half");
  half(p.i) = undef<float>();
  half(r) = p.x(r);
  p.out(p.i) = half(p.i);
  EXPECT_THAT(frontend_refusal(p.define()), AllOf(HasSubstr("half"), HasSubstr("not written before")));
}

TEST(FrontendBadDefinition, SizesListedBadly) {
  FrontendParts p;
  p.out(p.i) = p.x(p.i);
  HalideDefinition definition = p.define();
  definition.sizes = {{p.n, 8}, {p.n, 8}};
  EXPECT_THAT(frontend_refusal(definition), HasSubstr("listed twice"));
  definition.sizes = {{p.n, 0}};
  EXPECT_THAT(frontend_refusal(definition), HasSubstr("default 0"));
  definition = p.define();
  definition.require = {p.n < p.m, p.m < p.n};
  EXPECT_THAT(frontend_refusal(definition), HasSubstr("contradict"));
  Param<int> mod("mod");
  definition = p.define();
  definition.sizes.push_back({mod, 8});
  EXPECT_THAT(frontend_refusal(definition), AllOf(HasSubstr("size 'mod'"), HasSubstr("isl")));
}

TEST(FrontendBadDefinition, BitsOfAFloat) {
  FrontendParts p;
  p.out(p.i) = cast<float>(reinterpret<int>(p.x(p.i)));
  EXPECT_THAT(frontend_refusal(p.define()), AllOf(HasSubstr("Func 'out'"), HasSubstr("reinterpret")));
}

}  // namespace
