// Alignment of loops through the tensors that statements share.
#include "autotune/space/structure/axes.h"

#include "codegen/tile/contraction.h"
#include "codegen/tile/seldom_sum.h"
#include "poly/algebra/operands/half_products.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "support/error.h"

#include <isl/aff.h>
#include <isl/constraint.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>

namespace nestor {

std::vector<std::vector<int>> summed_dims(const Access& access) {
  std::vector<std::vector<int>> result;
  for (const std::map<int, std::int64_t>& moving : moving_dims(access)) {
    result.emplace_back();
    const bool plain = std::all_of(moving.begin(), moving.end(), [](const auto& dim) { return dim.second == 1; });
    for (const auto& [dim, factor] : moving) {
      if (plain) result.back().push_back(dim);
    }
  }
  return result;
}

std::vector<std::optional<int>> followed_dims(const Access& access) {
  std::vector<std::optional<int>> result;
  for (const std::vector<int>& summed : summed_dims(access))
    result.push_back(summed.size() == 1 ? std::optional(summed.front()) : std::nullopt);
  return result;
}

namespace {

/// Calls `visit(k, function)` for each index k that is one affine function of the dims where it is defined.
template <class F>
void for_each_affine_index(const Access& access, const F& visit) {
  const std::vector<isl::pw_aff> indices = functions_of(access.relation);
  for (std::size_t k = 0; k < indices.size(); ++k) {
    isl_pw_aff* const index = isl_pw_aff_gist(indices[k].copy(), isl_pw_aff_domain(indices[k].copy()));
    if (isl_pw_aff_isa_aff(index) == isl_bool_true) {
      isl_aff* const affine = isl_pw_aff_as_aff(isl_pw_aff_copy(index));
      visit(k, affine);
      isl_aff_free(affine);
    }
    isl_pw_aff_free(index);
  }
}

bool is_zero(__isl_take isl_val* value) {
  const bool zero = isl_val_is_zero(value) == isl_bool_true;
  isl_val_free(value);
  return zero;
}

}  // namespace

std::vector<std::optional<int>> equal_dims(const Access& access) {
  std::vector<std::optional<int>> result = followed_dims(access);
  for_each_affine_index(access, [&](std::size_t k, isl_aff* affine) {
    for (int d = 0; d < isl_aff_dim(affine, isl_dim_div); ++d) {
      if (!is_zero(isl_aff_get_coefficient_val(affine, isl_dim_div, d))) result[k].reset();
    }
  });
  return result;
}

std::vector<bool> shifted_indices(const Access& access) {
  const std::vector<std::optional<int>> followed = followed_dims(access);
  const std::vector<std::optional<std::int64_t>> terms = constant_terms(access);
  std::vector<bool> shifted(followed.size());
  for (std::size_t k = 0; k < followed.size(); ++k) shifted[k] = followed[k] && terms[k].value_or(0) != 0;
  return shifted;
}

std::vector<std::optional<std::int64_t>> constant_terms(const Access& access) {
  std::vector<std::optional<std::int64_t>> terms(static_cast<std::size_t>(isl_map_dim(access.relation.get(), isl_dim_out)));
  for_each_affine_index(access, [&](std::size_t k, isl_aff* affine) {
    isl_val* const term = isl_aff_get_constant_val(affine);
    terms[k] = isl_val_get_num_si(term);
    isl_val_free(term);
  });
  return terms;
}

std::vector<std::set<std::string>> sizes_in_indices(const Access& access) {
  std::vector<std::set<std::string>> sizes(static_cast<std::size_t>(isl_map_dim(access.relation.get(), isl_dim_out)));
  for_each_affine_index(access, [&](std::size_t k, isl_aff* affine) {
    for (int p = 0; p < isl_aff_dim(affine, isl_dim_param); ++p) {
      isl_val* const factor = isl_aff_get_coefficient_val(affine, isl_dim_param, p);
      if (isl_val_is_zero(factor) == isl_bool_false)
        sizes[k].insert(isl_aff_get_dim_name(affine, isl_dim_param, static_cast<unsigned>(p)));
      isl_val_free(factor);
    }
  });
  return sizes;
}

namespace {

std::set<int> dims_of(const Access& access) {
  std::set<int> dims;
  for (const std::optional<int>& dim : followed_dims(access)) {
    if (dim) dims.insert(*dim);
  }
  return dims;
}

bool write_depends_on(const Access& write, int dim) {
  struct Search {
    int dim;
    bool found = false;
  } search{dim};
  const auto look = [](isl_set* set, isl_aff* affine, void* user) {
    auto& wanted = *static_cast<Search*>(user);
    wanted.found = wanted.found || isl_aff_involves_dims(affine, isl_dim_in, wanted.dim, 1) == isl_bool_true;
    isl_set_free(set);
    isl_aff_free(affine);
    return isl_stat_ok;
  };
  isl_pw_multi_aff* functions = isl_pw_multi_aff_from_map(write.relation.copy());
  const int rank = static_cast<int>(isl_map_dim(write.relation.get(), isl_dim_out));
  for (int k = 0; k < rank; ++k) {
    isl_pw_aff* function = isl_pw_multi_aff_get_pw_aff(functions, k);
    isl_pw_aff_foreach_piece(function, look, &search);
    isl_pw_aff_free(function);
  }
  isl_pw_multi_aff_free(functions);
  return search.found;
}

/// Disjoint sets of (loop group, loop) pairs, never two loops of one loop group in one set.
class Classes {
 public:
  explicit Classes(const std::vector<LoopGroup>& loop_groups) {
    for (std::size_t u = 0; u < loop_groups.size(); ++u) {
      first_.push_back(static_cast<int>(parent_.size()));
      for (std::size_t k = 0; k < loop_groups[u].loops.size(); ++k) {
        parent_.push_back(static_cast<int>(parent_.size()));
        members_.push_back({static_cast<int>(u)});
      }
    }
  }
  int id(int loop_group, int loop) const { return first_[loop_group] + loop; }
  int root(int x) const {
    while (parent_[x] != x) x = parent_[x];
    return x;
  }
  void unite(int x, int y) {
    x = root(x);
    y = root(y);
    if (x == y) return;
    std::vector<int> both;
    std::set_intersection(members_[x].begin(), members_[x].end(), members_[y].begin(), members_[y].end(),
                          std::back_inserter(both));
    if (!both.empty()) return;
    members_[x].insert(members_[y].begin(), members_[y].end());
    parent_[y] = x;
  }

