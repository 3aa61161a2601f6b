// Statements compared under one name; readers of temporaries, and what their definitions read.
#include "poly/algebra/values/needless_temporaries.h"

#include <isl/aff.h>
#include <isl/map.h>

#include <algorithm>
#include <optional>

#include "poly/algebra/values/nest_edit.h"
#include "poly/nest/scalar_share.h"

namespace nestor {
namespace {

bool same_function(const isl::pw_aff& a, const isl::pw_aff& b) { return isl_pw_aff_is_equal(a.get(), b.get()) == isl_bool_true; }

bool same_access(const Access& a, const Access& b) { return a.tensor == b.tensor && a.relation.is_equal(b.relation); }

bool same_shape(const Tensor& a, const Tensor& b) {
  return a.type == b.type && std::equal(a.shape.begin(), a.shape.end(), b.shape.begin(), b.shape.end(), same_function);
}

/// Does `b`, as a statement that writes the tensor of `a`, do what `a` does?
bool same_statement(const Statement& a, const Statement& b) {
  if (a.reduction != b.reduction || a.dims.size() != b.dims.size() || a.reads.size() != b.reads.size() ||
      a.indices.size() != b.indices.size() || !a.value.equals(b.value))
    return false;
  const Statement other = renamed(b, a.name);
  return a.domain.is_equal(other.domain) && a.write.relation.is_equal(other.write.relation.set_range_tuple(a.write.tensor)) &&
         std::equal(a.reads.begin(), a.reads.end(), other.reads.begin(), same_access) &&
         std::equal(a.indices.begin(), a.indices.end(), other.indices.begin(), same_function);
}

/// The statements that write a temporary, if each has loops of its own and reads other tensors alone; none otherwise.
std::vector<const Statement*> plain_writers(const Nest& nest, const Tensor& tensor) {
  if (tensor.role != TensorRole::temporary) return {};
  std::vector<const Statement*> writers = writers_of(nest, tensor.name);
  const bool plain = std::all_of(writers.begin(), writers.end(), [&](const Statement* writer) {
    return alone_in_group(nest, writer->name) && std::none_of(writer->reads.begin(), writer->reads.end(),
                                                              [&](const Access& read) { return read.tensor == tensor.name; });
  });
  return plain ? writers : std::vector<const Statement*>{};
}

/// Does the earlier temporary hold, wherever the later one is read, what that one does?
bool holds_the_same(const Nest& nest, const Tensor& earlier, const Tensor& later) {
  if (!same_shape(earlier, later)) return false;
  const auto first = plain_writers(nest, earlier), second = plain_writers(nest, later);
  if (first.empty() || first.size() != second.size() || first.back()->group >= second.front()->group) return false;
  for (std::size_t k = 0; k < first.size(); ++k) {
    if (!same_statement(*first[k], *second[k]) || !may_recompute(nest, *first[k], *second.back())) return false;
  }
  return true;
}

bool share_one(Nest& nest, std::vector<std::string>& changed) {
  for (std::size_t later = 1; later < nest.tensors.size(); ++later) {
    for (std::size_t earlier = 0; earlier < nest.tensors.size(); ++earlier) {
      if (earlier == later || !holds_the_same(nest, nest.tensors[earlier], nest.tensors[later])) continue;
      const std::string kept = nest.tensors[earlier].name, gone = nest.tensors[later].name;
      for (Statement& statement : nest.statements) {
        bool reads = false;
        for (Access& read : statement.reads) {
          if (read.tensor != gone) continue;
          read = {kept, read.relation.set_range_tuple(kept)};
          reads = true;
        }
        if (reads) changed.push_back(statement.name);
      }
      drop_unused(nest);
      return true;
    }
  }
  return false;
}

}  // namespace

void share_equal_definitions(Nest& nest, std::vector<std::string>& changed) {
  while (share_one(nest, changed)) {}
}

namespace {

constexpr int kMostNodes = 12;  ///< of a definition: a product or a difference of two elements, scaled
constexpr std::size_t kMostReaders = 3;

bool is_short_definition(const Statement& definition) {
  int nodes = 0;
  share_nodes(definition.value).visit([&](const ScalarExpr&) { ++nodes; });
  return nodes <= kMostNodes;
}

/// Do all readers together read each element once at most?
bool read_once(const Nest& nest, const std::vector<const Statement*>& readers, const std::string& tensor) {
  std::optional<isl::set> read;
  for (const Statement* reader : readers) {
    for (const Access& access : reader->reads) {
      if (access.tensor != tensor) continue;
      const isl::map relation = access.relation.intersect_domain(domain_in(nest, *reader));
      if (isl_map_is_injective(relation.get()) != isl_bool_true) return false;
      if (read && !read->is_disjoint(relation.range())) return false;
      read = read ? read->unite(relation.range()) : relation.range();
    }
  }
  return true;
}

bool is_recurrence(const Statement& statement) {
  const auto own = [&](const Access& read) { return read.tensor == statement.write.tensor; };
  return !statement.reduction && std::any_of(statement.reads.begin(), statement.reads.end(), own);
}

bool is_arithmetic(const ScalarExpr& value) {
  bool cheap = true;
  value.visit([&](const ScalarExpr& node) {
    switch (node.op()) {
      case ScalarOp::exp:
      case ScalarOp::exp2:
      case ScalarOp::log:
      case ScalarOp::sqrt:
      case ScalarOp::rsqrt:
      case ScalarOp::tanh:
      case ScalarOp::erf:
      case ScalarOp::sin:
      case ScalarOp::cos:
      case ScalarOp::pow:
      case ScalarOp::div:
        cheap = false;
        break;
      default:
        break;
    }
  });
  return cheap;
}

/// Is it made of indices, and of tensors that follow one dim at most?
bool is_of_indices(const Statement& definition) {
  if (definition.dims.size() < 2 || definition.indices.empty() || !is_arithmetic(definition.value)) return false;
  return std::all_of(definition.reads.begin(), definition.reads.end(), [&](const Access& read) {
    int followed = 0;
    for (int dim = 0; dim < static_cast<int>(definition.dims.size()); ++dim)
      followed += depends_on_dim(read.relation, dim) ? 1 : 0;
    return followed <= 1;
  });
}

}  // namespace

bool shares_operands(const Statement& statement) {
  return !statement.reads.empty() && std::all_of(statement.reads.begin(), statement.reads.end(), [&](const Access& read) {
    return isl_map_is_injective(read.relation.intersect_domain(statement.domain).get()) == isl_bool_false;
  });
}

const Statement* computed_by_readers(const Nest& nest, const std::string& tensor) {
  const Statement* definition = is_elementwise_temporary(nest, tensor) ? sole_definition(nest, tensor) : nullptr;
  if (definition == nullptr || !is_short_definition(*definition)) return nullptr;
  const std::vector<const Statement*> readers = readers_of(nest, tensor);
  if (readers.empty() || readers.size() > kMostReaders) return nullptr;
  const auto all = [&](const auto& holds) {
    return std::all_of(readers.begin(), readers.end(), [&](const Statement* reader) { return holds(*reader); });
  };
  if (is_of_indices(*definition) && all([](const Statement& reader) { return !reader.reduction; })) return definition;
  const bool inputs = std::all_of(definition->reads.begin(), definition->reads.end(),
                                  [&](const Access& read) { return nest.tensor(read.tensor).role == TensorRole::input; });
  const bool recurrences =
      std::any_of(readers.begin(), readers.end(), [](const Statement* reader) { return is_recurrence(*reader); }) &&
      all([](const Statement& reader) { return !reader.reduction; });
  const bool one_sum = readers.size() == 1 && readers[0]->reduction == ReductionOp::add;
  const bool worth = shares_operands(*definition) ? one_sum || recurrences : inputs && recurrences;
  return worth && read_once(nest, readers, tensor) ? definition : nullptr;
}

}  // namespace nestor
