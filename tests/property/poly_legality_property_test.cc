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

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>

#include "poly/algebra/rule.h"
#include "poly/schedule.h"
#include "support/error.h"

namespace nestor {
namespace {

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed * 0x9E3779B97F4A7C15ull + 1) {}
  int below(int bound) { return static_cast<int>(engine_() % static_cast<std::uint64_t>(bound)); }
  int between(int low, int high) { return low + below(high - low + 1); }
  bool chance(int percent) { return below(100) < percent; }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[static_cast<std::size_t>(below(static_cast<int>(from.size())))];
  }

 private:
  std::mt19937_64 engine_;
};

using Point = std::vector<std::int64_t>;

/// sum(coefficient * dim) + constant.
struct Affine {
  Point coefficients;
  std::int64_t constant = 0;
  std::int64_t at(const Point& point) const {
    std::int64_t sum = constant;
    for (std::size_t k = 0; k < point.size(); ++k) sum += coefficients[k] * point[k];
    return sum;
  }
  std::string text(const std::vector<std::string>& dims) const {
    std::string result = fmt::format("{}", constant);
    for (std::size_t k = 0; k < dims.size(); ++k) result += fmt::format(" + {}{}", coefficients[k], dims[k]);
    return result;
  }
};

struct ModelAccess {
  int tensor;
  std::vector<Affine> index;
};

struct ModelStatement {
  std::string name;
  std::vector<std::string> dims;
  std::vector<int> extents;
  std::vector<Affine> conditions;  ///< each >= 0
  ModelAccess write;
  std::vector<ModelAccess> reads;
  bool reduction = false;
  int group = 0;
  std::vector<Point> instances;    ///< in lexicographic order
};

struct ModelNest {
  std::vector<int> ranks;  ///< of the tensors
  int size = 0;            ///< value of the parameter N, which then stands for extents of this value; 0: no parameter
  std::vector<ModelStatement> statements;
};

// ---- random nests

Affine random_affine(Random& random, std::size_t dims) {
  Affine affine;
  for (std::size_t k = 0; k < dims; ++k) affine.coefficients.push_back(random.chance(45) ? random.between(-1, 2) : 0);
  affine.constant = random.between(-1, 1);
  return affine;
}

ModelAccess random_access(Random& random, const ModelNest& nest, std::size_t dims) {
  ModelAccess access{random.below(static_cast<int>(nest.ranks.size())), {}};
  for (int k = 0; k < nest.ranks[static_cast<std::size_t>(access.tensor)]; ++k) {
    if (dims > 0 && random.chance(60)) {  // plain dims, with small offsets: dependences with structure
      Affine affine{Point(dims, 0), random.chance(50) ? 0 : random.between(-1, 1)};
      affine.coefficients[static_cast<std::size_t>(random.below(static_cast<int>(dims)))] = 1;
      access.index.push_back(affine);
    } else {
      access.index.push_back(random_affine(random, dims));
    }
  }
  return access;
}

void enumerate(ModelStatement& statement, Point& point) {
  if (point.size() < statement.extents.size()) {
    for (int value = 0; value < statement.extents[point.size()]; ++value) {
      point.push_back(value);
      enumerate(statement, point);
      point.pop_back();
    }
    return;
  }
  for (const Affine& condition : statement.conditions) {
    if (condition.at(point) < 0) return;
  }
  statement.instances.push_back(point);
}

ModelNest random_nest(Random& random) {
  ModelNest nest;
  for (int k = random.between(1, 2); k > 0; --k) nest.ranks.push_back(random.between(1, 2));
  if (random.chance(25)) nest.size = random.between(2, 4);
  const int count = random.between(1, 3);
  for (int s = 0; s < count; ++s) {
    ModelStatement statement;
    statement.name = fmt::format("S{}", s);
    statement.group = s;
    const bool joins = s > 0 && random.chance(25);
    int depth = random.chance(15) ? 4 : random.between(s == 0 ? 1 : 0, 3);
    if (joins) depth = static_cast<int>(nest.statements.back().dims.size());
    for (int k = 0; k < depth; ++k) {
      statement.dims.push_back(fmt::format("{}", "ijkl"[k]));
      statement.extents.push_back(depth == 4 ? random.between(1, 2) : random.between(1, depth == 3 ? 3 : 5));
    }
    if (joins) statement.group = nest.statements.back().group;
    if (depth > 1 && random.chance(25)) {
      Affine condition = random_affine(random, statement.dims.size());
      condition.constant = random.between(0, 2);
      statement.conditions.push_back(condition);
    }
    statement.write = random_access(random, nest, statement.dims.size());
    statement.reduction = random.chance(40);
    for (int k = random.between(0, 2); k > 0; --k) statement.reads.push_back(random_access(random, nest, statement.dims.size()));
    Point point;
    enumerate(statement, point);
    nest.statements.push_back(statement);
  }
  return nest;
}

