// Fusions tried one after the other, each with the choices that fit.
#include "autotune/space/gpu/tensor_fusion.h"

#include "autotune/space/gpu/tensor_guesses.h"
#include "autotune/space/structure/product_chains.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/nest/nest_sets.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace nestor {
namespace {

bool prepares(const std::vector<FusionGroup>& groups) {
  return std::any_of(groups.begin(), groups.end(), [](const FusionGroup& group) { return group.prepares; });
}

/// Does one loop over the streamed columns make tiles that another one reads, as the weights of a softmax that is a result itself? Those of
/// a whole row stay in no block.
bool outlives_stream(RuleVariants& variants, const RuleVariant& variant, const FusionGroup& group, const TensorAxes& axes) {
  if (axes.column >= 0 || group.part) return false;
  const Nest& nest = variants.nest(variant);
  const std::vector<int>& loops = variants.reduction_groups(variant, group, axes.reduction_axis);
  std::map<std::string, int> made;  // tiles of rows and streamed columns, by the loop that makes them
  bool outlives = false;
  for (std::size_t k = 0; k < group.loop_groups.size(); ++k) {
    const LoopGroup& loop_group = variant.structure.loop_groups[static_cast<std::size_t>(group.loop_groups[k])];
    for (const std::string& name : loop_group.statements) {
      const Statement& statement = nest.statement(name);
      for (const Access& read : statement.reads) {
        const auto known = made.find(read.tensor);
        outlives = outlives || (known != made.end() && known->second != loops[k]);
      }
      const std::vector<int> written = followed_axes(loop_group, statement.write);
      if (std::find(written.begin(), written.end(), axes.reduction_axis) != written.end())
        made[statement.write.tensor] = loops[k];
    }
  }
  return outlives;
}

/// Does a kernel beside the heaviest compute tensors that have nothing in common but loops along the rows of both? Its blocks would go through rows
/// in strides.
bool goes_in_strides(RuleVariants& variants, const RuleVariant& variant, Fusion fusion) {
  const Nest& nest = variants.nest(variant);
  const FusionGroup& heaviest = variants.heaviest(variant, fusion);
  const std::vector<FusionGroup>& groups = variants.fusion_groups(variant, fusion);
  return std::any_of(groups.begin(), groups.end(), [&](const FusionGroup& group) {
    std::vector<std::set<std::string>>
        strided;  // tensors that its loop groups touch, of those whose outermost loop is not common
    for (const int u : &group == &heaviest || group.axes.empty() ? std::vector<int>{} : group.loop_groups) {
      const LoopGroup& member = variant.structure.loop_groups[static_cast<std::size_t>(u)];
      if (std::find(group.axes.begin(), group.axes.end(), member.axes.front()) != group.axes.end()) continue;
      std::set<std::string>& tensors = strided.emplace_back();
      for (const std::string& name : member.statements) {
        const Statement& statement = nest.statement(name);
        tensors.insert(statement.write.tensor);
        for (const Access& read : statement.reads) tensors.insert(read.tensor);
      }
    }
    const auto apart = [](const std::set<std::string>& a, const std::set<std::string>& b) {
      return std::none_of(a.begin(), a.end(), [&](const std::string& tensor) { return b.contains(tensor); });
    };
    return strided.size() > 1 && apart(strided.front(), strided.back());
  });
}

/// Do sums of products start in another kernel, so that tiles would have to be read first?
bool starts_apart(const Nest& nest, const NestStructure& structure, const FusionGroup& group) {
  std::set<std::string> own;
  for (const int u : group.loop_groups) {
    const std::vector<std::string>& names = structure.loop_groups[static_cast<std::size_t>(u)].statements;
    own.insert(names.begin(), names.end());
  }
  return std::any_of(own.begin(), own.end(), [&](const std::string& name) {
    if (!multiplies_matrices(nest.statement(name))) return false;
    const std::vector<const Statement*> writers = writers_of(nest, nest.statement(name).write.tensor);
    return std::any_of(writers.begin(), writers.end(), [&](const Statement* writer) { return !own.contains(writer->name); });
  });
}

/// Does a product have an operand that its group makes and another one reads as well? What lies in memory is no tile of its own.
bool stores_operand(const Nest& nest, const NestStructure& structure, const FusionGroup& group) {
  std::set<std::string> own, made;
  for (const int u : group.loop_groups) {
    for (const std::string& name : structure.loop_groups[static_cast<std::size_t>(u)].statements) {
      own.insert(name);
      made.insert(nest.statement(name).write.tensor);
    }
  }
  const auto is_shared = [&](const Access& operand) {
    const std::vector<const Statement*> readers = readers_of(nest, operand.tensor);
    return made.contains(operand.tensor) &&
           std::any_of(readers.begin(), readers.end(), [&](const Statement* reader) { return !own.contains(reader->name); });
  };
  return std::any_of(own.begin(), own.end(), [&](const std::string& name) {
    const Statement& statement = nest.statement(name);
    return multiplies_matrices(statement) && std::any_of(statement.reads.begin(), statement.reads.end(), is_shared);
  });
}

/// Do sums of chunks of terms, which several products make, leave the kernel before they are added up? They are many times the result.
bool stores_chunks(const Nest& nest, const NestStructure& structure, const std::vector<FusionGroup>& groups) {
  for (const FusionGroup& group : groups) {
    std::set<std::string> own;
    std::map<std::string, int> products;  // that add up in the tensor
    for (const int u : group.loop_groups) {
      for (const std::string& name : structure.loop_groups[static_cast<std::size_t>(u)].statements) {
        own.insert(name);
        if (multiplies_matrices(nest.statement(name))) ++products[nest.statement(name).write.tensor];
      }
    }
    for (const auto& [tensor, count] : products) {
      const std::vector<const Statement*> readers = readers_of(nest, tensor);
      if (count > 1 && std::any_of(readers.begin(), readers.end(), [&](const Statement* reader) {
            return reader->reduction == ReductionOp::add && !own.contains(reader->name);
          }))
        return true;
    }
  }
  return false;
}

/// Does a statement read what its group makes at another place of a row or column than its own, as halves of a row that turn change places?
/// Tiles in registers are read where they lie.
bool reads_elsewhere(const Nest& nest, const NestStructure& structure, const FusionGroup& group, const TensorAxes& axes) {
  std::map<std::string, std::pair<const LoopGroup*, const Statement*>> made;
  for (const int u : group.loop_groups) {
    const LoopGroup& loop_group = structure.loop_groups[static_cast<std::size_t>(u)];
    for (const std::string& name : loop_group.statements) {
      const Statement& statement = nest.statement(name);
      const auto moves = [&](const Access& read) {
        const auto known = made.find(read.tensor);
        if (known == made.end()) return false;
        const auto& [maker, written] = known->second;
        const isl::map pairs = read.relation.intersect_domain(domain_in(nest, statement))
                                   .apply_range(written->write.relation.intersect_domain(domain_in(nest, *written)).reverse());
        for (const int axis : {axes.row, axes.column >= 0 ? axes.column : axes.reduction_axis}) {
          const int here = axis < 0 ? -1 : loop_group.position_of(axis), there = axis < 0 ? -1 : maker->position_of(axis);
          if (here < 0 || there < 0) continue;
          const isl::map same = isl::manage(isl_map_equate(pairs.copy(), isl_dim_in, here, isl_dim_out, there));
          if (!pairs.is_subset(same)) return true;
        }
        return false;
      };
      if (std::any_of(statement.reads.begin(), statement.reads.end(), moves)) return true;
      if (!statement.reduction && sole_definition(nest, statement.write.tensor) == &statement)
        made[statement.write.tensor] = {&loop_group, &statement};
    }
  }
  return false;
}

/// Has a sum of products results along more loops of its own than its columns'? Tiles have rows and columns.
bool has_more_dims(const Nest& nest, const NestStructure& structure, const FusionGroup& group, const TensorAxes& axes) {
  return std::any_of(group.loop_groups.begin(), group.loop_groups.end(), [&](int u) {
    if (!multiplies(nest, structure, {u})) return false;
    const LoopGroup& loop_group = structure.loop_groups[static_cast<std::size_t>(u)];
    int own = 0;
    for (std::size_t k = 0; k < loop_group.axes.size(); ++k) {
      const int axis = loop_group.axes[k];
      const bool shared = has(group.axes, axis) || axis == axes.reduction_axis || axis == axes.chunk_axis || axis == axes.column;
      own += shared || loop_group.reduced[k] || loop_group.extents[k] == 1 ? 0 : 1;
    }
    return own > (axes.column >= 0 ? 0 : 1);
  });
}

/// Have loops around tiles other extents for some statements than for others, as heads of queries and of keys? Blocks have no conditions.
bool has_other_blocks(const NestStructure& structure, const FusionGroup& group, const TensorAxes& axes) {
  return std::any_of(group.axes.begin(), group.axes.end(), [&](int axis) {
    if (axis == axes.row || axis == axes.column || axis == axes.reduction_axis || axis == axes.chunk_axis) return false;
    std::set<std::int64_t> extents;
    for (const int u : group.loop_groups) {
      const LoopGroup& loop_group = structure.loop_groups[static_cast<std::size_t>(u)];
      const int position = loop_group.position_of(axis);
      if (position >= 0) extents.insert(loop_group.extents[static_cast<std::size_t>(position)]);
    }
    return extents.size() > 1;
  });
}

/// Can tensor cores take the group's products, with some tile?
bool takes_products(const std::optional<TensorAxes>& axes, const GpuLimits& limits) {
  return axes && axes->no_product.empty() && !likely_tensor_choices(*axes, limits).empty();
}

/// Does much less go through memory between kernels if `more` is fused, in fewer kernels, and do as many products have tensor cores? Tiles of
/// products are worth it where nearly nothing does.
bool keeps_more(RuleVariants& variants, const RuleVariant& variant, Fusion fusion, Fusion more, const GpuLimits& limits) {
  constexpr double kManyPoints = 1 << 23;  // that are worth rows in a block
  constexpr double kFewLeft = 0.25;
  const double before = points_between_kernels(variants, variant, fusion),
               after = points_between_kernels(variants, variant, more);
  return variants.fusion_groups(variant, more).size() < variants.fusion_groups(variant, fusion).size() &&
         after + kManyPoints < before && (more != Fusion::products || after < kFewLeft * before) &&
         has_place(variants, variant, more, limits) &&
         points_on_lanes(variants, variant, more, limits) <= points_on_lanes(variants, variant, fusion, limits);
}

/// All elements that statements of a loop group read.
isl::union_set elements_read_by(const Nest& nest, const LoopGroup& loop_group) {
  isl::union_set found = isl::union_set::empty(nest.context.ctx());
  for (const std::string& name : loop_group.statements) {
    const Statement& statement = nest.statement(name);
    for (const Access& read : statement.reads)
      found = found.unite(domain_in(nest, statement).apply(read.relation).to_union_set());
  }
  return found;
}

/// Does the heaviest kernel have sums of products one after the other that have nothing to do with each other, as projections that are
/// results, and many results each? In kernels of their own they have whole blocks.
bool has_products_in_turn(RuleVariants& variants, const RuleVariant& variant, Fusion fusion, const GpuLimits& limits) {
  const Nest& nest = variants.nest(variant);
  const NestStructure& structure = variant.structure;
  const FusionGroup& group = variants.heaviest(variant, fusion);
  const auto& axes = tensor_axes_of(variants, variant, group, limits.sm);
  if (axes->column < 0 || group.part) return false;
  const std::vector<int>& loops = variants.reduction_groups(variant, group, axes->reduction_axis);
  std::set<int> taken;                   // loops of products
  std::vector<isl::union_set> products;  ///< what each reads
  for (const std::vector<int>& related : related_loop_groups(nest, structure, group.loop_groups)) {
    std::set<int> own;
    isl::union_set operands = isl::union_set::empty(nest.context.ctx());
    for (const int u : related) {
      if (!multiplies(nest, structure, {u})) continue;
      const LoopGroup& loop_group = structure.loop_groups[static_cast<std::size_t>(u)];
      operands = operands.unite(elements_read_by(nest, loop_group));
      if (results_of(loop_group) < static_cast<double>(kManyResults)) return false;
      own.insert(loops[static_cast<std::size_t>(std::find(group.loop_groups.begin(), group.loop_groups.end(), u) -
                                                group.loop_groups.begin())]);
    }
    if (own.empty()) continue;
    // Those of the same operands, as the parts of complex numbers, read them once together.
    if (std::any_of(products.begin(), products.end(), [&](const auto& other) { return operands.is_subset(other); })) return false;
    products.push_back(operands);
    for (const int loop : own) {
      if (!taken.insert(loop).second) return false;
    }
  }
  return products.size() > 1;
}

}  // namespace

