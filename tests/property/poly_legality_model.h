// The steps once more, without isl: a tree, and numbers for every instance.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <set>

#include "support/nests/random_nests.h"

namespace nestor::legality {

struct Node {
  enum Kind { sequence, loop, leaf } kind = sequence;
  std::string name;
  LoopKind mark = LoopKind::serial;
  std::vector<std::shared_ptr<Node>> children;
};
using NodePtr = std::shared_ptr<Node>;

inline NodePtr copy_of(const NodePtr& node) {
  auto copy = std::make_shared<Node>(*node);
  for (NodePtr& child : copy->children) child = copy_of(child);
  return copy;
}

struct Misfit {};  ///< the step does not fit the tree

class Model {
 public:
  explicit Model(const ModelNest& nest) : nest_(&nest), root_(std::make_shared<Node>()) {
    for (std::size_t s = 0; s < nest.statements.size(); ++s) {
      const ModelStatement& statement = nest.statements[s];
      auto leaf = std::make_shared<Node>(Node{Node::leaf, statement.name, LoopKind::serial, {}});
      const bool joined = s > 0 && nest.statements[s - 1].group == statement.group;
      const ModelStatement& owner = nest.statements[joined ? s - 1 : s];
      const std::string prefix = joined ? owners_.back() : owner.name;
      owners_.push_back(prefix);
      NodePtr place = root_;
      for (const std::string& dim : statement.dims) {
        const std::string name = prefix + "." + dim;
        if (!joined) place->children.push_back(std::make_shared<Node>(Node{Node::loop, name, LoopKind::serial, {}}));
        place = place->children.back();
      }
      place->children.push_back(leaf);
      std::map<std::string, Point>& values = values_[statement.name];
      for (std::size_t k = 0; k < statement.dims.size(); ++k) {
        for (const Point& point : statement.instances) values[prefix + "." + statement.dims[k]].push_back(point[k]);
        values[prefix + "." + statement.dims[k]];
      }
    }
    tidy(root_);
  }

  Model copy() const {
    Model other = *this;
    other.root_ = copy_of(root_);
    return other;
  }

  std::vector<std::string> loops() const {
    std::vector<std::string> names;
    visit(root_, [&](const NodePtr& n) {
      if (n->kind == Node::loop) names.push_back(n->name);
    });
    return names;
  }

  const std::map<std::string, std::map<std::string, Point>>& values() const { return values_; }

  /// Throws Misfit.
  void apply(const Step& step) {
    const auto name = [&](std::size_t k) { return step.args.at(k).get<std::string>(); };
    const auto number = [&](std::size_t k) { return step.args.at(k).get<std::int64_t>(); };
    static const std::map<std::string, LoopKind> kMarks{{"parallel", LoopKind::parallel},    {"vectorize", LoopKind::vectorize},
                                                        {"unroll", LoopKind::unroll},        {"serial", LoopKind::serial},
                                                        {"gpu_blocks", LoopKind::gpu_block}, {"gpu_lanes", LoopKind::gpu_lane}};
    if (kMarks.count(step.name) > 0) {
      find(name(0))->mark = kMarks.at(step.name);
    } else if (step.name == "split") {
      split(name(0), number(1), name(2), name(3));
    } else if (step.name == "tile") {
      if (name(0) == name(1) || chain({name(0), name(1)}).front()->name != name(0)) throw Misfit{};
      split(name(0), number(6), name(2), name(4));
      split(name(1), number(7), name(3), name(5));
      reorder({name(2), name(3), name(4), name(5)});
    } else if (step.name == "reorder") {
      std::vector<std::string> order;
      for (std::size_t k = 0; k < step.args.size(); ++k) order.push_back(name(k));
      reorder(order);
    } else if (step.name == "skew") {
      const NodePtr outer = find(name(0)), inner = find(name(1));
      if (outer == inner || !inside(outer, inner)) throw Misfit{};
      each_instance(inner, [&](auto& loops, std::size_t k) { loops.at(inner->name)[k] += number(2) * loops.at(outer->name)[k]; });
    } else if (step.name == "shift") {
      shift(name(0), name(1), number(2));
    } else if (step.name == "reverse") {
      const NodePtr loop = find(name(0));
      each_instance(loop, [&](auto& loops, std::size_t k) { loops.at(loop->name)[k] *= -1; });
    } else if (step.name == "fuse_with") {
      fuse(find(name(0)), find(name(1)));
    } else if (step.name == "fission") {
      fission(find(name(0)), name(1));
    } else {
      FAIL() << "the model has no step " << step.name;
    }
    tidy(root_);
  }

