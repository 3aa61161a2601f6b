// Random nests for tile programs: several statements over masked, banded, strided and split domains, written elements that overlap,
// temporaries, rows of reductions, sizes down to 0. All values are integers, so that sums are exact in any order.
#pragma once

#include "support/nests/random_nests.h"
#include "support/nests/sample_nests.h"

#include <array>
#include <map>
#include <string>
#include <vector>

namespace nestor::tile_property {

using legality::Random;

/// a N + b M + c, the largest index of something plus one.
struct Extent {
  int n = 0, m = 0, c = 0;
  std::string text() const { return fmt::format("{}N + {}M + {}", n, m, c); }
  void cover(const Extent& other) { n = std::max(n, other.n), m = std::max(m, other.m), c = std::max(c, other.c); }
};

struct Loop {
  std::string name;
  Extent extent;
};

struct StatementSpec {
  std::string name;
  std::vector<Loop> loops;
  std::vector<std::string> conditions;
  std::string write;
  std::vector<std::string> reads;
  ScalarExpr value;
  std::optional<ReductionOp> reduction;
  std::vector<std::string> indices;
  bool joins = false;

  std::string domain() const {
    std::string dims, text;
    for (const Loop& loop : loops) {
      dims += (dims.empty() ? "" : ", ") + loop.name;
      text += fmt::format("{}0 <= {} < {}", text.empty() ? "" : " and ", loop.name, loop.extent.text());
    }
    for (const std::string& condition : conditions) text += fmt::format("{}({})", text.empty() ? "" : " and ", condition);
    return fmt::format("{}[{}] : {}", name, dims, text.empty() ? "1 = 1" : text);
  }
};

class NestMaker {
 public:
  explicit NestMaker(Random& random) : random_(random) {}

  Nest make() {
    const int count = random_.between(1, 3);
    for (int k = 0; k < count; ++k) {
      switch (random_.below(6)) {
        case 0:
          row_sum();
          break;
        case 1:
          chain();
          break;
        default:
          plain();
          break;
      }
    }
    return build();
  }

 private:
  Extent extent(int depth) {
    if (random_.chance(depth > 3 ? 70 : 25)) return {0, 0, random_.between(1, depth > 3 ? 3 : 6)};
    Extent result = random_.chance(50) ? Extent{1, 0, 0} : Extent{0, 1, 0};
    if (random_.chance(15)) result.c = random_.between(1, 2);
    return result;
  }

  std::vector<Loop> loops(int depth) {
    std::vector<Loop> result;
    for (int k = 0; k < depth; ++k) result.push_back({std::string(1, "ijklpq"[k]), extent(depth)});
    return result;
  }

  int depth() { return random_.chance(6) ? random_.between(5, 6) : random_.chance(12) ? 4 : random_.between(1, 3); }

  std::vector<std::string> conditions(const std::vector<Loop>& around) {
    std::vector<std::string> result;
    while (result.size() < 2 && random_.chance(35)) {
      const std::string& a = random_.pick(around).name;
      const std::string& b = random_.pick(around).name;
      const int c = random_.between(0, 3);
      switch (random_.below(8)) {
        case 0:
          result.push_back(fmt::format("{} <= {} + {}", a, b, c));
          break;
        case 1:
          result.push_back(fmt::format("{0} <= {1} and {1} < {0} + {2}", a, b, c + 1));
          break;
        case 2:
          result.push_back(fmt::format("{} + {} <= N + {}", a, b, c));
          break;
        case 3:
          result.push_back(fmt::format("{} mod {} = {}", a, random_.between(2, 3), random_.between(0, 1)));
          break;
        case 4:
          result.push_back(fmt::format("{} < {} or {} > {}", a, c, b, c + 1));
          break;
        case 5:
          result.push_back(fmt::format("{} >= {}", a, c));
          break;
        case 6:
          result.push_back(fmt::format("{} < {} or {} <= {}", a, c, b, a));
          break;
        default:
          result.push_back(fmt::format("({} + {}) mod 2 = 0", a, b));
          break;
      }
    }
    return result;
  }

