// Looks for products that matter, and for what keeps them off the tensor cores.
#include "autotune/space/nest/products_on_lanes.h"

#include "autotune/space/gpu/tensor_fusion.h"
#include "autotune/space/gpu/tensor_rules.h"
#include "autotune/space/structure/axes.h"
#include "autotune/space/structure/rule_steps.h"
#include "autotune/space/structure/rule_variants.h"
#include "autotune/space/work_floor.h"
#include "autotune/trial/trial_steps.h"
#include "codegen/tile/contraction.h"
#include "poly/algebra/all_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>

namespace nestor {
namespace {

constexpr double kShare = 0.1;      ///< of the whole time, from which a product matters
constexpr double kLeastMs = 0.005;  ///< where no time is known
constexpr int kFirstTensorCores = 80;

bool is_half(const Tensor& tensor) { return tensor.type == ElementType::f16 || tensor.type == ElementType::bf16; }

const Tensor& read_by(const Nest& nest, const Statement& statement, int ordinal) {
  return nest.tensor(statement.reads[static_cast<std::size_t>(ordinal)].tensor);
}

struct Found {
  const Statement* statement = nullptr;
  Contraction product;
  double least_ms = 0;
};

Found largest_product(const Nest& nest, const Sizes& sizes, int units) {
  Found found;
  for (const Statement& statement : nest.statements) {
    if (!multiplies_matrices(statement)) continue;
    Nest alone = nest;
    alone.statements = {statement};
    const double ms = least_scalar_ms(least_instances(alone, sizes), units);
    if (ms > found.least_ms) found = {&statement, *unscaled_contraction_of(statement), ms};
  }
  return found;
}

/// What the structure of the nest says; "" where there is a place for the product.
std::string why_no_place(const Nest& nest, const Sizes& sizes, const Found& found, const GpuLimits& limits) {
  const Tensor &a = read_by(nest, *found.statement, found.product.a), &b = read_by(nest, *found.statement, found.product.b);
  const auto is_computed = [](const Tensor& tensor) { return tensor.role == TensorRole::temporary; };
  BaseSchedules schedules(nest_for_tuning(nest, sizes));
  RuleVariants variants(schedules, sizes);
  std::set<std::string> rules, for_products;
  bool across = false;
  for (const std::string& rule : matching_rules(schedules)) {
    if (enabled_by_default(rule)) rules.insert(rule);
    if (is_for_products(rule)) for_products.insert(rule);
    across = across || rule == kAcrossRule;
  }
  const auto axes =
      tensor_axes_after(variants, rules_for_products(variants, rules, for_products, across, limits).front(), limits);
  if (axes && axes->no_product.empty()) return "";
  if (axes)
    return fmt::format("{} sums over several elements of a row beside it, and is no product of the same rows", axes->no_product);
  if (is_computed(a) && is_computed(b)) {
    return fmt::format("both of its operands, {} and {}, are computed: store them in 16 bits by kernels of their own", a.name,
                       b.name);
  }
  for (const Tensor* operand : {&a, &b}) {
    if (!is_computed(*operand) && !is_half(*operand))
      return fmt::format("its operand {} is {}, not f16 or bf16", operand->name, to_string(operand->type));
  }
  for (const Tensor* operand : {&a, &b}) {
    if (is_computed(*operand) && !is_half(*operand))
      return fmt::format(
          "its operand {} is computed in {}: tensor cores multiply 16 bits, so define it as a tensor of f16 or bf16",
          operand->name, to_string(operand->type));
    if (is_computed(*operand))
      return fmt::format("its operand {} is computed, and its rows and columns are not found in the loops around", operand->name);
  }
  return "its rows and columns are not found in the loops that the statements around it share: compute what they read by kernels "
         "of "
         "their own";
}

/// Times ten; 0: no GPU.
int compute_capability(const DeviceIdentity& device) {
  int sm = 0;
  if (device.kind != "cuda" || !device.arch.starts_with("sm_")) return 0;
  std::from_chars(device.arch.data() + 3, device.arch.data() + device.arch.size(), sm);
  return sm;
}

}  // namespace

bool has_tensor_cores(const std::string& steps) { return steps.find("\"tensor_cores\"") != std::string::npos; }

std::string products_on_lanes(const Nest& nest, const Sizes& sizes, const TunedKernel& kernel) {
  if (compute_capability(kernel.device) < kFirstTensorCores || has_tensor_cores(kernel.steps)) return "";
  if (std::none_of(nest.tensors.begin(), nest.tensors.end(), is_half)) return "";
  // A temporary for each factor that is computed within a sum of products.
  const Nest apart = with_rule_everywhere(kFactorRule, nest);
  const Found found = largest_product(apart, sizes, kernel.device.units);
  if (found.statement == nullptr || found.least_ms < std::max(kShare * kernel.median_ms, kLeastMs)) return "";
  std::string why = why_no_place(apart, sizes, found, kernel.limits);
  if (why.empty()) why = kernel.common_refusal;
  if (why.empty()) why = "`nestor tune` may find a schedule for tensor cores";
  const std::string of = kernel.median_ms > 0 ? fmt::format(" of {:.3g}", kernel.median_ms) : "";
  return fmt::format("{}: {:.2g} ms at least{}; {}", found.statement->name, found.least_ms, of, why);
}

}  // namespace nestor
