// Rule "join_dims": two dims that reductions run over together become one.
//
// Pattern    A reduction over dims i and g of a temporary t_(.., i, g, ..), g with a known number G of values, as the softmax of attention whose keys
//            lie in an image. Temporaries that statements with t have along i and g, side by side, belong to it: t, and what leads from one to
//            the other. One of them is a product of matrices of 16 bits, or of 16 bits and a temporary of f32, an operand of which follows both
//            dims, and the other one neither.
// Rewrite    those temporaries have one index s = G i + g in place of two, and statements that touch them one dim s. What else follows i and g
//            follows floor(s / G) and s mod G. Operands of 16 bits of such products that are inputs with i and g side by side are copied before:
//            a'[.., G i + g, ..] = a[.., i, g, ..].
// Conditions each of these statements is alone in its loops, has all values of i and g whatever its other dims are, and touches such temporaries
//            along the same two dims. None is a sum of products one of whose operands follows one of the dims alone: rows of it would be apart.
// Proof      s -> (floor(s / G), s mod G) is one to one onto the values of (i, g), in their order: the same operations on the same elements, in
//            the same order.
// Rounding   none.
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
#include "poly/algebra/values/polynomial.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr const char* kName = "join_dims";

/// What is joined of a nest.
struct Joints {
  std::int64_t extent = 1;                    ///< G
  std::map<std::string, std::size_t> places;  ///< the index i of temporaries, before g
  std::map<std::string, JoinedDims> statements;
};

/// The places of dims i and g side by side among the indices; nullopt: there are none.
std::optional<std::size_t> place_of(const std::vector<std::string>& names, const std::string& i, const std::string& g) {
  for (std::size_t p = 0; p + 1 < names.size(); ++p) {
    if (names[p] == i && names[p + 1] == g) return p;
  }
  return std::nullopt;
}

std::vector<Access> accesses_of(const Statement& statement) {
  std::vector<Access> all = statement.reads;
  all.push_back(statement.write);
  return all;
}

/// Do the factors of a product of matrices follow both dims, or none of them?
bool keeps_product(const Statement& sum, const JoinedDims& dims) {
  if (sum.reduction != ReductionOp::add || sum.value.op() != ScalarOp::mul) return true;
  return std::all_of(sum.reads.begin(), sum.reads.end(), [&](const Access& read) {
    return depends_on_dim(read.relation, dims.outer) == depends_on_dim(read.relation, dims.inner);
  });
}

/// Is it a product of matrices of 16 bits, one of which may be computed in f32, and has one of them the dims as its columns?
bool has_columns(const Nest& nest, const Statement& sum, const JoinedDims& dims) {
  if (!depends_on_dim(sum.write.relation, dims.outer)) return false;
  std::vector<std::pair<std::size_t, std::size_t>> pairs = wide_and_half(nest, sum);
  if (const auto halves = half_products(sum)) pairs.push_back(*halves);
  const auto follows = [&](std::size_t operand) { return depends_on_dim(sum.reads[operand].relation, dims.outer); };
  return std::any_of(pairs.begin(), pairs.end(), [&](const auto& pair) {
    const auto [a, b] = pair;
    return follows_own_dim(sum, a, b) && follows_own_dim(sum, b, a) && follows(a) != follows(b);
  });
}

class JointsFinder {
 public:
  explicit JointsFinder(const Nest& nest) : nest_(nest) {}

  std::optional<Joints> from(const Statement& reduction, std::string& why) {
    why = "it reduces no temporary along two indices side by side, the second one of a known extent";
    const std::vector<int> reduced = reduced_dims(reduction);
    const auto is_reduced = [&](const std::string& name) {
      return std::any_of(reduced.begin(), reduced.end(),
                         [&](int dim) { return reduction.dims[static_cast<std::size_t>(dim)] == name; });
    };
    if (!reduction.reduction || reduced.size() < 2) return std::nullopt;
    for (const Access& read : reduction.reads) {
      if (!is_temporary(read.tensor)) continue;
      const std::vector<std::string>& names = names_of(reduction, read);
      for (std::size_t p = 0; p + 1 < names.size(); ++p) {
        if (!is_reduced(names[p]) || !is_reduced(names[p + 1]) || names[p] == names[p + 1]) continue;
        const auto extent = known_value(nest_, extent_of(nest_, reduction.domain, dim_of(reduction, names[p + 1])));
        if (!extent || *extent < 2) continue;
        joints_ = {*extent, {{read.tensor, p}}, {}};
        if (complete(why)) return joints_;
      }
    }
    return std::nullopt;
  }

