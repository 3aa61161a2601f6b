// Statements before products: found by what they depend on.
#include "autotune/space/structure/preparation.h"

#include "autotune/space/structure/axes.h"
#include "autotune/space/structure/group_search.h"
#include "autotune/space/structure/group_steps.h"
#include "autotune/space/structure/product_chains.h"
#include "autotune/space/structure/try_steps.h"
#include "codegen/tile/contraction.h"

#include <algorithm>
#include <set>
#include <string>

namespace nestor {
namespace {

/// Loop groups that tensors of the preparation connect, each set in textual order.
std::vector<std::vector<int>> connected(const Nest& nest, const NestStructure& structure, const std::vector<int>& loop_groups) {
  std::vector<std::vector<int>> sets;
  std::vector<std::set<std::string>> written;  // by set
  for (const int u : loop_groups) {
    std::vector<int> joined{u};
    std::set<std::string> tensors, writes;
    for (const std::string& name : structure.loop_groups[static_cast<std::size_t>(u)].statements) {
      writes.insert(nest.statement(name).write.tensor);
      for (const Access& read : nest.statement(name).reads) tensors.insert(read.tensor);
    }
    tensors.insert(writes.begin(), writes.end());
    for (std::size_t s = sets.size(); s-- > 0;) {
      const bool meets =
          std::any_of(tensors.begin(), tensors.end(), [&](const auto& tensor) { return written[s].contains(tensor); });
      if (!meets) continue;
      joined.insert(joined.end(), sets[s].begin(), sets[s].end());
      writes.insert(written[s].begin(), written[s].end());
      sets.erase(sets.begin() + static_cast<std::ptrdiff_t>(s));
      written.erase(written.begin() + static_cast<std::ptrdiff_t>(s));
    }
    std::sort(joined.begin(), joined.end());
    sets.push_back(std::move(joined));
    written.push_back(std::move(writes));
  }
  return sets;
}

/// Axes of a sum of products of matrices that both operands and the result follow: one product for each of their points.
std::set<int> axes_of_products(const LoopGroup& loop_group, const Statement& sum) {
  const auto product = unscaled_contraction_of(sum);
  std::set<int> common;
  const std::vector<int> a = followed_axes(loop_group, sum.reads[static_cast<std::size_t>(product->a)]),
                         b = followed_axes(loop_group, sum.reads[static_cast<std::size_t>(product->b)]);
  for (const int axis : followed_axes(loop_group, sum.write)) {
    if (axis >= 0 && std::find(a.begin(), a.end(), axis) != a.end() && std::find(b.begin(), b.end(), axis) != b.end())
      common.insert(axis);
  }
  return common;
}

/// Loop groups, cut where elements of different products before lie next to each other in what a loop group writes: tiles of one product
/// would leave single elements of a row. Values of rows are few.
std::vector<std::vector<int>> without_interleaved_results(const Nest& nest, const NestStructure& structure,
                                                          const std::vector<int>& loop_groups) {
  std::vector<std::vector<int>> runs(1);
  std::set<int> products;
  for (const int u : loop_groups) {
    const LoopGroup& loop_group = structure.loop_groups[static_cast<std::size_t>(u)];
    const bool cut = std::any_of(loop_group.statements.begin(), loop_group.statements.end(), [&](const std::string& name) {
      const std::vector<int> written = followed_axes(loop_group, nest.statement(name).write);
      const auto own = std::count_if(written.begin(), written.end(), [&](int axis) { return !products.contains(axis); });
      return own > 1 && products.contains(written.back());
    });
    if (cut) {
      runs.emplace_back();
      products.clear();
    }
    runs.back().push_back(u);
    for (const std::string& name : loop_group.statements) {
      if (multiplies_matrices(nest.statement(name))) products.merge(axes_of_products(loop_group, nest.statement(name)));
    }
  }
  return runs;
}

class Preparation {
 public:
  Preparation(const Nest& nest, const NestStructure& structure) : nest_(nest), structure_(structure) {}

  std::vector<int> find() {
    find_operands();
    find_users_of_products();
    std::set<int> needed;
    for (int u = static_cast<int>(structure_.loop_groups.size()); u-- > 0;) {
      if (!uses_product(u) && !reduces_tiles(u) && (sums(u) || writes_any(u, wanted_) || is_table(u))) take(u, needed);
    }
    // What is computed from statistics alone, unless it is larger than what they were computed from.
    for (int u = 0; u < static_cast<int>(structure_.loop_groups.size()); ++u) {
      const bool taken = uses_product(u) || needed.contains(u) || is_of_tiles(u) || reduces_tiles(u);
      if (!taken && reads_any(u, made_) && group(u).points <= largest_) take(u, needed);
    }
    return products_ ? std::vector<int>(needed.begin(), needed.end()) : std::vector<int>{};
  }

