// Random changes of a nest: what the definition might have said instead. Rules must see each difference that matters to them.
#pragma once

#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest.h"
#include "support/error.h"
#include "support/nests/dice.h"
#include "support/nests/sample_nests.h"

namespace nestor::samples {

/// Draws changes of a nest. Each is a nest that `validate` may refuse; nullopt where the draw has no place.
class NestMutation {
 public:
  NestMutation(const Nest& nest, Dice& dice) : nest_(nest), dice_(dice) {}

  std::optional<Nest> draw() {
    switch (dice_.below(14)) {
      case 0:
      case 1:
      case 2:
        return other_value();
      case 3:
        return guarded_statement();
      case 4:
        return guarded_dims();
      case 5:
        return other_read();
      case 6:
        return reversed_read();
      case 7:
        return other_start();
      case 8:
        return other_reduction();
      case 9:
        return other_type();
      case 10:
        return one_more_reader();
      case 11:
        return other_order();
      case 12:
        return written_again();
      default:
        return dice_.chance(0.5) ? returned_temporary() : other_dims();
    }
  }

 private:
  static std::string list(const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
    return text;
  }
  std::string params() const {
    std::vector<std::string> names;
    for (const SizeParam& size : nest_.sizes) names.push_back(size.name);
    return names.empty() ? "" : "[" + list(names) + "] -> ";
  }
  static std::string instance(const Statement& statement) { return statement.name + "[" + list(statement.dims) + "]"; }

  Statement some_statement() { return dice_.of(nest_.statements); }

  Nest with(const Statement& statement) const {
    Nest nest = nest_;
    replace_statement(nest, statement);
    return nest;
  }

  /// An input of its own that is read along some dims of the statement; its ordinal.
  std::optional<int> new_input(Nest& nest, Statement& statement, ElementType type = ElementType::f32) {
    std::vector<int> dims;
    for (int dim = 0; dim < static_cast<int>(statement.dims.size()); ++dim) {
      if (dice_.chance(0.6)) dims.push_back(dim);
    }
    if (dims.empty() || has_negative_values(nest, statement, dims)) return std::nullopt;
    const std::string name = fresh_name(nest, "e");
    Tensor tensor{name, type, TensorRole::input, {}};
    for (const int dim : dims) tensor.shape.push_back(extent_of(nest, domain_in(nest, statement), dim));
    nest.tensors.push_back(tensor);
    return add_read(statement, {name, onto_dims(statement, dims, name)});
  }

  /// A condition on indices of the statement, as a value.
  ScalarExpr condition(Statement& statement) {
    const auto index = [&] {
      const std::string& dim = dice_.of(statement.dims);
      const std::string text = dim + (dice_.chance(0.3) ? dice_.of<std::string>({" + 1", " - 1", " - 2"}) : "");
      return ScalarExpr::index(
          add_index(statement, parse_pw_aff(params() + "{ " + instance(statement) + " -> [(" + text + ")] }", "test")));
    };
    const ScalarExpr left = index(), right = dice_.chance(0.3) ? ScalarExpr::constant(dice_.below(3), ElementType::i32) : index();
    const ScalarExpr compared = ScalarExpr::make(dice_.of<ScalarOp>({ScalarOp::le, ScalarOp::lt, ScalarOp::eq}), {left, right});
    return dice_.chance(0.25) ? ScalarExpr::make(ScalarOp::logical_not, {compared}) : compared;
  }

