// Parts are stored before the sum.
#include "poly/algebra/guarded/bf16_parts.h"

#include <isl/map.h>
#include <isl/set.h>

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "poly/algebra/analysis/extremum_bounds.h"
#include "poly/algebra/analysis/range_analysis.h"
#include "poly/algebra/operands/half_products.h"
#include "poly/algebra/values/direct_sums.h"
#include "poly/algebra/values/factor_chain.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr std::int64_t kFewestUses = 64;  ///< of an element, so that its parts may cost less than they save

ScalarExpr make(ScalarOp op, const ScalarExpr& x, const ScalarExpr& y) { return ScalarExpr::make(op, {x, y}); }

/// Does the statement add up products of two elements, or of parts of such?
bool multiplies(const Statement& statement) {
  if (statement.reduction != ReductionOp::add) return false;
  ScalarExpr value = statement.value;
  while (value.op() == ScalarOp::add) value = value.args()[0];
  const auto is_read = [](const ScalarExpr& factor) { return strip_exact_casts(factor).op() == ScalarOp::read; };
  return value.op() == ScalarOp::mul && is_read(value.args()[0]) && is_read(value.args()[1]);
}

/// Is it one of several products that add up to part of a longer sum (rule bf16x6)?
bool adds_up_chunk(const Nest& nest, const Statement& sum) {
  const std::vector<const Statement*> readers = readers_of(nest, sum.write.tensor), writers = writers_of(nest, sum.write.tensor);
  const auto products =
      std::count_if(writers.begin(), writers.end(), [](const Statement* writer) { return multiplies(*writer); });
  return products > 1 && std::any_of(readers.begin(), readers.end(), [](const Statement* reader) {
           return reader->reduction == ReductionOp::add && reader->value.op() == ScalarOp::read;
         });
}

/// Terms along the innermost of several dims that fill an instruction of tensor cores, where sizes have their defaults.
constexpr double kFewestTerms = 16;

/// Terms of a sum of products, where sizes have their defaults, that a kernel may hold whole rows of.
constexpr double kRowTerms = 512;

/// How often an element of the operand is multiplied: along dims of the result that it does not follow. Of dims of unknown extents: often.
std::int64_t uses(const Nest& nest, const Statement& sum, std::size_t operand) {
  std::int64_t times = 1;
  for (int d = 0; d < static_cast<int>(sum.dims.size()); ++d) {
    if (depends_on_dim(sum.reads[operand].relation, d)) continue;
    times *= known_value(nest, extent_of(nest, sum.domain, d)).value_or(kFewestUses);
    if (times >= kFewestUses) break;
  }
  return times;
}

/// All elements of the tensor that the sum reads.
isl::set elements_read(SumEdit& edit, const std::string& tensor) {
  isl::set all;
  for (const Access& read : edit.sum().reads) {
    if (read.tensor != tensor) continue;
    const isl::set elements = domain_in(edit.nest(), edit.sum()).apply(read.relation);
    all = all.is_null() ? elements : all.unite(elements);
  }
  return all.coalesce();
}

/// Are finite elements known to fit bf16, and others to be NaN alone?
bool is_ordinary(const Nest& nest, const std::string& tensor) {
  const ValueRange range = exponential_term(nest, tensor).value_or(range_of(nest, tensor));
  return !range.infinite() && range.magnitude() <= largest_of(ElementType::bf16);
}

/// Part p of `count`, before it is rounded, of the f32 that x is, behind those before it.
ScalarExpr part_of(const ScalarExpr& x, std::size_t p, std::size_t count, const std::vector<ScalarExpr>& before, bool ordinary) {
  const auto select = [&](const ScalarExpr& yes, const ScalarExpr& no) {
    return ordinary ? yes : ScalarExpr::make(ScalarOp::select, {is_finite(x), yes, no});
  };
  if (p == 0 && ordinary) return x;
  if (p == 0) {
    const ScalarExpr most = select(ScalarExpr::constant(largest_of(ElementType::bf16)), ScalarExpr::constant(1));
    return make(ScalarOp::min, make(ScalarOp::max, x, ScalarExpr::make(ScalarOp::neg, {most})), most);
  }
  ScalarExpr rest = x;
  for (const ScalarExpr& part : before) rest = make(ScalarOp::sub, rest, part);
  return select(rest, p + 1 == count ? x : ScalarExpr::constant(0));
}

