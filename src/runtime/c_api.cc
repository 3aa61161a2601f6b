// The C API: arguments to spans, exceptions to status codes and a message of the calling thread.
#include "nestor/nestor.h"

#include "runtime/library.h"
#include "support/error.h"

#include <array>
#include <cstring>
#include <string>

struct nestor_library {
  std::shared_ptr<nestor::Library::Impl> impl;
};

namespace {

using namespace nestor;

thread_local std::string last_error;

template <class Function>
nestor_status guarded_call(Function&& function) {
  const auto failed = [](nestor_status status, const char* message) noexcept {
    try {
      last_error = message;
    } catch (...) {
      last_error.clear();
    }
    return status;
  };
  try {
    return function();
  } catch (const UserError& error) {
    return failed(NESTOR_USER_ERROR, error.what());
  } catch (const DeviceError& error) {
    return failed(NESTOR_DEVICE_ERROR, error.what());
  } catch (const std::exception& error) {
    return failed(NESTOR_INTERNAL_ERROR, error.what());
  }
}

const KernelState* state_of(const nestor_kernel* kernel) {
  if (kernel == nullptr) user_error("the kernel is NULL");
  return reinterpret_cast<const KernelState*>(kernel);
}

// (name, value) pairs from two arrays, without allocating.
template <class Named, class Value>
class NamedArray {
 public:
  NamedArray(const char* what, std::int32_t count, const char* const* names, const Value* values) {
    if (count < 0 || static_cast<std::size_t>(count) > items_.size())
      user_error("{} {} are not possible; at most {}", count, what, items_.size());
    if (count > 0 && (names == nullptr || values == nullptr)) user_error("the names or values of {} are NULL", what);
    for (std::int32_t k = 0; k < count; ++k) {
      if (names[k] == nullptr) user_error("a name among the {} is NULL", what);
      items_[count_++] = {names[k], values[k]};
    }
  }
  operator std::span<const Named>() const { return {items_.data(), count_}; }

 private:
  std::array<Named, LaunchLimits::kSizes> items_;
  std::size_t count_ = 0;
};

/// A caller in C may have put there what is no value of the enumeration, and C++ must not read that as one.
std::int32_t type_of(const nestor_tensor& tensor) {
  std::int32_t type = 0;
  static_assert(sizeof type == sizeof tensor.type);
  std::memcpy(&type, &tensor.type, sizeof type);
  return type;
}

TensorArg to_arg(const nestor_tensor& tensor, std::int32_t index) {
  if ((tensor.shape != nullptr || tensor.strides != nullptr) && tensor.rank < 0)
    user_error("tensor {} has the rank {}", index, tensor.rank);
  const std::int32_t type = type_of(tensor);
  if (type < NESTOR_ANY_TYPE || type > NESTOR_I64) user_error("tensor {} has an unknown type, {}", index, type);
  const auto rank = static_cast<std::size_t>(tensor.rank);
  TensorArg arg{tensor.data};
  if (tensor.shape != nullptr) arg.shape = {tensor.shape, rank};
  if (tensor.strides != nullptr) arg.strides = {tensor.strides, rank};
  if (type != NESTOR_ANY_TYPE) arg.type = static_cast<ElementType>(type);
  return arg;
}

void launch(const nestor_kernel* kernel, std::int32_t tensor_count, const nestor_tensor* tensors,
            const NamedArray<NamedSize, int64_t>& sizes, const NamedArray<NamedScalar, double>& scalars,
            const LaunchOptions& options) {
  const KernelState* state = state_of(kernel);
  std::array<TensorArg, LaunchLimits::kTensors> args;
  if (tensor_count < 0 || static_cast<std::size_t>(tensor_count) > args.size())
    user_error("{} tensors are not possible; at most {}", tensor_count, args.size());
  if (tensor_count > 0 && tensors == nullptr) user_error("the tensors are NULL");
  for (std::int32_t k = 0; k < tensor_count; ++k) args[k] = to_arg(tensors[k], k);
  state->launch({args.data(), static_cast<std::size_t>(tensor_count)}, sizes, scalars, options);
}

void require_places(const nestor_library* library, const char* device, nestor_kernel** kernel) {
  if (kernel == nullptr) user_error("the place for the kernel is NULL");
  *kernel = nullptr;
  if (library == nullptr || device == nullptr) user_error("the library or device is NULL");
}

nestor_status find(nestor_library* library, const KernelKey& key, nestor_kernel** kernel) {
  // Kept by the library: the pointer stays good when this one goes.
  const std::shared_ptr<const KernelState> state = library->impl->query(key);
  if (!state->core) {
    last_error = state->reason;
    return NESTOR_NOT_FOUND;
  }
  *kernel = reinterpret_cast<nestor_kernel*>(const_cast<KernelState*>(state.get()));
  return NESTOR_OK;
}

static_assert(static_cast<int>(ElementType::f32) == NESTOR_F32 && static_cast<int>(ElementType::f16) == NESTOR_F16 &&
              static_cast<int>(ElementType::bf16) == NESTOR_BF16 && static_cast<int>(ElementType::i32) == NESTOR_I32 &&
              static_cast<int>(ElementType::boolean) == NESTOR_BOOL && static_cast<int>(ElementType::i64) == NESTOR_I64);
static_assert(static_cast<int>(MatchKind::exact) == NESTOR_MATCH_EXACT && static_cast<int>(MatchKind::none) == NESTOR_MATCH_NONE);

}  // namespace

