// Mutants of tensor plans: every way to change one thing in a plan, each at a place of its own.
#pragma once

#include "codegen/gpu/mma/plan/tensor_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace nestor::testing {

inline std::string label(const nvptx::EventNode& node) {
  switch (node.kind) {
    case nvptx::EventNode::Kind::loop:
      return "loop";
    case nvptx::EventNode::Kind::condition:
      return "condition";
    case nvptx::EventNode::Kind::sequence:
      return "value";
    case nvptx::EventNode::Kind::event:
      break;
  }
  return nvptx::name_of(node.event.kind);
}

struct TensorMutant {
  std::string what;   ///< kind of change
  std::string where;  ///< one place for each change of a kind
  nvptx::TensorPlan plan;
};

/// Every way to change one thing in a plan.
class TensorMutator {
 public:
  explicit TensorMutator(const nvptx::TensorPlan& plan) : plan_(plan) {}

  std::vector<TensorMutant> all() {
    for (const bool consumer : {true, false}) {
      consumer_ = consumer;
      std::vector<std::size_t> path;
      visit(consumer ? plan_.consumer : plan_.producer, path);
    }
    for (std::size_t r = 0; r < plan_.circular_buffers.size(); ++r) {
      where_ = fmt::format("circular buffer {}", r);
      for (const int change : {-1, 1})
        add(change > 0 ? "one stage more" : "one stage less").plan.circular_buffers[r].stages += change;
      if (!plan_.circular_buffers[r].scheduler)
        add("another origin").plan.circular_buffers[r].origin.front() = plan_.circular_buffers[r].origin.front() + IntExpr(1);
      if (plan_.circular_buffers[r].upper.defined()) {
        for (const int change : {-1, 1})
          add("another end of copies", fmt::format("{:+}", change)).plan.circular_buffers[r].upper =
              plan_.circular_buffers[r].upper + IntExpr(change);
      }
      add("registers or not").plan.circular_buffers[r].in_registers = !plan_.circular_buffers[r].in_registers;
      add("another offset").plan.circular_buffers[r].offset += nvptx::kTileAlignment;
      if (plan_.cluster() > 1) change_sharing(r);
    }
    where_ = "cluster";
    if (plan_.cluster() > 1) {
      add("no meeting at the start").plan.cluster_start = false;
      add("no wait at the end").plan.drains = false;
    }
    for (const auto& [buffer, fragment] : plan_.fragments) {
      where_ = plan_.buffer(buffer).name;
      if (fragment.columns == 0) add("parts or not").plan.fragments[buffer].thread_sums = !fragment.thread_sums;
    }
    return std::move(mutants_);
  }

 private:
  using Kind = nvptx::Event::Kind;
  using Siblings = std::vector<nvptx::EventNode>;

  /// `detail`: which of several changes of the kind at one place.
  TensorMutant& add(const std::string& what, const std::string& detail = "") {
    mutants_.push_back({what, detail.empty() ? where_ : fmt::format("{} ({})", where_, detail), plan_});
    return mutants_.back();
  }

  /// A copy of the plan, and in it the children of the node at `path`.
  Siblings& mutant(const std::string& what, const std::vector<std::size_t>& path, const std::string& detail = "") {
    TensorMutant& copy = add(what, detail);
    nvptx::EventNode* node = consumer_ ? &copy.plan.consumer : &copy.plan.producer;
    for (const std::size_t k : path) node = &node->children[k];
    return node->children;
  }

  void visit(const nvptx::EventNode& node, std::vector<std::size_t>& path) {
    for (std::size_t k = 0; k < node.children.size(); ++k) {
      const nvptx::EventNode& child = node.children[k];
      const std::string name = label(child);
      where_ = fmt::format("{}{}{}{}", consumer_ ? "c" : "p", fmt::join(path, "."), path.empty() ? "" : ".", k);
      const auto at = static_cast<std::ptrdiff_t>(k);
      Siblings& dropped = mutant("drop " + name, path);
      dropped.erase(dropped.begin() + at);
      Siblings& repeated = mutant("repeat " + name, path);
      repeated.insert(repeated.begin() + at, child);
      if (k + 1 < node.children.size()) {
        Siblings& swapped = mutant(fmt::format("{} after {}", name, label(node.children[k + 1])), path);
        std::swap(swapped[k], swapped[k + 1]);
      }
      child.kind == nvptx::EventNode::Kind::event ? change_event(child.event, path, k) : change_node(child, path, k);
      path.push_back(k);
      visit(child, path);
      path.pop_back();
    }
  }

