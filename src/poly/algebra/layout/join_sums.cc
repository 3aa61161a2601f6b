// Rule "join_sums": sums of products that are only added together become one, over operands that lie side by side in copies.
//
// Pattern    u_e = sum over (t, k < K) of a_(i, k) b_(j, k), v_e = sum over (t, p < P) of c_(i, p) d_(j, p), and so on, where whoever reads one
//            of u, v, .. adds up all of them at one place; a, b, c and d have 16 bits, i and j follow e and t alike, and k and p are last
//            indices, or a constant before them: x W + h U of a recurrent cell, where t has no dims, or convolutions with taps t.
// Rewrite    a'_(i, q) = a_(i, q) for q < K, c_(i, q - K) beyond, for all that the sums read of a and c, and b' alike; u_e = sum over
//            (t, q < K + P) of a'_(i, q) b'_(j, q), and readers read u_e alone. Sums that read the same share their copy. What lies side by side
//            in one tensor already, as the columns of a weight for what is put together, is read there.
// Conditions the sums have the same e and t, and all of k and p at each; they start from 0, and stand alone in their loops, as what starts
//            them does; a and c have equal extents but for the last, as b and d have, and one definition at most, before the copies.
// Proof      the same products are added up; copies have the same elements, complete before they are read.
// Rounding   as reassociate: the terms of v join those of u one by one.
#include <fmt/format.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "poly/algebra/operands/half_products.h"
#include "poly/algebra/operands/whole_dims.h"
#include "poly/algebra/rolled/added_sums.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "poly/isl/whole_function.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr const char* kName = "join_sums";

constexpr std::size_t kMostTaps = 4;  ///< whose orders are tried

/// A sum of products along a dim that is the last index of both operands.
struct PlainSum {
  const Statement* sum = nullptr;
  const Statement* start = nullptr;
  std::array<std::size_t, 2> operands{};  ///< ordinals of reads
  int term = 0;                           ///< that dim
  std::vector<int> taps;                  ///< other reduced dims
  isl::pw_aff terms = {};                 ///< how many values it has, a function of the parameters
  std::array<isl::pw_aff, 2> first = {};  ///< last index of each operand at the first of them, likewise
};

/// What the function of a sum's points is where it is the same at all of them: a function of the parameters.
std::optional<isl::pw_aff> same_everywhere(const Nest& nest, const Statement& sum, const isl::pw_aff& function) {
  isl::map values = isl::manage(isl_map_from_pw_aff(function.copy()));
  const isl::set range = values.intersect_domain(domain_in(nest, sum)).range();
  const isl::pw_aff least = isl::manage(isl_set_dim_min(range.copy(), 0)), most = isl::manage(isl_set_dim_max(range.copy(), 0));
  if (isl_pw_aff_is_equal(least.get(), most.get()) != isl_bool_true) return std::nullopt;
  return extent_of(nest, range, 0).add_constant(-1L);
}

/// Sums in their order, with operands that correspond.
using SumSet = std::vector<PlainSum>;

/// { Sum -> [result, taps] }.
isl::map places_of(const Nest& nest, const PlainSum& plain) {
  const isl::set domain = domain_in(nest, *plain.sum);
  std::vector<isl::pw_aff> functions = functions_of(plain.sum->write.relation);
  for (const int tap : plain.taps) functions.push_back(dim_function(plain.sum->domain, tap));
  return relation_of(plain.sum->domain, "place", functions).intersect_domain(domain);
}

/// { [result, taps] -> indices of the operand but for the last one }.
isl::map rows_of(const Nest& nest, const PlainSum& plain, std::size_t operand) {
  isl_map* read = plain.sum->reads[operand].relation.copy();
  read = isl_map_project_out(read, isl_dim_out, isl_map_dim(read, isl_dim_out) - 1, 1);
  read = isl_map_reset_tuple_id(read, isl_dim_out);
  return places_of(nest, plain).reverse().apply_range(isl::manage(read));
}

