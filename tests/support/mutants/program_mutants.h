// Mutants of tile programs: one change each, of the kinds that code generation could get wrong.
#pragma once

#include "codegen/tile/tile_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace nestor::testing {

struct Mutant {
  TileProgram program;
  std::string change;
};

/// Changes a copy of one node; what stands in its place afterwards (nothing: it is dropped). nullopt: the change does not apply.
using NodeChange = std::function<std::optional<std::vector<TileTree>>(const TileTree&, std::mt19937_64&)>;

struct NamedChange {
  std::string name;
  NodeChange change;
};

inline int pick(std::mt19937_64& random, std::size_t count) {
  return static_cast<int>(std::uniform_int_distribution<std::size_t>(0, count - 1)(random));
}

inline std::vector<TileTree> one(TileNode node) { return {std::make_shared<const TileNode>(std::move(node))}; }

inline int one_up_or_down(std::mt19937_64& random) { return pick(random, 2) == 0 ? 1 : -1; }

/// A change of an op: `change` returns false when it does not apply.
inline NamedChange op_change(const std::string& name, const std::function<bool(TileOp&, std::mt19937_64&)>& change) {
  return {name, [change](const TileTree& node, std::mt19937_64& random) -> std::optional<std::vector<TileTree>> {
            if (node->kind != TileNode::Kind::op) return std::nullopt;
            TileNode copy = *node;
            if (!change(copy.op, random)) return std::nullopt;
            return one(std::move(copy));
          }};
}

inline NamedChange loop_change(const std::string& name, const std::function<bool(TileNode&, std::mt19937_64&)>& change) {
  return {name, [change](const TileTree& node, std::mt19937_64& random) -> std::optional<std::vector<TileTree>> {
            if (node->kind != TileNode::Kind::loop) return std::nullopt;
            TileNode copy = *node;
            if (!change(copy, random)) return std::nullopt;
            return one(std::move(copy));
          }};
}

inline TileAccess& some_access(TileOp& op, std::mt19937_64& random) {
  const int k = pick(random, op.reads.size() + 1);
  return k == 0 ? op.write : op.reads[static_cast<std::size_t>(k - 1)];
}