  void change_sharing(std::size_t r) {
    const nvptx::CircularBuffer& ring = plan_.circular_buffers[r];
    for (const int change : {-1, 1})
      add("another number of readers", fmt::format("{:+}", change)).plan.circular_buffers[r].readers += change;
    TensorMutant& shared = add("shared or not");
    shared.plan.circular_buffers[r].blocks = ring.blocks == 1 ? plan_.cluster() : 1;
    TensorMutant& both = add("shared or not, and as many readers");
    both.plan.circular_buffers[r].blocks = ring.blocks == 1 ? plan_.cluster() : 1;
    both.plan.circular_buffers[r].readers = plan_.warpgroups * both.plan.circular_buffers[r].blocks;
    add("rows of its own or not").plan.circular_buffers[r].own_index = ring.own_index < 0 ? ring.row_index : -1;
  }

  void change_event(const nvptx::Event& event, const std::vector<std::size_t>& path, std::size_t k) {
    if (event.kind == Kind::wait_products) {
      mutant("wait for one product less", path)[k].event.count += 1;
      if (event.count > 0) mutant("wait for one product more", path)[k].event.count -= 1;
    }
    if (event.kind == Kind::wait_copies) {
      mutant("wait for one batch less", path)[k].event.count += 1;
      if (event.count > 0) mutant("wait for one batch more", path)[k].event.count -= 1;
    }
    if (event.kind == Kind::load && plan_.cores == nvptx::TensorCores::mma) {
      mutant("copy for a later iteration", path)[k].event.count += 1;
      if (event.count > 0) mutant("copy for an earlier iteration", path)[k].event.count -= 1;
    }
    if ((event.kind == Kind::load || event.kind == Kind::release) && plan_.cluster() > 1) {
      mutant(std::string(nvptx::name_of(event.kind)) + " reaches other blocks", path)[k].event.blocks =
          event.blocks == 1 ? plan_.cluster() : 1;
    }
    if (event.ring >= 0) {
      for (int ring = 0; ring < static_cast<int>(plan_.circular_buffers.size()); ++ring) {
        if (ring != event.ring)
          mutant("another circular buffer", path, fmt::format("circular buffer {}", ring))[k].event.ring = ring;
      }
    }
    if (event.kind == Kind::product || event.kind == Kind::compute || event.kind == Kind::narrow) {
      for (const int op : {event.op - 1, event.op + 1}) mutant("another op", path, fmt::format("op {}", op))[k].event.op = op;
    }
  }

  void change_node(const nvptx::EventNode& node, const std::vector<std::size_t>& path, std::size_t k) {
    for (const int change : {-1, 1}) {
      const std::string detail = fmt::format("{:+}", change);
      if (node.kind == nvptx::EventNode::Kind::loop) {
        mutant("another end", path, detail)[k].upper = node.upper + IntExpr(change);
        mutant("another start", path, detail)[k].lower = node.lower + IntExpr(change);
      }
      if (node.kind == nvptx::EventNode::Kind::sequence && !node.var.empty())
        mutant("another value", path, detail)[k].lower = node.lower + IntExpr(change);
    }
    if (node.kind != nvptx::EventNode::Kind::condition) return;
    mutant("the opposite condition", path)[k].condition = IntExpr::make(IntOp::logical_not, {node.condition});
    mutant("no condition", path)[k].kind = nvptx::EventNode::Kind::sequence;
  }

  const nvptx::TensorPlan& plan_;
  bool consumer_ = true;
  std::string where_;
  std::vector<TensorMutant> mutants_;
};

}  // namespace nestor::testing