/// The sum that makes a tensor, if it is plain; none of its operands changes once it is there.
std::optional<PlainSum> plain_sum(const Nest& nest, const std::string& tensor) {
  const std::vector<const Statement*> writers = writers_of(nest, tensor);
  if (nest.tensor(tensor).role != TensorRole::temporary || writers.size() != 2) return std::nullopt;
  const auto product =
      std::find_if(writers.begin(), writers.end(), [](const Statement* each) { return half_products(*each).has_value(); });
  if (product == writers.end()) return std::nullopt;
  const Statement& sum = **product;
  const std::vector<const Statement*> starts = initialisers_of(nest, sum);
  const std::vector<int> reduced = reduced_dims(sum);
  const std::vector<std::string> written = names_of_indices(sum, sum.write);
  if (starts.size() != 1 || !starts_from(nest, sum, 0) || !alone_in_group(nest, sum.name) ||
      !alone_in_group(nest, starts.front()->name) || written.size() + reduced.size() != sum.dims.size())
    return std::nullopt;
  const auto [a, b] = *half_products(sum);
  PlainSum result{&sum, starts.front(), {a, b}, -1, {}, {}, {}};
  for (const int dim : reduced) {
    const std::vector<std::set<int>> follows = dims_of_indices(sum, sum.reads[a]);
    const bool last = !follows.empty() && follows.back() == std::set<int>{dim};
    if (last) result.term = dim;
    if (!last) result.taps.push_back(dim);
  }
  if (result.term < 0 || result.taps.size() > kMostTaps) return std::nullopt;
  result.terms = extent_of(nest, domain_in(nest, sum), result.term);
  const isl::set whole = below(with_any_values(nest, sum, result.term, result.term), result.term, result.terms);
  if (!domain_in(nest, sum).is_equal(whole)) return std::nullopt;
  for (const std::size_t k : {std::size_t{0}, std::size_t{1}}) {
    const Access& read = sum.reads[result.operands[k]];
    const Tensor& source = nest.tensor(read.tensor);
    const bool defined_once = source.role == TensorRole::input || sole_definition(nest, read.tensor) != nullptr;
    const std::vector<std::set<int>> follows = dims_of_indices(sum, read);
    if (!defined_once || follows.empty() || follows.back() != std::set<int>{result.term}) return std::nullopt;
    const bool rows_only =
        std::none_of(follows.begin(), follows.end() - 1, [&](const auto& dims) { return dims.contains(result.term); });
    const isl::pw_aff last = functions_of(read.relation).back();
    const auto first = same_everywhere(nest, sum, last.sub(dim_function(sum.domain, result.term)));
    if (!rows_only || !first) return std::nullopt;
    result.first[k] = *first;
  }
  return result;
}

/// Are the tensors' extents the same but for the last one?
bool same_rows(const Tensor& a, const Tensor& b) {
  return a.type == b.type && a.shape.size() == b.shape.size() &&
         std::equal(a.shape.begin(), a.shape.end() - 1, b.shape.begin(), same_extent);
}

/// Are the operands at `k` of two sums alike, and complete before the later sum?
bool alike(const Nest& nest, const PlainSum& one, const PlainSum& other, std::size_t k) {
  const std::string &a = one.sum->reads[one.operands[k]].tensor, &c = other.sum->reads[other.operands[k]].tensor;
  const Statement& later = one.sum->group < other.sum->group ? *other.sum : *one.sum;
  const std::size_t copies = begin_with_initialisers(nest, later);
  for (const std::string& tensor : {a, c}) {
    for (const Statement* writer : writers_of(nest, tensor)) {
      if (position_of(nest, writer->name) >= copies) return false;
    }
  }
  return same_rows(nest.tensor(a), nest.tensor(c)) &&
         rows_of(nest, one, one.operands[k]).is_equal(rows_of(nest, other, other.operands[k]));
}

/// The sum `other` with operands and taps in the order of those of `one`, if they correspond.
std::optional<PlainSum> in_order_of(const Nest& nest, const PlainSum& one, PlainSum other) {
  if (one.taps.size() != other.taps.size()) return std::nullopt;
  const isl::set places = places_of(nest, one).range();
  do {
    if (!places.is_equal(places_of(nest, other).range())) continue;
    for (int turned = 0; turned < 2; ++turned) {
      if (alike(nest, one, other, 0) && alike(nest, one, other, 1)) return other;
      std::swap(other.operands[0], other.operands[1]);
      std::swap(other.first[0], other.first[1]);
    }
  } while (std::next_permutation(other.taps.begin(), other.taps.end()));
  return std::nullopt;
}

/// The first terms that become one, with all that do so beside them; empty: none do.
SumSet set_of_terms(const Nest& nest, const Statement& reader, const std::vector<ScalarExpr>& terms) {
  std::vector<std::pair<std::string, PlainSum>> sums;
  for (const ScalarExpr& term : terms) {
    if (terms.size() < 2 || term.op() != ScalarOp::read) continue;
    const std::string& tensor = reader.reads[static_cast<std::size_t>(term.ordinal())].tensor;
    const bool known = std::any_of(sums.begin(), sums.end(), [&](const auto& each) { return each.first == tensor; });
    if (const auto sum = known ? std::nullopt : plain_sum(nest, tensor)) sums.emplace_back(tensor, *sum);
  }
  for (std::size_t k = 0; k < sums.size(); ++k) {
    SumSet set{sums[k].second};
    for (std::size_t n = k + 1; n < sums.size(); ++n) {
      if (const auto other = in_order_of(nest, set.front(), sums[n].second);
          other && always_added(nest, sums[k].first, sums[n].first))
        set.push_back(*other);
    }
    std::sort(set.begin(), set.end(), [](const PlainSum& a, const PlainSum& b) { return a.sum->group < b.sum->group; });
    if (set.size() > 1) return set;
  }
  return {};
}

