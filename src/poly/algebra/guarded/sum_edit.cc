// Sums with a choice between two ways.
#include "poly/algebra/guarded/sum_edit.h"

#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <set>
#include <utility>

#include "poly/algebra/operands/half_products.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/nest/nest_sets.h"

namespace nestor {

std::string tensor_of(const isl::map& access) { return isl_map_get_tuple_name(access.get(), isl_dim_out); }

isl::map along_dims(const isl::map& relation, const Statement& statement, const std::set<int>& dims, const std::string& name) {
  isl_map* map = relation.intersect_domain(statement.domain).release();
  for (int d = static_cast<int>(statement.dims.size()); d-- > 0;) {
    if (!dims.contains(d)) map = isl_map_project_out(map, isl_dim_in, static_cast<unsigned>(d), 1);
  }
  return isl::manage(isl_map_set_tuple_name(map, isl_dim_in, name.c_str()));
}

Statement over_dims(const Nest& nest, const Statement& statement, const std::set<int>& dims, const std::string& name) {
  Statement result;
  result.name = name;
  isl_set* domain = domain_in(nest, statement).release();
  for (int d = static_cast<int>(statement.dims.size()); d-- > 0;) {
    if (!dims.contains(d)) domain = isl_set_project_out(domain, isl_dim_set, static_cast<unsigned>(d), 1);
  }
  domain = isl_set_coalesce(isl_set_gist_params(domain, full_context(nest).release()));
  domain = isl_set_set_tuple_name(domain, name.c_str());
  for (const int d : dims) result.dims.push_back(statement.dims[static_cast<std::size_t>(d)]);
  result.domain = isl::manage(with_dim_names(domain, result.dims));
  return result;
}

bool can_be_guarded(const Nest& nest, const Statement& sum, std::string& why, bool numbers) {
  why = "it does not add up to a temporary of f32 from 0 on";
  const Tensor& tensor = nest.tensor(sum.write.tensor);
  if (sum.reduction != ReductionOp::add || tensor.role != TensorRole::temporary || tensor.type != ElementType::f32 ||
      !starts_from(nest, sum, 0))
    return false;
  why = "it shares its loops or its result with other statements";
  const std::vector<const Statement*> starts = initialisers_of(nest, sum), readers = readers_of(nest, tensor.name);
  if (starts.size() != 1 || writers_of(nest, tensor.name).size() != 2 || !alone_in_group(nest, sum.name) ||
      !alone_in_group(nest, starts.front()->name))
    return false;
  why = "its result is read before it is complete, or elements have no terms";
  const auto later = [&](const Statement* reader) { return reader->group > sum.group; };
  if (!std::all_of(readers.begin(), readers.end(), later) || !always_has_points(nest, sum)) return false;
  why = "its result is not indexed by its dims alone";
  const std::vector<std::string> names = names_of_indices(sum, sum.write);
  // One index for each dim that is no term's: of two indices that are one dim, tensors over dims would have one alone.
  const bool each_once = std::set<std::string>(names.begin(), names.end()).size() == names.size() &&
                         names.size() + reduced_dims(sum).size() == sum.dims.size();
  return !names.empty() && each_once && (numbers || sum.indices.empty());
}

bool is_written_before(const Nest& nest, const std::string& tensor, const Statement& sum) {
  const int start = initialisers_of(nest, sum).front()->group;
  const std::vector<const Statement*> writers = writers_of(nest, tensor);
  return std::all_of(writers.begin(), writers.end(), [&](const Statement* writer) { return writer->group < start; });
}

SumEdit::SumEdit(const Nest& nest, const Statement& sum) : result_(nest), sum_(sum), start_(*initialisers_of(nest, sum).front()) {
  const Tensor& whole = nest.tensor(sum.write.tensor);
  const std::vector<std::string> names = names_of_indices(sum, sum.write);
  for (std::size_t k = 0; k < names.size(); ++k) {
    const auto at = std::find(sum.dims.begin(), sum.dims.end(), names[k]) - sum.dims.begin();
    extents_.emplace(static_cast<int>(at), whole.shape[k]);
  }
}

std::set<int> SumEdit::elements() const {
  std::set<int> dims;
  for (const auto& [d, extent] : extents_) dims.insert(d);
  return dims;
}

void SumEdit::insert(const Statement& statement) { insert_statement(result_, position_of(result_, start_.name), statement); }

isl::map SumEdit::add_tensor(const std::set<int>& dims, const std::string& suffix) {
  Tensor tensor = result_.tensor(sum_.write.tensor);
  tensor.name = fresh_name(result_, tensor.name + suffix);
  tensor.shape.clear();
  isl_map* access = isl_set_identity(sum_.domain.copy());
  for (int d = static_cast<int>(sum_.dims.size()); d-- > 0;) {
    if (!dims.contains(d)) access = isl_map_project_out(access, isl_dim_out, static_cast<unsigned>(d), 1);
  }
  access = isl_map_gist_domain(access, sum_.domain.copy());
  for (const int d : dims) tensor.shape.push_back(extents_.at(d));
  result_.tensors.push_back(tensor);
  return isl::manage(isl_map_set_tuple_name(access, isl_dim_out, tensor.name.c_str()));
}

isl::map SumEdit::seen_from(const Statement& statement, const std::set<int>& dims, const isl::map& access) const {
  const isl::map map = along_dims(access, sum_, dims, statement.name);
  return isl::manage(isl_map_gist_domain(map.copy(), domain_in(result_, statement).release()));
}

void SumEdit::add_start(const std::set<int>& dims, const isl::map& to) {
  const std::string tensor = tensor_of(to);
  Statement start = over_dims(result_, sum_, dims, fresh_name(result_, tensor + "_init"));
  start.write = {tensor, seen_from(start, dims, to)};
  start.value = ScalarExpr::constant(0);
  insert(start);
}

Nest SumEdit::guard(const isl::map& choice, const std::function<ScalarExpr(const ScalarExpr&)>& missing,
                    const std::function<ScalarExpr(const ScalarExpr&)>& kept) {
  Statement sum = sum_, start = start_;
  const auto chosen = [&](Statement& statement, const isl::map& access) {
    return ScalarExpr::read(add_read(statement, {tensor_of(choice), access}), ElementType::f32);
  };
  sum.value = ScalarExpr::make(ScalarOp::select, {missing(chosen(sum, choice)), sum.value, ScalarExpr::constant(0)});
  const isl::map to_sum =
      start.write.relation.apply_range(sum.write.relation.intersect_domain(domain_in(result_, sum)).reverse());
  const isl::map seen = to_sum.apply_range(choice).coalesce();
  start.value = kept(chosen(start, isl::manage(isl_map_gist_domain(seen.copy(), domain_in(result_, start).release()))));
  Tensor tensor = result_.tensor(sum.write.tensor);
  tensor.name = fresh_name(result_, tensor.name + "_kept");
  result_.tensors.push_back(tensor);
  const std::set<int> dims = elements();
  Statement copy = over_dims(result_, sum_, dims, fresh_name(result_, tensor.name + "_copied"));
  copy.write = {sum.write.tensor, seen_from(copy, dims, sum.write.relation)};
  copy.reads = {{tensor.name, copy.write.relation.set_range_tuple(tensor.name)}};
  copy.value = ScalarExpr::read(0, ElementType::f32);
  insert_statement(result_, group_end(result_, sum.name), copy);
  for (Statement* statement : {&start, &sum}) {
    statement->write = {tensor.name, statement->write.relation.set_range_tuple(tensor.name)};
    statement->group = result_.statement(statement->name).group;
    replace_statement(result_, *statement);
  }
  return std::move(result_);
}

}  // namespace nestor
