// Arguments of a problem, dense and in order.
#include "autotune/target/measured_problem.h"

#include "autotune/trial/argument_facts.h"
#include "support/error.h"

#include <algorithm>

namespace nestor {

MeasuredProblem::MeasuredProblem(const TrialProblem& tried, const MeasureOptions& measured)
    : definition(tried.definition),
      schedules(tried.schedules ? tried.schedules : std::make_shared<BaseSchedules>(tried.start)),
      sizes(tried.sizes),
      options(measured) {
  check_scalars(tried.start, options.scalars);
  for (const Tensor& tensor : tried.start.tensors) {
    if (tensor.role == TensorRole::temporary) continue;
    const bool output = tensor.role == TensorRole::output;
    arguments.push_back(
        {tensor.name, dense_strides(shape_at(tensor, sizes)), output, output && writes_every_element(definition, tensor, sizes)});
  }
}

void MeasuredProblem::bind(const LaunchRecipe& recipe, const std::function<void*(std::size_t)>& pointer,
                           std::vector<void*>& pointers, std::vector<std::int64_t>& strides) const {
  pointers.clear();
  strides.clear();
  for (const ArgumentSpec& argument : recipe.arguments) {
    const auto found =
        std::find_if(arguments.begin(), arguments.end(), [&](const Argument& known) { return known.name == argument.name; });
    if (found == arguments.end()) internal_error("the kernel takes an argument '{}' that the nest does not have", argument.name);
    pointers.push_back(pointer(static_cast<std::size_t>(found - arguments.begin())));
    strides.insert(strides.end(), found->strides.begin(), found->strides.end());
  }
}

}  // namespace nestor
