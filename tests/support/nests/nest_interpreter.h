// A direct interpreter of nests in double, instance by instance in the original order, and of composites tile by tile. Slow and
// simple: what rules are tested against.
#pragma once

#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "poly/isl/isl_tools.h"
#include "poly/nest/composite.h"
#include "poly/nest/nest.h"
#include "poly/nest/scalar_semantics.h"
#include "support/error.h"
#include "support/nests/integer_points.h"

namespace nestor::samples {

using Index = std::vector<std::int64_t>;
struct IndexHash {
  std::size_t operator()(const Index& index) const {
    std::size_t hash = index.size();
    for (const std::int64_t each : index) hash = (hash ^ static_cast<std::size_t>(each)) * 0x9e3779b97f4a7c15ULL;
    return hash ^ hash >> 32;
  }
};
using Elements = std::unordered_map<Index, double, IndexHash>;
using Memory = std::map<std::string, Elements>;

/// In lexicographic order: for those who draw a number for each.
inline std::vector<Index> indices_of(const Elements& elements) {
  std::vector<Index> indices;
  for (const auto& [index, value] : elements) indices.push_back(index);
  std::sort(indices.begin(), indices.end());
  return indices;
}

class Interpreter {
 public:
  Interpreter(const Nest& nest, const Sizes& sizes, std::map<std::string, double> scalars = {})
      : nest_(nest), scalars_(std::move(scalars)), sizes_(sizes) {
    for (const ScalarParam& scalar : nest.scalars) scalars_.try_emplace(scalar.name, scalar.default_value);
  }

  /// Random inputs in a range that keeps exponentials apart.
  static Memory random_inputs(const Nest& nest, const Sizes& sizes, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal(0, 2);
    Memory memory;
    for (const Tensor& tensor : nest.tensors) {
      if (tensor.role != TensorRole::input) continue;
      Index index(tensor.shape.size(), 0);
      const auto shape = shape_at(tensor, sizes);
      do memory[tensor.name][index] = normal(random);
      while (next(index, shape));
    }
    return memory;
  }

  /// Tensors for which the last run in the original order had 0 for a number that 16 bits, or an exponential in f32, are too few for.
  const std::set<std::string>& vanished() const { return vanished_; }
  /// Tensors of 16 bits for which it had an infinity for a finite number.
  const std::set<std::string>& overflowed() const { return overflowed_; }

  /// Runs everything in the original order.
  void run(Memory& memory) {
    vanished_.clear();
    overflowed_.clear();
    for (std::size_t k = 0; k < nest_.statements.size();) k = run_group(memory, k);
  }

  /// True when all members of the composite have a dim called like the lead's reduced one, with the same values.
  bool can_run(const Composite& composite) const {
    const Statement& lead = nest_.statement(composite.lead);
    const std::string dim = reduced_dim(lead);
    std::vector<std::string> members = composite.mediators;
    for (const Follower& follower : composite.followers) members.push_back(follower.statement);
    const std::set<std::int64_t> values = values_of(lead, dim);
    return std::all_of(members.begin(), members.end(),
                       [&](const std::string& name) { return values_of(nest_.statement(name), dim) == values; });
  }

  /// Runs in the original order, except that the composite's members run tile by tile of the lead's reduced dim, which all of them
  /// call by one name: lead, corrections, mediators, followers.
  void run(Memory& memory, const Composite& composite, std::int64_t tile) {
    std::vector<std::string> members{composite.lead};
    members.insert(members.end(), composite.mediators.begin(), composite.mediators.end());
    for (const Follower& follower : composite.followers) members.push_back(follower.statement);
    const auto inside = [&](const Statement& s) { return std::find(members.begin(), members.end(), s.name) != members.end(); };
    // What depends on them, even indirectly, comes after; all else comes before.
    std::set<std::string> results, read;
    std::vector<std::size_t> after;
    for (std::size_t k = 0; k < nest_.statements.size(); ++k) {
      const Statement& s = nest_.statements[k];
      const bool late = results.contains(s.write.tensor) || read.contains(s.write.tensor) ||
                        std::any_of(s.reads.begin(), s.reads.end(), [&](const Access& a) { return results.contains(a.tensor); });
      if (inside(s) || late) {
        results.insert(s.write.tensor);
        for (const Access& access : s.reads) read.insert(access.tensor);
      }
      if (inside(s)) continue;
      if (late) {
        after.push_back(k);
      } else {
        run_one(memory, s);
      }
    }
    run_tiles(memory, composite, tile);
    for (const std::size_t k : after) run_one(memory, nest_.statements[k]);
  }

