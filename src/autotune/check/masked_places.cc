// Masked places, found with isl at fixed sizes.
#include "autotune/check/masked_places.h"

#include "poly/algebra/all_rules.h"
#include "poly/algebra/operands/whole_dims.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"

#include <isl/map.h>
#include <isl/point.h>
#include <isl/set.h>
#include <isl/val.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <set>

namespace nestor {
namespace {

/// Rules among the steps that need finite values.
struct AskingRules {
  std::set<std::string> tensors;     ///< that they need
  std::set<std::string> everywhere;  ///< of which they need all elements
  std::vector<Nest> nests;           ///< that they are applied to
};

AskingRules asking_rules(const Schedule& schedule) {
  AskingRules found;
  const std::vector<Step>& steps = schedule.steps();
  const auto asks = [](const Step& step) {
    return step.name == "apply_rule" && rule(step.args.front().get<std::string>()).finite != nullptr;
  };
  auto rest = steps.end();
  while (rest != steps.begin() && !asks(*std::prev(rest))) --rest;
  Schedule before(schedule.original_nest());
  for (auto step = steps.begin(); step != rest; ++step) {
    if (asks(*step)) {
      const Rule& asking = rule(step->args.front().get<std::string>());
      for (std::string& tensor : asking.finite(before.nest()))
        (asking.finite_everywhere ? found.everywhere : found.tensors).insert(std::move(tensor));
      if (!asking.finite_everywhere) found.nests.push_back(before.nest());
    }
    before = before.apply(*step);
  }
  return found;
}

const Tensor* find_tensor(const Nest& nest, const std::string& name) {
  const auto found = std::find_if(nest.tensors.begin(), nest.tensors.end(), [&](const Tensor& t) { return t.name == name; });
  return found == nest.tensors.end() ? nullptr : &*found;
}

bool is_computed(const ScalarExpr& factor, const Statement& statement, const Nest& nest) {
  ScalarExpr core = factor;
  while (core.op() == ScalarOp::cast) core = ScalarExpr(core.args()[0]);
  return core.op() != ScalarOp::read || nest.tensor(statement.reads.at(core.ordinal()).tensor).role == TensorRole::temporary;
}

/// Has the dim a first and a last value in the set, whatever the others are?
bool limits_dim(const isl::set& set, unsigned dim) {
  isl_set* alone = set.copy();
  alone = isl_set_project_out(alone, isl_dim_set, dim + 1, static_cast<unsigned>(isl_set_dim(alone, isl_dim_set)) - dim - 1);
  alone = isl_set_project_out(alone, isl_dim_set, 0, dim);
  return isl_set_is_bounded(isl::manage(alone).get()) == isl_bool_true;
}

/// Does the factor read beyond the ends of its tensor somewhere in the box around the statement's domain, and around the results that it adds to,
/// where a kernel has zeros (rows around an image)?
bool ends_within(const ScalarExpr& factor, const Statement& statement, const Nest& nest) {
  const isl::set domain = domain_in(nest, statement);
  const isl::set results = statement.write.relation.intersect_range(tensor_box(nest.tensor(statement.write.tensor)))
                               .domain()
                               .intersect_params(nest.context);
  std::vector<int> dims(statement.dims.size());
  std::iota(dims.begin(), dims.end(), 0);
  isl::set box = isl::manage(isl_set_universe(isl_set_get_space(domain.get())));
  for (const int dim : dims) {
    std::vector<int> others = dims;
    std::erase(others, dim);
    box = box.intersect(without_dims(limits_dim(results, static_cast<unsigned>(dim)) ? results : domain, others));
  }
  bool ends = false;
  factor.visit([&](const ScalarExpr& part) {
    if (part.op() != ScalarOp::read) return;
    const Access& read = statement.reads.at(part.ordinal());
    const isl::set met = box.apply(read.relation).intersect_params(nest.context);
    ends = ends || !met.is_subset(tensor_box(nest.tensor(read.tensor)));
  });
  return ends;
}

/// Tensors that sums multiply with what a kernel may have zeros of: what it computes, and what ends within its tiles.
std::set<std::string> factors_beside_zeros(const Nest& nest) {
  std::set<std::string> tensors;
  for (const Statement& statement : nest.statements) {
    if (statement.reduction != ReductionOp::add) continue;
    const auto add_reads = [&](const ScalarExpr& part) {
      if (part.op() == ScalarOp::read) tensors.insert(statement.reads.at(part.ordinal()).tensor);
    };
    statement.value.visit([&](const ScalarExpr& product) {
      if (product.op() != ScalarOp::mul) return;
      for (std::size_t k = 0; k < 2; ++k) {
        const ScalarExpr& other = product.args()[1 - k];
        if (is_computed(other, statement, nest) || ends_within(other, statement, nest)) product.args()[k].visit(add_reads);
      }
    });
  }
  return tensors;
}

Schedule with_matches(Schedule schedule, const Rule& rule) {
  Nest nest = schedule.nest();
  for (const RuleMatch& match : apply_everywhere(rule, nest)) {
    Step step{"apply_rule", {match.rule}};
    step.args.insert(step.args.end(), match.target.begin(), match.target.end());
    schedule = schedule.apply(step);
  }
  return schedule;
}

/// With every rule that asks for finite values.
Schedule with_asking_rules(Schedule schedule) {
  for (const Rule& each : rules()) {
    if (each.finite != nullptr) schedule = with_matches(std::move(schedule), each);
  }
  return schedule;
}

/// The definition, and what it is without tensors that are computed where they are read (an image with zeros around it), with one sum for all taps of
/// a filter and places for distances, and without factors in sums: some rules find there what they ask for, and kernels have zeros there that the definition has not.
std::vector<Nest> simpler_forms(const Nest& definition) {
  std::vector<Nest> forms{definition};
  for (const std::vector<const char*>& names :
       {std::vector{"simplify"}, {"reroll_sums", "reroll_terms", "unskew_dims"}, {"log_quotient", "defer_factor"}}) {
    Nest form = forms.back();
    bool other = false;
    for (const char* name : names) other = !apply_everywhere(rule(name), form).empty() || other;
    if (other) forms.push_back(std::move(form));
  }
  return forms;
}

void unite(ElementLists& lists, const ElementLists& more) {
  for (const auto& [name, numbers] : more) {
    std::vector<std::int64_t>& all = lists[name];
    std::vector<std::int64_t> both;
    std::set_union(all.begin(), all.end(), numbers.begin(), numbers.end(), std::back_inserter(both));
    all = std::move(both);
  }
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
      if (tensor.role == TensorRole::input && !elements.is_empty()) lists[name] = numbers(elements, tensor);
    }
    return lists;
  }

