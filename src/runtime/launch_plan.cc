// Checks arguments in the order a person would: sizes, scalars, each tensor, then tensors against each other.
#include "runtime/launch_plan.h"

#include "support/error.h"
#include "support/scalar_range.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace nestor {
namespace {

template <class Items, class Name>
std::string joined(const Items& items, Name&& name_of) {
  std::string text;
  for (const auto& item : items) text += (text.empty() ? "" : ", ") + std::string(name_of(item));
  return text.empty() ? "none" : text;
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text;
  for (const std::int64_t extent : shape) text += fmt::format("{}{}", text.empty() ? "" : " x ", extent);
  return text.empty() ? "a single element" : text;
}

// Row-major strides of a dense tensor; false when they do not fit 64 bits.
bool dense_strides(std::span<const std::int64_t> shape, std::int64_t* strides) {
  std::int64_t stride = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    strides[d] = stride;
    if (__builtin_mul_overflow(stride, std::max<std::int64_t>(shape[d], 1), &stride)) return false;
  }
  return true;
}

}  // namespace

LaunchPlan::LaunchPlan(const LaunchRecipe& recipe, std::string title)
    : title_(std::move(title)), names_(size_names(recipe)), workspace_(recipe.workspace_bytes, names_) {
  for (const auto& [name, value] : recipe.fixed_sizes) {
    fixed_.push_back({static_cast<std::size_t>(std::find(names_.begin(), names_.end(), name) - names_.begin()), value});
  }
  check_limits(recipe, title_);
  for (const ArgumentSpec& argument : recipe.arguments) {
    Tensor tensor{argument.name, argument.type, argument.output, {}};
    for (const IntExpr& extent : argument.shape) tensor.shape.emplace_back(extent, names_);
    tensors_.push_back(std::move(tensor));
  }
  for (const ScalarSpec& scalar : recipe.scalars)
    scalars_.push_back({scalar.name, scalar.type, scalar.default_value, scalar.minimum, scalar.maximum});
  for (const SizeConstraint& constraint : recipe.valid) constraints_.emplace_back(constraint, names_);
}

void LaunchPlan::prepare(std::span<const TensorArg> tensors, std::span<const NamedSize> sizes,
                         std::span<const NamedScalar> scalars, PreparedLaunch& out) const {
  fill_sizes(sizes, out);
  fill_scalars(scalars, out);
  if (tensors.size() != tensors_.size()) {
    user_error("{} takes {} tensors ({}), not {}", title_, tensors_.size(),
               joined(tensors_, [](const Tensor& t) { return t.name; }), tensors.size());
  }
  const std::span<const std::int64_t> values(out.sizes.data(), names_.size());
  std::array<Extent, LaunchLimits::kTensors> extents;
  std::int64_t* strides = out.strides.data();
  for (std::size_t k = 0; k < tensors.size(); ++k) {
    extents[k] = check_tensor(tensors_[k], tensors[k], values, strides);
    out.pointers[k] = tensors[k].data;
    out.bytes[k] = extents[k].end - extents[k].begin;
    strides += tensors_[k].shape.size();
  }
  check_overlaps({extents.data(), tensors.size()}, out);
  out.workspace_bytes = workspace_.evaluate(values);
  if (out.workspace_bytes < 0) user_error("{}: its workspace would have {} bytes", title_, out.workspace_bytes);
}

void LaunchPlan::fill_sizes(std::span<const NamedSize> given, PreparedLaunch& out) const {
  constexpr std::int64_t kMissing = 0;
  std::fill_n(out.sizes.begin(), names_.size(), kMissing);
  const auto name_list = [&] { return joined(names_, [](const std::string& name) { return name; }); };
  for (const NamedSize& size : given) {
    const auto found = std::find(names_.begin(), names_.end(), size.name);
    if (found == names_.end()) user_error("{} has no size \"{}\"; its sizes are: {}", title_, size.name, name_list());
    std::int64_t& slot = out.sizes[found - names_.begin()];
    if (slot != kMissing) user_error("{}: size \"{}\" is given twice", title_, size.name);
    if (size.value <= 0) user_error("{}: size \"{}\" is {}; sizes are positive", title_, size.name, size.value);
    slot = size.value;
  }
  for (const Fixed& fixed : fixed_) {
    std::int64_t& slot = out.sizes[fixed.size];
    if (slot == kMissing) slot = fixed.value;
    if (slot != fixed.value) user_error("{} was compiled for {} = {}, not {}", title_, names_[fixed.size], fixed.value, slot);
  }
  for (std::size_t k = 0; k < names_.size(); ++k) {
    if (out.sizes[k] == kMissing) user_error("{}: size \"{}\" is missing; its sizes are: {}", title_, names_[k], name_list());
  }
  const std::span<const std::int64_t> values(out.sizes.data(), names_.size());
  for (const CompiledConstraint& constraint : constraints_) {
    if (!constraint.holds(values)) user_error("{} is not valid for these sizes: it needs {}", title_, constraint.text());
  }
}

