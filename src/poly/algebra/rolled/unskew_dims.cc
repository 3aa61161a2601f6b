// Rule "unskew_dims": dims of distances become dims of places, so that operands of products follow their own dims.
//
// Pattern    s_ia = sum over e of q_ie k_(i-a)e, p_ia = f(s_ia), out_id = sum over a of p_ia v_(i-a)d: a window of keys by their distance from the
//            query. k follows i and a together, so that neither is a column of a product of matrices.
// Rewrite    the dim j = i - a in place of a, in all statements that touch such temporaries: s_ij = sum over e of q_ie k_je, and so on. What follows a
//            itself follows i - j. Places i + a - c are the same with other signs.
//            Or out_i = sum over a <= i of f(x_(i-a)), any reduction over all places up to i, or from i on: a running sum over j, by distances.
// Conditions operands of the sum follow a dim of the result that the other one does not, then, and did not before; i and a have 32 values or more. Each of these
//            statements is alone in its loops, reads nothing that it writes, and touches such temporaries along i and a by themselves.
//            Running sums read nothing that follows i then; the next i (or the one before, for sums from i on) has all places of i.
// Proof      (i, a) -> (i, i - a) is one to one: the same operations on the same elements. Their order is another one for sums alone.
// Rounding   as reassociate.
// Source     loop skewing, as unimodular transformations of loops: M. Wolf and M. Lam, A Data Locality Optimizing Algorithm, 1991.
#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "poly/algebra/operands/half_products.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "poly/isl/whole_function.h"
#include "poly/nest/composite_parts.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr const char* kName = "unskew_dims";
constexpr long kFewest = 32;  ///< of both dims: fewer are taps of a filter

/// Places i + sign a + constant of a dim i and a distance a.
struct Skew {
  int sign = -1;
  std::int64_t constant = 0;
};

/// The dims i and a of a statement, or such indices of a temporary.
struct Pair {
  std::size_t base = 0, distance = 0;
  bool operator==(const Pair& other) const = default;
};

/// What changes in a nest.
struct Skewed {
  Skew skew;
  isl::pw_aff places;                   ///< how many there are
  std::map<std::string, Pair> dims;     ///< of statements
  std::map<std::string, Pair> indices;  ///< of temporaries
};

/// { [x] -> [x with x_base + sign x_distance + constant for x_distance] }, or its inverse, over a space of sets.
isl::multi_aff skewing(const isl::space& set, const Pair& pair, const Skew& skew, bool inverse) {
  isl_multi_aff* all = isl_multi_aff_identity(isl_space_map_from_set(set.copy()));
  isl_aff* place = isl_multi_aff_get_aff(all, static_cast<int>(pair.distance));
  isl_aff* base = isl_multi_aff_get_aff(all, static_cast<int>(pair.base));
  base = isl_aff_add_constant_si(base, static_cast<int>(skew.constant));
  // a = sign (j - i - constant)
  if (inverse) base = isl_aff_neg(base);
  const bool turned = skew.sign < 0;
  if (inverse) {
    place = isl_aff_add(place, base);
    if (turned) place = isl_aff_neg(place);
  } else {
    place = isl_aff_add(turned ? isl_aff_neg(place) : place, base);
  }
  return isl::manage(isl_multi_aff_set_aff(all, static_cast<int>(pair.distance), place));
}

/// { x -> x with a place for a distance }
isl::map placing(const isl::space& set, const Pair& pair, const Skew& skew) {
  return isl::manage(isl_map_from_multi_aff(skewing(set, pair, skew, false).release()));
}

