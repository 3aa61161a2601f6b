// Rule "join_sums": two sums of products that are only added together become one, over operands that lie side by side in copies.
//
// Pattern    u_e = sum over k < K of a_(i, k) b_(j, k), v_e = sum over p < P of c_(i, p) d_(j, p), where all readers of u and v read u_e + v_e;
//            a, b, c and d have 16 bits, i and j follow e alike, and k and p are last indices (x W + h U of a recurrent cell).
// Rewrite    a'_(i, q) = a_(i, q) for q < K, c_(i, q - K) beyond, for all elements of a and c, and b' alike; u_e = sum over q < K + P of
//            a'_(i, q) b'_(j, q), and readers read u_e alone. Sums that read the same two tensors share their copy.
// Conditions both sums have all of k and p at all e, start from 0, and stand alone in their loops, as what starts them does; a and c have
//            equal extents but for the last, as b and d have, and one definition at most, before the copies.
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
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr const char* kName = "join_sums";

/// A sum with one reduced dim, which is the last index of both operands.
struct PlainSum {
  const Statement* sum = nullptr;
  const Statement* start = nullptr;
  std::array<std::size_t, 2> operands{};  ///< ordinals of reads
  int term = 0;                           ///< the reduced dim
};

/// Two sums, the earlier one first, with operands that correspond.
struct SumPair {
  PlainSum first, second;
};

isl::map plain_names(const isl::map& relation) {
  isl_map* plain = isl_map_reset_tuple_id(isl_map_reset_tuple_id(relation.copy(), isl_dim_in), isl_dim_out);
  return isl::manage(plain);
}

/// { result -> indices of the operand but for the last one }.
isl::map rows_of(const Nest& nest, const PlainSum& plain, std::size_t operand) {
  const isl::set domain = domain_in(nest, *plain.sum);
  isl_map* read = plain.sum->reads[operand].relation.intersect_domain(domain).release();
  read = isl_map_project_out(read, isl_dim_out, isl_map_dim(read, isl_dim_out) - 1, 1);
  return plain_names(plain.sum->write.relation.intersect_domain(domain).reverse().apply_range(isl::manage(read)));
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
      !alone_in_group(nest, starts.front()->name) || reduced.size() != 1 || written.size() + 1 != sum.dims.size())
    return std::nullopt;
  const auto [a, b] = *half_products(sum);
  const PlainSum result{&sum, starts.front(), {a, b}, reduced.front()};
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

/// The pair that two tensors make, with operands of the second in the order of the first's.
std::optional<SumPair> pair_of(const Nest& nest, const std::string& one, const std::string& other) {
  auto first = plain_sum(nest, one), second = plain_sum(nest, other);
  if (one == other || !first || !second) return std::nullopt;
  if (second->sum->group < first->sum->group) std::swap(first, second);
  const auto results = [&](const PlainSum& plain) {
    return isl::manage(
        isl_set_reset_tuple_id(plain.sum->write.relation.intersect_domain(domain_in(nest, *plain.sum)).range().release()));
  };
  if (!results(*first).is_equal(results(*second))) return std::nullopt;
  const std::size_t copies = begin_with_initialisers(nest, *second->sum);
  for (const bool turned : {false, true}) {
    if (turned) std::swap(second->operands[0], second->operands[1]);
    bool fits = true;
    for (const std::size_t k : {std::size_t{0}, std::size_t{1}}) {
      const std::string &a = first->sum->reads[first->operands[k]].tensor, &c = second->sum->reads[second->operands[k]].tensor;
      fits = fits && same_rows(nest.tensor(a), nest.tensor(c)) &&
             rows_of(nest, *first, first->operands[k]).is_equal(rows_of(nest, *second, second->operands[k]));
      for (const std::string& tensor : {a, c}) {
        for (const Statement* writer : writers_of(nest, tensor)) fits = fits && position_of(nest, writer->name) < copies;
      }
    }
    if (fits) return SumPair{*first, *second};
  }
  return std::nullopt;
}

/// Is it the sum of elements of both tensors at the same place?
bool adds(const Statement& reader, const ScalarExpr& value, const std::string& one, const std::string& other) {
  if (value.op() != ScalarOp::add) return false;
  for (const ScalarExpr& arg : value.args()) {
    if (arg.op() != ScalarOp::read) return false;
  }
  const Access &a = reader.reads[static_cast<std::size_t>(value.args()[0].ordinal())],
               &b = reader.reads[static_cast<std::size_t>(value.args()[1].ordinal())];
  const bool both = (a.tensor == one && b.tensor == other) || (a.tensor == other && b.tensor == one);
  return both && a.relation.intersect_domain(reader.domain)
                     .is_equal(b.relation.set_range_tuple(a.tensor).intersect_domain(reader.domain));
}

/// Does everybody who reads either tensor read the sum of both?
bool always_added(const Nest& nest, const std::string& one, const std::string& other) {
  for (const Statement& reader : nest.statements) {
    int reads = 0, added = 0;
    reader.value.visit([&](const ScalarExpr& node) {
      if (adds(reader, node, one, other)) added += 2;
      if (node.op() != ScalarOp::read) return;
      const std::string& tensor = reader.reads[static_cast<std::size_t>(node.ordinal())].tensor;
      reads += tensor == one || tensor == other ? 1 : 0;
    });
    if (reads != added) return false;
  }
  return true;
}

