// Evaluation of a nest's definition: whole, or backwards from single elements with remembered temporaries.
#include "autotune/oracle/reference.h"

#include "autotune/oracle/value_errors.h"
#include "poly/nest/scalar_semantics.h"
#include "support/element_codec.h"
#include "support/error.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace nestor {

static_assert(kChunk <= IndexExpr::kMostPoints);

std::int64_t DimFunction::at(const std::int64_t* dims) const {
  if (!linear) return expr.evaluate(dims);
  std::int64_t sum = constant;
  for (std::size_t k = 0; k < factors.size(); ++k) sum += factors[k] * dims[k];
  return sum;
}

std::int64_t DimFunction::step(const std::vector<std::int64_t>& along, int count) const {
  std::int64_t sum = 0;
  for (std::size_t k = 0; k < factors.size() && count > 1; ++k) sum += factors[k] * along[k];
  return sum;
}

std::int64_t CompiledAccess::at(const std::int64_t* dims, const std::vector<std::int64_t>& strides) const {
  if (address.linear) return address.at(dims);
  std::int64_t sum = 0;
  for (std::size_t k = 0; k < index.size(); ++k) sum += index[k].at(dims) * strides[k];
  return sum;
}

void DimFunction::at(const std::int64_t* dims, const std::vector<std::int64_t>& along, int count, std::int64_t* out) const {
  if (!linear) return expr.evaluate(dims, along, count, out);
  const std::int64_t first = at(dims), apart = step(along, count);
  for (int k = 0; k < count; ++k) out[k] = first + k * apart;
}

void CompiledAccess::elements(const std::int64_t* dims, const std::vector<std::int64_t>& along, int count,
                              const std::vector<std::int64_t>& strides, std::int64_t* out) const {
  std::array<std::int64_t, kChunk> part;
  if (address.linear) {
    address.at(dims, along, count, out);
  } else {
    std::fill_n(out, count, 0);
    for (std::size_t d = 0; d < index.size(); ++d) {
      index[d].at(dims, along, count, part.data());
      for (int k = 0; k < count; ++k) out[k] += part[k] * strides[d];
    }
  }
  if (!guard) return;
  guard->evaluate(dims, along, count, part.data());
  for (int k = 0; k < count; ++k) out[k] = part[k] ? out[k] : -1;
}

void Reference::load_input(const Store& store, const std::int64_t* address, double* out, int count) {
  if (store.type != ElementType::f32 && store.decoded.empty()) return load_elements(store.type, store.input, address, out, count);
  const auto* values = store.decoded.empty() ? reinterpret_cast<const float*>(store.input) : store.decoded.data();
  for (int k = 0; k < count; ++k) out[k] = address[k] < 0 ? 0 : values[address[k]];
}

/// Supplies reads and indices of one chunk; computes unknown elements first when evaluating backwards.
class Reference::Leaves : public LeafSource, public LeafErrors {
 public:
  /// `errors`: room for a chunk of each read.
  Leaves(Reference& reference, int statement, const std::int64_t* dims, const std::vector<std::int64_t>& strides, bool whole,
         double* errors)
      : reference_(reference),
        code_(reference.statements_[statement]),
        statement_(statement),
        dims_(dims),
        strides_(strides),
        whole_(whole),
        errors_(errors),
        known_errors_(code_.reads.size()) {}

  void read(int ordinal, double* out, int count) override {
    const CompiledAccess& access = code_.reads[ordinal];
    const Store& store = reference_.stores_[access.tensor];
    if (store.input && access.address.linear && !access.guard && read_straight(access, store, out, count)) return;
    std::array<std::int64_t, kChunk> address;
    access.elements(dims_, strides_, count, store.strides, address.data());
    if (store.input) return load_input(store, address.data(), out, count);
    const int version = version_read(access, store);
    known_errors_[ordinal] =
        !whole_ && reference_.compute_row(access.tensor, version, {address.data(), count, out, errors_ + kChunk * ordinal});
    if (known_errors_[ordinal]) return;
    const LazyDoubles* values = &reference_.version_of(access.tensor, version);
    for (int k = 0; k < count; ++k) {
      if (address[k] < 0) {
        out[k] = 0;
        continue;
      }
      if (values->known(address[k])) {
        out[k] = values->get(address[k]);
      } else {
        const auto value = whole_ ? std::nullopt : reference_.compute(access.tensor, version, address[k]);
        if (!value) user_error("{} reads element {} of {} before it is written", code_.name, address[k], store.name);
        out[k] = *value;
        values = &reference_.version_of(access.tensor, version);  // computing an element may create tables
      }
      if (store.sums_16_bits) out[k] = round_to(store.type, out[k]);
    }
  }