 private:
  struct Instance {
    const Index* dims;
    const Statement* statement;
    std::size_t order;
  };

  static bool next(Index& index, const Index& shape) {
    for (std::size_t k = index.size(); k-- > 0;) {
      if (++index[k] < shape[k]) return true;
      index[k] = 0;
    }
    return false;
  }

  /// Of a dim of a statement's points; none where it has no such dim.
  std::set<std::int64_t> values_of(const Statement& statement, const std::string& dim) const {
    const auto found = std::find(statement.dims.begin(), statement.dims.end(), dim);
    std::set<std::int64_t> values;
    if (found == statement.dims.end()) return values;
    for (const Index& point : points(statement)) values.insert(point[static_cast<std::size_t>(found - statement.dims.begin())]);
    return values;
  }

  const std::vector<Index>& points(const Statement& statement) const {
    const auto [place, fresh] = points_.try_emplace(&statement);
    if (fresh) place->second = integer_points(statement.domain, sizes_);
    return place->second;
  }

  using Table = std::unordered_map<Index, Index, IndexHash>;

  /// { instance -> element } of a relation on the statement's domain, tabulated once.
  const Table& table(const isl::map& map, const Statement& statement) {
    const auto [place, fresh] = tables_.try_emplace(map.get());
    if (!fresh) return place->second;
    const unsigned dims = map.domain_tuple_dim();
    const isl::set pairs = isl::manage(isl_set_flatten(map.intersect_domain(statement.domain).wrap().release()));
    for (const Index& all : integer_points(pairs, sizes_))
      place->second.insert_or_assign(Index(all.begin(), all.begin() + dims), Index(all.begin() + dims, all.end()));
    return place->second;
  }

  /// The image of one instance, or nullptr.
  const Index* image(const isl::map& map, const Statement& statement, const Index& dims) {
    const Table& images = table(map, statement);
    const auto found = images.find(dims);
    return found == images.end() ? nullptr : &found->second;
  }

  void run_one(Memory& memory, const Statement& statement) {
    for (const Index& dims : points(statement)) execute(memory, statement, dims, {}, "");
  }

  std::size_t run_group(Memory& memory, std::size_t first) {
    std::vector<Instance> instances;
    std::size_t end = first;
    for (; end < nest_.statements.size() && nest_.statements[end].group == nest_.statements[first].group; ++end) {
      for (const Index& dims : points(nest_.statements[end])) instances.push_back({&dims, &nest_.statements[end], end});
    }
    std::sort(instances.begin(), instances.end(),
              [](const Instance& a, const Instance& b) { return *a.dims != *b.dims ? *a.dims < *b.dims : a.order < b.order; });
    for (const Instance& instance : instances) execute(memory, *instance.statement, *instance.dims, {}, "");
    return end;
  }

