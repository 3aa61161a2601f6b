// The isl objects of a schedule: maps from loops to statement instances and back.
#include "poly/schedule/order/isl_maps.h"

#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>
#include <isl/space.h>
#include <isl/val.h>

#include <algorithm>

#include "support/error.h"

namespace nestor {
namespace {

/// The unnamed space of `count` loops over the parameters of `like`.
isl::space loop_space(const isl::set& like, std::size_t count) {
  isl_space* params = isl_space_params(isl_set_get_space(like.get()));
  return isl::manage(isl_space_add_dims(isl_space_set_from_params(params), isl_dim_set, static_cast<unsigned>(count)));
}

isl::multi_aff instance_function(const Statement& statement, const LoopForm& form, const std::vector<std::string>& loops,
                                 const isl::space& space) {
  isl_space* range = isl_set_get_space(statement.domain.get());
  isl_space* between = isl_space_map_from_domain_and_range(space.copy(), range);
  isl_multi_aff* result = isl_multi_aff_zero(between);
  for (std::size_t k = 0; k < form.dims.size(); ++k) {
    result = isl_multi_aff_set_aff(result, static_cast<int>(k), affine_of(form.dims[k], loops, space).release());
  }
  return isl::manage(result);
}

isl::set constraint_set(const LoopForm& form, const std::vector<std::string>& loops, const isl::space& space) {
  isl_basic_set* result = isl_basic_set_universe(space.copy());
  for (const LinearForm& constraint : form.constraints) {
    isl_aff* zero = isl_aff_zero_on_domain(isl_local_space_from_space(space.copy()));
    result = isl_basic_set_intersect(result, isl_aff_ge_basic_set(affine_of(constraint, loops, space).release(), zero));
  }
  return isl::manage(isl_set_from_basic_set(result));
}

}  // namespace

isl::aff affine_of(const LinearForm& form, const std::vector<std::string>& loops, const isl::space& loop_space) {
  isl_ctx* context = loop_space.ctx().get();
  isl_aff* result = isl_aff_zero_on_domain(isl_local_space_from_space(loop_space.copy()));
  result = isl_aff_set_constant_val(result, isl_val_int_from_si(context, form.constant));
  for (const auto& [name, coefficient] : form.terms) {
    const auto found = std::find(loops.begin(), loops.end(), name);
    if (found == loops.end()) internal_error("loop {} is not around the statement whose form uses it", name);
    result = isl_aff_set_coefficient_val(result, isl_dim_in, static_cast<int>(found - loops.begin()),
                                         isl_val_int_from_si(context, coefficient));
  }
  return isl::manage(result);
}

LoopSpace::LoopSpace(const Statement& statement, const LoopForm& form, std::vector<std::string> loops)
    : loops_(std::move(loops)) {
  const isl::space space = loop_space(statement.domain, loops_.size());
  instances_ = instance_function(statement, form, loops_, space);
  constraints_ = constraint_set(form, loops_, space);
}

isl::map in_loop_space(const isl::map& relation, const LoopSpace& source, const LoopSpace& sink) {
  isl_map* moved = isl_map_preimage_domain_multi_aff(relation.copy(), source.instances().copy());
  moved = isl_map_preimage_range_multi_aff(moved, sink.instances().copy());
  moved = isl_map_intersect_domain(moved, source.constraints().copy());
  return isl::manage(isl_map_intersect_range(moved, sink.constraints().copy()));
}

isl::map loop_relation_of(const Statement& statement, const LoopSpace& space) {
  isl_map* forward = isl_map_from_multi_aff(space.instances().copy());
  forward = isl_map_intersect_domain(forward, space.constraints().copy());
  isl::map relation = isl::manage(isl_map_intersect_domain(isl_map_reverse(forward), statement.domain.copy()));
  for (std::size_t k = 0; k < space.loops().size(); ++k) {
    relation =
        isl::manage(isl_map_set_dim_name(relation.release(), isl_dim_out, static_cast<unsigned>(k), space.loops()[k].c_str()));
  }
  return relation;
}

}  // namespace nestor
