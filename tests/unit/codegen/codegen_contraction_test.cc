// Contractions: which values are sums of products, and that back ends read the one that the op carries.
#include "codegen/gpu/backend.h"
#include "codegen/tile/analysis/op_shape.h"
#include "codegen/tile/build/op_builder.h"
#include "support/simt/simt_programs.h"

#include <gtest/gtest.h>

namespace nestor::testing {
namespace {

ScalarExpr f32(double number) { return ScalarExpr::constant(number); }
ScalarExpr wide(int ordinal, ElementType type) { return ScalarExpr::cast(ElementType::f32, ScalarExpr::read(ordinal, type)); }
ScalarExpr single(int ordinal) { return ScalarExpr::read(ordinal, ElementType::f32); }
ScalarExpr rounded(const ScalarExpr& value) {
  return ScalarExpr::cast(ElementType::f32, ScalarExpr::cast(ElementType::bf16, value));
}
ScalarExpr negative(const ScalarExpr& value) { return ScalarExpr::make(ScalarOp::neg, {value}); }

std::optional<Contraction> sum_of(const ScalarExpr& value) { return contraction_of(value, ReductionOp::add); }

TEST(Contraction, is_a_product_of_two_reads) {
  EXPECT_EQ(sum_of(times(single(0), single(1))), (Contraction{0, 1, 1}));
  EXPECT_EQ(sum_of(times(wide(2, ElementType::f16), single(1))), (Contraction{2, 1, 1}));
  EXPECT_EQ(sum_of(times(wide(1, ElementType::bf16), wide(0, ElementType::bf16))), (Contraction{1, 0, 1}));
  EXPECT_EQ(sum_of(ScalarExpr::cast(ElementType::f32, times(single(0), single(1)))), (Contraction{0, 1, 1}));
}

TEST(Contraction, has_the_constants_as_its_scale) {
  EXPECT_EQ(sum_of(times(times(f32(0.5), single(0)), times(single(1), f32(3)))), (Contraction{0, 1, 1.5}));
  EXPECT_EQ(sum_of(negative(times(single(0), negative(times(f32(2), single(1)))))), (Contraction{0, 1, 2}));
  EXPECT_EQ(sum_of(times(negative(single(0)), single(1))), (Contraction{0, 1, -1}));
}

TEST(Contraction, is_no_other_value) {
  const ScalarExpr product = times(single(0), single(1));
  for (const ReductionOp reduction : {ReductionOp::mul, ReductionOp::min, ReductionOp::max})
    EXPECT_FALSE(contraction_of(product, reduction)) << to_string(reduction);
  EXPECT_FALSE(contraction_of(product, std::nullopt));
  EXPECT_FALSE(sum_of(single(0)));
  EXPECT_FALSE(sum_of(times(single(0), single(0)))) << "a square";
  EXPECT_FALSE(sum_of(times(product, single(2)))) << "three reads";
  EXPECT_FALSE(sum_of(plus(product, single(0))));
  EXPECT_FALSE(sum_of(times(single(0), ScalarExpr::scalar("alpha", ElementType::f32)))) << "no read";
}

// Sums of operands as they are stored would leave the rounding out.
TEST(Contraction, rounds_nothing) {
  EXPECT_FALSE(sum_of(rounded(times(single(0), single(1)))));
  EXPECT_FALSE(sum_of(times(rounded(single(0)), single(1))));
  EXPECT_FALSE(sum_of(times(single(0), wide(1, ElementType::i32)))) << "integers lose digits";
  const ScalarExpr integers =
      ScalarExpr::make(ScalarOp::mul, {ScalarExpr::read(0, ElementType::i32), ScalarExpr::read(1, ElementType::i32)});
  EXPECT_FALSE(sum_of(integers));
}

TEST(Contraction, several_are_addends_of_a_sum) {
  const ScalarExpr first = times(wide(0, ElementType::bf16), wide(1, ElementType::bf16)), second = times(single(2), single(3)),
                   third = times(single(2), negative(single(1)));
  const auto of = [](const ScalarExpr& value) { return contractions_of(value, ReductionOp::add); };
  EXPECT_EQ(of(first), (std::vector{Contraction{0, 1, 1}}));
  EXPECT_EQ(of(plus(plus(first, second), third)),
            (std::vector{Contraction{0, 1, 1}, Contraction{2, 3, 1}, Contraction{2, 1, -1}}));
  EXPECT_EQ(of(plus(first, plus(second, third))),
            (std::vector{Contraction{0, 1, 1}, Contraction{2, 3, 1}, Contraction{2, 1, -1}}));
  EXPECT_TRUE(of(plus(first, single(0))).empty());
  EXPECT_TRUE(of(plus(f32(0), first)).empty());
  EXPECT_TRUE(contractions_of(plus(first, second), ReductionOp::max).empty());
}

/// c[i, j] += value over a[i, k] and b[k, j].
TileOp sum_over_k(const ScalarExpr& value) {
  TileOp op = make_op(OpKind::points, "sum", {parallel_dim("i", 0, 32), parallel_dim("j", 0, 32), reduced_dim("k", 0, 32)},
                      {2, {var("i"), var("j")}}, {{0, {var("i"), var("k")}}, {1, {var("k"), var("j")}}});
  op.value = value;
  op.reduction = ReductionOp::add;
  classify(op);
  return op;
}

TEST(Contraction, stands_in_ops_of_its_kind_alone) {
  const TileOp product = sum_over_k(times(single(0), single(1)));
  EXPECT_EQ(product.kind, OpKind::contract);
  EXPECT_EQ(product.contraction, (Contraction{0, 1, 1}));
  const TileOp other = sum_over_k(times(rounded(single(0)), single(1)));
  EXPECT_EQ(other.kind, OpKind::reduce);
  EXPECT_FALSE(other.contraction);
  TileOp rows = product;  // no dim is its own operand's
  rows.reads[1].index = {var("k"), var("i")};
  rows.dims.erase(rows.dims.begin() + 1);
  rows.write.index = {var("i")};
  classify(rows);
  EXPECT_EQ(rows.kind, OpKind::reduce);
  EXPECT_FALSE(rows.contraction);
}

TEST(Contraction, gives_a_product_its_operands) {
  const auto form = [&](const TileOp& op) { return nvptx::product_form(op); };
  const TileOp op = sum_over_k(times(single(1), single(0)));
  ASSERT_TRUE(form(op));
  EXPECT_EQ(op.reads[static_cast<std::size_t>(form(op)->a)].buffer, 0) << "rows are those of the first operand";
  EXPECT_EQ(op.reads[static_cast<std::size_t>(form(op)->b)].buffer, 1);
  EXPECT_FALSE(form(sum_over_k(times(f32(2), times(single(0), single(1)))))) << "a register block adds up products as they are";
  TileOp turned = op;  // c[j, i], and c[j, i, 0] as parts have it: rows are the outer ones of the result
  for (const auto& index : {std::vector<IntExpr>{var("j"), var("i")}, std::vector<IntExpr>{var("j"), var("i"), IntExpr(0)}}) {
    turned.write.index = index;
    ASSERT_TRUE(form(turned));
    EXPECT_EQ(std::pair(form(turned)->row, form(turned)->column), std::pair(1, 0));
    EXPECT_EQ(turned.reads[static_cast<std::size_t>(form(turned)->a)].buffer, 1);
  }
}

}  // namespace
}  // namespace nestor::testing
