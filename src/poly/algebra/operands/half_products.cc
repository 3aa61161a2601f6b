// Factors of a sum, without their casts; indices of operands, and their rows.
#include "poly/algebra/operands/half_products.h"

#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"
#include "poly/isl/isl_tools.h"
#include "poly/isl/whole_function.h"
#include "poly/nest/nest_sets.h"
#include "support/tensor_view.h"

namespace nestor {
namespace {

std::optional<std::size_t> half_read(const ScalarExpr& factor) {
  const ScalarExpr bare = strip_exact_casts(factor);
  if (bare.op() != ScalarOp::read || size_in_bytes(bare.type()) != 2) return std::nullopt;
  return static_cast<std::size_t>(bare.ordinal());
}

}  // namespace

std::optional<std::pair<std::size_t, std::size_t>> half_products(const Statement& statement) {
  if (statement.reduction != ReductionOp::add || statement.value.op() != ScalarOp::mul ||
      statement.value.type() != ElementType::f32)
    return std::nullopt;
  const auto a = half_read(statement.value.args()[0]), b = half_read(statement.value.args()[1]);
  return a && b && *a != *b ? std::optional(std::pair(*a, *b)) : std::nullopt;
}

std::optional<std::pair<std::size_t, std::size_t>> products_of_one_width(const Statement& statement) {
  if (const auto halves = half_products(statement)) return halves;
  if (statement.reduction != ReductionOp::add || statement.value.op() != ScalarOp::mul) return std::nullopt;
  const auto is_wide = [](const ScalarExpr& factor) {
    return factor.op() == ScalarOp::read && factor.type() == ElementType::f32;
  };
  const std::vector<ScalarExpr>& args = statement.value.args();
  if (!std::all_of(args.begin(), args.end(), is_wide) || args[0].ordinal() == args[1].ordinal()) return std::nullopt;
  return std::pair(static_cast<std::size_t>(args[0].ordinal()), static_cast<std::size_t>(args[1].ordinal()));
}

std::vector<std::pair<std::size_t, std::size_t>> wide_and_half(const Nest& nest, const Statement& statement) {
  std::vector<std::pair<std::size_t, std::size_t>> found;
  if (statement.reduction != ReductionOp::add || statement.value.op() != ScalarOp::mul ||
      statement.value.type() != ElementType::f32)
    return found;
  const std::vector<ScalarExpr>& args = statement.value.args();
  for (const std::size_t k : {std::size_t{0}, std::size_t{1}}) {
    const ScalarExpr& wide = args[k];
    const auto half = half_read(args[1 - k]);
    if (!half || wide.op() != ScalarOp::read || wide.type() != ElementType::f32) continue;
    const auto read = static_cast<std::size_t>(wide.ordinal());
    if (nest.tensor(statement.reads[read].tensor).role == TensorRole::temporary) found.emplace_back(read, *half);
  }
  return found;
}

bool follows_own_dim(const Statement& sum, std::size_t operand, std::size_t other) {
  const std::vector<int> reduced = reduced_dims(sum);
  for (int dim = 0; dim < static_cast<int>(sum.dims.size()); ++dim) {
    const bool written = std::find(reduced.begin(), reduced.end(), dim) == reduced.end();
    if (written && depends_on_dim(sum.reads[operand].relation, dim) && !depends_on_dim(sum.reads[other].relation, dim))
      return true;
  }
  return false;
}

bool multiplies_own_dims(const Statement& statement) {
  if (statement.reduction != ReductionOp::add || statement.value.op() != ScalarOp::mul) return false;
  for (std::size_t a = 0; a < statement.reads.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      if (follows_own_dim(statement, a, b) && follows_own_dim(statement, b, a)) return true;
    }
  }
  return false;
}

bool multiplies_rows_by_columns(const Nest& nest, const Statement& sum) {
  std::vector<std::pair<std::size_t, std::size_t>> pairs = wide_and_half(nest, sum);
  if (const auto same = products_of_one_width(sum)) pairs.push_back(*same);
  return std::any_of(pairs.begin(), pairs.end(), [&](const auto& pair) {
    return follows_own_dim(sum, pair.first, pair.second) && follows_own_dim(sum, pair.second, pair.first);
  });
}

std::vector<std::set<int>> dims_of_indices(const Statement& statement, const Access& access) {
  std::vector<std::set<int>> result;
  // Bounds that the domain has are no part of where an element lies.
  for (const isl::pw_aff& function : functions_on(access.relation, statement.domain)) {
    std::set<int>& dims = result.emplace_back();
    for (int dim = 0; dim < static_cast<int>(statement.dims.size()); ++dim) {
      if (isl_pw_aff_involves_dims(function.get(), isl_dim_in, static_cast<unsigned>(dim), 1) == isl_bool_true) dims.insert(dim);
    }
  }
  return result;
}