 private:
  /// The points of which an access meets an element inside `tensor`.
  isl::map inside(const Access& access) const {
    return at_sizes(access.relation, sizes_).intersect_range(everything(nest_.tensor(access.tensor)));
  }

  /// Does the element that `relation` meets limit dim `k`, whatever the others are? Of a sum of dims, it does not.
  static bool tells(const isl::map& relation, unsigned k) {
    return isl_map_involves_dims(relation.get(), isl_dim_in, k, 1) == isl_bool_true && limits_dim(relation.domain(), k);
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

  /// Points one by one along the dims that decide, all of the others' at once: batches and heads are many, and alike.
  std::vector<std::int64_t> numbers(const isl::set& elements, const Tensor& tensor) const {
    const std::vector<std::int64_t> shape = shape_at(tensor, sizes_);
    const isl::set all = everything(tensor);
    isl::set deciding = elements;
    std::vector<bool> alike;
    for (unsigned k = 0; k < shape.size(); ++k) {
      isl_set* any = isl_set_eliminate(deciding.copy(), isl_dim_set, k, 1);
      alike.push_back(isl::manage(isl_set_copy(any)).intersect(all).is_subset(elements));
      isl_set_free(any);
      if (alike.back()) deciding = isl::manage(isl_set_fix_si(deciding.release(), isl_dim_set, k, 0));
    }
    std::vector<std::int64_t> found = points_of(deciding, shape);
    for (std::size_t k = 0, count = shape.size(); k < count; ++k) {
      if (!alike[k]) continue;
      std::int64_t stride = 1;
      for (std::size_t d = k + 1; d < count; ++d) stride *= shape[d];
      const std::size_t known = found.size();
      for (std::int64_t at = 1; at < shape[k]; ++at) {
        for (std::size_t n = 0; n < known; ++n) found.push_back(found[n] + at * stride);
      }
    }
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    return found;
  }

  static std::vector<std::int64_t> points_of(const isl::set& elements, const std::vector<std::int64_t>& shape) {
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
    return std::move(walk.numbers);
  }

  const Nest& nest_;
  const Sizes& sizes_;
  std::map<std::string, isl::set> elements_;
};

}  // namespace

