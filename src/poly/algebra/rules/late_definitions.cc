// Rule "late_definitions": what is computed from a finished sum waits until it is first needed.
//
// Pattern    a temporary of one elementwise definition that needs what a sum or an extremum has accumulated, behind it another such
//            reduction that needs the same temporary, and behind that the first reader (a row's denominator between two sums over weights).
// Rewrite    the definition moves to just before its first reader, and before what starts that one where it is a reduction.
//            Or: a definition of what rows of products sum up to (how many gates there are before each), behind it a sum of products that has
//            nothing to do with it, and behind that its first reader, which goes along the same rows.
// Rewrite    the sum, its start and the definition move there together.
//            Or: a product of matrices and what is made of it, behind it a product of what other products make, and behind that the first reader
//            that is the product's own second one (weights and slopes of a backward pass that are both computed before either gradient).
// Rewrite    the product, its start and the definitions move there together, so that products in a row are neighbours.
// Conditions the definition is alone in its loops, and nothing between writes what it reads; the same of the sum, which nobody else reads.
// Proof      statements that neither write nor read what the other one writes may change places. Loops of reductions before and behind the
//            old place may then become one, which a statement between them that needs the first one's result forbids.
// Rounding   none: the same operations on the same values.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"

namespace nestor {
namespace {

constexpr const char* kName = "late_definitions";

/// Reductions whose results the definition needs, through other definitions too.
void reductions_of(const Nest& nest, const Statement& definition, std::vector<const Statement*>& found) {
  for (const Access& read : definition.reads) {
    if (is_elementwise_temporary(nest, read.tensor)) {
      reductions_of(nest, *sole_definition(nest, read.tensor), found);
      continue;
    }
    for (const Statement* writer : writers_of(nest, read.tensor)) {
      if (writer->reduction) found.push_back(writer);
    }
  }
}

/// Temporaries that a statement reads, through definitions too.
void temporaries_of(const Nest& nest, const Statement& statement, std::set<std::string>& found) {
  for (const Access& read : statement.reads) {
    if (nest.tensor(read.tensor).role != TensorRole::temporary || !found.insert(read.tensor).second) continue;
    if (is_elementwise_temporary(nest, read.tensor)) temporaries_of(nest, *sole_definition(nest, read.tensor), found);
  }
}

/// Do both need a tensor that the nest computes, other than the first one's result? Then one loop over its elements may serve both.
bool share_temporary(const Nest& nest, const Statement& a, const Statement& b) {
  std::set<std::string> of_a, of_b;
  temporaries_of(nest, a, of_a);
  temporaries_of(nest, b, of_b);
  return std::any_of(of_a.begin(), of_a.end(), [&](const std::string& tensor) { return of_b.contains(tensor); });
}

/// The first reader, if the definition may move there, and stands between reductions over the same elements now; else null.
const Statement* later_place(const Nest& nest, const Statement& definition) {
  const std::string& tensor = definition.write.tensor;
  if (!is_elementwise_temporary(nest, tensor) || sole_definition(nest, tensor) != &definition) return nullptr;
  if (!alone_in_group(nest, definition.name)) return nullptr;
  const Statement* first = nullptr;
  for (const Statement* reader : readers_of(nest, tensor)) {
    if (first == nullptr || position_of(nest, reader->name) < position_of(nest, first->name)) first = reader;
  }
  if (first == nullptr || !may_recompute(nest, definition, *first)) return nullptr;
  std::vector<const Statement*> needed;
  reductions_of(nest, definition, needed);
  const std::size_t from = position_of(nest, definition.name), to = begin_with_initialisers(nest, *first);
  for (std::size_t k = from + 1; k < to; ++k) {
    const Statement& between = nest.statements[k];
    const bool shares = between.reduction && std::any_of(needed.begin(), needed.end(), [&](const Statement* reduction) {
                          return share_temporary(nest, *reduction, between);
                        });
    if (shares) return first;
  }
  return nullptr;
}

/// Does the sum add up products of two tensors? `halves`: of 16 bits.
bool adds_products(const Statement& sum, bool halves) {
  if (sum.reduction != ReductionOp::add || sum.value.op() != ScalarOp::mul || sum.reads.size() != 2) return false;
  return std::all_of(sum.value.args().begin(), sum.value.args().end(), [&](const ScalarExpr& factor) {
    const ScalarExpr bare = strip_exact_casts(factor);
    return bare.op() == ScalarOp::read && (!halves || is_half(bare.type()));
  });
}

/// The first statement that reads the tensor; null: none does.
const Statement* first_reader(const Nest& nest, const std::string& tensor) {
  const std::vector<const Statement*> readers = readers_of(nest, tensor);
  const auto first = std::min_element(readers.begin(), readers.end(), [&](const Statement* a, const Statement* b) {
    return position_of(nest, a->name) < position_of(nest, b->name);
  });
  return first == readers.end() ? nullptr : *first;
}

/// The sum that the definition alone reads, whose operands are no two tensors of 16 bits, with what starts it in front; empty: there is none.
std::vector<const Statement*> own_sum(const Nest& nest, const Statement& definition) {
  const std::string& tensor = definition.write.tensor;
  if (!is_elementwise_temporary(nest, tensor) || sole_definition(nest, tensor) != &definition) return {};
  if (definition.reads.size() != 1 || !alone_in_group(nest, definition.name)) return {};
  const std::string& summed = definition.reads.front().tensor;
  if (nest.tensor(summed).role != TensorRole::temporary || readers_of(nest, summed).size() != 1) return {};
  std::vector<const Statement*> made = writers_of(nest, summed);
  std::sort(made.begin(), made.end(),
            [&](const Statement* a, const Statement* b) { return position_of(nest, a->name) < position_of(nest, b->name); });
  const bool sums = made.size() == 2 && !made[0]->reduction && made[0]->reads.empty() && made[1]->reduction &&
                    !adds_products(*made[1], false) && alone_in_group(nest, made[0]->name) && alone_in_group(nest, made[1]->name);
  return sums ? made : std::vector<const Statement*>{};
}

/// Does the sum run along rows of what sums of products make, through definitions too?
bool sums_up_products(const Nest& nest, const Statement& sum) {
  std::set<std::string> temporaries;
  temporaries_of(nest, sum, temporaries);
  return std::any_of(temporaries.begin(), temporaries.end(), [&](const std::string& tensor) {
    const std::vector<const Statement*> writers = writers_of(nest, tensor);
    return std::any_of(writers.begin(), writers.end(), [](const Statement* each) { return adds_products(*each, true); });
  });
}

/// Statements that move to before the reader together: a sum over rows of products, and what is made of it, in front of another product.
std::vector<std::string> late_sum(const Nest& nest, const Statement& definition, const Statement*& reader) {
  const std::vector<const Statement*> made = own_sum(nest, definition);
  reader = made.empty() ? nullptr : first_reader(nest, definition.write.tensor);
  if (reader == nullptr || !sums_up_products(nest, *made[1]) || !may_recompute(nest, definition, *reader) ||
      !may_recompute(nest, *made[1], *reader))
    return {};
  const std::size_t from = position_of(nest, definition.name), to = begin_with_initialisers(nest, *reader);
  bool products = false;
  for (std::size_t k = from + 1; k < to; ++k) {
    if (share_temporary(nest, *made[1], nest.statements[k])) return {};  // they may have a loop in common
    products = products || adds_products(nest.statements[k], true);
  }
  return products ? std::vector{made[0]->name, made[1]->name, definition.name} : std::vector<std::string>{};
}

/// What makes the temporary, and those that nothing else needs: false where one of the statements shares its loops with others.
bool collect_makers(const Nest& nest, const std::string& tensor, std::vector<const Statement*>& made) {
  const std::vector<const Statement*> writers = writers_of(nest, tensor);
  made.insert(made.end(), writers.begin(), writers.end());
  const auto is_made = [&](const Statement* statement) { return std::find(made.begin(), made.end(), statement) != made.end(); };
  for (const Statement* writer : writers) {
    if (!alone_in_group(nest, writer->name)) return false;
    for (const Access& read : writer->reads) {
      if (nest.tensor(read.tensor).role != TensorRole::temporary || read.tensor == tensor) continue;
      const std::vector<const Statement*> readers = readers_of(nest, read.tensor), own = writers_of(nest, read.tensor);
      if (std::any_of(own.begin(), own.end(), is_made) || !std::all_of(readers.begin(), readers.end(), is_made)) continue;
      if (!collect_makers(nest, read.tensor, made)) return false;
    }
  }
  return true;
}

/// Tensors that the statement needs, through whatever makes them.
void needed_by(const Nest& nest, const Statement& statement, std::set<std::string>& found) {
  for (const Access& read : statement.reads) {
    if (!found.insert(read.tensor).second) continue;
    for (const Statement* writer : writers_of(nest, read.tensor)) needed_by(nest, *writer, found);
  }
}

/// Is the statement a product of what other products make, which needs none of the tensors that `made` write?
bool follows_other_products(const Nest& nest, const Statement& statement, const std::vector<const Statement*>& made) {
  if (!adds_products(statement, false) || !sums_up_products(nest, statement)) return false;
  std::set<std::string> needed;
  temporaries_of(nest, statement, needed);
  return std::none_of(made.begin(), made.end(), [&](const Statement* each) { return needed.contains(each->write.tensor); });
}

/// Statements that move to before the reader together: a product of matrices and what is made of it, in front of another chain's second one.
std::vector<std::string> late_product(const Nest& nest, const Statement& last, const Statement*& reader) {
  const std::string& tensor = last.write.tensor;
  reader = nest.tensor(tensor).role == TensorRole::temporary ? first_reader(nest, tensor) : nullptr;
  if (reader == nullptr || !adds_products(*reader, false) || writers_of(nest, tensor).back() != &last) return {};
  const std::size_t from = position_of(nest, last.name), to = begin_with_initialisers(nest, *reader);
  std::vector<const Statement*> made;
  if (to <= from + 1 || !collect_makers(nest, tensor, made)) return {};
  const auto is_product = [](const Statement* each) { return adds_products(*each, true); };
  const auto may_wait = [&](const Statement* each) {
    return position_of(nest, each->name) <= from && may_recompute(nest, *each, *reader);
  };
  const auto sums = std::count_if(made.begin(), made.end(), [](const Statement* each) { return each->reduction.has_value(); });
  if (sums != 1 || std::none_of(made.begin(), made.end(), is_product) || !std::all_of(made.begin(), made.end(), may_wait))
    return {};
  const auto in_between = std::next(nest.statements.begin(), static_cast<std::ptrdiff_t>(from) + 1);
  const auto before_reader = std::next(nest.statements.begin(), static_cast<std::ptrdiff_t>(to));
  if (std::none_of(in_between, before_reader, [&](const Statement& each) { return follows_other_products(nest, each, made); }))
    return {};
  std::set<std::string> needed;  // what stands between has nothing to do with the reader
  needed_by(nest, *reader, needed);
  if (std::any_of(in_between, before_reader, [&](const Statement& each) { return needed.contains(each.write.tensor); }))
    return {};
  std::sort(made.begin(), made.end(),
            [&](const Statement* a, const Statement* b) { return position_of(nest, a->name) < position_of(nest, b->name); });
  std::vector<std::string> names;
  for (const Statement* each : made) names.push_back(each->name);
  return names;
}

void move_before(Nest& nest, const std::vector<std::string>& names, const std::string& reader) {
  for (const std::string& name : names) {
    const Statement moved = nest.statement(name);
    erase_statement(nest, name);
    insert_statement(nest, begin_with_initialisers(nest, nest.statement(reader)), moved);
  }
}

bool move_one(Nest& nest) {
  for (std::size_t k = nest.statements.size(); k-- > 0;) {
    const Statement& definition = nest.statements[k];
    const Statement* reader = later_place(nest, definition);
    std::vector<std::string> names;
    if (reader != nullptr) names = {definition.name};
    if (reader == nullptr) names = late_sum(nest, definition, reader);
    if (names.empty()) names = late_product(nest, definition, reader);
    if (names.empty()) continue;
    move_before(nest, names, std::string(reader->name));
    return true;
  }
  return false;
}

Nest reordered(const Nest& nest, std::size_t& moves) {
  Nest result = nest;
  const std::size_t most = nest.statements.size() * nest.statements.size();
  for (moves = 0; moves < most && move_one(result); ++moves) {}
  return result;
}

std::vector<RuleMatch> find(const Nest& nest) {
  std::size_t moves = 0;
  reordered(nest, moves);
  if (moves == 0) return {};
  return {{kName, {}, fmt::format("{} definitions wait until they are first needed", moves)}};
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  expect_arguments(kName, target, 0);
  std::size_t moves = 0;
  Nest result = reordered(nest, moves);
  if (moves == 0) refuse_rule(kName, "", "no definition stands between reductions that do not need it");
  return {std::move(result), {}, false};
}

}  // namespace

const Rule& late_definitions_rule() {
  static const Rule rule{kName,
                         "what is computed from a finished sum waits until it is first needed",
                         "statements change places that neither write nor read what the other one writes",
                         "none",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