/// The temporary in which a statement before the sum keeps what `store` would store, of as many elements; empty: there is none. Products
/// of one matrix share its parts.
std::string known_part(SumEdit& edit, const Statement& store) {
  const Nest& nest = edit.nest();
  const auto unnamed = [](const isl::map& relation) { return isl::manage(isl_map_reset_tuple_id(relation.copy(), isl_dim_in)); };
  const auto elements = [&](const Statement& statement) {
    return isl::manage(isl_set_reset_tuple_id(domain_in(nest, statement).release()));
  };
  const auto same_read = [&](const Access& a, const Access& b) {
    return a.tensor == b.tensor && unnamed(a.relation).is_equal(unnamed(b.relation));
  };
  const auto complete_before = [&](const Access& read, const Statement& reader) {
    const std::vector<const Statement*> writers = writers_of(nest, read.tensor);
    return std::all_of(writers.begin(), writers.end(), [&](const Statement* writer) { return writer->group < reader.group; });
  };
  const auto serves = [&](const Statement& other) {
    const std::string& kept = other.write.tensor;
    if (other.reduction || nest.tensor(kept).role != TensorRole::temporary || !other.indices.empty() ||
        !other.value.equals(store.value) || other.reads.size() != store.reads.size() ||
        other.group >= nest.statement(edit.start_name()).group || writers_of(nest, kept).size() != 1)
      return false;
    for (std::size_t k = 0; k < store.reads.size(); ++k) {
      if (!same_read(other.reads[k], store.reads[k]) || !complete_before(other.reads[k], other)) return false;
    }
    const isl::map own = unnamed(store.write.relation.set_range_tuple(kept)), there = unnamed(other.write.relation);
    return elements(store).is_subset(elements(other)) && own.is_equal(there);
  };
  const auto found = std::find_if(nest.statements.begin(), nest.statements.end(), serves);
  return found == nest.statements.end() ? "" : found->write.tensor;
}

/// Do sums of few such products enter what the tensor is computed from? Parts of longer sums are none.
bool has_short_sum_behind(const Nest& nest, const std::string& tensor, bool (*is_product)(const Statement&)) {
  const std::vector<const Statement*> behind = statements_behind(nest, {tensor});
  return std::any_of(behind.begin(), behind.end(), [&](const Statement* sum) {
    return is_product(*sum) && !adds_up_chunk(nest, *sum) && default_points(nest, *sum, reduced_dims(*sum)) <= kRowTerms;
  });
}

}  // namespace

bool comes_from_products(const Nest& nest, const std::string& tensor) {
  return is_elementwise_temporary(nest, tensor) && has_short_sum_behind(nest, tensor, multiplies);
}

bool comes_from_matrix_products(const Nest& nest, const std::string& tensor) {
  return has_short_sum_behind(nest, tensor, multiplies_own_dims);
}

bool is_sum_of_products(const Nest& nest, const std::string& tensor) {
  const std::vector<const Statement*> writers = writers_of(nest, tensor);
  return nest.tensor(tensor).role == TensorRole::temporary &&
         std::any_of(writers.begin(), writers.end(), [&](const Statement* writer) {
           return multiplies(*writer) && default_points(nest, *writer, reduced_dims(*writer)) <= kRowTerms;
         });
}

bool is_long_sum_of_products(const Nest& nest, const std::string& tensor) {
  const std::vector<const Statement*> writers = writers_of(nest, tensor);
  return nest.tensor(tensor).role == TensorRole::temporary &&
         std::any_of(writers.begin(), writers.end(), [&](const Statement* writer) {
           return writer->reduction == ReductionOp::add && writer->value.op() == ScalarOp::mul &&
                  default_points(nest, *writer, reduced_dims(*writer)) > kRowTerms;
         });
}

