// Rules keep special values: random nests, random sequences of rules, inputs with infinities, NaN, zeros, tiny and huge numbers. The
// nest before and after, plainly and by tiles of its composites, has NaN, +inf and -inf at the same elements, and other values alike.
//
// NESTOR_TEST_CASES: how many inputs are tried (4,000 unless it says otherwise). NESTOR_TEST_SEED: where the sequence starts, so that
// several machines can share the work. NESTOR_TEST_ALL: failures do not end it. NESTOR_TEST_RULES: with a seed, too, every second nest is drawn
// around the shape of one rule. NESTOR_TEST_TABLE: prints how often each rule was applied.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "poly/algebra/all_rules.h"
#include "poly/algebra/reprove.h"
#include "poly/nest/nest_json.h"
#include "poly/nest/nest_sets.h"
#include "support/error.h"
#include "support/nests/rule_nests.h"
#include "support/nests/special_nests.h"

namespace nestor {
namespace {

using samples::Dice;
using samples::Elements;
using samples::Interpreter;
using samples::Memory;

constexpr int kInputsEach = 40;      ///< of nests that several rules match
constexpr int kInputsOfRules = 12;   ///< of nests around the shape of one rule, at most
constexpr int kPointsEach = 40'000;  ///< that such a nest has for all of its inputs

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

/// A nest after some rules, and the composites that hold for it.
struct Rewritten {
  Nest nest;
  std::vector<Composite> composites;
  std::string steps;
  std::set<std::string> finite;   ///< inputs that rules need finite values of in masked places
  std::set<std::string> rounded;  ///< operands of products that rule round_operand made
};

/// The inputs that a tensor is computed from, or itself.
void add_inputs_behind(const Nest& nest, const std::string& tensor, std::set<std::string>& inputs) {
  if (nest.tensor(tensor).role == TensorRole::input) inputs.insert(tensor);
  for (const Statement& statement : nest.statements) {
    if (statement.write.tensor != tensor) continue;
    for (const Access& read : statement.reads) {
      if (read.tensor != tensor) add_inputs_behind(nest, read.tensor, inputs);
    }
  }
}

/// One of the matches: of rule `wanted` more often than not where it has some, else of any rule that has.
RuleMatch some_match(std::vector<RuleMatch> matches, const std::string& wanted, Dice& dice) {
  std::vector<std::string> names;
  for (const RuleMatch& match : matches) {
    if (std::find(names.begin(), names.end(), match.rule) == names.end()) names.push_back(match.rule);
  }
  const bool has = std::find(names.begin(), names.end(), wanted) != names.end();
  const std::string name = has && dice.chance(0.6) ? wanted : dice.of(names);
  std::erase_if(matches, [&](const RuleMatch& match) { return match.rule != name; });
  return dice.of(matches);
}

/// The first one, or "".
std::string statement_without_points(const Nest& nest) {
  for (const Statement& statement : nest.statements) {
    if (domain_in(nest, statement).is_empty()) return statement.name;
  }
  return "";
}

/// Applies up to four rules; counts how often each was applied.
void rewrite(Rewritten& result, const std::string& wanted, Dice& dice, std::map<std::string, int>& applied) {
  const int most = 1 + dice.below(4);
  for (int step = 0; step < most; ++step) {
    std::vector<RuleMatch> matches = find_matches(result.nest);
    std::erase_if(matches, [](const RuleMatch& match) { return match.rule == "reassociate"; });
    if (matches.empty()) break;
    const RuleMatch match = some_match(std::move(matches), wanted, dice);
    std::vector<std::string> target = match.target;
    if (match.rule == "split_reduction") target[3] = "2";
    if (match.rule == "online" && dice.chance(0.4)) target.emplace_back(dice.of<std::string>({"1", "8", "14"}));
    std::string text = "; " + match.rule;
    for (const std::string& argument : target) text += " " + argument;
    const auto needs = rule(match.rule).finite;
    const std::vector<std::string> needed = needs != nullptr ? needs(result.nest) : std::vector<std::string>{};
    try {
      for (const std::string& tensor : needed) add_inputs_behind(result.nest, tensor, result.finite);
      RuleResult made = rule(match.rule).apply(result.nest, target);
      try {
        validate_changes(result.nest, made.nest);
      } catch (const UserError& error) {
        result.nest = std::move(made.nest);
        throw InternalError("rule " + match.rule + " made no valid nest: " + error.what());
      }
      if (const std::string name = statement_without_points(made.nest); !name.empty())
        throw InternalError("rule " + match.rule + " made a statement without points: " + name);
      if (match.rule == "round_operand") result.rounded.insert(made.nest.tensors.back().name);
      result.nest = std::move(made.nest);
      result.composites = reprove(result.nest, result.composites);
      for (Composite& composite : made.composites) result.composites.push_back(std::move(composite));
    } catch (const UserError&) {
      if (target == match.target) throw;
      continue;  // only an argument that the match did not name may be refused
    }
    ++applied[match.rule];
    result.steps += text;
  }
}

bool uses_16_bits(const Nest& nest) {
  return std::any_of(nest.tensors.begin(), nest.tensors.end(),
                     [](const Tensor& tensor) { return tensor.type == ElementType::f16 || tensor.type == ElementType::bf16; });
}

bool common(const std::set<std::string>& a, const std::set<std::string>& b) {
  return std::any_of(a.begin(), a.end(), [&](const std::string& name) { return b.contains(name); });
}

/// What has been written to a tensor.
const Elements& elements_of(const Memory& memory, const std::string& tensor) {
  static const Elements kNone;
  const auto found = memory.find(tensor);
  return found == memory.end() ? kNone : found->second;
}

/// The largest finite number of the inputs and outputs, at least 1.
double largest_finite(const Nest& nest, const Memory& memory) {
  double largest = 1;
  for (const Tensor& tensor : nest.tensors) {
    if (tensor.role != TensorRole::input && tensor.role != TensorRole::output) continue;
    for (const auto& [index, value] : elements_of(memory, tensor.name))
      largest = std::isfinite(value) ? std::max(largest, std::fabs(value)) : largest;
  }
  return largest;
}

/// The first element that differs; empty when none does. `finite_only`: nothing is promised of others, as an infinity may have met a
/// weight that 16 bits round to 0 (docs/values.md).
std::string difference(const Nest& nest, const Memory& expected, const Memory& actual, bool finite_only) {
  // Sums in another order differ by as much as their terms are large, products of up to three values; the interpreter computes in f64.
  const double rounding = 1e-13 * std::pow(largest_finite(nest, expected), 3);
  const double tolerance = uses_16_bits(nest) ? 0.05 : 1e-5;
  for (const Tensor& tensor : nest.tensors) {
    if (tensor.role != TensorRole::output) continue;
    const Elements &a = elements_of(expected, tensor.name), &b = elements_of(actual, tensor.name);
    if (a.size() != b.size()) return fmt::format("{} has {} elements where {} are right", tensor.name, b.size(), a.size());
    double scale = 1;
    for (const auto& [index, value] : a) scale = std::isfinite(value) ? std::max(scale, std::fabs(value)) : scale;
    for (const auto& [index, value] : a) {
      const auto found = b.find(index);
      if (found == b.end()) return fmt::format("{}[{}] has not been written", tensor.name, fmt::join(index, ", "));
      const double other = found->second;
      if (finite_only && !(std::isfinite(value) && std::isfinite(other))) continue;
      const bool same = std::isnan(value)   ? std::isnan(other)
                        : std::isinf(value) ? value == other
                                            : std::isfinite(other) && std::fabs(value - other) <= tolerance * scale + rounding;
      if (!same) return fmt::format("{}[{}] is {} where {} is right", tensor.name, fmt::join(index, ", "), other, value);
    }
  }
  return "";
}

std::string inputs_text(const Nest& nest, const Memory& inputs) {
  std::string text;
  for (const Tensor& tensor : nest.tensors) {
    if (tensor.role != TensorRole::input) continue;
    text += tensor.name + ":";
    for (const auto& [index, value] : inputs.at(tensor.name)) text += fmt::format(" {}", value);
    text += "\n";
  }
  return text;
}

class SpecialValues : public ::testing::Test {
 protected:
  /// Runs the inputs of one structure; how many.
  int run(std::uint64_t seed) {
    Dice dice(seed);
    const auto& all = samples::rule_nests();
    static const bool draws_around_rules =
        std::getenv("NESTOR_TEST_SEED") == nullptr || std::getenv("NESTOR_TEST_RULES") != nullptr;
    const bool plain = seed % 2 == 0 || !draws_around_rules;
    const samples::RuleNests* nests = plain ? nullptr : &all[seed / 2 % all.size()];
    const Nest nest = nests == nullptr ? samples::some_nest(dice) : samples::some_rule_nest(*nests, dice);
    if (!statement_without_points(nest).empty()) return 0;  // nest_from_json leaves such statements out
    Rewritten after{nest, {}, nest.op, {}, {}};
    try {
      rewrite(after, nests == nullptr ? "" : nests->rule, dice, applied_);
      return run(seed, dice, nest, after, nests != nullptr);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "NESTOR_TEST_SEED=" << seed << " " << after.steps << ": " << error.what() << "\n"
                    << describe(nest) << "\nbecame\n"
                    << describe(after.nest);
      return 1;
    }
  }

