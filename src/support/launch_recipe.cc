// Launch recipes as JSON, and the check of a kernel's valid sizes.
#include "support/launch_recipe.h"

#include "support/error.h"
#include "support/scalar_range.h"
#include "support/system/json_text.h"

#include <utility>

namespace nestor {
namespace {

using nlohmann::json;

constexpr std::array<std::pair<IntOp, const char*>, 14> kOpNames{{{IntOp::add, "+"},
                                                                  {IntOp::sub, "-"},
                                                                  {IntOp::mul, "*"},
                                                                  {IntOp::floor_div, "fdiv"},
                                                                  {IntOp::mod, "mod"},
                                                                  {IntOp::min, "min"},
                                                                  {IntOp::max, "max"},
                                                                  {IntOp::select, "select"},
                                                                  {IntOp::ge, ">="},
                                                                  {IntOp::gt, ">"},
                                                                  {IntOp::eq, "=="},
                                                                  {IntOp::logical_and, "and"},
                                                                  {IntOp::logical_or, "or"},
                                                                  {IntOp::logical_not, "not"}}};

constexpr std::array<const char*, 8> kParamKinds{"pointer", "stride",    "size",       "scalar",
                                                 "loop",    "workspace", "tensor_map", "counter"};

/// A tensor map with element strides.
constexpr const char* kStridedMap = "strided_tensor_map";

std::size_t int_op_arity(IntOp op) { return op == IntOp::select ? 3 : op == IntOp::logical_not ? 1 : 2; }

const json& member(const json& object, const char* key) {
  if (!object.is_object() || !object.contains(key)) user_error("launch recipe: key \"{}\" is missing", key);
  return object.at(key);
}

template <class T>
T value(const json& object, const char* key) {
  try {
    return member(object, key).get<T>();
  } catch (const json::exception&) {
    user_error("launch recipe: key \"{}\" has the wrong type", key);
  }
}

const json& list(const json& object, const char* key) {
  const json& found = member(object, key);
  if (!found.is_array()) user_error("launch recipe: key \"{}\" must be a list", key);
  return found;
}

double default_from(const json& scalar) {
  const auto number = number_from_json(member(scalar, "default"));
  if (!number) user_error("launch recipe: key \"default\" has the wrong type");
  return *number;
}

ElementType type_from(const json& object) {
  const auto name = value<std::string>(object, "type");
  if (const auto type = element_type_from(name)) return *type;
  user_error("launch recipe: \"{}\" is no element type (f32, f16, bf16, i32, bool, i64)", name);
}

json exprs_to_json(const std::vector<IntExpr>& exprs) {
  json out = json::array();
  for (const IntExpr& expr : exprs) out.push_back(int_expr_to_json(expr));
  return out;
}

json constraint_to_json(const SizeConstraint& c) {
  return {{"terms", c.terms}, {"constant", c.constant}, {"equality", c.equality}, {"modulus", c.modulus}};
}

SizeConstraint constraint_from_json(const json& j) {
  SizeConstraint c;
  c.terms = value<std::map<std::string, std::int64_t>>(j, "terms");
  c.constant = value<std::int64_t>(j, "constant");
  c.equality = value<bool>(j, "equality");
  c.modulus = value<std::int64_t>(j, "modulus");
  return c;
}

json workspace_tensor_to_json(const WorkspaceTensor& tensor) {
  return {{"type", to_string(tensor.type)},
          {"offset", int_expr_to_json(tensor.offset)},
          {"shape", exprs_to_json(tensor.shape)},
          {"strides", exprs_to_json(tensor.strides)}};
}

WorkspaceTensor workspace_tensor_from_json(const json& j) {
  WorkspaceTensor tensor;
  tensor.type = type_from(j);
  tensor.offset = int_expr_from_json(member(j, "offset"));
  for (const json& extent : list(j, "shape")) tensor.shape.push_back(int_expr_from_json(extent));
  for (const json& stride : list(j, "strides")) tensor.strides.push_back(int_expr_from_json(stride));
  if (tensor.strides.size() + 1 != tensor.shape.size())
    user_error("launch recipe: a tensor in the workspace has {} strides and {} indices: all indices but the last have one",
               tensor.strides.size(), tensor.shape.size());
  return tensor;
}

json param_to_json(const KernelParam& p) {
  json result{{"kind", kParamKinds[static_cast<std::size_t>(p.kind)]}, {"index", p.index}, {"dim", p.dim}, {"name", p.name}};
  if (p.kind == KernelParam::Kind::tensor_map) {
    // Programs that know no strides must not read it.
    if (!p.element_strides.empty()) {
      result["kind"] = kStridedMap;
      result["element_strides"] = p.element_strides;
    }
    result["box"] = p.box;
    result["swizzle"] = p.swizzle;
    if (!p.order.empty()) result["order"] = p.order;
    if (p.held) result["held"] = workspace_tensor_to_json(*p.held);
  }
  return result;
}

KernelParam param_from_json(const json& j) {
  auto kind = value<std::string>(j, "kind");
  const bool strided = kind == kStridedMap;
  if (strided) kind = kParamKinds[static_cast<std::size_t>(KernelParam::Kind::tensor_map)];
  for (std::size_t k = 0; k < kParamKinds.size(); ++k) {
    if (kind != kParamKinds[k]) continue;
    KernelParam p{static_cast<KernelParam::Kind>(k), value<int>(j, "index"), value<int>(j, "dim"), value<std::string>(j, "name")};
    if (p.kind == KernelParam::Kind::tensor_map) {
      p.box = value<std::vector<int>>(j, "box");
      p.swizzle = value<int>(j, "swizzle");
      if (strided) p.element_strides = value<std::vector<int>>(j, "element_strides");
      if (j.contains("order")) p.order = value<std::vector<int>>(j, "order");
      if (j.contains("held")) p.held = workspace_tensor_from_json(j.at("held"));
      if (p.held && p.index != -1)
        user_error("launch recipe: the map of \"{}\", a tensor in the workspace, belongs to argument {}: its index must be -1",
                   p.name, p.index);
    }
    return p;
  }
  user_error("launch recipe: \"{}\" is no kind of kernel parameter", kind);
}

json launch_to_json(const LaunchNode& node) {
  json children = json::array();
  if (node.kind == LaunchNode::Kind::loop) {
    for (const LaunchNode& child : node.children) children.push_back(launch_to_json(child));
    return {
        {"loop", node.var}, {"lower", int_expr_to_json(node.lower)}, {"upper", int_expr_to_json(node.upper)}, {"body", children}};
  }
  json params = json::array();
  for (const KernelParam& p : node.params) params.push_back(param_to_json(p));
  json result{{"kernel", node.symbol},
              {"grid", exprs_to_json({node.grid[0], node.grid[1], node.grid[2]})},
              {"block", node.block},
              {"shared_bytes", node.shared_bytes},
              {"params", params}};
  if (node.cluster != std::array{1, 1, 1}) result["cluster"] = node.cluster;
  if (node.programmatic) result["programmatic"] = true;
  return result;
}

LaunchNode launch_from_json(const json& j) {
  LaunchNode node;
  if (j.is_object() && j.contains("loop")) {
    node.kind = LaunchNode::Kind::loop;
    node.var = value<std::string>(j, "loop");
    node.lower = int_expr_from_json(member(j, "lower"));
    node.upper = int_expr_from_json(member(j, "upper"));
    for (const json& child : list(j, "body")) node.children.push_back(launch_from_json(child));
    return node;
  }
  node.symbol = value<std::string>(j, "kernel");
  const json& grid = list(j, "grid");
  if (grid.size() != 3) user_error("launch recipe: \"grid\" must have 3 entries");
  for (std::size_t k = 0; k < 3; ++k) node.grid[k] = int_expr_from_json(grid[k]);
  node.block = value<std::array<int, 3>>(j, "block");
  if (j.contains("cluster")) node.cluster = value<std::array<int, 3>>(j, "cluster");
  node.shared_bytes = value<std::int64_t>(j, "shared_bytes");
  if (j.contains("programmatic")) node.programmatic = value<bool>(j, "programmatic");
  for (const json& p : list(j, "params")) node.params.push_back(param_from_json(p));
  return node;
}

std::int64_t total(const SizeConstraint& c, const Sizes& sizes) {
  std::int64_t sum = c.constant;
  for (const auto& [name, coefficient] : c.terms) {
    const auto found = sizes.find(name);
    if (found == sizes.end()) user_error("size \"{}\" is not given", name);
    sum += coefficient * found->second;
  }
  return sum;
}

bool holds(const SizeConstraint& c, const Sizes& sizes) {
  const std::int64_t sum = total(c, sizes);
  if (c.modulus > 0) return sum % c.modulus == 0;
  return c.equality ? sum == 0 : sum >= 0;
}

}  // namespace

std::string SizeConstraint::str() const {
  if (terms.size() == 1 && modulus == 0) {
    const auto& [name, coefficient] = *terms.begin();
    // The least integer has no opposite of 64 bits.
    if (coefficient == 1) return fmt::format("{} {} {}", name, equality ? "=" : ">=", -static_cast<__int128>(constant));
    if (coefficient == -1) return fmt::format("{} {} {}", name, equality ? "=" : "<=", constant);
  }
  std::string text;
  for (const auto& [name, coefficient] : terms) text += fmt::format("{}{}*{}", text.empty() ? "" : " + ", coefficient, name);
  if (constant != 0 || text.empty()) text += fmt::format("{}{}", text.empty() ? "" : " + ", constant);
  return modulus > 0 ? fmt::format("{} divisible by {}", text, modulus) : text + (equality ? " = 0" : " >= 0");
}

bool is_valid_for(const std::vector<SizeConstraint>& valid, const Sizes& sizes, std::string* why) {
  for (const SizeConstraint& constraint : valid) {
    if (holds(constraint, sizes)) continue;
    if (why != nullptr) *why = constraint.str();
    return false;
  }
  return true;
}

void check_limits(const LaunchRecipe& recipe, const std::string& title) {
  std::size_t strides = 0;
  for (const ArgumentSpec& argument : recipe.arguments) {
    const std::size_t rank = argument.shape.size();
    if (rank > LaunchLimits::kRank)
      user_error("{}: tensor \"{}\" has {} indices, more than {}", title, argument.name, rank, LaunchLimits::kRank);
    strides += rank;
  }
  const auto expect_at_most = [&](std::size_t most, std::size_t count, const char* what) {
    if (count > most) user_error("{}: {} {} are more than the {} that a launch takes", title, count, what, most);
  };
  expect_at_most(LaunchLimits::kTensors, recipe.arguments.size(), "tensors");
  expect_at_most(LaunchLimits::kStrides, strides, "indices of tensors");
  expect_at_most(LaunchLimits::kSizes, recipe.sizes.size() + recipe.fixed_sizes.size(), "sizes");
  expect_at_most(LaunchLimits::kScalars, recipe.scalars.size(), "scalars");
}

json int_expr_to_json(const IntExpr& expr) {
  if (const auto constant = expr.as_constant()) return *constant;
  if (expr.op() == IntOp::variable) return expr.name();
  json out = json::array();
  for (const auto& [op, name] : kOpNames) {
    if (op == expr.op()) out.push_back(name);
  }
  for (const IntExpr& arg : expr.args()) out.push_back(int_expr_to_json(arg));
  return out;
}

IntExpr int_expr_from_json(const json& j) {
  if (j.is_number_integer()) return IntExpr(j.get<std::int64_t>());
  if (j.is_string()) return IntExpr::variable(j.get<std::string>());
  if (j.is_array() && !j.empty() && j[0].is_string()) {
    const auto wanted = j[0].get<std::string>();
    for (const auto& [op, name] : kOpNames) {
      if (wanted != name || j.size() != int_op_arity(op) + 1) continue;
      std::vector<IntExpr> args;
      for (std::size_t k = 1; k < j.size(); ++k) args.push_back(int_expr_from_json(j[k]));
      const bool divides = op == IntOp::floor_div || op == IntOp::mod;
      if (divides && args[1].as_constant().value_or(1) <= 0)
        user_error("launch recipe: division by {} in a size formula", args[1].str());
      return IntExpr::make(op, std::move(args));
    }
  }
  user_error("launch recipe: {} is no size formula (an integer, a name, or [operator, arguments...])", j.dump());
}

json recipe_to_json(const LaunchRecipe& recipe) {
  json arguments = json::array(), scalars = json::array(), valid = json::array(), launches = json::array();
  for (const ArgumentSpec& a : recipe.arguments) {
    arguments.push_back({{"name", a.name}, {"type", to_string(a.type)}, {"output", a.output}, {"shape", exprs_to_json(a.shape)}});
  }
  for (const ScalarSpec& s : recipe.scalars) {
    scalars.push_back({{"name", s.name}, {"type", to_string(s.type)}, {"default", number_to_json(s.default_value)}});
    range_to_json(s, scalars.back());
  }
  for (const SizeConstraint& c : recipe.valid) valid.push_back(constraint_to_json(c));
  for (const LaunchNode& node : recipe.launches) launches.push_back(launch_to_json(node));
  return {{"target", recipe.target},
          {"symbol", recipe.symbol},
          {"arguments", arguments},
          {"sizes", recipe.sizes},
          {"fixed", recipe.fixed_sizes},
          {"scalars", scalars},
          {"valid", valid},
          {"workspace_bytes", int_expr_to_json(recipe.workspace_bytes)},
          {"launches", launches}};
}

LaunchRecipe recipe_from_json(const json& j) {
  LaunchRecipe recipe;
  recipe.target = value<std::string>(j, "target");
  recipe.symbol = value<std::string>(j, "symbol");
  for (const json& a : list(j, "arguments")) {
    ArgumentSpec spec{value<std::string>(a, "name"), type_from(a), value<bool>(a, "output"), {}};
    for (const json& extent : list(a, "shape")) spec.shape.push_back(int_expr_from_json(extent));
    recipe.arguments.push_back(std::move(spec));
  }
  recipe.sizes = value<std::vector<std::string>>(j, "sizes");
  recipe.fixed_sizes = value<std::map<std::string, std::int64_t>>(j, "fixed");
  for (const json& s : list(j, "scalars")) {
    ScalarSpec spec{value<std::string>(s, "name"), type_from(s), default_from(s)};
    if (s.contains("min")) spec.minimum = value<double>(s, "min");
    if (s.contains("max")) spec.maximum = value<double>(s, "max");
    recipe.scalars.push_back(std::move(spec));
  }
  for (const json& c : list(j, "valid")) recipe.valid.push_back(constraint_from_json(c));
  recipe.workspace_bytes = int_expr_from_json(member(j, "workspace_bytes"));
  for (const json& node : list(j, "launches")) recipe.launches.push_back(launch_from_json(node));
  return recipe;
}

}  // namespace nestor
