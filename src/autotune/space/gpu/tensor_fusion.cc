// Fusions tried one after the other, each with the choices that fit.
#include "autotune/space/gpu/tensor_fusion.h"

#include "autotune/space/gpu/tensor_guesses.h"

namespace nestor {

std::optional<TensorAxes> tensor_axes_after(RuleVariants& variants, const std::set<std::string>& rules, const GpuLimits& limits) {
  const RuleVariant& variant = variants.at({rules});
  const Fusion fusion = fusion_for_tensor_cores(variants, variant, limits);
  return tensor_axes(variants.nest(variant), variant.structure, variants.heaviest(variant, fusion));
}

Fusion fusion_for_tensor_cores(RuleVariants& variants, const RuleVariant& variant, const GpuLimits& limits) {
  const auto has_place = [&](Fusion fusion) {
    const auto axes = tensor_axes(variants.nest(variant), variant.structure, variants.heaviest(variant, fusion));
    return axes && axes->no_product.empty() && !likely_tensor_choices(*axes, limits).empty();
  };
  for (const Fusion fusion : {Fusion::maximal, Fusion::prepared, Fusion::careful}) {
    if (has_place(fusion)) return fusion;
  }
  return Fusion::maximal;
}

std::set<std::string> rules_for_tensor_cores(RuleVariants& variants, const std::set<std::string>& usual,
                                             const GpuLimits& limits) {
  const auto axes_with_usual = tensor_axes_after(variants, usual, limits);
  if (!axes_with_usual || axes_with_usual->no_product.empty()) return usual;
  for (const std::string& rule : usual) {
    std::set<std::string> others = usual;
    others.erase(rule);
    const auto axes = tensor_axes_after(variants, others, limits);
    if (axes && axes->no_product.empty()) return others;
  }
  return usual;
}

}  // namespace nestor