  int tiled_ = 0;
  std::map<std::string, int> applied_;

 private:
  int run(std::uint64_t seed, Dice& dice, const Nest& nest, const Rewritten& after, bool of_rule) {
    const Sizes sizes = samples::some_sizes(nest, dice);
    Interpreter definition(nest, sizes), rules(after.nest, sizes);
    const std::size_t points = samples::count_points(nest, sizes) + samples::count_points(after.nest, sizes);
    const int most =
        of_rule ? static_cast<int>(std::clamp<std::size_t>(kPointsEach / (points + 1), 2, kInputsOfRules)) : kInputsEach;
    int count = 0;
    for (; count < most; ++count) {
      const Memory inputs = of_rule ? samples::rule_inputs(nest, sizes, dice, after.finite)
                                    : samples::special_inputs(nest, sizes, dice, after.finite);
      Memory expected = inputs, actual = inputs;
      definition.run(expected);
      rules.run(actual);
      // Nothing is promised of infinities that meet what has vanished, nor of operands of products beyond 16 bits (docs/values.md).
      const bool finite_only =
          !definition.vanished().empty() || common(rules.vanished(), after.rounded) || common(rules.overflowed(), after.rounded);
      if (!compare(nest, after, seed, inputs, expected, actual, finite_only, "")) return count + 1;
      for (const Composite& composite : after.composites) {
        if (!rules.can_run(composite)) continue;
        const std::int64_t tile = 1 + dice.below(3);
        actual = inputs;
        rules.run(actual, composite, tile);
        ++tiled_;
        const std::string how = fmt::format(", {} by tiles of {}", composite.lead, tile);
        if (!compare(nest, after, seed, inputs, expected, actual, finite_only, how)) return count + 1;
      }
    }
    return count;
  }

