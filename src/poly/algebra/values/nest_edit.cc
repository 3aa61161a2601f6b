// Editing a nest: the moves that algebra rules are made of.
#include "poly/algebra/values/nest_edit.h"

#include <fmt/format.h>
#include <isl/aff.h>
#include <isl/id.h>
#include <isl/map.h>
#include <isl/set.h>
#include <isl/space.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"
#include "support/error.h"

namespace nestor {
namespace {

std::string untaken(const std::string& base, const std::function<bool(const std::string&)>& taken) {
  if (!taken(base)) return base;
  int number = 2;
  while (taken(fmt::format("{}_{}", base, number))) ++number;
  return fmt::format("{}_{}", base, number);
}

isl::pw_aff with_domain_tuple(const isl::pw_aff& function, const std::string& name) {
  isl_id* id = isl_id_alloc(isl_context().get(), name.c_str(), nullptr);
  return isl::manage(isl_pw_aff_set_tuple_id(function.copy(), isl_dim_in, id));
}

void renumber_groups(Nest& nest) {
  int next = -1;
  int last = -2;
  for (Statement& statement : nest.statements) {
    const int old = statement.group;
    if (next < 0 || old != last) ++next;
    last = old;
    statement.group = next;
  }
}

isl::map as_map(const isl::pw_aff& function) { return isl::manage(isl_map_from_pw_aff(function.copy())); }

}  // namespace

std::vector<const Statement*> writers_of(const Nest& nest, const std::string& tensor) {
  std::vector<const Statement*> found;
  for (const Statement& statement : nest.statements) {
    if (statement.write.tensor == tensor) found.push_back(&statement);
  }
  return found;
}

std::vector<const Statement*> readers_of(const Nest& nest, const std::string& tensor) {
  std::vector<const Statement*> found;
  for (const Statement& statement : nest.statements) {
    const bool reads =
        std::any_of(statement.reads.begin(), statement.reads.end(), [&](const Access& a) { return a.tensor == tensor; });
    if (reads) found.push_back(&statement);
  }
  return found;
}

const Statement* sole_definition(const Nest& nest, const std::string& tensor) {
  const std::vector<const Statement*> writers = writers_of(nest, tensor);
  if (writers.size() != 1 || writers[0]->reduction) return nullptr;
  return writers[0]->write.relation.intersect_domain(writers[0]->domain).is_injective() ? writers[0] : nullptr;
}

bool is_elementwise_temporary(const Nest& nest, const std::string& tensor) {
  const auto definition_of = [&](const std::string& name) {
    return nest.tensor(name).role == TensorRole::temporary ? sole_definition(nest, name) : nullptr;
  };
  const Statement* definition = definition_of(tensor);
  if (definition == nullptr) return false;
  // Whether it is made of itself can be seen in its loops.
  std::set<std::string> seen;
  std::vector<const Statement*> rest{definition};
  while (!rest.empty()) {
    const Statement& statement = *rest.back();
    rest.pop_back();
    for (const Access& read : statement.reads) {
      if (read.tensor == tensor) return false;
      const std::vector<const Statement*> writers = writers_of(nest, read.tensor);
      if (writers.size() != 1 || writers.front()->group != definition->group || !seen.insert(read.tensor).second) continue;
      if (const Statement* other = definition_of(read.tensor)) rest.push_back(other);
    }
  }
  return true;
}

std::vector<const Statement*> initialisers_of(const Nest& nest, const Statement& update) {
  std::vector<const Statement*> found;
  for (const Statement* writer : writers_of(nest, update.write.tensor)) {
    if (writer->name == update.name) continue;
    if (writer->reduction || writer->group >= update.group) return {};
    found.push_back(writer);
  }
  return found;
}

std::size_t begin_with_initialisers(const Nest& nest, const Statement& statement) {
  std::size_t place = group_begin(nest, statement.name);
  const auto starts = [&](const Statement& other) { return statement.reduction && other.write.tensor == statement.write.tensor; };
  while (place > 0 && starts(nest.statements[place - 1])) place = group_begin(nest, nest.statements[place - 1].name);
  return place;
}

bool starts_from(const Nest& nest, const Statement& update, double value) {
  const auto initialisers = initialisers_of(nest, update);
  if (initialisers.empty()) return false;
  return std::all_of(initialisers.begin(), initialisers.end(), [&](const Statement* s) {
    ScalarExpr expr = s->value;
    while (expr.op() == ScalarOp::cast) expr = expr.args()[0];
    return expr.is_constant(value);
  });
}

bool always_has_points(const Nest& nest, const Statement& update) {
  const isl::set reached = update.write.relation.intersect_domain(domain_in(nest, update)).range();
  const auto starts = initialisers_of(nest, update);
  return std::all_of(starts.begin(), starts.end(), [&](const Statement* start) {
    return start->write.relation.intersect_domain(domain_in(nest, *start)).range().is_subset(reached);
  });
}

std::size_t position_of(const Nest& nest, const std::string& statement) {
  for (std::size_t k = 0; k < nest.statements.size(); ++k) {
    if (nest.statements[k].name == statement) return k;
  }
  internal_error("nest {} has no statement {}", nest.op, statement);
}

std::size_t group_end(const Nest& nest, const std::string& statement) {
  std::size_t position = position_of(nest, statement);
  const int group = nest.statements[position].group;
  while (position < nest.statements.size() && nest.statements[position].group == group) ++position;
  return position;
}

std::size_t group_begin(const Nest& nest, const std::string& statement) {
  std::size_t position = position_of(nest, statement);
  const int group = nest.statements[position].group;
  while (position > 0 && nest.statements[position - 1].group == group) --position;
  return position;
}

bool alone_in_group(const Nest& nest, const std::string& statement) {
  return group_end(nest, statement) - group_begin(nest, statement) == 1;
}

namespace {

/// Dims may not have the name of a size, scalar or tensor.
bool names_data(const Nest& nest, const std::string& name) {
  const auto is_size = [&](const SizeParam& size) { return size.name == name; };
  const auto is_scalar = [&](const ScalarParam& scalar) { return scalar.name == name; };
  return nest.find_tensor(name) != nullptr || std::any_of(nest.sizes.begin(), nest.sizes.end(), is_size) ||
         std::any_of(nest.scalars.begin(), nest.scalars.end(), is_scalar);
}

}  // namespace

std::string fresh_name(const Nest& nest, const std::string& base) {
  return untaken(base, [&](const std::string& name) {
    const auto has_dim = [&](const Statement& each) {
      return std::find(each.dims.begin(), each.dims.end(), name) != each.dims.end();
    };
    return nest.find_statement(name) != nullptr || names_data(nest, name) ||
           std::any_of(nest.statements.begin(), nest.statements.end(), has_dim);
  });
}

std::string fresh_dim(const Nest& nest, const std::vector<std::string>& dims, const std::string& base) {
  return untaken(base, [&](const std::string& name) {
    return std::find(dims.begin(), dims.end(), name) != dims.end() || names_data(nest, name);
  });
}

isl_set* with_dim_names(isl_set* set, const std::vector<std::string>& names) {
  for (std::size_t k = 0; k < names.size(); ++k)
    set = isl_set_set_dim_name(set, isl_dim_set, static_cast<unsigned>(k), names[k].c_str());
  return set;
}

void insert_statement(Nest& nest, std::size_t position, const Statement& statement) {
  const auto place = nest.statements.begin() + static_cast<std::ptrdiff_t>(position);
  auto inserted = nest.statements.insert(place, statement);
  inserted->group = -1;
  renumber_groups(nest);
}

void erase_statement(Nest& nest, const std::string& name) {
  nest.statements.erase(nest.statements.begin() + static_cast<std::ptrdiff_t>(position_of(nest, name)));
  renumber_groups(nest);
}

void replace_statement(Nest& nest, const Statement& statement) { nest.statements[position_of(nest, statement.name)] = statement; }

void drop_unused(Nest& nest) {
  const auto unread = [&](const Statement& statement) {
    return nest.tensor(statement.write.tensor).role == TensorRole::temporary && readers_of(nest, statement.write.tensor).empty();
  };
  bool changed = true;
  while (changed) {
    const auto dead = std::find_if(nest.statements.begin(), nest.statements.end(), unread);
    changed = dead != nest.statements.end();
    if (changed) nest.statements.erase(dead);
  }
  renumber_groups(nest);
  std::erase_if(nest.tensors, [&](const Tensor& tensor) {
    return tensor.role == TensorRole::temporary && writers_of(nest, tensor.name).empty() && readers_of(nest, tensor.name).empty();
  });
}

isl::map with_domain_tuple(const isl::map& map, const std::string& name) { return map.set_domain_tuple(name); }

Statement renamed(const Statement& statement, const std::string& name) {
  Statement result = statement;
  result.name = name;
  result.domain = isl::manage(isl_set_set_tuple_name(statement.domain.copy(), name.c_str()));
  result.write.relation = with_domain_tuple(statement.write.relation, name);
  for (Access& read : result.reads) read.relation = with_domain_tuple(read.relation, name);
  for (isl::pw_aff& index : result.indices) index = with_domain_tuple(index, name);
  return result;
}

int add_read(Statement& statement, const Access& access) {
  for (std::size_t k = 0; k < statement.reads.size(); ++k) {
    const Access& read = statement.reads[k];
    if (read.tensor == access.tensor &&
        read.relation.intersect_domain(statement.domain).is_equal(access.relation.intersect_domain(statement.domain))) {
      return static_cast<int>(k);
    }
  }
  statement.reads.push_back(access);
  return static_cast<int>(statement.reads.size()) - 1;
}

int add_index(Statement& statement, const isl::pw_aff& index) {
  for (std::size_t k = 0; k < statement.indices.size(); ++k) {
    if (as_map(statement.indices[k]).is_equal(as_map(index))) return static_cast<int>(k);
  }
  statement.indices.push_back(index);
  return static_cast<int>(statement.indices.size()) - 1;
}

void compact(Statement& statement) {
  std::map<int, int> reads;
  std::map<int, int> indices;
  std::vector<Access> kept_reads;
  std::vector<isl::pw_aff> kept_indices;
  statement.value.visit([&](const ScalarExpr& node) {
    if (node.op() == ScalarOp::read && reads.try_emplace(node.ordinal(), static_cast<int>(kept_reads.size())).second) {
      kept_reads.push_back(statement.reads.at(node.ordinal()));
    }
    if (node.op() == ScalarOp::index && indices.try_emplace(node.ordinal(), static_cast<int>(kept_indices.size())).second) {
      kept_indices.push_back(statement.indices.at(node.ordinal()));
    }
  });
  statement.value = statement.value.rewrite([&](const ScalarExpr& node) {
    if (node.op() == ScalarOp::read) return ScalarExpr::read(reads.at(node.ordinal()), node.type());
    if (node.op() == ScalarOp::index) return ScalarExpr::index(indices.at(node.ordinal()));
    return node;
  });
  statement.reads = kept_reads;
  statement.indices = kept_indices;
}

ScalarExpr import_value(Statement& consumer, const Statement& producer, const isl::map& relation, const ScalarExpr& value) {
  const isl::map instances = relation.intersect_domain(consumer.domain);
  const isl::pw_multi_aff function = isl::manage(isl_pw_multi_aff_from_map(instances.copy()));
  return value.rewrite([&](const ScalarExpr& node) {
    const auto ordinal = static_cast<std::size_t>(node.ordinal());
    if (node.op() == ScalarOp::read) {
      const Access& read = producer.reads.at(ordinal);
      const isl::map composed = instances.apply_range(read.relation).gist_domain(consumer.domain).coalesce();
      return ScalarExpr::read(add_read(consumer, {read.tensor, composed}), node.type());
    }
    if (node.op() == ScalarOp::index) {
      return ScalarExpr::index(
          add_index(consumer, producer.indices.at(ordinal).pullback(function).gist(consumer.domain).coalesce()));
    }
    return node;
  });
}

isl::map producer_relation(const Statement& consumer, int ordinal, const Statement& producer) {
  return consumer.reads.at(ordinal)
      .relation.intersect_domain(consumer.domain)
      .apply_range(producer.write.relation.intersect_domain(producer.domain).reverse());
}

bool may_recompute(const Nest& nest, const Statement& producer, const Statement& consumer) {
  for (const Access& read : producer.reads) {
    for (const Statement* writer : writers_of(nest, read.tensor)) {
      if (writer->group >= producer.group && writer->group <= consumer.group) return false;
    }
  }
  return true;
}

void inline_read(const Nest& nest, Statement& consumer, int ordinal) {
  const std::string tensor = consumer.reads.at(ordinal).tensor;
  const Statement* producer = sole_definition(nest, tensor);
  if (producer == nullptr) internal_error("{} has no single definition to inline", tensor);
  const isl::map relation = producer_relation(consumer, ordinal, *producer);
  ScalarExpr value = import_value(consumer, *producer, relation, producer->value);
  const ElementType stored = nest.tensor(tensor).type;
  if (value.type() != stored) value = ScalarExpr::cast(stored, value);
  consumer.value = consumer.value.rewrite(
      [&](const ScalarExpr& node) { return node.op() == ScalarOp::read && node.ordinal() == ordinal ? value : node; });
  compact(consumer);
}

isl::map onto_dims(const Statement& statement, const std::vector<int>& dims, const std::string& name) {
  isl_map* map = isl_map_from_domain(statement.domain.copy());
  map = isl_map_add_dims(map, isl_dim_out, static_cast<unsigned>(dims.size()));
  for (std::size_t k = 0; k < dims.size(); ++k) map = isl_map_equate(map, isl_dim_in, dims[k], isl_dim_out, static_cast<int>(k));
  return isl::manage(isl_map_set_tuple_name(map, isl_dim_out, name.c_str()));
}

bool has_negative_values(const Nest& nest, const Statement& statement, const std::vector<int>& dims) {
  const isl::set domain = domain_in(nest, statement);
  return std::any_of(dims.begin(), dims.end(), [&](int dim) {
    return !isl::manage(isl_set_upper_bound_si(domain.copy(), isl_dim_set, static_cast<unsigned>(dim), -1)).is_empty();
  });
}

bool depends_on_dim(const isl::map& relation, int dim) {
  return isl_map_involves_dims(relation.get(), isl_dim_in, static_cast<unsigned>(dim), 1) == isl_bool_true;
}

bool varies_along(const Statement& statement, const ScalarExpr& value, int dim) {
  bool varies = false;
  value.visit([&](const ScalarExpr& node) {
    const auto ordinal = static_cast<std::size_t>(node.ordinal());
    if (node.op() == ScalarOp::read) varies = varies || depends_on_dim(statement.reads[ordinal].relation, dim);
    if (node.op() == ScalarOp::index)
      varies = varies || isl_pw_aff_involves_dims(statement.indices[ordinal].get(), isl_dim_in, static_cast<unsigned>(dim), 1);
  });
  return varies;
}

std::vector<int> reduced_dims(const Statement& statement) {
  std::vector<int> reduced;
  const std::vector<isl::pw_aff> functions = functions_of(statement.write.relation);
  for (int k = 0; k < static_cast<int>(statement.dims.size()); ++k) {
    const bool used = std::any_of(functions.begin(), functions.end(), [&](const isl::pw_aff& function) {
      return isl_pw_aff_involves_dims(function.get(), isl_dim_in, static_cast<unsigned>(k), 1) == isl_bool_true;
    });
    if (!used) reduced.push_back(k);
  }
  return reduced;
}

bool determined_by_write(const Nest& nest, const Statement& statement, const isl::map& map) {
  const isl::set domain = domain_in(nest, statement);
  return statement.write.relation.intersect_domain(domain).reverse().apply_range(map).is_single_valued();
}

isl::pw_aff extent_of(const Nest& nest, const isl::set& domain, int dim) {
  const isl::set bounded = domain.intersect_params(full_context(nest));
  isl::pw_aff largest = isl::manage(isl_set_dim_max(bounded.copy(), dim));
  largest = largest.add_constant(1L);
  // Where there is no point at all there is no largest one.
  const isl::set none = full_context(nest).subtract(largest.domain());
  if (!none.is_empty()) {
    const isl::pw_aff zero = isl::manage(isl_pw_aff_val_on_domain(none.copy(), isl_val_zero(isl_set_get_ctx(none.get()))));
    largest = largest.union_add(zero);
  }
  return largest.coalesce().gist_params(full_context(nest));
}

Statement element_statement(const Nest& nest, const Statement& like, const std::string& name, isl::map& to_like) {
  const isl::map write = like.write.relation.intersect_domain(domain_in(nest, like));
  const isl::map elements = with_domain_tuple(write.reverse(), name);
  to_like = elements;
  const std::vector<isl::pw_aff> functions = functions_of(like.write.relation);
  std::vector<std::string> dims;
  for (std::size_t k = 0; k < functions.size(); ++k) {
    std::string dim = fresh_dim(nest, dims, fmt::format("e{}", k));
    for (std::size_t d = 0; d < like.dims.size(); ++d) {
      const isl::map same = as_map(dim_function(like.domain, static_cast<int>(d)));
      const bool free = std::find(dims.begin(), dims.end(), like.dims[d]) == dims.end();
      if (!free || !as_map(functions[k]).intersect_domain(like.domain).is_equal(same.intersect_domain(like.domain))) continue;
      dim = like.dims[d];
      break;
    }
    dims.push_back(dim);
  }
  isl::set domain = isl::manage(isl_set_gist_params(elements.domain().coalesce().release(), full_context(nest).release()));
  domain = isl::manage(with_dim_names(domain.release(), dims));
  std::vector<isl::pw_aff> identity;
  identity.reserve(dims.size());
  for (std::size_t k = 0; k < dims.size(); ++k) identity.push_back(dim_function(domain, static_cast<int>(k)));
  return {name, dims, domain, {like.write.tensor, relation_of(domain, like.write.tensor, identity)}, {}, {}, {}, std::nullopt, 0};
}

isl::set domain_in(const Nest& nest, const Statement& statement) { return statement.domain.intersect_params(full_context(nest)); }

}  // namespace nestor