  /// An index that stays at or above 0, and the end of its values.
  std::pair<std::string, Extent> index(const std::vector<Loop>& around, bool injective) {
    if (around.empty()) return {"0", {0, 0, 1}};
    const Loop& a = random_.pick(around);
    const Loop& b = random_.pick(around);
    const int form = injective ? 0 : random_.below(14);
    const Extent& e = a.extent;
    const int c = random_.between(1, 2);
    switch (form) {
      case 8:
        return {fmt::format("{} + {}", a.name, c), {e.n, e.m, e.c + c}};
      case 9:
        return {fmt::format("{} - 1 - {}", e.text(), a.name), e};
      case 10:
        return {fmt::format("{} + {}", a.name, b.name), {e.n + b.extent.n, e.m + b.extent.m, e.c + b.extent.c}};
      case 11:
        return {fmt::format("{}{} + {}", c, a.name, b.name), {c * e.n + b.extent.n, c * e.m + b.extent.m, c * e.c + b.extent.c}};
      case 12:
        return {fmt::format("floor({} / {})", a.name, c + 1), e};
      case 13:
        return {fmt::format("{} mod {}", a.name, c + 1), {0, 0, c + 1}};
      default:
        return {a.name, e};
    }
  }

  std::string access(const std::string& tensor, int rank, const std::vector<Loop>& around, bool injective = false) {
    std::string text;
    std::vector<Extent>& shape = shapes_.try_emplace(tensor, static_cast<std::size_t>(rank)).first->second;
    std::vector<Loop> left = around;
    for (int k = 0; k < rank; ++k) {
      const auto [form, end] = index(left, injective);
      if (random_.chance(70)) std::erase_if(left, [&](const Loop& loop) { return loop.name == form; });
      shape[static_cast<std::size_t>(k)].cover(end);
      text += (k > 0 ? ", " : "") + form;
    }
    return fmt::format("{}[{}]", tensor, text);
  }

  std::string output() {
    const int which = random_.below(2);
    return which == 0 ? "A" : "B";
  }
  static int rank_of(const std::string& tensor) { return tensor == "A" || tensor == "X" ? 1 : 2; }

  void add_reads(StatementSpec& spec) {
    for (int k = random_.between(0, 2); k > 0; --k) {
      const std::string tensor = random_.chance(60) ? (random_.chance(50) ? "X" : "Y") : output();
      spec.reads.push_back(access(tensor, rank_of(tensor), spec.loops));
    }
  }

  void set_value(StatementSpec& spec) {
    using samples::read;
    using samples::operator+;
    spec.value = samples::number(random_.between(1, 3));
    for (int k = 0; k < static_cast<int>(spec.reads.size()); ++k) {
      spec.value = random_.chance(25) ? ScalarExpr::make(ScalarOp::max, {spec.value, read(k)}) : spec.value + read(k);
    }
    if (!spec.loops.empty() && random_.chance(40)) {
      spec.indices.push_back(random_.pick(spec.loops).name);
      spec.value = spec.value + ScalarExpr::cast(ElementType::f32, ScalarExpr::index(0));
    }
  }

  std::string fresh(const std::string& base) { return fmt::format("{}{}", base, specs_.size()); }

  void plain() {
    StatementSpec spec;
    spec.name = fresh("s");
    spec.loops = loops(depth());
    spec.joins = !specs_.empty() && random_.chance(20);
    if (spec.joins) spec.loops = specs_.back().loops;
    if (spec.loops.empty()) spec.joins = false;
    spec.conditions = conditions(spec.loops);
    const std::string target = output();
    if (random_.chance(50)) spec.reduction = random_.chance(60) ? ReductionOp::add : ReductionOp::max;
    spec.write = access(target, rank_of(target), spec.loops);
    add_reads(spec);
    set_value(spec);
    specs_.push_back(spec);
  }

  /// T = ...; then something reads T over the same points, or fewer.
  void chain() {
    StatementSpec first;
    first.name = fresh("p");
    first.loops = loops(random_.between(1, 2));
    first.conditions = conditions(first.loops);
    const std::string tensor = fresh("T");
    const int rank = static_cast<int>(first.loops.size());
    first.write = whole_access(tensor, first.loops);
    temporaries_.push_back(tensor);
    add_reads(first);
    set_value(first);
    specs_.push_back(first);
    StatementSpec second;
    second.name = fresh("c");
    second.loops = first.loops;
    second.conditions = first.conditions;
    if (rank == 1 && random_.chance(60)) second.loops.push_back({"j", extent(2)});
    if (random_.chance(40)) {
      const auto more = conditions(second.loops);
      second.conditions.insert(second.conditions.end(), more.begin(), more.end());
    }
    const std::string target = output();
    if (random_.chance(60)) second.reduction = random_.chance(70) ? ReductionOp::add : ReductionOp::max;
    second.write = access(target, rank_of(target), second.loops, random_.chance(70));
    second.reads.push_back(whole_access(tensor, first.loops));
    if (random_.chance(40)) second.reads.push_back(access("Y", 2, second.loops));
    set_value(second);
    if (second.reads.size() == 2 && second.reduction == ReductionOp::add && random_.chance(60)) {
      using samples::operator*;
      second.value = samples::read(0) * samples::read(1);
      second.indices.clear();
    }
    specs_.push_back(second);
  }

