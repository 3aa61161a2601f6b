// Rule "product_again": a product whose statistics are needed first is computed a second time behind them.
//
// Pattern    out_e = f(t_p, ..), a result, where t comes from one sum of products of two 16-bit tensors, through elementwise definitions, and
//            a reduction reads t or such a definition, too (the weights of a softmax that are a result: its maximum, its sum).
// Rewrite    copies of what others than out's own definitions read, and of what it comes from back to the sum, stand before the first
//            statement on the way to out that reads them; it reads the copies. So neither kernel stores t.
// Conditions all copied statements are alone in their loops, and nothing writes what they read from there on; that first statement stands
//            behind the reductions.
// Proof      the same operations on the same values.
// Rounding   none.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "poly/algebra/operands/product_copies.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr const char* kName = "product_again";

/// What comes from products on the way to a statement.
class Way {
 public:
  Way(const Nest& nest, const Statement& out) : nest_(nest), out_(out) {
    for (const Access& read : out.reads) visit(read.tensor);
    for (const auto& [tensor, comes] : from_product_) {
      if (!comes) continue;
      for (const Statement* writer : writers_of(nest, tensor)) statements_.insert(writer->name);
    }
    for (const auto& [tensor, comes] : from_product_) {
      if (comes && read_by_others(tensor)) copy(tensor);
    }
  }

  /// Why nothing is computed again, "" where something is.
  std::string objection() const {
    if (sums_ != 1) return "it does not come from one sum of products of two 16-bit tensors";
    if (copied_.empty() || last_reduction_ < 0) return "no reduction reads what it is made of";
    for (const Statement& statement : nest_.statements) {
      const bool alone = alone_in_group(nest_, statement.name);
      if (copied_.contains(statement.write.tensor) && (!alone || !may_recompute(nest_, statement, out_)))
        return "what it is made of shares its loops, or is made of what is written again";
      if (copied_.contains(statement.write.tensor) &&
          position_of(nest_, statement.name) > position_of(nest_, first_reader().name))
        return "a part of what it is made of comes behind what reads it";
    }
    return first_reader().group > last_reduction_ ? "" : "it is made before the reductions are complete";
  }

  /// Copies stand before it.
  const Statement& first_reader() const {
    for (const Statement& statement : nest_.statements) {
      const bool reads = std::any_of(statement.reads.begin(), statement.reads.end(),
                                     [&](const Access& read) { return copied_.contains(read.tensor); });
      if (reads && takes_copies(statement)) return statement;
    }
    return out_;
  }

  bool takes_copies(const Statement& statement) const {
    return statement.name == out_.name || (statements_.contains(statement.name) && !copied_.contains(statement.write.tensor));
  }
  const std::set<std::string>& copied() const { return copied_; }

 private:
  /// Does the tensor come from a product?
  bool visit(const std::string& tensor) {
    if (const auto known = from_product_.find(tensor); known != from_product_.end()) return known->second;
    bool comes = false;
    if (is_elementwise_temporary(nest_, tensor)) {
      for (const Access& read : sole_definition(nest_, tensor)->reads) comes = visit(read.tensor) || comes;
    } else if (nest_.tensor(tensor).role == TensorRole::temporary) {
      comes = is_product_sum(nest_, tensor);
      sums_ += comes ? 1 : 0;
    }
    return from_product_[tensor] = comes;
  }

  bool read_by_others(const std::string& tensor) {
    bool found = false;
    for (const Statement* reader : readers_of(nest_, tensor)) {
      if (reader->name == out_.name || statements_.contains(reader->name)) continue;
      found = true;
      if (reader->reduction) last_reduction_ = std::max(last_reduction_, reader->group);
    }
    return found;
  }

  void copy(const std::string& tensor) {
    if (!copied_.insert(tensor).second || !is_elementwise_temporary(nest_, tensor)) return;
    for (const Access& read : sole_definition(nest_, tensor)->reads) {
      if (const auto known = from_product_.find(read.tensor); known != from_product_.end() && known->second) copy(read.tensor);
    }
  }

  const Nest& nest_;
  const Statement& out_;
  std::map<std::string, bool> from_product_;
  std::set<std::string> statements_, copied_;
  int sums_ = 0, last_reduction_ = -1;
};

std::string objection(const Nest& nest, const Statement& statement) {
  if (statement.reduction || nest.tensor(statement.write.tensor).role != TensorRole::output)
    return "it makes no result, or is a reduction";
  return Way(nest, statement).objection();
}

std::vector<RuleMatch> find(const Nest& nest) {
  return matching_statements(nest, kName, [&](const Statement& statement) {
    return objection(nest, statement).empty() ? "the product that " + statement.write.tensor + " is made of is computed again"
                                              : "";
  });
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const std::string name = statement_argument(nest, kName, target, 1);
  const Statement& out = nest.statement(name);
  if (const std::string why = objection(nest, out); !why.empty()) refuse_rule(kName, name, why);
  const Way way(nest, out);
  const std::size_t position = group_begin(nest, way.first_reader().name);
  return {with_copies(nest, way.copied(), [&](const Statement& each) { return way.takes_copies(each); }, position), {}, false};
}

}  // namespace

const Rule& product_again_rule() {
  static const Rule rule{
      kName,
      "the product that a result is made of is computed again behind its statistics (argument: the result's statement)",
      "the copies are made by the same operations on the same values",
      "none",
      find,
      apply};
  return rule;
}

}  // namespace nestor