Statement unskewed(const Statement& statement, const Skewed& skewed) {
  const Pair& pair = skewed.dims.at(statement.name);
  const isl::space space = statement.domain.space();
  const isl::map to_places = placing(space, pair, skewed.skew);
  const isl::multi_aff back = skewing(space, pair, skewed.skew, true);
  Statement result = statement;
  result.domain = statement.domain.apply(to_places);
  const auto move = [&](Access& access) {
    access.relation = access.relation.apply_domain(to_places);
    const auto known = skewed.indices.find(access.tensor);
    if (known != skewed.indices.end())
      access.relation = access.relation.apply_range(placing(access.relation.range().space(), known->second, skewed.skew));
  };
  for (Access& read : result.reads) move(read);
  move(result.write);
  for (isl::pw_aff& index : result.indices) index = isl::manage(isl_pw_aff_pullback_multi_aff(index.copy(), back.copy()));
  return result;
}

/// With as many places as there are for its distances, where it has such an index.
Tensor with_places(const Tensor& tensor, const Skewed& skewed) {
  Tensor result = tensor;
  const auto known = skewed.indices.find(tensor.name);
  if (known != skewed.indices.end()) result.shape[known->second.distance] = skewed.places;
  return result;
}

/// Dims of a statement that an index of a read is a sum of as places are, and how; each pair of dims by one index at most.
struct Places {
  Pair dims;
  Skew skew;
  isl::pw_aff count;  ///< the tensor's extent there
};

std::optional<std::int64_t> constant_of(const isl::pw_aff& function) {
  if (isl_pw_aff_isa_aff(function.get()) != isl_bool_true) return std::nullopt;
  const isl::aff whole = isl::manage(isl_pw_aff_as_aff(function.copy()));
  const auto params = static_cast<unsigned>(isl_aff_dim(whole.get(), isl_dim_param));
  if (isl_aff_involves_dims(whole.get(), isl_dim_param, 0, params) != isl_bool_false) return std::nullopt;
  const isl::val constant = isl::manage(isl_aff_get_constant_val(whole.get()));
  return constant.is_int() ? std::optional(static_cast<std::int64_t>(constant.get_num_si())) : std::nullopt;
}

std::vector<Places> places_read_by(const Nest& nest, const Statement& sum, bool of_inputs) {
  std::vector<Places> found;
  for (const Access& read : sum.reads) {
    const Tensor& tensor = nest.tensor(read.tensor);
    const bool counts = !of_inputs || tensor.role == TensorRole::input;
    const auto moving = moving_dims(read);
    const auto functions = functions_on(read.relation, domain_in(nest, sum));
    for (std::size_t p = 0; counts && p < moving.size(); ++p) {
      const auto constant = moving[p].size() == 2 ? constant_of(functions[p]) : std::nullopt;
      if (!constant) continue;
      for (const auto& [base, one] : moving[p]) {
        for (const auto& [distance, sign] : moving[p]) {
          if (base == distance || one != 1 || (sign != 1 && sign != -1)) continue;
          found.push_back({{static_cast<std::size_t>(base), static_cast<std::size_t>(distance)},
                           {static_cast<int>(sign), *constant},
                           tensor.shape[p]});
        }
      }
    }
  }
  return found;
}

std::vector<const Access*> accesses_of(const Statement& statement) {
  std::vector<const Access*> all{&statement.write};
  for (const Access& read : statement.reads) all.push_back(&read);
  return all;
}

/// Where the indices of the access are the dims by themselves.
std::optional<Pair> own_indices(const Statement& statement, const Access& access, const Pair& dims) {
  const std::vector<std::string> names = names_of_indices(statement, access);
  const auto place = [&](std::size_t dim) { return std::find(names.begin(), names.end(), statement.dims[dim]); };
  const auto base = place(dims.base), distance = place(dims.distance);
  if (base == names.end() || distance == names.end()) return std::nullopt;
  return Pair{static_cast<std::size_t>(base - names.begin()), static_cast<std::size_t>(distance - names.begin())};
}