  std::string whole_access(const std::string& tensor, const std::vector<Loop>& around) {
    std::vector<Extent>& shape = shapes_.try_emplace(tensor, around.size()).first->second;
    std::string text;
    for (std::size_t k = 0; k < around.size(); ++k) {
      shape[k].cover(around[k].extent);
      text += (k > 0 ? ", " : "") + around[k].name;
    }
    return fmt::format("{}[{}]", tensor, text);
  }

  /// A sum for each row, and what uses it.
  void row_sum() {
    const std::string tensor = fresh("R");
    const std::vector<Loop> rows = loops(1);
    std::vector<Loop> all = rows;
    all.push_back({"j", extent(2)});
    const bool largest = random_.chance(30);
    StatementSpec start{fresh("z"),   rows, {},   whole_access(tensor, rows), {}, samples::number(largest ? -1e30 : 0),
                        std::nullopt, {},   false};
    specs_.push_back(start);
    StatementSpec sum{fresh("r"), all, conditions(all), whole_access(tensor, rows), {}, {}, {}, {}, false};
    sum.reduction = largest ? ReductionOp::max : ReductionOp::add;
    sum.reads.push_back(access("Y", 2, all));
    set_value(sum);
    temporaries_.push_back(tensor);
    specs_.push_back(sum);
    StatementSpec use{fresh("u"), random_.chance(50) ? all : rows, {}, "", {whole_access(tensor, rows)}, {}, {}, {}, false};
    use.conditions = conditions(use.loops);
    const std::string target = output();
    use.write = access(target, rank_of(target), use.loops, random_.chance(60));
    set_value(use);
    specs_.push_back(use);
  }

  /// Every element of an output starts with a number of its own.
  static StatementSpec start_of(const std::string& tensor, const std::vector<Extent>& shape) {
    using samples::operator+;
    StatementSpec spec;
    spec.name = "start_" + tensor;
    std::string sum = "3";
    for (std::size_t k = 0; k < shape.size(); ++k) {
      spec.loops.push_back({std::string(1, "ab"[k]), shape[k]});
      sum += fmt::format(" + {}{}", 2 * k + 1, spec.loops.back().name);
      spec.write += (k > 0 ? ", " : "") + spec.loops.back().name;
    }
    spec.write = fmt::format("{}[{}]", tensor, spec.write);
    spec.indices = {sum};
    spec.value = ScalarExpr::cast(ElementType::f32, ScalarExpr::index(0));
    return spec;
  }

  Nest build() {
    samples::NestBuilder builder("random", {{"N", 5}, {"M", 4}});
    const auto is_temporary = [&](const std::string& name) {
      return std::find(temporaries_.begin(), temporaries_.end(), name) != temporaries_.end();
    };
    std::vector<StatementSpec> all;
    for (const auto& [name, shape] : shapes_) {
      std::vector<std::string> extents;
      for (const Extent& extent : shape) extents.push_back(extent.text());
      const bool input = name == "X" || name == "Y";
      builder.tensor(name, input ? TensorRole::input : is_temporary(name) ? TensorRole::temporary : TensorRole::output, extents);
      if (!input && !is_temporary(name)) all.push_back(start_of(name, shape));
    }
    all.insert(all.end(), specs_.begin(), specs_.end());
    for (const StatementSpec& spec : all) {
      builder.statement(spec.domain(), spec.write, spec.reads, spec.value, spec.reduction, spec.indices);
      if (spec.joins) builder.join_last();
    }
    Nest nest = builder.build();
    if (random_.chance(25)) {
      nest.context = isl::set(isl_context(), "[N, M] -> { : N >= 0 and M >= 0 }");
      for (SizeParam& size : nest.sizes) size.min = 0;
    }
    return nest;
  }

  Random& random_;
  std::vector<StatementSpec> specs_;
  std::map<std::string, std::vector<Extent>> shapes_;
  std::vector<std::string> temporaries_;
};

}  // namespace nestor::tile_property