/// The set whose last sum stands first.
SumSet first_set(const Nest& nest) {
  SumSet found;
  std::set<std::vector<std::string>> seen;
  for (const Statement& reader : nest.statements) {
    visit_additions(reader.value, [&](const std::vector<ScalarExpr>& terms) {
      std::vector<std::string> tensors;
      for (const ScalarExpr& term : terms) {
        if (term.op() == ScalarOp::read) tensors.push_back(reader.reads[static_cast<std::size_t>(term.ordinal())].tensor);
      }
      if (tensors.size() < 2 || !seen.insert(tensors).second) return;
      const SumSet set = set_of_terms(nest, reader, terms);
      if (!set.empty() && (found.empty() || set.back().sum->group < found.back().sum->group)) found = set;
    });
  }
  return found;
}

/// Do the columns that the second sum reads of the operand at `k` lie behind those of the first one, in one tensor?
bool lies_behind(const Nest& nest, const PlainSum& one, const PlainSum& other, std::size_t k) {
  if (one.sum->reads[one.operands[k]].tensor != other.sum->reads[other.operands[k]].tensor) return false;
  return other.first[k].ne_set(one.first[k].add(one.terms)).intersect(full_context(nest)).is_empty();
}

/// Does each sum's piece of the operand at `k` lie behind the one before?
bool lie_side_by_side(const Nest& nest, const SumSet& set, std::size_t k) {
  for (std::size_t n = 1; n < set.size(); ++n) {
    if (!lies_behind(nest, set[n - 1], set[n], k)) return false;
  }
  return true;
}

/// The sums in an order in which pieces of the operand at `k` lie side by side in one tensor; nullopt: there is none.
std::optional<SumSet> by_columns(const Nest& nest, SumSet set, std::size_t k) {
  const auto is_behind_another = [&](const PlainSum& each) {
    return std::any_of(set.begin(), set.end(), [&](const PlainSum& other) { return lies_behind(nest, other, each, k); });
  };
  auto next = std::find_if_not(set.begin(), set.end(), is_behind_another);
  for (auto place = set.begin(); place != set.end(); ++place) {
    if (next == set.end()) return std::nullopt;
    std::iter_swap(place, next);
    next = std::find_if(place + 1, set.end(), [&](const PlainSum& each) { return lies_behind(nest, *place, each, k); });
  }
  return set;
}

class SumJoiner {
 public:
  explicit SumJoiner(Nest nest) : nest_(std::move(nest)) {}

  /// False: there are none left.
  bool join_next() {
    SumSet set = first_set(nest_);
    if (set.empty()) return false;
    const std::string last = set.back().sum->name;
    for (const std::size_t k : {std::size_t{0}, std::size_t{1}}) {
      if (auto ordered = by_columns(nest_, set, k)) {
        set = std::move(*ordered);
        break;
      }
    }
    std::vector<Statement> sums, starts;
    for (const PlainSum& each : set) {
      sums.push_back(*each.sum);
      starts.push_back(*each.start);
    }
    const std::array<bool, 2> in_place{lie_side_by_side(nest_, set, 0), lie_side_by_side(nest_, set, 1)};
    Statement sum = sums.front();
    const int term = set.front().term;
    const std::array<std::size_t, 2> operands = set.front().operands;
    isl::pw_aff terms = set.front().terms;
    for (std::size_t n = 1; n < set.size(); ++n) terms = terms.add(set[n].terms);
    std::array<std::string, 2> joint;  // operands
    for (const std::size_t k : {std::size_t{0}, std::size_t{1}})
      joint[k] = in_place[k] ? sum.reads[operands[k]].tensor : copy_of(set, sums, k, last);
    isl_set* domain = below(with_any_values(nest_, sum, term, term), term, terms).release();
    domain = isl_set_gist_params(isl_set_coalesce(domain), full_context(nest_).release());
    domain = isl_set_set_tuple_name(domain, sum.name.c_str());
    domain = with_dim_names(domain, sum.dims);
    const isl::set before = domain_in(nest_, sum);
    sum.domain = isl::manage(domain);
    const auto moved = [&](const Access& access) { return functions_on(access.relation, before); };
    sum.write.relation = relation_of(sum.domain, sum.write.tensor, moved(sum.write));
    for (const std::size_t k : {std::size_t{0}, std::size_t{1}}) {
      std::vector<isl::pw_aff> functions = moved(sum.reads[operands[k]]);
      if (!in_place[k]) functions.back() = dim_function(sum.domain, term);
      sum.reads[operands[k]] = {joint[k], relation_of(sum.domain, joint[k], functions)};
    }
    // Sums of the same operands stand together, so that they may share a loop over their terms.
    std::string& neighbour = sums_[joint];
    std::size_t place = neighbour.empty() ? begin_with_initialisers(nest_, nest_.statement(last)) : group_end(nest_, neighbour);
    for (std::size_t n = 0; n < set.size(); ++n) {
      for (const Statement* each : {&sums[n], &starts[n]}) {
        if (position_of(nest_, each->name) < place) --place;
        erase_statement(nest_, each->name);
      }
    }
    for (std::size_t n = 1; n < set.size(); ++n) leave_out_of_additions(nest_, sums[n].write.tensor);
    neighbour = sum.name;
    insert_statement(nest_, place, starts.front());
    insert_statement(nest_, place + 1, sum);
    drop_unused(nest_);
    return true;
  }