/// Does a dim decide what the statement computes at a point?
bool computes_along(const Nest& nest, const Statement& statement, std::size_t dim) {
  const auto follows = [&](const isl::pw_aff& function) {
    return isl_pw_aff_involves_dims(function.get(), isl_dim_in, static_cast<unsigned>(dim), 1) != isl_bool_false;
  };
  const isl::set domain = domain_in(nest, statement);
  const auto index_follows = [&](const isl::pw_aff& index) { return follows(index.gist(domain)); };
  return std::any_of(statement.indices.begin(), statement.indices.end(), index_follows) ||
         std::any_of(statement.reads.begin(), statement.reads.end(), [&](const Access& read) {
           const std::vector<isl::pw_aff> functions = functions_on(read.relation, domain);
           return std::any_of(functions.begin(), functions.end(), follows);
         });
}

/// Has each value of the dim `base` all points that the one before it has (`step` 1), or the one behind it (-1)?
bool keeps_points(const Nest& nest, const Statement& statement, const Pair& pair, int step) {
  const isl::set domain = domain_in(nest, statement);
  isl_multi_aff* next = isl_multi_aff_identity(isl_space_map_from_set(isl_set_get_space(domain.get())));
  isl_aff* base = isl_aff_add_constant_si(isl_multi_aff_get_aff(next, static_cast<int>(pair.base)), step);
  next = isl_multi_aff_set_aff(next, static_cast<int>(pair.base), base);
  const isl::set moved = domain.apply(isl::manage(isl_map_from_multi_aff(next)));
  const auto place = static_cast<unsigned>(pair.distance);
  isl_set* lines = isl_set_insert_dims(isl_set_project_out(domain.copy(), isl_dim_set, place, 1), isl_dim_set, place, 1);
  lines = isl_set_set_tuple_name(lines, statement.name.c_str());
  return moved.intersect(isl::manage(lines)).is_subset(domain);
}

class SkewFinder {
 public:
  explicit SkewFinder(const Nest& nest) : nest_(nest) {}

  std::optional<Skewed> from(const Statement& sum, std::string& why) {
    why =
        "no two factors become rows and columns of a product where a place is a dim that one of them is read at by its distance, "
        "and it is no running sum of such places";
    if (auto running = running_sum(sum)) return running;
    if (sum.reduction != ReductionOp::add || multiplies_rows_by_columns(nest_, sum)) return std::nullopt;
    for (const Places& places : places_read_by(nest_, sum, true)) {
      if (has_few(sum, places.dims.base) || has_few(sum, places.dims.distance)) continue;
      skewed_ = {places.skew, places.count, {{sum.name, places.dims}}, {}};
      if (!multiplies_rows_by_columns(nest_, unskewed(sum, skewed_))) continue;
      skewed_.dims.clear();
      if (add(sum, places.dims, why) && complete(why)) return skewed_;
    }
    return std::nullopt;
  }

 private:
  /// Of a reduction over all places up to an index, or from it on.
  std::optional<Skewed> running_sum(const Statement& sum) const {
    if (!sum.reduction || reads_tensor(sum, sum.write.tensor) || !alone_in_group(nest_, sum.name)) return std::nullopt;
    const std::vector<int> reduced = reduced_dims(sum);
    const auto is_reduced = [&](std::size_t dim) {
      return std::find(reduced.begin(), reduced.end(), static_cast<int>(dim)) != reduced.end();
    };
    for (const Places& places : places_read_by(nest_, sum, false)) {
      const Pair& pair = places.dims;
      if (is_reduced(pair.base) || !is_reduced(pair.distance) || has_few(sum, pair.base) || has_few(sum, pair.distance)) continue;
      Skewed skewed{places.skew, places.count, {{sum.name, pair}}, {}};
      const Statement moved = unskewed(sum, skewed);
      const auto runs = [&](int step) { return keeps_points(nest_, moved, pair, step); };
      if (!computes_along(nest_, moved, pair.base) && runs(1) != runs(-1)) return skewed;
    }
    return std::nullopt;
  }

  bool has_few(const Statement& sum, std::size_t dim) const {
    const isl::val most = isl::manage(isl_pw_aff_max_val(extent_of(nest_, sum.domain, static_cast<int>(dim)).release()));
    return most.is_int() && most.lt(kFewest);
  }