 private:
  std::vector<int> first_, parent_;
  std::vector<std::set<int>> members_;
};

struct TensorUse {
  int loop_group;
  std::vector<std::optional<int>> dims;
};

std::int64_t extent_at(const isl::set& domain, int dim, const Sizes& sizes) {
  const isl::set fixed = at_sizes(domain, sizes);
  if (fixed.is_empty()) return 0;
  const auto [low, high] = dim_range(fixed, dim);
  return high - low + 1;
}

std::vector<LoopGroup> make_loop_groups(const Nest& nest, const Sizes& sizes) {
  std::vector<LoopGroup> loop_groups;
  for (std::size_t s = 0; s < nest.statements.size(); ++s) {
    const Statement& statement = nest.statements[s];
    if (s == 0 || nest.statements[s - 1].group != statement.group) {
      LoopGroup loop_group;
      loop_group.first = statement.name;
      for (const std::string& dim : statement.dims) loop_group.loops.push_back(statement.name + "." + dim);
      loop_group.reduced.assign(loop_group.loops.size(), false);
      loop_group.extents.assign(loop_group.loops.size(), 0);
      loop_groups.push_back(std::move(loop_group));
    }
    LoopGroup& loop_group = loop_groups.back();
    loop_group.statements.push_back(statement.name);
    double points = 1;
    for (std::size_t k = 0; k < statement.dims.size(); ++k) {
      const std::int64_t extent = extent_at(statement.domain, static_cast<int>(k), sizes);
      loop_group.extents[k] = std::max(loop_group.extents[k], extent);
      points *= static_cast<double>(extent);
      if (statement.reduction && !write_depends_on(statement.write, static_cast<int>(k))) loop_group.reduced[k] = true;
    }
    loop_group.points += points;
    loop_group.seldom = sums_seldom(statement) && (loop_group.seldom || loop_group.statements.size() == 1);
  }
  return loop_groups;
}

/// Unites the loops that follow one index of a tensor, in textual order.
void align(const std::vector<TensorUse>& touches, Classes& classes) {
  std::map<std::size_t, std::vector<int>> by_index;
  for (const TensorUse& touch : touches) {
    for (std::size_t k = 0; k < touch.dims.size(); ++k) {
      if (touch.dims[k]) by_index[k].push_back(classes.id(touch.loop_group, *touch.dims[k]));
    }
  }
  for (const auto& [index, loops] : by_index) {
    for (const int loop : loops) classes.unite(loops.front(), loop);
  }
}

/// Results of one shape run along with each other where nothing says otherwise: products that share one operand.
void align_results(const Nest& nest, std::map<std::string, std::vector<TensorUse>>& touches, Classes& classes) {
  std::map<std::string, std::vector<TensorUse>> by_shape;
  for (const Tensor& tensor : nest.tensors) {
    if (tensor.role != TensorRole::output) continue;
    std::string shape;
    for (const auto& extent : tensor.shape) shape += isl_text(extent) + ";";
    auto& uses = by_shape[shape];
    uses.insert(uses.end(), touches[tensor.name].begin(), touches[tensor.name].end());
  }
  for (const auto& [shape, uses] : by_shape) align(uses, classes);
}

}  // namespace

NestStructure find_axes(const Nest& nest, const Sizes& sizes) {
  NestStructure structure;
  structure.loop_groups = make_loop_groups(nest, sizes);
  Classes classes(structure.loop_groups);
  std::map<std::string, std::vector<TensorUse>> touches, made;
  int loop_group = -1;
  for (std::size_t s = 0; s < nest.statements.size(); ++s) {
    const Statement& statement = nest.statements[s];
    if (s == 0 || nest.statements[s - 1].group != statement.group) ++loop_group;
    touches[statement.write.tensor].push_back({loop_group, followed_dims(statement.write)});
    made[statement.write.tensor].push_back(touches[statement.write.tensor].back());
    const std::set<int> written = dims_of(statement.write);
    for (const Access& read : statement.reads) {
      // A remainder of a long loop is no place of that loop: what has a loop for it is read anew.
      const bool input = nest.tensor(read.tensor).role == TensorRole::input;
      touches[read.tensor].push_back({loop_group, input ? followed_dims(read) : equal_dims(read)});
      const std::set<int> followed = dims_of(read);
      if (std::includes(followed.begin(), followed.end(), written.begin(), written.end()))
        made[read.tensor].push_back(touches[read.tensor].back());
    }
  }
  // What makes an element, and what is made of it alone, comes first: a tensor may be read as rows here and as columns there. Then other
  // values that flow; sharing an input aligns what is still free.
  for (const Tensor& tensor : nest.tensors) {
    if (tensor.role != TensorRole::input) align(made[tensor.name], classes);
  }
  for (const bool inputs : {false, true}) {
    for (const Tensor& tensor : nest.tensors) {
      if ((tensor.role == TensorRole::input) == inputs) align(touches[tensor.name], classes);
    }
  }
  align_results(nest, touches, classes);
  std::map<int, int> axis_of_root;
  std::set<std::string> names;
  for (std::size_t u = 0; u < structure.loop_groups.size(); ++u) {
    LoopGroup& current = structure.loop_groups[u];
    for (std::size_t k = 0; k < current.loops.size(); ++k) {
      const int root = classes.root(classes.id(static_cast<int>(u), static_cast<int>(k)));
      const auto [known, added] = axis_of_root.emplace(root, static_cast<int>(structure.axes.size()));
      if (added) {
        const std::string dim = current.loops[k].substr(current.first.size() + 1);
        std::string name = dim;
        for (int n = 2; !names.insert(name).second; ++n) name = dim + std::to_string(n);
        structure.axes.push_back({name, 1});
      }
      current.axes.push_back(known->second);
      Axis& axis = structure.axes[known->second];
      axis.extent = std::max(axis.extent, current.extents[k]);
    }
  }
  return structure;
}

std::vector<int> followed_axes(const LoopGroup& loop_group, const Access& access) {
  std::vector<int> axes;
  for (const std::optional<int>& dim : followed_dims(access)) {
    const bool known = dim && static_cast<std::size_t>(*dim) < loop_group.axes.size();
    axes.push_back(known ? loop_group.axes[static_cast<std::size_t>(*dim)] : -1);
  }
  return axes;
}

bool sums_over_planes(const Nest& nest) {
  const auto sums_plane = [](const Statement& statement) { return statement.reduction && reduced_dims(statement).size() > 1; };
  return std::any_of(nest.statements.begin(), nest.statements.end(), sums_plane) &&
         std::none_of(nest.statements.begin(), nest.statements.end(), multiplies_matrices);
}

namespace {

/// Is it a sum of products where `dims` of each operand has one of the result that the other's has not?
bool has_rows_and_columns(const Statement& statement, const std::function<std::set<int>(const Access&)>& dims) {
  const auto product = unscaled_contraction_of(statement);
  if (!product) return false;
  const std::set<int> a = dims(statement.reads[static_cast<std::size_t>(product->a)]),
                      b = dims(statement.reads[static_cast<std::size_t>(product->b)]), written = dims_of(statement.write);
  const auto lacks = [&](const std::set<int>& has, const std::set<int>& other) {
    return std::any_of(written.begin(), written.end(), [&](int dim) { return has.contains(dim) && !other.contains(dim); });
  };
  return lacks(a, b) && lacks(b, a);
}

}  // namespace

bool multiplies_matrices(const Statement& statement) { return has_rows_and_columns(statement, dims_of); }

bool multiplies_windows(const Statement& statement) {
  return has_rows_and_columns(statement, [](const Access& access) {
    std::set<int> dims = dims_of(access);
    for (const std::vector<int>& sum : summed_dims(access)) dims.insert(sum.begin(), sum.end());
    return dims;
  });
}

bool adds_up_products(const Nest& nest, const Statement& statement) {
  if (statement.reduction != ReductionOp::add || statement.value.op() != ScalarOp::read) return false;
  const std::vector<const Statement*> writers =
      writers_of(nest, statement.reads[static_cast<std::size_t>(statement.value.ordinal())].tensor);
  return std::any_of(writers.begin(), writers.end(), [](const Statement* writer) { return multiplies_matrices(*writer); });
}

bool multiplies(const Nest& nest) { return std::any_of(nest.statements.begin(), nest.statements.end(), multiplies_matrices); }

bool multiplies(const Nest& nest, const NestStructure& structure, const std::vector<int>& loop_groups) {
  return std::any_of(loop_groups.begin(), loop_groups.end(), [&](int u) {
    const std::vector<std::string>& names = structure.loop_groups[static_cast<std::size_t>(u)].statements;
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) { return multiplies_matrices(nest.statement(name)); });
  });
}

