// Nest: look-ups, sizes, text.
#include "poly/nest/nest.h"

#include <isl/aff.h>
#include <isl/point.h>
#include <isl/set.h>

#include <fmt/ranges.h>
#include <algorithm>
#include <limits>

#include "poly/isl/isl_tools.h"
#include "support/error.h"
#include "support/words/nearest_word.h"

namespace nestor {
namespace {

const SizeParam& size_of(const Nest& nest, const std::string& name) {
  std::vector<std::string> known;
  for (const SizeParam& size : nest.sizes) {
    if (size.name == name) return size;
    known.push_back(size.name);
  }
  user_error("{} has no size named \"{}\"{}; its sizes are {}", nest.op, name, did_you_mean(name, known), fmt::join(known, ", "));
}

void check_range(const Nest& nest, const SizeParam& size, std::int64_t value) {
  if (value < size.min) {
    user_error("size {} of {} is {}; it must be at least {}", size.name, nest.op, value, size.min);
  }
  if (size.max && value > *size.max) {
    user_error("size {} of {} is {}; it must be at most {}", size.name, nest.op, value, *size.max);
  }
}

isl::set fixed_context(const Nest& nest, const Sizes& values) {
  isl::set context = nest.context;
  for (const auto& [name, value] : values) {
    check_range(nest, size_of(nest, name), value);
    context = context.intersect(parse_set(fmt::format("[{0}] -> {{ : {0} = {1} }}", name, value), "size " + name));
  }
  if (context.is_empty()) {
    std::vector<std::string> parts;
    for (const auto& [name, value] : values) parts.push_back(fmt::format("{}={}", name, value));
    user_error("{} is not defined for {}; its sizes must lie in {}", nest.op, fmt::join(parts, ", "), isl_text(nest.context));
  }
  return context;
}

/// "[i, j + 1]" from "[N] -> { S[i, j] -> A[i, j + 1] }": the index of an access as isl prints it.
std::string index_text(const Access& access) {
  const std::string text = isl_text(access.relation);
  const std::size_t arrow = text.find("-> " + access.tensor + "[");
  if (arrow == std::string::npos) return "[...]";
  const std::size_t open = arrow + 3 + access.tensor.size();
  int depth = 0;
  for (std::size_t k = open; k < text.size(); ++k) {
    if (text[k] == '[') ++depth;
    if (text[k] == ']' && --depth == 0) return text.substr(open, k - open + 1);
  }
  return "[...]";
}

std::string access_text(const Access& access) { return access.tensor + index_text(access); }

std::string statement_text(const Statement& statement) {
  const std::string value = statement.value.str([&](int k) { return access_text(statement.reads.at(k)); },
                                                [&](int k) { return function_text(statement.indices.at(k)); });
  const std::string target = access_text(statement.write);
  std::string text = fmt::format("{}[{}]: {}\n", statement.name, fmt::join(statement.dims, ", "), isl_text(statement.domain));
  if (!statement.reduction) return text + fmt::format("  {} = {}\n", target, value);
  switch (*statement.reduction) {
    case ReductionOp::add:
      return text + fmt::format("  {} += {}\n", target, value);
    case ReductionOp::mul:
      return text + fmt::format("  {} *= {}\n", target, value);
    default:
      return text + fmt::format("  {0} = {1}({0}, {2})\n", target, to_string(*statement.reduction), value);
  }
}

}  // namespace

std::string_view to_string(TensorRole role) {
  switch (role) {
    case TensorRole::input:
      return "input";
    case TensorRole::output:
      return "output";
    case TensorRole::temporary:
      return "temporary";
  }
  return "temporary";
}

const Tensor* Nest::find_tensor(const std::string& name) const {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const Tensor& t) { return t.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

const Statement* Nest::find_statement(const std::string& name) const {
  const auto found = std::find_if(statements.begin(), statements.end(), [&](const Statement& s) { return s.name == name; });
  return found == statements.end() ? nullptr : &*found;
}

const Tensor& Nest::tensor(const std::string& name) const {
  const Tensor* found = find_tensor(name);
  if (found == nullptr) internal_error("nest {} has no tensor {}", op, name);
  return *found;
}

const Statement& Nest::statement(const std::string& name) const {
  const Statement* found = find_statement(name);
  if (found == nullptr) internal_error("nest {} has no statement {}", op, name);
  return *found;
}

Nest fix_sizes(const Nest& nest, const Sizes& values) {
  Nest result = nest;
  result.context = fixed_context(nest, values);
  return result;
}

namespace {

/// Throws UserError if an index that a statement uses as a value leaves the range of i32.
void check_index_values(const Nest& nest, const Sizes& sizes) {
  for (const Statement& statement : nest.statements) {
    for (const isl::pw_aff& function : statement.indices) {
      isl::map values = isl::manage(isl_map_from_pw_aff(function.copy()));
      const isl::set range = at_sizes(values.intersect_domain(statement.domain), sizes).range();
      if (range.is_empty()) continue;
      const auto [low, high] = dim_range(range, 0);
      if (low >= std::numeric_limits<std::int32_t>::min() && high <= std::numeric_limits<std::int32_t>::max()) continue;
      user_error(
          "{}: its index {} goes from {} to {} at these sizes, and values have 32 bits; cast its parts to f32, or take "
          "smaller sizes",
          statement.name, function_text(function), low, high);
    }
  }
}

}  // namespace

Sizes complete_sizes(const Nest& nest, const Sizes& values) {
  for (const auto& [name, value] : values) size_of(nest, name);
  Sizes complete;
  for (const SizeParam& size : nest.sizes) {
    const auto given = values.find(size.name);
    complete[size.name] = given == values.end() ? size.default_value : given->second;
  }
  fixed_context(nest, complete);
  check_index_values(nest, complete);
  return complete;
}

std::int64_t evaluate_at(const isl::pw_aff& function, const Sizes& sizes) {
  const isl::pw_aff plain = over_params(function);
  isl_space* space = isl_pw_aff_get_domain_space(plain.get());
  const std::vector<std::string> params = param_names(isl::manage_copy(space));
  isl_point* point = isl_point_zero(space);
  for (std::size_t k = 0; k < params.size(); ++k) {
    const auto found = sizes.find(params[k]);
    if (found == sizes.end()) {
      isl_point_free(point);
      user_error("size {} has no value, and {} needs it", params[k], isl_text(function));
    }
    point = isl_point_set_coordinate_val(point, isl_dim_param, static_cast<int>(k),
                                         isl_val_int_from_si(isl_context().get(), static_cast<long>(found->second)));
  }
  const isl::val value = isl::manage(isl_pw_aff_eval(plain.copy(), point));
  if (isl_val_is_int(value.get()) != isl_bool_true) user_error("{} is not defined at the given sizes", isl_text(function));
  return isl_val_get_num_si(value.get());
}

std::vector<std::int64_t> shape_at(const Tensor& tensor, const Sizes& sizes) {
  std::vector<std::int64_t> shape;
  shape.reserve(tensor.shape.size());
  for (const isl::pw_aff& extent : tensor.shape) shape.push_back(evaluate_at(extent, sizes));
  return shape;
}

std::string describe(const Nest& nest) {
  std::string text = fmt::format("{}{}{}: {}\n", nest.op, nest.variant.empty() ? "" : " ", nest.variant, isl_text(nest.context));
  for (const Tensor& tensor : nest.tensors) {
    std::vector<std::string> shape;
    shape.reserve(tensor.shape.size());
    for (const isl::pw_aff& extent : tensor.shape) shape.push_back(function_text(extent));
    text += fmt::format("{} {} {}[{}]\n", to_string(tensor.role), to_string(tensor.type), tensor.name, fmt::join(shape, ", "));
  }
  for (const Statement& statement : nest.statements) text += "\n" + statement_text(statement);
  return text;
}

}  // namespace nestor
