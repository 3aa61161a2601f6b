// Rule "round_operand": a computed operand of a product of matrices is kept in the 16 bits of the other one.
//
// Pattern    r_e += t_p b_q, where b is an input of 16 bits, or a temporary of the 16 bits that all such inputs have; t a temporary of f32 with
//            one elementwise definition, or a reduction behind no product of matrices, as a mean; and each of them follows a dim of the result
//            that the other does not (a product of matrices).
//            Where all 16-bit inputs have one type, b may be such a temporary of f32 as well: both are rounded.
// Rewrite    t'_p = t_p, rounded to the type of b, behind the definition of t; r_e += t'_p b_q. Other readers keep t.
// Conditions t and b are read along a common reduced dim.
// Proof      t' is t but for the rounding, which every kernel may do: tensor cores take no wider operands (docs/results.md).
// Rounding   each element of t once, to 16 bits. What overflows them is infinite, and what vanishes makes NaN of infinities of b.
#include <isl/map.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "poly/algebra/operands/half_products.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/factor_chain.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"

namespace nestor {
namespace {

constexpr const char* kName = "round_operand";

struct Operand {
  int read = -1;  ///< ordinal of the computed operand
  const Statement* definition = nullptr;
  ElementType type{};  ///< of the other one
};

/// The 16 bits that all inputs of 16 bits have.
std::optional<ElementType> half_of_inputs(const Nest& nest) {
  std::optional<ElementType> found;
  for (const Tensor& input : nest.tensors) {
    if (input.role != TensorRole::input || !is_half(input.type)) continue;
    if (found && *found != input.type) return std::nullopt;
    found = input.type;
  }
  return found;
}

/// Does it have the 16 bits that a product's operands may be rounded to (rounding_model.h)?
bool is_half_operand(const Nest& nest, const Tensor& tensor) {
  return tensor.role == TensorRole::input || half_of_inputs(nest) == tensor.type;
}

/// Reads of the product's factors, and the type for the first one.
struct Factors {
  std::size_t wide, other;
  ElementType type;
};

std::vector<Factors> factors_of(const Nest& nest, const Statement& sum) {
  std::vector<Factors> found;
  for (const auto& [wide, half] : wide_and_half(nest, sum)) {
    const Tensor& tensor = nest.tensor(sum.reads[half].tensor);
    if (is_half_operand(nest, tensor)) found.push_back({wide, half, tensor.type});
  }
  const auto half = half_of_inputs(nest);
  const auto both = half ? products_of_one_width(sum) : std::nullopt;
  const auto is_wide = [&](std::size_t read) {
    const Tensor& tensor = nest.tensor(sum.reads[read].tensor);
    return tensor.role == TensorRole::temporary && tensor.type == ElementType::f32;
  };
  if (both && is_wide(both->first) && is_wide(both->second)) found.push_back({both->first, both->second, *half});
  return found;
}

/// The statement behind which the temporary is complete: its elementwise definition, or a reduction that has terms for all elements, of values that
/// come from no product of matrices; null: there is none.
const Statement* definition_of(const Nest& nest, const std::string& tensor) {
  if (const Statement* definition = sole_definition(nest, tensor)) return definition;
  const std::vector<const Statement*> writers = writers_of(nest, tensor);
  const auto reduces = [](const Statement* writer) { return writer->reduction.has_value(); };
  const auto reduction = std::find_if(writers.begin(), writers.end(), reduces);
  if (reduction == writers.end() || std::count_if(writers.begin(), writers.end(), reduces) != 1) return nullptr;
  const bool alone = alone_in_group(nest, (*reduction)->name) && initialisers_of(nest, **reduction).size() + 1 == writers.size();
  const std::vector<const Statement*> behind = statements_behind(nest, {tensor});
  const bool products = std::any_of(behind.begin(), behind.end(), [](const Statement* sum) { return multiplies_own_dims(*sum); });
  return alone && !products && always_has_points(nest, **reduction) ? *reduction : nullptr;
}

/// Sets `why` where there is none.
std::optional<Operand> operand_of(const Nest& nest, const Statement& sum, std::string& why) {
  why = "it is no sum of products of a 16-bit tensor and a temporary of f32";
  const std::vector<int> reduced = reduced_dims(sum);
  for (const auto& [wide, other, type] : factors_of(nest, sum)) {
    const Access &a = sum.reads[wide], &b = sum.reads[other];
    why = "its temporary has no elementwise definition, and is no plain sum of other values";
    const Statement* definition = definition_of(nest, a.tensor);
    if (!definition || position_of(nest, definition->name) > position_of(nest, sum.name)) continue;
    why = "its factors are not those of a product of matrices";
    const bool meet = std::any_of(reduced.begin(), reduced.end(),
                                  [&](int dim) { return depends_on_dim(a.relation, dim) && depends_on_dim(b.relation, dim); });
    if (meet && follows_own_dim(sum, wide, other) && follows_own_dim(sum, other, wide))
      return Operand{static_cast<int>(wide), definition, type};
  }
  return std::nullopt;
}

std::vector<RuleMatch> find(const Nest& nest) {
  std::string why;
  return matching_statements(nest, kName, [&](const Statement& statement) {
    const auto operand = operand_of(nest, statement, why);
    return operand ? operand->definition->write.tensor + " is rounded to 16 bits for " + statement.name : "";
  });
}

/// The access to the same indices of another tensor.
Access of_tensor(const Access& access, const std::string& tensor) {
  return {tensor, isl::manage(isl_map_set_tuple_name(access.relation.copy(), isl_dim_out, tensor.c_str()))};
}

/// Does the statement write all elements of the other tensor's that the sum reads?
bool has_all_elements(const Nest& nest, const Statement& sum, const std::string& wide, const Statement& narrow) {
  const isl::set written = narrow.write.relation.intersect_domain(domain_in(nest, narrow)).range();
  return std::all_of(sum.reads.begin(), sum.reads.end(), [&](const Access& read) {
    const isl::set needed = of_tensor(read, narrow.write.tensor).relation.intersect_domain(domain_in(nest, sum)).range();
    return read.tensor != wide || needed.is_subset(written);
  });
}

/// A temporary between the definition of another one and the sum that has its elements, rounded to that type.
std::optional<std::string> known_rounded(const Nest& nest, const Statement& sum, const Statement& definition, ElementType type) {
  const std::string& wide = definition.write.tensor;
  for (const Statement* reader : readers_of(nest, wide)) {
    const Tensor& narrow = nest.tensor(reader->write.tensor);
    const ScalarExpr& value = reader->value;
    if (definition.group < reader->group && reader->group < sum.group && narrow.role == TensorRole::temporary &&
        narrow.type == type && value.op() == ScalarOp::cast && value.args()[0].op() == ScalarOp::read &&
        sole_definition(nest, narrow.name) == reader && reader->reads.size() == 1 &&
        reader->reads[0].relation.is_equal(of_tensor(reader->write, wide).relation) && has_all_elements(nest, sum, wide, *reader))
      return narrow.name;
  }
  return std::nullopt;
}

/// Rounds the operand behind its definition, which is one of another copy of the nest.
std::string add_rounded(Nest& result, const Operand& operand) {
  const Statement& definition = *operand.definition;
  const std::string narrow = fresh_name(result, definition.write.tensor + "_rounded");
  Tensor rounded = result.tensor(definition.write.tensor);
  rounded.name = narrow;
  rounded.type = operand.type;
  result.tensors.push_back(rounded);
  isl::map to_definition;
  Statement store = element_statement(result, definition, narrow, to_definition);
  const int ordinal = add_read(store, store.write);
  store.write = of_tensor(store.write, narrow);
  store.value = ScalarExpr::cast(operand.type, ScalarExpr::read(ordinal, ElementType::f32));
  insert_statement(result, group_end(result, definition.name), store);
  return narrow;
}

Nest with_rounded(const Nest& nest, const std::string& name, const Operand& operand) {
  const auto known = known_rounded(nest, nest.statement(name), *operand.definition, operand.type);
  Nest result = nest;
  const std::string narrow = known ? *known : add_rounded(result, operand);
  Statement& sum =
      *std::find_if(result.statements.begin(), result.statements.end(), [&](const Statement& s) { return s.name == name; });
  const auto read = static_cast<std::size_t>(operand.read);
  const int other = add_read(sum, of_tensor(sum.reads[read], narrow));
  sum.value = sum.value.rewrite([&](const ScalarExpr& node) {
    if (node.op() != ScalarOp::read || node.ordinal() != operand.read) return node;
    return ScalarExpr::cast(ElementType::f32, ScalarExpr::read(other, operand.type));
  });
  compact(sum);
  return result;
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  Nest result = with_rounded(nest, statement_argument(nest, kName, target, 1), required_match(nest, kName, target, operand_of));
  std::string why;
  while (const auto other = operand_of(result, result.statement(target[0]), why))
    result = with_rounded(result, target[0], *other);
  return {std::move(result), {}, false};
}

}  // namespace

const Rule& round_operand_rule() {
  static const Rule rule{kName,
                         "a computed operand of a product of matrices is rounded to the other's 16 bits (argument: statement)",
                         "the operand is the same but for a rounding that kernels of products may do",
                         "each element of the operand once, to 16 bits",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
