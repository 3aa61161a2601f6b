// The Funcs behind a definition's outputs, producers first, with the names their tensors get.
#pragma once

#include <Halide.h>

#include <map>
#include <string>
#include <vector>

#include "frontend/values/names.h"
#include "frontend/values/value_translator.h"
#include "nestor/halide.h"

namespace nestor {

/// A Func that is computed.
struct FuncNode {
  Halide::Internal::Function function;
  std::string name;                ///< as the nest has it
  std::vector<TensorRef> tensors;  ///< one a component
  int output = -1;                 ///< position in HalideDefinition::outputs, or -1
};

/// An input that is read.
struct InputNode {
  std::string halide_name;
  TensorRef tensor;
  int rank = 0;
  int declared = -1;  ///< position in HalideDefinition::inputs, or -1
};

/// Checks the definition's lists and walks its Funcs. Throws UserError: extern or undefined Funcs, Funcs whose output box
/// does not fit, types that Nestor does not store, names that cannot be used, sizes listed twice.
class HalideGraph {
 public:
  explicit HalideGraph(const HalideDefinition& definition);

  const std::vector<FuncNode>& funcs() const { return funcs_; }
  const std::vector<InputNode>& inputs() const { return inputs_; }
  const ParameterTable& parameters() const { return parameters_; }
  /// The tensor that a call reads.
  TensorRef tensor_of(const Halide::Internal::Call& call, const FuncPlace& place) const;
  /// Names of sizes, scalars and tensors.
  NameTable& names() { return names_; }

 private:
  void name_parameters(const HalideDefinition& definition);
  void add_declared_inputs(const HalideDefinition& definition);
  void walk(const Halide::Internal::Function& function, const HalideDefinition& definition);
  void add_func(const Halide::Internal::Function& function, const HalideDefinition& definition);
  void add_input(const Halide::Internal::Call& call, const FuncPlace& place);

  std::vector<FuncNode> funcs_;
  std::vector<InputNode> inputs_;
  ParameterTable parameters_;
  NameTable names_;
  std::map<std::string, std::size_t> func_of_;   ///< by Halide's name
  std::map<std::string, std::size_t> input_of_;  ///< by Halide's name
  std::set<std::string> visited_;
};

/// The input behind a call: Halide reads ImageParams through an identity Func of its own. nullptr when it is no input.
const Halide::Internal::Call* input_call(const Halide::Internal::Call& call);

}  // namespace nestor