std::string access_text(const ModelAccess& access, const ModelStatement& statement) {
  std::string text = fmt::format("{{ {}[{}] -> T{}[", statement.name, fmt::join(statement.dims, ", "), access.tensor);
  for (std::size_t k = 0; k < access.index.size(); ++k) text += (k > 0 ? ", " : "") + access.index[k].text(statement.dims);
  return text + "] }";
}

std::string domain_text(const ModelStatement& statement, int size) {
  std::string text = size > 0 ? "[N] -> " : "";
  text += fmt::format("{{ {}[{}] : 1 = 1", statement.name, fmt::join(statement.dims, ", "));
  for (std::size_t k = 0; k < statement.dims.size(); ++k) {
    const std::string extent = statement.extents[k] == size ? "N" : fmt::format("{}", statement.extents[k]);
    text += fmt::format(" and 0 <= {} < {}", statement.dims[k], extent);
  }
  for (const Affine& condition : statement.conditions) text += " and " + condition.text(statement.dims) + " >= 0";
  return text + " }";
}

Nest to_nest(const ModelNest& model) {
  const isl::ctx ctx = isl_context();
  Nest nest;
  nest.op = "random";
  nest.context = isl::set(ctx, model.size > 0 ? fmt::format("[N] -> {{ : N = {} }}", model.size) : "{ : }");
  if (model.size > 0) nest.sizes.push_back({"N", 1, std::nullopt, false, model.size});
  for (std::size_t k = 0; k < model.ranks.size(); ++k) {
    Tensor tensor{fmt::format("T{}", k), ElementType::f32, TensorRole::output, {}};
    for (int d = 0; d < model.ranks[k]; ++d) tensor.shape.emplace_back(ctx, "{ [(100)] }");
    nest.tensors.push_back(tensor);
  }
  for (const ModelStatement& from : model.statements) {
    const auto access = [&](const ModelAccess& a) { return Access{fmt::format("T{}", a.tensor), isl::map(ctx, access_text(a, from))}; };
    Statement to{from.name, from.dims, isl::set(ctx, domain_text(from, model.size)), access(from.write), {}, {}, ScalarExpr::constant(1), std::nullopt, from.group};
    for (std::size_t k = 0; k < from.reads.size(); ++k) {
      to.reads.push_back(access(from.reads[k]));
      to.value = ScalarExpr::make(ScalarOp::add, {to.value, ScalarExpr::read(static_cast<int>(k), ElementType::f32)});
    }
    if (from.reduction) to.reduction = ReductionOp::add;
    nest.statements.push_back(to);
  }
  return nest;
}

std::string describe_model(const ModelNest& nest) {
  std::string text;
  for (const ModelStatement& s : nest.statements) {
    text += fmt::format("  {} group {}{}\n    write {}\n", domain_text(s, nest.size), s.group, s.reduction ? " reduction" : "", access_text(s.write, s));
    for (const ModelAccess& read : s.reads) text += "    read  " + access_text(read, s) + "\n";
  }
  return text;
}

// ---- conflicting pairs, in the original order

struct Instance {
  std::size_t statement;
  std::size_t index;
};

struct Conflict {
  Instance first, second;
  bool accumulation;  ///< nothing but the same reduction's updates of one element
};

std::vector<std::int64_t> element(const ModelAccess& access, const Point& point) {
  std::vector<std::int64_t> result{access.tensor};
  for (const Affine& affine : access.index) result.push_back(affine.at(point));
  return result;
}

std::vector<Instance> original_sequence(const ModelNest& nest) {
  std::vector<Instance> order;
  for (std::size_t s = 0; s < nest.statements.size(); ++s) {
    for (std::size_t k = 0; k < nest.statements[s].instances.size(); ++k) order.push_back({s, k});
  }
  const auto key = [&](const Instance& i) {
    const ModelStatement& s = nest.statements[i.statement];
    return std::make_tuple(s.group, s.instances[i.index], i.statement);
  };
  std::sort(order.begin(), order.end(), [&](const Instance& a, const Instance& b) { return key(a) < key(b); });
  return order;
}

