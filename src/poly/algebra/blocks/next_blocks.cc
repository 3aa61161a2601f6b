// A minimum over all blocks that are not before one.
#include "poly/algebra/blocks/next_blocks.h"

#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

/// Does the access follow all dims but one, in their order, each as an index of its own?
bool follows_all_but(const Statement& statement, const Access& access, int other) {
  const std::vector<isl::pw_aff> functions = functions_of(access.relation);
  if (functions.size() + 1 != statement.dims.size()) return false;
  for (int k = 0; k < static_cast<int>(functions.size()); ++k) {
    const isl::set same = functions[static_cast<std::size_t>(k)].eq_set(dim_function(statement.domain, k + (k >= other ? 1 : 0)));
    if (!statement.domain.is_subset(same)) return false;
  }
  return true;
}

/// Whether a condition of one statement holds at a point only if another one does at some point of its statement: the same operations on the same
/// elements, or comparisons of the least and the largest values that they stand among.
class Implied {
 public:
  /// `pairs`: { First -> Second } to look among; all of a point's read the same elements of tables of ends.
  Implied(const Nest& nest, const Statement& first, const Statement& second, const isl::map& pairs)
      : nest_(nest), first_(first), second_(second), all_(pairs), pairs_(pairs) {}

  bool holds(const ScalarExpr& a, const ScalarExpr& b) {
    if (a.op() == b.op() && (a.op() == ScalarOp::logical_and || a.op() == ScalarOp::logical_or))
      return holds(a.args()[0], b.args()[0]) && holds(a.args()[1], b.args()[1]);
    if (a.op() == ScalarOp::eq && b.op() == ScalarOp::logical_and)
      return allows(ScalarOp::le, b.args()[0], a.args()[0], a.args()[1]) &&
             allows(ScalarOp::le, b.args()[1], a.args()[1], a.args()[0]);
    if ((a.op() == ScalarOp::lt || a.op() == ScalarOp::le) && allows(a.op(), b, a.args()[0], a.args()[1])) return true;
    return same(a, b);
  }

  /// Are there such points of the second statement for all of the first one?
  bool everywhere() const { return domain_in(nest_, first_).is_subset(pairs_.domain()); }

  bool same(const ScalarExpr& a, const ScalarExpr& b) {
    if (a.op() != b.op() || a.type() != b.type() || a.args().size() != b.args().size()) return false;
    if (a.op() == ScalarOp::read) {
      const Access &x = read_of(first_, a), &y = read_of(second_, b);
      if (x.tensor == y.tensor) pairs_ = pairs_.intersect(x.relation.apply_range(y.relation.reverse()));
      return x.tensor == y.tensor;
    }
    if (a.op() == ScalarOp::index) {
      const auto values = [](const Statement& of, const ScalarExpr& index) {
        return isl::manage(isl_map_from_pw_aff(of.indices.at(static_cast<std::size_t>(index.ordinal())).copy()));
      };
      pairs_ = pairs_.intersect(values(first_, a).apply_range(values(second_, b).reverse()));
      return true;
    }
    if (a.args().empty()) return a.equals(b);
    for (std::size_t k = 0; k < a.args().size(); ++k) {
      if (!same(a.args()[k], b.args()[k])) return false;
    }
    return true;
  }

 private:
  static const Access& read_of(const Statement& statement, const ScalarExpr& read) {
    return statement.reads.at(static_cast<std::size_t>(read.ordinal()));
  }

  /// Is `test` that the least of what `low` stands among is below (or equals) the largest of what `high` does?
  bool allows(ScalarOp op, const ScalarExpr& test, const ScalarExpr& low, const ScalarExpr& high) const {
    return test.op() == op && is_end(test.args()[0], low, ReductionOp::min) && is_end(test.args()[1], high, ReductionOp::max);
  }

  bool is_end(const ScalarExpr& end, const ScalarExpr& value, ReductionOp op) const {
    if (end.op() != ScalarOp::read) return false;
    const Access& read = read_of(second_, end);
    const std::vector<const Statement*> writers = writers_of(nest_, read.tensor);
    if (nest_.tensor(read.tensor).role != TensorRole::temporary || writers.size() != 2 || writers[1]->reduction != op)
      return false;
    const isl::map elements = all_.apply_range(read.relation);
    const Statement& all = *writers[1];
    Implied among(nest_, first_, all, elements.apply_range(all.write.relation.intersect_domain(domain_in(nest_, all)).reverse()));
    return elements.intersect_domain(domain_in(nest_, first_)).is_single_valued() && among.same(value, all.value) &&
           among.everywhere();
  }

  const Nest& nest_;
  const Statement &first_, &second_;
  const isl::map all_;
  isl::map pairs_;
};

/// The sum over points that is 1 where a condition holds at one of them, and its condition.
struct SeenBlocks {
  const Statement* points;
  ScalarExpr condition;
};

std::optional<SeenBlocks> seen_blocks(const Nest& nest, const std::string& tensor) {
  const std::vector<const Statement*> writers = writers_of(nest, tensor);
  if (nest.tensor(tensor).role != TensorRole::temporary || writers.size() != 2 || writers[0]->reduction) return std::nullopt;
  const Statement& points = *writers[1];
  const ScalarExpr& value = points.value;
  if (points.reduction != ReductionOp::max || !writers[0]->value.is_constant(0) || value.op() != ScalarOp::select ||
      !value.args()[1].is_constant(1) || !value.args()[2].is_constant(0))
    return std::nullopt;
  return SeenBlocks{&points, value.args()[0]};
}

