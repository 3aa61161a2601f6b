// Backward slices of definitions, by isl at fixed sizes.
#include "autotune/oracle/needed_part.h"

#include "autotune/oracle/limited_bounds.h"
#include "autotune/oracle/reference.h"
#include "autotune/tensors/random_fill.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"

#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>

namespace nestor {
namespace {

constexpr int kExactSweeps = 2;  ///< after which what still grows takes all along the dims that grow

/// Elements that are needed, by tensor.
class NeededElements {
 public:
  NeededElements(const Nest& nest, const Sizes& sizes, std::map<std::string, isl::set> elements)
      : nest_(nest), sizes_(sizes), elements_(std::move(elements)) {}

  const isl::set* find(const std::string& tensor) const {
    const auto found = elements_.find(tensor);
    return found == elements_.end() ? nullptr : &found->second;
  }

  /// Are there new ones among them?
  bool add(const std::string& tensor, const isl::set& more, bool widen) {
    if (more.is_empty()) return false;
    const auto [place, fresh] = elements_.try_emplace(tensor, more);
    if (fresh) return true;
    if (more.is_subset(place->second)) return false;
    isl::set all = place->second.unite(more).coalesce();
    if (widen) all = widened(place->second, all, tensor_box(nest_.tensor(tensor)));
    place->second = all;
    return true;
  }

 private:
  isl::set widened(const isl::set& before, const isl::set& all, const isl::set& box) const {
    isl_set* wide = all.copy();
    for (int k = 0; k < static_cast<int>(isl_set_dim(all.get(), isl_dim_set)); ++k) {
      if (dim_range(before, k) != dim_range(all, k)) wide = isl_set_eliminate(wide, isl_dim_set, static_cast<unsigned>(k), 1);
    }
    return isl::manage(wide).intersect(at_sizes(box, sizes_)).coalesce();
  }

  const Nest& nest_;
  const Sizes& sizes_;
  std::map<std::string, isl::set> elements_;
};

/// A box of elements of an output: first and last index, by dim.
using Box = std::vector<std::pair<std::int64_t, std::int64_t>>;

isl::set elements_of(const Tensor& tensor, const Box& box) {
  isl_set* set = isl_set_universe(isl_set_get_space(tensor_box(tensor).get()));
  for (unsigned k = 0; k < box.size(); ++k) {
    set = isl_set_lower_bound_si(set, isl_dim_set, k, static_cast<int>(box[k].first));
    set = isl_set_upper_bound_si(set, isl_dim_set, k, static_cast<int>(box[k].second));
  }
  return isl::manage(set);
}

/// Finds boxes of one output that do not take too long.
class Boxes {
 public:
  Boxes(const Nest& nest, const Sizes& sizes, const Tensor& tensor) : nest_(nest), sizes_(sizes), tensor_(tensor) {}

  Nest part(const Box& box) const { return needed_part(nest_, sizes_, {{tensor_.name, elements_of(tensor_, box)}}); }

  /// Around an element: all along dims that cost next to nothing, since steps that are needed anyway run along them, then wider along the
  /// others while that takes no more than `wanted`. Throws where the element alone takes more than `limit`.
  Box around(const std::vector<std::int64_t>& element, double wanted, double limit) const {
    const std::vector<std::int64_t> shape = shape_at(tensor_, sizes_);
    Box box;
    for (const std::int64_t at : element) box.emplace_back(at, at);
    const double alone = cost(box);
    if (alone > limit) Reference::refuse_cost(alone, limit);
    for (std::size_t k = 0; k < shape.size(); ++k) {
      constexpr double kNextToNothing = 2;
      Box wider = box;
      wider[k] = {0, shape[k] - 1};
      if (cost(wider) <= kNextToNothing * alone) box = wider;
    }
    for (std::size_t k = shape.size(); k-- > 0;) {
      for (std::int64_t extent = 2; box[k].second - box[k].first + 1 < shape[k] && extent <= kWidest; extent *= 2) {
        Box wider = box;
        wider[k].first = std::clamp<std::int64_t>(element[k] - extent / 2, 0, std::max<std::int64_t>(shape[k] - extent, 0));
        wider[k].second = std::min(wider[k].first + extent, shape[k]) - 1;
        if (cost(wider) > wanted) break;
        box = wider;
      }
    }
    return box;
  }

 private:
  static constexpr std::int64_t kWidest = 64;
  double cost(const Box& box) const { return DefinitionCost(part(box)).at(sizes_).value_or(0); }

