// Rule "split_dims": a dim that holds parts side by side becomes two, where operands of products follow its parts.
//
// Pattern    r_e += a_p b_q, where a is read along floor(c / G), G a number, and b along c: out[i, c] += w[c / G, i, j] v[j, c], as heads of attention
//            lie side by side. So neither of them would be rows or columns of a product of matrices.
// Rewrite    dims h and e in place of c: what follows floor(c / G) follows h, c itself is G h + e. Temporaries that have c as an index have h and e,
//            in the sum and wherever values lead from there.
// Conditions both operands follow a dim of the result that the other one does not, then, and did not before. Each of these statements is alone in its
//            loops, has all values of c whatever its other dims are, whose number is a multiple of G, and touches such temporaries along c alone.
// Proof      c -> (floor(c / G), c mod G) is one to one onto the values of (h, e), in their order: the same operations on the same elements, in
//            the same order.
// Rounding   none.
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
#include "poly/algebra/operands/whole_dims.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr const char* kName = "split_dims";

/// What is split of a nest.
struct Parts {
  std::int64_t extent = 1;                    ///< G
  std::map<std::string, std::size_t> places;  ///< the index c of temporaries
  std::map<std::string, int> dims;            ///< c of statements
};

/// Numbers that one of the dims alone is divided by, in an index of a read.
std::set<std::pair<int, std::int64_t>> quotients_in(const Statement& statement) {
  std::set<std::pair<int, std::int64_t>> found;
  const auto look = [](isl_set* set, isl_aff* affine, void* user) {
    auto& all = *static_cast<std::set<std::pair<int, std::int64_t>>*>(user);
    for (int k = 0; k < static_cast<int>(isl_aff_dim(affine, isl_dim_div)); ++k) {
      isl_aff* quotient = isl_aff_get_div(affine, k);
      const isl::val divisor = isl::manage(isl_aff_get_denominator_val(quotient));
      for (int dim = 0; dim < static_cast<int>(isl_aff_dim(quotient, isl_dim_in)); ++dim) {
        const isl::val share = isl::manage(isl_aff_get_coefficient_val(quotient, isl_dim_in, dim));
        if (share.mul(divisor).is_one() && divisor.gt(1)) all.emplace(dim, divisor.get_num_si());
      }
      isl_aff_free(quotient);
    }
    isl_set_free(set);
    isl_aff_free(affine);
    return isl_stat_ok;
  };
  for (const Access& read : statement.reads) {
    for (const isl::pw_aff& function : functions_of(read.relation)) isl_pw_aff_foreach_piece(function.get(), look, &found);
  }
  return found;
}

std::optional<Statement> split_statement(const Nest& nest, const Statement& statement, const SplitDim& split) {
  std::optional<Statement> result = with_split_dim(nest, statement, split);
  if (!result) return result;
  for (Access& read : result->reads) read.relation = along_dims(nest, *result, read);
  result->write.relation = along_dims(nest, *result, result->write);
  return result;
}

class PartsFinder {
 public:
  explicit PartsFinder(const Nest& nest) : nest_(nest) {}

  std::optional<Parts> from(const Statement& sum, std::string& why) {
    why = "no two factors become rows and columns of a product where a dim is split that one of them is read along parts of";
    if (sum.reduction != ReductionOp::add || sum.value.op() != ScalarOp::mul || multiplies_rows_by_columns(nest_, sum))
      return std::nullopt;
    for (const auto& [dim, extent] : quotients_in(sum)) {
      const auto split = split_statement(nest_, sum, {dim, extent});
      if (!split || !multiplies_rows_by_columns(nest_, *split)) continue;
      parts_ = {extent, {}, {}};
      if (add(sum, dim, why) && complete(why)) return parts_;
    }
    return std::nullopt;
  }

