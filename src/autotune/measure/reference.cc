// Evaluation of a nest's definition: whole, or backwards from single elements with remembered temporaries.
#include "autotune/measure/reference.h"

#include "support/element_codec.h"
#include "support/error.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace nestor {

LazyDoubles::LazyDoubles(std::int64_t count) : count_(count) {
  void* memory =
      mmap(nullptr, count * sizeof(double), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) user_error("oracle: cannot reserve {} bytes for a tensor's reference values", count * 8);
  data_ = static_cast<std::uint64_t*>(memory);
}

LazyDoubles::~LazyDoubles() {
  if (data_) munmap(data_, count_ * sizeof(double));
}

LazyDoubles::LazyDoubles(LazyDoubles&& other) noexcept : data_(std::exchange(other.data_, nullptr)), count_(other.count_) {}

LazyDoubles& LazyDoubles::operator=(LazyDoubles&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(count_, other.count_);
  return *this;
}

std::int64_t DimFunction::at(const std::int64_t* dims) const {
  if (!linear) return expr.evaluate(dims);
  std::int64_t sum = constant;
  for (std::size_t k = 0; k < factors.size(); ++k) sum += factors[k] * dims[k];
  return sum;
}

std::int64_t CompiledAccess::at(const std::int64_t* dims, const std::vector<std::int64_t>& strides) const {
  if (address.linear) return address.at(dims);
  std::int64_t sum = 0;
  for (std::size_t k = 0; k < index.size(); ++k) sum += index[k].at(dims) * strides[k];
  return sum;
}

/// Supplies reads and indices of one chunk; computes unknown elements first when evaluating backwards.
class Reference::Leaves : public LeafSource {
 public:
  Leaves(Reference& reference, int statement, const std::int64_t* dims, const std::vector<std::int64_t>& strides, bool whole)
      : reference_(reference),
        code_(reference.statements_[statement]),
        statement_(statement),
        dims_(dims),
        strides_(strides),
        whole_(whole) {}

  void read(int ordinal, double* out, int count) override {
    const CompiledAccess& access = code_.reads[ordinal];
    const Store& store = reference_.stores_[access.tensor];
    std::array<std::int64_t, kChunk> address;
    addresses(access, store, address.data(), count);
    if (store.input) {
      if (store.type == ElementType::f32) {
        const auto* values = reinterpret_cast<const float*>(store.input);
        for (int k = 0; k < count; ++k) out[k] = address[k] < 0 ? 0 : values[address[k]];
      } else {
        for (int k = 0; k < count; ++k) out[k] = address[k] < 0 ? 0 : load_element(store.type, store.input, address[k]);
      }
      return;
    }
    const int version = whole_ ? static_cast<int>(store.writers.size()) : reference_.version_seen(statement_, access.tensor);
    for (int k = 0; k < count; ++k) {
      if (address[k] < 0) {
        out[k] = 0;
        continue;
      }
      // The table is looked up anew: computing an element may create tables.
      const LazyDoubles& values = reference_.version_of(access.tensor, version);
      if (values.known(address[k])) {
        out[k] = values.get(address[k]);
      } else {
        const auto value = whole_ ? std::nullopt : reference_.compute(access.tensor, version, address[k]);
        if (!value) user_error("{} reads element {} of {} before it is written", code_.name, address[k], store.name);
        out[k] = *value;
      }
    }
  }

  void index(int ordinal, double* out, int count) override {
    std::array<std::int64_t, 16> dims;
    for (int k = 0; k < count; ++k) {
      point(k, dims.data());
      out[k] = static_cast<double>(code_.indices[ordinal].at(dims.data()));
    }
  }

 private:
  void point(int k, std::int64_t* dims) const {
    for (int d = 0; d < code_.dims; ++d) dims[d] = dims_[d] + k * (strides_.empty() ? 0 : strides_[d]);
  }

  /// Element numbers of an access at each point; -1 where it does not exist.
  void addresses(const CompiledAccess& access, const Store& store, std::int64_t* out, int count) const {
    if (access.address.linear && !access.guard) {
      const std::int64_t first = access.address.at(dims_);
      std::int64_t step = 0;
      if (count > 1) {
        for (int d = 0; d < code_.dims; ++d) step += access.address.factors[d] * strides_[d];
      }
      for (int k = 0; k < count; ++k) out[k] = first + k * step;
      return;
    }
    std::array<std::int64_t, 16> dims;
    for (int k = 0; k < count; ++k) {
      point(k, dims.data());
      out[k] = access.guard && !access.guard->evaluate(dims.data()) ? -1 : access.at(dims.data(), store.strides);
    }
  }

  Reference& reference_;
  const CompiledStatement& code_;
  int statement_;
  const std::int64_t* dims_;
  const std::vector<std::int64_t>& strides_;
  bool whole_;
};

double Reference::full_cost() const {
  double cost = 0;
  for (const CompiledStatement& s : statements_) cost += s.points * static_cast<double>(1 + s.value.size());
  return cost;
}

const std::vector<std::int64_t>& Reference::shape(const std::string& tensor) const {
  return stores_[store_index_.at(tensor)].shape;
}

/// Number of writers of `tensor` that run before `statement` starts.
int Reference::version_seen(int statement, int tensor) const {
  const std::vector<int>& writers = stores_[tensor].writers;
  const int group = statements_[statement].group;
  return static_cast<int>(std::count_if(writers.begin(), writers.end(), [&](int w) { return statements_[w].group < group; }));
}

