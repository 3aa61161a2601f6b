// Builds statements from Halide definitions: dims, domains of reduction variables, accesses, reductions.
#include "frontend/statement_builder.h"

#include <isl/map.h>
#include <isl/set.h>

#include <fmt/ranges.h>

#include "frontend/simultaneous.h"
#include "poly/isl/isl_tools.h"

namespace nestor {

namespace ir = Halide::Internal;
using Halide::Expr;

namespace {

Expr without_lets(const Expr& expr) { return ir::substitute_in_all_lets(expr); }

class CallsFunc : public ir::IRGraphVisitor {
 public:
  explicit CallsFunc(std::string name) : name_(std::move(name)) {}
  bool found = false;

 protected:
  using ir::IRGraphVisitor::visit;
  void visit(const ir::Call* call) override {
    found = found || (call->call_type == ir::Call::Halide && call->name == name_);
    ir::IRGraphVisitor::visit(call);
  }

 private:
  std::string name_;
};

bool calls(const Expr& expr, const std::string& func) {
  CallsFunc visitor(func);
  expr.accept(&visitor);
  return visitor.found;
}

bool is_undefined(const Expr& expr) {
  const auto* call = expr.as<ir::Call>();
  return call != nullptr && call->is_intrinsic(ir::Call::undef);
}

/// One definition (pure or update) of a Func.
struct Stage {
  const FuncNode& node;
  FuncPlace place;
  std::vector<Expr> lhs;
  std::vector<Expr> values;
  std::vector<Expr> conditions;
  std::vector<ir::ReductionVariable> reduction_variables;
  int updates = 0;  ///< how many the Func has

  bool is_pure_position(std::size_t k) const {
    const auto* variable = lhs[k].as<ir::Variable>();
    return variable != nullptr && !variable->reduction_domain.defined() && variable->name == node.function.args()[k];
  }
};

/// "k$x" of a one-dimensional RDom is k; "r$y" of a larger one is r_y.
std::string reduction_name(const std::string& variable, const std::vector<ir::ReductionVariable>& all) {
  const std::size_t dollar = variable.rfind('$');
  if (dollar == std::string::npos) return identifier(variable);
  const std::string domain = variable.substr(0, dollar + 1);
  int siblings = 0;
  for (const ir::ReductionVariable& other : all) siblings += other.var.compare(0, domain.size(), domain) == 0 ? 1 : 0;
  const std::string stem = identifier(variable.substr(0, dollar));
  return siblings == 1 ? stem : stem + "_" + variable.substr(dollar + 1);
}

/// Translates one component of one stage.
class ComponentBuilder {
 public:
  ComponentBuilder(const Stage& stage, std::size_t component, HalideGraph& graph, const HalideDefinition& definition,
                   NameTable& statement_names)
      : stage_(stage), component_(component), graph_(graph), definition_(definition) {
    name_ = statement_names.take(statement_name());
    NameTable dims = graph.names();
    for (std::size_t k = stage_.lhs.size(); k-- > 0;) {
      if (stage_.is_pure_position(k)) add_dim(stage_.lhs[k].as<ir::Variable>()->name, "", dims);
    }
    for (auto variable = stage_.reduction_variables.rbegin(); variable != stage_.reduction_variables.rend(); ++variable) {
      add_dim(variable->var, reduction_name(variable->var, stage_.reduction_variables), dims);
    }
  }

  StatementDraft build() {
    std::vector<std::string> params;
    params.reserve(definition_.sizes.size());
    for (const HalideSize& size : definition_.sizes) params.push_back(size.param.name());
    const std::string header = params.empty() ? "" : fmt::format("[{}] -> ", fmt::join(params, ", "));
    const isl::set universe = parse_set(fmt::format("{}{{ {}[{}] }}", header, name_, fmt::join(dims_, ", ")), stage_.place.str());
    AffineScope scope(universe, positions_, graph_.parameters());
    ValueTranslator translator(stage_.place, scope, graph_.parameters(),
                               [&](const ir::Call& call) { return graph_.tensor_of(call, stage_.place); });
    const TensorRef& tensor = stage_.node.tensors[component_];
    const std::vector<isl::pw_aff> index = translator.indices_of(stage_.lhs, tensor.name);
    StatementDraft draft(universe, relation_of(universe, tensor.name, index));
    draft.name = name_;
    draft.dims = dims_;
    draft.tensor = tensor.name;
    draft.base = reduction_domain(translator, scope);
    draft.pure_part = pure_part(draft);
    Expr value = stage_.values[component_];
    narrow(draft, scope, value);
    draft.reduction = strip_reduction(value);
    draft.value = stored(translator.translate(value), tensor);
    draft.reads = translator.reads();
    draft.indices = translator.indices();
    return draft;
  }

