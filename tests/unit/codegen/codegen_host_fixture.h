// Runs hand-built tile programs as compiled host code and by the interpreter, and compares every element of memory.
#pragma once

#include "codegen/host/host_backend.h"
#include "codegen/tile/tile_program.h"
#include "support/element_codec.h"
#include "support/error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>

namespace nestor::host_test {

inline IntExpr var(const std::string& name) { return IntExpr::variable(name); }
inline ScalarExpr f32(double value) { return ScalarExpr::constant(value); }
inline ScalarExpr read(int k, ElementType type = ElementType::f32) {
  const ScalarExpr raw = ScalarExpr::read(k, type);
  return type == ElementType::f16 || type == ElementType::bf16 ? ScalarExpr::cast(ElementType::f32, raw) : raw;
}
inline ScalarExpr op(ScalarOp kind, std::vector<ScalarExpr> args) { return ScalarExpr::make(kind, std::move(args)); }
inline IntExpr ge(const IntExpr& a, const IntExpr& b) { return IntExpr::make(IntOp::ge, {a, b}); }

inline OpDim dim(const std::string& name, const IntExpr& upper, bool reduced = false, const IntExpr& lower = 0) {
  OpDim out;
  out.var = name;
  out.lower = lower;
  out.upper = upper;
  out.reduced = reduced;
  out.parallel = !reduced;
  if (const auto constant = (upper - lower).as_constant()) out.max_extent = constant;
  return out;
}

inline Buffer argument(const std::string& name, TensorRole role, std::vector<IntExpr> extents,
                       ElementType type = ElementType::f32) {
  Buffer out;
  out.name = out.tensor = name;
  out.type = type;
  out.memory = Memory::argument;
  out.role = role;
  out.extents = std::move(extents);
  return out;
}

inline Buffer local(const std::string& name, Memory memory, std::vector<IntExpr> extents, ElementType type = ElementType::f32) {
  Buffer out = argument(name, TensorRole::temporary, std::move(extents), type);
  out.memory = memory;
  return out;
}

inline TileTree node(TileOp op) {
  TileNode out;
  out.kind = TileNode::Kind::op;
  if (op.kind == OpKind::contract) op.contraction = contraction_of(op.value, op.reduction);
  out.op = std::move(op);
  return std::make_shared<const TileNode>(std::move(out));
}

inline TileTree sequence(std::vector<TileTree> children) {
  TileNode out;
  out.children = std::move(children);
  return std::make_shared<const TileNode>(std::move(out));
}

inline TileTree loop(const std::string& name, const IntExpr& upper, LoopKind kind, TileTree child, std::int64_t step = 1) {
  TileNode out;
  out.kind = TileNode::Kind::loop;
  out.var = name;
  out.lower = 0;
  out.upper = upper;
  out.step = step;
  out.loop_kind = kind;
  out.children = {std::move(child)};
  return std::make_shared<const TileNode>(std::move(out));
}

inline TileTree condition(const IntExpr& test, TileTree child) {
  TileNode out;
  out.kind = TileNode::Kind::condition;
  out.condition = test;
  out.children = {std::move(child)};
  return std::make_shared<const TileNode>(std::move(out));
}

inline TileProgram program(std::vector<std::string> sizes, std::vector<Buffer> buffers, TileTree root) {
  TileProgram out;
  out.name = "kernel";
  out.sizes = std::move(sizes);
  out.buffers = std::move(buffers);
  out.root = std::move(root);
  return out;
}

/// An op writing buffer `target` at `index`.
inline TileOp make(OpKind kind, std::vector<OpDim> dims, TileAccess write, std::vector<TileAccess> reads, ScalarExpr value) {
  TileOp out;
  out.kind = kind;
  out.name = "s";
  out.dims = std::move(dims);
  out.write = std::move(write);
  out.reads = std::move(reads);
  out.value = std::move(value);
  return out;
}

inline double rounded(ElementType type, double value) {
  return round_to(type, type == ElementType::i32 ? value : static_cast<double>(static_cast<float>(value)));
}

inline std::uint32_t to_bits(ElementType type, double value) {
  if (type == ElementType::i32) return static_cast<std::uint32_t>(static_cast<std::int32_t>(value));
  const auto real = static_cast<float>(value);
  std::uint32_t bits = 0;
  std::memcpy(&bits, &real, 4);
  if (type == ElementType::f32) return bits;
  if (type == ElementType::bf16) return bits >> 16U;
  const auto half = static_cast<_Float16>(real);
  std::uint16_t narrow = 0;
  std::memcpy(&narrow, &half, 2);
  return narrow;
}

inline double from_bits(ElementType type, std::uint32_t bits) {
  if (type == ElementType::i32) return static_cast<std::int32_t>(bits);
  if (type == ElementType::bf16) bits <<= 16U;
  if (type == ElementType::f16) {
    const auto narrow = static_cast<std::uint16_t>(bits);
    _Float16 half = 0;
    std::memcpy(&half, &narrow, 2);
    return static_cast<double>(half);
  }
  float real = 0;
  std::memcpy(&real, &bits, 4);
  return real;
}

/// A tensor as the caller holds it: rows padded by `gap` elements whose bytes must stay as they are.
class Tensor {
 public:
  static constexpr std::uint8_t kCanary = 0x5a;

