// The depth to which each two statements must share loops, from the elements that both touch.
#include "autotune/oracle/group_order.h"

#include <isl/map.h>
#include <isl/set.h>
#include <isl/union_map.h>

#include <algorithm>
#include <cstddef>

namespace nestor {
namespace {

/// { earlier[dims] -> later[dims] } that touch one element through these accesses.
void add_meetings(const isl::map& a, const isl::map& b, std::vector<isl::map>& found) {
  if (isl_space_tuple_is_equal(a.space().get(), isl_dim_out, b.space().get(), isl_dim_out) != isl_bool_true) return;
  const isl::map meeting = a.apply_range(b.reverse());
  if (!meeting.is_empty()) found.push_back(meeting);
}

/// Pairs of instances whose order matters.
std::vector<isl::map> conflicts(const TouchedElements& a, const TouchedElements& b) {
  std::vector<isl::map> found;
  add_meetings(a.write, b.write, found);
  for (const isl::map& read : b.reads) add_meetings(a.write, read, found);
  for (const isl::map& read : a.reads) add_meetings(read, b.write, found);
  return found;
}

/// So many loops, from the outermost on, two statements have to share: with those equal, no instance of the one that stands behind comes
/// before an instance of the other that it meets.
int least_shared(const TouchedElements& first, const TouchedElements& second, int dims) {
  int shared = 0;
  for (const isl::map& meeting : conflicts(first, second)) {
    // From the innermost loop on: as soon as some pair would change places, the loops outside have to be shared.
    for (int k = dims; k-- > shared;) {
      isl_map* swapped = meeting.copy();
      for (int d = 0; d < k; ++d) swapped = isl_map_equate(swapped, isl_dim_in, d, isl_dim_out, d);
      // The second statement's instance is first by loop k.
      swapped = isl_map_order_gt(swapped, isl_dim_in, k, isl_dim_out, k);
      if (isl::manage(swapped).is_empty()) continue;
      shared = k + 1;
      break;
    }
  }
  return shared;
}

/// The last common position of boundaries between statements, one a boundary: so many loops are shared across it.
std::vector<int> shared_across(const std::vector<TouchedElements>& statements, int dims) {
  std::vector<int> shared(statements.size() - 1, 0);
  for (std::size_t a = 0; a < statements.size(); ++a) {
    for (std::size_t b = a + 1; b < statements.size(); ++b) {
      const int least = least_shared(statements[a], statements[b], dims);
      for (std::size_t k = a; k < b; ++k) shared[k] = std::max(shared[k], least);
    }
  }
  return shared;
}

}  // namespace

isl::union_map distributed_order(const std::vector<TouchedElements>& statements) {
  const int dims = static_cast<int>(isl_set_dim(statements.front().domain.get(), isl_dim_set));
  const std::vector<int> shared = shared_across(statements, dims);
  isl_union_map* order = nullptr;
  for (std::size_t s = 0; s < statements.size(); ++s) {
    isl_map* times = isl_map_reset_tuple_id(isl_set_identity(statements[s].domain.copy()), isl_dim_out);
    // Before each loop, and in the innermost body, stands the number of the part that the statement is in.
    for (int depth = dims; depth >= 0; --depth) {
      const auto end = shared.begin() + static_cast<std::ptrdiff_t>(s);
      times = isl_map_insert_dims(times, isl_dim_out, static_cast<unsigned>(depth), 1);
      times = isl_map_fix_si(times, isl_dim_out, static_cast<unsigned>(depth),
                             static_cast<int>(std::count(shared.begin(), end, depth)));
    }
    order = order == nullptr ? isl_union_map_from_map(times) : isl_union_map_add_map(order, times);
  }
  return isl::manage(order);
}

}  // namespace nestor