void LaunchPlan::fill_scalars(std::span<const NamedScalar> given, PreparedLaunch& out) const {
  for (std::size_t k = 0; k < scalars_.size(); ++k) out.scalars[k] = scalars_[k].default_value;
  std::array<bool, LaunchLimits::kScalars> known{};
  for (const NamedScalar& scalar : given) {
    const auto found = std::find_if(scalars_.begin(), scalars_.end(), [&](const Scalar& s) { return s.name == scalar.name; });
    if (found == scalars_.end()) {
      user_error("{} has no scalar \"{}\"; its scalars are: {}", title_, scalar.name,
                 joined(scalars_, [](const Scalar& s) { return s.name; }));
    }
    bool& twice = known[static_cast<std::size_t>(found - scalars_.begin())];
    if (twice) user_error("{}: scalar \"{}\" is given twice", title_, scalar.name);
    twice = true;
    using Integer = std::numeric_limits<std::int32_t>;
    const bool integer = found->type == ElementType::i32;
    const bool fits = !integer || (std::trunc(scalar.value) == scalar.value && scalar.value >= Integer::min() &&
                                   scalar.value <= Integer::max());
    if (!fits) user_error("{}: scalar \"{}\" is {}, not a 32-bit integer", title_, scalar.name, scalar.value);
    if (!in_range(scalar.value, *found))
      user_error("{}: scalar \"{}\" is {}; it must be {}", title_, scalar.name, scalar.value, range_text(*found));
    out.scalars[found - scalars_.begin()] = scalar.value;
  }
}

LaunchPlan::Extent LaunchPlan::check_tensor(const Tensor& tensor, const TensorArg& arg, std::span<const std::int64_t> sizes,
                                            std::int64_t* strides) const {
  const std::size_t rank = tensor.shape.size();
  std::array<std::int64_t, LaunchLimits::kRank> extents;
  for (std::size_t d = 0; d < rank; ++d) extents[d] = tensor.shape[d].evaluate(sizes);
  const std::span<const std::int64_t> shape(extents.data(), rank);
  if (std::any_of(shape.begin(), shape.end(), [](std::int64_t extent) { return extent < 0; })) {
    user_error("{}: tensor \"{}\" would have the shape {} at these sizes", title_, tensor.name, shape_text(shape));
  }
  if (arg.type && *arg.type != tensor.type) {
    user_error("{}: tensor \"{}\" holds {}, not {}", title_, tensor.name, to_string(tensor.type), to_string(*arg.type));
  }
  // Nothing is read of a shape whose length is wrong: it may have no such entries.
  // One of no indices has a length, too: no shape at all is a null pointer.
  const bool shaped = arg.shape.data() != nullptr, strided = arg.strides.data() != nullptr;
  if (shaped && arg.shape.size() != rank) {
    user_error("{}: tensor \"{}\" must have the shape {}, of {} indices, not one of {}", title_, tensor.name, shape_text(shape),
               rank, arg.shape.size());
  }
  if (shaped && !std::equal(arg.shape.begin(), arg.shape.end(), shape.begin(), shape.end())) {
    user_error("{}: tensor \"{}\" must have the shape {}, not {}", title_, tensor.name, shape_text(shape), shape_text(arg.shape));
  }
  if (strided && arg.strides.size() != rank) {
    user_error("{}: tensor \"{}\" has {} indices, but {} strides are given", title_, tensor.name, rank, arg.strides.size());
  }
  bool fits = true;
  if (arg.strides.empty()) {
    fits = dense_strides(shape, strides);
  } else {
    std::copy(arg.strides.begin(), arg.strides.end(), strides);
    check_strides(tensor, shape, arg.strides);
  }
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return {};
  if (arg.data == nullptr) user_error("{}: tensor \"{}\" is a null pointer", title_, tensor.name);
  const auto begin = reinterpret_cast<std::uintptr_t>(arg.data);
  const auto width = static_cast<std::int64_t>(size_in_bytes(tensor.type));
  if (begin % static_cast<std::uintptr_t>(width) != 0)
    user_error("{}: tensor \"{}\" is not aligned to its {} byte elements", title_, tensor.name, width);
  std::int64_t last = 0, step = 0;
  for (std::size_t d = 0; d < rank; ++d) {
    fits = fits && !__builtin_mul_overflow(shape[d] - 1, strides[d], &step) && !__builtin_add_overflow(last, step, &last);
  }
  std::int64_t bytes = 0;
  fits = fits && !__builtin_add_overflow(last, std::int64_t{1}, &last) && !__builtin_mul_overflow(last, width, &bytes);
  if (!fits) user_error("{}: tensor \"{}\" of shape {} does not fit the address space", title_, tensor.name, shape_text(shape));
  return {begin, begin + static_cast<std::uintptr_t>(bytes)};
}

