// SumEdit: a sum computed by algebra where that is as good, and directly elsewhere.
#pragma once

#include "poly/nest/nest.h"

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace nestor {

/// { name[dims] -> Element } of the same elements as `relation` from the statement, at these of its dims alone.
isl::map along_dims(const isl::map& relation, const Statement& statement, const std::set<int>& dims, const std::string& name);

/// The statement over some of its dims alone, without accesses.
Statement over_dims(const Nest& nest, const Statement& statement, const std::set<int>& dims, const std::string& name);

/// Is it a sum in f32 that starts from 0, alone in its loops as its start is, is read only when it is complete, and has terms for every
/// element that is started, which its dims index? Then a SumEdit can be made. Sets `why` where it is not. `numbers`: terms may have indices as
/// numbers, which statements over some of its dims have not.
bool can_be_guarded(const Nest& nest, const Statement& sum, std::string& why, bool numbers = false);

/// Is nothing of the tensor written from the start of such a sum on? Then statements before the start may read it.
bool is_written_before(const Nest& nest, const std::string& tensor, const Statement& sum);

/// Statements that go in before such a sum.
class SumEdit {
 public:
  SumEdit(const Nest& nest, const Statement& sum);

  Nest& nest() { return result_; }
  const Statement& sum() const { return sum_; }
  /// The statement before which others go in.
  const std::string& start_name() const { return start_.name; }
  /// Dims of the sum that index its result.
  std::set<int> elements() const;
  /// Extents of these.
  const isl::pw_aff& extent(int dim) const { return extents_.at(dim); }

  void insert(const Statement& statement);
  /// A temporary of f32 for values at these of the sum's elements' dims. Returns { Sum -> Tensor } of the sum's own element.
  isl::map add_tensor(const std::set<int>& dims, const std::string& suffix);
  /// The sum's access as a statement over some of the sum's dims has it.
  isl::map seen_from(const Statement& statement, const std::set<int>& dims, const isl::map& access) const;
  /// Stores 0 to elements of `to` at the dims.
  void add_start(const std::set<int>& dims, const isl::map& to);

  /// The sum is what `kept` makes of the element of `choice` { Sum -> Tensor }, and of the direct terms where `missing` holds for it. What
  /// is decided is decided once, and the result stays in the kernel that has it, whoever else reads the sum. Ends the edit.
  Nest guard(const isl::map& choice, const std::function<ScalarExpr(const ScalarExpr&)>& missing,
             const std::function<ScalarExpr(const ScalarExpr&)>& kept);

 private:
  Nest result_;
  const Statement sum_, start_;
  std::map<int, isl::pw_aff> extents_;
};

/// The tensor that a map leads to.
std::string tensor_of(const isl::map& access);

}  // namespace nestor