bool has_place(RuleVariants& variants, const RuleVariant& variant, Fusion fusion, const GpuLimits& limits) {
  const FusionGroup& group = variants.heaviest(variant, fusion);
  const auto& axes = tensor_axes_of(variants, variant, group, limits.sm);
  const auto starts_alone = [&](const FusionGroup& each) {
    return starts_apart(variants.nest(variant), variant.structure, each) &&
           takes_products(tensor_axes_of(variants, variant, each, limits.sm), limits);
  };
  const auto has_no_tiles = [&](const FusionGroup& each) {
    const auto& own = tensor_axes_of(variants, variant, each, limits.sm);
    return takes_products(own, limits) && (reads_elsewhere(variants.nest(variant), variant.structure, each, *own) ||
                                           has_more_dims(variants.nest(variant), variant.structure, each, *own) ||
                                           has_other_blocks(variant.structure, each, *own));
  };
  const std::vector<FusionGroup>& groups = variants.fusion_groups(variant, fusion);
  return takes_products(axes, limits) && !outlives_stream(variants, variant, group, *axes) &&
         std::none_of(groups.begin(), groups.end(), starts_alone) && std::none_of(groups.begin(), groups.end(), has_no_tiles) &&
         !stores_operand(variants.nest(variant), variant.structure, group) &&
         !reads_stored_sums(variants.nest(variant), variant.structure, group.loop_groups) &&
         !stores_chunks(variants.nest(variant), variant.structure, variants.fusion_groups(variant, fusion));
}

