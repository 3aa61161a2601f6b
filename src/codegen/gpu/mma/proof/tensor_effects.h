// What the code of each op does to its fragment: elements that it gives another value than the tile program does.
#pragma once

#include "codegen/gpu/mma/proof/hidden_values.h"
#include "codegen/gpu/mma/proof/tensor_points.h"

#include <map>
#include <set>
#include <vector>

namespace nestor::nvptx {

/// What an op does, for all sizes, beside the tile program's meaning.
struct Effect {
  isl::set defined;  ///< elements that the tile program gives a value there
  isl::set spoilt;   ///< elements that the code leaves with another value: wrong where defined, else not what they had before
};

class EffectReader {
 public:
  EffectReader(TensorProof& proof, const std::vector<OpPoints>& points, const PointReader& reader);
  /// Of an op that writes a fragment. `live`: elements of it that something reads.
  Effect of(int k, const isl::set& live);

 private:
  Effect map(int k, const isl::set& live);
  isl::set unchanged(int k, const isl::set& elements, const isl::set& live);
  bool adds_nothing(int k, const isl::set& points, const isl::set& elements);
  Effect reduce(int k, const isl::set& live);
  Effect product(int k, const isl::set& live);
  Effect seldom(int k);

  /// Values that op `k` computes at points, none of which it has.
  Possible value_at(int k, const isl::set& hidden);
  Possible read_at(int k, int read, const isl::set& hidden);
  /// Values of the fragment before op `k` at elements that a point outside of it reads.
  Possible fragment_at(int buffer, int k, const isl::set& elements);
  Possible left_by(int writer, const isl::set& elements, isl::set& kept);
  Possible row_value(int buffer, std::set<int>& seen);
  isl::set terms_added(int k, const isl::set& hidden);
  void require_finite(int k, const isl::set& computed);

  bool has_tests(int k) const;
  bool keeps_rest(int k) const;
  bool in_place(int k) const;
  bool written_in(int loop, int buffer) const;
  int columns_of(int buffer) const;
  const OpPoints& at(int k) const { return points_[static_cast<std::size_t>(k)]; }

  TensorProof& proof_;
  const std::vector<OpPoints>& points_;
  const PointReader& reader_;
  std::set<std::string> finite_;  ///< tensors that the certificate asks finite values of
};

}  // namespace nestor::nvptx