  /// After read(): all elements are known.
  bool read_error(int ordinal, double* out, int count) override {
    const CompiledAccess& access = code_.reads[ordinal];
    const Store& store = reference_.stores_[access.tensor];
    if (store.input) return false;
    if (known_errors_[ordinal]) {
      std::copy_n(errors_ + kChunk * ordinal, count, out);
      return true;
    }
    std::array<std::int64_t, kChunk> address;
    access.elements(dims_, strides_, count, store.strides, address.data());
    const int version = version_read(access, store);
    if (!whole_ || !store.reduced) {
      const LazyDoubles& errors = reference_.errors_of(access.tensor, version);
      for (int k = 0; k < count; ++k) out[k] = address[k] < 0 ? 0 : errors.get(address[k]);
      return true;
    }
    for (int k = 0; k < count; ++k) {
      const bool again = k > 0 && address[k] == address[k - 1];
      out[k] = again ? out[k - 1] : address[k] < 0 ? 0 : reference_.error_of(access.tensor, version, address[k], whole_);
    }
    return true;
  }

  void index(int ordinal, double* out, int count) override {
    std::array<std::int64_t, kChunk> values;
    code_.indices[ordinal].at(dims_, strides_, count, values.data());
    std::copy_n(values.begin(), count, out);
  }

 private:
  int version_read(const CompiledAccess& access, const Store& store) const {
    return whole_ ? static_cast<int>(store.writers.size()) : reference_.version_seen(statement_, access.tensor);
  }

  /// Floats that lie side by side, or one of them again and again; false: others.
  bool read_straight(const CompiledAccess& access, const Store& store, double* out, int count) const {
    const std::int64_t step = access.address.step(strides_, count);
    if ((store.type != ElementType::f32 && store.decoded.empty()) || step < 0 || step > 1) return false;
    const auto* values = store.decoded.empty() ? reinterpret_cast<const float*>(store.input) : store.decoded.data();
    values += access.address.at(dims_);
    if (step == 0) {
      std::fill_n(out, count, static_cast<double>(*values));
    } else {
      std::copy_n(values, count, out);
    }
    return true;
  }

  Reference& reference_;
  const CompiledStatement& code_;
  int statement_;
  const std::int64_t* dims_;
  const std::vector<std::int64_t>& strides_;
  bool whole_;
  double* errors_;
  std::vector<bool> known_errors_;  ///< by read: those of errors_
};

double Reference::full_cost() const {
  double cost = 0;
  for (const CompiledStatement& s : statements_) cost += s.points * static_cast<double>(1 + s.value.size());
  return cost;
}

void Reference::set_input(Store& store, const HostTensors& inputs) {
  constexpr std::int64_t kSmall = 1 << 20;
  const auto data = inputs.find(store.name);
  if (data == inputs.end()) internal_error("oracle: no data for input {}", store.name);
  store.input = data->second.bytes.data();
  const bool narrow = store.type == ElementType::f16 || store.type == ElementType::bf16;
  if (!narrow || store.elements > kSmall) return;
  store.decoded.resize(static_cast<std::size_t>(store.elements));
  for (std::int64_t k = 0; k < store.elements; ++k)
    store.decoded[k] = static_cast<float>(load_element(store.type, store.input, k));
}

Reference Reference::copy_for(const HostTensors& inputs) const {
  Reference copy;
  for (const Store& store : stores_) {
    Store own;
    static_cast<StoreForm&>(own) = store;
    if (store.input) set_input(own, inputs);
    copy.stores_.push_back(std::move(own));
  }
  copy.store_index_ = store_index_;
  copy.statements_ = statements_;
  copy.group_loops_ = group_loops_;
  copy.scalars_ = scalars_;
  copy.rounding_ = rounding_;
  copy.backward_possible_ = false;
  copy.recurrent_ = recurrent_;
  copy.stop_ = stop_;
  return copy;
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
  if (!store.versions[version]) store.versions[version] = LazyDoubles(store.elements, shared_);
  return store.versions[version];
}

LazyDoubles& Reference::errors_of(int tensor, int version) {
  std::vector<LazyDoubles>& errors = stores_[tensor].errors;
  if (static_cast<int>(errors.size()) <= version) errors.resize(version + 1);
  if (!errors[version]) errors[version] = LazyDoubles(stores_[tensor].elements, shared_);
  return errors[version];
}

namespace {

/// Errors that grow from step to step stay numbers: an infinite one would say that nothing is promised.
double growing(double error) {
  constexpr double kLargest = 1e100;
  return error > kLargest && std::isfinite(error) ? kLargest : error;
}

}  // namespace

