// Puts the pieces together: graph, statements, bounds, shapes, nest.
#include "frontend/halide_frontend.h"

#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

#include <fmt/ranges.h>

#include "frontend/bounds_inference.h"
#include "frontend/halide_graph.h"
#include "frontend/statement_builder.h"
#include "poly/isl/context.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"
#include "support/error.h"

namespace nestor {

namespace ir = Halide::Internal;
using Halide::Expr;

namespace {

isl::pw_aff constant_over_params(const isl::set& context, long value) {
  return isl::manage(isl_pw_aff_val_on_domain(isl_set_universe(isl_set_get_space(context.get())),
                                              isl_val_int_from_si(isl_context().get(), value)));
}

class Extraction {
 public:
  explicit Extraction(const HalideDefinition& definition)
      : definition_(definition), graph_(definition), sizes_universe_(sizes_universe()), context_(make_context()) {}

  Nest run() {
    Nest nest;
    nest.op = definition_.op;
    nest.variant = definition_.variant;
    nest.tolerance = definition_.tolerance;
    nest.context = context_;
    for (const HalideSize& size : definition_.sizes) {
      nest.sizes.push_back({size.param.name(), size.min, size.max, size.specialized, size.default_value});
    }
    add_scalars(nest);
    NameTable statement_names;
    int group = 0;
    for (const FuncNode& node : graph_.funcs())
      funcs_.push_back(build_statements(node, graph_, definition_, statement_names, group));
    declare_outputs();
    needed_ = infer_bounds(funcs_, context_, output_boxes_);
    add_inputs(nest);
    for (const Tensor& output : outputs_) nest.tensors.push_back(output);
    add_temporaries(nest);
    for (const FuncDraft& func : funcs_) add_statements(nest, func);
    validate(nest);
    return nest;
  }

 private:
  isl::set sizes_universe() const {
    std::vector<std::string> names;
    names.reserve(definition_.sizes.size());
    for (const HalideSize& size : definition_.sizes) names.push_back(size.param.name());
    return parse_set(names.empty() ? "{ [] }" : fmt::format("[{}] -> {{ [] }}", fmt::join(names, ", ")), "sizes");
  }

  isl::set make_context() const {
    AffineScope scope(sizes_universe_, {}, graph_.parameters());
    isl::set context = sizes_universe_;
    for (const HalideSize& size : definition_.sizes) {
      const Expr value = size.param;
      context = context.intersect(*scope.condition(value >= static_cast<int>(size.min)));
      if (size.max) context = context.intersect(*scope.condition(value <= static_cast<int>(*size.max)));
    }
    for (const Expr& fact : definition_.require) {
      const std::optional<isl::set> holds = scope.condition(fact);
      if (!holds) user_error("operator '{}': requirement '{}' is not affine: {}", definition_.op, text_of(fact), scope.reason());
      context = context.intersect(*holds);
    }
    context = context.params().coalesce();
    if (context.is_empty())
      user_error("operator '{}': its requirements contradict each other: no sizes are left", definition_.op);
    return context;
  }

  /// The number that a Param's set_range gave; `otherwise` where it gave none.
  static double limit(const Expr& expr, double otherwise) {
    if (const auto* number = expr.as<ir::FloatImm>()) return number->value;
    if (const auto* number = expr.as<ir::IntImm>()) return static_cast<double>(number->value);
    return otherwise;
  }

  void add_scalars(Nest& nest) const {
    for (const HalideScalar& scalar : definition_.scalars) {
      const auto* variable = scalar.param.as<ir::Variable>();
      const ElementType type = element_type_of(variable->type, FuncPlace{definition_.op}, scalar.param);
      if (variable->type.is_bool()) user_error("operator '{}': scalar '{}' is a bool; use int32", definition_.op, variable->name);
      ScalarParam param{graph_.parameters().scalars.at(variable->name), type, scalar.default_value};
      if (variable->param.defined()) {
        param.minimum = limit(variable->param.min_value(), param.minimum);
        param.maximum = limit(variable->param.max_value(), param.maximum);
      }
      nest.scalars.push_back(std::move(param));
    }
  }

  /// Extents over the sizes, outermost first.
  std::vector<isl::pw_aff> extents_of(const std::vector<Expr>& extents, const std::string& owner) const {
    AffineScope scope(sizes_universe_, {}, graph_.parameters());
    std::vector<isl::pw_aff> shape;
    for (auto extent = extents.rbegin(); extent != extents.rend(); ++extent) {
      const std::optional<isl::pw_aff> function = extent->defined() ? scope.integer(*extent) : std::nullopt;
      if (!function) {
        user_error("{}: extent '{}' is not affine in the sizes: {}", owner, extent->defined() ? text_of(*extent) : "(undefined)",
                   scope.reason());
      }
      shape.push_back(over_params(*function).gist(context_));
    }
    return shape;
  }

  void declare_outputs() {
    for (std::size_t k = 0; k < definition_.outputs.size(); ++k) {
      for (const FuncNode& node : graph_.funcs()) {
        if (node.output != static_cast<int>(k)) continue;
        const std::vector<isl::pw_aff> shape = extents_of(definition_.outputs[k].extents, "Func '" + node.name + "'");
        for (const TensorRef& tensor : node.tensors) {
          outputs_.push_back({tensor.name, tensor.type, TensorRole::output, shape});
          output_boxes_.emplace(tensor.name, tensor_box(outputs_.back()).intersect_params(context_));
        }
      }
    }
  }

