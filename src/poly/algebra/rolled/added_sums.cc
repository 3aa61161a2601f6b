// Sums that are added together wherever they are read.
#include "poly/algebra/rolled/added_sums.h"

#include <isl/map.h>

#include <algorithm>
#include <set>

#include "poly/algebra/values/nest_edit.h"
#include "poly/nest/scalar_share.h"

namespace nestor {
namespace {

void add_terms(const ScalarExpr& value, std::vector<ScalarExpr>& terms) {
  constexpr std::size_t kMostTerms = 1000;
  if (value.op() != ScalarOp::add || terms.size() > kMostTerms) return terms.push_back(value);
  for (const ScalarExpr& arg : value.args()) add_terms(arg, terms);
}

}  // namespace

std::vector<ScalarExpr> terms_of(const ScalarExpr& value) {
  std::vector<ScalarExpr> terms;
  add_terms(value, terms);
  return terms;
}

namespace {

void visit_additions(const ScalarExpr& value, const TermsVisitor& visitor, std::set<const void*>& seen) {
  if (!seen.insert(node_identity(value)).second) return;
  const std::vector<ScalarExpr> terms = terms_of(value);
  visitor(terms);
  for (const ScalarExpr& term : terms) {
    for (const ScalarExpr& arg : term.args()) visit_additions(arg, visitor, seen);
  }
}

bool is_read_of(const Statement& reader, const ScalarExpr& value, const std::string& tensor) {
  return value.op() == ScalarOp::read && reader.reads[static_cast<std::size_t>(value.ordinal())].tensor == tensor;
}

/// Elements of the tensor among terms, in the statement's domain.
std::vector<isl::map> elements_among(const Statement& reader, const std::vector<ScalarExpr>& terms, const std::string& tensor) {
  std::vector<isl::map> elements;
  for (const ScalarExpr& term : terms) {
    if (!is_read_of(reader, term, tensor)) continue;
    const isl::map relation = reader.reads[static_cast<std::size_t>(term.ordinal())].relation.intersect_domain(reader.domain);
    elements.push_back(isl::manage(isl_map_reset_tuple_id(relation.copy(), isl_dim_out)));
  }
  return elements;
}

}  // namespace

void visit_additions(const ScalarExpr& value, const TermsVisitor& visitor) {
  std::set<const void*> seen;
  visit_additions(value, visitor, seen);
}

bool always_added(const Nest& nest, const std::string& one, const std::string& other) {
  bool added = true;
  for (const Statement& reader : nest.statements) {
    visit_additions(reader.value, [&](const std::vector<ScalarExpr>& terms) {
      const std::vector<isl::map> of_one = elements_among(reader, terms, one);
      std::vector<isl::map> of_other = elements_among(reader, terms, other);
      added = added && of_one.size() == of_other.size();
      for (const isl::map& element : of_one) {
        const auto same =
            std::find_if(of_other.begin(), of_other.end(), [&](const isl::map& each) { return each.is_equal(element); });
        added = added && same != of_other.end();
        if (same != of_other.end()) of_other.erase(same);
      }
    });
  }
  return added;
}

void leave_out_of_additions(Nest& nest, const std::string& tensor) {
  for (Statement& reader : nest.statements) {
    reader.value = reader.value.rewrite([&](const ScalarExpr& node) {
      if (node.op() != ScalarOp::add) return node;
      return is_read_of(reader, node.args()[0], tensor)   ? node.args()[1]
             : is_read_of(reader, node.args()[1], tensor) ? node.args()[0]
                                                          : node;
    });
    if (std::any_of(reader.reads.begin(), reader.reads.end(), [&](const Access& read) { return read.tensor == tensor; }))
      compact(reader);
  }
  std::erase_if(nest.tensors, [&](const Tensor& each) { return each.name == tensor; });
}

}  // namespace nestor