  std::optional<ScalarExpr> changed(Nest& nest, Statement& statement, const ScalarExpr& value) {
    switch (dice_.below(10)) {
      case 0:
        return value * number(dice_.of<double>({2, -1, 0.5, 0, -0.25}));
      case 1:
        return ScalarExpr::cast(
            ElementType::f32,
            ScalarExpr::cast(dice_.of<ElementType>({ElementType::f16, ElementType::bf16, ElementType::i32}), value));
      case 2:
        return ScalarExpr::make(dice_.of<ScalarOp>({ScalarOp::max, ScalarOp::min}), {value, number(dice_.of<double>({0, 1}))});
      case 3:
        return apply(dice_.of<ScalarOp>({ScalarOp::abs, ScalarOp::neg, ScalarOp::exp, ScalarOp::tanh}), value);
      case 4:
      case 5:
      case 6: {
        if (statement.dims.empty()) return std::nullopt;
        const ScalarExpr other = number(dice_.of<double>({0, 0, -infinity(), -10000, 1, infinity()}));
        const ScalarExpr seen = condition(statement);
        return ScalarExpr::make(ScalarOp::select, dice_.chance(0.7) ? std::vector<ScalarExpr>{seen, value, other}
                                                                    : std::vector<ScalarExpr>{seen, other, value});
      }
      default: {
        const auto input = new_input(nest, statement);
        if (!input) return std::nullopt;
        const ScalarOp op =
            dice_.of<ScalarOp>({ScalarOp::add, ScalarOp::mul, ScalarOp::mul, ScalarOp::sub, ScalarOp::max, ScalarOp::div});
        return dice_.chance(0.7) ? ScalarExpr::make(op, {value, read(*input)}) : ScalarExpr::make(op, {read(*input), value});
      }
    }
  }

  /// The value of a statement, or an operand in it, with something more.
  std::optional<Nest> other_value() {
    Nest nest = nest_;
    Statement statement = some_statement();
    std::vector<ScalarExpr> places;
    statement.value.visit([&](const ScalarExpr& node) {
      if (node.type() == ElementType::f32) places.push_back(node);
    });
    if (places.empty()) return std::nullopt;
    const ScalarExpr place = dice_.chance(0.5) ? places.front() : dice_.of(places);
    const auto other = changed(nest, statement, place);
    if (!other) return std::nullopt;
    statement.value = replaced(statement.value, place, *other);
    replace_statement(nest, statement);
    return nest;
  }

  static ScalarExpr replaced(const ScalarExpr& value, const ScalarExpr& place, const ScalarExpr& other) {
    if (value.equals(place)) return other;
    std::vector<ScalarExpr> args;
    for (const ScalarExpr& arg : value.args()) args.push_back(replaced(arg, place, other));
    return args.empty() ? value : value.with_args(args);
  }

  std::string some_guard(const std::string& a, const std::string& b) {
    return dice_.of<std::string>({a + " <= " + b, a + " < " + b, a + " > " + b, a + " != " + b, a + " <= " + b + " + 1",
                                  a + " >= 1", a + " < 2", a + " mod 2 = 0", a + " != 1", a + " < 0",
                                  "(" + a + " < " + b + " or " + a + " > " + b + " + 1)"});
  }

  /// One statement has points for a part of its domain.
  std::optional<Nest> guarded_statement() {
    Statement statement = some_statement();
    if (statement.dims.empty()) return std::nullopt;
    const std::string a = dice_.of(statement.dims), guard = some_guard(a, dice_.of(statement.dims));
    statement.domain =
        statement.domain.intersect(parse_set(params() + "{ " + instance(statement) + " : " + guard + " }", "test"));
    return with(statement);
  }

  /// All statements with two dims of these names have points where a condition on both holds.
  std::optional<Nest> guarded_dims() {
    const Statement chosen = some_statement();
    if (chosen.dims.empty()) return std::nullopt;
    const std::string a = dice_.of(chosen.dims), b = dice_.of(chosen.dims), guard = some_guard(a, b);
    Nest nest = nest_;
    for (Statement& statement : nest.statements) {
      const auto has = [&](const std::string& dim) {
        return std::find(statement.dims.begin(), statement.dims.end(), dim) != statement.dims.end();
      };
      if (!has(a) || !has(b)) continue;
      statement.domain =
          statement.domain.intersect(parse_set(params() + "{ " + instance(statement) + " : " + guard + " }", "test"));
    }
    return nest;
  }