  void add_inputs(Nest& nest) const {
    for (const InputNode& input : graph_.inputs()) {
      const auto needed = needed_.find(input.tensor.name);
      Tensor tensor{input.tensor.name, input.tensor.type, TensorRole::input, {}};
      if (input.declared >= 0) {
        tensor.shape = extents_of(definition_.inputs[input.declared].extents, "input '" + tensor.name + "'");
        check_inside(tensor, needed == needed_.end() ? std::nullopt : std::optional<isl::set>(needed->second));
      } else {
        if (needed == needed_.end()) continue;
        tensor.shape = bounding_shape(needed->second, input.rank);
        check_inside(tensor, needed->second);
      }
      nest.tensors.push_back(tensor);
    }
  }

  void check_inside(const Tensor& tensor, const std::optional<isl::set>& needed) const {
    if (!needed) return;
    const isl::set outside = needed->intersect_params(context_).subtract(tensor_box(tensor));
    if (outside.is_empty()) return;
    user_error("input '{}': elements outside it are read, at {}", tensor.name, isl_text(outside.coalesce()));
  }

  /// Largest index + 1 of a part of a tensor, by dim; 0 where the part is empty.
  std::vector<isl::pw_aff> bounding_shape(const isl::set& part, int rank) const {
    std::vector<isl::pw_aff> shape;
    for (int k = 0; k < rank; ++k) {
      const isl::pw_aff last = isl::manage(isl_set_dim_max(part.copy(), k));
      shape.push_back(total(over_params(last).add_constant(1L)));
    }
    return shape;
  }

  /// `function`, and 0 for sizes in the context where it has no value.
  isl::pw_aff total(const isl::pw_aff& function) const {
    const isl::set missing = context_.subtract(function.domain());
    const isl::pw_aff zero = constant_over_params(context_, 0).intersect_domain(missing);
    return function.intersect_domain(context_).union_add(zero).coalesce().gist(context_);
  }

  void add_temporaries(Nest& nest) {
    for (const FuncDraft& func : funcs_) {
      for (const TensorRef& ref : func.tensors) {
        if (output_boxes_.count(ref.name) != 0) continue;
        const auto needed = needed_.find(ref.name);
        if (needed == needed_.end() || needed->second.is_empty()) continue;
        isl::set part = needed->second.intersect_params(context_);
        const int rank = static_cast<int>(part.tuple_dim());
        if (const std::optional<isl::map> shift = shift_of(part, rank)) {
          part = part.apply(*shift);
          shifts_.emplace(ref.name, *shift);
        }
        nest.tensors.push_back({ref.name, ref.type, TensorRole::temporary, bounding_shape(part, rank)});
      }
    }
  }

  /// Moves a part with negative indices to the origin; nullopt when there are none.
  std::optional<isl::map> shift_of(const isl::set& part, int rank) const {
    bool shifted = false;
    std::vector<isl::pw_aff> index;
    const isl::set universe = isl::set::universe(part.space());
    for (int k = 0; k < rank; ++k) {
      index.push_back(dim_function(universe, k));
      const isl::pw_aff first = total(over_params(isl::manage(isl_set_dim_min(part.copy(), k))));
      const isl::set negative = first.lt_set(constant_over_params(context_, 0)).intersect(context_);
      if (negative.is_empty()) continue;
      shifted = true;
      const isl::pw_aff lifted = isl::manage(isl_pw_aff_insert_domain(first.copy(), isl_set_get_space(universe.get())));
      index.back() = index.back().sub(lifted);
    }
    if (!shifted) return std::nullopt;
    const std::string name = isl_set_get_tuple_name(part.get());
    return relation_of(universe, name, index);
  }

  Access access(const std::string& tensor, const isl::map& relation) const {
    const auto shift = shifts_.find(tensor);
    return {tensor, shift == shifts_.end() ? relation : relation.apply_range(shift->second).coalesce()};
  }

  void add_statements(Nest& nest, const FuncDraft& func) const {
    for (const StatementDraft& draft : func.statements) {
      if (draft.domain.is_empty()) continue;
      Statement statement{draft.name,  draft.dims,      draft.domain, access(draft.tensor, draft.write), {}, draft.indices,
                          draft.value, draft.reduction, draft.group};
      for (std::size_t k = 0; k < draft.reads.size(); ++k) {
        statement.reads.push_back(access(draft.reads[k].tensor, draft.read_relation(k)));
      }
      nest.statements.push_back(statement);
    }
  }

  const HalideDefinition& definition_;
  HalideGraph graph_;
  isl::set sizes_universe_;
  isl::set context_;
  std::vector<FuncDraft> funcs_;
  std::vector<Tensor> outputs_;
  std::map<std::string, isl::set> output_boxes_;
  std::map<std::string, isl::set> needed_;
  std::map<std::string, isl::map> shifts_;
};

}  // namespace

Nest extract_nest(const HalideDefinition& definition) {
  Nest nest;
  with_isl_budget(
      fmt::format("extracting operator '{}'", definition.op), [&] { nest = Extraction(definition).run(); }, 10 * kIslBudget);
  return nest;
}

}  // namespace nestor
