// Boxes of two dims.
#include "poly/algebra/operands/whole_dims.h"

#include "poly/algebra/values/dims_view.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"

#include <isl/aff.h>
#include <isl/constraint.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>

namespace nestor {

isl::set below(const isl::set& set, int dim, const isl::pw_aff& bound) {
  const isl::pw_aff function = dim_function(set, dim), most = over_params(bound).insert_domain(set.space());
  const isl::pw_aff none = function.sub(function);
  return set.intersect(function.lt_set(most)).intersect(function.ge_set(none));
}

bool same_extent(const isl::pw_aff& a, const isl::pw_aff& b) {
  return isl_pw_aff_is_equal(over_params(a).get(), over_params(b).get()) == isl_bool_true;
}

isl::set without_dims(const isl::set& set, const std::vector<int>& dims) {
  isl_set* rest = set.copy();
  for (const int dim : dims) rest = isl_set_eliminate(rest, isl_dim_set, static_cast<unsigned>(dim), 1);
  return isl::manage(rest);
}

bool is_box_along(const Nest& nest, const Statement& statement, const std::set<int>& dims) {
  std::vector<int> own, others;
  for (int d = 0; d < static_cast<int>(statement.dims.size()); ++d) (dims.contains(d) ? own : others).push_back(d);
  const isl::set points = without_dims(domain_in(nest, statement), others);
  isl::set box = without_dims(points, own);
  for (const int d : own) box = below(box, d, extent_of(nest, statement.domain, d));
  return points.is_equal(box);
}

bool has_all_terms(const Nest& nest, const Statement& sum, int reduced) {
  const isl::set box = below(without_dims(domain_in(nest, sum), {reduced}), reduced, extent_of(nest, sum.domain, reduced));
  return domain_in(nest, sum).is_equal(box);
}

isl::set with_any_values(const Nest& nest, const Statement& statement, int a, int b) {
  return without_dims(domain_in(nest, statement), {a, b});
}

bool have_all_values(const Nest& nest, const Statement& statement, int outer, int inner, std::int64_t extent) {
  const isl::set free = with_any_values(nest, statement, outer, inner);
  const isl::set box =
      below(below(free, outer, extent_of(nest, statement.domain, outer)), inner, extent_of(nest, statement.domain, inner));
  return known_value(nest, extent_of(nest, statement.domain, inner)) == extent && domain_in(nest, statement).is_equal(box);
}

namespace {

/// The statement over other points, which are one to one with its own: `from` leads from its instances to them.
Statement with_instances(const Nest& nest, const Statement& statement, const std::vector<std::string>& dims, const isl::map& from,
                         const isl::set& points) {
  Statement result;
  result.name = statement.name;
  result.group = statement.group;
  result.reduction = statement.reduction;
  result.dims = dims;
  isl_set* domain = isl_set_gist_params(points.coalesce().release(), full_context(nest).release());
  result.domain = isl::manage(with_dim_names(domain, result.dims));
  const isl::map back = from.reverse();
  const auto without_sizes = [&](const isl::map& relation) { return relation.gist_params(full_context(nest)).coalesce(); };
  result.write = {statement.write.tensor, without_sizes(back.apply_range(statement.write.relation).gist_domain(result.domain))};
  result.value = import_value(result, statement, back, statement.value);
  for (Access& read : result.reads) read.relation = without_sizes(read.relation);
  return result;
}

}  // namespace

isl::pw_aff quotient_of(const isl::pw_aff& function, std::int64_t divisor) {
  const isl::val factor = isl::manage(isl_val_int_from_si(isl_pw_aff_get_ctx(function.get()), static_cast<long>(divisor)));
  return isl::manage(isl_pw_aff_floor(isl_pw_aff_scale_down_val(function.copy(), factor.copy())));
}

isl::pw_aff multiple_of(const isl::pw_aff& function, std::int64_t factor) {
  const isl::val value = isl::manage(isl_val_int_from_si(isl_pw_aff_get_ctx(function.get()), static_cast<long>(factor)));
  return isl::manage(isl_pw_aff_scale_val(function.copy(), value.copy()));
}

isl::map along_dims(const Nest& nest, const Statement& statement, const Access& access) {
  std::vector<isl::pw_aff> functions = functions_of(access.relation);
  const isl::set domain = domain_in(nest, statement);
  for (isl::pw_aff& function : functions) {
    const isl::map found = isl::manage(isl_map_from_pw_aff(function.copy())).intersect_domain(domain);
    for (int dim = 0; dim < static_cast<int>(statement.dims.size()); ++dim) {
      const isl::pw_aff plain = dim_function(statement.domain, dim);
      if (found.is_equal(isl::manage(isl_map_from_pw_aff(plain.copy())).intersect_domain(domain))) function = plain;
    }
  }
  return relation_of(statement.domain, access.tensor, functions);
}

Statement with_joined_dims(const Nest& nest, const Statement& statement, const JoinedDims& joint) {
  std::vector<isl::pw_aff> functions;  // of the statement's instance: the instance of the new one
  for (int dim = 0; dim < static_cast<int>(statement.dims.size()); ++dim) {
    isl::pw_aff function = dim_function(statement.domain, dim);
    if (dim == joint.outer) continue;
    if (dim == joint.inner) {
      function = function.add(multiple_of(dim_function(statement.domain, joint.outer), joint.extent));
    }
    functions.push_back(std::move(function));
  }
  std::vector<std::string> names = statement.dims;
  names.erase(names.begin() + joint.outer);
  const isl::map from = relation_of(statement.domain, statement.name, functions).intersect_domain(domain_in(nest, statement));
  return with_instances(nest, statement, names, from, from.range());
}

std::optional<Statement> with_split_dim(const Nest& nest, const Statement& statement, const SplitDim& split) {
  const isl::pw_aff whole = dim_function(statement.domain, split.dim), outer = quotient_of(whole, split.extent);
  std::vector<isl::pw_aff> functions;
  std::vector<std::string> names;
  for (int dim = 0; dim < static_cast<int>(statement.dims.size()); ++dim) {
    const std::string& name = statement.dims[static_cast<std::size_t>(dim)];
    if (dim == split.dim) {
      functions.push_back(outer);
      names.push_back(fresh_dim(nest, statement.dims, name + "_part"));
    }
    functions.push_back(dim == split.dim ? whole.sub(multiple_of(outer, split.extent)) : dim_function(statement.domain, dim));
    names.push_back(name);
  }
  const isl::map from = relation_of(statement.domain, statement.name, functions).intersect_domain(domain_in(nest, statement));
  Statement points = statement;
  points.dims = names;
  points.domain = from.range();
  const isl::pw_aff extent = extent_of(nest, statement.domain, split.dim), none = extent.sub(extent),
                    inner = none.add_constant(static_cast<long>(split.extent));
  const isl::set box =
      below(below(with_any_values(nest, points, split.dim, split.dim + 1), split.dim, quotient_of(extent, split.extent)),
            split.dim + 1, inner);
  if (!points.domain.is_equal(box)) return std::nullopt;
  return with_instances(nest, statement, names, from, box);
}

namespace {

/// { statement[.., k, ..] -> name[.., .., o, t] : k = extent o + t, 0 <= t < extent }
isl::map chunk_map(const Statement& statement, const ChunkedDim& chunked, const std::string& name) {
  const auto dims = static_cast<unsigned>(statement.dims.size());
  isl_space* space = isl_space_add_dims(isl_space_map_from_set(isl_set_get_space(statement.domain.get())), isl_dim_out, 1);
  space = isl_space_set_tuple_name(space, isl_dim_out, name.c_str());
  isl_map* map = isl_map_universe(isl_space_copy(space));
  unsigned at = 0;
  for (unsigned d = 0; d < dims; ++d) {
    if (static_cast<int>(d) != chunked.dim)
      map = isl_map_equate(map, isl_dim_in, static_cast<int>(d), isl_dim_out, static_cast<int>(at++));
  }
  const int extent = static_cast<int>(chunked.extent);
  isl_constraint* cut = isl_constraint_alloc_equality(isl_local_space_from_space(space));
  cut = isl_constraint_set_coefficient_si(cut, isl_dim_in, chunked.dim, -1);
  cut = isl_constraint_set_coefficient_si(cut, isl_dim_out, static_cast<int>(at), extent);
  cut = isl_constraint_set_coefficient_si(cut, isl_dim_out, static_cast<int>(at) + 1, 1);
  map = isl_map_add_constraint(map, cut);
  map = isl_map_lower_bound_si(map, isl_dim_out, at + 1, 0);
  return isl::manage(isl_map_upper_bound_si(map, isl_dim_out, at + 1, extent - 1));
}

}  // namespace

Statement in_chunks(const Nest& nest, const Statement& statement, const ChunkedDim& chunked, const std::string& name) {
  Statement result;
  result.name = name;
  for (const int dim : other_dims(statement, {chunked.dim})) result.dims.push_back(statement.dims[static_cast<std::size_t>(dim)]);
  const std::string terms = statement.dims[static_cast<std::size_t>(chunked.dim)];
  result.dims.push_back(fresh_dim(nest, result.dims, terms + "_chunk"));
  result.dims.push_back(terms);
  isl_set* domain = domain_in(nest, statement).apply(chunk_map(statement, chunked, name)).release();
  domain = isl_set_lower_bound_si(domain, isl_dim_set, static_cast<unsigned>(result.dims.size()) - 2, 0);
  domain = isl_set_coalesce(isl_set_gist_params(domain, full_context(nest).release()));
  result.domain = isl::manage(with_dim_names(domain, result.dims));
  return result;
}

isl::map seen_in_chunks(const Nest& nest, const Statement& chunks, const Statement& statement, const ChunkedDim& chunked,
                        const isl::map& access) {
  const isl::map to_statement = chunk_map(statement, chunked, chunks.name).reverse();
  return isl::manage(isl_map_gist_domain(to_statement.apply_range(access).release(), domain_in(nest, chunks).release()));
}

}  // namespace nestor
