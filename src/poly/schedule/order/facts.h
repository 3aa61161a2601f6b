// Facts about a nest, computed once and shared by every schedule of it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "poly/nest/composite.h"
#include "poly/nest/dependences.h"
#include "poly/nest/nest.h"
#include "poly/schedule/order/known_orders.h"

namespace nestor {

/// How the legality check treats a group of dependences between two statements.
enum class DependenceClass : std::uint8_t {
  ordinary,      ///< source strictly before sink, never concurrent
  accumulation,  ///< a reduction that may be reassociated: any order, lanes of one element included, but not parallel tasks
  relaxed,       ///< leading value of a composite -> a reader of it: see running_values.cc
};

/// All dependences of one class between two statements, united because they are checked alike.
struct DependenceGroup {
  std::string source;
  std::string sink;
  DependenceClass kind;
  std::vector<std::size_t> members;  ///< indices into NestFacts::dependences()
  isl::map relation;                 ///< { Source[dims] -> Sink[dims] }, the union of the members
};

/// A dependence that a composite relaxes, with the instances that belong together.
struct RelaxedDependence {
  std::size_t dependence;  ///< index into NestFacts::dependences()
  std::string reader;
  isl::map match;        ///< { Lead[dims] -> Reader[dims] }: both read one element, for one element of the leading tensor
  bool readers_matched;  ///< every reader instance that the dependence reaches has a match
  bool leads_matched;    ///< every lead instance that the dependence leaves has one
};

/// A rule that would lift or divide dependences of this nest, for the remedies in error messages.
struct RuleOffer {
  std::string rule;
  std::vector<std::string> target;
  std::string step;  ///< "apply_rule(name, target)"
  std::vector<Composite> composites;
  bool reassociation = false;
};

/// A nest after its algebra steps, with everything that depends on it alone. Lazily computed; one thread at a time.
class NestFacts {
 public:
  /// `orders`: what is known of the nest that this one comes of, if of any.
  NestFacts(Nest original, Nest nest, std::vector<Composite> composites, bool reassociation,
            std::shared_ptr<KnownOrders> orders = nullptr);

  const Nest original;
  const Nest nest;
  const std::vector<Composite> composites;
  const bool reassociation;

  const std::vector<Dependence>& dependences() const;
  const std::vector<DependenceGroup>& groups() const;
  /// The dependences that composites()[index] relaxes.
  const std::vector<RelaxedDependence>& relaxed(std::size_t index) const;
  /// Rules that apply to the nest and relax something, or give parts of a reduction accumulators of their own.
  const std::vector<RuleOffer>& offers() const;
  /// guarded_sizes() of the nest.
  std::int64_t guarded_sizes() const;
  const std::shared_ptr<KnownOrders>& known_orders() const { return known_orders_; }
  /// The number in known_orders() of groups()[index].relation, and with accumulations of what the source writes.
  const std::string& numbers_of_group(std::size_t index) const;

 private:
  mutable std::optional<std::vector<Dependence>> dependences_;
  mutable std::optional<std::vector<DependenceGroup>> groups_;
  mutable std::map<std::size_t, std::vector<RelaxedDependence>> relaxed_;
  mutable std::optional<std::vector<RuleOffer>> offers_;
  mutable std::optional<std::int64_t> guarded_sizes_;
  std::shared_ptr<KnownOrders> known_orders_;
  mutable std::map<std::size_t, std::string> numbers_;
};

/// The rule that lets parts of a reduction run at the same time.
inline constexpr const char* kSplitReduction = "split_reduction";

}  // namespace nestor