  /// A read takes another tensor of that shape and type.
  std::optional<Nest> other_read() {
    Statement statement = some_statement();
    if (statement.reads.empty()) return std::nullopt;
    Access& access = statement.reads.at(static_cast<std::size_t>(dice_.below(static_cast<int>(statement.reads.size()))));
    const Tensor& now = nest_.tensor(access.tensor);
    std::vector<std::string> others;
    for (const Tensor& tensor : nest_.tensors) {
      if (tensor.name != now.name && tensor.type == now.type && tensor.shape.size() == now.shape.size())
        others.push_back(tensor.name);
    }
    if (others.empty()) return std::nullopt;
    const std::string other = dice_.of(others);
    access = {other, access.relation.set_range_tuple(other)};
    return with(statement);
  }

  /// An index of a read runs the other way, is another one, or is a constant.
  std::optional<Nest> reversed_read() {
    Statement statement = some_statement();
    if (statement.reads.empty()) return std::nullopt;
    Access& access = statement.reads.at(static_cast<std::size_t>(dice_.below(static_cast<int>(statement.reads.size()))));
    const Tensor& tensor = nest_.tensor(access.tensor);
    if (tensor.shape.empty()) return std::nullopt;
    const int chosen = dice_.below(static_cast<int>(tensor.shape.size()));
    std::string extent = isl_text(tensor.shape[static_cast<std::size_t>(chosen)]);
    const auto from = extent.find("[("), to = extent.find(")]");
    if (from == std::string::npos || to == std::string::npos) return std::nullopt;
    extent = extent.substr(from + 2, to - from - 2);
    std::vector<std::string> before, after;
    for (int k = 0; k < static_cast<int>(tensor.shape.size()); ++k) {
      before.push_back("x" + std::to_string(k));
      after.push_back(before.back());
    }
    const auto place = static_cast<std::size_t>(chosen);
    const int kind = dice_.below(4);
    after[place] = kind == 0 ? "0" : kind == 1 ? dice_.of(before) : "(" + extent + ") - 1 - " + before[place];
    const isl::map turned =
        parse_map(params() + "{ " + tensor.name + "[" + list(before) + "] -> " + tensor.name + "[" + list(after) + "] }", "test");
    access.relation = access.relation.apply_range(turned);
    return with(statement);
  }

  std::optional<Nest> other_start() {
    std::vector<Statement> starts;
    for (const Statement& statement : nest_.statements) {
      if (statement.value.op() == ScalarOp::constant && statement.value.type() == ElementType::f32) starts.push_back(statement);
    }
    if (starts.empty()) return std::nullopt;
    Nest nest = nest_;
    Statement start = dice_.of(starts);
    start.value = number(dice_.of<double>({0, 1, -1, 0.5, -infinity(), infinity(), -64}));
    if (dice_.chance(0.3)) {
      if (const auto input = new_input(nest, start)) start.value = read(*input);
    }
    replace_statement(nest, start);
    return nest;
  }

  std::optional<Nest> other_reduction() {
    std::vector<Statement> reductions;
    for (const Statement& statement : nest_.statements) {
      if (statement.reduction && statement.value.type() == ElementType::f32) reductions.push_back(statement);
    }
    if (reductions.empty()) return std::nullopt;
    Statement reduction = dice_.of(reductions);
    Nest nest = nest_;
    const ReductionOp op = dice_.of<ReductionOp>({ReductionOp::add, ReductionOp::max, ReductionOp::min});
    for (const Statement* start : initialisers_of(nest_, reduction)) {
      Statement other = *start;
      if (other.value.op() == ScalarOp::constant) other.value = number(neutral_element(op, ElementType::f32));
      replace_statement(nest, other);
    }
    reduction.reduction = op;
    replace_statement(nest, reduction);
    return nest;
  }