bool reads_own_sums(const Statement& statement) {
  return statement.reduction && std::any_of(statement.reads.begin(), statement.reads.end(),
                                            [&](const Access& read) { return read.tensor == statement.write.tensor; });
}

int prefix_dim(const Statement& statement) {
  if (!statement.reduction) return -1;
  const int dims = static_cast<int>(statement.dims.size());
  const auto terms_follow = [&](int dim) {
    return std::any_of(statement.reads.begin(), statement.reads.end(), [&](const Access& read) {
      const std::vector<std::vector<int>> indices = summed_dims(read);
      const bool moves = std::any_of(indices.begin(), indices.end(), [&](const std::vector<int>& index) {
        return std::find(index.begin(), index.end(), dim) != index.end();
      });
      return moves || depends_on_dim(read.relation.gist_domain(statement.domain), dim);
    });
  };
  const isl::space space = statement.domain.space();
  const auto bounded = [&](int low, int high) {
    isl_set* ordered = isl_set_universe(space.copy());
    ordered = isl_set_add_constraint(
        ordered, isl_constraint_set_coefficient_si(
                     isl_constraint_set_coefficient_si(isl_constraint_alloc_inequality(isl_local_space_from_space(space.copy())),
                                                       isl_dim_set, high, 1),
                     isl_dim_set, low, -1));
    return statement.domain.is_subset(isl::manage(ordered));
  };
  for (int s = 0; s < dims; ++s) {
    if (!write_depends_on(statement.write, s) || terms_follow(s)) continue;
    for (int k = 0; k < dims; ++k) {
      if (write_depends_on(statement.write, k)) continue;
      if (bounded(k, s) || bounded(s, k)) return s;
    }
  }
  return -1;
}