 private:
  const LoopGroup& group(int u) const { return structure_.loop_groups[static_cast<std::size_t>(u)]; }

  template <class F>
  void for_each_statement(int loop_group, const F& visit) const {
    for (const std::string& name : group(loop_group).statements) visit(nest_.statement(name));
  }

  void take(int loop_group, std::set<int>& needed) {
    needed.insert(loop_group);
    largest_ = std::max(largest_, group(loop_group).points);
    for_each_statement(loop_group, [&](const Statement& statement) {
      made_.insert(statement.write.tensor);
      wanted_.insert(statement.write.tensor);
      for (const Access& read : statement.reads) wanted_.insert(read.tensor);
    });
  }

  void find_operands() {
    for (const Statement& statement : nest_.statements) {
      if (!multiplies_matrices(statement)) continue;
      products_ = true;
      of_products_.insert(statement.write.tensor);
      for (const Contraction& product : unscaled_contractions_of(statement)) {
        for (const int ordinal : {product.a, product.b})
          wanted_.insert(statement.reads[static_cast<std::size_t>(ordinal)].tensor);
      }
    }
  }

  /// Tensors that come from a product, to a fixed point.
  void find_users_of_products() {
    for (bool changed = true; changed;) {
      changed = false;
      for (const Statement& statement : nest_.statements) {
        const bool uses = std::any_of(statement.reads.begin(), statement.reads.end(),
                                      [&](const Access& read) { return of_products_.contains(read.tensor); });
        if (uses) changed = of_products_.insert(statement.write.tensor).second || changed;
      }
    }
  }

  bool uses_product(int loop_group) const { return writes_any(loop_group, of_products_); }

  std::set<std::string> written_by(int loop_group) const {
    std::set<std::string> tensors;
    for_each_statement(loop_group, [&](const Statement& statement) { tensors.insert(statement.write.tensor); });
    return tensors;
  }

  bool writes_any(int loop_group, const std::set<std::string>& tensors) const {
    bool found = false;
    for_each_statement(loop_group,
                       [&](const Statement& statement) { found = found || tensors.contains(statement.write.tensor); });
    return found;
  }

  bool reads_any(int loop_group, const std::set<std::string>& tensors) const {
    bool found = false;
    for_each_statement(loop_group, [&](const Statement& statement) {
      for (const Access& read : statement.reads) found = found || tensors.contains(read.tensor);
    });
    return found;
  }

  /// Read by who uses a product, along more loops than it was made along: in their blocks they would share no loops, or too few.
  bool is_table(int loop_group) const {
    const std::set<std::string> made = written_by(loop_group);
    for (int v = 0; v < static_cast<int>(structure_.loop_groups.size()); ++v) {
      if (!uses_product(v) || !reads_any(v, made)) continue;
      const LoopGroup& reader = group(v);
      for (std::size_t k = 0; k < reader.axes.size(); ++k) {
        if (!reader.reduced[k] && group(loop_group).position_of(reader.axes[k]) < 0) return true;
      }
    }
    return false;
  }

  /// Does it compute something for each element of a product's tiles, as gates that scores are multiplied with? In memory these would take
  /// as much as the scores.
  bool is_of_tiles(int loop_group) const {
    if (sums(loop_group)) return false;
    const std::set<std::string> made = written_by(loop_group);
    for (int v = 0; v < static_cast<int>(structure_.loop_groups.size()); ++v) {
      if (uses_product(v) && !sums(v) && reads_any(v, made) && group(v).axes == group(loop_group).axes) return true;
    }
    return false;
  }

  bool starts_reduction_of_tiles(int loop_group) const {
    const std::set<std::string> made = written_by(loop_group);
    for (int v = loop_group + 1; v < static_cast<int>(structure_.loop_groups.size()); ++v) {
      if (sums(v) && writes_any(v, made)) return reduces_tiles(v);
    }
    return false;
  }

  /// Does it reduce such values, or start the reduction?
  bool reduces_tiles(int loop_group) const {
    if (!sums(loop_group)) return starts_reduction_of_tiles(loop_group);
    for (int v = 0; v < loop_group; ++v) {
      if (!uses_product(v) && reads_any(loop_group, written_by(v)) && is_of_tiles(v)) return true;
    }
    return false;
  }

  bool sums(int loop_group) const {
    bool found = false;
    for_each_statement(loop_group, [&](const Statement& statement) { found = found || statement.reduction.has_value(); });
    return found;
  }

