// Rule "leave_out": a reduction that leaves out a place of its own is one of all before and one of all behind.
//
// Pattern    r_et = (+) over k of f_ek, for k < t and for k > t (the largest of all others; a product or a sum of all but one), or for
//            k < t - 2 and k > t + 2, an interval. f does not follow t.
// Rewrite    p_et takes f_ek for the k before, q_et for those behind, and r_et = p_et (+) q_et: reductions of prefixes and suffixes, which
//            kernels make in one pass over the terms. Nothing is taken away again, so extrema and products are as good as sums.
// Conditions f32 or i32; r starts from the neutral element, and nobody reads it before; the reduction is alone in its loops and reduces one
//            dim; its domain is two convex pieces of which one comes first along that dim, for each e and t; f leaves an index of r
//            free that the pieces follow.
// Proof      associativity and commutativity; the pieces are disjoint, and all of the domain. What has no terms is the neutral element.
// Rounding   as reassociate.
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <optional>

#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/builders.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr const char* kName = "leave_out";

struct Sides {
  isl::set before, behind;
};

/// Is each point of `first` before all points of `second` that differ from it in the dim alone?
bool comes_first(const isl::set& first, const isl::set& second, int dim) {
  isl_map* pairs = isl_map_from_domain_and_range(first.copy(), second.copy());
  for (int k = 0; k < static_cast<int>(isl_map_dim(pairs, isl_dim_in)); ++k) {
    if (k != dim) pairs = isl_map_equate(pairs, isl_dim_in, k, isl_dim_out, k);
  }
  return isl::manage(isl_map_order_ge(pairs, isl_dim_in, dim, isl_dim_out, dim)).is_empty();
}

/// The convex pieces of a domain that is two of them, one after the other along the dim.
std::optional<Sides> sides_of(const isl::set& domain, int dim) {
  const isl::set whole = domain.coalesce();
  if (isl_set_n_basic_set(whole.get()) != 2) return std::nullopt;
  std::vector<isl::set> pieces;
  isl_set_foreach_basic_set(
      whole.get(),
      [](isl_basic_set* piece, void* user) {
        static_cast<std::vector<isl::set>*>(user)->push_back(isl::manage(isl_set_from_basic_set(piece)));
        return isl_stat_ok;
      },
      &pieces);
  if (comes_first(pieces[0], pieces[1], dim)) return Sides{pieces[0], pieces[1]};
  if (comes_first(pieces[1], pieces[0], dim)) return Sides{pieces[1], pieces[0]};
  return std::nullopt;
}

/// Does the term leave a dim free that both sides follow, and that tells results apart?
bool terms_serve_many(const Statement& statement, const Sides& sides, int reduced) {
  const auto follows = [&](const isl::set& side, int dim) {
    return isl_set_involves_dims(side.get(), isl_dim_set, static_cast<unsigned>(dim), 1) == isl_bool_true;
  };
  for (int dim = 0; dim < static_cast<int>(statement.dims.size()); ++dim) {
    if (dim == reduced || varies_along(statement, statement.value, dim)) continue;
    const auto bounded = [&](const isl::set& side) {  // together with the reduced dim, not by itself
      isl_set* alone = isl_set_project_out(side.copy(), isl_dim_set, static_cast<unsigned>(reduced), 1);
      isl_set* free = isl_set_insert_dims(alone, isl_dim_set, static_cast<unsigned>(reduced), 1);
      free = isl_set_set_tuple_id(free, isl_set_get_tuple_id(side.get()));
      const isl::set rest = isl::manage(isl_set_gist(side.copy(), free));
      return follows(rest, dim) && follows(rest, reduced);
    };
    if (bounded(sides.before) && bounded(sides.behind)) return true;
  }
  return false;
}

