// Rule "fold_storage": states that only the next step needs are kept in place.
//
// Pattern    a temporary T[k, x] of a recurrence: one statement of a step writes T at another k than one of the same step reads it.
// Rewrite    T'[x] in place of T[k, x], in all statements.
// Conditions no reduction writes T; a step reads the x that it writes; every instance writes one element, and no two the same; between the
//            write of T[k, x] and the last read of it, in the order of the nest, nothing writes T[k', x].
// Proof      each read finds in T'[x] what was written last before it, which is the value of T[k, x].
// Rounding   none: T' has the type of T.
#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr const char* kName = "fold_storage";

/// The relation to elements of a tensor as one to those of another, without index `k`.
isl::map without_index(const isl::map& relation, int k, const std::string& tensor) {
  isl_map* folded = isl_map_reset_tuple_id(relation.copy(), isl_dim_out);
  folded = isl_map_project_out(folded, isl_dim_out, static_cast<unsigned>(k), 1);
  return isl::manage(isl_map_set_tuple_name(folded, isl_dim_out, tensor.c_str()));
}

/// An access of the tensor with the instances that make it.
struct Use {
  const Statement* statement;
  isl::map relation;
};

/// Is there, between the write of an element and a read of it, no other write of an element that differs in index `k` alone?
bool keeps_values(const Nest& nest, const std::vector<Use>& writes, const Use& read, int k) {
  const std::string place = "place";
  const isl::map touched = without_index(read.relation, k, place);
  for (const Use& writer : writes) {
    // { Reader -> Writer of what it reads }
    const isl::map made = read.relation.apply_range(writer.relation.reverse());
    if (made.is_empty()) continue;
    if (!made.is_subset(original_order(nest, writer.statement->name, read.statement->name).reverse())) return false;
    for (const Use& other : writes) {
      const isl::map behind = made.apply_range(original_order(nest, writer.statement->name, other.statement->name));
      const isl::map same_place = touched.apply_range(without_index(other.relation, k, place).reverse());
      const isl::map before = original_order(nest, other.statement->name, read.statement->name).reverse();
      if (!behind.intersect(same_place).intersect(before).is_empty()) return false;
    }
  }
  return true;
}

/// Do statements of one group, steps of a recurrence, write the tensor and read it at another `k`, and each the elements that it has itself else?
/// Points that read neighbours would have to wait for each other.
bool recurs(const std::vector<Use>& writes, const std::vector<Use>& reads, int k) {
  const auto indices_of = [&](const Use& use) {  // { [dims] -> [indices] }, whatever the dims' values are
    isl_map* indices = isl_map_gist_domain(use.relation.copy(), use.relation.domain().release());
    return isl::manage(isl_map_reset_tuple_id(isl_map_reset_tuple_id(indices, isl_dim_out), isl_dim_in));
  };
  const auto others_of = [&](const Use& use) {
    return isl::manage(isl_map_project_out(indices_of(use).release(), isl_dim_out, static_cast<unsigned>(k), 1));
  };
  bool moves = false;
  for (const Use& read : reads) {
    for (const Use& write : writes) {
      if (write.statement->group != read.statement->group || write.statement->dims.size() != read.statement->dims.size())
        continue;
      if (!others_of(write).is_equal(others_of(read))) return false;
      moves = moves || !indices_of(write).is_equal(indices_of(read));
    }
  }
  return moves;
}

/// The index that the temporary can do without; nothing: there is none.
std::optional<int> foldable_index(const Nest& nest, const std::string& tensor) {
  if (nest.tensor(tensor).role != TensorRole::temporary) return std::nullopt;
  std::vector<Use> writes, reads;
  for (const Statement& statement : nest.statements) {
    const isl::set domain = domain_in(nest, statement);
    if (statement.write.tensor == tensor) {
      if (statement.reduction) return std::nullopt;
      writes.push_back({&statement, statement.write.relation.intersect_domain(domain)});
    }
    for (const Access& read : statement.reads) {
      if (read.tensor == tensor) reads.push_back({&statement, read.relation.intersect_domain(domain)});
    }
  }
  const int rank = static_cast<int>(nest.tensor(tensor).shape.size());
  for (int k = 0; k < rank; ++k) {
    if (!recurs(writes, reads, k)) continue;
    for (std::size_t a = 0; a < writes.size(); ++a) {
      if (!writes[a].relation.is_injective()) return std::nullopt;
      for (std::size_t b = 0; b < a; ++b) {
        if (!writes[a].relation.range().intersect(writes[b].relation.range()).is_empty()) return std::nullopt;
      }
    }
    if (std::all_of(reads.begin(), reads.end(), [&](const Use& read) { return keeps_values(nest, writes, read, k); })) return k;
  }
  return std::nullopt;
}

/// The statement by which a temporary is named: the last that writes it, a step of the recurrence.
bool is_last_writer(const Nest& nest, const Statement& statement) {
  return writers_of(nest, statement.write.tensor).back()->name == statement.name;
}

std::vector<RuleMatch> find(const Nest& nest) {
  return matching_statements(nest, kName, [&](const Statement& statement) {
    const bool wanted = is_last_writer(nest, statement) && foldable_index(nest, statement.write.tensor);
    return wanted ? "the next step alone needs " + statement.write.tensor + ", which is kept in place" : "";
  });
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const std::string name = statement_argument(nest, kName, target, 1);
  const std::string tensor = nest.statement(name).write.tensor;
  const std::optional<int> folded = foldable_index(nest, tensor);
  if (!folded) refuse_rule(kName, name, "what it writes is no state of a recurrence, or other steps than the next one read it");
  Nest result = nest;
  Tensor kept = nest.tensor(tensor);
  kept.name = fresh_name(nest, tensor + "_now");
  kept.shape.erase(kept.shape.begin() + *folded);
  const auto move = [&](Access& access) {
    if (access.tensor == tensor) access = {kept.name, without_index(access.relation, *folded, kept.name)};
  };
  for (Statement& statement : result.statements) {
    move(statement.write);
    for (Access& read : statement.reads) move(read);
  }
  const auto old =
      std::find_if(result.tensors.begin(), result.tensors.end(), [&](const Tensor& each) { return each.name == tensor; });
  *old = kept;
  return {std::move(result), {}, false};
}

}  // namespace

const Rule& fold_storage_rule() {
  static const Rule rule{kName,
                         "states that only the next step needs are kept in place (argument: the last statement that writes them)",
                         "no other element is written between the write of one and its last read (isl)",
                         "none",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