  const Nest& nest_;
  const NestStructure& structure_;
  bool products_ = false;
  std::set<std::string> of_products_;  ///< tensors that a product, or one who uses it, writes
  std::set<std::string> wanted_;       ///< tensors that products read, or that the preparation needs or writes
  std::set<std::string> made_;         ///< tensors that the preparation writes
  double largest_ = 0;                 ///< most points of a loop group of the preparation
};

/// A connected set of loop groups before products, fused with care; where these are rows of one more dim with statistics of their own, and many,
/// a block takes all that a row needs.
std::vector<FusionGroup> groups_before(const Schedule& base, const NestStructure& structure, const std::vector<int>& set,
                                       bool apart) {
  constexpr double kManyRows = 1024;
  std::vector<FusionGroup> careful = find_fusion_groups_of(base, structure, set, apart ? Fusion::related : Fusion::careful);
  if (apart || careful.size() < 2) return careful;
  std::vector<FusionGroup> rows = find_fusion_groups_of(base, structure, set, Fusion::maximal);
  const auto are_rows = [&](const FusionGroup& group) {
    double count = 1;
    for (const int axis : group.axes) count *= static_cast<double>(structure.axes[static_cast<std::size_t>(axis)].extent);
    return count >= kManyRows && std::all_of(group.loop_groups.begin(), group.loop_groups.end(), [&](int u) {
             const LoopGroup& member = structure.loop_groups[static_cast<std::size_t>(u)];
             return member.axes.size() <= group.axes.size() + 1;
           });
  };
  return rows.size() < careful.size() && std::all_of(rows.begin(), rows.end(), are_rows) ? rows : careful;
}

/// Are products of chunks of terms added up among the loop groups? Both belong in one kernel.
bool adds_up_chunks(const Nest& nest, const NestStructure& structure, const std::vector<int>& loop_groups) {
  return std::any_of(loop_groups.begin(), loop_groups.end(), [&](int u) {
    const std::vector<std::string>& names = structure.loop_groups[static_cast<std::size_t>(u)].statements;
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) { return adds_up_products(nest, nest.statement(name)); });
  });
}

}  // namespace

std::vector<int> preparing_loop_groups(const Nest& nest, const NestStructure& structure) {
  return Preparation(nest, structure).find();
}

std::optional<std::vector<FusionGroup>> find_prepared_groups(const Schedule& base, const NestStructure& structure,
                                                             Fusion fusion) {
  const bool apart = fusion == Fusion::apart;
  const std::vector<int> before = preparing_loop_groups(base.nest(), structure);
  std::vector<int> others;
  for (int u = 0; u < static_cast<int>(structure.loop_groups.size()); ++u) {
    if (std::find(before.begin(), before.end(), u) == before.end()) others.push_back(u);
  }
  const auto have_chains = [](const std::vector<ProductStage>& stages) {
    return std::any_of(stages.begin(), stages.end(), [](const ProductStage& stage) { return stage.chain; });
  };
  std::vector<ProductStage> stages;
  for (const std::vector<int>& run : without_interleaved_results(base.nest(), structure, others)) {
    for (ProductStage& stage : product_stages(base.nest(), structure, run)) stages.push_back(std::move(stage));
  }
  // A chain that such a cut would part, as attention behind products for each of its rows, keeps its rows in registers.
  if (!have_chains(stages)) {
    if (std::vector<ProductStage> whole = product_stages(base.nest(), structure, others); have_chains(whole))
      stages = std::move(whole);
  }
  const bool chains = have_chains(stages);
  if (before.empty() && (!chains || stages.size() < 2)) return std::nullopt;
  std::vector<FusionGroup> fusion_groups;
  for (const std::vector<int>& set : connected(base.nest(), structure, before)) {
    for (FusionGroup& group : groups_before(base, structure, set, apart)) {
      group.prepares = true;
      fusion_groups.push_back(std::move(group));
    }
  }
  for (const ProductStage& stage : stages) {
    const bool whole = stage.chain || !chains;
    const Fusion beside = adds_up_chunks(base.nest(), structure, stage.loop_groups) ? Fusion::rows : Fusion::careful;
    for (FusionGroup& group :
         find_fusion_groups_of(base, structure, stage.loop_groups, apart || !whole ? beside : Fusion::maximal))
      fusion_groups.push_back(std::move(group));
  }
  std::optional<Schedule> schedule = base;
  for (const FusionGroup& group : fusion_groups) {
    if (schedule) schedule = try_steps(*schedule, group_steps(structure, group, probe_plan(group)).steps);
  }
  return schedule ? std::optional(std::move(fusion_groups)) : std::nullopt;
}

}  // namespace nestor
