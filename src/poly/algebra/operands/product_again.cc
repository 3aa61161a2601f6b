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

#include "poly/algebra/operands/half_products.h"
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
      const std::vector<const Statement*> writers = writers_of(nest_, tensor);
      const auto sum =
          std::find_if(writers.begin(), writers.end(), [](const Statement* writer) { return writer->reduction.has_value(); });
      comes = sum != writers.end() && half_products(**sum) && initialisers_of(nest_, **sum).size() + 1 == writers.size();
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
  const std::string first = way.first_reader().name;
  // Statements and tensors may have the same names, as those that they are copies of.
  Nest result = nest, named = nest;
  std::map<std::string, std::string> copies;
  for (const std::string& tensor : way.copied()) {
    Tensor copy = nest.tensor(tensor);
    copy.name = copies[tensor] = fresh_name(result, tensor + "_again");
    result.tensors.push_back(std::move(copy));
  }
  const auto read_copies = [&](Statement& statement) {
    for (Access& read : statement.reads) {
      if (const auto copy = copies.find(read.tensor); copy != copies.end())
        read = {copy->second, read.relation.set_range_tuple(copy->second)};
    }
  };
  for (const Statement& statement : nest.statements) {
    if (way.takes_copies(statement)) {
      Statement changed = result.statement(statement.name);
      read_copies(changed);
      replace_statement(result, changed);
    }
    if (!copies.contains(statement.write.tensor)) continue;
    Statement copy = renamed(statement, fresh_name(named, statement.name + "_again"));
    named.statements.push_back(copy);
    copy.write = {copies.at(statement.write.tensor), copy.write.relation.set_range_tuple(copies.at(statement.write.tensor))};
    read_copies(copy);
    insert_statement(result, group_begin(result, first), copy);
  }
  return {std::move(result), {}, false};
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
