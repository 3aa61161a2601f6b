// The legality check: does an order respect every dependence?
#pragma once

#include <map>
#include <optional>
#include <string>

#include "poly/schedule/order/isl_maps.h"
#include "poly/schedule/order/loop_tree.h"
#include "poly/schedule/order/schedule_data.h"

namespace nestor {

/// What a step may have changed, and so what must be checked again.
struct OrderScope {
  /// The statements concerned, each in a part; a pair is checked if both ends are here and, with `across_only`, in
  /// different parts.
  std::map<std::string, int> part;
  bool across_only = false;
  std::size_t first_depth = 0;  ///< loops outside it are as they were: pairs they order are fine
  std::size_t last_depth = 0;   ///< the innermost depth checked
  bool sequence = false;        ///< the order of bodies matters as well (checked when all shared loops are equal)
};

/// Pairs of instances whose order a schedule breaks.
struct Violation {
  std::size_t dependence = 0;  ///< index into NestFacts::dependences()
  std::string loop;            ///< the loop that breaks it; empty: the order of bodies
  LoopKind loop_kind = LoopKind::serial;
  isl::map pairs;    ///< { [source loops] -> [sink loops] }, not empty
  std::string note;  ///< why a rule does not cover it, if there is one that might
};

/// Checks relations against the order of one ScheduleData, which must outlive it.
class OrderChecker {
 public:
  explicit OrderChecker(const ScheduleData& data);

  /// First of NestFacts::groups() (composites' relaxed ones apart) that the order breaks within `scope`. What has been asked about the nest
  /// before is remembered.
  std::optional<std::size_t> broken_group(const OrderScope& scope);
  /// How a group is broken that broken_group() has found, by its first dependence that is.
  Violation violation_of(std::size_t group, const OrderScope& scope);

  /// Which depths of a pair's shared loops to look at.
  struct Window {
    std::size_t first = 0;
    std::size_t last = SIZE_MAX;
    bool sequence = true;
  };
  /// The part of `relation` (source before sink is wanted) that the order breaks; the violation's dependence is not set.
  std::optional<Violation> check_relation(const isl::map& relation, const std::string& source, const std::string& sink,
                                          DependenceClass kind, const Window& window);
  /// The part of `relation` whose two ends differ in one of the first `depth` loops.
  bool same_iteration(const isl::map& relation, const std::string& source, const std::string& sink, std::size_t depth);

  const LoopSpace& space(const std::string& statement);
  const TreeIndex& index() const { return index_; }
  const ScheduleData& data() const { return data_; }

 private:
  /// Do iterations of the loop that differ in nothing else write different elements?
  bool moves_write(const std::string& statement, std::size_t depth);
  std::optional<Violation> broken_part(const isl::map& relation, const std::string& source, const std::string& sink,
                                       DependenceClass kind, const Window& window);

  /// All that check_relation() of a group hangs on, with loops by their places.
  std::string question(std::size_t group, const Window& window) const;
  std::string form_text(const std::string& statement) const;

  const ScheduleData& data_;
  TreeIndex index_;
  std::map<std::string, LoopSpace> spaces_;
};

}  // namespace nestor
