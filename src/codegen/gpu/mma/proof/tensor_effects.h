// What the code of each op does to its fragment: elements that it gives another value than the tile program does.
#pragma once

#include "codegen/gpu/mma/proof/tensor_points.h"
#include "codegen/gpu/mma/values/hidden_values.h"

#include <map>
#include <optional>
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
  Possible row_at(int k, int buffer);
  Possible row_value(int buffer, std::set<int>& seen);
  isl::set terms_added(int k, const isl::set& hidden);

  /// The hidden ones whose sums are NaN in the tile program, too, wherever they add anything but 0. `terms`: the op's own, in the same
  /// iterations. `along`: what the sum goes through.
  isl::set beside_nan(int k, const isl::set& hidden, const isl::set& terms, int along);
  Possible hidden_term(int k, const isl::set& hidden);
  Possible visible_value(int k);
  Possible visible_read(int k, int read);
  bool in_extremum(int k, int read, ReductionOp extremum) const;
  int writer_before(int k, int buffer) const;
  bool moves(int buffer, int from, int to) const;
  void require_finite(int k, const isl::set& computed);

  bool has_tests(int k) const;
  bool keeps_rest(int k) const;
  bool in_place(int k) const;
  bool written_in(int loop, int buffer) const;
  int columns_of(int buffer) const;
  const OpPoints& at(int k) const { return points_[static_cast<std::size_t>(k)]; }

  /// What rows are taken to have while it is looked whether hidden elements matter.
  struct RowCase {
    int reader = -1;          ///< the op whose terms these are
    int buffer = -1;          ///< the row value that is not finite; -1: all are finite
    Possible value = {};      ///< what it is
    std::set<int> read = {};  ///< row values that have been read
    bool moved = false;       ///< one of them was another when an op before `reader` read it
  };

  TensorProof& proof_;
  const std::vector<OpPoints>& points_;
  const PointReader& reader_;
  std::set<std::string> finite_;  ///< tensors that the certificate asks finite values of
  std::optional<RowCase> rows_;
};

}  // namespace nestor::nvptx
