// Nests as JSON: a plain tree of names, with isl objects as text.
#include "poly/nest_json.h"

#include <cmath>
#include <fstream>
#include <limits>

#include "poly/isl_tools.h"
#include "support/error.h"

namespace nestor {
namespace {

using nlohmann::json;

json number_to_json(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  return number;
}

/// A value inside a nest file together with its place there, for messages.
class Reader {
 public:
  Reader(const json& value, std::string place) : value_(value), place_(std::move(place)) {}

  Reader at(const char* key) const {
    if (!value_.is_object() || !value_.contains(key)) user_error("{}: the key \"{}\" is missing", place_, key);
    return {value_.at(key), place_ == "nest" ? std::string(key) : place_ + "." + key};
  }
  bool has(const char* key) const { return value_.is_object() && value_.contains(key) && !value_.at(key).is_null(); }

  std::vector<Reader> list() const {
    if (!value_.is_array()) user_error("{} must be a list", place_);
    std::vector<Reader> items;
    for (std::size_t k = 0; k < value_.size(); ++k) items.emplace_back(value_[k], fmt::format("{}[{}]", place_, k));
    return items;
  }
  std::string text() const {
    if (!value_.is_string()) user_error("{} must be a string", place_);
    return value_.get<std::string>();
  }
  std::int64_t integer() const {
    if (!value_.is_number_integer()) user_error("{} must be an integer", place_);
    return value_.get<std::int64_t>();
  }
  bool boolean() const {
    if (!value_.is_boolean()) user_error("{} must be true or false", place_);
    return value_.get<bool>();
  }
  double number() const {
    if (value_.is_number()) return value_.get<double>();
    if (value_ == "inf") return std::numeric_limits<double>::infinity();
    if (value_ == "-inf") return -std::numeric_limits<double>::infinity();
    if (value_ == "nan") return std::numeric_limits<double>::quiet_NaN();
    user_error("{} must be a number, \"inf\", \"-inf\" or \"nan\"", place_);
  }
  ElementType type() const {
    const auto found = element_type_from(text());
    if (!found) user_error("{}: \"{}\" is no element type; the types are f32, f16, bf16, i32 and bool", place_, text());
    return *found;
  }
  TensorRole role() const {
    for (const TensorRole role : {TensorRole::input, TensorRole::output, TensorRole::temporary}) {
      if (to_string(role) == text()) return role;
    }
    user_error("{}: \"{}\" is no role; the roles are input, output and temporary", place_, text());
  }
  const std::string& place() const { return place_; }

