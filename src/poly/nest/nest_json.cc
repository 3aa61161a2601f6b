// Nests as JSON: a plain tree of names, with isl objects as text.
#include "poly/nest/nest_json.h"

#include <algorithm>

#include "poly/isl/context.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/composite_parts.h"
#include "poly/nest/json_reader.h"
#include "poly/nest/nest_sets.h"
#include "poly/nest/scalar_json.h"
#include "support/error.h"
#include "support/scalar_range.h"
#include "support/system/json_text.h"
#include "support/system/text_file.h"

namespace nestor {
namespace {

/// What `parse` makes of isl's text at the reader's place: a short text can take isl hours, so under a budget.
template <class Parse>
auto read_isl(const JsonReader& reader, const Parse& parse) {
  return isl_guarded(reader.place(), [&] { return parse(reader.text(), reader.place()); });
}

using nlohmann::json;

json access_to_json(const Access& access) { return {{"tensor", access.tensor}, {"relation", isl_text(access.relation)}}; }

Access read_access(const JsonReader& reader) {
  reader.only({"tensor", "relation"});
  return {reader.at("tensor").text(), read_isl(reader.at("relation"), parse_map)};
}

json statement_to_json(const Statement& statement) {
  json reads = json::array();
  for (const Access& read : statement.reads) reads.push_back(access_to_json(read));
  json indices = json::array();
  for (const isl::pw_aff& index : statement.indices) indices.push_back(isl_text(index));
  json result = {{"name", statement.name},
                 {"dims", statement.dims},
                 {"domain", isl_text(statement.domain)},
                 {"write", access_to_json(statement.write)},
                 {"reads", reads},
                 {"indices", indices},
                 {"value", scalar_expr_to_json(statement.value)},
                 {"group", statement.group}};
  if (statement.reduction) result["reduction"] = to_string(*statement.reduction);
  return result;
}

Statement read_statement(const JsonReader& reader) {
  reader.only({"name", "dims", "domain", "write", "reads", "indices", "value", "group", "reduction"});
  std::vector<std::string> dims;
  for (const JsonReader& dim : reader.at("dims").list()) dims.push_back(dim.text());
  std::vector<Access> reads;
  for (const JsonReader& read : reader.at("reads").list()) reads.push_back(read_access(read));
  std::vector<isl::pw_aff> indices;
  for (const JsonReader& index : reader.at("indices").list()) indices.push_back(read_isl(index, parse_pw_aff));
  std::optional<ReductionOp> reduction;
  if (reader.has("reduction")) reduction = named(reader.at("reduction"), reduction_op_from);
  return {reader.at("name").text(),
          dims,
          read_isl(reader.at("domain"), parse_set),
          read_access(reader.at("write")),
          reads,
          indices,
          read_scalar_expr(reader.at("value")),
          reduction,
          static_cast<int>(reader.at("group").integer())};
}

Tensor read_tensor(const JsonReader& reader) {
  reader.only({"name", "type", "role", "shape", "tolerance"});
  Tensor tensor{reader.at("name").text(), reader.at("type").type(), reader.at("role").role(), {}};
  for (const JsonReader& extent : reader.at("shape").list()) tensor.shape.push_back(read_isl(extent, parse_pw_aff));
  if (reader.has("tolerance")) tensor.tolerance = reader.at("tolerance").number();
  return tensor;
}

SizeParam read_size(const JsonReader& reader) {
  reader.only({"name", "min", "max", "specialized", "default"});
  SizeParam size;
  size.name = reader.at("name").text();
  size.min = reader.at("min").integer();
  if (reader.has("max")) size.max = reader.at("max").integer();
  size.specialized = reader.at("specialized").boolean();
  size.default_value = reader.at("default").integer();
  return size;
}

json sizes_to_json(const Nest& nest) {
  json sizes = json::array();
  for (const SizeParam& size : nest.sizes) {
    json entry = {{"name", size.name}, {"min", size.min}, {"specialized", size.specialized}, {"default", size.default_value}};
    if (size.max) entry["max"] = *size.max;
    sizes.push_back(entry);
  }
  return sizes;
}

Nest read_nest(const JsonReader& reader) {
  reader.only({"format", "op", "variant", "tolerance", "sizes", "scalars", "context", "tensors", "statements"});
  const std::int64_t format = reader.at("format").integer();
  if (format != kNestFormat) user_error("format: this nest file is of format {}; this program reads {}", format, kNestFormat);
  Nest nest;
  nest.op = reader.at("op").text();
  nest.variant = reader.at("variant").text();
  nest.tolerance = reader.at("tolerance").number();
  for (const JsonReader& size : reader.at("sizes").list()) nest.sizes.push_back(read_size(size));
  for (const JsonReader& scalar : reader.at("scalars").list()) {
    scalar.only({"name", "type", "default", "min", "max"});
    ScalarParam param{scalar.at("name").text(), scalar.at("type").type(), scalar.at("default").number()};
    if (scalar.has("min")) param.minimum = scalar.at("min").number();
    if (scalar.has("max")) param.maximum = scalar.at("max").number();
    nest.scalars.push_back(std::move(param));
  }
  nest.context = read_isl(reader.at("context"), parse_set);
  for (const JsonReader& tensor : reader.at("tensors").list()) nest.tensors.push_back(read_tensor(tensor));
  for (const JsonReader& statement : reader.at("statements").list()) nest.statements.push_back(read_statement(statement));
  return nest;
}

/// Statements that run at no size compute nothing, and no analysis expects them; temporaries go that none is left to use.
void drop_statements_without_points(Nest& nest) {
  const isl::set context = full_context(nest);
  std::erase_if(nest.statements, [&](const Statement& each) { return each.domain.intersect_params(context).is_empty(); });
  if (nest.statements.empty()) user_error("nest {} computes nothing: no statement has a point at any size", nest.op);
  std::erase_if(nest.tensors, [&](const Tensor& tensor) {
    return tensor.role == TensorRole::temporary &&
           std::none_of(nest.statements.begin(), nest.statements.end(), [&](const Statement& each) {
             return each.write.tensor == tensor.name || reads_tensor(each, tensor.name);
           });
  });
}

}  // namespace

json nest_to_json(const Nest& nest) {
  json scalars = json::array();
  for (const ScalarParam& scalar : nest.scalars) {
    scalars.push_back(
        {{"name", scalar.name}, {"type", to_string(scalar.type)}, {"default", number_to_json(scalar.default_value)}});
    range_to_json(scalar, scalars.back());
  }
  json tensors = json::array();
  for (const Tensor& tensor : nest.tensors) {
    json shape = json::array();
    for (const isl::pw_aff& extent : tensor.shape) shape.push_back(isl_text(extent));
    tensors.push_back(
        {{"name", tensor.name}, {"type", to_string(tensor.type)}, {"role", to_string(tensor.role)}, {"shape", shape}});
    if (tensor.tolerance) tensors.back()["tolerance"] = *tensor.tolerance;
  }
  json statements = json::array();
  for (const Statement& statement : nest.statements) statements.push_back(statement_to_json(statement));
  return {
      {"format", kNestFormat},        {"op", nest.op},      {"variant", nest.variant},           {"tolerance", nest.tolerance},
      {"sizes", sizes_to_json(nest)}, {"scalars", scalars}, {"context", isl_text(nest.context)}, {"tensors", tensors},
      {"statements", statements}};
}

Nest nest_from_json(const json& value) {
  require_flat_json(value, "the nest");
  Nest nest;
  with_isl_budget("reading the nest", [&] { nest = read_nest(JsonReader(value, "nest")); }, 3 * kIslBudget);
  validate(nest);
  with_isl_budget("reading the nest", [&] { drop_statements_without_points(nest); });
  return nest;
}

Nest load_nest(const std::string& path) {
  const json value = json_from_text(text_of_file(path), path);
  try {
    return nest_from_json(value);
  } catch (const UserError& error) {
    user_error("{}: {}", path, error.what());
  }
}

}  // namespace nestor