double Reference::error_of(int tensor, int version, std::int64_t linear, bool whole) {
  const Store& store = stores_[tensor];
  if (!whole || !store.reduced) return errors_of(tensor, version).get(linear);
  return growing(store.sums[linear].error(version_of(tensor, version).get(linear), store.narrow, store.orders, store.share));
}

/// Counts points of a statement.
void Reference::spend(int statement, int count) { spend(count * static_cast<double>(1 + statements_[statement].value.size())); }

void Reference::spend(double evaluations) {
  spent_ += evaluations;
  if (stop_ != nullptr && stop_->load(std::memory_order_relaxed)) throw EvaluationStopped{};
  if (spent_ > limit_) {
    user_error("oracle: evaluating the definition at these sizes takes more than {:.0f} million operations; use smaller sizes",
               limit_ / 1e6);
  }
}

void Reference::call(const LoopCode& code, std::int64_t* frame, const std::vector<std::int64_t>& strides, int count,
                     const Sink& sink) {
  std::array<std::int64_t, 16> dims;
  for (std::size_t k = 0; k < code.arguments.size(); ++k) dims[k] = code.arguments[k].evaluate(frame);
  spend(code.statement_index, count);
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

Reference::Chunk Reference::evaluate_chunk(int statement, const std::int64_t* dims, const std::vector<std::int64_t>& strides,
                                           int count, bool whole) {
  const CompiledStatement& code = statements_[statement];
  if (static_cast<int>(registers_.size()) <= depth_) registers_.push_back(std::make_unique<std::vector<double>>());
  std::vector<double>& registers = *registers_[depth_];
  const std::size_t needed = code.value.registers();
  const std::size_t wanted = 2 * needed + kChunk * (2 + code.reads.size());
  if (registers.size() < wanted) registers.resize(wanted);
  Leaves leaves(*this, statement, dims, strides, whole, registers.data() + 2 * needed + kChunk);
  ++depth_;
  const double* values = code.value.run(registers.data(), leaves, count);
  const double* errors =
      rounds_ ? nullptr : run_errors(code.value, rounding_, registers.data(), registers.data() + needed, leaves, count);
  --depth_;
  if (rounds_) return {values, nullptr, nullptr};
  if (rounding_.statements[statement].reorders) {
    // Terms that are added up in another order: of each step, some roundings of what there is so far.
    constexpr double kRoundings = 4 * 0x1p-24;
    // In a place of their own: those of a value without roundings are nowhere, or those of what it reads.
    double* own = registers.data() + wanted - kChunk;
    for (int k = 0; k < count; ++k) {
      const double before = errors == nullptr ? 0 : errors[k];
      own[k] = before + (std::isfinite(values[k]) ? kRoundings * std::fabs(values[k]) : 0);
    }
    errors = own;
  }
  return {values, errors, operand_errors(statement, registers.data(), values, count, registers.data() + 2 * needed)};
}

namespace {

/// The instruction whose result is multiplied with that of `position` or with a cast of it; -1: there is none.
int factor_beside(const std::vector<ValueCode::Instruction>& instructions, int position) {
  for (const ValueCode::Instruction& i : instructions) {
    const int number = static_cast<int>(&i - instructions.data());
    if (i.op == ScalarOp::cast && i.a == position) {
      if (const int found = factor_beside(instructions, number); found >= 0) return found;
    }
    if (i.op == ScalarOp::mul && (i.a == position || i.b == position)) return i.a == position ? i.b : i.a;
  }
  return -1;
}

}  // namespace

const double* Reference::operand_errors(int statement, const double* registers, const double* values, int count,
                                        double* out) const {
  const RoundingModel::Product& product = rounding_.statements[statement];
  if (!product.narrow) return nullptr;
  const double unit = unit_roundoff(*product.narrow);
  for (int k = 0; k < count; ++k) out[k] = std::isfinite(values[k]) ? unit * std::fabs(values[k]) : 0;
  if (*product.narrow != ElementType::f16) return out;
  // Of f16, small numbers have less precision, and large ones are infinite.
  constexpr double kHalfStep = 0x1p-25, kLargest = 65504;
  const auto& instructions = statements_[statement].value.instructions();
  if (product.narrow_read < 0) {  // both are computed
    const ValueCode::Instruction& last = instructions.back();
    for (int k = 0; last.op == ScalarOp::mul && k < count; ++k) {
      const double a = std::fabs(registers[std::ptrdiff_t{kChunk} * last.a + k]),
                   b = std::fabs(registers[std::ptrdiff_t{kChunk} * last.b + k]);
      if (std::isfinite(a + b)) out[k] += kHalfStep * (a + b);
      if (a > kLargest || b > kLargest) out[k] = std::numeric_limits<double>::infinity();
    }
    return out;
  }
  const auto read = std::find_if(instructions.begin(), instructions.end(), [&](const ValueCode::Instruction& i) {
    return i.op == ScalarOp::read && i.ordinal == product.narrow_read;
  });
  const double* other = registers + (read - instructions.begin()) * kChunk;
  const int computed = factor_beside(instructions, static_cast<int>(read - instructions.begin()));
  for (int k = 0; k < count; ++k) {
    if (std::isfinite(other[k])) out[k] += kHalfStep * std::fabs(other[k]);
    // One that may be rounded to 0 makes NaN of an infinity.
    const double factor = computed < 0 ? 0 : std::fabs(registers[std::ptrdiff_t{kChunk} * computed + k]);
    const bool vanishes = std::isinf(other[k]) && factor > 0 && factor <= 2 * kHalfStep;
    if (vanishes || std::fabs(values[k]) > kLargest * std::fabs(other[k])) out[k] = std::numeric_limits<double>::infinity();
  }
  return out;
}

void Reference::store_chunk(int statement, const std::int64_t* dims, const std::vector<std::int64_t>& strides, int count) {
  const CompiledStatement& code = statements_[statement];
  const Chunk chunk = evaluate_chunk(statement, dims, strides, count, true);
  Store& store = stores_[code.write.tensor];
  const int version = static_cast<int>(store.writers.size());
  LazyDoubles& memory = version_of(code.write.tensor, version);
  LazyDoubles& errors = errors_of(code.write.tensor, version);
  const double neutral = code.reduction ? neutral_element(*code.reduction, code.type) : 0;
  std::array<std::int64_t, kChunk> addresses;
  code.write.elements(dims, strides, count, store.strides, addresses.data());
  const std::int64_t first = addresses[0];
  if (code.reduction && code.write.address.linear && count > 1 && addresses[1] == first) {
    double sum = memory.known(first) ? memory.get(first) : neutral;
    store.sums[first].add_all(*code.reduction, store.type, {code.type, chunk.values, chunk.errors, chunk.operands, count}, sum);
    return memory.set(first, sum);
  }
  for (int k = 0; k < count; ++k) {
    const std::int64_t address = addresses[static_cast<std::size_t>(k)];
    double value = chunk.values[k];
    if (code.reduction) {
      const double before = memory.known(address) ? memory.get(address) : neutral;
      value = semantics::combine(*code.reduction, code.type, before, value);
      store.sums[address].add(*code.reduction, store.type, chunk.values[k], chunk.errors[k],
                              chunk.operands ? chunk.operands[k] : 0, before, value);
    } else if (value = semantics::stored_value(store.type, code.type, value); store.reduced) {
      store.sums[address].start(value, chunk.errors[k]);
    } else {
      errors.set(address, growing(chunk.errors[k]));
    }
    memory.set(address, value);
  }
}

std::optional<double> Reference::compute(int tensor, int version, std::int64_t linear) {
  std::optional<double> result;
  ErrorSum error;
  const Store& store = stores_[tensor];
  for (int k = 0; k < version; ++k) {
    const ElementLoops& loops = element_loops(store.writers[k]);
    auto frame = coordinates_of(linear, store.strides);
    const auto add = [&](int statement, const std::int64_t* dims, const std::vector<std::int64_t>& strides, int count) {
      const CompiledStatement& code = statements_[statement];
      const Chunk chunk = evaluate_chunk(statement, dims, strides, count, false);
      if (!code.reduction) {
        result = semantics::stored_value(store.type, code.type, chunk.values[count - 1]);
        error.start(*result, chunk.errors[count - 1]);
        return;
      }
      double sum = result ? *result : neutral_element(*code.reduction, code.type);
      error.add_all(*code.reduction, store.type, {code.type, chunk.values, chunk.errors, chunk.operands, count}, sum);
      result = sum;
    };
    walk(loops.code, frame.data(), std::ref(add));  // no copy, which would take memory
  }
  if (result) remember(tensor, version, linear, *result, error.error(*result, store.narrow, store.orders));
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

std::optional<BoundedValue> Reference::bounded_value(const std::string& tensor, std::int64_t linear, double cost_limit) {
  const auto found = value(tensor, linear, cost_limit);
  if (!found) return std::nullopt;
  const int index = store_index_.at(tensor);
  const int version = static_cast<int>(stores_[index].writers.size());
  return BoundedValue{*found, kErrorMargin * error_of(index, version, linear, evaluated_)};
}

}  // namespace nestor