 private:
  const json& value_;
  std::string place_;
};

/// Converts UserErrors of a name look-up into ones that say where the name stood.
template <class F>
auto named(const Reader& reader, const F& look_up) {
  try {
    return look_up(reader.text());
  } catch (const UserError& error) {
    user_error("{}: {}", reader.place(), error.what());
  }
}

constexpr int kDeepestExpression = 400;

ScalarExpr read_expr(const Reader& reader, int depth) {
  if (depth > kDeepestExpression) user_error("{}: the expression is nested too deeply", reader.place());
  const ScalarOp op = named(reader.at("op"), scalar_op_from);
  switch (op) {
    case ScalarOp::constant:
      return ScalarExpr::constant(reader.at("number").number(), reader.at("type").type());
    case ScalarOp::index:
      return ScalarExpr::index(static_cast<int>(reader.at("ordinal").integer()));
    case ScalarOp::scalar:
      return ScalarExpr::scalar(reader.at("name").text(), reader.at("type").type());
    case ScalarOp::read:
      return ScalarExpr::read(static_cast<int>(reader.at("ordinal").integer()), reader.at("type").type());
    default:
      break;
  }
  std::vector<ScalarExpr> args;
  for (const Reader& arg : reader.at("args").list()) args.push_back(read_expr(arg, depth + 1));
  if (static_cast<int>(args.size()) != arity(op)) {
    user_error("{}: {} takes {} arguments, not {}", reader.place(), to_string(op), arity(op), args.size());
  }
  return op == ScalarOp::cast ? ScalarExpr::cast(reader.at("type").type(), args[0]) : ScalarExpr::make(op, args);
}

json access_to_json(const Access& access) { return {{"tensor", access.tensor}, {"relation", isl_text(access.relation)}}; }

Access read_access(const Reader& reader) {
  return {reader.at("tensor").text(), parse_map(reader.at("relation").text(), reader.at("relation").place())};
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

Statement read_statement(const Reader& reader) {
  std::vector<std::string> dims;
  for (const Reader& dim : reader.at("dims").list()) dims.push_back(dim.text());
  std::vector<Access> reads;
  for (const Reader& read : reader.at("reads").list()) reads.push_back(read_access(read));
  std::vector<isl::pw_aff> indices;
  for (const Reader& index : reader.at("indices").list()) indices.push_back(parse_pw_aff(index.text(), index.place()));
  std::optional<ReductionOp> reduction;
  if (reader.has("reduction")) reduction = named(reader.at("reduction"), reduction_op_from);
  return {reader.at("name").text(),         dims,      parse_set(reader.at("domain").text(), reader.at("domain").place()),
          read_access(reader.at("write")),  reads,     indices,
          read_expr(reader.at("value"), 0), reduction, static_cast<int>(reader.at("group").integer())};
}

Tensor read_tensor(const Reader& reader) {
  Tensor tensor{reader.at("name").text(), reader.at("type").type(), reader.at("role").role(), {}};
  for (const Reader& extent : reader.at("shape").list()) tensor.shape.push_back(parse_pw_aff(extent.text(), extent.place()));
  return tensor;
}

SizeParam read_size(const Reader& reader) {
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

Nest read_nest(const Reader& reader) {
  const std::int64_t format = reader.at("format").integer();
  if (format != kNestFormat) user_error("format: this nest file is of format {}; this program reads {}", format, kNestFormat);
  Nest nest;
  nest.op = reader.at("op").text();
  nest.variant = reader.at("variant").text();
  nest.tolerance = reader.at("tolerance").number();
  for (const Reader& size : reader.at("sizes").list()) nest.sizes.push_back(read_size(size));
  for (const Reader& scalar : reader.at("scalars").list()) {
    nest.scalars.push_back({scalar.at("name").text(), scalar.at("type").type(), scalar.at("default").number()});
  }
  nest.context = parse_set(reader.at("context").text(), "context");
  for (const Reader& tensor : reader.at("tensors").list()) nest.tensors.push_back(read_tensor(tensor));
  for (const Reader& statement : reader.at("statements").list()) nest.statements.push_back(read_statement(statement));
  return nest;
}

}  // namespace

json scalar_expr_to_json(const ScalarExpr& expr) {
  json result = {{"op", to_string(expr.op())}};
  switch (expr.op()) {
    case ScalarOp::constant:
      result["number"] = number_to_json(expr.number());
      result["type"] = to_string(expr.type());
      return result;
    case ScalarOp::index:
      result["ordinal"] = expr.ordinal();
      return result;
    case ScalarOp::scalar:
      result["name"] = expr.name();
      result["type"] = to_string(expr.type());
      return result;
    case ScalarOp::read:
      result["ordinal"] = expr.ordinal();
      result["type"] = to_string(expr.type());
      return result;
    case ScalarOp::cast:
      result["type"] = to_string(expr.type());
      break;
    default:
      break;
  }
  json args = json::array();
  for (const ScalarExpr& arg : expr.args()) args.push_back(scalar_expr_to_json(arg));
  result["args"] = args;
  return result;
}

ScalarExpr scalar_expr_from_json(const json& value) { return read_expr(Reader(value, "expression"), 0); }

json nest_to_json(const Nest& nest) {
  json scalars = json::array();
  for (const ScalarParam& scalar : nest.scalars) {
    scalars.push_back(
        {{"name", scalar.name}, {"type", to_string(scalar.type)}, {"default", number_to_json(scalar.default_value)}});
  }
  json tensors = json::array();
  for (const Tensor& tensor : nest.tensors) {
    json shape = json::array();
    for (const isl::pw_aff& extent : tensor.shape) shape.push_back(isl_text(extent));
    tensors.push_back(
        {{"name", tensor.name}, {"type", to_string(tensor.type)}, {"role", to_string(tensor.role)}, {"shape", shape}});
  }
  json statements = json::array();
  for (const Statement& statement : nest.statements) statements.push_back(statement_to_json(statement));
  return {
      {"format", kNestFormat},        {"op", nest.op},      {"variant", nest.variant},           {"tolerance", nest.tolerance},
      {"sizes", sizes_to_json(nest)}, {"scalars", scalars}, {"context", isl_text(nest.context)}, {"tensors", tensors},
      {"statements", statements}};
}

Nest nest_from_json(const json& value) {
  Nest nest = read_nest(Reader(value, "nest"));
  validate(nest);
  return nest;
}

Nest load_nest(const std::string& path) {
  std::ifstream file(path);
  if (!file) user_error("cannot read nest file {}", path);
  const json value = json::parse(file, nullptr, false);
  if (value.is_discarded()) user_error("{} is not JSON", path);
  try {
    return nest_from_json(value);
  } catch (const UserError& error) {
    user_error("{}: {}", path, error.what());
  }
}

}  // namespace nestor