  /// The statement, and the temporaries that it has along both dims; false: it has an order, or others beside it.
  bool add(const Statement& statement, const Pair& dims, std::string& why) {
    why = "a statement shares its loops with others, or its points have an order";
    const bool reads_own = std::any_of(statement.reads.begin(), statement.reads.end(),
                                       [&](const Access& read) { return read.tensor == statement.write.tensor; });
    const bool free = statement.reduction || statement.write.relation.intersect_domain(statement.domain).is_injective();
    if (!alone_in_group(nest_, statement.name) || reads_own || !free) return false;
    skewed_.dims[statement.name] = dims;
    for (const Access* access : accesses_of(statement)) {
      const bool kept = nest_.tensor(access->tensor).role == TensorRole::temporary && !skewed_.indices.contains(access->tensor);
      const auto indices = kept ? own_indices(statement, *access, dims) : std::nullopt;
      if (indices) skewed_.indices[access->tensor] = *indices;
    }
    return true;
  }

  /// Adds statements until all that touch the temporaries are there; false: one of them touches them otherwise, or where no place is.
  bool complete(std::string& why) {
    for (bool more = true; more;) {
      more = false;
      for (const Statement& statement : nest_.statements) {
        for (const Access* access : accesses_of(statement)) {
          const auto indices = skewed_.indices.find(access->tensor);
          if (indices == skewed_.indices.end()) continue;
          why = "a statement reads or writes one of its temporaries along other indices";
          const std::vector<std::string> names = names_of_indices(statement, *access);
          if (names.empty()) return false;
          const auto dim = [&](std::size_t index) {
            return static_cast<std::size_t>(std::find(statement.dims.begin(), statement.dims.end(), names[index]) -
                                            statement.dims.begin());
          };
          const Pair dims{dim(indices->second.base), dim(indices->second.distance)};
          const auto known = skewed_.dims.find(statement.name);
          if (known != skewed_.dims.end() && known->second != dims) return false;
          if (known != skewed_.dims.end()) continue;
          if (!add(statement, dims, why)) return false;
          more = true;
        }
      }
    }
    why = "no temporary has both dims, or one has elements where no place is";
    return !skewed_.indices.empty() && are_places();
  }

  bool are_places() const {
    return std::all_of(nest_.statements.begin(), nest_.statements.end(), [&](const Statement& statement) {
      if (!skewed_.dims.contains(statement.name)) return true;
      const Statement moved = unskewed(statement, skewed_);
      const std::vector<const Access*> all = accesses_of(moved);
      return std::all_of(all.begin(), all.end(), [&](const Access* access) {
        const auto indices = skewed_.indices.find(access->tensor);
        if (indices == skewed_.indices.end()) return true;
        const isl::set reached = domain_in(nest_, moved).apply(access->relation);
        return reached.is_subset(tensor_box(with_places(nest_.tensor(access->tensor), skewed_)));
      });
    });
  }

  const Nest& nest_;
  Skewed skewed_;
};

/// Sets `why` where there is none.
std::optional<Skewed> skewed_of(const Nest& nest, const Statement& statement, std::string& why) {
  return SkewFinder(nest).from(statement, why);
}

std::vector<RuleMatch> find(const Nest& nest) {
  std::string why;
  return matching_statements(nest, kName, [&](const Statement& statement) {
    return skewed_of(nest, statement, why) ? statement.name + " runs along places in place of distances" : "";
  });
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const Skewed skewed = required_match(nest, kName, target, skewed_of);
  Nest result = nest;
  for (Statement& statement : result.statements) {
    if (skewed.dims.contains(statement.name)) statement = unskewed(statement, skewed);
  }
  for (Tensor& tensor : result.tensors) tensor = with_places(tensor, skewed);
  return {std::move(result), {}, false};
}

}  // namespace

const Rule& unskew_dims_rule() {
  static const Rule rule{kName,
                         "dims of distances become dims of places, where operands of products follow those (argument: statement)",
                         "distances from an index are one to one with places: the same operations on the same elements",
                         "sums are taken in another order",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