  /// `adjust(element, value)` replaces what is read from tensor `adjusted`.
  void execute(Memory& memory, const Statement& s, const Index& dims, const std::function<double(const Index&, double)>& adjust,
               const std::string& adjusted) {
    const auto read = [&](int k) {
      const Access& access = s.reads.at(static_cast<std::size_t>(k));
      const Index* index = image(access.relation, s, dims);
      if (index == nullptr) throw InternalError(s.name + " reads no element of " + access.tensor);
      const auto& elements = memory[access.tensor];
      const auto found = elements.find(*index);
      if (found == elements.end())
        throw InternalError(s.name + " reads an element of " + access.tensor + " that was not written");
      return adjust && access.tensor == adjusted ? adjust(*index, found->second) : found->second;
    };
    const auto index = [&](int k) {
      const isl::pw_aff& function = s.indices.at(static_cast<std::size_t>(k));
      const auto found = index_maps_.try_emplace(function.get(), isl::manage(isl_map_from_pw_aff(function.copy()))).first;
      return image(found->second, s, dims)->at(0);
    };
    const auto scalar = [&](const std::string& name) { return scalars_.at(name); };
    const double value = evaluate(s.value, read, index, scalar);
    const bool narrowed = s.value.op() == ScalarOp::cast && size_in_bytes(s.value.type()) == 2;
    if (narrowed && (value == 0 || std::isinf(value))) {
      const double wide = evaluate(s.value.args()[0], read, index, scalar);
      if (value == 0 && wide != 0) vanished_.insert(s.write.tensor);
      if (value != 0 && std::isfinite(wide)) overflowed_.insert(s.write.tensor);
    }
    // An exponential that is 0 shows in a value of 0, or in NaN where it meets an infinity.
    if (value == 0 || std::isnan(value)) {
      s.value.visit([&](const ScalarExpr& node) {
        if (node.op() != ScalarOp::exp && node.op() != ScalarOp::exp2) return;
        if (evaluate(node, read, index, scalar) == 0 && std::isfinite(evaluate(node.args()[0], read, index, scalar)))
          vanished_.insert(s.write.tensor);
      });
    }
    const Index& target = *image(s.write.relation, s, dims);
    Elements& elements = memory[s.write.tensor];
    if (!s.reduction) {
      elements[target] = semantics::stored_value(nest_.tensor(s.write.tensor).type, s.value.type(), value);
      return;
    }
    const auto sum = elements.find(target);
    if (sum == elements.end()) throw InternalError(s.name + " accumulates into what was not initialised");
    sum->second = semantics::combine(*s.reduction, s.value.type(), sum->second, value);
  }

  /// Position in `s` of the dim called like the lead's reduced one.
  static std::size_t dim_named(const Statement& s, const std::string& name) {
    const auto found = std::find(s.dims.begin(), s.dims.end(), name);
    if (found == s.dims.end()) throw InternalError(s.name + " has no dim " + name);
    return static_cast<std::size_t>(found - s.dims.begin());
  }

  std::string reduced_dim(const Statement& lead) const {
    for (std::size_t k = 0; k < lead.dims.size(); ++k) {
      bool used = false;
      for (const isl::pw_aff& f : functions_of(lead.write.relation)) {
        used = used || isl_pw_aff_involves_dims(f.get(), isl_dim_in, static_cast<unsigned>(k), 1) == isl_bool_true;
      }
      if (!used) return lead.dims[k];
    }
    throw InternalError("the lead reduces nothing");
  }

  void run_tiles(Memory& memory, const Composite& composite, std::int64_t tile) {
    const Statement& lead = nest_.statement(composite.lead);
    const std::string dim = reduced_dim(lead);
    std::map<Index, double> total;
    std::int64_t high = -1;
    for (const Index& dims : points(lead)) {
      ++total[*image(lead.write.relation, lead, dims)];
      high = std::max(high, dims[dim_named(lead, dim)]);
    }
    const auto lead_of = lead_elements(composite);
    std::map<Index, double> count;
    const auto view = [&](const Index& element, double m, double n) {
      return scalar_value(composite.view, {{"m", m}, {"n", n}, {"n_total", total.at(element)}});
    };
    for (std::int64_t low = 0; low <= high; low += tile) {
      const auto in_tile = [&](const Statement& s, const Index& dims) {
        const std::int64_t j = dims[dim_named(s, dim)];
        return low <= j && j < low + tile;
      };
      const Elements before = memory[lead.write.tensor];
      const std::map<Index, double> count_before = count;
      for (const Index& dims : points(lead)) {
        if (!in_tile(lead, dims)) continue;
        execute(memory, lead, dims, {}, "");
        ++count[*image(lead.write.relation, lead, dims)];
      }
      if (composite.threshold > 0) {
        for (auto& [element, m] : memory[lead.write.tensor])
          m = scalar_value(composite.held, {{"m_old", before.at(element)}, {"m_new", m}});
      }
      for (const Follower& follower : composite.followers) {
        correct(memory, composite, follower, lead_of.at(follower.statement), before, count_before, count, total);
      }
      const auto running = [&](const Index& element, double m) { return view(element, m, count.at(element)); };
      std::vector<std::string> rest = composite.mediators;
      for (const Follower& follower : composite.followers) rest.push_back(follower.statement);
      for (const std::string& name : rest) {
        const Statement& s = nest_.statement(name);
        for (const Index& dims : points(s)) {
          if (in_tile(s, dims)) execute(memory, s, dims, running, lead.write.tensor);
        }
      }
    }
  }