/// 0: none, 1: accumulation only, 2: ordinary.
int conflict_kind(const ModelNest& nest, const Instance& a, const Instance& b) {
  const ModelStatement& s = nest.statements[a.statement];
  const ModelStatement& t = nest.statements[b.statement];
  const auto written_s = element(s.write, s.instances[a.index]);
  const auto written_t = element(t.write, t.instances[b.index]);
  for (const ModelAccess& read : s.reads) {
    if (element(read, s.instances[a.index]) == written_t) return 2;
  }
  for (const ModelAccess& read : t.reads) {
    if (element(read, t.instances[b.index]) == written_s) return 2;
  }
  if (written_s != written_t) return 0;
  return a.statement == b.statement && s.reduction ? 1 : 2;
}

std::vector<Conflict> conflicts_of(const ModelNest& nest) {
  const std::vector<Instance> order = original_sequence(nest);
  std::vector<Conflict> conflicts;
  for (std::size_t a = 0; a < order.size(); ++a) {
    for (std::size_t b = a + 1; b < order.size(); ++b) {
      const int kind = conflict_kind(nest, order[a], order[b]);
      if (kind != 0) conflicts.push_back({order[a], order[b], kind == 1});
    }
  }
  return conflicts;
}

// ---- the model of steps: a mutable tree, and every instance's value of every loop around it

struct Node {
  enum Kind { sequence, loop, leaf } kind = sequence;
  std::string name;
  LoopKind mark = LoopKind::serial;
  std::vector<std::shared_ptr<Node>> children;
};
using NodePtr = std::shared_ptr<Node>;

NodePtr copy_of(const NodePtr& node) {
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
    visit(root_, [&](const NodePtr& n) { if (n->kind == Node::loop) names.push_back(n->name); });
    return names;
  }

  const std::map<std::string, std::map<std::string, Point>>& values() const { return values_; }

  /// Throws Misfit.
  void apply(const Step& step) {
    const auto name = [&](std::size_t k) { return step.args.at(k).get<std::string>(); };
    const auto number = [&](std::size_t k) { return step.args.at(k).get<std::int64_t>(); };
    static const std::map<std::string, LoopKind> kMarks{
        {"parallel", LoopKind::parallel}, {"vectorize", LoopKind::vectorize}, {"unroll", LoopKind::unroll}, {"serial", LoopKind::serial},
        {"gpu_blocks", LoopKind::gpu_block}, {"gpu_warps", LoopKind::gpu_warp}, {"gpu_lanes", LoopKind::gpu_lane}};
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
    visit(root_, [&](const NodePtr& n) { if (n->kind != Node::sequence && n->name == name) found = n; });
    if (!found) throw Misfit{};
    return found;
  }
  NodePtr parent(const NodePtr& node) const {
    NodePtr found;
    visit(root_, [&](const NodePtr& n) { if (std::count(n->children.begin(), n->children.end(), node) > 0) found = n; });
    return found;
  }
  /// Children of a loop or of the root stand for a body: the model keeps no inner sequences.
  static void tidy(const NodePtr& node) {
    for (std::size_t k = 0; k < node->children.size();) {
      if (node->children[k]->kind != Node::sequence) { tidy(node->children[k++]); continue; }
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
      while (loops.back()->children.size() == 1 && loops.back()->children[0]->kind == Node::loop && !std::includes(seen.begin(), seen.end(), wanted.begin(), wanted.end())) {
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
    consumer->children.insert(first ? consumer->children.begin() : consumer->children.end(), moved->children.begin(), moved->children.end());
    body->children.erase(at(moved));
  }
  void fission(const NodePtr& loop, const std::string& statement) {
    const NodePtr leaf = find(statement);
    if (!inside(loop, leaf)) throw Misfit{};
    const auto cut = std::find_if(loop->children.begin(), loop->children.end(), [&](const NodePtr& c) { return inside(c, leaf); });
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
          if (free) return tasks;
          if (node.mark != LoopKind::serial && node.mark != LoopKind::unroll) return true;
          return after < before;
        }
      }
      if (path_a[k].second != path_b[k].second) return !free && path_b[k].second < path_a[k].second;
    }
    return false;
  }

  const ModelNest* nest_;
  NodePtr root_;
  std::map<std::string, std::map<std::string, Point>> values_;  ///< statement -> loop -> value of each instance
  std::vector<std::string> owners_;
};

// ---- random steps