LazyDoubles& Reference::version_of(int tensor, int version) {
  Store& store = stores_[tensor];
  if (static_cast<int>(store.versions.size()) <= version) store.versions.resize(version + 1);
  if (!store.versions[version]) store.versions[version] = LazyDoubles(std::max<std::int64_t>(store.elements, 1));
  return store.versions[version];
}

void Reference::call(const LoopCode& code, std::int64_t* frame, const std::vector<std::int64_t>& strides, int count,
                     const Sink& sink) {
  std::array<std::int64_t, 16> dims;
  for (std::size_t k = 0; k < code.arguments.size(); ++k) dims[k] = code.arguments[k].evaluate(frame);
  spent_ += static_cast<double>(count) * static_cast<double>(1 + statements_[code.statement_index].value.size());
  if (spent_ > limit_) {
    user_error("oracle: evaluating the definition at these sizes takes more than {:.0f} million operations; use smaller sizes",
               limit_ / 1e6);
  }
  sink(code.statement_index, dims.data(), strides, count);
}

void Reference::walk(const LoopCode& code, std::int64_t* frame, const Sink& sink) {
  static const std::vector<std::int64_t> kNoStrides;
  switch (code.kind) {
    case LoopCode::Kind::block:
      for (const LoopCode& child : code.children) walk(child, frame, sink);
      return;
    case LoopCode::Kind::condition:
      if (code.condition.evaluate(frame)) {
        walk(code.children[0], frame, sink);
      } else if (code.children.size() > 1) {
        walk(code.children[1], frame, sink);
      }
      return;
    case LoopCode::Kind::statement:
      return call(code, frame, kNoStrides, 1, sink);
    case LoopCode::Kind::loop:
      break;
  }
  const std::int64_t upper = code.upper.evaluate(frame);
  std::int64_t value = code.lower.evaluate(frame);
  if (code.strides.empty()) {
    for (; value <= upper; value += code.step) {
      frame[code.slot] = value;
      walk(code.children[0], frame, sink);
    }
    return;
  }
  while (value <= upper) {
    frame[code.slot] = value;
    const std::int64_t left = (upper - value) / code.step + 1;
    const int count = static_cast<int>(std::min<std::int64_t>(left, kChunk));
    call(code.children[0], frame, code.strides, count, sink);
    value += code.step * count;
  }
}

const double* Reference::evaluate_chunk(int statement, const std::int64_t* dims, const std::vector<std::int64_t>& strides,
                                        int count, bool whole) {
  const CompiledStatement& code = statements_[statement];
  if (static_cast<int>(registers_.size()) <= depth_) registers_.push_back(std::make_unique<std::vector<double>>());
  std::vector<double>& registers = *registers_[depth_];
  if (registers.size() < code.value.registers()) registers.resize(code.value.registers());
  Leaves leaves(*this, statement, dims, strides, whole);
  ++depth_;
  const double* values = code.value.run(registers.data(), leaves, count);
  --depth_;
  return values;
}

void Reference::store_chunk(int statement, const std::int64_t* dims, const std::vector<std::int64_t>& strides, int count) {
  const CompiledStatement& code = statements_[statement];
  const double* values = evaluate_chunk(statement, dims, strides, count, true);
  Store& store = stores_[code.write.tensor];
  LazyDoubles& memory = version_of(code.write.tensor, static_cast<int>(store.writers.size()));
  const double neutral = code.reduction ? neutral_element(*code.reduction, store.type) : 0;
  std::array<std::int64_t, 16> at;
  std::int64_t step = 0;
  const std::int64_t first = code.write.at(dims, store.strides);
  if (code.write.address.linear && count > 1) {
    for (int d = 0; d < code.dims; ++d) step += code.write.address.factors[d] * strides[d];
  }
  for (int k = 0; k < count; ++k) {
    std::int64_t address = first + k * step;
    if (!code.write.address.linear && k > 0) {
      for (int d = 0; d < code.dims; ++d) at[d] = dims[d] + k * strides[d];
      address = code.write.at(at.data(), store.strides);
    }
    double value = values[k];
    if (code.reduction) value = combine(*code.reduction, memory.known(address) ? memory.get(address) : neutral, value);
    memory.set(address, value);
  }
}

std::optional<double> Reference::compute(int tensor, int version, std::int64_t linear) {
  std::optional<double> result;
  const Store& store = stores_[tensor];
  std::array<std::int64_t, 64> frame{};
  for (int k = 0; k < version; ++k) {
    const ElementLoops& loops = element_loops(store.writers[k]);
    std::int64_t rest = linear;
    for (std::size_t d = 0; d < store.shape.size(); ++d) {
      frame[d] = rest / store.strides[d];
      rest %= store.strides[d];
    }
    walk(loops.code, frame.data(),
         [&](int statement, const std::int64_t* dims, const std::vector<std::int64_t>& strides, int count) {
           const CompiledStatement& code = statements_[statement];
           const double* values = evaluate_chunk(statement, dims, strides, count, false);
           if (!code.reduction) {
             result = values[count - 1];
             return;
           }
           double sum = result ? *result : neutral_element(*code.reduction, store.type);
           for (int p = 0; p < count; ++p) sum = combine(*code.reduction, sum, values[p]);
           result = sum;
         });
  }
  if (result) version_of(tensor, version).set(linear, *result);
  return result;
}

std::optional<double> Reference::value(const std::string& tensor, std::int64_t linear, double cost_limit) {
  limit_ = cost_limit;
  const int index = store_index_.at(tensor);
  const int version = static_cast<int>(stores_[index].writers.size());
  const LazyDoubles& memory = version_of(index, version);
  if (memory.known(linear)) return memory.get(linear);
  if (!backward_possible_) return std::nullopt;
  return compute(index, version, linear);
}

}  // namespace nestor
