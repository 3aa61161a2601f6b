// Rule "join_sums": sums of products that are only added together become one, over operands that lie side by side in copies.
//
// Pattern    u_e = sum over (t, k < K) of a_(i, k) b_(j, k), v_e = sum over (t, p < P) of c_(i, p) d_(j, p), and so on, where whoever reads one
//            of u, v, .. adds up all of them at one place; a, b, c and d have 16 bits, i and j follow e and t alike, and k and p are last
//            indices: x W + h U of a recurrent cell, where t has no dims, or convolutions with taps t.
// Rewrite    a'_(i, q) = a_(i, q) for q < K, c_(i, q - K) beyond, for all elements of a and c, and b' alike; u_e = sum over (t, q < K + P) of
//            a'_(i, q) b'_(j, q), and readers read u_e alone. Sums that read the same tensors share their copy.
// Conditions the sums have the same e and t, and all of k and p at each; they start from 0, and stand alone in their loops, as what starts
//            them does; a and c have equal extents but for the last, as b and d have, and one definition at most, before the copies.
// Proof      the same products are added up; copies have the same elements, complete before they are read.
// Rounding   as reassociate: the terms of v join those of u one by one.
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
};

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
  PlainSum result{&sum, starts.front(), {a, b}, -1, {}};
  for (const int dim : reduced) {
    const std::vector<std::set<int>> follows = dims_of_indices(sum, sum.reads[a]);
    const bool last = !follows.empty() && follows.back() == std::set<int>{dim};
    if (last) result.term = dim;
    if (!last) result.taps.push_back(dim);
  }
  if (result.term < 0 || result.taps.size() > kMostTaps) return std::nullopt;
  for (const std::size_t operand : result.operands) {
    const Access& read = sum.reads[operand];
    const Tensor& source = nest.tensor(read.tensor);
    const bool defined_once = source.role == TensorRole::input || sole_definition(nest, read.tensor) != nullptr;
    const std::vector<std::set<int>> follows = dims_of_indices(sum, read);
    if (!defined_once || follows.empty() || follows.back() != std::set<int>{result.term}) return std::nullopt;
    const bool rows_only =
        std::none_of(follows.begin(), follows.end() - 1, [&](const auto& dims) { return dims.contains(result.term); });
    const isl::map last =
        isl::manage(isl_map_from_pw_aff(functions_of(read.relation).back().copy())).intersect_domain(sum.domain);
    const isl::map term = isl::manage(isl_map_from_pw_aff(dim_function(sum.domain, result.term).release()));
    const isl::set whole = below(with_any_values(nest, sum, result.term, result.term), result.term, source.shape.back());
    if (!rows_only || !last.is_equal(term.intersect_domain(sum.domain)) || !domain_in(nest, sum).is_equal(whole))
      return std::nullopt;
  }
  return result;
}

