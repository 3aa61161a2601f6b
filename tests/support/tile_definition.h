// Compares what a tile program does, run by an adversary, with the definition of its nest, interpreted instance by instance.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "codegen/tile/places/plan.h"
#include "poly/isl/isl_tools.h"
#include "poly/schedule/schedule.h"
#include "support/nests/apply_steps.h"
#include "support/nests/nest_interpreter.h"
#include "support/tile_adversary.h"

namespace nestor::testing {

constexpr double kUntouched = -777;

/// All instances of a statement at the sizes.
inline std::map<std::vector<std::int64_t>, int> instances_of(const Statement& statement, const isl::set& context,
                                                             const Sizes& sizes) {
  std::map<std::vector<std::int64_t>, int> result;
  for (const std::vector<std::int64_t>& at : samples::integer_points(at_sizes(statement.domain.intersect_params(context), sizes)))
    result[at] = 0;
  return result;
}

/// One program at one set of sizes.
class ProgramRun {
 public:
  /// Results may differ by `tolerance` (1 + |expected|): 0 where all values are integers and sums exact in any order.
  ProgramRun(const Schedule& schedule, const TileProgram& program, Sizes sizes, double tolerance = 0)
      : schedule_(schedule), nest_(schedule.nest()), program_(program), sizes_(std::move(sizes)), tolerance_(tolerance) {}

  /// Every instance of every statement runs once, and every element gets the definition's value or is left alone.
  void check() {
    samples::Memory expected;
    for (const Tensor& tensor : nest_.tensors) {
      const auto shape = shape_at(tensor, sizes_);
      std::int64_t count = 1;
      for (const std::int64_t extent : shape) count *= extent;
      if (tensor.role == TensorRole::temporary) continue;
      std::vector<double>& values = memory_[tensor.name];
      values.assign(static_cast<std::size_t>(count), kUntouched);
      if (tensor.role != TensorRole::input) continue;
      for (std::size_t k = 0; k < values.size(); ++k) {
        values[k] = static_cast<double>((k * 7 + tensor.name[0]) % 11) - 4;
        expected[tensor.name][index_of(shape, k)] = values[k];
      }
    }
    samples::Interpreter(schedule_.original_nest(), sizes_).run(expected);
    for (const Statement& statement : nest_.statements)
      executed_[statement.name] = instances_of(statement, nest_.context, sizes_);
    TileAdversary(program_, sizes_, memory_, [&](const TileOp& op, const Variables& at) { observe(op, at); }).run();
    compare_instances();
    compare_values(expected);
  }

 private:
  static samples::Index index_of(const std::vector<std::int64_t>& shape, std::size_t linear) {
    samples::Index index(shape.size());
    for (std::size_t k = shape.size(); k-- > 0;) {
      index[k] = static_cast<std::int64_t>(linear) % shape[k];
      linear /= static_cast<std::size_t>(shape[k]);
    }
    return index;
  }

  /// Counts the instance that a point is; points of a box without a test that are none do not count.
  void observe(const TileOp& op, const Variables& at) {
    const auto known = executed_.find(op.name);
    if (known == executed_.end()) return;
    const LoopForm& form = schedule_.form(op.name);
    bool complete = true;
    const auto value = [&](const LinearForm& linear) {
      std::int64_t sum = linear.constant;
      for (const auto& [loop, coefficient] : linear.terms) {
        const auto found = at.find(program_variable(loop));
        if (found != at.end()) sum += coefficient * found->second;
        complete = complete && found != at.end();
      }
      return sum;
    };
    std::vector<std::int64_t> instance;
    for (const LinearForm& dim : form.dims) instance.push_back(value(dim));
    const bool inside = std::all_of(form.constraints.begin(), form.constraints.end(),
                                    [&](const LinearForm& constraint) { return value(constraint) >= 0; });
    if (!complete)
      instance = claimed(op, at);  // a loop of one iteration is none
    else if (!inside)
      return;
    if (const auto found = known->second.find(instance); found != known->second.end()) ++found->second;
  }

  /// What the op says of itself; the values that it writes are compared as well.
  static std::vector<std::int64_t> claimed(const TileOp& op, const Variables& at) {
    std::vector<std::int64_t> instance;
    for (const IntExpr& dim : op.claim.instance)
      instance.push_back(dim.evaluate([&](const std::string& name) { return at.at(name); }));
    return instance;
  }

  /// A constant start may have become part of the reduction that follows it: then values tell.
  void compare_instances() const {
    for (const Statement& statement : nest_.statements) {
      if (!statement.reduction && statement.reads.empty() && statement.value.op() == ScalarOp::constant) continue;
      for (const auto& [instance, times] : executed_.at(statement.name))
        ASSERT_EQ(times, 1) << statement.name << "[" << fmt::format("{}", fmt::join(instance, ", ")) << "]";
    }
  }

  void compare_values(const samples::Memory& expected) const {
    for (const Tensor& tensor : nest_.tensors) {
      if (tensor.role != TensorRole::output) continue;
      const auto shape = shape_at(tensor, sizes_);
      const std::vector<double>& values = memory_.at(tensor.name);
      const auto elements = expected.find(tensor.name);
      for (std::size_t k = 0; k < values.size(); ++k) {
        const samples::Index index = index_of(shape, k);
        double wanted = kUntouched;
        if (elements != expected.end()) {
          if (const auto found = elements->second.find(index); found != elements->second.end()) wanted = found->second;
        }
        if (values[k] == wanted || (std::isnan(values[k]) && std::isnan(wanted))) continue;
        ASSERT_LE(std::fabs(values[k] - wanted), tolerance_ * (1 + std::fabs(wanted)))
            << tensor.name << "[" << fmt::format("{}", fmt::join(index, ", ")) << "] is " << values[k] << ", should be "
            << wanted;
      }
    }
  }

  const Schedule& schedule_;
  const Nest& nest_;
  const TileProgram& program_;
  Sizes sizes_;
  double tolerance_;
  std::map<std::string, std::vector<double>> memory_;
  std::map<std::string, std::map<std::vector<std::int64_t>, int>> executed_;
};

/// The program of the schedule does what the nest defines, at each of the sizes.
inline void expect_defined(const Schedule& schedule, const std::vector<Sizes>& all, double tolerance = 0) {
  const TileProgram program = build_tile_program(schedule);
  for (const Sizes& sizes : all) {
    std::string text;
    for (const auto& [name, value] : sizes) text += fmt::format(" {}={}", name, value);
    SCOPED_TRACE("at" + text + "\n" + describe(program));
    ProgramRun(schedule, program, sizes, tolerance).check();
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace nestor::testing
