// Mutants of what a tensor plan says of values: masks, what stands outside of them, what is kept, and which iterations need no test.
#pragma once

#include "codegen/gpu/mma/plan/tensor_plan.h"

#include <fmt/format.h>

#include <functional>
#include <string>
#include <vector>

namespace nestor::testing {

struct ValueMutant {
  std::string what, where;
  nvptx::TensorPlan plan;
};

class ValueMutator {
 public:
  explicit ValueMutator(const nvptx::TensorPlan& plan) : plan_(plan) {}

  std::vector<ValueMutant> all() {
    for (std::size_t k = 0; k < plan_.ops.size(); ++k) change_op(k);
    int loops = 0;
    count_loops(plan_.consumer, loops);
    for (int n = 0; n < loops; ++n) change_loop(n);
    return std::move(mutants_);
  }

 private:
  nvptx::TensorOp& add(const std::string& what, std::size_t k, const std::string& detail = "") {
    mutants_.push_back({what, plan_.ops[k].op.name + detail, plan_});
    return mutants_.back().plan.ops[k];
  }

  void change_op(std::size_t k) {
    const nvptx::TensorOp& op = plan_.ops[k];
    if (!op.mask.empty() && (op.select || op.keeps || op.mask_a)) change_conditions("a mask", k, &nvptx::TensorOp::mask);
    if (op.kind == nvptx::TensorOp::Kind::store) change_conditions("a store's mask", k, &nvptx::TensorOp::memory_mask);
    if (op.keeps) add("drop a keep", k).keeps = false;
    if (op.select) add("drop a choice", k).select = false;
    if (op.finite_rows) add("infinities of rows", k).finite_rows = false;
    if (op.mask_a) add("drop an operand's mask", k).mask_a = false;
    if (op.select && op.outside) {
      for (const double value : {0.0, 1.0, -std::numeric_limits<double>::infinity()}) {
        if (value != *op.outside) add("wrong neutral element", k, fmt::format(" ({})", value)).outside = value;
      }
    }
  }

  void change_conditions(const std::string& of, std::size_t k, std::vector<IntExpr> nvptx::TensorOp::* list) {
    for (std::size_t c = 0; c < (plan_.ops[k].*list).size(); ++c) {
      const std::string detail = fmt::format(" ({})", c);
      std::vector<IntExpr>& fewer = add("drop a part of " + of, k, detail).*list;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(c));
      for (const std::int64_t by : {1, -1}) {
        const IntExpr& old = (plan_.ops[k].*list)[c];
        if (old.op() != IntOp::ge) continue;
        (add("shift " + of + " by one", k, fmt::format(" ({}, {:+})", c, by)).*list)[c] =
            IntExpr::make(IntOp::ge, {old.args()[0] + IntExpr(by), old.args()[1]});
      }
    }
  }

  static void count_loops(const nvptx::EventNode& node, int& loops) {
    if (node.kind == nvptx::EventNode::Kind::loop) ++loops;
    for (const nvptx::EventNode& child : node.children) count_loops(child, loops);
  }

  static nvptx::EventNode* loop_at(nvptx::EventNode& node, int& n) {
    if (node.kind == nvptx::EventNode::Kind::loop && n-- == 0) return &node;
    for (nvptx::EventNode& child : node.children) {
      if (nvptx::EventNode* found = loop_at(child, n)) return found;
    }
    return nullptr;
  }

  void change_loop(int n) {
    mutants_.push_back({"call partial tiles full", fmt::format("loop {}", n), plan_});
    int at = n;
    nvptx::EventNode* loop = loop_at(mutants_.back().plan.consumer, at);
    if (!loop->masked) {  // nothing to change: full tiles are tested instead, which is right
      mutants_.back().what = "call full tiles partial";
      loop->masked = true;
      for (nvptx::EventNode& child : loop->children) child.masked = true;
    } else {
      loop->masked = false;
      for (nvptx::EventNode& child : loop->children) child.masked = false;
    }
    for (const int by : {1, -1}) {  // in both roles, so that copies stay right
      mutants_.push_back({by > 0 ? "an iteration more" : "skip an iteration", fmt::format("loop {}", n), plan_});
      nvptx::TensorPlan& plan = mutants_.back().plan;
      const auto move = [&](nvptx::EventNode& root) {
        int which = n;
        if (nvptx::EventNode* found = loop_at(root, which)) found->upper = found->upper + IntExpr(by);
      };
      move(plan.consumer);
      move(plan.producer);
    }
  }

  const nvptx::TensorPlan& plan_;
  std::vector<ValueMutant> mutants_;
};

}  // namespace nestor::testing
