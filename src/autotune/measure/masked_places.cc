// Masked places, found with isl at fixed sizes.
#include "autotune/measure/masked_places.h"

#include "poly/algebra/rule.h"
#include "poly/isl_tools.h"

#include <isl/map.h>
#include <isl/point.h>
#include <isl/set.h>
#include <isl/val.h>

#include <algorithm>
#include <iterator>
#include <set>

namespace nestor {
namespace {

/// What the rules among the steps need.
std::set<std::string> finite_for_rules(const Schedule& schedule) {
  std::set<std::string> tensors;
  const std::vector<Step>& steps = schedule.steps();
  const auto asks = [](const Step& step) {
    return step.name == "apply_rule" && rule(step.args.front().get<std::string>()).finite != nullptr;
  };
  auto rest = steps.end();
  while (rest != steps.begin() && !asks(*std::prev(rest))) --rest;
  Schedule before(schedule.original_nest());
  for (auto step = steps.begin(); step != rest; ++step) {
    if (asks(*step)) {
      for (std::string& tensor : rule(step->args.front().get<std::string>()).finite(before.nest()))
        tensors.insert(std::move(tensor));
    }
    before = before.apply(*step);
  }
  return tensors;
}

const Tensor* find_tensor(const Nest& nest, const std::string& name) {
  const auto found = std::find_if(nest.tensors.begin(), nest.tensors.end(), [&](const Tensor& t) { return t.name == name; });
  return found == nest.tensors.end() ? nullptr : &*found;
}

/// Elements of the tensors of one nest that must be finite, at fixed sizes.
class MaskedElements {
 public:
  MaskedElements(const Nest& nest, const Sizes& sizes) : nest_(nest), sizes_(sizes) {}

  /// { Tensor[index] } that are masked to some reader.
  isl::set masked(const Tensor& tensor) const {
    const isl::set all = everything(tensor);
    isl::set found = all.subtract(all);
    for (const Statement& reader : nest_.statements) {
      for (const Access& read : reader.reads) {
        if (read.tensor == tensor.name) found = found.unite(masked_by(reader, read));
      }
    }
    return found.coalesce();
  }
  isl::set everything(const Tensor& tensor) const { return at_sizes(tensor_box(tensor), sizes_); }

  bool add(const std::string& tensor, const isl::set& elements) {
    const auto [known, fresh] = elements_.try_emplace(tensor, elements);
    if (fresh) return !elements.is_empty();
    if (elements.is_subset(known->second)) return false;
    known->second = known->second.unite(elements).coalesce();
    return true;
  }

  /// What temporaries are computed from, as well. Writers come before readers, so that one sweep from the end is enough for nests without
  /// cycles between tensors; those that go on growing need all that they read.
  void add_sources() {
    constexpr int kSweeps = 8;
    bool grows = true;
    for (int sweep = 0; grows; ++sweep) {
      grows = false;
      for (std::size_t k = nest_.statements.size(); k-- > 0;)
        grows = add_sources_of(nest_.statements[k], sweep >= kSweeps) || grows;
    }
  }

  ElementLists inputs() const {
    ElementLists lists;
    for (const auto& [name, elements] : elements_) {
      const Tensor& tensor = nest_.tensor(name);
      if (tensor.role == TensorRole::input && !elements.is_empty()) lists[name] = numbers(elements, shape_at(tensor, sizes_));
    }
    return lists;
  }

 private:
  /// The points of which an access meets an element inside `tensor`.
  isl::map inside(const Access& access) const {
    return at_sizes(access.relation, sizes_).intersect_range(everything(nest_.tensor(access.tensor)));
  }

  /// Does the element that `relation` meets limit dim `k`?
  static bool tells(const isl::map& relation, unsigned k) {
    return isl_map_involves_dims(relation.get(), isl_dim_in, k, 1) == isl_bool_true &&
           isl_set_dim_is_bounded(relation.domain().get(), isl_dim_set, k) == isl_bool_true;
  }

