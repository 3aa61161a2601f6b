// Projections of statements.
#include "poly/algebra/values/dims_view.h"

#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"

#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <cstddef>

namespace nestor {

std::vector<int> other_dims(const Statement& statement, const std::vector<int>& dims) {
  std::vector<int> others;
  for (int dim = 0; dim < static_cast<int>(statement.dims.size()); ++dim) {
    if (std::find(dims.begin(), dims.end(), dim) == dims.end()) others.push_back(dim);
  }
  return others;
}

Tensor DimsView::tensor(const Nest& nest, const std::string& name) const {
  Tensor result{name, ElementType::f32, TensorRole::temporary, {}, {}};
  for (const int dim : dims_) result.shape.push_back(extent_of(nest, statement_.domain, dim));
  return result;
}

Statement DimsView::over(const std::string& name) const {
  Statement result;
  result.name = name;
  result.dims = names();
  result.domain = isl::manage(isl_set_coalesce(isl_map_range(onto_dims(statement_, dims_, name).release())));
  return result;
}

isl::map DimsView::to_statement(const Statement& view) const {
  return isl::manage(isl_map_lexmin(isl_map_reverse(onto_dims(statement_, dims_, view.name).release())));
}

isl::map DimsView::seen_by(const Statement& view, const isl::map& access) const {
  return to_statement(view).apply_range(access).gist_domain(view.domain).coalesce();
}

isl::map DimsView::element(const std::string& tensor) const {
  return onto_dims(statement_, dims_, tensor).gist_domain(statement_.domain);
}

std::vector<std::string> DimsView::names() const {
  std::vector<std::string> names;
  for (const int dim : dims_) names.push_back(statement_.dims[static_cast<std::size_t>(dim)]);
  return names;
}

}  // namespace nestor
