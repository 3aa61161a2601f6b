// Random operators over rows and columns with symbolic sizes: maps, masked reductions, scans, windows, scattered sums, products, casts,
// in chains as real operators have them.
#pragma once

#include "support/nests/random_nests.h"
#include "support/nests/sample_nests.h"

#include <map>
#include <string>
#include <vector>

namespace nestor::samples {

/// Draws one operator. Every nest is valid (validate), computes numbers of moderate size from numbers of the order of 1, and has an output
/// for what it computed last.
class RandomOperator {
 public:
  explicit RandomOperator(std::uint64_t seed) : random_(seed), builder_("random_operator", {{"R", 24}, {"C", 40}, {"D", 8}}) {}

  Nest draw() {
    static const std::vector<ElementType> kTypes{ElementType::f32, ElementType::f32, ElementType::f16, ElementType::bf16};
    type_ = random_.pick(kTypes);
    input("x", Place::element);
    if (random_.chance(30)) input("z", Place::element);
    if (random_.chance(40)) input("w", Place::column);
    if (random_.chance(40)) input("h", Place::row);
    for (int stages = random_.between(1, 4); stages > 0; --stages) stage();
    output();
    Nest nest = builder_.build();
    nest.variant = std::string(to_string(type_));
    nest.tolerance = type_ == ElementType::f32 ? 1e-4 : 2e-2;
    return nest;
  }

 private:
  enum class Place { element, row, column };  ///< [i, j], [i], [j]
  struct Value {
    std::string tensor;
    Place place;
    ElementType type;
  };

  static std::string domain(Place place) {
    return place == Place::element ? "i, j] : 0 <= i < R and 0 <= j < C"
           : place == Place::row   ? "i] : 0 <= i < R"
                                   : "j] : 0 <= j < C";
  }
  static std::string index(Place place) { return place == Place::element ? "[i, j]" : place == Place::row ? "[i]" : "[j]"; }
  static std::vector<std::string> shape(Place place) {
    return place == Place::element ? std::vector<std::string>{"R", "C"}
                                   : std::vector<std::string>{place == Place::row ? "R" : "C"};
  }
  std::string fresh(const char* prefix) { return fmt::format("{}{}", prefix, count_++); }

  void input(const std::string& name, Place place) {
    builder_.tensor(name, TensorRole::input, shape(place), type_);
    values_.push_back({name, place, type_});
  }
  std::string temporary(Place place) {
    const std::string name = fresh("t");
    builder_.tensor(name, TensorRole::temporary, shape(place));
    return name;
  }

  /// Reads of a statement over i and j (or one of them) as they are collected.
  struct Reads {
    std::vector<std::string> accesses;
    ScalarExpr add(const std::string& access, ElementType type) {
      accesses.push_back(access);
      const ScalarExpr value = read(static_cast<int>(accesses.size()) - 1, type);
      return type == ElementType::f32 ? value : ScalarExpr::cast(ElementType::f32, value);
    }
  };

  /// A value at [i, j], sometimes at another element of the same tensor.
  ScalarExpr leaf(Reads& reads) {
    const Value& value = random_.pick(values_);
    std::string at = index(value.place);
    if (value.place == Place::element && random_.chance(20)) {
      static const std::vector<std::string> kElsewhere{"[i, C - 1 - j]", "[R - 1 - i, j]", "[i, floor(j/2)]", "[floor(i/3), j]"};
      at = random_.pick(kElsewhere);
    }
    return reads.add(value.tensor + at, value.type);
  }

  ScalarExpr expression(Reads& reads) {
    ScalarExpr value = leaf(reads);
    for (int terms = random_.between(0, 2); terms > 0; --terms) {
      const ScalarExpr other = leaf(reads);
      switch (random_.below(6)) {
        case 0:
          value = value * number(0.5) + other;
          break;
        case 1:
          value = value - other;
          break;
        case 2:
          value = value * number(0.5) * other;
          break;
        case 3:
          value = ScalarExpr::make(random_.chance(50) ? ScalarOp::max : ScalarOp::min, {value, other});
          break;
        case 4:
          value = ScalarExpr::make(ScalarOp::select, {ScalarExpr::make(ScalarOp::lt, {number(0.25), other}), value, number(0.5)});
          break;
        default:
          value = value + other * number(0.25);
      }
    }
    switch (random_.below(8)) {
      case 0:
        return apply(ScalarOp::exp, value * number(0.125));
      case 1:
        return apply(ScalarOp::tanh, value);
      case 2:
        return apply(ScalarOp::abs, value);
      case 3:
        return random_.chance(50) ? ScalarExpr::cast(ElementType::f32, ScalarExpr::cast(ElementType::f16, value))
                                  : number(-1) * value;
      default:
        return value;
    }
  }

  /// A condition on columns that a row sees; "" for all.
  std::string mask() {
    static const std::vector<std::string> kMasks{
        "", "", "", " and j <= i", " and i <= j < i + 3", " and j >= 2", " and j < 5", " and j > i", " and j <= 2i + 1"};
    return random_.pick(kMasks);
  }

