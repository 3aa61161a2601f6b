// Scopes from dependences, extents from box hulls.
#include "codegen/tile/places/storage.h"

#include "poly/algebra/blocks/next_blocks.h"
#include "poly/isl/conjunction.h"
#include "poly/isl/isl_tools.h"
#include "support/error.h"

#include <isl/aff.h>
#include <isl/fixed_box.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <optional>

namespace nestor {
namespace {

/// Rows of buffers are padded to whole vectors of the widest kind (512 bits of f32).
constexpr int kRowPadding = 16;

struct Use {
  const StatementPlan* plan;
  const Access* access;
};

std::vector<Use> uses_of(const ProgramPlan& plan, const std::string& tensor) {
  std::vector<Use> uses;
  for (const StatementPlan& s : plan.statements) {
    if (s.statement->write.tensor == tensor) uses.push_back({&s, &s.statement->write});
    for (const Access& read : s.statement->reads) {
      if (read.tensor == tensor) uses.push_back({&s, &read});
    }
  }
  return uses;
}

/// { Statement[dims] -> [first `depth` outer loops] }
isl::map outer_prefix(const StatementPlan& plan, std::size_t depth) {
  const unsigned total = static_cast<unsigned>(plan.outer.size() + plan.inner.size());
  return isl::manage(
      isl_map_project_out(plan.loops.copy(), isl_dim_out, static_cast<unsigned>(depth), total - static_cast<unsigned>(depth)));
}

/// Source and sink of every instance pair lie in one iteration of the first `depth` loops.
bool stays_inside(const ProgramPlan& plan, const Dependence& dependence, std::size_t depth) {
  const auto stays = [&](const isl::map& relation, const isl::map& source, const isl::map& sink) {
    const isl::map pairs = relation.apply_domain(source).apply_range(sink);
    return pairs.is_subset(isl::manage(isl_map_identity(isl_map_get_space(pairs.get()))));
  };
  const isl::map source = outer_prefix(plan.plan(dependence.source), depth);
  const isl::map sink = outer_prefix(plan.plan(dependence.sink), depth);
  const bool parts = is_union(dependence.relation) || is_union(source) || is_union(sink);
  return (parts && stays(conjunction_around(dependence.relation), conjunction_around(source), conjunction_around(sink))) ||
         stays(dependence.relation, source, sink);
}

std::size_t scope_depth(const ProgramPlan& plan, const std::vector<Use>& uses, const std::string& tensor) {
  std::size_t depth = uses.front().plan->outer.size();
  for (const Use& use : uses) depth = std::min(depth, shared_outer_loops(*uses.front().plan, *use.plan));
  for (const Dependence& dependence : plan.schedule->dependences()) {
    if (dependence.tensor != tensor || dependence.kind != DependenceKind::flow) continue;
    while (depth > 0 && !stays_inside(plan, dependence, depth)) --depth;
  }
  return depth;
}

isl::map touched(const std::vector<Use>& uses, std::size_t depth) {
  isl::map all = footprint(*uses.front().plan, *uses.front().access, depth);
  for (const Use& use : uses) all = all.unite(footprint(*use.plan, *use.access, depth));
  return all.coalesce();
}

struct Range {
  isl::aff origin;
  IntExpr extent;
};

/// A box of constant size around index `k` of the touched elements, if isl finds one.
std::optional<Range> constant_range(const isl::map& elements, int k) {
  const int rank = isl_map_dim(elements.get(), isl_dim_out);
  isl_map* single = isl_map_reset_tuple_id(elements.copy(), isl_dim_out);
  single = isl_map_project_out(single, isl_dim_out, static_cast<unsigned>(k) + 1, static_cast<unsigned>(rank - k - 1));
  single = isl_map_coalesce(isl_map_project_out(single, isl_dim_out, 0, static_cast<unsigned>(k)));
  isl_fixed_box* box = isl_map_get_range_simple_fixed_box_hull(single);
  isl_map_free(single);
  std::optional<Range> range;
  if (isl_fixed_box_is_valid(box) == isl_bool_true) {
    isl_multi_aff* offset = isl_fixed_box_get_offset(box);
    isl_multi_val* size = isl_fixed_box_get_size(box);
    isl_val* extent = isl_multi_val_get_val(size, 0);
    range = Range{isl::manage(isl_multi_aff_get_aff(offset, 0)), IntExpr(isl_val_get_num_si(extent))};
    isl_val_free(extent);
    isl_multi_val_free(size);
    isl_multi_aff_free(offset);
  }
  isl_fixed_box_free(box);
  return range;
}

isl::aff zero_on(const isl::space& domain) {
  return isl::manage(isl_aff_zero_on_domain(isl_local_space_from_space(domain.copy())));
}

bool has_any_parallel_loop(const std::vector<Use>& uses) {
  return std::any_of(uses.begin(), uses.end(), [](const Use& use) { return use.plan->inside_parallel(use.plan->outer.size()); });
}

/// { [scope] -> [x] : origin <= x < origin + extent }
isl::map constant_interval(const isl::aff& origin, std::int64_t extent) {
  isl_map* low = isl_map_from_aff(origin.copy());
  isl_map* high = isl_map_from_aff(isl_aff_add_constant_si(origin.copy(), static_cast<int>(extent)));
  isl_map* at_least = isl_map_lex_le(isl_space_range(isl_map_get_space(low)));
  isl_map* below = isl_map_lex_gt(isl_space_range(isl_map_get_space(high)));
  return isl::manage(isl_map_intersect(isl_map_apply_range(low, at_least), isl_map_apply_range(high, below)));
}

/// { [scope] -> [x] : 0 <= x < extent } for an extent that is a function of the parameters.
isl::map whole_interval(const isl::pw_aff& extent, const isl::space& scope) {
  const isl::set end = isl::manage(isl_set_from_pw_aff(over_params(extent).release()));
  isl_map* below = isl_map_lex_gt(isl_set_get_space(end.get()));
  isl_set* interval = isl_set_lower_bound_si(isl_set_apply(end.copy(), below), isl_dim_set, 0, 0);
  return isl::manage(isl_map_from_domain_and_range(isl_set_universe(scope.copy()), interval));
}

/// The product of one interval an index: { [scope] -> Tensor[index] }.
isl::map product(const isl::space& space, const std::vector<isl::map>& intervals) {
  isl_map* held = isl_map_universe(space.copy());
  for (std::size_t k = 0; k < intervals.size(); ++k) {
    isl_map* lifted = isl_map_insert_dims(intervals[k].copy(), isl_dim_out, 0, static_cast<unsigned>(k));
    lifted = isl_map_add_dims(lifted, isl_dim_out, static_cast<unsigned>(intervals.size() - k - 1));
    lifted = isl_map_set_tuple_id(lifted, isl_dim_out, isl_space_get_tuple_id(space.get(), isl_dim_out));
    held = isl_map_intersect(held, lifted);
  }
  return isl::manage(held);
}

Placement place_argument(const ProgramPlan& plan, const Tensor& tensor, Storage& storage) {
  Buffer buffer = buffer_for(tensor, Memory::argument);
  for (const isl::pw_aff& extent : tensor.shape) buffer.extents.push_back(to_int_expr(extent, plan.names({})));
  const auto& streaming = plan.schedule->streaming_tensors();
  buffer.streaming = std::find(streaming.begin(), streaming.end(), tensor.name) != streaming.end();
  Placement placement;
  const isl::space params = plan.context.space();
  const isl::space scope = params.add_unnamed_tuple(0);
  const isl::space range = params.add_named_tuple(tensor.name, static_cast<unsigned>(tensor.shape.size()));
  std::vector<isl::map> intervals;
  for (const isl::pw_aff& extent : tensor.shape) {
    placement.origin.push_back(zero_on(scope));
    intervals.push_back(whole_interval(extent, scope));
  }
  placement.held = product(isl::manage(isl_space_map_from_domain_and_range(scope.copy(), range.copy())), intervals);
  placement.buffer = static_cast<int>(storage.buffers.size());
  storage.buffers.push_back(std::move(buffer));
  return placement;
}

Placement place_temporary(const ProgramPlan& plan, const Tensor& tensor, const std::vector<Use>& uses, Storage& storage) {
  Placement placement;
  placement.depth = scope_depth(plan, uses, tensor.name);
  const StatementPlan& first = *uses.front().plan;
  for (std::size_t k = 0; k < placement.depth; ++k) placement.scope.push_back(first.outer[k].name);
  const bool scratch = first.inside_parallel(placement.depth) || !has_any_parallel_loop(uses);
  Buffer buffer = buffer_for(tensor, scratch ? Memory::scratch : Memory::workspace);
  buffer.next_blocks = !scratch && tells_next_blocks(plan.schedule->nest(), tensor.name);
  const Placement fitted = fit_buffer(plan, tensor, touched(uses, placement.depth), true, buffer);
  placement.origin = fitted.origin;
  placement.held = fitted.held;
  placement.buffer = static_cast<int>(storage.buffers.size());
  storage.buffers.push_back(std::move(buffer));
  return placement;
}

}  // namespace

Buffer buffer_for(const Tensor& tensor, Memory memory) {
  Buffer buffer;
  buffer.name = tensor.name;
  buffer.tensor = tensor.name;
  buffer.type = tensor.type;
  buffer.memory = memory;
  buffer.role = tensor.role;
  return buffer;
}

Placement fit_buffer(const ProgramPlan& plan, const Tensor& tensor, const isl::map& elements, bool whole_dims, Buffer& buffer) {
  Placement placement;
  std::vector<isl::map> intervals;
  const isl::space scope = elements.space().domain();
  for (std::size_t k = 0; k < tensor.shape.size(); ++k) {
    if (const auto range = constant_range(elements, static_cast<int>(k))) {
      placement.origin.push_back(range->origin);
      buffer.extents.push_back(range->extent);
      intervals.push_back(constant_interval(range->origin, range->extent.value()));
    } else if (whole_dims) {
      placement.origin.push_back(zero_on(scope));
      buffer.extents.push_back(to_int_expr(tensor.shape[k], plan.names({})));
      intervals.push_back(whole_interval(tensor.shape[k], scope));
    } else {
      user_error(
          "index {} of the part of {} to be staged has no constant extent: split the loops that move it, or fix the size it "
          "depends on",
          k, tensor.name);
    }
  }
  placement.held = product(elements.space(), intervals);
  const auto row = buffer.extents.empty() ? std::optional<std::int64_t>(1) : buffer.extents.back().as_constant();
  buffer.pad = row.value_or(kRowPadding) >= kRowPadding / 2 ? kRowPadding : 1;
  return placement;
}

const Placement& Storage::read_placement(const std::string& statement, const std::string& tensor) const {
  const auto found = staged.find({statement, tensor});
  return found == staged.end() ? tensors.at(tensor) : found->second;
}

Storage place_tensors(const ProgramPlan& plan) {
  Storage storage;
  const Nest& nest = plan.schedule->nest();
  for (const Tensor& tensor : nest.tensors) {
    if (tensor.role != TensorRole::temporary) storage.tensors[tensor.name] = place_argument(plan, tensor, storage);
  }
  for (const Tensor& tensor : nest.tensors) {
    if (tensor.role != TensorRole::temporary) continue;
    const std::vector<Use> uses = uses_of(plan, tensor.name);
    if (!uses.empty()) storage.tensors[tensor.name] = place_temporary(plan, tensor, uses, storage);
  }
  return storage;
}

}  // namespace nestor
