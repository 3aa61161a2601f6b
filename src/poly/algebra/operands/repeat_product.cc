// Rule "repeat_product": a product that many others are made of is computed for each of them.
//
// Pattern    w_p = f(t_q, ..), a temporary that a sum of products reads as a factor, where t is a temporary that comes from a sum of products of
//            matrices (through elementwise definitions, too), and q does not follow some dims h of w (one map of scores for all heads).
// Rewrite    t'_hq and what it comes from, back to the sum, get the dims h, over all values that h has in w, behind as many dims as w has
//            in front of them; w reads t'_hq.
// Conditions nobody else reads t and what it comes from; their definitions are alone in their loops and stand before w. w reads no product
//            that follows all of h by itself.
// Proof      t'_hq = t_q for each h: the same operations on the same values.
// Rounding   none.
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>

#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"
#include "poly/isl/isl_tools.h"

namespace nestor {
namespace {

constexpr const char* kName = "repeat_product";

struct Repetition {
  std::size_t read = 0;           ///< of the statement, of the tensor that it shares with others
  std::vector<int> dims;          ///< of the statement, for whose values that tensor is computed anew
  std::set<std::string> tensors;  ///< that get these dims
};

bool sums_products(const Statement& statement) {
  return statement.reduction == ReductionOp::add && statement.value.op() == ScalarOp::mul;
}

/// A sum of products of matrices: each factor follows a dim of the result that the other does not. A sum of squares of a row is none.
bool multiplies_matrices(const Statement& statement) {
  if (!sums_products(statement)) return false;
  const ScalarExpr &a = statement.value.args()[0], &b = statement.value.args()[1];
  const std::vector<int> reduced = reduced_dims(statement);
  const auto has_own_dim = [&](const ScalarExpr& factor, const ScalarExpr& other) {
    for (int dim = 0; dim < static_cast<int>(statement.dims.size()); ++dim) {
      const bool written = std::find(reduced.begin(), reduced.end(), dim) == reduced.end();
      if (written && varies_along(statement, factor, dim) && !varies_along(statement, other, dim)) return true;
    }
    return false;
  };
  return has_own_dim(a, b) && has_own_dim(b, a);
}

/// The tensor and the temporaries that it comes from, back to sums; `sums` becomes true where one of them is one of products of matrices.
void add_sources(const Nest& nest, const std::string& tensor, std::set<std::string>& sources, bool& sums) {
  if (nest.tensor(tensor).role != TensorRole::temporary || !sources.insert(tensor).second) return;
  for (const Statement* writer : writers_of(nest, tensor)) {
    sums = sums || multiplies_matrices(*writer);
    for (const Access& read : writer->reads) {
      if (!writer->reduction) add_sources(nest, read.tensor, sources, sums);
    }
  }
}

/// Is everything that the repetition rewrites used by nothing else?
bool stands_alone(const Nest& nest, const Statement& statement, const Repetition& repetition) {
  for (const std::string& tensor : repetition.tensors) {
    for (const Statement* writer : writers_of(nest, tensor)) {
      if (writer->group >= statement.group || !alone_in_group(nest, writer->name)) return false;
    }
    for (const Statement* reader : readers_of(nest, tensor)) {
      if (reader->name != statement.name && !repetition.tensors.contains(reader->write.tensor)) return false;
    }
  }
  return true;
}

/// Does the statement read a product that has all dims of the repetition already? It has a place of its own, and what is shared is a bias to it.
bool has_product_for_each(const Nest& nest, const Statement& statement, const Repetition& repetition) {
  return std::any_of(statement.reads.begin(), statement.reads.end(), [&](const Access& read) {
    if (repetition.tensors.contains(read.tensor)) return false;
    const isl::map plain = read.relation.gist_domain(statement.domain);
    const bool all =
        std::all_of(repetition.dims.begin(), repetition.dims.end(), [&](int dim) { return depends_on_dim(plain, dim); });
    std::set<std::string> sources;
    bool sums = false;
    if (all) add_sources(nest, read.tensor, sources, sums);
    return sums;
  });
}

/// Sets `why` where there is none.
std::optional<Repetition> repetition_of(const Nest& nest, const Statement& statement, std::string& why) {
  why = "it defines no factor of a sum of products";
  if (statement.reduction || !is_elementwise_temporary(nest, statement.write.tensor)) return std::nullopt;
  const std::vector<const Statement*> readers = readers_of(nest, statement.write.tensor);
  if (std::none_of(readers.begin(), readers.end(), [](const Statement* reader) { return sums_products(*reader); }))
    return std::nullopt;
  why = "it reads no product that others of its elements share";
  for (std::size_t k = 0; k < statement.reads.size(); ++k) {
    Repetition found{k, {}, {}};
    for (int dim = 0; dim < static_cast<int>(statement.dims.size()); ++dim) {
      if (!depends_on_dim(statement.reads[k].relation.gist_domain(statement.domain), dim)) found.dims.push_back(dim);
    }
    bool sums = false;
    add_sources(nest, statement.reads[k].tensor, found.tensors, sums);
    if (!sums || found.dims.empty()) continue;
    const auto same = [&](const Access& read) { return found.tensors.contains(read.tensor); };
    why = "others read the product, or it shares its loops with other statements";
    if (std::count_if(statement.reads.begin(), statement.reads.end(), same) != 1 || !stands_alone(nest, statement, found))
      continue;
    why = "it reads a product of its own as well";
    if (has_product_for_each(nest, statement, found)) continue;
    why = "";
    return found;
  }
  return std::nullopt;
}

std::vector<RuleMatch> find(const Nest& nest) {
  std::string why;
  return matching_statements(nest, kName, [&](const Statement& statement) {
    const auto found = repetition_of(nest, statement, why);
    return !found ? ""
                  : statement.reads[found->read].tensor + " is computed for each element of " + statement.write.tensor +
                        " that is made of it";
  });
}

/// Copies of statements for each value of the dims of another one.
class Repeater {
 public:
  Repeater(const Nest& nest, const Statement& of, const Repetition& repetition)
      : nest_(nest), repetition_(repetition), count_(repetition.dims.size()) {
    const isl::set domain = domain_in(nest, of);
    isl_set* values = domain.copy();
    for (int dim = static_cast<int>(of.dims.size()); dim-- > 0;) {
      const bool kept = std::find(repetition.dims.begin(), repetition.dims.end(), dim) != repetition.dims.end();
      if (!kept) values = isl_set_project_out(values, isl_dim_set, static_cast<unsigned>(dim), 1);
    }
    values_ = isl::manage(isl_set_coalesce(values));
    for (const int dim : repetition.dims) {
      names_.push_back(of.dims[static_cast<std::size_t>(dim)]);
      extents_.push_back(extent_of(nest, of.domain, dim));
    }
  }

