// Finds matrix products: sums over products of two factors, each with a dim that the other lacks.
#include "autotune/oracle/rounding_model.h"

#include "poly/algebra/all_rules.h"

#include <isl/map.h>

#include <algorithm>
#include <set>

namespace nestor {
namespace {

bool is_narrow(ElementType type) { return type == ElementType::f16 || type == ElementType::bf16; }

const ScalarExpr& without_casts(const ScalarExpr& expr) {
  return expr.op() == ScalarOp::cast && expr.type() == ElementType::f32 ? without_casts(expr.args()[0]) : expr;
}

/// A factor of a product.
struct Factor {
  std::set<int> dims;  ///< of the statement, that its reads depend on
  int read = -1;       ///< it is this read and nothing else
  bool computed = false;
};

Factor factor_of(const ScalarExpr& expr, const Statement& statement, const Nest& nest) {
  Factor factor;
  expr.visit([&](const ScalarExpr& part) {
    if (part.op() != ScalarOp::read) return;
    const isl::map& relation = statement.reads.at(part.ordinal()).relation;
    for (int k = 0; k < static_cast<int>(statement.dims.size()); ++k) {
      if (isl_map_involves_dims(relation.get(), isl_dim_in, static_cast<unsigned>(k), 1) == isl_bool_true) factor.dims.insert(k);
    }
  });
  const ScalarExpr& core = without_casts(expr);
  if (core.op() == ScalarOp::read) factor.read = core.ordinal();
  factor.computed = factor.read < 0 || nest.tensor(statement.reads.at(factor.read).tensor).role == TensorRole::temporary;
  return factor;
}

bool has_own_dim(const Factor& factor, const Factor& other) {
  return !std::includes(other.dims.begin(), other.dims.end(), factor.dims.begin(), factor.dims.end());
}

std::optional<ElementType> narrow_input(const Nest& nest) {
  std::optional<ElementType> found;
  for (const Tensor& tensor : nest.tensors) {
    if (tensor.role != TensorRole::input || !is_narrow(tensor.type)) continue;
    if (!found || tensor.type == ElementType::bf16) found = tensor.type;
  }
  return found;
}

class ProductFinder {
 public:
  explicit ProductFinder(const Nest& nest) : nest_(nest), input_(narrow_input(nest)) {}

  RoundingModel find() {
    RoundingModel model;
    for (const Statement& statement : nest_.statements) {
      RoundingModel::Product product;
      if (statement.reduction == ReductionOp::add) {
        statement.value.visit([&](const ScalarExpr& part) {
          if (part.op() == ScalarOp::mul && part.type() == ElementType::f32) examine(part, statement, product, model);
        });
      }
      model.statements.push_back(product);
    }
    return model;
  }

 private:
  ElementType type_of(const Factor& factor, const Statement& statement) const {
    return nest_.tensor(statement.reads.at(factor.read).tensor).type;
  }

  void examine(const ScalarExpr& product, const Statement& statement, RoundingModel::Product& found, RoundingModel& model) const {
    const Factor a = factor_of(product.args()[0], statement, nest_), b = factor_of(product.args()[1], statement, nest_);
    if (!has_own_dim(a, b) || !has_own_dim(b, a)) return;
    const bool direct_a = !a.computed, direct_b = !b.computed;
    if (!input_) return;
    if ((direct_a && !is_narrow(type_of(a, statement))) || (direct_b && !is_narrow(type_of(b, statement)))) return;
    model.matrix_type = direct_a ? type_of(a, statement) : direct_b ? type_of(b, statement) : *input_;
    if (direct_a && direct_b) return;
    found.narrow = model.matrix_type;
    found.narrow_read = direct_a ? a.read : direct_b ? b.read : -1;
  }

  const Nest& nest_;
  const std::optional<ElementType> input_;
};

/// Forms of the definition in which its products are seen: where terms have no tensor of their own, where heads that stand side by side in
/// one dim are a dim, and where distances are places.
std::vector<Nest> product_forms(const Nest& nest) {
  std::vector<Nest> forms = forms_with_fewer_tensors(nest);
  for (std::size_t k = 0, count = forms.size(); k < count; ++k) {
    for (const char* name : {"split_dims", "unskew_dims"}) {
      for (const RuleMatch& match : rule(name).find(forms[k])) forms.push_back(rule(name).apply(forms[k], match.target).nest);
    }
  }
  return forms;
}

/// A product that a form shows is one of the definition's statement of that name.
void add_products(const Nest& form, const Nest& nest, RoundingModel& model) {
  const RoundingModel found = ProductFinder(form).find();
  if (!model.matrix_type) model.matrix_type = found.matrix_type;
  for (std::size_t k = 0; k < form.statements.size(); ++k) {
    const Statement& shown = form.statements[k];
    for (std::size_t n = 0; n < nest.statements.size() && found.statements[k].narrow; ++n) {
      const Statement& defined = nest.statements[n];
      RoundingModel::Product& product = model.statements[n];
      if (defined.name != shown.name || product.narrow) continue;
      product = found.statements[k];
      if (defined.reads.size() != shown.reads.size()) product.narrow_read = -1;
    }
  }
}

RoundingModel products_of(const Nest& nest) {
  RoundingModel model = ProductFinder(nest).find();
  for (const Nest& form : product_forms(nest)) add_products(form, nest, model);
  return model;
}

}  // namespace

RoundingModel rounding_model(const Nest& nest) {
  RoundingModel model = products_of(nest);
  const std::vector<Nest> forms = forms_with_fewer_tensors(nest);
  const auto mark = [&](const char* name, bool RoundingModel::Product::* freedom) {
    for (const Nest& form : forms) {
      for (const RuleMatch& match : rule(name).find(form)) {
        for (std::size_t k = 0; k < nest.statements.size(); ++k) {
          if (nest.statements[k].name == match.target.front()) model.statements[k].*freedom = true;
        }
      }
    }
  };
  mark("expand_squares", &RoundingModel::Product::expands);
  mark("factor_exponential", &RoundingModel::Product::factors);
  mark("prefix_reduction", &RoundingModel::Product::reorders);
  return model;
}

bool may_round_operands(const Nest& nest) {
  const RoundingModel model = products_of(nest);
  return std::any_of(model.statements.begin(), model.statements.end(),
                     [](const RoundingModel::Product& product) { return product.narrow.has_value(); });
}

}  // namespace nestor