  void stage() {
    switch (random_.below(10)) {
      case 0:
      case 1:
        return map();
      case 2:
      case 3:
        return reduce(Place::row);
      case 4:
        return reduce(Place::column);
      case 5:
        return normalise();
      case 6:
        return scan();
      case 7:
        return window();
      case 8:
        return scatter();
      default:
        return random_.chance(50) ? moments() : product();
    }
  }

  void map() {
    Reads reads;
    const ScalarExpr value = expression(reads);
    const std::string to = temporary(Place::element), name = fresh("S");
    builder_.statement(name + "[" + domain(Place::element), to + "[i, j]", reads.accesses, value);
    values_.push_back({to, Place::element, ElementType::f32});
  }

  /// An accumulator of rows or columns, its start and its update over the elements that `condition` leaves.
  std::string accumulate(Place place, ReductionOp op, const std::vector<std::string>& reads, const ScalarExpr& term,
                         const std::string& condition) {
    const double start = op == ReductionOp::max   ? -infinity()
                         : op == ReductionOp::min ? infinity()
                         : op == ReductionOp::mul ? 1
                                                  : 0;
    const std::string to = temporary(place), name = fresh("S");
    builder_.statement(name + "_init[" + domain(place), to + index(place), {}, number(start));
    builder_.statement(name + "[" + domain(Place::element) + condition, to + index(place), reads, term, op);
    return to;
  }

  void reduce(Place place) {
    Reads reads;
    const ScalarExpr term = expression(reads);
    const bool extremum = random_.chance(30);
    const ReductionOp op = !extremum ? ReductionOp::add : random_.chance(50) ? ReductionOp::max : ReductionOp::min;
    // Extrema of nothing are infinite, which spreads: those see every element.
    const std::string to = accumulate(place, op, reads.accesses, term, extremum ? "" : mask());
    values_.push_back({to, place, ElementType::f32});
  }

  /// exp(x - largest) / sum, the sum over a mask.
  void normalise() {
    Reads first;
    const ScalarExpr score = expression(first);
    const std::string scores = temporary(Place::element), name = fresh("S");
    builder_.statement(name + "[" + domain(Place::element), scores + "[i, j]", first.accesses, score);
    const std::string condition = random_.chance(50) ? "" : " and j <= i";
    const std::string largest = accumulate(Place::row, ReductionOp::max, {scores + "[i, j]"}, read(0), condition);
    const std::string weights = temporary(Place::element);
    builder_.statement(fresh("S") + "[" + domain(Place::element) + condition, weights + "[i, j]",
                       {scores + "[i, j]", largest + "[i]"}, apply(ScalarOp::exp, read(0) - read(1)));
    const std::string total = accumulate(Place::row, ReductionOp::add, {weights + "[i, j]"}, read(0), condition);
    values_.push_back({total, Place::row, ElementType::f32});
    if (!condition.empty()) return;  // weights of the others are not written
    const std::string result = temporary(Place::element);
    builder_.statement(fresh("S") + "[" + domain(Place::element), result + "[i, j]", {weights + "[i, j]", total + "[i]"},
                       read(0) / read(1));
    values_.push_back({result, Place::element, ElementType::f32});
  }

  void scan() {
    const Value from = element();
    const std::string to = temporary(Place::element), name = fresh("S");
    const auto value = [&](int k) {
      return from.type == ElementType::f32 ? read(k) : ScalarExpr::cast(ElementType::f32, read(k, from.type));
    };
    if (random_.chance(50)) {  // as a recurrence
      builder_.statement(name + "_first[i] : 0 <= i < R and C >= 1", to + "[i, 0]", {from.tensor + "[i, 0]"}, value(0));
      builder_.statement(name + "[i, j] : 0 <= i < R and 1 <= j < C", to + "[i, j]", {to + "[i, j - 1]", from.tensor + "[i, j]"},
                         read(0) * number(0.5) + value(1));
    } else {
      partial_sums(name, to, from.tensor, value(0));
    }
    values_.push_back({to, Place::element, ElementType::f32});
  }

  /// What lies before or behind each element of its row, itself included or not: some have nothing there and keep their start.
  void partial_sums(const std::string& name, const std::string& to, const std::string& from, const ScalarExpr& value) {
    static const std::vector<std::string> kSeen{"0 <= k <= j", "0 <= k < j", "j <= k < C", "j < k < C",
                                                "j < k < C and k < j + 5"};
    const bool largest = random_.chance(30);
    builder_.statement(name + "_init[" + domain(Place::element), to + "[i, j]", {}, number(largest ? -1 : 0));
    builder_.statement(name + "[i, j, k] : 0 <= i < R and 0 <= j < C and " + random_.pick(kSeen), to + "[i, j]",
                       {from + "[i, k]"}, value, largest ? ReductionOp::max : ReductionOp::add);
  }

