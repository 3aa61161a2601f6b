// Boxes of constants, and sums over their points.
#include "poly/algebra/rolled/rolled_sums.h"

#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <map>
#include <set>

#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "poly/isl/whole_function.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr std::size_t kMostDims = 3;  ///< of new ones

Shift moved(Shift shift, const Shift& step, std::int64_t times) {
  for (std::size_t k = 0; k < shift.size(); ++k) shift[k] += times * step[k];
  return shift;
}

/// The box that the shifts are, the first of which is 0; nothing where they are none.
std::optional<Grid> grid_of(const std::vector<Shift>& shifts) {
  const std::set<Shift> all(shifts.begin(), shifts.end());
  if (all.size() < shifts.size() || *all.begin() != shifts.front()) return std::nullopt;
  Grid grid;
  std::map<Shift, Shift> places{{shifts.front(), {}}};
  while (places.size() < all.size()) {
    const auto step = std::find_if(all.begin(), all.end(), [&](const Shift& shift) { return !places.contains(shift); });
    const std::map<Shift, Shift> known = places;
    for (auto& [shift, place] : places) place.push_back(0);
    std::int64_t count = 1;
    for (bool whole = true; whole; count += whole ? 1 : 0) {
      std::map<Shift, Shift> more;
      for (const auto& [shift, place] : known) {
        Shift at = place;
        at.push_back(count);
        more.emplace(moved(shift, *step, count), at);
      }
      whole = std::all_of(more.begin(), more.end(),
                          [&](const auto& each) { return all.contains(each.first) && !places.contains(each.first); });
      if (whole) places.merge(more);
    }
    if (count < 2 || grid.steps.size() == kMostDims) return std::nullopt;
    grid.steps.push_back(*step);
  }
  for (const Shift& shift : shifts) grid.places.push_back(places.at(shift));
  // Larger steps are outer loops.
  std::reverse(grid.steps.begin(), grid.steps.end());
  for (Shift& place : grid.places) std::reverse(place.begin(), place.end());
  return grid;
}

std::optional<std::vector<isl::aff>> affs_of(const isl::map& relation) {
  const auto function = whole_function(relation);
  if (!function) return std::nullopt;
  std::vector<isl::aff> affs;
  const auto count = static_cast<int>(isl_multi_aff_dim(function->get(), isl_dim_out));
  for (int k = 0; k < count; ++k) affs.push_back(isl::manage(isl_multi_aff_get_aff(function->get(), k)));
  return affs;
}

bool append(std::vector<isl::aff>& affs, const isl::map& relation) {
  const auto more = affs_of(relation);
  if (more) affs.insert(affs.end(), more->begin(), more->end());
  return more.has_value();
}

/// b - a, where that is a constant.
std::optional<std::int64_t> difference(const isl::aff& a, const isl::aff& b, const std::string& name) {
  const isl::id id = isl::manage(isl_id_alloc(isl_context().get(), name.c_str(), nullptr));
  const auto named = [&](const isl::aff& aff) { return isl_aff_set_tuple_id(aff.copy(), isl_dim_in, isl_id_copy(id.get())); };
  // Functions that isl has made of each other may have their parameters in another order.
  isl_aff *from = named(a), *to = named(b);
  to = isl_aff_align_params(to, isl_aff_get_domain_space(from));
  from = isl_aff_align_params(from, isl_aff_get_domain_space(to));
  const isl::aff rest = isl::manage(isl_aff_sub(to, from));
  if (isl_aff_is_cst(rest.get()) != isl_bool_true) return std::nullopt;
  const isl::val constant = isl::manage(isl_aff_get_constant_val(rest.get()));
  return isl_val_is_int(constant.get()) == isl_bool_true ? std::optional<std::int64_t>(isl_val_get_num_si(constant.get()))
                                                         : std::nullopt;
}

/// Is what the sums read the same wherever they stand?
bool reads_stay(const Nest& nest, const std::vector<AffineSum>& sums) {
  int first = sums.front().sum.group, last = first;
  for (const AffineSum& each : sums) {
    first = std::min(first, each.sum.group);
    last = std::max(last, each.sum.group);
  }
  for (const Access& read : sums.front().sum.reads) {
    for (const Statement* writer : writers_of(nest, read.tensor)) {
      if (writer->group > first && writer->group < last) return false;
    }
  }
  return true;
}

/// Where new dims go among those of the sum: before its reduced ones.
int place_of_dims(const Statement& sum) {
  const std::vector<int> reduced = reduced_dims(sum);
  return reduced.empty() ? static_cast<int>(sum.dims.size()) : reduced.front();
}

/// The points of all sums, with the places of these as dims.
isl::set points_of(const Nest& nest, const Rolled& rolled, const std::string& name) {
  const int place = place_of_dims(rolled.sums.front().sum);
  const auto dims = static_cast<unsigned>(rolled.grid.steps.size());
  std::optional<isl::set> points;
  for (std::size_t k = 0; k < rolled.sums.size(); ++k) {
    isl_set* set = isl_set_reset_tuple_id(domain_in(nest, rolled.sums[k].sum).release());
    set = isl_set_insert_dims(set, isl_dim_set, static_cast<unsigned>(place), dims);
    for (unsigned d = 0; d < dims; ++d)
      set = isl_set_fix_si(set, isl_dim_set, static_cast<unsigned>(place) + d, static_cast<int>(rolled.grid.places[k][d]));
    const isl::set own = isl::manage(isl_set_set_tuple_name(set, name.c_str()));
    points = points ? points->unite(own) : own;
  }
  return points->coalesce();
}

}  // namespace

