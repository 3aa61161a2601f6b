// Splitting the points of reductions into parts: the statements that result.
#include "poly/algebra/rules/split_parts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

#include "poly/algebra/values/builders.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

/// { T[index, part] -> T[part, index] }: what is next to each other in the old tensor stays so within a part.
isl::map part_first(const std::string& tensor, std::size_t old_rank) {
  std::vector<std::string> index;
  index.reserve(old_rank);
  for (std::size_t k = 0; k < old_rank; ++k) index.push_back(fmt::format("e{}", k));
  const std::string dims = fmt::format("{}", fmt::join(index, ", "));
  return parse_map(fmt::format("{{ {0}[{1}{2}p] -> {0}[p{2}{1}] }}", tensor, dims, old_rank == 0 ? "" : ", "), "parts");
}

/// The update with the part as a further dim.
void build_update(const Nest& nest, const Statement& statement, const isl::map& part_of, const Parts& parts,
                  PartReduction& split) {
  const std::vector<int> reduced = reduced_dims(statement);
  const std::size_t place = reduced.empty() ? statement.dims.size() : static_cast<std::size_t>(reduced[0]);
  std::vector<isl::pw_aff> functions;
  std::vector<std::string> dims;
  for (std::size_t k = 0; k <= statement.dims.size(); ++k) {
    if (k == place) {
      functions.push_back(functions_of(part_of.intersect_domain(statement.domain)).at(0));
      dims.push_back(parts.name);
    }
    if (k == statement.dims.size()) break;
    functions.push_back(dim_function(statement.domain, static_cast<int>(k)));
    dims.push_back(statement.dims[k]);
  }
  const std::string name = fresh_name(nest, statement.name + "_part");
  const isl::map to_new = relation_of(statement.domain, name, functions).intersect_domain(statement.domain).coalesce();
  split.to_old = to_new.reverse();
  const isl::set domain = to_new.range().coalesce().gist_params(full_context(nest));
  Statement update{name, dims, domain, {split.tensor.name, isl::map()}, {}, {}, {}, statement.reduction, 0};
  update.domain = isl::manage(with_dim_names(update.domain.release(), update.dims));
  update.value = import_value(update, statement, split.to_old, statement.value);
  std::vector<isl::pw_aff> written;
  const isl::map plain_old = relation_of(update.domain, statement.name, [&] {
    std::vector<isl::pw_aff> old;
    for (std::size_t k = 0; k < dims.size(); ++k) {
      if (k != place) old.push_back(dim_function(update.domain, static_cast<int>(k)));
    }
    return old;
  }());
  for (const isl::pw_aff& function : functions_of(plain_old.apply_range(statement.write.relation))) written.push_back(function);
  const isl::pw_aff part = dim_function(update.domain, static_cast<int>(place));
  written.push_back(part);
  update.write.relation = relation_of(update.domain, split.tensor.name, written);
  split.part_of = isl::manage(isl_map_from_pw_aff(part.copy()));
  split.update = update;
}

}  // namespace

isl::map parts_of_dim(const Statement& statement, int dim, std::int64_t size) {
  const isl::map value = isl::manage(isl_map_from_pw_aff(dim_function(statement.domain, dim).release()));
  return value.apply_range(parse_map(fmt::format("{{ [j] -> [p] : {0} p <= j < {0} p + {0} }}", size), "parts"));
}

PartReduction split_into_parts(const Nest& nest, const Statement& statement, const isl::map& part_of, const Parts& parts) {
  PartReduction split;
  const Tensor& whole = nest.tensor(statement.write.tensor);
  split.tensor = {fresh_name(nest, whole.name + "_part"), whole.type, TensorRole::temporary, whole.shape};
  if (whole.type != ElementType::i32) split.tensor.type = ElementType::f32;
  build_update(nest, statement, part_of, parts, split);
  const isl::set values = split.update.domain.apply(split.part_of);
  split.tensor.shape.insert(split.tensor.shape.begin(), extent_of(nest, values, 0));
  isl::map to_update;
  split.init = element_statement(nest, split.update, fresh_name(nest, statement.name + "_part_init"), to_update);
  split.init.value = ScalarExpr::constant(neutral_element(*statement.reduction, split.tensor.type), split.tensor.type);
  const isl::map order = part_first(split.tensor.name, whole.shape.size());
  split.init.write.relation = split.init.write.relation.apply_range(order);
  split.update.write.relation = split.update.write.relation.apply_range(order);
  return split;
}

Statement combine_parts(const Nest& nest, const Statement& statement, const PartReduction& split, const Parts& parts) {
  const isl::map order = part_first(split.tensor.name, split.tensor.shape.size() - 1);
  Statement part_last = split.update;
  part_last.write.relation = part_last.write.relation.apply_range(order.reverse());
  isl::map to_update;
  Statement combine = element_statement(nest, part_last, fresh_name(nest, statement.name + "_combine"), to_update);
  // Where there is one part, another index may be the same number and have its name.
  for (std::size_t k = 0; k + 1 < combine.dims.size(); ++k) {
    if (combine.dims[k] == parts.name) combine.dims[k] = fresh_dim(nest, combine.dims, fmt::format("e{}", k));
  }
  combine.dims.back() = parts.name;
  combine.domain = isl::manage(with_dim_names(combine.domain.release(), combine.dims));
  combine.reads = {{combine.write.tensor, combine.write.relation.apply_range(order)}};
  std::vector<isl::pw_aff> index = functions_of(combine.write.relation);
  index.pop_back();
  combine.write = {statement.write.tensor, relation_of(combine.domain, statement.write.tensor, index)};
  combine.reduction = statement.reduction;
  combine.value = ScalarExpr::read(0, split.tensor.type);
  return combine;
}

void replace_by_parts(Nest& nest, const Statement& statement, const PartReduction& split, const Statement& combine) {
  const std::size_t place = position_of(nest, statement.name);
  nest.tensors.push_back(split.tensor);
  erase_statement(nest, statement.name);
  insert_statement(nest, place, combine);
  insert_statement(nest, place, split.update);
  insert_statement(nest, place, split.init);
}

}  // namespace nestor