 private:
  /// The statement, and the temporaries that it has along the dim; false: it cannot be split.
  bool add(const Statement& statement, int dim, std::string& why) {
    why = "a statement shares its loops with others, or has not all values of whole parts of the dim";
    if (!alone_in_group(nest_, statement.name) || !with_split_dim(nest_, statement, {dim, parts_.extent})) return false;
    parts_.dims[statement.name] = dim;
    std::vector<Access> all = statement.reads;
    all.push_back(statement.write);
    for (const Access& access : all) {
      const Tensor& tensor = nest_.tensor(access.tensor);
      if (tensor.role != TensorRole::temporary || parts_.places.contains(tensor.name)) continue;
      const std::vector<std::string> names = names_of_indices(statement, access);
      const auto place = std::find(names.begin(), names.end(), statement.dims[static_cast<std::size_t>(dim)]);
      if (place == names.end()) continue;
      const auto index = static_cast<std::size_t>(place - names.begin());
      const isl::pw_aff& size = tensor.shape[index];
      const isl::pw_aff parts = multiple_of(quotient_of(size, parts_.extent), parts_.extent);
      why = "a temporary holds no whole number of parts";
      if (known_value(nest_, size.sub(parts)) != 0) return false;
      parts_.places[tensor.name] = index;
    }
    return true;
  }

  /// Adds statements until all that touch the temporaries are there; false: one of them cannot be split.
  bool complete(std::string& why) {
    for (bool more = true; more;) {
      more = false;
      for (const Statement& statement : nest_.statements) {
        const std::set<std::string> along = dims_of(statement);
        if (along.empty()) continue;
        why = "a statement reads or writes one of its temporaries along other indices";
        if (along.size() > 1 || along.contains("")) return false;
        const auto dim =
            static_cast<int>(std::find(statement.dims.begin(), statement.dims.end(), *along.begin()) - statement.dims.begin());
        const auto known = parts_.dims.find(statement.name);
        if (known != parts_.dims.end() && known->second != dim) return false;
        if (known != parts_.dims.end()) continue;
        if (!add(statement, dim, why)) return false;
        more = true;
      }
    }
    return true;
  }

  /// Names of the dims along which it touches such temporaries; "": something else.
  std::set<std::string> dims_of(const Statement& statement) const {
    std::set<std::string> along;
    std::vector<Access> all = statement.reads;
    all.push_back(statement.write);
    for (const Access& access : all) {
      const auto known = parts_.places.find(access.tensor);
      if (known == parts_.places.end()) continue;
      const std::vector<std::string> names = names_of_indices(statement, access);
      along.insert(names.empty() ? "" : names[known->second]);
    }
    return along;
  }

  const Nest& nest_;
  Parts parts_;
};

/// Sets `why` where there are none.
std::optional<Parts> parts_of(const Nest& nest, const Statement& statement, std::string& why) {
  return PartsFinder(nest).from(statement, why);
}

std::vector<RuleMatch> find(const Nest& nest) {
  std::string why;
  return matching_statements(nest, kName, [&](const Statement& statement) {
    return parts_of(nest, statement, why) ? statement.name + " runs along parts and in them, in place of one dim" : "";
  });
}

/// The access of a statement that is split already, to a tensor that is not yet: two indices for one.
void split_access(const Statement& statement, Access& access, const Parts& parts, int dim) {
  const auto known = parts.places.find(access.tensor);
  if (known == parts.places.end()) return;
  std::vector<isl::pw_aff> functions = functions_of(access.relation);
  const auto place = functions.begin() + static_cast<std::ptrdiff_t>(known->second);
  *place = dim_function(statement.domain, dim + 1);
  functions.insert(place, dim_function(statement.domain, dim));
  access.relation = relation_of(statement.domain, access.tensor, functions);
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const Parts parts = required_match(nest, kName, target, parts_of);
  Nest result = nest;
  for (const auto& [name, dim] : parts.dims) {
    Statement statement = *split_statement(nest, nest.statement(name), {dim, parts.extent});
    for (Access& read : statement.reads) split_access(statement, read, parts, dim);
    split_access(statement, statement.write, parts, dim);
    replace_statement(result, statement);
  }
  for (Tensor& tensor : result.tensors) {
    const auto known = parts.places.find(tensor.name);
    if (known == parts.places.end()) continue;
    const auto place = tensor.shape.begin() + static_cast<std::ptrdiff_t>(known->second);
    const isl::pw_aff outer = quotient_of(*place, parts.extent);
    *place = place->sub(*place).add_constant(static_cast<long>(parts.extent));
    tensor.shape.insert(place, outer);
  }
  return {std::move(result), {}, false};
}

}  // namespace

const Rule& split_dims_rule() {
  static const Rule rule{kName,
                         "a dim that holds parts side by side becomes two, where operands follow its parts (argument: statement)",
                         "the dim is one to one with both, in their order: the same operations on the same elements",
                         "none",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
