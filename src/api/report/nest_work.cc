// Instances by isl: independent dims are factors, the rest is enumerated or sampled.
#include "api/report/nest_work.h"

#include "codegen/tile/contraction.h"
#include "poly/isl/isl_tools.h"

#include <isl/point.h>
#include <isl/set.h>
#include <isl/val.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace nestor {
namespace {

constexpr double kMostCounted = 200'000;
constexpr int kSamples = 4096;

unsigned rank_of(const isl::set& set) { return static_cast<unsigned>(isl_set_dim(set.get(), isl_dim_set)); }

isl::set without_dim(const isl::set& set, unsigned dim) {
  return isl::manage(isl_set_project_out(set.copy(), isl_dim_set, dim, 1));
}

isl::set only_dim(const isl::set& set, unsigned dim) {
  isl_set* kept = isl_set_project_out(set.copy(), isl_dim_set, dim + 1, rank_of(set) - dim - 1);
  return isl::manage(isl_set_project_out(kept, isl_dim_set, 0, dim));
}

/// Is the set all pairs of a value of `dim` and a value of the others?
bool independent(const isl::set& set, unsigned dim) {
  isl_set* others = isl_set_insert_dims(without_dim(set, dim).release(), isl_dim_set, dim, 1);
  isl_set* own = isl_set_insert_dims(only_dim(set, dim).release(), isl_dim_set, 1, rank_of(set) - dim - 1);
  own = isl_set_insert_dims(own, isl_dim_set, 0, dim);
  isl_set* product = isl_set_reset_tuple_id(isl_set_intersect(isl_set_reset_tuple_id(others), isl_set_reset_tuple_id(own)));
  const isl::set plain = isl::manage(isl_set_reset_tuple_id(set.copy()));
  return isl::manage(product).is_equal(plain);
}

/// Samples spread evenly: Roberts' sequence, a lattice whose steps are powers of a root of x^(d+1) = x + 1.
PointCount sampled(const isl::set& set, const std::vector<std::pair<std::int64_t, std::int64_t>>& box, double points) {
  const std::size_t rank = box.size();
  double root = 2;
  for (int k = 0; k < 50; ++k) root = std::pow(1 + root, 1.0 / (static_cast<double>(rank) + 1));
  int inside = 0;
  for (int sample = 1; sample <= kSamples; ++sample) {
    isl_point* point = isl_point_zero(isl_set_get_space(set.get()));
    for (std::size_t k = 0; k < rank; ++k) {
      const double part = std::fmod(0.5 + sample * std::pow(root, -(static_cast<double>(k) + 1)), 1.0);
      const auto [low, high] = box[k];
      const std::int64_t at = low + static_cast<std::int64_t>(part * static_cast<double>(high - low + 1));
      point = isl_point_set_coordinate_val(point, isl_dim_set, static_cast<int>(k),
                                           isl_val_int_from_si(isl_set_get_ctx(set.get()), static_cast<long>(at)));
    }
    if (isl::manage(isl_set_from_point(point)).is_subset(set)) ++inside;
  }
  return {points * inside / kSamples, false};
}

bool is_interval(const isl::set& set, std::pair<std::int64_t, std::int64_t> range) {
  isl_set* interval = isl_set_universe(isl_set_get_space(set.get()));
  isl_ctx* ctx = isl_set_get_ctx(set.get());
  interval = isl_set_lower_bound_val(interval, isl_dim_set, 0, isl_val_int_from_si(ctx, static_cast<long>(range.first)));
  interval = isl_set_upper_bound_val(interval, isl_dim_set, 0, isl_val_int_from_si(ctx, static_cast<long>(range.second)));
  return isl::manage(interval).is_equal(set);
}

PointCount count_joint(const isl::set& set) {
  std::vector<std::pair<std::int64_t, std::int64_t>> box;
  double points = 1;
  for (unsigned k = 0; k < rank_of(set); ++k) {
    box.push_back(dim_range(set, static_cast<int>(k)));
    points *= static_cast<double>(box.back().second - box.back().first + 1);
  }
  // An interval needs no visit of its points.
  if (box.size() == 1 && is_interval(set, box.front())) return {points, true};
  if (points > kMostCounted) return sampled(set, box, points);
  return {static_cast<double>(isl_val_get_num_si(isl::manage(isl_set_count_val(set.get())).get())), true};
}

bool is_arithmetic(ScalarOp op) {
  static const std::set<ScalarOp> ops{ScalarOp::add, ScalarOp::sub, ScalarOp::mul, ScalarOp::min,
                                      ScalarOp::max, ScalarOp::neg, ScalarOp::abs, ScalarOp::floor};
  return ops.contains(op) || is_special(op);
}

/// Tensor cores take products with an operand of 16 bits: a schedule may round the other one.
bool suits_tensor_cores(const Nest& nest, const Statement& statement) {
  return std::any_of(statement.reads.begin(), statement.reads.end(),
                     [&](const Access& read) { return size_in_bytes(nest.tensor(read.tensor).type) == 2; });
}

void add_statement(const Nest& nest, const Statement& statement, const Sizes& sizes, NestWork& work) {
  const PointCount count = count_points(at_sizes(statement.domain, sizes));
  work.exact = work.exact && count.exact;
  if (contraction_of(statement)) {
    (suits_tensor_cores(nest, statement) ? work.tensor_flops : work.scalar_flops) += 2 * count.points;
    return;
  }
  double each = statement.reduction ? 1 : 0;
  double special = 0;
  statement.value.visit([&](const ScalarExpr& node) {
    each += is_arithmetic(node.op()) ? 1 : 0;
    special += is_special(node.op()) ? 1 : 0;
  });
  work.scalar_flops += each * count.points;
  work.special += special * count.points;
}

}  // namespace

bool is_special(ScalarOp op) {
  static const std::set<ScalarOp> ops{ScalarOp::div,  ScalarOp::pow,   ScalarOp::exp,   ScalarOp::exp2, ScalarOp::log,
                                      ScalarOp::sqrt, ScalarOp::rsqrt, ScalarOp::tanh,  ScalarOp::erf,  ScalarOp::sin,
                                      ScalarOp::cos,  ScalarOp::log1p, ScalarOp::expm1, ScalarOp::atan};
  return ops.contains(op);
}

PointCount count_points(const isl::set& set) {
  if (set.is_empty()) return {0, true};
  PointCount total{1, true};
  isl::set rest = set;
  for (unsigned dim = rank_of(set); dim-- > 0 && rank_of(rest) > 1;) {
    if (!independent(rest, dim)) continue;
    const PointCount own = count_joint(only_dim(rest, dim));
    total.points *= own.points;
    total.exact = total.exact && own.exact;
    rest = without_dim(rest, dim);
  }
  if (rank_of(rest) == 0) return total;
  const PointCount joint = count_joint(rest);
  return {total.points * joint.points, total.exact && joint.exact};
}

NestWork work_of(const Nest& nest, const Sizes& sizes) {
  return isl_guarded("counting the work of a nest", [&] {
    NestWork work;
    for (const Tensor& tensor : nest.tensors) {
      if (tensor.role == TensorRole::temporary) continue;
      double bytes = static_cast<double>(size_in_bytes(tensor.type));
      for (const std::int64_t extent : shape_at(tensor, sizes)) bytes *= static_cast<double>(extent);
      work.bytes += bytes;
    }
    for (const Statement& statement : nest.statements) add_statement(nest, statement, sizes, work);
    return work;
  });
}

}  // namespace nestor
