// What is known of loop bounds: integer expressions as isl parameters, exactly where they are linear with quotients, minima, choices and
// comparisons, and as unknown integers elsewhere.
#pragma once

#include "codegen/tile/analysis/affine.h"
#include "support/int_expr.h"
#include "support/launch_recipe.h"

#include <isl/cpp.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace nestor::nvptx {

/// Contexts and answers by the relations that they follow from. Proofs of plans that differ little, made one after the other, share most of
/// them. For one thread, as isl objects are.
class BoundAnswers {
 public:
  enum class Detail : std::uint8_t { quotients_free, exact, with_divisions };
  struct Entry {
    std::map<Detail, isl::set> contexts;
    std::map<std::string, bool> answers;  ///< by the text of the question
  };
  Entry& of(const std::string& relations) { return entries_[relations]; }

 private:
  std::map<std::string, Entry> entries_;
};

/// Every value that is asked for becomes a parameter b0, b1, ...; the sizes behind the values are projected out, and what is left of
/// their relations (an over-approximation where that has quotients) is the context of all questions. Most answers follow when quotients
/// are any integers, which is far cheaper; what they are made from is looked at for the others alone, and which numbers they divide at last.
class BoundSpace {
 public:
  /// `valid`: what holds of the sizes. `known`: where answers are kept and looked for; must outlive the space.
  BoundSpace(const std::vector<SizeConstraint>& valid, BoundAnswers& known);

  /// Linear isl text of the value: "(b0 + 1)". Values that differ by a constant share a parameter.
  std::string value(const IntExpr& expr);
  /// 0 or 1: whether all of `conditions` hold ("1" without any).
  std::string truth(const std::vector<IntExpr>& conditions);
  /// How often a loop runs: max(0, upper - lower) where all of `conditions` hold, else 0.
  std::string trips(const IntExpr& lower, const IntExpr& upper, const std::vector<IntExpr>& conditions);

  /// No integers `dims` ("i, j") meet `constraints` (isl text over dims and values), whatever the sizes. Answers are kept.
  bool impossible(const std::string& dims, const std::string& constraints);

 private:
  std::string linear(const Affine& form);       ///< isl text over sizes and atoms
  std::string symbol(const std::string& term);  ///< of a variable or of a term in brackets, defined when it is met first
  void collect_terms(const IntExpr& expr);
  void define(const std::string& symbol, const IntExpr& expr);
  std::string condition(const IntExpr& expr);
  std::string operand(const IntExpr& expr) { return linear(form_of(expr)); }
  Affine form_of(const IntExpr& expr);
  using Detail = BoundAnswers::Detail;
  /// isl text over sizes, terms and values. `detail`: needed when questions are asked in this detail only.
  struct Definition {
    std::string text;
    Detail detail;
  };
  void state(const std::string& text, Detail detail = Detail::quotients_free) { definitions_.push_back({text, detail}); }
  BoundAnswers::Entry& entry();             ///< for all that is defined by now
  isl::set relations(Detail detail) const;  ///< of values
  const isl::set& context(Detail detail);

  std::map<std::string, IntExpr> terms_;        ///< what is not linear, by its text in brackets
  std::map<const void*, IntExpr> collected_;    ///< expressions whose terms are there, by identity
  std::map<std::string, std::string> symbols_;  ///< of variables and such terms
  std::map<std::string, std::string> values_;   ///< parameter of a linear text, or of a trip count's definition
  std::vector<std::string> names_, asked_;      ///< symbols behind values; parameters of values
  std::vector<Definition> definitions_;
  std::vector<std::string> counts_;  ///< isl text over values alone
  BoundAnswers& known_;
  BoundAnswers::Entry* entry_ = nullptr;  ///< none: definitions have been added since
};

}  // namespace nestor::nvptx