Step random_step(Random& random, const Model& model, const ModelNest& nest, int& fresh) {
  const std::vector<std::string> loops = model.loops();
  if (loops.empty()) return {"split", {"none", 2, "a", "b"}};
  const auto loop = [&] { return nlohmann::json(random.pick(loops)); };
  std::vector<std::string> together;  // the loops of one statement: these may form chains
  for (const auto& [own, values] : model.values().at(random.pick(nest.statements).name)) together.push_back(own);
  if (together.empty() || random.chance(10)) together = loops;
  const auto near = [&] { return nlohmann::json(random.pick(together)); };
  const auto statement = [&] { return nlohmann::json(random.pick(nest.statements).name); };
  const auto name = [&] { return nlohmann::json(fmt::format("n{}", fresh++)); };
  switch (random.below(17)) {
    case 0: case 1: return {"split", {loop(), random.between(1, 4), name(), name()}};
    case 2: return {"tile", {near(), near(), name(), name(), name(), name(), random.between(1, 3), random.between(1, 3)}};
    case 3: case 4: return {"reorder", {near(), near()}};
    case 5: return {"reorder", {near(), near(), near()}};
    case 6: case 7: case 16: return {"fuse_with", {loop(), loop()}};
    case 8: return {"fission", {near(), statement()}};
    case 9: return {"skew", {near(), near(), random.between(-2, 2)}};
    case 10: return {"shift", {statement(), near(), random.between(-2, 2)}};
    case 11: return {"reverse", {loop()}};
    case 12: return {"parallel", {loop()}};
    case 13: return {"vectorize", {loop()}};
    case 14: return {random.chance(50) ? "serial" : "unroll", {loop()}};
    default: return {random.pick(std::vector<std::string>{"gpu_blocks", "gpu_warps", "gpu_lanes"}), {loop()}};
  }
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

const char* text(Verdict verdict) { return verdict == Verdict::legal ? "legal" : verdict == Verdict::illegal ? "illegal" : "misfit"; }

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
    const isl::map relation = schedule.loop_relation(statement.name).intersect_params(schedule.nest().context).project_out_all_params();
    std::string expected;
    const std::vector<std::string> loops = schedule.loops_of(statement.name);
    for (std::size_t k = 0; k < statement.instances.size(); ++k) {
      Point at;
      for (const std::string& loop : loops) at.push_back(model.values().at(statement.name).at(loop)[k]);
      expected += fmt::format("{}{}[{}] -> [{}]", k > 0 ? "; " : "", statement.name, fmt::join(statement.instances[k], ", "), fmt::join(at, ", "));
    }
    const isl::union_map all(isl_context(), "{ " + expected + " }");
    EXPECT_TRUE(isl::union_map(relation).is_equal(all)) << relation << "\nexpected " << all;
  }
}

/// compute_at chooses loops by itself, so the model cannot follow: what it accepts must be sound by the numbers isl gives.
void check_compute_at(const Schedule& schedule, const ModelNest& nest, const std::vector<Conflict>& conflicts, bool reassociation);

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
  const bool any = std::any_of(nest.statements.begin(), nest.statements.end(), [](const ModelStatement& s) { return s.reduction; });
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
                                               << describe_model(nest) << history << "  then " << describe(step) << "\n" << message << "\n" << schedule.str();
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
  for (std::size_t k = 0; k < instance.size(); ++k) one = isl_map_fix_si(one, isl_dim_in, static_cast<unsigned>(k), static_cast<int>(instance[k]));
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

void check_compute_at(const Schedule& schedule, const ModelNest& nest, const std::vector<Conflict>& conflicts, bool reassociation) {
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
              if (x != y) { decided = true; before = serial && x < y; break; }
              ++depth;
            }
            if (a[k].second != b[k].second) { decided = true; before = a[k].second < b[k].second; }
          }
          ASSERT_TRUE(before) << describe_model(nest) << "compute_at(" << statement.name << ", " << loop << ")\n" << after.str();
        }
      }
    }
  }
}

std::int64_t from_environment(const char* name, std::int64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr && *text != '\0' ? std::atoll(text) : otherwise;
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
              static_cast<long long>(totals.legal), static_cast<long long>(totals.illegal), static_cast<long long>(totals.misfit));
  if (cases >= 100) {
    EXPECT_GT(totals.legal, cases / 4);
    EXPECT_GT(totals.illegal, cases / 20);
  }
}

}  // namespace
}  // namespace nestor