 private:
  /// names_of_indices, worked out once.
  const std::vector<std::string>& names_of(const Statement& statement, const Access& access) const {
    const auto [known, added] = names_.try_emplace(statement.name + " " + access.tensor + " " + isl_text(access.relation));
    if (added) known->second = names_of_indices(statement, access);
    return known->second;
  }

  bool is_temporary(const std::string& tensor) const { return nest_.tensor(tensor).role == TensorRole::temporary; }

  static int dim_of(const Statement& statement, const std::string& name) {
    return static_cast<int>(std::find(statement.dims.begin(), statement.dims.end(), name) - statement.dims.begin());
  }

  /// Adds statements and temporaries until all that belong together are there; false: one of them cannot be joined.
  bool complete(std::string& why) {
    bool columns = false;
    for (bool more = true; more;) {
      more = false;
      for (const Statement& statement : nest_.statements) {
        const auto dims = dims_of(statement, why);
        if (!dims) return false;
        if (dims->outer == dims->inner) continue;  // it touches none of them
        joints_.statements[statement.name] = *dims;
        columns = columns || has_columns(nest_, statement, *dims);
        const auto name = [&](int dim) { return statement.dims[static_cast<std::size_t>(dim)]; };
        for (const Access& access : accesses_of(statement)) {
          if (!is_temporary(access.tensor) || joints_.places.contains(access.tensor)) continue;
          const auto place = place_of(names_of(statement, access), name(dims->outer), name(dims->inner));
          if (place) joints_.places[access.tensor] = *place, more = true;
        }
      }
    }
    why = "no product of 16-bit matrices has these dims as its columns";
    return columns;
  }

  /// The dims along which the statement touches such temporaries; twice the same: it touches none; nullopt: it cannot be joined.
  std::optional<JoinedDims> dims_of(const Statement& statement, std::string& why) const {
    JoinedDims found;
    for (const Access& access : accesses_of(statement)) {
      const auto known = joints_.places.find(access.tensor);
      if (known == joints_.places.end()) continue;
      const std::vector<std::string>& names = names_of(statement, access);
      why = "a statement reads or writes one of its temporaries along other indices";
      if (names.empty() || names[known->second] == names[known->second + 1]) return std::nullopt;
      const JoinedDims dims{dim_of(statement, names[known->second]), dim_of(statement, names[known->second + 1]), joints_.extent};
      if (found.outer != found.inner && (found.outer != dims.outer || found.inner != dims.inner)) return std::nullopt;
      found = dims;
    }
    if (found.outer == found.inner) return found;
    why = "a statement shares its loops with others, or has not all values of both dims";
    if (!alone_in_group(nest_, statement.name) || !have_all_values(nest_, statement, found.outer, found.inner, joints_.extent))
      return std::nullopt;
    why = "a factor of a product follows one of the dims alone";
    return keeps_product(statement, found) ? std::optional(found) : std::nullopt;
  }

  const Nest& nest_;
  Joints joints_;
  mutable std::map<std::string, std::vector<std::string>> names_;
};

/// Sets `why` where there are none.
std::optional<Joints> joints_of(const Nest& nest, const Statement& statement, std::string& why) {
  return JointsFinder(nest).from(statement, why);
}

std::vector<RuleMatch> find(const Nest& nest) {
  std::string why;
  JointsFinder finder(nest);
  return matching_statements(nest, kName, [&](const Statement& statement) {
    return finder.from(statement, why) ? statement.name + " runs along one dim in place of two" : "";
  });
}

class DimsJoiner {
 public:
  DimsJoiner(const Nest& nest, const Joints& joints) : nest_(nest), joints_(joints) {}

  Nest apply() {
    copy_operands();
    for (const auto& [name, dims] : joints_.statements) {
      Statement statement = with_joined_dims(nest_, nest_.statement(name), dims);
      for (Access& read : statement.reads) join(statement, read);
      join(statement, statement.write);
      replace_statement(nest_, statement);
    }
    for (const auto& [name, place] : joints_.places) {
      for (Tensor& tensor : nest_.tensors) {
        if (tensor.name == name) join_shape(tensor, place);
      }
    }
    return std::move(nest_);
  }