inline std::vector<NamedChange> op_changes() {
  const auto dim_of = [](TileOp& op, std::mt19937_64& random) -> OpDim* {
    return op.dims.empty() ? nullptr : &op.dims[static_cast<std::size_t>(pick(random, op.dims.size()))];
  };
  return {
      op_change("dim bound moved",
                [dim_of](TileOp& op, std::mt19937_64& random) {
                  OpDim* dim = dim_of(op, random);
                  if (dim == nullptr) return false;
                  IntExpr& bound = pick(random, 2) == 0 ? dim->lower : dim->upper;
                  bound = bound + IntExpr(one_up_or_down(random));
                  return true;
                }),
      op_change("dim shifted",
                [dim_of](TileOp& op, std::mt19937_64& random) {
                  OpDim* dim = dim_of(op, random);
                  if (dim == nullptr) return false;
                  const int by = one_up_or_down(random);
                  dim->lower = dim->lower + IntExpr(by);
                  dim->upper = dim->upper + IntExpr(by);
                  return true;
                }),
      op_change("dims swapped",
                [](TileOp& op, std::mt19937_64& random) {
                  if (op.dims.size() < 2) return false;
                  const int k = pick(random, op.dims.size() - 1);
                  std::swap(op.dims[static_cast<std::size_t>(k)], op.dims[static_cast<std::size_t>(k) + 1]);
                  return true;
                }),
      op_change("dim parallel or not",
                [dim_of](TileOp& op, std::mt19937_64& random) {
                  OpDim* dim = dim_of(op, random);
                  if (dim != nullptr) dim->parallel = !dim->parallel;
                  return dim != nullptr;
                }),
      op_change("dim reduced or not",
                [dim_of](TileOp& op, std::mt19937_64& random) {
                  OpDim* dim = dim_of(op, random);
                  if (dim != nullptr) dim->reduced = !dim->reduced;
                  return dim != nullptr;
                }),
      op_change("dim given to lanes",
                [dim_of](TileOp& op, std::mt19937_64& random) {
                  OpDim* dim = dim_of(op, random);
                  if (dim == nullptr) return false;
                  dim->kind = pick(random, 2) == 0 ? LoopKind::gpu_lane : LoopKind::vectorize;
                  dim->parallel = true;
                  return true;
                }),
      op_change("guard dropped",
                [](TileOp& op, std::mt19937_64&) {
                  if (!op.guard.defined()) return false;
                  op.guard = IntExpr();
                  op.fill.reset();
                  return true;
                }),
      op_change("guard negated",
                [](TileOp& op, std::mt19937_64&) {
                  if (op.guard.defined()) op.guard = IntExpr::make(IntOp::logical_not, {op.guard});
                  return op.guard.defined();
                }),
      op_change("fill changed",
                [](TileOp& op, std::mt19937_64& random) {
                  if (!op.fill) return false;
                  op.fill = pick(random, 2) == 0 ? std::nullopt : std::optional<double>(3.0);
                  return true;
                }),
      op_change("kind changed",
                [](TileOp& op, std::mt19937_64& random) {
                  op.kind = static_cast<OpKind>((static_cast<int>(op.kind) + 1 + pick(random, 4)) % 5);
                  return true;
                }),
      op_change("other factors",
                [](TileOp& op, std::mt19937_64& random) {
                  if (!op.contraction) return false;
                  pick(random, 2) == 0 ? op.contraction->scale *= 2 : op.contraction->b = op.contraction->a;
                  return true;
                }),
      op_change("index moved",
                [](TileOp& op, std::mt19937_64& random) {
                  TileAccess& access = some_access(op, random);
                  if (access.index.empty()) return false;
                  IntExpr& index = access.index[static_cast<std::size_t>(pick(random, access.index.size()))];
                  index = index + IntExpr(one_up_or_down(random));
                  return true;
                }),
      op_change("indices swapped",
                [](TileOp& op, std::mt19937_64& random) {
                  TileAccess& access = some_access(op, random);
                  if (access.index.size() < 2) return false;
                  std::swap(access.index[0], access.index[1]);
                  return true;
                }),
      op_change("reads swapped",
                [](TileOp& op, std::mt19937_64&) {
                  if (op.reads.size() < 2) return false;
                  std::swap(op.reads[0], op.reads[1]);
                  return true;
                }),
      op_change("start dropped or added",
                [](TileOp& op, std::mt19937_64&) {
                  op.initialize = !op.initialize;
                  return op.reduction.has_value();
                }),
      op_change("integer moved",
                [](TileOp& op, std::mt19937_64& random) {
                  if (op.indices.empty()) return false;
                  IntExpr& index = op.indices[static_cast<std::size_t>(pick(random, op.indices.size()))];
                  index = index + IntExpr(one_up_or_down(random));
                  return true;
                }),
      op_change("reduction changed",
                [](TileOp& op, std::mt19937_64& random) {
                  if (!op.reduction) return false;
                  op.reduction = static_cast<ReductionOp>((static_cast<int>(*op.reduction) + 1 + pick(random, 3)) % 4);
                  return true;
                }),
      op_change("instance claimed elsewhere",
                [](TileOp& op, std::mt19937_64& random) {
                  if (op.claim.instance.empty()) return false;
                  IntExpr& dim = op.claim.instance[static_cast<std::size_t>(pick(random, op.claim.instance.size()))];
                  dim = dim + IntExpr(one_up_or_down(random));
                  return true;
                }),
  };
}

inline std::vector<NamedChange> tree_changes() {
  const auto not_sequence = [](const TileTree& node) { return node->kind != TileNode::Kind::sequence; };
  return {
      {"dropped",
       [=](const TileTree& node, std::mt19937_64&) -> std::optional<std::vector<TileTree>> {
         return not_sequence(node) ? std::optional<std::vector<TileTree>>(std::vector<TileTree>{}) : std::nullopt;
       }},
      {"run twice",
       [=](const TileTree& node, std::mt19937_64&) -> std::optional<std::vector<TileTree>> {
         return not_sequence(node) ? std::optional<std::vector<TileTree>>(std::vector<TileTree>{node, node}) : std::nullopt;
       }},
      {"neighbours swapped",
       [](const TileTree& node, std::mt19937_64& random) -> std::optional<std::vector<TileTree>> {
         if (node->kind != TileNode::Kind::sequence || node->children.size() < 2) return std::nullopt;
         TileNode copy = *node;
         const int k = pick(random, copy.children.size() - 1);
         std::swap(copy.children[static_cast<std::size_t>(k)], copy.children[static_cast<std::size_t>(k) + 1]);
         return one(std::move(copy));
       }},
      {"condition dropped",
       [](const TileTree& node, std::mt19937_64&) -> std::optional<std::vector<TileTree>> {
         return node->kind == TileNode::Kind::condition ? std::optional(node->children) : std::nullopt;
       }},
      {"condition negated",
       [](const TileTree& node, std::mt19937_64&) -> std::optional<std::vector<TileTree>> {
         if (node->kind != TileNode::Kind::condition) return std::nullopt;
         TileNode copy = *node;
         copy.condition = IntExpr::make(IntOp::logical_not, {copy.condition});
         return one(std::move(copy));
       }},
      loop_change("loop bound moved",
                  [](TileNode& loop, std::mt19937_64& random) {
                    IntExpr& bound = pick(random, 2) == 0 ? loop.lower : loop.upper;
                    bound = bound + IntExpr(one_up_or_down(random));
                    return true;
                  }),
      loop_change("loop shifted",
                  [](TileNode& loop, std::mt19937_64& random) {
                    const int by = one_up_or_down(random);
                    loop.lower = loop.lower + IntExpr(by);
                    loop.upper = loop.upper + IntExpr(by);
                    return true;
                  }),
      loop_change("loop step",
                  [](TileNode& loop, std::mt19937_64&) {
                    loop.step = 2;
                    return true;
                  }),
      loop_change("loop kind",
                  [](TileNode& loop, std::mt19937_64& random) {
                    const bool serial = loop.loop_kind == LoopKind::serial || loop.loop_kind == LoopKind::unroll;
                    loop.loop_kind = !serial ? LoopKind::serial : pick(random, 2) == 0 ? LoopKind::parallel : LoopKind::gpu_block;
                    return true;
                  }),
  };
}