 private:
  std::string statement_name() const {
    const std::string& stem = stage_.node.tensors[component_].name;
    if (stage_.updates == 0) return stem;
    if (stage_.place.update < 0) return stem + "_init";
    return stage_.updates == 1 ? stem : fmt::format("{}_{}", stem, stage_.place.update + 1);
  }

  void add_dim(const std::string& variable, const std::string& wanted, NameTable& taken) {
    positions_.emplace(variable, static_cast<int>(dims_.size()));
    dims_.push_back(taken.take(wanted.empty() ? identifier(variable) : wanted));
  }

  isl::set reduction_domain(ValueTranslator& translator, AffineScope& scope) const {
    isl::set domain = scope.universe();
    for (const ir::ReductionVariable& variable : stage_.reduction_variables) {
      const std::string role =
          fmt::format("bound of reduction variable '{}'", reduction_name(variable.var, stage_.reduction_variables));
      const isl::pw_aff value = dim_function(scope.universe(), positions_.at(variable.var));
      const isl::pw_aff low = translator.affine(without_lets(variable.min), role);
      const isl::pw_aff extent = translator.affine(without_lets(variable.extent), role);
      domain = domain.intersect(value.ge_set(low)).intersect(value.lt_set(low.add(extent)));
    }
    for (const Expr& condition : stage_.conditions) {
      const std::optional<isl::set> holds = scope.condition(condition);
      if (!holds) refuse(stage_.place, "where condition", condition, "not affine: " + scope.reason());
      domain = domain.intersect(*holds);
    }
    return domain.coalesce();
  }

  isl::map pure_part(const StatementDraft& draft) const {
    isl::map relation = isl::map::universe(draft.write.space());
    const std::size_t rank = stage_.lhs.size();
    for (std::size_t k = 0; k < rank; ++k) {
      if (!stage_.is_pure_position(k)) continue;
      const int dim = positions_.at(stage_.lhs[k].as<ir::Variable>()->name);
      relation = isl::manage(isl_map_equate(relation.copy(), isl_dim_in, static_cast<unsigned>(dim), isl_dim_out,
                                            static_cast<unsigned>(rank - 1 - k)));
    }
    return relation;
  }

  /// True when `expr` reads the very element that the statement writes.
  bool is_self(const Expr& marked) const {
    const Expr expr = without_markers(marked);
    const auto* call = expr.as<ir::Call>();
    if (call == nullptr || call->call_type != ir::Call::Halide || call->name != stage_.node.function.name()) return false;
    if (call->value_index != static_cast<int>(component_)) return false;
    for (std::size_t k = 0; k < stage_.lhs.size(); ++k) {
      if (!ir::equal(without_lets(call->args[k]), stage_.lhs[k])) return false;
    }
    return true;
  }

  /// select(c, e, self) with an affine c assigns e where c holds.
  void narrow(StatementDraft& draft, AffineScope& scope, Expr& value) const {
    if (stage_.place.update < 0) return;
    for (;;) {
      value = without_markers(value);
      const auto* select = value.as<ir::Select>();
      if (select == nullptr) return;
      const bool keeps_else = is_self(select->false_value);
      if (!keeps_else && !is_self(select->true_value)) return;
      const std::optional<isl::set> when = scope.condition(select->condition);
      if (!when) return;
      draft.base = keeps_else ? draft.base.intersect(*when) : draft.base.subtract(*when);
      value = Expr(keeps_else ? select->true_value : select->false_value);
    }
  }