 private:
  /// G a + b.
  isl::pw_aff joined(const isl::pw_aff& a, const isl::pw_aff& b) const {
    return multiple_of(a, joints_.extent).coalesce().add(b);
  }

  void join_shape(Tensor& tensor, std::size_t place) const {
    tensor.shape[place] = multiple_of(tensor.shape[place], joints_.extent);
    tensor.shape.erase(tensor.shape.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  }

  std::vector<isl::pw_aff> joined_at(std::vector<isl::pw_aff> functions, std::size_t place) const {
    functions[place] = joined(functions[place], functions[place + 1]);
    functions.erase(functions.begin() + static_cast<std::ptrdiff_t>(place) + 1);
    return functions;
  }

  /// The access of a statement that is joined already, to a tensor that is not yet: one index for two.
  void join(const Statement& statement, Access& access) const {
    const auto known = joints_.places.find(access.tensor);
    if (known == joints_.places.end()) return;
    const isl::map both = relation_of(statement.domain, access.tensor, joined_at(functions_of(access.relation), known->second));
    // Quotient and remainder of one dim are that dim.
    isl_map* relation = isl_map_gist_domain(isl_map_coalesce(both.copy()), domain_in(nest_, statement).release());
    access.relation = isl::manage(isl_map_detect_equalities(relation));
    access.relation = along_dims(nest_, statement, access);
  }

  /// Inputs of 16 bits that products multiply along both dims, side by side, by statements of their own.
  void copy_operands() {
    std::map<std::string, std::string> copies;  // by input
    for (const auto& [name, dims] : joints_.statements) {
      Statement sum = nest_.statement(name);
      if (sum.reduction != ReductionOp::add || sum.value.op() != ScalarOp::mul) continue;
      for (Access& read : sum.reads) {
        const Tensor input = nest_.tensor(read.tensor);
        if (input.role != TensorRole::input || size_in_bytes(input.type) != 2) continue;
        const auto name_of = [&](int dim) { return sum.dims[static_cast<std::size_t>(dim)]; };
        const auto place = place_of(names_of_indices(sum, read), name_of(dims.outer), name_of(dims.inner));
        if (!place) continue;
        const std::string key = input.name + " " + std::to_string(*place);
        if (!copies.contains(key)) copies[key] = add_copy(sum, read, *place);
        read = {copies[key], read.relation.set_range_tuple(copies[key])};
        joints_.places[copies[key]] = *place;
      }
      sum.group = nest_.statement(name).group;
      replace_statement(nest_, sum);
    }
  }

  std::string add_copy(const Statement& sum, const Access& read, std::size_t place) {
    const Tensor input = nest_.tensor(read.tensor);
    const std::string name = fresh_name(nest_, read.tensor + "_joined");
    Statement copy = copy_statement(nest_, input, sum, read, name);
    Tensor tensor = input;
    tensor.name = name;
    tensor.role = TensorRole::temporary;
    tensor.tolerance.reset();
    nest_.tensors.push_back(tensor);  // its shape is joined with the others
    copy.write.relation = relation_of(copy.domain, name, joined_at(functions_of(copy.write.relation), place));
    insert_statement(nest_, begin_with_initialisers(nest_, nest_.statement(first_of(sum))), copy);
    return name;
  }

  /// The statement before which a copy stands: all that read it are behind.
  std::string first_of(const Statement& sum) const {
    std::string first = sum.name;
    for (const auto& [name, dims] : joints_.statements) {
      if (position_of(nest_, name) < position_of(nest_, first)) first = name;
    }
    return first;
  }

  Nest nest_;
  Joints joints_;
};

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const Joints joints = required_match(nest, kName, target, joints_of);
  return {DimsJoiner(nest, joints).apply(), {}, false};
}

}  // namespace

const Rule& join_dims_rule() {
  static const Rule rule{kName,
                         "two dims that reductions run over together become one (argument: reduction)",
                         "the joined dim is one to one with both, in their order: the same operations on the same elements",
                         "none",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