inline int node_count(const TileTree& node) {
  int count = 1;
  for (const TileTree& child : node->children) count += node_count(child);
  return count;
}

/// The tree with the node at `position` (in preorder) replaced; nullopt when the change does not apply there.
inline std::optional<std::vector<TileTree>> with_change(const TileTree& node, int& position, const NodeChange& change,
                                                        std::mt19937_64& random) {
  if (position-- == 0) return change(node, random);
  TileNode copy = *node;
  for (std::size_t k = 0; k < copy.children.size() && position >= 0; ++k) {
    const bool here = position < node_count(copy.children[k]);
    if (!here) {
      position -= node_count(copy.children[k]);
      continue;
    }
    const auto changed = with_change(copy.children[k], position, change, random);
    if (!changed) return std::nullopt;
    const auto at = copy.children.erase(copy.children.begin() + static_cast<std::ptrdiff_t>(k));
    copy.children.insert(at, changed->begin(), changed->end());
    return one(std::move(copy));
  }
  return std::nullopt;
}

/// Changes of buffers and of the sizes that are admitted.
inline std::optional<std::string> change_declarations(TileProgram& program, std::mt19937_64& random) {
  Buffer& buffer = program.buffers[static_cast<std::size_t>(pick(random, program.buffers.size()))];
  switch (pick(random, 4)) {
    case 0:
      if (buffer.memory == Memory::argument || buffer.extents.empty()) return std::nullopt;
      buffer.extents[static_cast<std::size_t>(pick(random, buffer.extents.size()))] =
          buffer.extents[static_cast<std::size_t>(pick(random, buffer.extents.size()))] - IntExpr(1);
      return "extents of " + buffer.name;
    case 1:
      if (buffer.scope.empty()) return std::nullopt;
      buffer.scope.pop_back();
      return "scope of " + buffer.name;
    case 2:
      if (program.valid.empty()) return std::nullopt;
      program.valid.erase(program.valid.begin() + pick(random, program.valid.size()));
      return "a condition on sizes dropped";
    default:
      if (buffer.origin.empty()) return std::nullopt;
      buffer.origin[0] = buffer.origin[0] + IntExpr(1);
      return "origin of " + buffer.name;
  }
}

/// A program with one random change. Every kind of change is as likely as any other.
inline Mutant mutant_of(const TileProgram& program, std::mt19937_64& random) {
  static const std::vector<NamedChange> changes = [] {
    std::vector<NamedChange> all = tree_changes();
    for (const NamedChange& change : op_changes()) all.push_back(change);
    return all;
  }();
  for (;;) {
    Mutant mutant{program, ""};
    const int kind = pick(random, changes.size() + 1);
    if (kind == static_cast<int>(changes.size())) {
      const auto change = change_declarations(mutant.program, random);
      if (!change) continue;
      mutant.change = *change;
      return mutant;
    }
    const NamedChange& change = changes[static_cast<std::size_t>(kind)];
    for (int attempt = 0; attempt < 30; ++attempt) {
      int position = pick(random, static_cast<std::size_t>(node_count(program.root)));
      const int at = position;
      const auto changed = with_change(program.root, position, change.change, random);
      if (!changed) continue;
      TileNode root;
      root.children = *changed;
      mutant.program.root = std::make_shared<const TileNode>(std::move(root));
      mutant.change = fmt::format("{} at node {}", change.name, at);
      return mutant;
    }
  }
}

}  // namespace nestor::testing