/// Are the tensors' extents the same but for the last one?
bool same_rows(const Tensor& a, const Tensor& b) {
  return a.type == b.type && a.shape.size() == b.shape.size() &&
         std::equal(a.shape.begin(), a.shape.end() - 1, b.shape.begin(), [](const isl::pw_aff& x, const isl::pw_aff& y) {
           return isl_pw_aff_is_equal(over_params(x).get(), over_params(y).get()) == isl_bool_true;
         });
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

class SumJoiner {
 public:
  explicit SumJoiner(Nest nest) : nest_(std::move(nest)) {}

  /// False: there are none left.
  bool join_next() {
    const SumSet set = first_set(nest_);
    if (set.empty()) return false;
    std::vector<Statement> sums, starts;
    for (const PlainSum& each : set) {
      sums.push_back(*each.sum);
      starts.push_back(*each.start);
    }
    Statement sum = sums.front();
    const int term = set.front().term;
    const std::array<std::size_t, 2> operands = set.front().operands;
    std::array<std::string, 2> copies;
    for (const std::size_t k : {std::size_t{0}, std::size_t{1}}) {
      std::vector<const Access*> reads;
      for (std::size_t n = 0; n < set.size(); ++n) reads.push_back(&sums[n].reads[set[n].operands[k]]);
      copies[k] = copy_of(sums, reads);
    }
    const isl::pw_aff terms = nest_.tensor(copies[0]).shape.back();
    isl_set* domain = below(with_any_values(nest_, sum, term, term), term, terms).release();
    domain = isl_set_gist_params(isl_set_coalesce(domain), full_context(nest_).release());
    domain = isl_set_set_tuple_name(domain, sum.name.c_str());
    for (std::size_t k = 0; k < sum.dims.size(); ++k)
      domain = isl_set_set_dim_name(domain, isl_dim_set, static_cast<unsigned>(k), sum.dims[k].c_str());
    const isl::set before = domain_in(nest_, sum);
    sum.domain = isl::manage(domain);
    const auto moved = [&](const Access& access, const std::string& tensor) {
      std::vector<isl::pw_aff> functions = functions_on(access.relation, before);
      if (tensor != access.tensor) functions.back() = dim_function(sum.domain, term);
      return Access{tensor, relation_of(sum.domain, tensor, functions)};
    };
    sum.write = moved(sum.write, sum.write.tensor);
    for (const std::size_t k : {std::size_t{0}, std::size_t{1}})
      sum.reads[operands[k]] = moved(sum.reads[operands[k]], copies[k]);
    // Sums of the same copies stand together, so that they may share a loop over their terms.
    std::string& neighbour = sums_[copies];
    erase_statement(nest_, sum.name);
    erase_statement(nest_, starts.front().name);
    const std::size_t place =
        neighbour.empty() ? begin_with_initialisers(nest_, nest_.statement(sums.back().name)) : group_end(nest_, neighbour);
    neighbour = sum.name;
    insert_statement(nest_, place, starts.front());
    insert_statement(nest_, place + 1, sum);
    for (std::size_t n = 1; n < set.size(); ++n) drop(sums[n], starts[n]);
    drop_unused(nest_);
    return true;
  }

  Nest take() { return std::move(nest_); }

 private:
  /// The tensor with what `sums` read side by side, by statements before the last of them, unless there is one.
  std::string copy_of(const std::vector<Statement>& sums, const std::vector<const Access*>& reads) {
    std::vector<std::string> sources;
    for (const Access* read : reads) sources.push_back(read->tensor);
    std::string& known = copies_[sources];
    if (!known.empty()) return known;
    const std::string name = fresh_name(nest_, sources.front() + "_joined");
    Tensor joint = nest_.tensor(sources.front());
    joint.name = name;
    joint.role = TensorRole::temporary;
    joint.tolerance = {};
    std::vector<isl::pw_aff> offsets{joint.shape.back()};
    for (std::size_t n = 1; n < sources.size(); ++n) offsets.push_back(offsets.back().add(nest_.tensor(sources[n]).shape.back()));
    joint.shape.back() = offsets.back();
    nest_.tensors.push_back(joint);
    const std::size_t place = begin_with_initialisers(nest_, nest_.statement(sums.back().name));
    for (std::size_t n = 0; n < sources.size(); ++n) {
      const std::string own = n == 0 ? name : fresh_name(nest_, name + "_" + std::to_string(n + 1));
      Statement copy = copy_statement(nest_, nest_.tensor(sources[n]), sums[n], *reads[n], own);
      std::vector<isl::pw_aff> at;
      for (std::size_t k = 0; k < copy.dims.size(); ++k) at.push_back(dim_function(copy.domain, static_cast<int>(k)));
      if (n > 0) at.back() = at.back().add(over_params(offsets[n - 1]).insert_domain(copy.domain.space()));
      copy.write = {name, relation_of(copy.domain, name, at)};
      insert_statement(nest_, place + n, copy);
    }
    return known = name;
  }

  /// Leaves a sum out of the nest, and of what its readers add.
  void drop(const Statement& sum, const Statement& start) {
    erase_statement(nest_, sum.name);
    erase_statement(nest_, start.name);
    leave_out_of_additions(nest_, sum.write.tensor);
  }

  Nest nest_;
  std::map<std::vector<std::string>, std::string> copies_;  ///< by the tensors that they have side by side
  std::map<std::array<std::string, 2>, std::string> sums_;  ///< the last one of these copies
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
