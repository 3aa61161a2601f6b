// HostTensor: data of one argument in this process, and random arguments for a nest.
#pragma once

#include "autotune/tensors/byte_buffer.h"
#include "poly/nest/nest.h"
#include "support/element_codec.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace nestor {

/// Dense row-major data of one argument, in its storage type.
struct HostTensor {
  std::string name;
  ElementType type = ElementType::f32;
  std::vector<std::int64_t> shape;
  ByteBuffer bytes;
  double get(std::int64_t linear) const;
  void set(std::int64_t linear, double value);  ///< rounds to the type
  std::int64_t elements() const;
};

using HostTensors = std::map<std::string, HostTensor>;

/// Random normal inputs (i32: small integers, or places; within input_ranges()) and outputs filled with a poison pattern, for all arguments of `nest`. Throws LackOfResources
/// before anything is allocated.
HostTensors make_arguments(const Nest& nest, const Sizes& sizes, std::uint64_t seed);

/// The inputs alone, the same as above; outputs have a shape but no bytes.
HostTensors make_inputs(const Nest& nest, const Sizes& sizes, std::uint64_t seed);

/// Fills an output with the poison of one generation.
void fill_poison(HostTensor& tensor, std::uint32_t generation = kFirstPoison);

}  // namespace nestor