namespace {

using MovingDims = std::vector<std::map<int, std::int64_t>>;

/// `known` false: isl has stopped before it was done.
MovingDims find_moving_dims(const isl::map& relation, bool& known) {
  // What the relation says about its own domain is no part of the function.
  isl_map* plain = isl_map_gist_domain(relation.copy(), isl_map_domain(relation.copy()));
  isl_pw_multi_aff* functions = isl_pw_multi_aff_from_map(plain);
  const int rank = static_cast<int>(isl_map_dim(relation.get(), isl_dim_out));
  const int dims = static_cast<int>(isl_map_dim(relation.get(), isl_dim_in));
  MovingDims result(static_cast<std::size_t>(rank));
  known = functions != nullptr;
  for (int k = 0; k < rank; ++k) {
    isl_pw_aff* function = isl_pw_multi_aff_get_pw_aff(functions, k);
    // Where the access is not defined does not matter.
    function = isl_pw_aff_gist(function, isl_pw_aff_domain(isl_pw_aff_copy(function)));
    known = known && function != nullptr;
    if (isl_pw_aff_n_piece(function) == 1) {
      isl_aff* affine = isl_pw_aff_as_aff(isl_pw_aff_copy(function));
      std::map<int, std::int64_t>& moving = result[static_cast<std::size_t>(k)];
      bool whole = true;
      known = known && affine != nullptr;
      for (int d = 0; d < dims; ++d) {
        if (isl_aff_involves_dims(affine, isl_dim_in, d, 1) != isl_bool_true) continue;
        isl_val* factor = isl_aff_get_coefficient_val(affine, isl_dim_in, d);
        whole = whole && isl_val_is_int(factor) == isl_bool_true;
        moving[d] = whole ? isl_val_get_num_si(factor) : 0;
        isl_val_free(factor);
      }
      if (!whole) moving.clear();
      isl_aff_free(affine);
    }
    isl_pw_aff_free(function);
  }
  isl_pw_multi_aff_free(functions);
  return result;
}

}  // namespace

std::vector<std::map<int, std::int64_t>> moving_dims(const Access& access) {
  constexpr std::size_t kMost = 1 << 14;
  // By isl's object, which nobody changes while it is held here: spaces ask for the same accesses again and again.
  struct Found {
    isl::map relation;
    MovingDims dims;
  };
  thread_local std::unordered_map<const isl_map*, Found> all;
  if (const auto found = all.find(access.relation.get()); found != all.end()) return found->second.dims;
  bool known = false;
  MovingDims dims = find_moving_dims(access.relation, known);
  if (all.size() >= kMost) all.clear();
  if (known) all.emplace(access.relation.get(), Found{access.relation, dims});
  return dims;
}

bool moves_in_strides(const Access& access, const std::vector<int>& dims) {
  struct Search {
    const std::vector<int>& dims;
    bool found = false;
  } search{dims};
  const auto look = [](isl_set* set, isl_aff* affine, void* user) {
    auto& wanted = *static_cast<Search*>(user);
    for (const int dim : wanted.dims) {
      const isl::val factor = isl::manage(isl_aff_get_coefficient_val(affine, isl_dim_in, dim));
      wanted.found = wanted.found || (factor.is_int() && factor.abs().gt(isl::val(factor.ctx(), 1)));
    }
    isl_set_free(set);
    isl_aff_free(affine);
    return isl_stat_ok;
  };
  for (const isl::pw_aff& function : functions_of(access.relation)) isl_pw_aff_foreach_piece(function.get(), look, &search);
  return search.found;
}

std::vector<std::string> names_of_indices(const Statement& statement, const Access& access) {
  std::vector<std::string> names;
  for (const isl::pw_aff& function : functions_of(access.relation)) {
    const auto is_dim = [&](const std::string& name) {
      // Of dims with the same single value each is one index's.
      if (std::find(names.begin(), names.end(), name) != names.end()) return false;
      const auto dim = static_cast<int>(&name - statement.dims.data());
      return statement.domain.is_subset(function.eq_set(dim_function(statement.domain, dim)));
    };
    const auto found = std::find_if(statement.dims.begin(), statement.dims.end(), is_dim);
    if (found == statement.dims.end()) return {};
    names.push_back(*found);
  }
  return names;
}

Statement copy_statement(const Nest& nest, const Tensor& tensor, const Statement& reader, const Access& read,
                         const std::string& name) {
  Statement copy;
  copy.name = name;
  isl_set* domain = isl_set_set_tuple_name(tensor_box(tensor).release(), name.c_str());
  domain = isl_set_gist_params(domain, full_context(nest).release());
  const std::vector<std::set<int>> indices = dims_of_indices(reader, read);
  for (std::size_t k = 0; k < indices.size(); ++k) {
    const std::string base = indices[k].size() == 1 ? reader.dims[static_cast<std::size_t>(*indices[k].begin())] : "e";
    copy.dims.push_back(fresh_dim(nest, copy.dims, base));
  }
  copy.domain = isl::manage(with_dim_names(domain, copy.dims));
  const isl::map same = isl::manage(isl_set_identity(copy.domain.copy()));
  copy.write = {name, same};
  copy.reads = {{tensor.name, same.set_range_tuple(tensor.name)}};
  copy.value = ScalarExpr::read(0, tensor.type);
  return copy;
}

bool has_ragged_rows(const Nest& nest, const Tensor& tensor) {
  if (tensor.role != TensorRole::input || size_in_bytes(tensor.type) != 2 || tensor.shape.empty()) return false;
  const std::optional<std::int64_t> row = known_value(nest, tensor.shape.back());
  if (!row || *row * 2 % kTensorMapAlignment == 0) return false;
  // One row is never stepped along.
  return !std::all_of(tensor.shape.begin(), tensor.shape.end() - 1,
                      [&](const isl::pw_aff& extent) { return known_value(nest, extent) == 1; });
}

}  // namespace nestor