  static bool compare(const Nest& nest, const Rewritten& after, std::uint64_t seed, const Memory& inputs, const Memory& expected,
                      const Memory& actual, bool finite_only, const std::string& how) {
    const std::string different = difference(nest, expected, actual, finite_only);
    if (different.empty()) return true;
    ADD_FAILURE() << "NESTOR_TEST_SEED=" << seed << " " << after.steps << how << ": " << different << "\n"
                  << inputs_text(nest, inputs) << describe(nest) << "\nbecame\n"
                  << describe(after.nest);
    return false;
  }
};

TEST_F(SpecialValues, AreWhereTheDefinitionHasThem) {
  const std::uint64_t first = from_environment("NESTOR_TEST_SEED", 1), cases = from_environment("NESTOR_TEST_CASES", 4000);
  const bool goes_on = std::getenv("NESTOR_TEST_ALL") != nullptr;
  std::uint64_t done = 0;
  for (std::uint64_t seed = first; done < cases && (!HasFailure() || goes_on); ++seed)
    done += static_cast<std::uint64_t>(run(seed));
  EXPECT_TRUE(HasFailure() || tiled_ > 0 || cases < 1000) << "no composite was run by tiles";
  if (std::getenv("NESTOR_TEST_TABLE") == nullptr) return;
  for (const Rule& rule : rules()) fmt::print("{:5} {}\n", applied_[rule.name], rule.name);
}

}  // namespace
}  // namespace nestor