  const Nest& nest_;
  const Sizes& sizes_;
  const Tensor& tensor_;
};

/// Linear numbers of the elements of a box; of many its first and last one, and some between.
std::vector<std::int64_t> numbers_of(const Box& box, const std::vector<std::int64_t>& shape, CounterRandom random) {
  constexpr std::int64_t kMost = 1 << 14;
  std::int64_t count = 1;
  for (const auto& [first, last] : box) count *= last - first + 1;
  const auto number_of = [&](std::int64_t place) {
    std::int64_t linear = 0, stride = 1;
    for (std::size_t k = shape.size(); k-- > 0;) {
      const std::int64_t extent = box[k].second - box[k].first + 1;
      linear += (box[k].first + place % extent) * stride;
      place /= extent;
      stride *= shape[k];
    }
    return linear;
  };
  std::vector<std::int64_t> numbers{number_of(0), number_of(count - 1)};
  for (std::int64_t n = 0; n < std::min(count, kMost); ++n)
    numbers.push_back(number_of(count <= kMost ? n : random.below(count)));
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

/// A random element, the first and the last.
std::vector<std::vector<std::int64_t>> places_in(const std::vector<std::int64_t>& shape, CounterRandom random) {
  std::vector<std::vector<std::int64_t>> places(3);
  for (const std::int64_t extent : shape) {
    places[0].push_back(random.below(extent));
    places[1].push_back(0);
    places[2].push_back(extent - 1);
  }
  return places;
}

}  // namespace

Nest needed_part(const Nest& nest, const Sizes& sizes, const std::map<std::string, isl::set>& elements) {
  Nest part = nest;
  with_isl_budget("finding what an element needs", [&] {
    std::map<std::string, isl::set> fixed;
    for (const auto& [tensor, set] : elements) fixed.emplace(tensor, at_sizes(set, sizes));
    NeededElements needed(nest, sizes, std::move(fixed));
    bool grows = true;
    for (int sweep = 0; grows; ++sweep) {
      grows = false;
      for (std::size_t k = part.statements.size(); k-- > 0;) {
        Statement& statement = part.statements[k];
        const isl::set all = at_sizes(nest.statements[k].domain, sizes);
        const isl::set* found = needed.find(statement.write.tensor);
        statement.domain = found == nullptr
                               ? all.subtract(all)
                               : all.intersect(found->apply(at_sizes(statement.write.relation, sizes).reverse())).coalesce();
        for (const Access& read : statement.reads) {
          if (nest.tensor(read.tensor).role == TensorRole::input) continue;
          const isl::set elements_read = statement.domain.apply(at_sizes(read.relation, sizes));
          grows = needed.add(read.tensor, elements_read, sweep >= kExactSweeps) || grows;
        }
      }
    }
    std::erase_if(part.statements, [](const Statement& statement) { return statement.domain.is_empty(); });
  });
  return part;
}

std::vector<OracleSample> samples_of_parts(const Nest& nest, const Sizes& sizes, const std::map<std::string, double>& scalars,
                                           const HostTensors& inputs, std::uint64_t seed, double cost_limit, int processes,
                                           const std::atomic<bool>* stop) {
  constexpr double kWanted =
      4e8;  ///< elementary evaluations, a few nanoseconds each; one place will do where an element takes more
  std::vector<OracleSample> result;
  const auto outputs =
      std::count_if(nest.tensors.begin(), nest.tensors.end(), [](const Tensor& t) { return t.role == TensorRole::output; });
  for (const Tensor& tensor : nest.tensors) {
    const std::vector<std::int64_t> shape = shape_at(tensor, sizes);
    if (tensor.role != TensorRole::output || std::find(shape.begin(), shape.end(), 0) != shape.end()) continue;
    const Boxes boxes(nest, sizes, tensor);
    for (const std::vector<std::int64_t>& place : places_in(shape, CounterRandom(seed_for(tensor.name, seed)))) {
      const Box box = boxes.around(place, kWanted / static_cast<double>(outputs), cost_limit);
      const Nest part = boxes.part(box);
      const bool costly = DefinitionCost(part).at(sizes).value_or(0) > kWanted;
      Reference reference(part, sizes, scalars, inputs);
      reference.stop_by(stop);
      reference.evaluate_all(cost_limit, processes);
      std::vector<OracleSample> samples;
      for (const std::int64_t element : numbers_of(box, shape, CounterRandom(seed_for(tensor.name, ~seed)))) {
        if (const auto value = reference.bounded_value(tensor.name, element, cost_limit))
          samples.push_back({tensor.name, element, value->value, value->bound});
      }
      limit_bounds_of(reference, inputs, samples, part, may_round_operands(part), processes);
      result.insert(result.end(), samples.begin(), samples.end());
      if (costly) break;
    }
  }
  return result;
}

}  // namespace nestor