  /// Recognises self (+) e and leaves e. A sum kept in a 16-bit tensor is rounded at every step: no reduction.
  std::optional<ReductionOp> strip_reduction(Expr& value) const {
    if (stage_.place.update < 0) return std::nullopt;
    const Expr whole = without_markers(value);
    const bool exact = whole.type().bits() == 32;
    const auto rest_of = [&](const Expr& a, const Expr& b) -> Expr {
      const Expr rest = is_self(a) ? b : (is_self(b) ? a : Expr());
      return rest.defined() && !calls(rest, stage_.node.function.name()) ? rest : Expr();
    };
    const auto found = [&](const Expr& rest, ReductionOp op) -> std::optional<ReductionOp> {
      if (!rest.defined()) return std::nullopt;
      value = rest;
      return op;
    };
    if (const auto* n = whole.as<ir::Add>(); n != nullptr && exact) return found(rest_of(n->a, n->b), ReductionOp::add);
    if (const auto* n = whole.as<ir::Mul>(); n != nullptr && exact) return found(rest_of(n->a, n->b), ReductionOp::mul);
    if (const auto* n = whole.as<ir::Sub>(); n != nullptr && exact && is_self(n->a)) {
      const Expr rest = rest_of(n->a, n->b);
      return found(rest.defined() ? -rest : rest, ReductionOp::add);
    }
    if (whole.type().is_uint()) return std::nullopt;
    if (const auto* n = whole.as<ir::Min>()) return found(rest_of(n->a, n->b), ReductionOp::min);
    if (const auto* n = whole.as<ir::Max>()) return found(rest_of(n->a, n->b), ReductionOp::max);
    return std::nullopt;
  }

  static ScalarExpr stored(const ScalarExpr& value, const TensorRef& tensor) {
    if (tensor.boolean) {
      const auto number = [](double x) { return ScalarExpr::constant(x, ElementType::i32); };
      return ScalarExpr::make(ScalarOp::select, {value, number(1), number(0)});
    }
    if (tensor.type == value.type()) return value;
    // f32(f16(x)), as 16-bit arithmetic leaves it, is stored as f16(x).
    const bool widened = value.op() == ScalarOp::cast && value.args()[0].type() == tensor.type;
    return widened ? value.args()[0] : ScalarExpr::cast(tensor.type, value);
  }

  const Stage& stage_;
  std::size_t component_;
  HalideGraph& graph_;
  const HalideDefinition& definition_;
  std::string name_;
  std::vector<std::string> dims_;
  std::map<std::string, int> positions_;
};

Stage make_stage(const FuncNode& node, int update) {
  const ir::Function& function = node.function;
  const ir::Definition& definition = update < 0 ? function.definition() : function.update(update);
  Stage stage{node,
              FuncPlace{identifier(function.name()), update},
              {},
              {},
              {},
              definition.schedule().rvars(),
              static_cast<int>(function.updates().size())};
  for (const Expr& arg : definition.args()) stage.lhs.push_back(without_lets(arg));
  for (const Expr& value : definition.values()) stage.values.push_back(without_lets(value));
  for (const Expr& condition : definition.split_predicate()) stage.conditions.push_back(without_lets(condition));
  return stage;
}

}  // namespace

FuncDraft build_statements(const FuncNode& node, HalideGraph& graph, const HalideDefinition& definition,
                           NameTable& statement_names, int& group) {
  FuncDraft draft;
  draft.tensors = node.tensors;
  for (int update = -1; update < static_cast<int>(node.function.updates().size()); ++update) {
    const Stage stage = make_stage(node, update);
    std::vector<StatementDraft> components;
    for (std::size_t c = 0; c < stage.values.size(); ++c) {
      if (is_undefined(without_markers(stage.values[c]))) continue;
      components.push_back(ComponentBuilder(stage, c, graph, definition, statement_names).build());
    }
    order_simultaneous(components, draft.tensors, graph.names(), statement_names);
    for (StatementDraft& statement : components) {
      statement.group = group;
      draft.statements.push_back(statement);
    }
    ++group;
  }
  return draft;
}

}  // namespace nestor