  Tensor repeated(Tensor tensor) const {
    tensor.shape.insert(tensor.shape.begin() + place(tensor.shape.size()), extents_.begin(), extents_.end());
    return tensor;
  }

  Statement repeated(const Statement& statement) const {
    Statement result = statement;
    const unsigned rank = static_cast<unsigned>(statement.dims.size()), at = place(rank);
    for (std::size_t k = 0; k < count_; ++k)
      result.dims.insert(result.dims.begin() + at + static_cast<std::ptrdiff_t>(k), fresh_dim(nest_, result.dims, names_[k]));
    isl_set* domain = isl_set_insert_dims(statement.domain.copy(), isl_dim_set, at, size());
    isl_set* values = isl_set_insert_dims(values_.copy(), isl_dim_set, size(), rank - at);
    values = isl_set_insert_dims(values, isl_dim_set, 0, at);
    domain = isl_set_intersect(isl_set_set_tuple_name(domain, statement.name.c_str()),
                               isl_set_set_tuple_name(values, statement.name.c_str()));
    result.domain = isl::manage(isl_set_coalesce(with_dim_names(domain, result.dims)));
    result.write = repeated(statement, statement.write);
    for (Access& read : result.reads) read = repeated(statement, read);
    for (isl::pw_aff& index : result.indices) {
      isl_pw_aff* function = isl_pw_aff_insert_dims(index.copy(), isl_dim_in, at, size());
      index = isl::manage(isl_pw_aff_set_tuple_id(function, isl_dim_in, isl_set_get_tuple_id(result.domain.get())));
    }
    return result;
  }

  /// What the statement that shares the tensor reads of it.
  Access read_by(const Statement& statement, const Access& read) const {
    return inserted(statement, read, repetition_.dims, read.relation);
  }

 private:
  unsigned size() const { return static_cast<unsigned>(count_); }

  /// Where the dims stand among so many others.
  unsigned place(std::size_t rank) const { return static_cast<unsigned>(std::min<std::size_t>(repetition_.dims.front(), rank)); }

  /// The access with new indices that equal the dims.
  static isl_map* set_names(isl_map* map, const Statement& statement, const std::string& tensor) {
    return isl_map_set_tuple_name(isl_map_set_tuple_name(map, isl_dim_in, statement.name.c_str()), isl_dim_out, tensor.c_str());
  }

  Access inserted(const Statement& statement, const Access& access, const std::vector<int>& dims,
                  const isl::map& relation) const {
    const unsigned at = place(isl_map_dim(relation.get(), isl_dim_out));
    isl_map* map = isl_map_insert_dims(relation.copy(), isl_dim_out, at, size());
    for (std::size_t k = 0; k < count_; ++k)
      map = isl_map_equate(map, isl_dim_in, dims[k], isl_dim_out, static_cast<int>(at + k));
    return {access.tensor, isl::manage(set_names(map, statement, access.tensor))};
  }

  Access repeated(const Statement& statement, const Access& access) const {
    const unsigned at = place(statement.dims.size());
    const isl::map relation =
        isl::manage(set_names(isl_map_insert_dims(access.relation.copy(), isl_dim_in, at, size()), statement, access.tensor));
    if (!repetition_.tensors.contains(access.tensor)) return {access.tensor, relation};
    std::vector<int> dims(count_);
    std::iota(dims.begin(), dims.end(), static_cast<int>(at));
    return inserted(statement, access, dims, relation);
  }

  const Nest& nest_;
  const Repetition& repetition_;
  const std::size_t count_;
  isl::set values_;  ///< of the dims
  std::vector<std::string> names_;
  std::vector<isl::pw_aff> extents_;
};

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const Repetition repetition = required_match(nest, kName, target, repetition_of);
  const Statement& shared = nest.statement(target[0]);
  const Repeater repeater(nest, shared, repetition);
  Nest result = nest;
  for (Tensor& tensor : result.tensors) {
    if (repetition.tensors.contains(tensor.name)) tensor = repeater.repeated(tensor);
  }
  for (Statement& statement : result.statements) {
    if (repetition.tensors.contains(statement.write.tensor)) statement = repeater.repeated(statement);
    if (statement.name == shared.name) statement.reads[repetition.read] = repeater.read_by(shared, shared.reads[repetition.read]);
  }
  return {std::move(result), {}, false};
}

}  // namespace

const Rule& repeat_product_rule() {
  static const Rule rule{kName,
                         "a product that others share is computed for each of them (argument: the statement that shares it)",
                         "each copy is made by the same operations on the same values",
                         "none",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
