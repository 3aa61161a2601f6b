// Permutations of indices as relations.
#include "poly/algebra/layout/index_order.h"

#include <isl/map.h>
#include <isl/set.h>
#include <isl/space.h>

#include <numeric>
#include <set>
#include <utility>

#include "poly/algebra/operands/half_products.h"
#include "poly/algebra/values/factor_chain.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

/// { tensor[indices] -> name[indices in their new order] } over all indices.
isl::map reordering(const isl::map& access, const IndexOrder& order, const std::string& name) {
  const isl::set all = isl::manage(isl_set_universe(isl_space_range(isl_map_get_space(access.get()))));
  std::vector<isl::pw_aff> functions;
  for (const int k : order) functions.push_back(dim_function(all, k));
  return relation_of(all, name, functions);
}

Tensor reordered(const Tensor& tensor, const IndexOrder& order, const std::string& name) {
  Tensor result = tensor;
  result.name = name;
  for (std::size_t k = 0; k < order.size(); ++k) result.shape[k] = tensor.shape[static_cast<std::size_t>(order[k])];
  return result;
}

/// The statement that copies what `sum` reads, or all of an input of which it reads most at default sizes: kernels multiply whole tiles of it, with
/// zeros where the sum reads none. Dims are named as the sum's where an index follows one.
Statement copy_of(const Nest& nest, const Statement& sum, const Access& read, const IndexOrder& order, const std::string& name) {
  const isl::map to_copy = reordering(read.relation, order, name);
  const isl::map used = read.relation.intersect_domain(domain_in(nest, sum));
  Statement copy;
  copy.name = name;
  copy.domain = isl::manage(isl_set_gist_params(used.range().apply(to_copy).coalesce().release(), full_context(nest).release()));
  const auto indices = dims_of_indices(sum, read);
  for (std::size_t k = 0; k < order.size(); ++k) {
    const std::set<int>& dims = indices[static_cast<std::size_t>(order[k])];
    const std::string base = dims.size() == 1 ? sum.dims[static_cast<std::size_t>(*dims.begin())] : "e";
    copy.dims.push_back(fresh_dim(nest, copy.dims, base));
  }
  constexpr double kMost = 0.5;
  std::vector<int> all(order.size());
  std::iota(all.begin(), all.end(), 0);
  const Tensor& tensor = nest.tensor(read.tensor);
  if (tensor.role == TensorRole::input && default_points(nest, copy, all) > kMost * default_elements(nest, tensor)) {
    copy.domain = isl::manage(isl_set_gist_params(tensor_box(tensor).apply(to_copy).release(), full_context(nest).release()));
  }
  copy.domain = isl::manage(with_dim_names(copy.domain.release(), copy.dims));
  copy.write = {name, isl::manage(isl_set_identity(copy.domain.copy()))};
  copy.reads = {{read.tensor, to_copy.reverse().intersect_domain(copy.domain)}};
  copy.value = ScalarExpr::read(0, nest.tensor(read.tensor).type);
  return copy;
}

}  // namespace

IndexOrder with_last(int count, int last) {
  IndexOrder order;
  for (int k = 0; k < count; ++k) {
    if (k != last) order.push_back(k);
  }
  order.push_back(last);
  return order;
}

int own_index(const Statement& statement, const Access& access, int dim) {
  const std::vector<std::set<int>> indices = dims_of_indices(statement, access);
  const std::vector<isl::pw_aff> functions = functions_of(access.relation);
  int own = -1;
  for (std::size_t k = 0; k < indices.size(); ++k) {
    if (!indices[k].contains(dim)) continue;
    const isl::map index = isl::manage(isl_map_from_pw_aff(functions[k].copy())).intersect_domain(statement.domain),
                   value = isl::manage(isl_map_from_pw_aff(dim_function(statement.domain, dim).release()));
    if (own >= 0 || !index.is_subset(value)) return -1;
    own = static_cast<int>(k);
  }
  return own;
}

Access read_of_copy(Nest& nest, const Nest& before, const Statement& sum, const Access& read, const IndexOrder& order) {
  const std::string copied = fresh_name(nest, read.tensor + "_copy");
  Tensor tensor = reordered(before.tensor(read.tensor), order, copied);
  tensor.role = TensorRole::temporary;
  tensor.tolerance = {};
  nest.tensors.push_back(tensor);
  insert_statement(nest, begin_with_initialisers(nest, nest.statement(sum.name)), copy_of(before, sum, read, order, copied));
  return {copied, read.relation.apply_range(reordering(read.relation, order, copied))};
}

void reorder_indices(Nest& nest, const std::string& tensor, const IndexOrder& order) {
  const auto reorder = [&](Access& access) {
    if (access.tensor == tensor) access.relation = access.relation.apply_range(reordering(access.relation, order, tensor));
  };
  for (Statement& statement : nest.statements) {
    reorder(statement.write);
    for (Access& read : statement.reads) reorder(read);
  }
  for (Tensor& other : nest.tensors) {
    if (other.name == tensor) other = reordered(other, order, tensor);
  }
}

}  // namespace nestor
