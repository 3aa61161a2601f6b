// Walks Halide's call graph depth first.
#include "frontend/halide_graph.h"

namespace nestor {

namespace ir = Halide::Internal;
using Halide::Expr;

namespace {

/// The calls of one Func, inputs and other Funcs, in the order of the text.
class CallCollector : public ir::IRGraphVisitor {
 public:
  std::vector<Expr> calls;

 protected:
  using ir::IRGraphVisitor::visit;
  void visit(const ir::Call* call) override {
    if (call->call_type == ir::Call::Halide || call->call_type == ir::Call::Image) calls.emplace_back(call);
    ir::IRGraphVisitor::visit(call);
  }
};

void check_size(const HalideSize& size) {
  const std::string& name = size.param.name();
  if (identifier(name) != name) user_error("size '{}': its name must be letters, digits and _, and no word of isl's", name);
  if (size.min < 1) user_error("size '{}': its smallest value is {}, but sizes are at least 1", name, size.min);
  if (size.default_value < size.min || (size.max && size.default_value > *size.max)) {
    user_error("size '{}': its default {} is outside its range", name, size.default_value);
  }
}

}  // namespace

const ir::Call* input_call(const ir::Call& call) {
  if (call.call_type == ir::Call::Image) return &call;
  if (call.call_type != ir::Call::Halide || !call.func.defined()) return nullptr;
  const ir::Function function(call.func);
  if (!function.is_pure() || function.values().size() != 1) return nullptr;
  const auto* inner = function.values()[0].as<ir::Call>();
  if (inner == nullptr || inner->call_type != ir::Call::Image || inner->args.size() != function.args().size()) return nullptr;
  for (std::size_t k = 0; k < inner->args.size(); ++k) {
    const auto* variable = inner->args[k].as<ir::Variable>();
    if (variable == nullptr || variable->name != function.args()[k]) return nullptr;
  }
  return inner;
}

HalideGraph::HalideGraph(const HalideDefinition& definition) {
  name_parameters(definition);
  add_declared_inputs(definition);
  if (definition.outputs.empty()) user_error("operator '{}': no output Func is listed", definition.op);
  for (const HalideOutput& output : definition.outputs) {
    if (!output.func.defined())
      user_error("operator '{}': output Func '{}' has no definition", definition.op, identifier(output.func.name()));
    walk(output.func.function(), definition);
  }
}

void HalideGraph::name_parameters(const HalideDefinition& definition) {
  for (const HalideSize& size : definition.sizes) {
    check_size(size);
    const std::string& name = size.param.name();
    if (!parameters_.sizes.emplace(name, name).second) user_error("size '{}' is listed twice", name);
    names_.take(name);
  }
  for (const HalideScalar& scalar : definition.scalars) {
    const auto* variable = scalar.param.defined() ? scalar.param.as<ir::Variable>() : nullptr;
    if (variable == nullptr || !variable->param.defined() || variable->param.is_buffer()) {
      user_error("operator '{}': a scalar must be a Param, not '{}'", definition.op,
                 scalar.param.defined() ? text_of(scalar.param) : "an undefined expression");
    }
    if (parameters_.sizes.count(variable->name) != 0) user_error("'{}' is listed both as a size and as a scalar", variable->name);
    parameters_.scalars.emplace(variable->name, names_.take(identifier(variable->name)));
  }
}

void HalideGraph::add_declared_inputs(const HalideDefinition& definition) {
  for (std::size_t k = 0; k < definition.inputs.size(); ++k) {
    const HalideInput& input = definition.inputs[k];
    const std::string& name = input.param.name();
    const int rank = input.param.dimensions();
    if (static_cast<int>(input.extents.size()) != rank) {
      user_error("input '{}' has {} dimensions but {} extents", name, rank, input.extents.size());
    }
    for (int d = 0; d < rank; ++d) {
      parameters_.aliases.emplace(fmt::format("{}.extent.{}", name, d), input.extents[d]);
      parameters_.aliases.emplace(fmt::format("{}.min.{}", name, d), Expr(0));
    }
    const Halide::Type type = input.param.type();
    const TensorRef tensor{names_.take(identifier(name)), element_type_of(type, FuncPlace{name}, Expr(0)), type.is_bool()};
    input_of_.emplace(name, inputs_.size());
    inputs_.push_back({name, tensor, rank, static_cast<int>(k)});
  }
}

void HalideGraph::walk(const ir::Function& function, const HalideDefinition& definition) {
  if (!visited_.insert(function.name()).second) return;
  const FuncPlace place{identifier(function.name())};
  if (function.has_extern_definition()) {
    user_error("{}: it is defined by the external function '{}', of which Nestor knows nothing", place.str(),
               function.extern_function_name());
  }
  if (!function.has_pure_definition()) user_error("{}: it is used but has no definition", place.str());
  CallCollector collector;
  function.accept(&collector);
  for (const Expr& expr : collector.calls) {
    const auto& call = *expr.as<ir::Call>();
    if (const ir::Call* input = input_call(call)) {
      add_input(*input, place);
    } else if (call.func.defined() && call.name != function.name()) {
      walk(ir::Function(call.func), definition);
    }
  }
  add_func(function, definition);
}

void HalideGraph::add_func(const ir::Function& function, const HalideDefinition& definition) {
  FuncNode node;
  node.function = function;
  const FuncPlace place{identifier(function.name())};
  for (std::size_t k = 0; k < definition.outputs.size(); ++k) {
    const HalideOutput& output = definition.outputs[k];
    if (!output.func.function().same_as(function)) continue;
    if (node.output >= 0) user_error("{}: it is listed as an output twice", place.str());
    node.output = static_cast<int>(k);
    if (output.extents.size() != function.args().size()) {
      user_error("{}: it is an output of {} dimensions, but its box has {} extents", place.str(), function.args().size(),
                 output.extents.size());
    }
  }
  const auto& types = function.output_types();
  const bool tuple = types.size() > 1;
  node.name = tuple ? identifier(function.name()) : names_.take(identifier(function.name()));
  for (std::size_t c = 0; c < types.size(); ++c) {
    const std::string name = tuple ? names_.take(fmt::format("{}_{}", node.name, c)) : node.name;
    node.tensors.push_back({name, element_type_of(types[c], place, function.values()[c]), types[c].is_bool()});
  }
  func_of_.emplace(function.name(), funcs_.size());
  funcs_.push_back(node);
}

void HalideGraph::add_input(const ir::Call& call, const FuncPlace& place) {
  if (input_of_.count(call.name) != 0) return;
  if (call.image.defined()) {
    user_error("{}: it reads the constant buffer '{}'; pass it as an ImageParam instead", place.str(), call.name);
  }
  const TensorRef tensor{names_.take(identifier(call.name)), element_type_of(call.type, place, Expr(&call)), call.type.is_bool()};
  input_of_.emplace(call.name, inputs_.size());
  inputs_.push_back({call.name, tensor, static_cast<int>(call.args.size()), -1});
}

TensorRef HalideGraph::tensor_of(const ir::Call& call, const FuncPlace& place) const {
  if (const ir::Call* input = input_call(call)) {
    const auto found = input_of_.find(input->name);
    if (found != input_of_.end()) return inputs_[found->second].tensor;
  } else if (const auto found = func_of_.find(call.name); found != func_of_.end()) {
    return funcs_[found->second].tensors.at(call.value_index);
  }
  internal_error("{} reads {}, which the walk over its calls did not find", place.str(), call.name);
}

}  // namespace nestor