double points_on_lanes(RuleVariants& variants, const RuleVariant& variant, Fusion fusion, const GpuLimits& limits,
                       const std::function<bool(const Statement&)>& counts) {
  const Nest& nest = variants.nest(variant);
  double points = 0;
  for (const FusionGroup& group : variants.fusion_groups(variant, fusion)) {
    if (takes_products(tensor_axes_of(variants, variant, group, limits.sm), limits)) continue;
    for (const int u : group.loop_groups) {
      const LoopGroup& loop_group = variant.structure.loop_groups[static_cast<std::size_t>(u)];
      for (const std::string& name : loop_group.statements) points += counts(nest.statement(name)) ? loop_group.points : 0;
    }
  }
  return points;
}

double points_between_kernels(RuleVariants& variants, const RuleVariant& variant, Fusion fusion) {
  const Nest& nest = variants.nest(variant);
  std::map<std::string, std::pair<int, double>> made;  // tensors: by which group, and how many elements
  double points = 0;
  int number = 0;
  for (const FusionGroup& group : variants.fusion_groups(variant, fusion)) {
    std::set<std::string> read;
    for (const int u : group.loop_groups) {
      const LoopGroup& loop_group = variant.structure.loop_groups[static_cast<std::size_t>(u)];
      for (const std::string& name : loop_group.statements) {
        const Statement& statement = nest.statement(name);
        for (const Access& access : statement.reads) read.insert(access.tensor);
        made[statement.write.tensor] = {number, loop_group.points / std::max(terms_of_sum(loop_group), 1.0)};
      }
    }
    for (const std::string& tensor : read) {
      const auto known = made.find(tensor);
      if (known != made.end() && known->second.first != number) points += known->second.second;
    }
    ++number;
  }
  return points;
}

