// Rule "separate_sums": the few sums of products that a value is made of get a temporary each.
//
// Pattern    t_(x, c) = sum over k of a b, products of 16-bit tensors in f32, with a dim c of a few values; all who read t is
//            r_x = sum over c of f(t_(x, c), ..), in f32: what experts say, mixed by weights of each row; or the largest or least of these.
// Rewrite    t0_x, t1_x, .., each with its own start and sum, where c is 0, 1, ..; r_x is one value, of f(t0_x, ..), f(t1_x, ..), .. added up in
//            this order. So one kernel has all sums in tiles of the same rows and columns, and mixes them there.
//            Or: some who read t need several of its elements along c at once (halves that are turned by an angle), others one after the other
//            (the sum of their squares). All of them are written once for each c that they have, sums from the first c on.
// Conditions start, sum and reader are alone in their loops and the only ones that know t; its index of c is a dim of start and sum.
// Proof      an element of t has the same terms in the same order, whatever it is called. For r, see few_terms.h.
// Rounding   none: the same operations on the same values.
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "poly/algebra/operands/half_products.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/few_terms.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"
#include "poly/nest/scalar_share.h"

namespace nestor {
namespace {

constexpr const char* kName = "separate_sums";
constexpr std::size_t kFewReads = 2;  ///< of a weight's definition

/// The nest with the reader as a value, and where it reads the sums: by read, the value of index `index`.
struct Separation {
  Nest nest;
  std::string start, sum, value;
  std::size_t index = 0;
  std::map<std::size_t, std::int64_t> reads;
};

/// The only index that is the same number wherever the value reads the tensor.
bool find_reads(const Nest& nest, const Tensor& tensor, Separation& found) {
  const Statement& value = nest.statement(found.value);
  for (found.index = 0; found.index < tensor.shape.size(); ++found.index) {
    found.reads.clear();
    bool all = true;
    for (std::size_t k = 0; k < value.reads.size(); ++k) {
      if (value.reads[k].tensor != tensor.name) continue;
      const auto number = number_of_index(domain_in(nest, value), value.reads[k], found.index);
      all = all && number.has_value();
      if (number) found.reads[k] = *number;
    }
    if (all && found.reads.size() > 1) return true;
  }
  return false;
}

/// The dim that the index of the statement's write is; -1: it is none.
int written_dim(const Statement& statement, std::size_t index) {
  if (names_of_indices(statement, statement.write).empty() || !statement.indices.empty()) return -1;
  const std::set<int> dims = dims_of_indices(statement, statement.write)[index];
  return dims.size() == 1 ? *dims.begin() : -1;
}

/// The nest where the only reader of the tensor, if it is a definition for one reduction alone (a bias is added before the largest is taken), is
/// a part of that.
Nest with_definition_inside(const Nest& nest, const std::string& tensor) {
  const std::vector<const Statement*> readers = readers_of(nest, tensor);
  if (readers.size() != 1 || readers.front()->reduction || !is_elementwise_temporary(nest, readers.front()->write.tensor))
    return nest;
  const std::string between = readers.front()->write.tensor;
  const std::vector<const Statement*> users = readers_of(nest, between);
  if (users.size() != 1 || !users.front()->reduction || !may_recompute(nest, *readers.front(), *users.front())) return nest;
  Nest result = nest;
  Statement user = *users.front();
  const auto reads = [&] {
    return std::find_if(user.reads.begin(), user.reads.end(), [&](const Access& read) { return read.tensor == between; });
  };
  for (auto read = reads(); read != user.reads.end(); read = reads())
    inline_read(nest, user, static_cast<int>(read - user.reads.begin()));
  replace_statement(result, user);
  drop_unused(result);
  return result;
}

/// Sets `why` where there is none.
std::optional<Separation> separation(const Nest& nest, const Statement& sum, std::string& why) {
  why = "it is no sum of products of two 16-bit tensors into a temporary of f32";
  const Tensor& tensor = nest.tensor(sum.write.tensor);
  if (!half_products(sum) || sum.reduction != ReductionOp::add || tensor.role != TensorRole::temporary ||
      tensor.type != ElementType::f32)
    return std::nullopt;
  why = "it shares its loops or its result with other statements";
  const Nest inside = with_definition_inside(nest, tensor.name);
  const std::vector<const Statement*> starts = initialisers_of(nest, sum), readers = readers_of(inside, tensor.name);
  if (starts.size() != 1 || writers_of(nest, tensor.name).size() != 2 || !alone_in_group(nest, sum.name) ||
      !alone_in_group(nest, starts.front()->name))
    return std::nullopt;
  why = "it is not read by one sum, maximum or minimum of a few of its elements alone";
  if (readers.size() != 1 || !readers.front()->reduction || readers.front()->group < sum.group) return std::nullopt;
  auto valued = with_sum_as_value(inside, readers.front()->name);
  if (!valued) return std::nullopt;
  Separation found{std::move(*valued), starts.front()->name, sum.name, readers.front()->name, 0, {}};
  if (!find_reads(found.nest, tensor, found) || written_dim(sum, found.index) < 0 ||
      written_dim(*starts.front(), found.index) < 0)
    return std::nullopt;
  return found;
}

/// The statement with its dim fixed, writing all but index `index` of what it wrote to another tensor.
Statement with_fixed_dim(const Nest& nest, const Statement& statement, int dim, std::int64_t number, std::size_t index,
                         const std::string& tensor, const std::string& name) {
  const auto at = static_cast<unsigned>(dim);
  const auto fixed = [&](const isl::map& relation) {
    isl_map* map = isl_map_fix_si(relation.copy(), isl_dim_in, at, static_cast<int>(number));
    map = isl_map_project_out(map, isl_dim_in, at, 1);
    return isl::manage(isl_map_set_tuple_name(map, isl_dim_in, name.c_str()));
  };
  Statement result = statement;
  result.name = name;
  result.dims.erase(result.dims.begin() + dim);
  isl_set* domain = isl_set_fix_si(domain_in(nest, statement).release(), isl_dim_set, at, static_cast<int>(number));
  domain = isl_set_gist_params(isl_set_project_out(domain, isl_dim_set, at, 1), full_context(nest).release());
  domain = isl_set_set_tuple_name(domain, name.c_str());
  result.domain = isl::manage(with_dim_names(domain, result.dims));
  isl_map* write = isl_map_project_out(fixed(statement.write.relation).release(), isl_dim_out, static_cast<unsigned>(index), 1);
  result.write = {tensor, isl::manage(isl_map_set_tuple_name(write, isl_dim_out, tensor.c_str()))};
  for (Access& read : result.reads) read.relation = fixed(read.relation);
  return result;
}

/// Short definitions that the value reads at known places, as weights of each of the sums are, become parts of it: they follow fewer dims than it.
void inline_weights(const Nest& nest, Statement& value) {
  const auto weight = [&] {
    return std::find_if(value.reads.begin(), value.reads.end(), [&](const Access& read) {
      if (!is_elementwise_temporary(nest, read.tensor)) return false;
      const Statement& definition = *sole_definition(nest, read.tensor);
      bool fixed = false;
      for (std::size_t k = 0; k < nest.tensor(read.tensor).shape.size(); ++k)
        fixed = fixed || number_of_index(domain_in(nest, value), read, k).has_value();
      const auto follows = [&](int dim) { return depends_on_dim(read.relation, dim); };
      std::vector<int> dims(value.dims.size());
      std::iota(dims.begin(), dims.end(), 0);
      return fixed && definition.reads.size() <= kFewReads && is_short(definition.value) &&
             may_recompute(nest, definition, value) && !std::all_of(dims.begin(), dims.end(), follows);
    });
  };
  for (auto read = weight(); read != value.reads.end(); read = weight())
    inline_read(nest, value, static_cast<int>(read - value.reads.begin()));
}

/// The nest with a temporary for each of the parts of the sums' results that meet somewhere.
std::optional<Nest> parts_of_sums(const Nest& nest, const Statement& sum, std::string& why) {
  const Tensor& tensor = nest.tensor(sum.write.tensor);
  if (!half_products(sum) || sum.reduction != ReductionOp::add || tensor.role != TensorRole::temporary ||
      tensor.type != ElementType::f32)
    return std::nullopt;
  why = "it is not read by one sum, maximum or minimum of a few of its elements alone, and no few parts of it meet";
  for (std::size_t index = 0; index < tensor.shape.size(); ++index) {
    const int dim = written_dim(sum, index);
    if (dim < 0 || few_values(domain_in(nest, sum), {dim}).size() < 2) continue;
    if (auto apart = with_parts_apart(nest, tensor.name, index)) return apart;
  }
  return std::nullopt;
}

std::vector<RuleMatch> find(const Nest& nest) {
  std::string why;
  return matching_statements(nest, kName, [&](const Statement& statement) {
    const bool found = separation(nest, statement, why) || parts_of_sums(nest, statement, why);
    return found ? "each of the sums that are mixed has a temporary of its own" : "";
  });
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  std::string why;
  const Statement& wanted = nest.statement(statement_argument(nest, kName, target, 1));
  if (!separation(nest, wanted, why)) {
    if (auto apart = parts_of_sums(nest, wanted, why)) return {std::move(*apart), {}, false};
  }
  Separation found = required_match(nest, kName, target, separation);
  Nest result = std::move(found.nest);
  const Statement sum = result.statement(found.sum), start = result.statement(found.start);
  const Tensor whole = result.tensor(sum.write.tensor);
  Statement value = result.statement(found.value);
  std::map<std::int64_t, std::string> tensors;
  for (const auto& [read, number] : found.reads) {
    Access& access = value.reads[read];
    std::string& own = tensors[number];
    if (own.empty()) {
      Tensor part = whole;
      part.name = own = fresh_name(result, whole.name + "_" + std::to_string(number));
      part.shape.erase(part.shape.begin() + static_cast<std::ptrdiff_t>(found.index));
      result.tensors.push_back(part);
      for (const Statement* each : {&start, &sum}) {
        const std::string fresh = fresh_name(result, each->name + "_" + std::to_string(number));
        insert_statement(result, position_of(result, start.name),
                         with_fixed_dim(result, *each, written_dim(*each, found.index), number, found.index, own, fresh));
      }
    }
    isl_map* relation = isl_map_project_out(access.relation.copy(), isl_dim_out, static_cast<unsigned>(found.index), 1);
    access = {own, isl::manage(isl_map_set_tuple_name(relation, isl_dim_out, own.c_str()))};
  }
  inline_weights(result, value);
  replace_statement(result, value);
  erase_statement(result, sum.name);
  erase_statement(result, start.name);
  drop_unused(result);
  return {std::move(result), {}, false};
}

}  // namespace

const Rule& separate_sums_rule() {
  static const Rule rule{kName,
                         "each of a few sums of products that are mixed gets a temporary of its own (argument: statement)",
                         "the same terms are added up in the same order, under other names",
                         "none",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