  /// A tensor in 16 bits, or in f32.
  std::optional<Nest> other_type() {
    Nest nest = nest_;
    Tensor& tensor = nest.tensors.at(static_cast<std::size_t>(dice_.below(static_cast<int>(nest.tensors.size()))));
    if (size_in_bytes(tensor.type) != 2 && tensor.type != ElementType::f32) return std::nullopt;
    const ElementType before = tensor.type, type = dice_.of<ElementType>({ElementType::f32, ElementType::f16, ElementType::bf16});
    const std::string name = tensor.name;
    tensor.type = type;
    for (Statement& statement : nest.statements) {
      const std::vector<Access> reads = statement.reads;
      const auto f32_of = [&](const ScalarExpr& value) {
        return value.type() == ElementType::f32 ? value : ScalarExpr::cast(ElementType::f32, value);
      };
      statement.value = statement.value.rewrite([&](const ScalarExpr& node) {
        if (node.op() != ScalarOp::read || reads.at(static_cast<std::size_t>(node.ordinal())).tensor != name) return node;
        const ScalarExpr value = f32_of(ScalarExpr::read(node.ordinal(), type));
        return before == ElementType::f32 ? value : ScalarExpr::cast(before, value);
      });
      if (statement.write.tensor != name) continue;
      if (statement.reduction && type != ElementType::f32) return std::nullopt;
      statement.value = type == ElementType::f32 ? f32_of(statement.value) : ScalarExpr::cast(type, f32_of(statement.value));
    }
    return nest;
  }

  /// A result that is made of a temporary's elements, or reduces them.
  std::optional<Nest> one_more_reader() {
    const Statement writer = some_statement();
    const Tensor tensor = nest_.tensor(writer.write.tensor);
    if (tensor.type != ElementType::f32 || tensor.role == TensorRole::input || tensor.shape.empty()) return std::nullopt;
    Nest nest = nest_;
    isl::map to_writer;
    Statement reader = element_statement(nest, writer, fresh_name(nest, "extra"), to_writer);
    const isl::map element = reader.write.relation;
    Tensor result = tensor;
    result.name = fresh_name(nest, "result");
    result.role = TensorRole::output;
    reader.reads = {{tensor.name, element}};
    reader.indices.clear();
    reader.value = dice_.of<ScalarExpr>({read(0), read(0) * number(2), apply(ScalarOp::exp, read(0))});
    reader.reduction = std::nullopt;
    const std::size_t place = place_behind(nest, tensor.name);
    if (dice_.chance(0.5)) {
      reader.write = {result.name, element.set_range_tuple(result.name)};
      nest.tensors.push_back(result);
      insert_statement(nest, place, reader);
      return nest;
    }
    result.shape.resize(1);
    nest.tensors.push_back(result);
    reader.reduction = dice_.of<ReductionOp>({ReductionOp::add, ReductionOp::max, ReductionOp::min});
    reader.write = {result.name, onto_dims(reader, {0}, result.name)};
    Statement start = reader;
    start.name = fresh_name(nest, "start");
    start.dims.resize(1);
    start.domain = isl::manage(
        isl_set_set_dim_name(onto_dims(reader, {0}, start.name).range().release(), isl_dim_set, 0, start.dims.front().c_str()));
    start.write = {result.name,
                   isl::manage(isl_map_set_tuple_name(isl_set_identity(start.domain.copy()), isl_dim_out, result.name.c_str()))};
    start.reads.clear();
    start.reduction = std::nullopt;
    start.value = number(neutral_element(*reader.reduction, ElementType::f32));
    insert_statement(nest, place, reader);
    insert_statement(nest, place, start);
    return nest;
  }

  std::size_t place_behind(const Nest& nest, const std::string& tensor) {
    std::size_t place = 0;
    for (const Statement* writer : writers_of(nest, tensor)) place = std::max(place, group_end(nest, writer->name));
    return dice_.chance(0.5) ? place : nest.statements.size();
  }