/// The pair whose later sum stands first.
std::optional<SumPair> first_pair(const Nest& nest) {
  std::optional<SumPair> found;
  std::set<std::set<std::string>> seen;
  for (const Statement& reader : nest.statements) {
    reader.value.visit([&](const ScalarExpr& node) {
      if (node.op() != ScalarOp::add || node.args()[0].op() != ScalarOp::read || node.args()[1].op() != ScalarOp::read) return;
      const std::string &one = reader.reads[static_cast<std::size_t>(node.args()[0].ordinal())].tensor,
                        &other = reader.reads[static_cast<std::size_t>(node.args()[1].ordinal())].tensor;
      if (!adds(reader, node, one, other) || !seen.insert({one, other}).second) return;
      const auto pair = pair_of(nest, one, other);
      if (!pair || (found && found->second.sum->group <= pair->second.sum->group) || !always_added(nest, one, other)) return;
      found = pair;
    });
  }
  return found;
}

class SumJoiner {
 public:
  explicit SumJoiner(Nest nest) : nest_(std::move(nest)) {}

  /// False: there is no pair left.
  bool join_next() {
    const auto pair = first_pair(nest_);
    if (!pair) return false;
    const std::string one = pair->first.sum->write.tensor, other = pair->second.sum->write.tensor;
    Statement sum = *pair->first.sum;
    const Statement start = *pair->first.start;
    const int term = pair->first.term;
    std::array<std::string, 2> copies;
    const Statement second = *pair->second.sum;
    const std::array<std::size_t, 2> of_second = pair->second.operands, of_first = pair->first.operands;
    const std::string second_start = pair->second.start->name;
    for (const std::size_t k : {std::size_t{0}, std::size_t{1}})
      copies[k] = copy_of(sum, sum.reads[of_first[k]], second, second.reads[of_second[k]]);
    const isl::pw_aff terms = nest_.tensor(copies[0]).shape.back();
    isl_set* domain = below(with_any_values(nest_, sum, term, term), term, terms).release();
    domain = isl_set_gist_params(isl_set_coalesce(domain), full_context(nest_).release());
    domain = isl_set_set_tuple_name(domain, sum.name.c_str());
    for (std::size_t k = 0; k < sum.dims.size(); ++k)
      domain = isl_set_set_dim_name(domain, isl_dim_set, static_cast<unsigned>(k), sum.dims[k].c_str());
    const isl::set before = domain_in(nest_, sum);
    sum.domain = isl::manage(domain);
    const auto moved = [&](const Access& access, const std::string& tensor) {
      std::vector<isl::pw_aff> functions = functions_of(access.relation.gist_domain(before));
      if (tensor != access.tensor) functions.back() = dim_function(sum.domain, term);
      return Access{tensor, relation_of(sum.domain, tensor, functions)};
    };
    sum.write = moved(sum.write, sum.write.tensor);
    for (const std::size_t k : {std::size_t{0}, std::size_t{1}})
      sum.reads[of_first[k]] = moved(sum.reads[of_first[k]], copies[k]);
    for (const std::string& name : {sum.name, start.name, second.name}) erase_statement(nest_, name);
    // Sums of the same copies stand together, so that they may share a loop over their terms.
    std::string& neighbour = sums_[copies];
    const std::size_t place = neighbour.empty() ? position_of(nest_, second_start) : group_end(nest_, neighbour);
    neighbour = sum.name;
    erase_statement(nest_, second_start);
    insert_statement(nest_, place, start);
    insert_statement(nest_, place + 1, sum);
    for (Statement& reader : nest_.statements) read_one(reader, one, other);
    drop_unused(nest_);
    std::erase_if(nest_.tensors, [&](const Tensor& each) { return each.name == other; });
    return true;
  }

  Nest take() { return std::move(nest_); }

 private:
  /// The tensor with both operands side by side, by statements before the second sum, unless there is one.
  std::string copy_of(const Statement& first, const Access& left, const Statement& second, const Access& right) {
    std::string& known = copies_[{left.tensor, right.tensor}];
    if (!known.empty()) return known;
    const std::string name = fresh_name(nest_, left.tensor + "_joined");
    Tensor joint = nest_.tensor(left.tensor);
    const Tensor beside = nest_.tensor(right.tensor);
    const isl::pw_aff offset = joint.shape.back();
    joint.name = name;
    joint.role = TensorRole::temporary;
    joint.tolerance = {};
    joint.shape.back() = offset.add(beside.shape.back());
    nest_.tensors.push_back(joint);
    const std::size_t place = begin_with_initialisers(nest_, nest_.statement(second.name));
    insert_statement(nest_, place, copy_statement(nest_, nest_.tensor(left.tensor), first, left, name));
    Statement copy = copy_statement(nest_, beside, second, right, fresh_name(nest_, name + "_2"));
    std::vector<isl::pw_aff> at;
    for (std::size_t k = 0; k < copy.dims.size(); ++k) at.push_back(dim_function(copy.domain, static_cast<int>(k)));
    at.back() = at.back().add(over_params(offset).insert_domain(copy.domain.space()));
    copy.write = {name, relation_of(copy.domain, name, at)};
    insert_statement(nest_, place + 1, copy);
    return known = name;
  }

  static void read_one(Statement& reader, const std::string& one, const std::string& other) {
    bool changed = false;
    reader.value = reader.value.rewrite([&](const ScalarExpr& node) {
      if (!adds(reader, node, one, other)) return node;
      changed = true;
      const bool left = reader.reads[static_cast<std::size_t>(node.args()[0].ordinal())].tensor == one;
      return node.args()[left ? 0 : 1];
    });
    if (changed) compact(reader);
  }

  Nest nest_;
  std::map<std::pair<std::string, std::string>, std::string> copies_;  ///< by the tensors that they have side by side
  std::map<std::array<std::string, 2>, std::string> sums_;             ///< the last one of these copies
};

std::vector<RuleMatch> find(const Nest& nest) {
  const auto pair = first_pair(nest);
  if (!pair) return {};
  return {{kName,
           {},
           "sums that are added together become one, " + pair->first.sum->name + " and " + pair->second.sum->name + " first"}};
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
