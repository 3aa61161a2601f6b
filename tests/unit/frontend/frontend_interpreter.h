// Runs a nest statement by statement, instance by instance, straight from its isl objects: slow, and independent of every
// other evaluation in Nestor. For small sizes.
#pragma once

#include <isl/aff.h>
#include <isl/point.h>
#include <isl/set.h>
#include <isl/val.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "poly/isl/isl_tools.h"
#include "poly/nest/nest.h"
#include "poly/nest/scalar_semantics.h"

namespace nestor::testing {

struct DenseTensor {
  std::vector<std::int64_t> shape;
  std::vector<double> values;
  std::size_t at(const std::vector<std::int64_t>& index) const {
    std::size_t linear = 0;
    for (std::size_t k = 0; k < shape.size(); ++k)
      linear = linear * static_cast<std::size_t>(shape[k]) + static_cast<std::size_t>(index[k]);
    return linear;
  }
};

using DenseTensors = std::map<std::string, DenseTensor>;

class Interpreter {
 public:
  Interpreter(const Nest& nest, const Sizes& sizes, const std::map<std::string, double>& scalars, const DenseTensors& inputs)
      : nest_(nest), sizes_(sizes), scalars_(scalars), fixed_(nest.context) {
    for (const SizeParam& size : nest.sizes) {
      fixed_ =
          fixed_.intersect(isl::set(isl_context(), fmt::format("[{0}] -> {{ : {0} = {1} }}", size.name, sizes.at(size.name))));
    }
    for (const Tensor& tensor : nest.tensors) {
      DenseTensor dense;
      dense.shape = shape_at(tensor, sizes);
      std::int64_t count = 1;
      for (const std::int64_t extent : dense.shape) count *= extent;
      dense.values.assign(static_cast<std::size_t>(count), std::numeric_limits<double>::quiet_NaN());
      if (tensor.role == TensorRole::input) dense.values = inputs.at(tensor.name).values;
      tensors_[tensor.name] = dense;
    }
  }

  const DenseTensors& run() {
    for (std::size_t k = 0; k < nest_.statements.size();) {
      std::size_t end = k;
      while (end < nest_.statements.size() && nest_.statements[end].group == nest_.statements[k].group) ++end;
      run_group(k, end);
      k = end;
    }
    return tensors_;
  }

 private:
  using Index = std::vector<std::int64_t>;

  static std::int64_t integer(isl_val* value) {
    const std::int64_t result = isl_val_get_num_si(value);
    isl_val_free(value);
    return result;
  }

  std::vector<isl::pw_aff> plain(const std::vector<isl::pw_aff>& functions) const {
    std::vector<isl::pw_aff> result;
    for (const isl::pw_aff& function : functions) {
      const isl::map map = isl::manage(isl_map_from_pw_aff(function.copy()));
      const isl::map fixed = map.intersect_params(fixed_).project_out_all_params();
      result.push_back(isl::manage(isl_pw_aff_from_map(fixed)));
    }
    return result;
  }

  static isl_pw_aff* isl_pw_aff_from_map(const isl::map& map) {
    isl_pw_multi_aff* functions = isl_pw_multi_aff_from_map(map.copy());
    isl_pw_aff* first = isl_pw_multi_aff_get_pw_aff(functions, 0);
    isl_pw_multi_aff_free(functions);
    return first;
  }

  static Index evaluate_all(const std::vector<isl::pw_aff>& functions, const isl::point& point) {
    Index index;
    for (const isl::pw_aff& function : functions) {
      isl_val* value = isl_pw_aff_eval(function.copy(), point.copy());
      if (isl_val_is_int(value) != isl_bool_true) internal_error("no value for an access");
      index.push_back(integer(value));
    }
    return index;
  }

  struct Plan {
    const Statement* statement;
    std::vector<isl::pw_aff> write;
    std::vector<std::vector<isl::pw_aff>> reads;
    std::vector<isl::pw_aff> indices;
  };

  void run_group(std::size_t begin, std::size_t end) {
    std::vector<Plan> plans;
    struct Instance {
      Index dims;
      std::size_t plan;
      isl::point point;
    };
    std::vector<Instance> instances;
    for (std::size_t k = begin; k < end; ++k) {
      const Statement& statement = nest_.statements[k];
      Plan plan{&statement, plain(functions_of(statement.write.relation)), {}, plain(statement.indices)};
      for (const Access& read : statement.reads) plan.reads.push_back(plain(functions_of(read.relation)));
      const isl::set domain = statement.domain.intersect_params(fixed_).project_out_all_params();
      domain.foreach_point([&](isl::point point) {
        Index dims;
        for (unsigned d = 0; d < statement.dims.size(); ++d) {
          dims.push_back(integer(isl_point_get_coordinate_val(point.get(), isl_dim_set, static_cast<int>(d))));
        }
        instances.push_back({dims, plans.size(), point});
      });
      plans.push_back(plan);
    }
    std::vector<std::size_t> order(instances.size());
    for (std::size_t k = 0; k < order.size(); ++k) order[k] = k;
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return instances[a].dims != instances[b].dims ? instances[a].dims < instances[b].dims
                                                    : instances[a].plan < instances[b].plan;
    });
    for (const std::size_t k : order) execute(plans[instances[k].plan], instances[k].point);
  }

  void execute(const Plan& plan, const isl::point& point) {
    const Statement& statement = *plan.statement;
    const double value = evaluate(
        statement.value,
        [&](int k) {
          const DenseTensor& tensor = tensors_.at(statement.reads[static_cast<std::size_t>(k)].tensor);
          return tensor.values.at(tensor.at(evaluate_all(plan.reads[static_cast<std::size_t>(k)], point)));
        },
        [&](int k) { return evaluate_all({plan.indices[static_cast<std::size_t>(k)]}, point).front(); },
        [&](const std::string& name) { return scalars_.at(name); });
    DenseTensor& target = tensors_.at(statement.write.tensor);
    double& element = target.values.at(target.at(evaluate_all(plan.write, point)));
    const ElementType type = statement.value.type();
    const double result = statement.reduction ? semantics::combine(*statement.reduction, type, element, value) : value;
    element = semantics::stored_value(nest_.tensor(statement.write.tensor).type, type, result);
  }

  const Nest& nest_;
  const Sizes& sizes_;
  const std::map<std::string, double>& scalars_;
  isl::set fixed_;
  DenseTensors tensors_;
};

}  // namespace nestor::testing
