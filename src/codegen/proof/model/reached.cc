// Descent into a value, with the points that come to each part of it.
#include "codegen/proof/model/reached.h"

#include "poly/algebra/values/condition.h"

#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

#include <map>

namespace nestor::proof {
namespace {

class Reach {
 public:
  Reach(const ProgramModel& model, const OpMember& member, int read, const isl::set& points)
      : model_(model), read_(read), none_(points.subtract(points)) {
    place_.name = member.op->name;
    place_.dims = member.space->variables();
    place_.domain = member.executed;
    for (const IntExpr& index : member.op->indices) place_.indices.push_back(member.space->value(index));
  }

  isl::set of(const ScalarExpr& expr, const isl::set& points) {
    if (!expr.reads(read_)) return none_;
    // The address of its argument list identifies a node; equal sets of points are one object.
    const std::pair<const void*, const isl_set*> key{&expr.args(), points.get()};
    if (const auto known = known_.find(key); known != known_.end()) return known->second.first;
    const isl::set found = expr.op() == ScalarOp::read ? points : of_args(expr, points).coalesce();
    known_.emplace(key, std::pair(found, points));
    return found;
  }

 private:
  isl::set of_args(const ScalarExpr& expr, const isl::set& points) {
    const auto& args = expr.args();
    isl::set found = of(args[0], points);
    const bool decides = expr.op() == ScalarOp::select || expr.op() == ScalarOp::logical_and || expr.op() == ScalarOp::logical_or;
    const auto holds = decides ? condition_set(model_.nest(), place_, args[0]) : std::nullopt;
    for (std::size_t k = 1; k < args.size(); ++k) {
      isl::set rest = points;
      const bool if_true = expr.op() == ScalarOp::logical_and || (expr.op() == ScalarOp::select && k == 1);
      if (holds) rest = if_true ? points.intersect(*holds) : points.subtract(*holds);
      found = found.unite(of(args[k], rest));
    }
    return found;
  }

  const ProgramModel& model_;
  int read_;
  isl::set none_;
  Statement place_;  ///< the points with the op's indices, for condition_set
  std::map<std::pair<const void*, const isl_set*>, std::pair<isl::set, isl::set>> known_;  ///< what is reached, of which points
};

}  // namespace

isl::set reached_points(const ProgramModel& model, const OpMember& member, int read, const isl::set& points) {
  return Reach(model, member, read, points).of(member.op->value, points);
}

}  // namespace nestor::proof