std::vector<std::string> finite_tensors(const Schedule& schedule, const ProgramProof& proof,
                                        const std::vector<std::string>& products) {
  AskingRules asking = asking_rules(schedule);
  std::set<std::string> tensors = std::move(asking.tensors);
  tensors.merge(asking.everywhere);
  tensors.insert(proof.finite.begin(), proof.finite.end());
  tensors.insert(products.begin(), products.end());
  return {tensors.begin(), tensors.end()};
}

ElementLists masked_places(const Schedule& schedule, const std::vector<std::string>& tensors, const Sizes& sizes) {
  const AskingRules asking = asking_rules(schedule);
  const bool rewritten = !asking.tensors.empty();
  MaskedElements defined(schedule.original_nest(), sizes), final(schedule.nest(), sizes);
  for (const std::string& name : tensors) {
    const Tensor* as_defined = find_tensor(schedule.original_nest(), name);
    const Tensor* as_final = find_tensor(schedule.nest(), name);
    // Where rules have left points out, those that are left say which: the definition still reads what only the others read. Where they have
    // added some, those before say which.
    if (as_final && (rewritten || !as_defined)) {
      isl::set masked = final.masked(*as_final);
      for (const Nest& before : asking.nests) {
        if (const Tensor* known = find_tensor(before, name)) masked = masked.unite(MaskedElements(before, sizes).masked(*known));
      }
      final.add(name, masked);
      if (as_defined) defined.add(name, masked);
    } else if (as_defined) {
      defined.add(name, rewritten ? defined.everything(*as_defined) : defined.masked(*as_defined));
    }
  }
  for (const std::string& name : asking.everywhere) {
    const Tensor *as_defined = find_tensor(schedule.original_nest(), name), *as_final = find_tensor(schedule.nest(), name);
    if (as_defined) {
      defined.add(name, defined.everything(*as_defined));
    } else if (as_final) {
      final.add(name, final.everything(*as_final));
    }
  }
  ElementLists lists;
  for (MaskedElements* elements : {&defined, &final}) {
    elements->add_sources();
    unite(lists, elements->inputs());
  }
  return lists;
}

MaskedFactors::MaskedFactors(const Nest& definition) {
  for (const Nest& form : simpler_forms(definition)) {
    Schedule asking = with_asking_rules(Schedule(form));
    std::set<std::string> tensors = factors_beside_zeros(form);
    tensors.merge(asking_rules(asking).tensors);
    forms_.push_back({std::move(asking), {tensors.begin(), tensors.end()}});
  }
}

ElementLists MaskedFactors::at(const Sizes& sizes) const {
  ElementLists lists;
  for (const Form& form : forms_) unite(lists, masked_places(form.schedule, form.tensors, sizes));
  return lists;
}

}  // namespace nestor