  Tensor(ElementType type, std::vector<std::int64_t> extents, std::int64_t gap, std::int64_t shift)
      : type_(type), extents_(std::move(extents)), strides_(extents_.size(), 1), shift_(shift) {
    std::int64_t size = 1;
    for (std::size_t k = extents_.size(); k-- > 0;) {
      strides_[k] = size;
      size *= extents_[k];
      if (k + 1 == extents_.size() && extents_.size() > 1) size += gap;
    }
    bytes_.assign(static_cast<std::size_t>(size + shift) * size_in_bytes(type) + 64, kCanary);
  }

  void* data() { return base() + static_cast<std::size_t>(shift_) * size_in_bytes(type_); }
  const std::vector<std::int64_t>& strides() const { return strides_; }

  /// Copies dense row-major values in or out.
  void put(const std::vector<double>& values) {
    each(values.size(), [&](std::size_t dense, std::uint8_t* at) {
      const std::uint32_t bits = to_bits(type_, values[dense]);
      std::memcpy(at, &bits, size_in_bytes(type_));
    });
  }
  std::vector<double> get() {
    std::size_t count = 1;
    for (const std::int64_t extent : extents_) count *= static_cast<std::size_t>(extent);
    std::vector<double> values(count);
    each(count, [&](std::size_t dense, std::uint8_t* at) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, at, size_in_bytes(type_));
      values[dense] = from_bits(type_, bits);
    });
    return values;
  }
  /// True when only elements were written.
  bool gaps_intact() {
    std::size_t count = 1;
    for (const std::int64_t extent : extents_) count *= static_cast<std::size_t>(extent);
    std::vector<std::uint8_t> copy = bytes_;
    each(count,
         [&](std::size_t, std::uint8_t* at) { std::memset(copy.data() + (at - bytes_.data()), kCanary, size_in_bytes(type_)); });
    return std::all_of(copy.begin(), copy.end(), [](std::uint8_t byte) { return byte == kCanary; });
  }

 private:
  std::uint8_t* base() { return bytes_.data() + (64 - reinterpret_cast<std::uintptr_t>(bytes_.data()) % 64) % 64; }

  template <class F>
  void each(std::size_t count, const F& body) {
    for (std::size_t dense = 0; dense < count; ++dense) {
      std::int64_t rest = static_cast<std::int64_t>(dense), offset = 0;
      for (std::size_t k = extents_.size(); k-- > 0;) {
        offset += rest % extents_[k] * strides_[k];
        rest /= extents_[k];
      }
      body(dense, static_cast<std::uint8_t*>(data()) + static_cast<std::size_t>(offset) * size_in_bytes(type_));
    }
  }

  ElementType type_;
  std::vector<std::int64_t> extents_, strides_;
  std::int64_t shift_;
  std::vector<std::uint8_t> bytes_;
};

/// An old CPU that every x86-64 machine emulates exactly: no AVX, no FMA, no F16C.
inline HostTarget plain_target() { return {"x86-64-v2", "", 16, 16}; }