const std::optional<TensorAxes>& tensor_axes_of(RuleVariants& variants, const RuleVariant& variant, const FusionGroup& group,
                                                int sm) {
  std::any& known = variants.finding(group, sm);
  if (!known.has_value()) known = tensor_axes(variants.nest(variant), variant.structure, group, sm);
  return *std::any_cast<std::optional<TensorAxes>>(&known);
}

std::optional<TensorAxes> tensor_axes_after(RuleVariants& variants, const std::set<std::string>& rules, const GpuLimits& limits) {
  const RuleVariant& variant = variants.at({rules});
  const Fusion fusion = fusion_for_tensor_cores(variants, variant, limits);
  return tensor_axes_of(variants, variant, variants.heaviest(variant, fusion), limits.sm);
}

Fusion fusion_for_tensor_cores(RuleVariants& variants, const RuleVariant& variant, const GpuLimits& limits) {
  for (const Fusion fusion : {Fusion::maximal, Fusion::prepared, Fusion::apart, Fusion::careful, Fusion::rows, Fusion::alike,
                              Fusion::connected, Fusion::products}) {
    if (fusion == Fusion::apart && !prepares(variants.fusion_groups(variant, fusion))) continue;
    const auto groups = [&](Fusion each) { return variants.fusion_groups(variant, each).size(); };
    if (fusion == Fusion::rows && groups(Fusion::rows) >= groups(Fusion::alike)) continue;
    if (!has_place(variants, variant, fusion, limits)) continue;
    if (fusion == Fusion::maximal && goes_in_strides(variants, variant, fusion) &&
        has_place(variants, variant, Fusion::careful, limits) &&
        points_on_lanes(variants, variant, Fusion::careful, limits) <= points_on_lanes(variants, variant, fusion, limits))
      return Fusion::careful;
    if (fusion == Fusion::maximal && has_products_in_turn(variants, variant, fusion, limits) &&
        has_place(variants, variant, Fusion::connected, limits) &&
        points_on_lanes(variants, variant, Fusion::connected, limits) <= points_on_lanes(variants, variant, fusion, limits))
      return Fusion::connected;
    // Parts of operands are made along the rows of each, not together.
    const auto& axes = tensor_axes_of(variants, variant, variants.heaviest(variant, fusion), limits.sm);
    const bool alone = fusion == Fusion::maximal && axes->chunk_axis >= 0;
    if (fusion == Fusion::careful) {
      for (const Fusion more : {Fusion::rows, Fusion::products}) {
        if (keeps_more(variants, variant, fusion, more, limits)) return more;
      }
    }
    const double on_lanes = points_on_lanes(variants, variant, fusion, limits);
    // A product that rows would have on lanes is worth a kernel: launching one takes as long.
    constexpr double kWorthAKernel = 1 << 26;
    if (on_lanes >= kWorthAKernel && groups(Fusion::rows) <= groups(fusion) + 1 &&
        has_place(variants, variant, Fusion::rows, limits) &&
        points_on_lanes(variants, variant, Fusion::rows, limits) < on_lanes / 2)
      return Fusion::rows;
    // What shares few loops with a product leaves it none that tensor cores could take.
    if (fusion != Fusion::prepared) {
      constexpr double kManyProducts = 1 << 28;  // that are worth more kernels
      for (const Fusion more : {Fusion::rows, Fusion::alike}) {
        if (on_lanes >= kManyProducts && has_place(variants, variant, more, limits) &&
            points_on_lanes(variants, variant, more, limits) < on_lanes / 2)
          return more;
      }
    }
    return alone && has_place(variants, variant, Fusion::prepared, limits) ? Fusion::prepared : fusion;
  }
  return Fusion::maximal;
}

}  // namespace nestor
