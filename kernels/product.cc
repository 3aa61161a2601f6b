// Operands of products.
#include "product.h"

namespace nestor::kernels {

ProductParts::ProductParts(const std::string& variant)
    : type(element_of(variant)), at(has_option(variant, "at")), bt(has_option(variant, "bt")), a(type, 2, "a") {}

Halide::Expr ProductParts::term(const Halide::ImageParam& b, const Halide::RDom& r, const Halide::Var& i,
                                const Halide::Var& j) const {
  return wide(at ? a(i, r) : a(r, i)) * wide(bt ? b(r, j) : b(j, r));
}

}  // namespace nestor::kernels