  void correct(Memory& memory, const Composite& composite, const Follower& follower, const std::map<Index, Index>& lead_of,
               const Elements& before, const std::map<Index, double>& count_before, const std::map<Index, double>& count,
               const std::map<Index, double>& total) {
    const Statement& statement = nest_.statement(follower.statement);
    const Elements& now = memory[composite.lead_tensor];
    for (const auto& [element, m_element] : lead_of) {
      const auto at = [&](const std::map<Index, double>& numbers) {
        const auto found = numbers.find(m_element);
        return found == numbers.end() ? 0.0 : found->second;
      };
      const double n_old = at(count_before);
      const double n_total = at(total);
      const auto view = [&](double m, double n) {
        return scalar_value(composite.corrected_by(), {{"m", m}, {"n", n}, {"n_total", n_total}});
      };
      double& r = memory[statement.write.tensor].at(element);
      r = semantics::in_range(scalar_value(follower.correction, {{"r", r},
                                                                 {"m_old", view(before.at(m_element), n_old)},
                                                                 {"m_new", view(now.at(m_element), at(count))},
                                                                 {"n_old", n_old},
                                                                 {"n_total", n_total}}));
    }
  }

  double scalar_value(const ScalarExpr& expr, std::map<std::string, double> names) const {
    for (const auto& [name, value] : scalars_) names.try_emplace(name, value);
    return evaluate(
        expr, [](int) -> double { throw InternalError("a correction reads"); },
        [](int) -> std::int64_t { throw InternalError("a correction indexes"); },
        [&](const std::string& name) { return names.at(name); });
  }

  /// For each member: element that it writes -> element of the lead's tensor that the value is relative to.
  std::map<std::string, std::map<Index, Index>> lead_elements(const Composite& composite) {
    std::map<std::string, std::map<Index, Index>> of_statement;
    std::map<std::string, std::map<Index, Index>> of_tensor;
    std::vector<std::string> rest = composite.mediators;
    for (const Follower& follower : composite.followers) rest.push_back(follower.statement);
    for (const std::string& name : rest) {
      const Statement& s = nest_.statement(name);
      for (const Index& dims : points(s)) {
        for (const Access& read : s.reads) {
          const Index* element = image(read.relation, s, dims);
          if (element == nullptr) continue;
          const Index written = *image(s.write.relation, s, dims);
          if (read.tensor == composite.lead_tensor) of_statement[name][written] = *element;
          const auto mediator = of_tensor.find(read.tensor);
          if (mediator != of_tensor.end()) of_statement[name][written] = mediator->second.at(*element);
        }
      }
      if (!s.reduction) of_tensor[s.write.tensor] = of_statement[name];
    }
    return of_statement;
  }

  const Nest& nest_;
  std::map<std::string, double> scalars_;
  std::set<std::string> vanished_, overflowed_;
  Sizes sizes_;
  mutable std::map<const Statement*, std::vector<Index>> points_;
  std::map<const void*, Table> tables_;
  std::map<const void*, isl::map> index_maps_;
};

/// Largest difference between two results, relative to 1 + |expected|; NaN equals NaN.
inline double difference(const Elements& expected, const Elements& actual) {
  double worst = 0;
  if (expected.size() != actual.size()) return std::numeric_limits<double>::infinity();
  for (const auto& [index, value] : expected) {
    const auto found = actual.find(index);
    if (found == actual.end()) return std::numeric_limits<double>::infinity();
    if (std::isnan(value) && std::isnan(found->second)) continue;
    const double error = std::fabs(value - found->second) / (1 + std::fabs(value));
    if (!(error <= worst)) worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
  }
  return worst;
}

}  // namespace nestor::samples