  /// Elements that `read` meets in the box around the reader's domain, and not in the domain. As tiles are rounded up, the box goes on to
  /// the ends of what is read and written.
  isl::set masked_by(const Statement& reader, const Access& read) const {
    const isl::set domain = at_sizes(reader.domain, sizes_);
    const isl::map relation = inside(read), written = inside(reader.write);
    if (domain.is_empty() || relation.is_empty()) return relation.range().subtract(relation.range());
    isl_set* box = relation.domain().release();
    for (unsigned k = 0; k < reader.dims.size(); ++k) {
      const isl::set limits = tells(relation, k) ? relation.domain() : tells(written, k) ? written.domain() : domain;
      const auto [low, high] = dim_range(limits, static_cast<int>(k));
      box = isl_set_lower_bound_si(box, isl_dim_set, k, static_cast<int>(low));
      box = isl_set_upper_bound_si(box, isl_dim_set, k, static_cast<int>(high));
    }
    return isl::manage(box).subtract(domain).apply(relation);
  }

  bool add_sources_of(const Statement& writer, bool all) {
    const auto wanted = elements_.find(writer.write.tensor);
    if (wanted == elements_.end() || nest_.tensor(writer.write.tensor).role == TensorRole::input) return false;
    const isl::set domain = at_sizes(writer.domain, sizes_);
    const isl::set points =
        all ? domain : at_sizes(writer.write.relation, sizes_).intersect_domain(domain).intersect_range(wanted->second).domain();
    bool grows = false;
    for (const Access& read : writer.reads) grows = add(read.tensor, points.apply(at_sizes(read.relation, sizes_))) || grows;
    return grows;
  }

  static std::vector<std::int64_t> numbers(const isl::set& elements, const std::vector<std::int64_t>& shape) {
    struct Walk {
      const std::vector<std::int64_t>& shape;
      std::vector<std::int64_t> numbers{};
    } walk{shape};
    const auto visit = [](isl_point* point, void* user) {
      Walk& walk = *static_cast<Walk*>(user);
      std::int64_t number = 0;
      for (std::size_t k = 0; k < walk.shape.size(); ++k) {
        const isl::val at = isl::manage(isl_point_get_coordinate_val(point, isl_dim_set, static_cast<int>(k)));
        number = number * walk.shape[k] + isl_val_get_num_si(at.get());
      }
      isl_point_free(point);
      walk.numbers.push_back(number);
      return isl_stat_ok;
    };
    isl_set_foreach_point(elements.get(), visit, &walk);
    std::sort(walk.numbers.begin(), walk.numbers.end());
    walk.numbers.erase(std::unique(walk.numbers.begin(), walk.numbers.end()), walk.numbers.end());
    return std::move(walk.numbers);
  }

  const Nest& nest_;
  const Sizes& sizes_;
  std::map<std::string, isl::set> elements_;
};

}  // namespace

std::vector<std::string> finite_tensors(const Schedule& schedule, const ProgramProof& proof, const TensorFacts& facts) {
  std::set<std::string> tensors = finite_for_rules(schedule);
  tensors.insert(proof.finite.begin(), proof.finite.end());
  tensors.insert(facts.finite.begin(), facts.finite.end());
  return {tensors.begin(), tensors.end()};
}

ElementLists masked_places(const Schedule& schedule, const std::vector<std::string>& tensors, const Sizes& sizes) {
  const bool rewritten = !finite_for_rules(schedule).empty();
  MaskedElements defined(schedule.original_nest(), sizes), final(schedule.nest(), sizes);
  for (const std::string& name : tensors) {
    const Tensor* as_defined = find_tensor(schedule.original_nest(), name);
    const Tensor* as_final = find_tensor(schedule.nest(), name);
    // Where rules have left points out, those that are left say which: the definition still reads what only the others read.
    if (as_final && (rewritten || !as_defined)) {
      const isl::set masked = final.masked(*as_final);
      final.add(name, masked);
      if (as_defined) defined.add(name, masked);
    } else if (as_defined) {
      defined.add(name, rewritten ? defined.everything(*as_defined) : defined.masked(*as_defined));
    }
  }
  ElementLists lists;
  for (MaskedElements* elements : {&defined, &final}) {
    elements->add_sources();
    for (auto& [name, numbers] : elements->inputs()) {
      std::vector<std::int64_t>& all = lists[name];
      std::vector<std::int64_t> both;
      std::set_union(all.begin(), all.end(), numbers.begin(), numbers.end(), std::back_inserter(both));
      all = std::move(both);
    }
  }
  return lists;
}

}  // namespace nestor
