// Rule "product_across": reductions along both indices of a product each have a product of their own.
//
// Pattern    t_ij comes from one sum of products of two 16-bit tensors, through elementwise definitions; some reductions of t, or of such a
//            definition, run along its last index, and others along another one (the two cross entropies of one matrix of scores).
// Rewrite    the others, and what only they read, read a copy of t, made by copies of all statements back to the sum, in front of the first
//            of them. So tiles of either product have whole rows of what its reductions run along, and t goes nowhere. Definitions that
//            only they read wait until there, too, and what is made of one of them until all are complete, so that one loop serves them.
// Conditions all copied and moved statements are alone in their loops, copied ones stand before the copies, and nothing writes what they
//            read before the last statement that reads copies; both operands of the sum follow a dim of t that the other does not.
// Proof      the same operations on the same values.
// Rounding   none.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "poly/algebra/operands/half_products.h"
#include "poly/algebra/operands/product_copies.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/nest_edit.h"

namespace nestor {
namespace {

constexpr const char* kName = "product_across";

/// What is made of one sum of products, and which way it is reduced.
class Directions {
 public:
  Directions(const Nest& nest, const Statement& sum) : nest_(nest) {
    made_.insert(sum.write.tensor);
    for (const Statement& statement : nest.statements) {
      if (reads_made(statement) && is_elementwise_temporary(nest, statement.write.tensor)) made_.insert(statement.write.tensor);
    }
    for (std::size_t k = nest.statements.size(); k-- > 0;) note_direction(nest.statements[k]);
    for (const std::string& name : across_) {
      for (const Access& read : nest.statement(name).reads) copy(read.tensor);
    }
  }

  std::string objection() const {
    if (across_.empty() || !along_) return "its rows and its columns are not both reduced";
    for (const Statement& statement : nest_.statements) {
      const bool copied = copied_.contains(statement.write.tensor);
      if (!copied && !waits(statement)) continue;
      const bool again = std::all_of(across_.begin(), across_.end(), [&](const std::string& name) {
        return may_recompute(nest_, statement, nest_.statement(name));
      });
      if (!alone_in_group(nest_, statement.name) || !again)
        return "what is reduced shares its loops, or is made of what is written again";
      if (copied && position_of(nest_, statement.name) >= position()) return "what is reduced comes behind the first reduction";
    }
    return "";
  }

  bool takes_copies(const Statement& statement) const { return across_.contains(statement.name); }
  const std::set<std::string>& copied() const { return copied_; }

  /// Before the first reduction that reads copies.
  std::size_t position() const {
    const auto first = std::find_if(nest_.statements.begin(), nest_.statements.end(),
                                    [&](const Statement& statement) { return takes_copies(statement) && statement.reduction; });
    return group_begin(nest_, first->name);
  }

  /// Does it stand before what reads copies, although nothing else reads it?
  bool waits(const Statement& statement) const {
    return takes_copies(statement) && position_of(nest_, statement.name) < position();
  }

  /// The nest, and where copies belong in it: definitions which wait stand behind them, what is made of their readers behind these.
  Nest with_definitions_behind(std::size_t& copies) const {
    Nest result = nest_;
    copies = position();
    for (const Statement& statement : nest_.statements) {
      if (!waits(statement)) continue;
      erase_statement(result, statement.name);
      insert_statement(result, position() - 1, statement);
      --copies;
    }
    std::string before = last_reduction().name;
    for (const Statement& statement : results_between()) {
      erase_statement(result, statement.name);
      insert_statement(result, group_end(result, before), statement);
      before = statement.name;
    }
    return result;
  }

 private:
  const Statement& last_reduction() const {
    const auto last = std::find_if(nest_.statements.rbegin(), nest_.statements.rend(),
                                   [&](const Statement& statement) { return takes_copies(statement) && statement.reduction; });
    return *last;
  }

