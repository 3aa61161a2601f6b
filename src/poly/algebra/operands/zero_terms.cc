// Rule "zero_terms": a sum of products over a part of its rows gets whole rows, with zeros for the terms that it left out.
//
// Pattern    r_e += a_p b_q, where a and b are tensors of 16 bits, or both of f32, each follows a dim of e that the other does not, and the reduced dims
//            have other values for some e than for others, as under a triangular mask (sum over j <= i of w[i, j] x[j, d]).
// Rewrite    a'_p = a_p for the terms of the sum, 0 for all others of the rectangle around them, behind the definition of a, or before the sum,
//            which reads a' and runs over the rectangle. The same with b in the place of a. Sums with the same terms share a'.
// Conditions the sum is alone in its loops and starts from 0; no element of a has terms within and without; b is there for all terms.
// Proof      r_e + 0 b_q = r_e for a finite b_q. A sum that starts from +0 is never -0, so that +0 or -0 changes nothing.
// Special    b must be finite in masked places (docs/values.md): 0 times an infinity or NaN is NaN.
// Rounding   none: the products are 0.
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "poly/algebra/operands/half_products.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/builders.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr const char* kName = "zero_terms";

struct Filling {
  std::size_t filled = 0, other = 0;  ///< ordinals of reads
  isl::set whole;                     ///< domain of the sum after the rule
  isl::map filled_access, other_access;
  isl::set kept, zeros;  ///< elements of the filled operand: { Tensor[index] }
};

/// What is left of the domain without what ties reduced dims to others: { Sum[dims] }.
isl::set rectangle_around(const Nest& nest, const Statement& sum) {
  const std::vector<int> reduced = reduced_dims(sum);
  const auto without = [&](bool of_reduced) {
    isl_set* rest = domain_in(nest, sum).release();
    for (int dim = 0; dim < static_cast<int>(sum.dims.size()); ++dim) {
      const bool is_reduced = std::find(reduced.begin(), reduced.end(), dim) != reduced.end();
      if (is_reduced == of_reduced) rest = isl_set_eliminate(rest, isl_dim_set, static_cast<unsigned>(dim), 1);
    }
    return isl::manage(rest);
  };
  return without(true).intersect(without(false)).coalesce();
}

/// An access on a larger domain than it was written down for.
isl::map extended(const Access& access, const isl::set& domain) {
  isl_map* plain = isl_map_gist_domain(access.relation.copy(), isl_map_domain(access.relation.copy()));
  return isl::manage(plain).intersect_domain(domain);
}

isl::set box_of(const Nest& nest, const std::string& tensor) {
  return tensor_box(nest.tensor(tensor)).intersect_params(full_context(nest));
}

/// Does the access meet elements that have a value, of an input or written by statements?
bool meets_values(const Nest& nest, const isl::map& access, const std::string& tensor) {
  isl::set elements = box_of(nest, tensor);
  if (nest.tensor(tensor).role != TensorRole::input) {
    isl::set written = isl::set::empty(elements.space());
    for (const Statement* writer : writers_of(nest, tensor))
      written = written.unite(writer->write.relation.intersect_domain(domain_in(nest, *writer)).range());
    elements = elements.intersect(written);
  }
  return access.range().is_subset(elements);
}

/// Sets `why` where there is none.
std::optional<Filling> filling_of(const Nest& nest, const Statement& sum, std::string& why) {
  why = "it is no sum of products of two tensors, both of 16 bits or of f32";
  const auto operands = products_of_one_width(sum);
  if (!operands) return std::nullopt;
  why = "each operand follows no dim of the result that the other does not";
  if (!follows_own_dim(sum, operands->first, operands->second) || !follows_own_dim(sum, operands->second, operands->first))
    return std::nullopt;
  why = "it does not start from 0, or shares its loops with other statements of its definition";
  if (!starts_from(nest, sum, 0) || !alone_in_group(nest, sum.name)) return std::nullopt;
  why = "it leaves out no terms of the rectangle around it";
  const isl::set whole = rectangle_around(nest, sum), domain = domain_in(nest, sum);
  if (whole.is_subset(domain)) return std::nullopt;
  why = "neither operand has elements that are for terms left out alone, beside one that is there for all terms";
  const isl::set left_out = whole.subtract(domain);
  for (const auto& [filled, other] :
       {std::pair(operands->first, operands->second), std::pair(operands->second, operands->first)}) {
    Filling filling{filled, other, whole, extended(sum.reads[filled], whole), extended(sum.reads[other], whole), {}, {}};
    filling.kept = domain.apply(filling.filled_access);
    filling.zeros = left_out.apply(filling.filled_access).coalesce();
    // Elements of the filled operand that nobody wrote are zeros in its copy: only its shape bounds it.
    if (filling.zeros.is_disjoint(filling.kept) &&
        filling.filled_access.range().is_subset(box_of(nest, sum.reads[filled].tensor)) &&
        meets_values(nest, filling.other_access, sum.reads[other].tensor))
      return filling;
  }
  return std::nullopt;
}

std::vector<RuleMatch> find(const Nest& nest) {
  std::string why;
  return matching_statements(nest, kName, [&](const Statement& statement) {
    return filling_of(nest, statement, why) ? "terms that " + statement.name + " leaves out are multiplied by zeros" : "";
  });
}