int axis_of_prefixes(const Nest& nest, const NestStructure& structure, const LoopGroup& loop_group) {
  if (std::any_of(structure.parts.begin(), structure.parts.end(),
                  [&](const PartAxis& part) { return loop_group.position_of(part.axis) >= 0; }))
    return -1;
  for (const std::string& name : loop_group.statements) {
    const int dim = prefix_dim(nest.statement(name));
    if (dim >= 0) return loop_group.axes[static_cast<std::size_t>(dim)];
  }
  return -1;
}

bool is_box(const isl::set& set, int a, int b) {
  const auto only = [](const isl::set& from, int dim) {
    const auto all = static_cast<unsigned>(isl_set_dim(from.get(), isl_dim_set)), at = static_cast<unsigned>(dim);
    isl_set* kept = isl_set_project_out(from.copy(), isl_dim_set, at + 1, all - at - 1);
    return isl::manage(isl_set_project_out(kept, isl_dim_set, 0, at));
  };
  const int first = std::min(a, b), last = std::max(a, b);
  isl_set* pairs =
      isl_set_project_out(set.copy(), isl_dim_set, static_cast<unsigned>(last) + 1,
                          static_cast<unsigned>(isl_set_dim(set.get(), isl_dim_set)) - static_cast<unsigned>(last) - 1);
  pairs = isl_set_project_out(pairs, isl_dim_set, static_cast<unsigned>(first) + 1, static_cast<unsigned>(last - first) - 1);
  pairs = isl_set_project_out(pairs, isl_dim_set, 0, static_cast<unsigned>(first));
  const isl::set both = isl::manage(pairs);
  const isl::set box = isl::manage(isl_set_flat_product(only(both, 0).release(), only(both, 1).release()));
  return box.is_subset(isl::manage(isl_set_reset_tuple_id(both.copy())));
}