  Nest take() { return std::move(nest_); }

 private:
  /// The tensor with what the sums read of their operands at `k` side by side, by statements before `last`, unless there is one.
  std::string copy_of(const SumSet& set, const std::vector<Statement>& sums, std::size_t k, const std::string& last) {
    const auto read_of = [&](std::size_t n) -> const Access& { return sums[n].reads[set[n].operands[k]]; };
    std::vector<std::string> sources;
    for (std::size_t n = 0; n < set.size(); ++n)
      sources.push_back(fmt::format("{} from {}, {}", read_of(n).tensor, isl_text(set[n].first[k]), isl_text(set[n].terms)));
    std::string& known = copies_[sources];
    if (!known.empty()) return known;
    const std::string name = fresh_name(nest_, read_of(0).tensor + "_joined");
    Tensor joint = nest_.tensor(read_of(0).tensor);
    joint.name = name;
    joint.role = TensorRole::temporary;
    joint.tolerance = {};
    std::vector<isl::pw_aff> offsets{set.front().terms};
    for (std::size_t n = 1; n < set.size(); ++n) offsets.push_back(offsets.back().add(set[n].terms));
    joint.shape.back() = offsets.back();
    nest_.tensors.push_back(joint);
    const std::size_t place = begin_with_initialisers(nest_, nest_.statement(last));
    for (std::size_t n = 0; n < set.size(); ++n) {
      const std::string own = n == 0 ? name : fresh_name(nest_, name + "_" + std::to_string(n + 1));
      Tensor piece = nest_.tensor(read_of(n).tensor);
      piece.shape.back() = set[n].terms;
      Statement copy = copy_statement(nest_, piece, sums[n], read_of(n), own);
      std::vector<isl::pw_aff> at;
      for (std::size_t d = 0; d < copy.dims.size(); ++d) at.push_back(dim_function(copy.domain, static_cast<int>(d)));
      const isl::pw_aff column = at.back();
      const auto behind = [&](const isl::pw_aff& offset) {
        return column.add(over_params(offset).insert_domain(copy.domain.space()));
      };
      if (n > 0) at.back() = behind(offsets[n - 1]);
      copy.write = {name, relation_of(copy.domain, name, at)};
      at.back() = behind(set[n].first[k]);
      copy.reads.front().relation = relation_of(copy.domain, piece.name, at);
      insert_statement(nest_, place + n, copy);
    }
    return known = name;
  }

  Nest nest_;
  std::map<std::vector<std::string>, std::string> copies_;  ///< by what they have side by side
  std::map<std::array<std::string, 2>, std::string> sums_;  ///< the last one of these operands
};

std::vector<RuleMatch> find(const Nest& nest) {
  const SumSet set = first_set(nest);
  if (set.empty()) return {};
  return {{kName,
           {},
           "sums that are added together become one, " + set.front().sum->name + " and " + set.back().sum->name + " first"}};
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  expect_arguments(kName, target, 0);
  SumJoiner joiner(nest);
  bool joined = false;
  while (joiner.join_next()) joined = true;
  if (!joined)
    refuse_rule(kName, "", "no two sums of products of 16-bit tensors, whose terms are last indices, are only added together");
  return {joiner.take(), {}, false};
}

}  // namespace

const Rule& join_sums_rule() {
  static const Rule rule{kName,
                         "sums of products that are added together become one over operands side by side in copies",
                         "the same products are added up; copies have the operands' elements under other names",
                         "as reassociate",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