/// Does a test of the table stand in `value` alone beside a condition that implies it? `seen`: what the table follows from.
bool are_implied(const Nest& nest, const Statement& reader, const ScalarExpr& value, const std::string& table,
                 const SeenBlocks& seen) {
  const auto table_of = [&](const ScalarExpr& test) -> const Access* {
    if (test.op() != ScalarOp::eq) return nullptr;
    for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
      const ScalarExpr &element = test.args()[side], &block = test.args()[1 - side];
      if (element.op() != ScalarOp::read || block.op() != ScalarOp::index) continue;
      const Access& read = reader.reads.at(static_cast<std::size_t>(element.ordinal()));
      if (read.tensor != table) continue;
      const isl::pw_aff column = functions_of(read.relation).back();
      const isl::set same = column.eq_set(reader.indices.at(static_cast<std::size_t>(block.ordinal())));
      return domain_in(nest, reader).is_subset(same) ? &read : nullptr;
    }
    return nullptr;
  };
  if (value.op() == ScalarOp::read) return reader.reads.at(static_cast<std::size_t>(value.ordinal())).tensor != table;
  if (value.op() == ScalarOp::logical_and) {
    for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
      const Access* read = table_of(value.args()[side]);
      if (read == nullptr) continue;
      isl_map* element = isl_map_set_tuple_name(read->relation.copy(), isl_dim_out, seen.points->write.tensor.c_str());
      Implied implied(nest, reader, *seen.points,
                      isl::manage(element).apply_range(
                          seen.points->write.relation.intersect_domain(domain_in(nest, *seen.points)).reverse()));
      const ScalarExpr& condition = value.args()[1 - side];
      return implied.holds(condition, seen.condition) && implied.everywhere() &&
             are_implied(nest, reader, condition, table, seen);
    }
  }
  return std::all_of(value.args().begin(), value.args().end(),
                     [&](const ScalarExpr& arg) { return are_implied(nest, reader, arg, table, seen); });
}

}  // namespace

isl::set blocks_up_to(const isl::set& blocks) {
  const int last = static_cast<int>(isl_set_dim(blocks.get(), isl_dim_set));
  isl_set* inserted = isl_set_insert_dims(blocks.copy(), isl_dim_set, static_cast<unsigned>(last) - 1, 1);
  inserted = isl_set_set_tuple_id(inserted, isl_set_get_tuple_id(blocks.get()));
  const isl::set all = isl::manage(isl_set_lower_bound_si(inserted, isl_dim_set, static_cast<unsigned>(last) - 1, 0));
  return all.intersect(dim_function(all, last - 1).le_set(dim_function(all, last)));
}

bool tells_next_blocks(const Nest& nest, const std::string& name) {
  const Tensor& tensor = nest.tensor(name);
  if (tensor.role != TensorRole::temporary || tensor.type != ElementType::i32 || tensor.shape.empty()) return false;
  const std::vector<const Statement*> writers = writers_of(nest, name);
  if (writers.size() != 2 || writers[0]->reduction || writers[1]->reduction != ReductionOp::min) return false;
  const Statement &start = *writers[0], &least = *writers[1];
  const isl::set started = domain_in(nest, start).apply(start.write.relation);
  if (!start.value.is_constant(kNoBlock) || !tensor_box(tensor).intersect_params(full_context(nest)).is_subset(started))
    return false;
  const ScalarExpr& value = least.value;
  if (value.op() != ScalarOp::select || !value.args()[2].is_constant(kNoBlock) || value.args()[1].op() != ScalarOp::index)
    return false;
  const int last = static_cast<int>(least.dims.size()) - 1;
  if (last < 1 || !follows_all_but(least, least.write, last) || varies_along(least, value.args()[0], last - 1)) return false;
  const isl::pw_aff& later = least.indices.at(static_cast<std::size_t>(value.args()[1].ordinal()));
  const isl::set domain = domain_in(nest, least);
  const isl::set later_blocks = isl::manage(isl_set_set_tuple_id(
      isl_set_project_out(domain.copy(), isl_dim_set, static_cast<unsigned>(last) - 1, 1), isl_set_get_tuple_id(domain.get())));
  for (const Access& read : least.reads) {
    if (read.tensor == name) return false;
  }
  if (!domain.is_subset(later.eq_set(dim_function(least.domain, last))) || !domain.is_equal(blocks_up_to(later_blocks)))
    return false;
  const ScalarExpr& chosen = value.args()[0];
  if (chosen.op() != ScalarOp::lt || !chosen.args()[0].is_constant(0) || chosen.args()[1].op() != ScalarOp::read) return false;
  const Access& element = least.reads.at(static_cast<std::size_t>(chosen.args()[1].ordinal()));
  const auto seen = seen_blocks(nest, element.tensor);
  if (!seen || !follows_all_but(least, element, last - 1)) return false;
  const std::vector<const Statement*> readers = readers_of(nest, name);
  return std::all_of(readers.begin(), readers.end(),
                     [&](const Statement* reader) { return are_implied(nest, *reader, reader->value, name, *seen); });
}

}  // namespace nestor
