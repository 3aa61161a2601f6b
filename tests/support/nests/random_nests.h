// Random nests, as isl objects and as plain numbers, with every conflicting pair of instances in the original order. As they are drawn they
// serve questions of order alone; runnable_nest makes nests of them that compute.
#pragma once

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "poly/schedule/schedule.h"

namespace nestor::legality {

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

/// A number that an environment variable sets.
inline std::int64_t from_environment(const char* name, std::int64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr && *text != '\0' ? std::atoll(text) : otherwise;
}

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
  std::vector<Point> instances;  ///< in lexicographic order
};

struct ModelNest {
  std::vector<int> ranks;  ///< of the tensors
  int size = 0;            ///< value of the parameter N, which then stands for extents of this value; 0: no parameter
  std::vector<ModelStatement> statements;
};

// ---- random nests

inline Affine random_affine(Random& random, std::size_t dims) {
  Affine affine;
  for (std::size_t k = 0; k < dims; ++k) affine.coefficients.push_back(random.chance(45) ? random.between(-1, 2) : 0);
  affine.constant = random.between(-1, 1);
  return affine;
}

inline ModelAccess random_access(Random& random, const ModelNest& nest, std::size_t dims) {
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

inline void enumerate(ModelStatement& statement, Point& point) {
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

inline ModelNest random_nest(Random& random) {
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

inline std::string access_text(const ModelAccess& access, const ModelStatement& statement) {
  std::string text = fmt::format("{{ {}[{}] -> T{}[", statement.name, fmt::join(statement.dims, ", "), access.tensor);
  for (std::size_t k = 0; k < access.index.size(); ++k) text += (k > 0 ? ", " : "") + access.index[k].text(statement.dims);
  return text + "] }";
}

inline std::string domain_text(const ModelStatement& statement, int size) {
  std::string text = size > 0 ? "[N] -> " : "";
  text += fmt::format("{{ {}[{}] : 1 = 1", statement.name, fmt::join(statement.dims, ", "));
  for (std::size_t k = 0; k < statement.dims.size(); ++k) {
    const std::string extent = statement.extents[k] == size ? "N" : fmt::format("{}", statement.extents[k]);
    text += fmt::format(" and 0 <= {} < {}", statement.dims[k], extent);
  }
  for (const Affine& condition : statement.conditions) text += " and " + condition.text(statement.dims) + " >= 0";
  return text + " }";
}

inline Nest to_nest(const ModelNest& model) {
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
    const auto access = [&](const ModelAccess& a) {
      return Access{fmt::format("T{}", a.tensor), isl::map(ctx, access_text(a, from))};
    };
    Statement to{from.name,
                 from.dims,
                 isl::set(ctx, domain_text(from, model.size)),
                 access(from.write),
                 {},
                 {},
                 ScalarExpr::constant(1),
                 std::nullopt,
                 from.group};
    for (std::size_t k = 0; k < from.reads.size(); ++k) {
      to.reads.push_back(access(from.reads[k]));
      to.value = ScalarExpr::make(ScalarOp::add, {to.value, ScalarExpr::read(static_cast<int>(k), ElementType::f32)});
    }
    if (from.reduction) to.reduction = ReductionOp::add;
    nest.statements.push_back(to);
  }
  return nest;
}

// ---- nests that compute

/// The same statements on temporaries that hold every element they touch, filled from inputs before and copied to outputs after. Values
/// stay of the order of 1: sums are halved.
inline Nest runnable_nest(ModelNest model) {
  const std::size_t tensors = model.ranks.size();
  std::vector<Point> low(tensors), high(tensors);
  const auto each_access = [&](ModelStatement& statement, const auto& visit) {
    visit(statement.write);
    for (ModelAccess& read : statement.reads) visit(read);
  };
  for (std::size_t t = 0; t < tensors; ++t) {
    low[t].assign(static_cast<std::size_t>(model.ranks[t]), 0);
    high[t] = low[t];
  }
  for (ModelStatement& statement : model.statements) {
    each_access(statement, [&](ModelAccess& access) {
      const auto t = static_cast<std::size_t>(access.tensor);
      for (std::size_t d = 0; d < access.index.size(); ++d) {
        for (const Point& point : statement.instances) {
          low[t][d] = std::min(low[t][d], access.index[d].at(point));
          high[t][d] = std::max(high[t][d], access.index[d].at(point));
        }
      }
    });
  }
  for (ModelStatement& statement : model.statements) {
    each_access(statement, [&](ModelAccess& access) {
      for (std::size_t d = 0; d < access.index.size(); ++d)
        access.index[d].constant -= low[static_cast<std::size_t>(access.tensor)][d];
    });
  }
  // Statements without instances say nothing, and have no bounds.
  std::erase_if(model.statements, [](const ModelStatement& statement) { return statement.instances.empty(); });

  Nest nest = to_nest(model);
  const isl::ctx ctx = isl_context();
  std::vector<Statement> before, after;
  std::vector<Tensor> arguments;
  for (std::size_t t = 0; t < tensors; ++t) {
    Tensor& tensor = nest.tensors[t];
    std::vector<std::string> dims;
    std::string box;
    tensor.shape.clear();
    for (std::size_t d = 0; d < low[t].size(); ++d) {
      const std::int64_t extent = high[t][d] - low[t][d] + 1;
      dims.push_back(fmt::format("{}", "xy"[d]));
      box += fmt::format("{}0 <= {} < {}", d > 0 ? " and " : "", dims.back(), extent);
      tensor.shape.emplace_back(ctx, fmt::format("{{ [({})] }}", extent));
    }
    const std::string index = fmt::format("[{}]", fmt::join(dims, ", "));
    tensor.role = TensorRole::temporary;
    for (const bool first : {true, false}) {
      const std::string argument = fmt::format("{}{}", first ? "in" : "out", t), name = fmt::format("{}{}", first ? "I" : "O", t);
      arguments.push_back({argument, tensor.type, first ? TensorRole::input : TensorRole::output, tensor.shape});
      const std::string from = first ? argument : tensor.name, to = first ? tensor.name : argument;
      const auto access = [&](const std::string& touched) {
        return Access{touched, isl::map(ctx, fmt::format("{{ {}{} -> {}{} }}", name, index, touched, index))};
      };
      Statement copy{name,
                     dims,
                     isl::set(ctx, fmt::format("{{ {}{} : {} }}", name, index, box)),
                     access(to),
                     {access(from)},
                     {},
                     ScalarExpr::read(0, tensor.type),
                     std::nullopt,
                     0};
      (first ? before : after).push_back(std::move(copy));
    }
  }
  for (Statement& statement : nest.statements) {
    if (!statement.reads.empty()) statement.value = ScalarExpr::make(ScalarOp::mul, {ScalarExpr::constant(0.5), statement.value});
  }
  nest.statements.insert(nest.statements.begin(), before.begin(), before.end());
  nest.statements.insert(nest.statements.end(), after.begin(), after.end());
  nest.tensors.insert(nest.tensors.end(), arguments.begin(), arguments.end());
  int group = -1, previous = -1;
  for (std::size_t k = 0; k < nest.statements.size(); ++k) {
    // Groups of the drawn statements count from their own 0.
    Statement& statement = nest.statements[k];
    const bool drawn = k >= before.size() && k < nest.statements.size() - after.size();
    if (!drawn || statement.group != previous) ++group;
    previous = drawn ? statement.group : -1;
    statement.group = group;
  }
  nest.variant = "f32";
  return nest;
}

inline std::string describe_model(const ModelNest& nest) {
  std::string text;
  for (const ModelStatement& s : nest.statements) {
    text += fmt::format("  {} group {}{}\n    write {}\n", domain_text(s, nest.size), s.group, s.reduction ? " reduction" : "",
                        access_text(s.write, s));
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

inline std::vector<std::int64_t> element(const ModelAccess& access, const Point& point) {
  std::vector<std::int64_t> result{access.tensor};
  for (const Affine& affine : access.index) result.push_back(affine.at(point));
  return result;
}

inline std::vector<Instance> original_sequence(const ModelNest& nest) {
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
inline int conflict_kind(const ModelNest& nest, const Instance& a, const Instance& b) {
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

inline std::vector<Conflict> conflicts_of(const ModelNest& nest) {
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

}  // namespace nestor::legality