std::optional<Sides> planned(const Nest& nest, const Statement& statement, std::string& why) {
  const Tensor& tensor = nest.tensor(statement.write.tensor);
  why = "it is no reduction of f32 or i32";
  if (!statement.reduction || statement.value.type() != tensor.type ||
      (tensor.type != ElementType::f32 && tensor.type != ElementType::i32))
    return std::nullopt;
  const auto reads_own = [&](const Access& read) { return read.tensor == tensor.name; };
  const std::vector<const Statement*> starts = initialisers_of(nest, statement);
  why = "it does not start from the neutral element, alone in its loops";
  if (starts.size() != 1 || writers_of(nest, tensor.name).size() != 2 || !alone_in_group(nest, statement.name) ||
      !alone_in_group(nest, starts.front()->name) || std::any_of(statement.reads.begin(), statement.reads.end(), reads_own) ||
      !starts_from(nest, statement, neutral_element(*statement.reduction, tensor.type)))
    return std::nullopt;
  why = "others read its results before";
  for (const Statement* reader : readers_of(nest, tensor.name)) {
    if (reader->group < statement.group) return std::nullopt;
  }
  why = "it does not reduce one dim";
  const std::vector<int> reduced = reduced_dims(statement);
  if (reduced.size() != 1) return std::nullopt;
  why = "its points are not those before a place and those behind it";
  const isl::set domain = isl::manage(isl_set_gist_params(domain_in(nest, statement).release(), full_context(nest).release()));
  auto sides = sides_of(domain, reduced.front());
  if (!sides) return std::nullopt;
  why = "its terms follow the place that they leave out";
  if (!terms_serve_many(statement, *sides, reduced.front())) return std::nullopt;
  return sides;
}

class SidesEdit {
 public:
  SidesEdit(const Nest& nest, const Statement& statement, const Sides& sides)
      : result_(nest), statement_(statement), start_(*initialisers_of(nest, statement).front()) {
    const Access before = add_side("before", sides.before), behind = add_side("behind", sides.behind);
    Statement both = renamed(start_, fresh_name(result_, statement.name));
    const ElementType type = result_.tensor(statement_.write.tensor).type;
    const auto read = [&](const Access& side) {
      return ScalarExpr::read(add_read(both, {side.tensor, both.write.relation.set_range_tuple(side.tensor)}), type);
    };
    both.value = ScalarExpr::make(combiner(*statement_.reduction), {read(before), read(behind)});
    insert(both);
    erase_statement(result_, start_.name);
    erase_statement(result_, statement_.name);
  }

  Nest take() { return std::move(result_); }

 private:
  void insert(const Statement& statement) { insert_statement(result_, position_of(result_, statement_.name), statement); }

  /// A reduction of one side into a tensor of its own; returns its write.
  Access add_side(const char* side, const isl::set& points) {
    Tensor results = result_.tensor(statement_.write.tensor);
    results.role = TensorRole::temporary;
    results.tolerance = {};
    results.name = fresh_name(result_, results.name + "_" + side);
    result_.tensors.push_back(results);
    const auto into = [&](const Statement& like, const std::string& name) {
      Statement statement = renamed(like, fresh_name(result_, name));
      statement.write = {results.name, statement.write.relation.set_range_tuple(results.name)};
      return statement;
    };
    insert(into(start_, results.name + "_init"));
    Statement reduction = into(statement_, results.name);
    isl::set domain = isl::manage(isl_set_set_tuple_name(points.copy(), reduction.name.c_str()));
    domain = isl::manage(with_dim_names(domain.release(), reduction.dims));
    reduction.domain = domain;
    const auto on_side = [&](const isl::map& relation) { return relation.intersect_domain(domain).gist_domain(domain); };
    reduction.write.relation = on_side(reduction.write.relation);
    for (Access& read : reduction.reads) read.relation = on_side(read.relation);
    insert(reduction);
    return reduction.write;
  }

  Nest result_;
  const Statement statement_, start_;
};

std::vector<RuleMatch> find(const Nest& nest) {
  std::string why;
  return matching_statements(nest, kName, [&](const Statement& statement) {
    return planned(nest, statement, why) ? statement.name + " is a reduction of all before and one of all behind" : "";
  });
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const Sides sides = required_match(nest, kName, target, planned);
  return {SidesEdit(nest, nest.statement(target.front()), sides).take(), {}, true};
}

}  // namespace

const Rule& leave_out_rule() {
  static const Rule rule{
      kName,
      "a reduction that leaves out a place of its own is one of all before and one of all behind (argument: statement)",
      "associativity and commutativity of disjoint parts",
      "as reassociate",
      find,
      apply};
  return rule;
}

}  // namespace nestor
