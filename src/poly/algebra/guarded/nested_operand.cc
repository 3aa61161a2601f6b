// Inner sums as operands, and the choice beside them.
#include "poly/algebra/guarded/nested_operand.h"

#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <numeric>

#include "poly/algebra/values/builders.h"
#include "poly/algebra/values/dims_view.h"
#include "poly/algebra/values/direct_sums.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"

namespace nestor {
namespace {

bool contains(const std::vector<int>& dims, int dim) { return std::find(dims.begin(), dims.end(), dim) != dims.end(); }

/// The operand beside `outside`: the inner sums themselves beside bf16 (rule bf16x3 makes their parts), else what is made of them.
std::string operand_of(SumEdit& edit, const DimsView& kept, const std::string& total, const ScalarExpr& outside) {
  if (strip_exact_casts(outside).type() == ElementType::bf16) return total;
  const std::string operand = fresh_name(edit.nest(), edit.sum().write.tensor + "_operand");
  edit.nest().tensors.push_back(kept.tensor(edit.nest(), operand));
  Statement store = kept.over(operand);
  store.write = {operand, isl::manage(isl_set_identity(store.domain.copy()))};
  store.value = read_at(store, total, store.write.relation);
  edit.insert(store);
  return operand;
}

}  // namespace

bool nests_operand(const Statement& sum, const SharedNesting& shared) {
  if (shared.nesting.outside.size() != 1) return false;
  const ScalarExpr element = strip_exact_casts(shared.nesting.outside.front());
  if (element.op() != ScalarOp::read || (element.type() != ElementType::f16 && element.type() != ElementType::bf16)) return false;
  const isl::map& read = sum.reads[static_cast<std::size_t>(element.ordinal())].relation;
  const std::vector<int> reduced = reduced_dims(sum);
  bool row = false, column = false, term = false;
  for (const int dim : shared.nesting.outer) {
    const bool inside = contains(shared.kept, dim), outside = depends_on_dim(read, dim);
    if (!inside && !outside) return false;
    (contains(reduced, dim) ? term : inside ? row : column) |= contains(reduced, dim) ? inside && outside : inside != outside;
  }
  return row && column && term;
}

Nest with_nested_operand(SumEdit& edit, const Statement& sum, const SharedNesting& shared) {
  const DimsView kept(sum, shared.kept), results(sum, shared.nesting.outer);
  const std::string total = accumulate_inside(edit.nest(), sum, shared, "_inner", ReductionOp::add, edit.start_name());
  const std::string operand = operand_of(edit, kept, total, shared.nesting.outside.front());
  const isl::map whole = edit.add_tensor(edit.elements(), "_product");
  const std::string product_name = tensor_of(whole);
  edit.add_start(edit.elements(), whole);
  Statement product = results.over(fresh_name(edit.nest(), product_name + "_sum"));
  const ScalarExpr left = read_at(product, operand, results.seen_by(product, kept.element(operand)));
  product.value = build::mul(left, import_value(product, sum, results.to_statement(product), shared.nesting.outside.front()));
  std::vector<int> elements(sum.dims.size());
  std::iota(elements.begin(), elements.end(), 0);
  std::erase_if(elements, [reduced = reduced_dims(sum)](int dim) { return contains(reduced, dim); });
  product.write = {product_name, results.seen_by(product, onto_dims(sum, elements, product_name))};
  product.reduction = ReductionOp::add;
  edit.insert(product);
  return edit.guard(
      whole, [](const ScalarExpr& found) { return ScalarExpr::make(ScalarOp::logical_not, {is_finite(found)}); },
      [](const ScalarExpr& found) { return build::select(is_finite(found), found, build::number(0)); });
}

}  // namespace nestor