  void window() {
    const Value from = element();
    const std::string to = temporary(Place::element), name = fresh("S");
    const ScalarExpr value = from.type == ElementType::f32 ? read(0) : ScalarExpr::cast(ElementType::f32, read(0, from.type));
    const int reach = random_.between(1, 3), stride = random_.chance(25) ? 2 : 1;
    builder_.statement(name + "_init[" + domain(Place::element), to + "[i, j]", {}, number(0));
    const std::string at = fmt::format("{}j + k - 1", stride);
    builder_.statement(fmt::format("{}[i, j, k] : 0 <= i < R and 0 <= j < C and 0 <= k <= {} and 0 <= {} < C", name, reach, at),
                       to + "[i, j]", {from.tensor + "[i, " + at + "]"}, value * number(0.5), ReductionOp::add);
    values_.push_back({to, Place::element, ElementType::f32});
  }

  /// Sums into elements that several instances share.
  void scatter() {
    const Value from = element();
    const std::string to = temporary(Place::column), name = fresh("S");
    const ScalarExpr value = from.type == ElementType::f32 ? read(0) : ScalarExpr::cast(ElementType::f32, read(0, from.type));
    static const std::vector<std::string> kTargets{"[floor(j/3)]", "[floor(j/2)]", "[j - (j mod 4)]"};
    builder_.statement(name + "_init[" + domain(Place::column), to + "[j]", {}, number(0));
    if (random_.chance(30)) {
      builder_.statement(name + "[" + domain(Place::element) + " and i + j < C", to + "[i + j]", {from.tensor + "[i, j]"},
                         value * number(0.5), ReductionOp::add);
    } else {
      builder_.statement(name + "[" + domain(Place::element), to + random_.pick(kTargets), {from.tensor + "[i, j]"},
                         value * number(0.25), ReductionOp::add);
    }
    values_.push_back({to, Place::column, ElementType::f32});
  }

  /// Sum and sum of squares of what a row sees, and the deviation from the mean.
  void moments() {
    const Value from = element();
    const ScalarExpr value = from.type == ElementType::f32 ? read(0) : ScalarExpr::cast(ElementType::f32, read(0, from.type));
    static const std::vector<std::string> kSeen{"", " and j <= i", " and i <= j < i + 4"};
    const std::string condition = random_.pick(kSeen);
    const std::string sum = accumulate(Place::row, ReductionOp::add, {from.tensor + "[i, j]"}, value, condition);
    const std::string mean = temporary(Place::row);
    builder_.statement(fresh("S") + "[" + domain(Place::row), mean + "[i]", {sum + "[i]"}, read(0) * number(1.0 / 16));
    const ScalarExpr distance = value - read(1);
    const std::string squares =
        accumulate(Place::row, ReductionOp::add, {from.tensor + "[i, j]", mean + "[i]"}, distance * distance, condition);
    values_.push_back({mean, Place::row, ElementType::f32});
    values_.push_back({squares, Place::row, ElementType::f32});
  }

  void product() {
    const Value from = element();
    const std::string weights = fresh("v"), sums = fresh("t"), to = temporary(Place::row), name = fresh("S");
    builder_.tensor(weights, TensorRole::input, {"C", "D"}, type_).tensor(sums, TensorRole::temporary, {"R", "D"});
    const auto value = [&](int k, ElementType type) {
      return type == ElementType::f32 ? read(k) : ScalarExpr::cast(ElementType::f32, read(k, type));
    };
    builder_.statement(name + "_init[i, d] : 0 <= i < R and 0 <= d < D", sums + "[i, d]", {}, number(0));
    builder_.statement(name + "[i, d, j] : 0 <= i < R and 0 <= d < D and 0 <= j < C", sums + "[i, d]",
                       {from.tensor + "[i, j]", weights + "[j, d]"}, value(0, from.type) * value(1, type_), ReductionOp::add);
    builder_.statement(name + "_none[i] : 0 <= i < R", to + "[i]", {}, number(0));
    builder_.statement(name + "_total[i, d] : 0 <= i < R and 0 <= d < D", to + "[i]", {sums + "[i, d]"}, read(0) * number(0.125),
                       ReductionOp::add);
    values_.push_back({to, Place::row, ElementType::f32});
  }

  /// One of the values over rows and columns.
  Value element() {
    std::vector<Value> all;
    for (const Value& value : values_) {
      if (value.place == Place::element) all.push_back(value);
    }
    return random_.pick(all);
  }

  /// What was computed last, together with an input.
  void output() {
    const Value last = values_.back();
    const Place place = random_.chance(60) ? Place::element : last.place;
    Reads reads;
    ScalarExpr value = reads.add(last.tensor + index(last.place), last.type);
    if (place == Place::element) value = value + number(0.5) * reads.add("x[i, j]", type_);
    if (type_ != ElementType::f32) value = ScalarExpr::cast(type_, value);
    builder_.tensor("y", TensorRole::output, shape(place), type_);
    builder_.statement("y[" + domain(place), "y" + index(place), reads.accesses, value);
  }

  legality::Random random_;
  NestBuilder builder_;
  ElementType type_ = ElementType::f32;
  std::vector<Value> values_;
  int count_ = 0;
};

}  // namespace nestor::samples