  /// Two neighbours change places.
  std::optional<Nest> other_order() {
    if (nest_.statements.size() < 2) return std::nullopt;
    Nest nest = nest_;
    const auto first = static_cast<std::size_t>(dice_.below(static_cast<int>(nest.statements.size()) - 1));
    Statement &a = nest.statements[first], &b = nest.statements[first + 1];
    if (!alone_in_group(nest_, a.name) || !alone_in_group(nest_, b.name)) return std::nullopt;
    std::swap(a.group, b.group);
    std::swap(a, b);
    return nest;
  }

  /// A part of a temporary has other elements from some place on.
  std::optional<Nest> written_again() {
    const Statement writer = some_statement();
    const Tensor& tensor = nest_.tensor(writer.write.tensor);
    if (tensor.type != ElementType::f32 || writer.dims.empty()) return std::nullopt;
    Nest nest = nest_;
    isl::map to_writer;
    Statement again = element_statement(nest, writer, fresh_name(nest, "again"), to_writer);
    if (again.dims.empty()) return std::nullopt;
    const std::string a = dice_.of(again.dims), guard = some_guard(a, dice_.of(again.dims));
    again.domain = again.domain.intersect(parse_set(params() + "{ " + instance(again) + " : " + guard + " }", "test"));
    again.reads = {{tensor.name, again.write.relation}};
    again.indices.clear();
    again.reduction = std::nullopt;
    again.value = dice_.of<ScalarExpr>({read(0) * number(2), number(0), number(-infinity()), number(1), read(0) + number(1)});
    insert_statement(nest, place_behind(nest, tensor.name), again);
    return nest;
  }

  std::optional<Nest> returned_temporary() {
    Nest nest = nest_;
    Tensor& tensor = nest.tensors.at(static_cast<std::size_t>(dice_.below(static_cast<int>(nest.tensors.size()))));
    if (tensor.role != TensorRole::temporary) return std::nullopt;
    tensor.role = TensorRole::output;
    return nest;
  }

  /// The dims of a statement in another order.
  std::optional<Nest> other_dims() {
    Statement statement = some_statement();
    if (statement.dims.size() < 2 || !alone_in_group(nest_, statement.name)) return std::nullopt;
    std::vector<std::string> dims = statement.dims;
    const auto first = static_cast<std::size_t>(dice_.below(static_cast<int>(dims.size()) - 1));
    std::swap(dims[first], dims[first + 1]);
    const isl::map turned =
        parse_map(params() + "{ " + instance(statement) + " -> " + statement.name + "[" + list(dims) + "] }", "test");
    statement.domain = statement.domain.apply(turned);
    const auto turn = [&](const isl::map& relation) { return relation.apply_domain(turned); };
    statement.write.relation = turn(statement.write.relation);
    for (Access& read : statement.reads) read.relation = turn(read.relation);
    for (isl::pw_aff& index : statement.indices) {
      const isl::map map = turn(isl::manage(isl_map_from_pw_aff(index.copy())));
      index = isl::manage(isl_pw_multi_aff_get_pw_aff(isl_pw_multi_aff_from_map(map.copy()), 0));
    }
    statement.dims = dims;
    for (std::size_t k = 0; k < dims.size(); ++k)
      statement.domain =
          isl::manage(isl_set_set_dim_name(statement.domain.release(), isl_dim_set, static_cast<unsigned>(k), dims[k].c_str()));
    return with(statement);
  }

  const Nest& nest_;
  Dice& dice_;
};

/// The nest after up to `most` changes that are valid.
inline Nest mutated(Nest nest, Dice& dice, int most) {
  for (int k = 0; k < most; ++k) {
    const auto other = NestMutation(nest, dice).draw();
    if (!other) continue;
    try {
      validate(*other);
      nest = *other;
    } catch (const UserError&) {
      continue;  // it reads what is not there, or what no type has
    }
  }
  return nest;
}

}  // namespace nestor::samples
