// The isl schedule tree of an order: a domain, its context, one band a loop under a mark with the loop's name, and
// sequences of filters.
#include <isl/aff.h>
#include <isl/id.h>
#include <isl/map.h>
#include <isl/schedule.h>
#include <isl/schedule_node.h>
#include <isl/set.h>
#include <isl/union_set.h>

#include <algorithm>

#include "poly/schedule/order/isl_maps.h"
#include "poly/schedule/order/loop_tree.h"
#include "poly/schedule/schedule.h"
#include "support/error.h"

namespace nestor {
namespace {

class IslTreeBuilder {
 public:
  explicit IslTreeBuilder(const Schedule& schedule) : schedule_(schedule), index_(schedule.tree()) {
    for (const Statement& statement : schedule.nest().statements) {
      const LoopSpace space(statement, schedule.form(statement.name), index_.loop_names(statement.name));
      isl_pw_multi_aff* values = isl_pw_multi_aff_from_map(loop_relation_of(statement, space).release());
      loops_.emplace(statement.name, isl::manage(isl_pw_multi_aff_gist(values, statement.domain.copy())));
    }
  }

  isl::schedule build(const TreeNode& node) const {
    switch (node.kind) {
      case TreeNode::Kind::leaf:
        return leaf(node);
      case TreeNode::Kind::loop:
        return loop(node);
      case TreeNode::Kind::sequence:
        break;
    }
    isl::schedule result = build(*node.children.front());
    for (std::size_t k = 1; k < node.children.size(); ++k) {
      result = isl::manage(isl_schedule_sequence(result.release(), build(*node.children[k]).release()));
    }
    return result;
  }

 private:
  isl::schedule leaf(const TreeNode& node) const {
    const Statement& statement = schedule_.nest().statement(node.name);
    return isl::manage(isl_schedule_from_domain(isl_union_set_from_set(statement.domain.copy())));
  }

  isl::schedule loop(const TreeNode& node) const {
    isl_schedule* inner = build(*node.children.front()).release();
    const isl::schedule whole = isl::manage(isl_schedule_insert_partial_schedule(inner, values(node).release()));
    isl_schedule_node* band = isl_schedule_node_child(isl_schedule_get_root(whole.get()), 0);
    if (is_concurrent(node.loop_kind)) band = isl_schedule_node_band_member_set_coincident(band, 0, 1);
    const std::string label =
        node.loop_kind == LoopKind::serial ? node.name : node.name + " " + std::string(to_string(node.loop_kind));
    band = isl_schedule_node_insert_mark(band, isl_id_alloc(isl_context().get(), label.c_str(), nullptr));
    isl_schedule* result = isl_schedule_node_get_schedule(band);
    isl_schedule_node_free(band);
    return isl::manage(result);
  }

  /// { S[dims] -> [value of the loop] } for every statement below it.
  isl::multi_union_pw_aff values(const TreeNode& node) const {
    isl_union_pw_aff* all = nullptr;
    for (const std::string& name : statements_under(node)) {
      const std::vector<std::string> loops = index_.loop_names(name);
      const auto at = std::find(loops.begin(), loops.end(), node.name) - loops.begin();
      isl_pw_aff* value = isl_pw_multi_aff_get_pw_aff(loops_.at(name).get(), static_cast<int>(at));
      isl_union_pw_aff* own = isl_union_pw_aff_from_pw_aff(value);
      all = all == nullptr ? own : isl_union_pw_aff_union_add(all, own);
    }
    return isl::manage(isl_multi_union_pw_aff_from_union_pw_aff(all));
  }

  const Schedule& schedule_;
  TreeIndex index_;
  std::map<std::string, isl::pw_multi_aff> loops_;
};

}  // namespace

isl::schedule Schedule::isl_tree() const {
  return isl_guarded("the schedule tree of " + nest().op, [&] {
    isl::schedule result = IslTreeBuilder(*this).build(*tree());
    return isl::manage(isl_schedule_insert_context(result.release(), nest().context.copy()));
  });
}

}  // namespace nestor