  /// Statements before the last reduction that reads copies which nothing up to there needs: they may stand behind it.
  std::vector<Statement> results_between() const {
    const Statement& last = last_reduction();
    std::set<std::string> needed;  // tensors of statements that stay
    std::vector<Statement> found;
    for (std::size_t k = group_end(nest_, last.name); k-- > position();) {
      const Statement& statement = nest_.statements[k];
      const bool free = !statement.reduction && !takes_copies(statement) && !needed.contains(statement.write.tensor) &&
                        alone_in_group(nest_, statement.name) && may_recompute(nest_, statement, last);
      if (free) {
        found.insert(found.begin(), statement);
        continue;
      }
      needed.insert(statement.write.tensor);
      for (const Access& read : statement.reads) needed.insert(read.tensor);
    }
    return found;
  }

  bool reads_made(const Statement& statement) const {
    return std::any_of(statement.reads.begin(), statement.reads.end(),
                       [&](const Access& read) { return made_.contains(read.tensor); });
  }

  /// Of reductions by the indices that they run along, of definitions by their readers: all run across, or some along.
  void note_direction(const Statement& statement) {
    if (!reads_made(statement) || copies_of_sum(statement)) return;
    if (!statement.reduction) {
      const std::vector<const Statement*> readers = readers_of(nest_, statement.write.tensor);
      const bool temporary = made_.contains(statement.write.tensor) && !readers.empty();
      if (temporary && std::all_of(readers.begin(), readers.end(), [&](const Statement* each) { return takes_copies(*each); }))
        across_.insert(statement.name);
      return;
    }
    bool last = false, other = false;
    const std::vector<int> reduced = reduced_dims(statement);
    for (const Access& read : statement.reads) {
      if (!made_.contains(read.tensor)) continue;
      const std::vector<std::set<int>> indices = dims_of_indices(statement, read);
      for (std::size_t k = 0; k < indices.size(); ++k) {
        const bool runs = std::any_of(reduced.begin(), reduced.end(), [&](int dim) { return indices[k].contains(dim); });
        (k + 1 == indices.size() ? last : other) |= runs;
      }
    }
    along_ = along_ || last;
    if (other && !last) across_.insert(statement.name);
  }

  /// Does the statement belong to the sum itself?
  bool copies_of_sum(const Statement& statement) const { return statement.reduction && made_.contains(statement.write.tensor); }

  void copy(const std::string& tensor) {
    if (!made_.contains(tensor)) return;
    const Statement* definition = sole_definition(nest_, tensor);
    if ((definition != nullptr && takes_copies(*definition)) || !copied_.insert(tensor).second || definition == nullptr) return;
    for (const Access& read : definition->reads) copy(read.tensor);
  }

  const Nest& nest_;
  std::set<std::string> made_;    ///< the sum, and what comes from it element by element
  std::set<std::string> across_;  ///< statements
  std::set<std::string> copied_;  ///< tensors
  bool along_ = false;            ///< some reduction runs along the last index
};

std::string objection(const Nest& nest, const Statement& statement) {
  if (!statement.reduction || !half_products(statement) || nest.tensor(statement.write.tensor).role != TensorRole::temporary ||
      !is_product_sum(nest, statement.write.tensor))
    return "it is no sum of products of two 16-bit tensors";
  const auto [a, b] = *half_products(statement);
  if (!follows_own_dim(statement, a, b) || !follows_own_dim(statement, b, a)) return "it is no product of matrices";
  return Directions(nest, statement).objection();
}

std::vector<RuleMatch> find(const Nest& nest) {
  return matching_statements(nest, kName, [&](const Statement& statement) {
    return objection(nest, statement).empty()
               ? "reductions across the rows of " + statement.write.tensor + " have a product of their own"
               : "";
  });
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const std::string name = statement_argument(nest, kName, target, 1);
  const Statement& sum = nest.statement(name);
  if (const std::string why = objection(nest, sum); !why.empty()) refuse_rule(kName, name, why);
  const Directions directions(nest, sum);
  const auto takes = [&](const Statement& each) { return directions.takes_copies(each); };
  std::size_t position = 0;
  const Nest ordered = directions.with_definitions_behind(position);
  return {with_copies(ordered, directions.copied(), takes, position), {}, false};
}

}  // namespace

const Rule& product_across_rule() {
  static const Rule rule{
      kName,
      "reductions along one index of a product have a product of their own, beside those along the other (argument: the sum)",
      "the copies are made by the same operations on the same values",
      "none",
      find,
      apply};
  return rule;
}

}  // namespace nestor