double terms_of_sum(const LoopGroup& loop_group) {
  double terms = 1;
  for (std::size_t k = 0; k < loop_group.extents.size(); ++k)
    terms *= loop_group.reduced[k] ? static_cast<double>(loop_group.extents[k]) : 1;
  return terms;
}

double results_of(const LoopGroup& loop_group) {
  double results = 1;
  for (std::size_t k = 0; k < loop_group.extents.size(); ++k)
    results *= loop_group.reduced[k] ? 1 : static_cast<double>(loop_group.extents[k]);
  return results;
}

std::int64_t product_of(const std::vector<std::int64_t>& extents) {
  return std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>());
}

std::set<std::string> sizes_in(const Nest& nest, const isl::pw_aff& extent) {
  std::set<std::string> found;
  for (const SizeParam& size : nest.sizes) {
    const int position = isl_pw_aff_find_dim_by_name(extent.get(), isl_dim_param, size.name.c_str());
    if (position >= 0 &&
        isl_pw_aff_involves_dims(extent.get(), isl_dim_param, static_cast<unsigned>(position), 1) == isl_bool_true)
      found.insert(size.name);
  }
  return found;
}

std::set<std::string> tensors_of(const Nest& nest, const NestStructure& structure, int loop_group) {
  std::set<std::string> tensors;
  for (const std::string& name : structure.loop_groups[static_cast<std::size_t>(loop_group)].statements) {
    const Statement& statement = nest.statement(name);
    tensors.insert(statement.write.tensor);
    for (const Access& read : statement.reads) tensors.insert(read.tensor);
  }
  return tensors;
}

std::vector<std::vector<int>> related_loop_groups(const Nest& nest, const NestStructure& structure,
                                                  const std::vector<int>& loop_groups) {
  std::vector<std::vector<int>> related;
  std::vector<std::set<std::string>> computed;  // by entry of `related`
  for (const int u : loop_groups) {
    std::set<std::string> tensors = tensors_of(nest, structure, u);
    std::erase_if(tensors, [&](const std::string& tensor) { return nest.tensor(tensor).role == TensorRole::input; });
    std::vector<int> members;
    for (std::size_t k = related.size(); k-- > 0;) {
      const auto shared = [&](const std::string& tensor) { return computed[k].contains(tensor); };
      if (std::none_of(tensors.begin(), tensors.end(), shared)) continue;
      members.insert(members.begin(), related[k].begin(), related[k].end());
      tensors.merge(computed[k]);
      related.erase(related.begin() + static_cast<std::ptrdiff_t>(k));
      computed.erase(computed.begin() + static_cast<std::ptrdiff_t>(k));
    }
    std::sort(members.begin(), members.end());
    members.push_back(u);
    related.push_back(std::move(members));
    computed.push_back(std::move(tensors));
  }
  std::sort(related.begin(), related.end());
  return related;
}

}  // namespace nestor
