// Sums of few elements beside values that hold for most.
#include "poly/algebra/values/direct_sums.h"

#include "poly/algebra/values/builders.h"
#include "poly/algebra/values/nest_edit.h"

#include <isl/set.h>

#include <limits>

namespace nestor {

namespace {

constexpr double kLargest = std::numeric_limits<float>::max();

}  // namespace

ScalarExpr is_finite(const ScalarExpr& value) { return at_most(value, kLargest); }

bool tests_finite(const ScalarExpr& node) {
  return node.op() == ScalarOp::le && node.args()[0].op() == ScalarOp::abs && node.args()[1].is_constant(kLargest);
}

ScalarExpr at_most(const ScalarExpr& value, double most) {
  return ScalarExpr::make(ScalarOp::le, {build::unary(ScalarOp::abs, value), build::number(most)});
}

std::string add_results(Nest& nest, const Statement& sum, const DimsView& results, const std::string& suffix) {
  nest.tensors.push_back(results.tensor(nest, fresh_name(nest, sum.write.tensor + suffix)));
  return nest.tensors.back().name;
}

Statement over_results(const Nest& nest, const DimsView& results, const std::string& name, const std::string& tensor) {
  Statement result = results.over(name == tensor ? name : fresh_name(nest, name));
  result.write = {tensor, isl::manage(isl_set_identity(result.domain.copy())).set_range_tuple(tensor)};
  return result;
}

ScalarExpr read_at(Statement& statement, const std::string& tensor, const isl::map& relation) {
  return ScalarExpr::read(add_read(statement, {tensor, relation.set_range_tuple(tensor)}), ElementType::f32);
}

std::string add_direct_sums(Nest& nest, const Statement& sum, const DimsView& results, const std::string& value) {
  const std::string kept = add_results(nest, sum, results, "_kept");
  const auto insert = [&](const Statement& statement) { insert_statement(nest, group_begin(nest, sum.name), statement); };
  Statement begin = over_results(nest, results, kept + "_init", kept);
  const ScalarExpr begun = read_at(begin, value, begin.write.relation);
  begin.value = build::select(is_finite(begun), begun, build::number(0));
  insert(begin);
  Statement direct = sum;
  const ScalarExpr seen = read_at(direct, value, results.element(value));
  direct.value = build::select(is_finite(seen), build::number(0), sum.value);
  direct = renamed(direct, fresh_name(nest, kept + "_sum"));
  direct.write = {kept, results.element(kept).set_domain_tuple(direct.name)};
  compact(direct);
  insert(direct);
  return kept;
}

}  // namespace nestor
