// Every verdict of the legality check against brute force. Random nests (up to 3 statements, 4 loops, reductions, groups) get
// random steps. A model of the steps written here, without isl, moves every instance by numbers; the verdict expected is that
// of looking at each conflicting pair of instances in the resulting order.
//
// NESTOR_PROPERTY_CASES sets the number of cases, NESTOR_PROPERTY_SEED the first one.
#include <gtest/gtest.h>
#include <isl/map.h>
#include <isl/point.h>
#include <isl/set.h>
#include <isl/val.h>

#include <cstdio>
#include <cstdlib>

#include "poly/algebra/all_rules.h"
#include "property/poly_legality_model.h"
#include "support/error.h"
#include "support/nests/random_steps.h"

namespace nestor::legality {
namespace {

// ---- random steps

Step random_step(Random& random, const Model& model, const ModelNest& nest, int& fresh) {
  StepNames names{model.loops(), {}, {}};
  for (const ModelStatement& statement : nest.statements) {
    names.statements.push_back(statement.name);
    names.loops_of.emplace_back();
    for (const auto& [own, values] : model.values().at(statement.name)) names.loops_of.back().push_back(own);
  }
  return legality::random_step(random, names, fresh);
}

// ---- comparison

bool fits(const Model& model, const Step& step) {
  try {
    model.copy().apply(step);
    return true;
  } catch (const Misfit&) {
    return false;
  }
}

enum class Verdict { legal, illegal, misfit };

const char* text(Verdict verdict) {
  return verdict == Verdict::legal ? "legal" : verdict == Verdict::illegal ? "illegal" : "misfit";
}

/// Each instance's loops by loop_relation and by form() must be the model's numbers.
void compare_relations(const Schedule& schedule, const ModelNest& nest, const Model& model) {
  for (const ModelStatement& statement : nest.statements) {
    const std::vector<std::string> loops = schedule.loops_of(statement.name);
    const LoopForm& form = schedule.form(statement.name);
    const auto& values = model.values().at(statement.name);
    ASSERT_EQ(values.size(), loops.size());
    for (std::size_t k = 0; k < statement.instances.size(); ++k) {
      const auto value = [&](const LinearForm& linear) {
        std::int64_t sum = linear.constant;
        for (const auto& [loop, coefficient] : linear.terms) sum += coefficient * values.at(loop)[k];
        return sum;
      };
      for (std::size_t d = 0; d < form.dims.size(); ++d) ASSERT_EQ(value(form.dims[d]), statement.instances[k][d]);
      for (const LinearForm& constraint : form.constraints) ASSERT_GE(value(constraint), 0);
    }
  }
}

void compare_isl(const Schedule& schedule, const ModelNest& nest, const Model& model) {
  for (const ModelStatement& statement : nest.statements) {
    const isl::map relation =
        schedule.loop_relation(statement.name).intersect_params(schedule.nest().context).project_out_all_params();
    std::string expected;
    const std::vector<std::string> loops = schedule.loops_of(statement.name);
    for (std::size_t k = 0; k < statement.instances.size(); ++k) {
      Point at;
      for (const std::string& loop : loops) at.push_back(model.values().at(statement.name).at(loop)[k]);
      expected += fmt::format("{}{}[{}] -> [{}]", k > 0 ? "; " : "", statement.name, fmt::join(statement.instances[k], ", "),
                              fmt::join(at, ", "));
    }
    const isl::union_map all(isl_context(), "{ " + expected + " }");
    EXPECT_TRUE(isl::union_map(relation).is_equal(all)) << relation << "\nexpected " << all;
  }
}

/// compute_at chooses loops by itself, so the model cannot follow: what it accepts must be sound by the numbers isl gives.
void check_compute_at(const Schedule& schedule, const ModelNest& nest, const std::vector<Conflict>& conflicts,
                      bool reassociation);

bool has_reassociation() {
  for (const Rule& rule : rules()) {
    if (rule.name == "reassociate") return true;
  }
  return false;
}

struct Totals {
  std::int64_t legal = 0, illegal = 0, misfit = 0;
};

void run_case(std::uint64_t seed, Totals& totals) {
  Random random(seed);
  const ModelNest nest = random_nest(random);
  Schedule schedule{to_nest(nest)};
  const bool any =
      std::any_of(nest.statements.begin(), nest.statements.end(), [](const ModelStatement& s) { return s.reduction; });
  bool reassociation = false;
  if (any && has_reassociation() && random.chance(50)) {
    schedule = schedule.apply({"apply_rule", {"reassociate"}});
    reassociation = schedule.reassociation_allowed();
  }
  const std::vector<Conflict> conflicts = conflicts_of(nest);
  Model model(nest);
  int fresh = 0;
  std::string history;
  for (int count = random.between(2, 10); count > 0; --count) {
    Step step = random_step(random, model, nest, fresh);
    for (int tries = random.below(5); tries > 0 && !fits(model, step); --tries) step = random_step(random, model, nest, fresh);
    Model next = model.copy();
    Verdict expected = Verdict::legal;
    try {
      next.apply(step);
      if (next.broken(conflicts, reassociation) != nullptr) expected = Verdict::illegal;
    } catch (const Misfit&) {
      expected = Verdict::misfit;
    }
    Verdict actual = Verdict::legal;
    std::string message;
    Schedule after = schedule;
    try {
      after = schedule.apply(step);
    } catch (const UserError& error) {
      message = error.what();
      actual = message.find(" is illegal: ") != std::string::npos ? Verdict::illegal : Verdict::misfit;
    }
    ASSERT_STREQ(text(actual), text(expected)) << "case " << seed << (reassociation ? " (reassociation)" : "") << "\n"
                                               << describe_model(nest) << history << "  then " << describe(step) << "\n"
                                               << message << "\n"
                                               << schedule.str();
    ++(expected == Verdict::legal ? totals.legal : expected == Verdict::illegal ? totals.illegal : totals.misfit);
    if (expected != Verdict::legal) continue;
    history += "  " + describe(step) + "\n";
    schedule = after;
    model = next;
  }
  compare_relations(schedule, nest, model);
  if (seed % 16 == 0) compare_isl(schedule, nest, model);
  if (seed % 4 == 0) check_compute_at(schedule, nest, conflicts, reassociation);
}

/// Loop values of one instance, read off the relation.
Point loops_at(const isl::map& relation, const Point& instance) {
  isl_map* one = relation.copy();
  for (std::size_t k = 0; k < instance.size(); ++k)
    one = isl_map_fix_si(one, isl_dim_in, static_cast<unsigned>(k), static_cast<int>(instance[k]));
  const isl::point point = isl::manage(isl_set_sample_point(isl_map_range(one)));
  Point result;
  const int count = static_cast<int>(isl_map_dim(relation.get(), isl_dim_out));
  for (int k = 0; k < count; ++k) {
    isl_val* value = isl_point_get_coordinate_val(point.get(), isl_dim_set, k);
    result.push_back(isl_val_get_num_si(value));
    isl_val_free(value);
  }
  return result;
}

void tree_paths(const TreeNode& node, std::vector<std::pair<const TreeNode*, std::size_t>>& path,
                std::map<std::string, std::vector<std::pair<const TreeNode*, std::size_t>>>& paths) {
  if (node.kind == TreeNode::Kind::leaf) paths[node.name] = path;
  for (std::size_t k = 0; k < node.children.size(); ++k) {
    path.emplace_back(&node, k);
    tree_paths(*node.children[k], path, paths);
    path.pop_back();
  }
}

void check_compute_at(const Schedule& schedule, const ModelNest& nest, const std::vector<Conflict>& conflicts,
                      bool reassociation) {
  for (const ModelStatement& statement : nest.statements) {
    for (const ModelStatement& other : nest.statements) {
      if (&statement == &other) continue;
      for (const std::string& loop : schedule.loops_of(other.name)) {
        Schedule after = schedule;
        try {
          after = schedule.apply({"compute_at", {statement.name, loop}});
        } catch (const UserError&) {
          continue;
        }
        const std::vector<std::string> around = after.loops_of(statement.name);
        EXPECT_EQ(std::count(around.begin(), around.end(), loop), 1);
        std::map<std::string, std::vector<std::pair<const TreeNode*, std::size_t>>> paths;
        std::vector<std::pair<const TreeNode*, std::size_t>> path;
        tree_paths(*after.tree(), path, paths);
        std::map<std::pair<std::size_t, std::size_t>, Point> values;
        const auto value = [&](const Instance& i) -> const Point& {
          auto [place, added] = values.try_emplace({i.statement, i.index});
          const ModelStatement& s = nest.statements[i.statement];
          if (added) place->second = loops_at(after.loop_relation(s.name), s.instances[i.index]);
          return place->second;
        };
        for (const Conflict& conflict : conflicts) {
          if (conflict.accumulation && reassociation) continue;
          const auto& a = paths.at(nest.statements[conflict.first.statement].name);
          const auto& b = paths.at(nest.statements[conflict.second.statement].name);
          bool before = false, decided = false;
          std::size_t depth = 0;
          for (std::size_t k = 0; k < a.size() && k < b.size() && !decided; ++k) {
            if (a[k].first->kind == TreeNode::Kind::loop) {
              const std::int64_t x = value(conflict.first)[depth], y = value(conflict.second)[depth];
              const bool serial = a[k].first->loop_kind == LoopKind::serial || a[k].first->loop_kind == LoopKind::unroll;
              if (x != y) {
                decided = true;
                before = serial && x < y;
                break;
              }
              ++depth;
            }
            if (a[k].second != b[k].second) {
              decided = true;
              before = a[k].second < b[k].second;
            }
          }
          ASSERT_TRUE(before) << describe_model(nest) << "compute_at(" << statement.name << ", " << loop << ")\n" << after.str();
        }
      }
    }
  }
}

TEST(LegalityProperty, every_verdict_equals_brute_force_execution_order) {
  const std::int64_t cases = from_environment("NESTOR_PROPERTY_CASES", 2000);
  const std::int64_t first = from_environment("NESTOR_PROPERTY_SEED", 1);
  Totals totals;
  for (std::int64_t k = 0; k < cases && !HasFatalFailure() && !HasNonfatalFailure(); ++k) {
    run_case(static_cast<std::uint64_t>(first + k), totals);
  }
  RecordProperty("legal", static_cast<int>(totals.legal));
  RecordProperty("illegal", static_cast<int>(totals.illegal));
  std::printf("%lld cases: %lld legal steps, %lld illegal, %lld that do not fit\n", static_cast<long long>(cases),
              static_cast<long long>(totals.legal), static_cast<long long>(totals.illegal),
              static_cast<long long>(totals.misfit));
  if (cases >= 100) {
    EXPECT_GT(totals.legal, cases / 4);
    EXPECT_GT(totals.illegal, cases / 20);
  }
}

}  // namespace
}  // namespace nestor::legality