struct RunOptions {
  double tolerance = 2e-6;
  double low = -1, high = 1;  ///< of the inputs' values
  std::int64_t gap = 3;       ///< elements between rows
  std::int64_t shift = 0;     ///< elements before the first
  int threads = 2;
  unsigned seed = 1;
  /// Compare with accumulation in wide types, rounded once: host code keeps sums in f32 until they are stored.
  bool wide_accumulators = false;
  std::map<std::string, double> scalars;
  /// Computes what the interpreter would, where that takes too long.
  std::function<void(std::map<std::string, std::vector<double>>& memory)> reference;
};

/// Runs on one target and compares all arguments with the interpreter's.
inline void expect_as_interpreted(const TileProgram& p, const Sizes& sizes, const HostTarget& target, const RunOptions& options) {
  std::mt19937 random(options.seed);
  std::uniform_real_distribution<double> uniform(options.low, options.high);
  std::map<std::string, std::vector<double>> memory;
  std::vector<std::unique_ptr<Tensor>> tensors;
  std::vector<void*> pointers;
  std::vector<std::int64_t> strides;
  const auto size_of = [&](const std::string& name) {
    const auto fixed = p.fixed_sizes.find(name);
    return fixed != p.fixed_sizes.end() ? fixed->second : sizes.at(name);
  };
  for (const Buffer& buffer : p.buffers) {
    if (buffer.memory != Memory::argument) continue;
    std::vector<std::int64_t> extents;
    std::size_t count = 1;
    for (const IntExpr& extent : buffer.extents) {
      extents.push_back(extent.evaluate(size_of));
      count *= static_cast<std::size_t>(extents.back());
    }
    std::vector<double> values(count);
    for (double& value : values)
      value = rounded(buffer.type, buffer.type == ElementType::i32 ? std::floor(uniform(random) * 1000) : uniform(random));
    tensors.push_back(std::make_unique<Tensor>(buffer.type, extents, options.gap, options.shift));
    tensors.back()->put(values);
    memory[buffer.name] = std::move(values);
    pointers.push_back(tensors.back()->data());
    strides.insert(strides.end(), tensors.back()->strides().begin(), tensors.back()->strides().end());
  }
  std::vector<double> scalars;
  for (const ScalarParam& scalar : p.scalars)
    scalars.push_back(options.scalars.count(scalar.name) != 0 ? options.scalars.at(scalar.name) : scalar.default_value);
  const CompiledHost compiled = compile_host(in_host_order(p), target);
  LoadedHostKernel(compiled.kernel).run(pointers, strides, sizes, scalars, options.threads);
  if (options.reference) {
    options.reference(memory);
  } else {
    TileProgram reference = p;
    for (Buffer& buffer : reference.buffers) {
      if (options.wide_accumulators && buffer.role == TensorRole::output) buffer.type = ElementType::f32;
    }
    interpret(reference, sizes, options.scalars, memory);
  }
  std::size_t k = 0;
  for (const Buffer& buffer : p.buffers) {
    if (buffer.memory != Memory::argument) continue;
    EXPECT_TRUE(tensors[k]->gaps_intact()) << buffer.name << " was written outside its elements";
    const std::vector<double> got = tensors[k++]->get();
    const std::vector<double>& want = memory.at(buffer.name);
    int wrong = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double expected = rounded(buffer.type, want[i]);
      if (got[i] == expected || (std::isnan(got[i]) && std::isnan(expected))) continue;
      if (std::fabs(got[i] - expected) <= options.tolerance * (1 + std::fabs(expected))) continue;
      if (++wrong <= 5)
        ADD_FAILURE() << target.cpu << ": " << buffer.name << "[" << i << "] is " << got[i] << ", should be " << expected;
    }
    EXPECT_EQ(wrong, 0) << "elements of " << buffer.name;
  }
}

/// On this CPU and on a plain one.
inline void expect_right(const TileProgram& p, const Sizes& sizes, const RunOptions& options = {}) {
  expect_as_interpreted(p, sizes, detect_host(), options);
  expect_as_interpreted(p, sizes, plain_target(), options);
}

}  // namespace nestor::host_test
