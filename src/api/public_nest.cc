// nestor/nest.h on top of the internal nest.
#include "api/public_nest.h"

#include "api/operators.h"
#include "api/report.h"
#include "autotune/space/gpu/known_sizes.h"
#include "poly/nest/dependences.h"
#include "poly/nest/nest_json.h"
#include "support/error.h"
#include "support/system/json_text.h"

namespace nestor_api {

using namespace nestor;

Nest::Nest(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

Nest Nest::load(const std::string& source, const std::string& variant) {
  return Nest(std::make_shared<const Impl>(Impl{load_operator(source, variant)}));
}

Nest Nest::from_json(const std::string& text) {
  const nlohmann::json json = json_from_text(text, "the nest");
  nestor::Nest nest = nest_from_json(json);
  specialize_product_sizes(nest);  // as load() does
  return Nest(std::make_shared<const Impl>(Impl{std::move(nest)}));
}

std::vector<std::string> Nest::builtin() {
  std::vector<std::string> names;
  for (const OperatorEntry& entry : builtin_operators()) names.push_back(entry.op);
  return names;
}

std::string Nest::op() const { return impl_->nest.op; }
std::string Nest::variant() const { return impl_->nest.variant; }
std::string Nest::digest() const { return nestor::digest(impl_->nest); }
std::string Nest::json() const { return nest_to_text(impl_->nest); }
std::string Nest::str() const { return describe(impl_->nest); }
std::string Nest::dependences() const { return show(nestor::Schedule(impl_->nest), View::deps); }

std::vector<SizeInfo> Nest::sizes() const {
  std::vector<SizeInfo> sizes;
  for (const SizeParam& size : impl_->nest.sizes)
    sizes.push_back({size.name, size.min, size.max, size.default_value, size.specialized});
  return sizes;
}

std::vector<TensorInfo> Nest::tensors() const {
  std::vector<TensorInfo> tensors;
  for (const Tensor& tensor : impl_->nest.tensors)
    tensors.push_back({tensor.name, tensor.type, std::string(to_string(tensor.role))});
  return tensors;
}

}  // namespace nestor_api