nestor_status nestor_open(const char* path, const nestor_options* options, nestor_library** library) {
  return guarded_call([&] {
    if (library == nullptr) user_error("the place for the library is NULL");
    *library = nullptr;
    LibraryOptions chosen;
    if (options != nullptr) {
      chosen.threads = options->threads;
      chosen.use_system = options->system_path == nullptr || *options->system_path != '\0';
      if (options->system_path != nullptr) chosen.system_path = options->system_path;
    }
    auto opened = std::make_unique<nestor_library>(nestor_library{Library::Impl::open(path == nullptr ? "" : path, chosen)});
    opened->impl->keep_answers();
    *library = opened.release();
    return NESTOR_OK;
  });
}

nestor_status nestor_allow_unsigned(nestor_library* library, std::int32_t allowed) {
  return guarded_call([&] {
    if (library == nullptr) user_error("the library is NULL");
    library->impl->allow_unsigned(allowed != 0);
    return NESTOR_OK;
  });
}

void nestor_close(nestor_library* library) { delete library; }

nestor_status nestor_query(nestor_library* library, const char* op, const char* variant, const char* device, int32_t size_count,
                           const char* const* size_names, const int64_t* size_values, nestor_kernel** kernel) {
  return guarded_call([&] {
    require_places(library, device, kernel);
    if (op == nullptr || variant == nullptr) user_error("the operator or variant is NULL");
    if (*op == '\0') user_error("the operator's name is empty");
    const NamedArray<NamedSize, int64_t> sizes("sizes", size_count, size_names, size_values);
    return find(library, {op, variant, device, sizes}, kernel);
  });
}

nestor_status nestor_query_nest(nestor_library* library, const char* digest, const char* device, int32_t size_count,
                                const char* const* size_names, const int64_t* size_values, nestor_kernel** kernel) {
  return guarded_call([&] {
    require_places(library, device, kernel);
    if (digest == nullptr) user_error("the digest is NULL");
    const NamedArray<NamedSize, int64_t> sizes("sizes", size_count, size_names, size_values);
    return find(library, {"", "", device, sizes, digest}, kernel);
  });
}

nestor_status nestor_kernel_info(const nestor_kernel* kernel, nestor_match* match, double* distance, const char** json) {
  return guarded_call([&] {
    const KernelState* state = state_of(kernel);
    if (match != nullptr) *match = static_cast<nestor_match>(state->match);
    if (distance != nullptr) *distance = state->distance;
    if (json != nullptr) *json = state->core->info.c_str();
    return NESTOR_OK;
  });
}

nestor_status nestor_launch(const nestor_kernel* kernel, int32_t tensor_count, const nestor_tensor* tensors, int32_t size_count,
                            const char* const* size_names, const int64_t* size_values, int32_t scalar_count,
                            const char* const* scalar_names, const double* scalar_values) {
  return nestor_launch_stream(kernel, tensor_count, tensors, size_count, size_names, size_values, scalar_count, scalar_names,
                              scalar_values, nullptr);
}

nestor_status nestor_launch_stream(const nestor_kernel* kernel, int32_t tensor_count, const nestor_tensor* tensors,
                                   int32_t size_count, const char* const* size_names, const int64_t* size_values,
                                   int32_t scalar_count, const char* const* scalar_names, const double* scalar_values,
                                   void* stream) {
  return guarded_call([&] {
    launch(kernel, tensor_count, tensors, {"sizes", size_count, size_names, size_values},
           {"scalars", scalar_count, scalar_names, scalar_values}, {.stream = stream});
    return NESTOR_OK;
  });
}

nestor_status nestor_launch_trusted(const nestor_kernel* kernel, int32_t tensor_count, const nestor_tensor* tensors,
                                    int32_t size_count, const char* const* size_names, const int64_t* size_values,
                                    int32_t scalar_count, const char* const* scalar_names, const double* scalar_values,
                                    void* stream) {
  return guarded_call([&] {
    launch(kernel, tensor_count, tensors, {"sizes", size_count, size_names, size_values},
           {"scalars", scalar_count, scalar_names, scalar_values}, {.stream = stream, .check_memory = false});
    return NESTOR_OK;
  });
}

nestor_status nestor_refresh(nestor_library* library) {
  return guarded_call([&] {
    if (library == nullptr) user_error("the library is NULL");
    library->impl->refresh();
    return NESTOR_OK;
  });
}

const char* nestor_version(void) {
#define NESTOR_TEXT_OF(x) #x
#define NESTOR_TEXT(x) NESTOR_TEXT_OF(x)
  return NESTOR_TEXT(NESTOR_VERSION_MAJOR) "." NESTOR_TEXT(NESTOR_VERSION_MINOR) "." NESTOR_TEXT(NESTOR_VERSION_PATCH);
#undef NESTOR_TEXT
#undef NESTOR_TEXT_OF
}

int32_t nestor_version_number(void) { return NESTOR_VERSION; }

const char* nestor_last_error(void) { return last_error.c_str(); }