/// What is multiplied by zeros.
std::vector<std::string> finite(const Nest& nest) {
  std::vector<std::string> tensors;
  std::string why;
  for (const Statement& statement : nest.statements) {
    if (const auto filling = filling_of(nest, statement, why)) tensors.push_back(statement.reads[filling->other].tensor);
  }
  return tensors;
}

/// A statement that writes some elements of `tensor`: dims are its indices.
Statement writer_of(const Nest& nest, const std::string& name, const std::string& tensor, const isl::set& elements) {
  Statement writer;
  writer.name = name;
  writer.domain = isl::manage(isl_set_set_tuple_name(elements.copy(), name.c_str()));
  writer.domain = isl::manage(isl_set_gist_params(writer.domain.release(), full_context(nest).release()));
  const auto rank = static_cast<unsigned>(isl_set_dim(elements.get(), isl_dim_set));
  for (unsigned k = 0; k < rank; ++k) writer.dims.push_back(fresh_dim(nest, writer.dims, "e"));
  writer.domain = isl::manage(with_dim_names(writer.domain.release(), writer.dims));
  isl_map* write = isl_set_identity(writer.domain.copy());
  writer.write = {tensor, isl::manage(isl_map_set_tuple_name(write, isl_dim_out, tensor.c_str()))};
  return writer;
}

/// A tensor before the sum that has the filled operand already, with the same zeros.
std::optional<std::string> known_copy(const Nest& nest, const Statement& sum, const Filling& filling) {
  const std::string& source = sum.reads[filling.filled].tensor;
  if (nest.tensor(source).role != TensorRole::input && sole_definition(nest, source) == nullptr) return std::nullopt;
  const auto writes = [&](const Statement& writer, const isl::set& elements) {
    isl_set* written = writer.write.relation.intersect_domain(domain_in(nest, writer)).range().release();
    return writer.group < sum.group && !writer.reduction &&
           elements.is_equal(isl::manage(isl_set_set_tuple_name(written, source.c_str())));
  };
  for (const Statement* copy : readers_of(nest, source)) {
    const std::vector<const Statement*> writers = writers_of(nest, copy->write.tensor);
    const bool plain = copy->value.op() == ScalarOp::read && copy->reads.size() == 1 && writers.size() == 2 &&
                       copy->reads[0].relation.is_equal(copy->write.relation.set_range_tuple(source));
    if (!plain || nest.tensor(copy->write.tensor).role != TensorRole::temporary || !writes(*copy, filling.kept)) continue;
    const Statement& zeros = *writers[writers[0] == copy ? 1 : 0];
    if (strip_casts(zeros.value).is_constant(0) && writes(zeros, filling.zeros)) return copy->write.tensor;
  }
  return std::nullopt;
}

/// Writes a copy with zeros: behind the definition of what is copied, so that the kernel that makes it makes this as well; else before the sum.
std::string add_copy(Nest& result, const Statement& sum, const Filling& filling) {
  const std::string source = sum.reads[filling.filled].tensor, tensor = fresh_name(result, source + "_whole");
  Tensor whole = result.tensor(source);
  whole.name = tensor;
  whole.role = TensorRole::temporary;
  whole.tolerance = {};
  const Statement* definition = result.tensor(source).role == TensorRole::temporary ? sole_definition(result, source) : nullptr;
  const std::size_t place = definition != nullptr && definition->group < sum.group
                                ? group_end(result, definition->name)
                                : begin_with_initialisers(result, result.statement(sum.name));
  result.tensors.push_back(whole);
  Statement zeros = writer_of(result, fresh_name(result, source + "_zeros"), tensor, filling.zeros);
  zeros.value = ScalarExpr::cast(whole.type, ScalarExpr::constant(0));
  insert_statement(result, place, zeros);
  Statement copy = writer_of(result, tensor, tensor, filling.kept);
  copy.reads = {{source, isl::manage(isl_map_set_tuple_name(isl_set_identity(copy.domain.copy()), isl_dim_out, source.c_str()))}};
  copy.value = ScalarExpr::read(0, whole.type);
  insert_statement(result, place + 1, copy);
  return tensor;
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const Filling filling = required_match(nest, kName, target, filling_of);
  Statement sum = nest.statement(target[0]);
  Nest result = nest;
  const auto known = known_copy(nest, sum, filling);
  const std::string tensor = known ? *known : add_copy(result, sum, filling);

  sum.group = result.statement(sum.name).group;
  sum.domain = isl::manage(isl_set_gist_params(filling.whole.copy(), full_context(nest).release()));
  // Without the domain's bounds, which would look like dims that an access depends on.
  const auto plain = [&](const Access& access) { return extended(access, sum.domain).gist_domain(sum.domain); };
  for (Access& read : sum.reads) read.relation = plain(read);
  sum.write.relation = plain(sum.write);
  sum.reads[filling.filled] = {
      tensor, isl::manage(isl_map_set_tuple_name(sum.reads[filling.filled].relation.copy(), isl_dim_out, tensor.c_str()))};
  replace_statement(result, sum);
  return {std::move(result), {}, false};
}

}  // namespace

const Rule& zero_terms_rule() {
  static const Rule rule{kName,
                         "terms that a sum of products leaves out are multiplied by zeros (argument: statement)",
                         "a sum that starts from 0 is the same with products of 0 and finite values added",
                         "none, with finite values in masked places: what was left out is multiplied by 0",
                         find,
                         apply,
                         finite};
  return rule;
}

}  // namespace nestor