std::optional<AffineSum> affine_sum(const Statement& sum, const Statement& start) {
  AffineSum result{sum, start, {}, {}};
  bool affine = append(result.write, sum.write.relation);
  for (const Access& read : sum.reads) affine = affine && append(result.others, read.relation);
  for (const isl::pw_aff& index : sum.indices)
    affine = affine && append(result.others, isl::manage(isl_map_from_pw_aff(index.copy())));
  return affine ? std::optional(result) : std::nullopt;
}

std::optional<Shift> shift_of(const Nest& nest, const AffineSum& one, const AffineSum& other) {
  const auto same_tensor = [](const Access& a, const Access& b) { return a.tensor == b.tensor; };
  const Statement &a = one.sum, &b = other.sum;
  if (a.dims.size() != b.dims.size() || !a.value.equals(b.value) || one.write.size() != other.write.size() ||
      one.others.size() != other.others.size() ||
      !std::equal(a.reads.begin(), a.reads.end(), b.reads.begin(), b.reads.end(), same_tensor))
    return std::nullopt;
  for (std::size_t k = 0; k < one.write.size(); ++k) {
    if (difference(one.write[k], other.write[k], a.name) != 0) return std::nullopt;
  }
  const auto started = [&](const AffineSum& each) {
    const isl::map written = each.start.write.relation.intersect_domain(domain_in(nest, each.start));
    return isl::set(isl::manage(isl_set_reset_tuple_id(written.range().release())));
  };
  if (!started(one).is_equal(started(other))) return std::nullopt;
  Shift shift;
  for (std::size_t k = 0; k < one.others.size(); ++k) {
    const auto constant = difference(one.others[k], other.others[k], a.name);
    if (!constant) return std::nullopt;
    shift.push_back(*constant);
  }
  return shift;
}

std::optional<Rolled> rolled_up(const Nest& nest, std::vector<std::pair<Shift, AffineSum>> alike) {
  if (alike.size() < kFewestRolled) return std::nullopt;
  std::stable_sort(alike.begin(), alike.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  Rolled rolled;
  std::vector<Shift> shifts;
  for (const auto& [shift, sum] : alike) {
    shifts.push_back(moved(shift, alike.front().first, -1));
    rolled.sums.push_back(sum);
  }
  const auto grid = grid_of(shifts);
  if (!grid || !reads_stay(nest, rolled.sums)) return std::nullopt;
  rolled.grid = *grid;
  return isl_set_n_basic_set(points_of(nest, rolled, "points").get()) == 1 ? std::optional(rolled) : std::nullopt;
}

Statement joint_sum(const Nest& nest, const Rolled& rolled) {
  const AffineSum& first = rolled.sums.front();
  Statement sum = first.sum;
  const int place = place_of_dims(sum);
  const auto count = rolled.grid.steps.size();
  for (std::size_t d = 0; d < count; ++d)
    sum.dims.insert(sum.dims.begin() + place + static_cast<std::ptrdiff_t>(d), fresh_dim(nest, sum.dims, "t"));
  isl_set* points = points_of(nest, rolled, sum.name).release();
  points = isl_set_gist_params(points, full_context(nest).release());
  sum.domain = isl::manage(with_dim_names(points, sum.dims));
  const isl::id id = isl::manage(isl_set_get_tuple_id(sum.domain.get()));
  std::size_t next = 0;  // of the shifts' constants
  const auto with_steps = [&](const isl::aff& aff, bool shifted) {
    isl_aff* function = isl_aff_insert_dims(aff.copy(), isl_dim_in, static_cast<unsigned>(place), static_cast<unsigned>(count));
    for (std::size_t d = 0; shifted && d < count; ++d)
      function = isl_aff_set_coefficient_si(function, isl_dim_in, place + static_cast<int>(d),
                                            static_cast<int>(rolled.grid.steps[d][next]));
    next += shifted ? 1 : 0;
    function = isl_aff_set_tuple_id(function, isl_dim_in, isl_id_copy(id.get()));
    return isl::pw_aff(isl::manage(isl_pw_aff_from_aff(function)));
  };
  std::vector<isl::pw_aff> written;
  for (const isl::aff& aff : first.write) written.push_back(with_steps(aff, false));
  sum.write.relation = relation_of(sum.domain, sum.write.tensor, written);
  for (Access& read : sum.reads) {
    std::vector<isl::pw_aff> functions;
    for (std::size_t p = nest.tensor(read.tensor).shape.size(); p-- > 0;)
      functions.push_back(with_steps(first.others[next], true));
    read.relation = relation_of(sum.domain, read.tensor, functions);
  }
  for (isl::pw_aff& index : sum.indices) index = with_steps(first.others[next], true);
  return sum;
}

}  // namespace nestor