// Strides of 0 repeat an input's elements; an output's elements must all be different ones.
void LaunchPlan::check_strides(const Tensor& tensor, std::span<const std::int64_t> shape,
                               std::span<const std::int64_t> strides) const {
  const std::size_t rank = shape.size();
  if (rank == 0) return;
  if (strides[rank - 1] != 1 && shape[rank - 1] > 1)
    user_error("{}: tensor \"{}\" has the last stride {}; it must be 1", title_, tensor.name, strides[rank - 1]);
  std::array<std::size_t, LaunchLimits::kRank> order;
  for (std::size_t d = 0; d < rank; ++d) {
    order[d] = d;
    if (strides[d] < 0) user_error("{}: tensor \"{}\" has a negative stride, {}", title_, tensor.name, strides[d]);
  }
  if (!tensor.output) return;
  std::sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(rank),
            [&](std::size_t a, std::size_t b) { return strides[a] < strides[b]; });
  __int128 span = 1;  // elements that the dimensions so far reach over
  for (std::size_t k = 0; k < rank; ++k) {
    const std::size_t d = order[k];
    if (shape[d] <= 1) continue;
    if (strides[d] < span) user_error("{}: the strides of output \"{}\" let its elements overlap", title_, tensor.name);
    span += static_cast<__int128>(shape[d] - 1) * strides[d];
  }
}

std::vector<std::pair<std::int64_t, std::int64_t>> LaunchPlan::dims_of(std::size_t tensor, const PreparedLaunch& launch) const {
  const std::int64_t* strides = launch.strides.data();
  for (std::size_t k = 0; k < tensor; ++k) strides += tensors_[k].shape.size();
  std::vector<std::pair<std::int64_t, std::int64_t>> dims;
  for (const SizeFormula& extent : tensors_[tensor].shape) {
    const std::int64_t count = extent.evaluate({launch.sizes.data(), names_.size()});
    const std::int64_t stride = *strides++ * static_cast<std::int64_t>(size_in_bytes(tensors_[tensor].type));
    if (count > 1 && stride > 0) dims.emplace_back(count, stride);
  }
  return dims;
}

bool LaunchPlan::lie_in_own_columns(std::size_t a, std::size_t b, std::span<const Extent> extents,
                                    const PreparedLaunch& launch) const {
  const std::array<std::vector<std::pair<std::int64_t, std::int64_t>>, 2> dims{dims_of(a, launch), dims_of(b, launch)};
  // Bytes that the elements between two rows so far apart reach over.
  const auto width = [&](std::size_t which, std::int64_t row) {
    __int128 bytes = static_cast<__int128>(size_in_bytes(tensors_[which == 0 ? a : b].type));
    for (const auto& [count, stride] : dims[which]) bytes += stride % row == 0 ? 0 : static_cast<__int128>(count - 1) * stride;
    return bytes;
  };
  for (const auto& each : dims) {
    for (const auto& [count, row] : each) {
      const auto distance = static_cast<std::int64_t>(extents[b].begin - extents[a].begin) % row;
      const __int128 behind = distance < 0 ? distance + row : distance;
      if (behind >= width(0, row) && behind + width(1, row) <= row) return true;
    }
  }
  return false;
}

void LaunchPlan::check_overlaps(std::span<const Extent> extents, const PreparedLaunch& launch) const {
  for (std::size_t a = 0; a < extents.size(); ++a) {
    if (!tensors_[a].output) continue;
    for (std::size_t b = 0; b < extents.size(); ++b) {
      if (a == b || extents[a].begin >= extents[b].end || extents[b].begin >= extents[a].end) continue;
      if (lie_in_own_columns(a, b, extents, launch)) continue;
      user_error("{}: the memory of output \"{}\" overlaps that of \"{}\"", title_, tensors_[a].name, tensors_[b].name);
    }
  }
}

}  // namespace nestor
