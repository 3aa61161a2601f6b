// Data sets: kinds of inputs with which kernels are checked.
#pragma once

#include "autotune/check/masked_places.h"
#include "autotune/tensors/host_tensor.h"
#include "poly/nest/nest.h"

#include <cstdint>
#include <string>
#include <vector>

namespace nestor {

/// ordinary: normal random numbers. large: up to some hundreds, some rows beside 0. constant: every element of an input is one number.
/// zeros: most elements and some rows are zeros of either sign. ties: integers from -2 to 2. The others are ordinary, but one input has
/// rows with one, many and nothing but elements of that value; `lowest` is the least finite number of its type.
enum class DataKind : std::uint8_t { ordinary, large, constant, zeros, ties, plus_infinity, minus_infinity, lowest, nan };
std::string_view to_string(DataKind kind);

/// A kind, and for the special values the input that has them.
struct DataSet {
  DataKind kind = DataKind::ordinary;
  std::string special{};
  std::string str() const;  ///< "ties", "nan in x"
  bool operator==(const DataSet&) const = default;
};

/// Every kind; special values in each input in turn. `few`: for large inputs, some kinds, and one special value in each of
/// up to four inputs.
std::vector<DataSet> data_sets(const Nest& nest, bool few = false);

/// Inputs of `nest`; outputs have a shape but no bytes. Equal seeds give equal data.
/// `finite`: elements of inputs that stay ordinary numbers instead of infinities and NaN.
HostTensors make_data(const Nest& nest, const Sizes& sizes, const DataSet& data, std::uint64_t seed,
                      const ElementLists& finite = {});

/// Puts the elements of `ordinary` in place of infinities and NaN, where `finite` says so.
void keep_finite(HostTensors& tensors, const HostTensors& ordinary, const ElementLists& finite);

}  // namespace nestor