  /// The first conflict that the order breaks, or null.
  const Conflict* broken(const std::vector<Conflict>& conflicts, bool reassociation) const {
    std::map<std::string, std::vector<std::pair<const Node*, std::size_t>>> paths;
    std::vector<std::pair<const Node*, std::size_t>> path;
    collect(root_, path, paths);
    for (const Conflict& conflict : conflicts) {
      if (breaks(conflict, paths, reassociation)) return &conflict;
    }
    return nullptr;
  }

 private:
  using Paths = std::map<std::string, std::vector<std::pair<const Node*, std::size_t>>>;

  static void visit(const NodePtr& node, const std::function<void(const NodePtr&)>& visitor) {
    visitor(node);
    for (const NodePtr& child : node->children) visit(child, visitor);
  }
  static bool inside(const NodePtr& outer, const NodePtr& inner) {
    bool found = false;
    visit(outer, [&](const NodePtr& n) { found = found || n == inner; });
    return found;
  }
  NodePtr find(const std::string& name) const {
    NodePtr found;
    visit(root_, [&](const NodePtr& n) {
      if (n->kind != Node::sequence && n->name == name) found = n;
    });
    if (!found) throw Misfit{};
    return found;
  }
  NodePtr parent(const NodePtr& node) const {
    NodePtr found;
    visit(root_, [&](const NodePtr& n) {
      if (std::count(n->children.begin(), n->children.end(), node) > 0) found = n;
    });
    return found;
  }
  /// Children of a loop or of the root stand for a body: the model keeps no inner sequences.
  static void tidy(const NodePtr& node) {
    for (std::size_t k = 0; k < node->children.size();) {
      if (node->children[k]->kind != Node::sequence) {
        tidy(node->children[k++]);
        continue;
      }
      const std::vector<NodePtr> inner = node->children[k]->children;
      node->children.erase(node->children.begin() + static_cast<std::ptrdiff_t>(k));
      node->children.insert(node->children.begin() + static_cast<std::ptrdiff_t>(k), inner.begin(), inner.end());
    }
  }
  void each_instance(const NodePtr& below, const std::function<void(std::map<std::string, Point>&, std::size_t)>& change) {
    visit(below, [&](const NodePtr& n) {
      if (n->kind != Node::leaf) return;
      const std::size_t count = instances(n->name);
      for (std::size_t k = 0; k < count; ++k) change(values_.at(n->name), k);
    });
  }
  std::size_t instances(const std::string& statement) const {
    for (const ModelStatement& s : nest_->statements) {
      if (s.name == statement) return s.instances.size();
    }
    return 0;
  }
  void rename(const NodePtr& below, const std::string& from, const std::string& to) {
    visit(below, [&](const NodePtr& n) {
      if (n->kind != Node::leaf) return;
      auto entry = values_.at(n->name).extract(from);
      entry.key() = to;
      values_.at(n->name).insert(std::move(entry));
    });
  }
  /// The loops from the outermost to the innermost of `names`, each the only child of the one before.
  std::vector<NodePtr> chain(const std::vector<std::string>& names) const {
    std::set<std::string> wanted(names.begin(), names.end());
    std::vector<NodePtr> best;
    for (const std::string& name : names) {
      std::vector<NodePtr> loops{find(name)};
      std::set<std::string> seen{name};
      while (loops.back()->children.size() == 1 && loops.back()->children[0]->kind == Node::loop &&
             !std::includes(seen.begin(), seen.end(), wanted.begin(), wanted.end())) {
        loops.push_back(loops.back()->children[0]);
        seen.insert(loops.back()->name);
      }
      if (std::includes(seen.begin(), seen.end(), wanted.begin(), wanted.end())) return loops;
    }
    throw Misfit{};
  }
  void split(const std::string& name, std::int64_t factor, const std::string& outer, const std::string& inner) {
    const NodePtr loop = find(name);
    if (loop->mark != LoopKind::serial && loop->mark != LoopKind::parallel && loop->mark != LoopKind::gpu_block) throw Misfit{};
    visit(loop, [&](const NodePtr& n) {
      if (n->kind != Node::leaf) return;
      auto& loops = values_.at(n->name);
      const Point whole = loops.at(name);
      loops.erase(name);
      Point& quotients = loops[outer];
      Point& remainders = loops[inner];
      for (const std::int64_t value : whole) {
        const std::int64_t remainder = ((value % factor) + factor) % factor;
        quotients.push_back((value - remainder) / factor);
        remainders.push_back(remainder);
      }
    });
    auto below = std::make_shared<Node>(Node{Node::loop, inner, LoopKind::serial, loop->children});
    loop->name = outer;
    loop->children = {below};
  }
  void reorder(const std::vector<std::string>& order) {
    if (std::set<std::string>(order.begin(), order.end()).size() != order.size()) throw Misfit{};
    const std::vector<NodePtr> loops = chain(order);
    std::vector<std::pair<std::string, LoopKind>> labels;
    std::size_t next = 0;
    for (const NodePtr& loop : loops) {
      const bool moves = std::count(order.begin(), order.end(), loop->name) > 0;
      const NodePtr source = moves ? find(order[next++]) : loop;
      labels.emplace_back(source->name, source->mark);
    }
    for (std::size_t k = 0; k < loops.size(); ++k) std::tie(loops[k]->name, loops[k]->mark) = labels[k];
  }
  void shift(const std::string& statement, const std::string& name, std::int64_t distance) {
    const NodePtr loop = find(name);
    if (!inside(loop, find(statement))) throw Misfit{};
    for (std::int64_t& value : values_.at(statement).at(name)) value += distance;
  }
  void fuse(const NodePtr& moved, const NodePtr& consumer) {
    const NodePtr body = parent(moved);
    if (moved == consumer || parent(consumer) != body) throw Misfit{};
    const auto at = [&](const NodePtr& n) { return std::find(body->children.begin(), body->children.end(), n); };
    const bool first = at(moved) < at(consumer);
    rename(moved, moved->name, consumer->name);
    consumer->children.insert(first ? consumer->children.begin() : consumer->children.end(), moved->children.begin(),
                              moved->children.end());
    body->children.erase(at(moved));
  }
  void fission(const NodePtr& loop, const std::string& statement) {
    const NodePtr leaf = find(statement);
    if (!inside(loop, leaf)) throw Misfit{};
    const auto cut =
        std::find_if(loop->children.begin(), loop->children.end(), [&](const NodePtr& c) { return inside(c, leaf); });
    if (cut == loop->children.begin()) throw Misfit{};
    std::string name = loop->name + "_f";
    const std::vector<std::string> taken = loops();
    while (std::count(taken.begin(), taken.end(), name) > 0) name += "_f";
    auto later = std::make_shared<Node>(Node{Node::loop, name, loop->mark, {cut, loop->children.end()}});
    loop->children.erase(cut, loop->children.end());
    rename(later, loop->name, name);
    const NodePtr body = parent(loop);
    body->children.insert(std::find(body->children.begin(), body->children.end(), loop) + 1, later);
  }
  static void collect(const NodePtr& node, std::vector<std::pair<const Node*, std::size_t>>& path, Paths& paths) {
    if (node->kind == Node::leaf) paths[node->name] = path;
    for (std::size_t k = 0; k < node->children.size(); ++k) {
      path.emplace_back(node.get(), k);
      collect(node->children[k], path, paths);
      path.pop_back();
    }
  }
  bool breaks(const Conflict& conflict, const Paths& paths, bool reassociation) const {
    const std::string& a = nest_->statements[conflict.first.statement].name;
    const std::string& b = nest_->statements[conflict.second.statement].name;
    const auto& path_a = paths.at(a);
    const auto& path_b = paths.at(b);
    const bool free = conflict.accumulation && reassociation;
    for (std::size_t k = 0; k < path_a.size() && k < path_b.size(); ++k) {
      const Node& node = *path_a[k].first;
      if (node.kind == Node::loop) {
        const std::int64_t before = values_.at(a).at(node.name)[conflict.first.index];
        const std::int64_t after = values_.at(b).at(node.name)[conflict.second.index];
        if (before != after) {
          const bool tasks = node.mark == LoopKind::parallel || node.mark == LoopKind::gpu_block;
          const bool lanes = !tasks && node.mark != LoopKind::serial && node.mark != LoopKind::unroll;
          if (free) return tasks || (lanes && moves_write(nest_->statements[conflict.first.statement], node.name));
          if (node.mark != LoopKind::serial && node.mark != LoopKind::unroll) return true;
          return after < before;
        }
      }
      if (path_a[k].second != path_b[k].second) return !free && path_b[k].second < path_a[k].second;
    }
    return false;
  }

  /// Do two instances that differ in this loop alone write different elements?
  bool moves_write(const ModelStatement& statement, const std::string& loop) const {
    const std::map<std::string, Point>& values = values_.at(statement.name);
    std::map<Point, std::vector<std::int64_t>> written;
    for (std::size_t k = 0; k < statement.instances.size(); ++k) {
      Point others;
      for (const auto& [name, numbers] : values) {
        if (name != loop) others.push_back(numbers[k]);
      }
      const auto at = element(statement.write, statement.instances[k]);
      if (written.try_emplace(others, at).first->second != at) return true;
    }
    return false;
  }

  const ModelNest* nest_;
  NodePtr root_;
  std::map<std::string, std::map<std::string, Point>> values_;  ///< statement -> loop -> value of each instance
  std::vector<std::string> owners_;
};

}  // namespace nestor::legality