bool may_have_parts(const Nest& nest, const Statement& sum, OrdinalPair operands, bool sums, std::string& why) {
  if (!can_be_guarded(nest, sum, why)) return false;
  why = "it has no rows and columns, with terms that both operands follow";
  const auto [a, b] = operands;
  const std::vector<int> reduced = reduced_dims(sum);
  const bool both = std::all_of(reduced.begin(), reduced.end(), [&, first = a, second = b](int dim) {
    return depends_on_dim(sum.reads[first].relation, dim) && depends_on_dim(sum.reads[second].relation, dim);
  });
  if (reduced.empty() || !both || !follows_own_dim(sum, a, b) || !follows_own_dim(sum, b, a)) return false;
  why = "the innermost of several dims of terms is short";
  if (reduced.size() > 1 && default_points(nest, sum, {reduced.back()}) < kFewestTerms) return false;
  why = fmt::format("its operands' elements are multiplied less than {} times each", kFewestUses);
  for (const std::size_t operand : {a, b}) {
    const std::string& tensor = sum.reads[operand].tensor;
    const bool stays = comes_from_products(nest, tensor) || (sums && is_sum_of_products(nest, tensor));
    if (uses(nest, sum, operand) < kFewestUses && !stays) return false;
  }
  why = "its terms begin below 0";
  if (has_negative_values(nest, sum, reduced)) return false;
  why = "its operands are written when the sum has begun";
  for (const std::size_t operand : {a, b}) {
    if (!is_written_before(nest, sum.reads[operand].tensor, sum)) return false;
  }
  return true;
}

std::vector<std::string> store_parts(SumEdit& edit, std::size_t operand, std::size_t count) {
  const Access& read = edit.sum().reads[operand];
  const Tensor tensor = edit.nest().tensor(read.tensor);
  const bool ordinary = is_ordinary(edit.nest(), tensor.name);
  std::vector<std::string> parts;
  for (std::size_t p = 0; p < count; ++p) {
    const char* const name = p == 0 ? "_high" : p + 1 == count ? "_low" : "_middle";
    const std::string part_name = fresh_name(edit.nest(), tensor.name + name);
    Statement store = copy_statement(edit.nest(), tensor, edit.sum(), read, part_name);
    isl::set domain = store.domain;
    // Of an input all: kernels multiply whole tiles of it, with zeros where the sum reads none.
    if (tensor.role != TensorRole::input) {
      isl_set* elements = isl_set_set_tuple_name(elements_read(edit, tensor.name).release(), part_name.c_str());
      domain = domain.intersect(isl::manage(elements));
    }
    store.domain = isl::manage(isl_set_gist_params(domain.copy(), full_context(edit.nest()).release())).coalesce();
    std::vector<ScalarExpr> before;
    for (const std::string& part : parts) before.push_back(read_part(store, part, store.reads[0].relation));
    const ScalarExpr element = ScalarExpr::read(0, tensor.type),
                     x = tensor.type == ElementType::f32 ? element : ScalarExpr::cast(ElementType::f32, element);
    store.value = ScalarExpr::cast(ElementType::bf16, part_of(x, p, count, before, ordinary));
    if (const std::string known = known_part(edit, store); !known.empty()) {
      parts.push_back(known);
      continue;
    }
    Tensor part = tensor;
    part.name = part_name;
    part.type = ElementType::bf16;
    part.role = TensorRole::temporary;
    part.tolerance.reset();
    edit.nest().tensors.push_back(part);
    edit.insert(store);
    parts.push_back(part_name);
  }
  return parts;
}

ScalarExpr read_part(Statement& statement, const std::string& part, const isl::map& access) {
  const int ordinal = add_read(statement, {part, access.set_range_tuple(part)});
  return ScalarExpr::cast(ElementType::f32, ScalarExpr::read(ordinal, ElementType::bf16));
}

Nest multiply_parts(SumEdit& edit, OrdinalPair operands, const std::vector<std::string>& a, const std::vector<std::string>& b,
                    const std::vector<OrdinalPair>& pairs) {
  Statement sum = edit.sum();
  const std::vector<Access> reads = std::exchange(sum.reads, {});
  ScalarExpr all;
  for (const auto& [p, q] : pairs) {
    const ScalarExpr left = read_part(sum, a[p], reads[operands.first].relation),
                     right = read_part(sum, b[q], reads[operands.second].relation);
    const ScalarExpr product = make(ScalarOp::mul, left, right);
    all = all.defined() ? make(ScalarOp::add, all, product) : product;
  }
  sum.value = all;
  sum.group = edit.nest().statement(sum.name).group;
  replace_statement(edit.nest(), sum);
  return std::move(edit.nest());
}

}  // namespace nestor
