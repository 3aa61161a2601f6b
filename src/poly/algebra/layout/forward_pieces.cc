// Rule "forward_pieces": what reads a copy that was made piece by piece reads its source.
//
// Pattern    a temporary t that several statements copy from one tensor s, t_e = s_f(e), each where its condition holds (neighbours of places
//            at the edge of a periodic grid), and elementwise readers.
// Rewrite    readers read s_g(e), where g is the f of the last statement that writes t_e: an index with a few pieces. t is gone.
// Conditions the copies have t's type, write each element once and are alone in their loops; s is not written from the first copy to the last
//            reader; g has few pieces and is there for all that a reader reads. No reader is a reduction: operands of sums are read row by row.
// Proof      t_e is what the last of its copies wrote, and s_g(e) still has that value at the reader.
// Rounding   none: the same operations on the same values.
#include <fmt/format.h>
#include <isl/map.h>

#include <algorithm>
#include <optional>

#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr const char* kName = "forward_pieces";
constexpr int kMostPieces = 4;

/// Where elements of the temporary come from: { t[e] -> s[g(e)] }.
struct Origin {
  std::string source;
  isl::map elements;
};

bool is_copy(const Nest& nest, const Statement& statement) {
  return !statement.reduction && statement.value.op() == ScalarOp::read &&
         statement.value.type() == nest.tensor(statement.write.tensor).type && alone_in_group(nest, statement.name) &&
         isl_map_is_injective(statement.write.relation.intersect_domain(domain_in(nest, statement)).get()) == isl_bool_true;
}

const Access& copied(const Statement& copy) { return copy.reads.at(static_cast<std::size_t>(copy.value.ordinal())); }

/// What the temporary that `last` writes at last is a copy of; nothing, and `why`, where it is none.
std::optional<Origin> origin_of(const Nest& nest, const Statement& last, std::string& why) {
  const std::string& tensor = last.write.tensor;
  why = "it writes no temporary";
  if (nest.tensor(tensor).role != TensorRole::temporary) return std::nullopt;
  const std::vector<const Statement*> copies = writers_of(nest, tensor);
  why = "no other statement writes " + tensor + " before it";
  if (copies.size() < 2 || copies.back()->name != last.name) return std::nullopt;
  Origin origin;
  for (const Statement* copy : copies) {
    why = copy->name + " is no copy of elements";
    if (!is_copy(nest, *copy)) return std::nullopt;
    why = tensor + " is made of several tensors, or of itself";
    if (copied(*copy).tensor == tensor || (copy != copies.front() && copied(*copy).tensor != origin.source)) return std::nullopt;
    origin.source = copied(*copy).tensor;
    const isl::map piece =
        copy->write.relation.intersect_domain(domain_in(nest, *copy)).reverse().apply_range(copied(*copy).relation);
    if (copy == copies.front()) {
      origin.elements = piece;
      continue;
    }
    isl_map* before = isl_map_subtract_domain(origin.elements.copy(), isl_map_domain(piece.copy()));
    origin.elements = isl::manage(isl_map_union(before, piece.copy()));
  }
  return origin;
}

/// The reader's access to the source.
isl::map forwarded(const Nest& nest, const Statement& reader, const Access& read, const Origin& origin) {
  const isl::set domain = domain_in(nest, reader);
  return read.relation.intersect_domain(domain).apply_range(origin.elements).coalesce().gist_domain(domain).coalesce();
}

bool may_forward(const Nest& nest, const Statement& reader, const Access& read, const Origin& origin, std::string& why) {
  const isl::map forward = forwarded(nest, reader, read, origin);
  why = reader.name + " reads elements that no copy has written";
  if (!domain_in(nest, reader).is_subset(forward.domain())) return false;
  why = fmt::format("{} would read {} pieces", reader.name, isl_map_n_basic_map(forward.get()));
  return isl_map_n_basic_map(forward.get()) <= kMostPieces;
}

std::optional<Origin> find_origin(const Nest& nest, const Statement& last, std::string& why) {
  const auto origin = origin_of(nest, last, why);
  if (!origin) return std::nullopt;
  const std::vector<const Statement*> copies = writers_of(nest, last.write.tensor);
  for (const Statement* reader : readers_of(nest, last.write.tensor)) {
    why = reader->name + " is a reduction";
    if (reader->reduction) return std::nullopt;
    why = reader->name + " reads it before it is whole";
    if (reader->group <= last.group) return std::nullopt;
    why = origin->source + " is written again before " + reader->name;
    const auto keeps = [&](const Statement* copy) { return may_recompute(nest, *copy, *reader); };
    if (!std::all_of(copies.begin(), copies.end(), keeps)) return std::nullopt;
    for (const Access& read : reader->reads) {
      if (read.tensor == last.write.tensor && !may_forward(nest, *reader, read, *origin, why)) return std::nullopt;
    }
  }
  return origin;
}

std::vector<RuleMatch> find(const Nest& nest) {
  return matching_statements(nest, kName, [&](const Statement& last) {
    std::string why;
    const auto origin = find_origin(nest, last, why);
    return origin ? "what reads " + last.write.tensor + " reads " + origin->source : "";
  });
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const Origin origin = required_match(nest, kName, target, find_origin);
  const std::string tensor = nest.statement(target[0]).write.tensor;
  Nest result = nest;
  for (Statement& reader : result.statements) {
    for (Access& read : reader.reads) {
      if (read.tensor == tensor) read = {origin.source, forwarded(nest, reader, read, origin)};
    }
  }
  drop_unused(result);
  return {std::move(result), {}, false};
}

}  // namespace

const Rule& forward_pieces_rule() {
  static const Rule rule{
      kName,
      "what reads a copy that was made piece by piece reads its source (argument: the last statement that writes it)",
      "the last copy of an element is its value",
      "none",
      find,
      apply};
  return rule;
}

}  // namespace nestor
