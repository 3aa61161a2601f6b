// The invariants of a nest, checked with messages for the author of a nest file.
#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "poly/isl/isl_tools.h"
#include "poly/nest/nest.h"
#include "poly/nest/nest_sets.h"
#include "poly/nest/scalar_semantics.h"
#include "poly/nest/scalar_share.h"
#include "support/error.h"
#include "support/scalar_range.h"
#include "support/words/printable.h"

namespace nestor {
namespace {

bool is_identifier(const std::string& name) {
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) != 0) return false;
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_') return false;
  }
  return true;
}

bool is_narrow(ElementType type) { return type == ElementType::f16 || type == ElementType::bf16; }
/// Values of a type are stored into tensors of its kind without a cast.
bool same_kind(ElementType a, ElementType b) {
  const auto is_float = [](ElementType type) { return type == ElementType::f32 || is_narrow(type); };
  return a == b || (is_float(a) && is_float(b));
}

/// What two nests have in common, as it is written.
class Unchanged {
 public:
  Unchanged(const Nest& before, const Nest& after) : before_(before), after_(after) {
    const auto same_size = [](const SizeParam& a, const SizeParam& b) {
      return a.name == b.name && a.min == b.min && a.max == b.max;
    };
    const auto same_scalar = [](const ScalarParam& a, const ScalarParam& b) { return a.name == b.name && a.type == b.type; };
    params_ = std::equal(before.sizes.begin(), before.sizes.end(), after.sizes.begin(), after.sizes.end(), same_size) &&
              std::equal(before.scalars.begin(), before.scalars.end(), after.scalars.begin(), after.scalars.end(), same_scalar) &&
              isl_set_plain_is_equal(before.context.get(), after.context.get()) == isl_bool_true;
  }

  const Nest& before() const { return before_; }

  /// The statement, with its accesses and the tensors that they touch.
  bool statement(const Statement& here) const {
    const Statement* there = before_.find_statement(here.name);
    return params_ && there != nullptr && here.dims == there->dims && here.reduction == there->reduction &&
           isl_set_plain_is_equal(here.domain.get(), there->domain.get()) == isl_bool_true && access(here.write, there->write) &&
           std::equal(here.reads.begin(), here.reads.end(), there->reads.begin(), there->reads.end(),
                      [&](const Access& a, const Access& b) { return access(a, b); }) &&
           functions(here.indices, there->indices) && here.value.equals(there->value);
  }

  /// Those that write what the statement touches, and their order.
  bool writers(const Statement& here) const {
    std::set<std::string> tensors{here.write.tensor};
    for (const Access& read : here.reads) tensors.insert(read.tensor);
    const auto before = writers_in(before_, here.name, tensors), after = writers_in(after_, here.name, tensors);
    return before == after && std::all_of(after.begin(), after.end(),
                                          [&](const Writer& each) { return statement(*after_.find_statement(each.first)); });
  }

 private:
  using Writer = std::pair<std::string, std::pair<bool, int>>;  ///< its name; does it stand in front; the order of its loops

  static std::vector<Writer> writers_in(const Nest& nest, const std::string& reader, const std::set<std::string>& tensors) {
    std::vector<Writer> found;
    const int group = nest.statement(reader).group;
    bool in_front = true;
    for (const Statement& each : nest.statements) {
      if (each.name == reader) in_front = false;
      if (tensors.contains(each.write.tensor))
        found.push_back({each.name, {in_front, each.group < group ? -1 : each.group > group ? 1 : 0}});
    }
    return found;
  }

  static bool functions(const std::vector<isl::pw_aff>& a, const std::vector<isl::pw_aff>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const isl::pw_aff& x, const isl::pw_aff& y) { return x.plain_is_equal(y); });
  }

  bool access(const Access& a, const Access& b) const {
    return a.tensor == b.tensor && isl_map_plain_is_equal(a.relation.get(), b.relation.get()) == isl_bool_true &&
           tensor(a.tensor);
  }

  bool tensor(const std::string& name) const {
    const Tensor *there = before_.find_tensor(name), *here = after_.find_tensor(name);
    return there != nullptr && here != nullptr && there->type == here->type && there->role == here->role &&
           functions(there->shape, here->shape);
  }

  const Nest &before_, &after_;
  bool params_ = false;
};

/// Checks one nest; every method throws at the first offender.
class Validator {
 public:
  /// `valid`: a nest that is well formed; what that has in common with `nest` is not checked again.
  explicit Validator(const Nest& nest, const Nest* valid = nullptr) : nest_(nest), context_(nest.context) {
    if (valid != nullptr) unchanged_.emplace(*valid, nest);
  }

  void run() {
    check_operator();
    check_names();
    check_context();
    for (const Tensor& tensor : nest_.tensors) check_tensor(tensor);
    check_groups();
    std::vector<const Statement*> known;
    for (const Statement& statement : nest_.statements) {
      if (unchanged_ && unchanged_->statement(statement)) {
        known.push_back(&statement);
        check_names_of_dims(statement);
      } else {
        check_statement(statement);
      }
    }
    for (const Statement& statement : nest_.statements) {
      const bool same = std::find(known.begin(), known.end(), &statement) != known.end();
      if (!same || !unchanged_->writers(statement)) check_initialised(statement);
    }
    if (!unchanged_) return;
    for (const Tensor& tensor : unchanged_->before().tensors) {
      if (tensor.role == TensorRole::output) check_written(tensor);
    }
  }

 private:
  static void require_printable(const std::string& what, const std::string& text) {
    if (printable(text) != text) user_error("{}, {}, has control characters", what, printable(text));
  }

  static void require_tolerance(const std::string& of, double tolerance) {
    if (!std::isfinite(tolerance) || tolerance < 0)
      user_error("{}: its tolerance is {}; it must be a number that is not negative", of, tolerance);
  }

  /// Names that go into tables, messages and records, and what all outputs are compared within.
  void check_operator() const {
    if (nest_.op.empty()) user_error("the nest has no name: its op is \"\"");
    require_printable("the nest's name, its op", nest_.op);
    require_printable("the variant of nest " + nest_.op, nest_.variant);
    require_tolerance("nest " + nest_.op, nest_.tolerance);
  }

  void check_names() {
    const auto claim = [&](const std::string& name, const char* what) {
      if (!is_identifier(name)) user_error("\"{}\" does not name a {}: use letters, digits and _", name, what);
      if (!names_.insert(name).second) user_error("the name {} of a {} is taken already", name, what);
    };
    for (const SizeParam& size : nest_.sizes) claim(size.name, "size");
    for (const ScalarParam& scalar : nest_.scalars) {
      claim(scalar.name, "scalar");
      check_scalar(scalar);
      if (!in_range(scalar.default_value, scalar))
        user_error("scalar {}: its default {} is not within its range, {}", scalar.name, scalar.default_value,
                   range_text(scalar));
    }
    for (const Tensor& tensor : nest_.tensors) claim(tensor.name, "tensor");
    for (const Statement& statement : nest_.statements) {
      if (!is_identifier(statement.name))
        user_error("\"{}\" does not name a statement: use letters, digits and _", statement.name);
      if (!statements_.insert(statement.name).second) user_error("two statements are named {}", statement.name);
    }
    if (nest_.statements.empty()) user_error("nest {} has no statement", nest_.op);
  }

  /// A scalar's numbers are those of its type.
  static void check_scalar(const ScalarParam& scalar) {
    const auto fits = [&](double number) {
      if (scalar.type == ElementType::i32) return number == std::trunc(number) && std::abs(number) <= 0x7fffffff;
      return std::isinf(number) || std::abs(number) < semantics::kOverflow;
    };
    if (scalar.type != ElementType::f32 && scalar.type != ElementType::i32)
      user_error("scalar {} is of type {}; scalars are f32 or i32", scalar.name, to_string(scalar.type));
    const auto check = [&](const char* what, double number) {
      if (!fits(number)) user_error("scalar {}: its {} {} is no {}", scalar.name, what, number, to_string(scalar.type));
    };
    check("default", scalar.default_value);
    if (scalar.minimum != -std::numeric_limits<double>::infinity()) check("min", scalar.minimum);
    if (scalar.maximum != std::numeric_limits<double>::infinity()) check("max", scalar.maximum);
  }

  void check_params(const isl::space& space, const std::string& where) const {
    for (const std::string& name : param_names(space)) {
      bool known = false;
      for (const SizeParam& size : nest_.sizes) known = known || size.name == name;
      if (!known) user_error("{} uses {}, which is no size of nest {}", where, name, nest_.op);
    }
  }

  void check_context() {
    if (isl_set_is_params(nest_.context.get()) != isl_bool_true) {
      user_error("the context of nest {} must be a condition on the sizes, not {}", nest_.op, isl_text(nest_.context));
    }
    check_params(nest_.context.space(), "the context");
    context_ = full_context(nest_);
    if (context_.is_empty()) user_error("no sizes satisfy the context of nest {}: {}", nest_.op, isl_text(nest_.context));
  }

  void check_tensor(const Tensor& tensor) const {
    if (tensor.type == ElementType::i64 && tensor.role != TensorRole::input) {
      user_error("tensor {} is of type i64 and no input: outputs and temporaries hold i32, as which inputs of i64 are read",
                 tensor.name);
    }
    if (tensor.tolerance) check_tolerance(tensor);
    for (const isl::pw_aff& extent : tensor.shape) {
      const std::string where = "the shape of " + tensor.name;
      const isl::space domain = isl::manage(isl_pw_aff_get_domain_space(extent.get()));
      if (isl_space_dim(domain.get(), isl_dim_set) > 0) user_error("{} must depend on sizes only: {}", where, isl_text(extent));
      const isl::pw_aff plain = over_params(extent);
      check_params(isl::manage(isl_pw_aff_get_domain_space(plain.get())), where);
      if (!context_.is_subset(isl::manage(isl_pw_aff_nonneg_set(plain.copy())))) {
        user_error("{} is undefined or negative for some sizes: {}", where, isl_text(extent));
      }
    }
  }

  void check_tolerance(const Tensor& tensor) const {
    if (tensor.role != TensorRole::output) {
      user_error("tensor {} has a tolerance and is no output: only outputs are compared", tensor.name);
    }
    require_tolerance("tensor " + tensor.name, *tensor.tolerance);
  }

  void check_groups() const {
    for (std::size_t k = 1; k < nest_.statements.size(); ++k) {
      const Statement& before = nest_.statements[k - 1];
      const Statement& here = nest_.statements[k];
      if (here.group < before.group) user_error("statement {} is of an earlier group than {} before it", here.name, before.name);
      if (here.group == before.group && here.dims.size() != before.dims.size()) {
        user_error("statements {} and {} share a group but not their number of dimensions", before.name, here.name);
      }
    }
  }

  void check_names_of_dims(const Statement& statement) const {
    const std::string where = "statement " + statement.name;
    std::set<std::string> dims;
    for (const std::string& dim : statement.dims) {
      if (!is_identifier(dim) || !dims.insert(dim).second) user_error("{}: \"{}\" cannot name a dimension of it", where, dim);
      if (names_.contains(dim)) user_error("{}: dimension {} has the name of a size, scalar or tensor", where, dim);
    }
  }

  void check_statement(const Statement& statement) const {
    const std::string where = "statement " + statement.name;
    const char* tuple = isl_set_get_tuple_name(statement.domain.get());
    if (tuple == nullptr || tuple != statement.name || statement.domain.tuple_dim() != statement.dims.size()) {
      user_error("{}: its domain must be a set of {}[{} dims], not {}", where, statement.name, statement.dims.size(),
                 isl_text(statement.domain));
    }
    check_names_of_dims(statement);
    check_params(statement.domain.space(), where);
    const isl::set domain = statement.domain.intersect_params(context_);
    for (std::size_t k = 0; k < statement.dims.size(); ++k) {
      if (isl_set_dim_is_bounded(domain.get(), isl_dim_set, static_cast<unsigned>(k)) != isl_bool_true) {
        user_error("{}: its domain does not bound {}: {}", where, statement.dims[k], isl_text(statement.domain));
      }
    }
    check_access(statement, statement.write, domain, true);
    if (nest_.tensor(statement.write.tensor).role == TensorRole::input) {
      user_error("{} writes {}, which is an input", where, statement.write.tensor);
    }
    for (std::size_t k = 0; k < statement.reads.size(); ++k) {
      check_access(statement, statement.reads[k], domain, is_unguarded(statement.value, static_cast<int>(k)));
    }
    check_indices(statement, domain);
    check_value(statement);
  }

  /// True when some use of read `ordinal` is evaluated for every instance.
  static bool is_unguarded(const ScalarExpr& expr, int ordinal) {
    std::set<const void*> seen;
    return expr.defined() && is_unguarded(expr, ordinal, seen);
  }

  static bool is_unguarded(const ScalarExpr& expr, int ordinal, std::set<const void*>& seen) {
    if (expr.op() == ScalarOp::read) return expr.ordinal() == ordinal;
    if (!expr.args().empty() && !seen.insert(node_identity(expr)).second) return false;
    if (expr.op() == ScalarOp::select) return is_unguarded(expr.args()[0], ordinal, seen);
    return std::any_of(expr.args().begin(), expr.args().end(),
                       [&](const ScalarExpr& arg) { return is_unguarded(arg, ordinal, seen); });
  }

  const isl::set& box_of(const Tensor& tensor) const {
    const auto found = boxes_.find(&tensor);
    return found != boxes_.end() ? found->second : boxes_.emplace(&tensor, tensor_box(tensor)).first->second;
  }

  void check_access(const Statement& statement, const Access& access, const isl::set& domain, bool total) const {
    const std::string where = fmt::format("statement {}, access to {}", statement.name, access.tensor);
    const Tensor* tensor = nest_.find_tensor(access.tensor);
    if (tensor == nullptr) user_error("{}: no such tensor", where);
    check_params(access.relation.space(), where);
    const isl::set& box = box_of(*tensor);
    const char* from = isl_map_get_tuple_name(access.relation.get(), isl_dim_in);
    const char* to = isl_map_get_tuple_name(access.relation.get(), isl_dim_out);
    if (from == nullptr || to == nullptr || from != statement.name || to != access.tensor ||
        access.relation.domain_tuple_dim() != statement.dims.size() ||
        access.relation.range_tuple_dim() != tensor->shape.size()) {
      user_error("{}: it must map {}[{} dims] to {}[{} indices], not be {}", where, statement.name, statement.dims.size(),
                 access.tensor, tensor->shape.size(), isl_text(access.relation));
    }
    const isl::map used = access.relation.intersect_domain(domain);
    if (!used.is_single_valued()) user_error("{}: one instance would touch several elements: {}", where, isl_text(used));
    if (total && !domain.is_subset(used.domain())) {
      user_error("{}: it has no element for instances {}", where, isl_text(domain.subtract(used.domain())));
    }
    if (!used.range().is_subset(box)) {
      user_error("{}: elements {} lie outside the tensor", where, isl_text(used.range().subtract(box).coalesce()));
    }
  }

  void check_indices(const Statement& statement, const isl::set& domain) const {
    for (const isl::pw_aff& index : statement.indices) {
      const isl::set defined = index.domain();
      if (!defined.space().is_equal(domain.space()) && defined.tuple_dim() != statement.dims.size()) {
        user_error("statement {}: index {} is not a function of its dims", statement.name, isl_text(index));
      }
      check_params(isl::manage(isl_pw_aff_get_domain_space(index.get())), "statement " + statement.name);
      if (!domain.is_subset(defined)) {
        user_error("statement {}: index {} is not defined everywhere", statement.name, isl_text(index));
      }
      const isl::set integers = isl::manage(isl_map_domain(isl_map_from_pw_aff(index.copy())));
      if (!domain.is_subset(integers)) {
        user_error("statement {}: index {} is no integer at {}; floor() of it is", statement.name, isl_text(index),
                   isl_text(domain.subtract(integers).coalesce()));
      }
    }
  }

  void check_leaf(const Statement& statement, const ScalarExpr& node) const {
    const std::string where = "statement " + statement.name;
    const auto in_range = [&](std::size_t count) {
      return node.ordinal() >= 0 && static_cast<std::size_t>(node.ordinal()) < count;
    };
    if (node.op() == ScalarOp::index && !in_range(statement.indices.size())) {
      user_error("{}: its value uses index {}, but it has {}", where, node.ordinal(), statement.indices.size());
    }
    if (node.op() == ScalarOp::read) {
      if (!in_range(statement.reads.size())) {
        user_error("{}: its value uses read {}, but it has {}", where, node.ordinal(), statement.reads.size());
      }
      const Tensor& tensor = nest_.tensor(statement.reads[node.ordinal()].tensor);
      if (tensor.type != node.type()) {
        user_error("{}: it reads {} as {}, but its elements are {}", where, tensor.name, to_string(node.type()),
                   to_string(tensor.type));
      }
    }
    if (node.op() == ScalarOp::scalar) {
      for (const ScalarParam& scalar : nest_.scalars) {
        if (scalar.name == node.name() && scalar.type == node.type()) return;
      }
      user_error("{}: the nest has no scalar {} of type {}", where, node.name(), to_string(node.type()));
    }
  }

  /// An i64 is what an input holds, and becomes an i32 at once.
  static void check_wide(const std::string& where, const ScalarExpr& node) {
    for (const ScalarExpr& arg : node.args()) {
      const bool narrows = node.op() == ScalarOp::cast && node.type() == ElementType::i32;
      if (arg.type() == ElementType::i64 && !narrows)
        user_error("{}: no arithmetic on i64; cast it to i32 before {}", where, to_string(node.op()));
    }
    if (node.type() == ElementType::i64 && node.op() != ScalarOp::read)
      user_error("{}: {} makes an i64; the integers of values are i32", where, to_string(node.op()));
  }

  /// The type that all arguments of the operation must have; nothing: i32 will do as well as f32, or they are conditions.
  static std::optional<ElementType> argument_type(ScalarOp op) {
    switch (op) {
      case ScalarOp::exp:
      case ScalarOp::exp2:
      case ScalarOp::log:
      case ScalarOp::sqrt:
      case ScalarOp::rsqrt:
      case ScalarOp::tanh:
      case ScalarOp::erf:
      case ScalarOp::sin:
      case ScalarOp::cos:
      case ScalarOp::log1p:
      case ScalarOp::expm1:
      case ScalarOp::atan:
      case ScalarOp::pow:
        return ElementType::f32;
      case ScalarOp::bit_and:
      case ScalarOp::bit_or:
      case ScalarOp::bit_xor:
      case ScalarOp::shift_left:
      case ScalarOp::shift_right_logical:
      case ScalarOp::mul_high_unsigned:
        return ElementType::i32;
      default:
        return std::nullopt;
    }
  }

  void check_value(const Statement& statement) const {
    const std::string where = "statement " + statement.name;
    if (!statement.value.defined()) user_error("{} has no value", where);
    statement.value.visit([&](const ScalarExpr& node) {
      check_leaf(statement, node);
      check_wide(where, node);
      if (node.op() == ScalarOp::cast || node.args().empty()) return;
      for (std::size_t k = 0; k < node.args().size(); ++k) {
        const ElementType type = node.args()[k].type();
        const bool condition = (node.op() == ScalarOp::select && k == 0) || node.op() == ScalarOp::logical_and ||
                               node.op() == ScalarOp::logical_or || node.op() == ScalarOp::logical_not;
        if (condition != (type == ElementType::boolean)) {
          user_error("{}: {} takes {} as argument {}, not {}", where, to_string(node.op()), condition ? "bool" : "a number", k,
                     to_string(type));
        }
        if (const auto only = argument_type(node.op()); only && type != *only && !is_narrow(type)) {
          user_error("{}: {} takes {}, not {}; cast it", where, to_string(node.op()), to_string(*only), to_string(type));
        }
        if (is_narrow(type) && node.op() != ScalarOp::select) {
          user_error("{}: no arithmetic on {}; cast it to f32 before {}", where, to_string(type), to_string(node.op()));
        }
        if (!condition && type != node.args().back().type()) {
          user_error("{}: the arguments of {} are {} and {}; cast one", where, to_string(node.op()), to_string(type),
                     to_string(node.args().back().type()));
        }
      }
    });
    const Tensor& target = nest_.tensor(statement.write.tensor);
    if (target.type == ElementType::boolean && statement.reduction) {
      user_error("{} accumulates into {}, whose elements are bool; accumulate i32 or f32, and compare the result", where,
                 target.name);
    }
    const bool extremum = statement.reduction == ReductionOp::min || statement.reduction == ReductionOp::max;
    if (statement.reduction && !extremum && is_narrow(target.type)) {
      user_error(
          "{} accumulates into {}, whose elements are {}: schedules would round as often as they like; accumulate in a tensor of "
          "f32, and store the result",
          where, target.name, to_string(target.type));
    }
    if (statement.reduction && is_narrow(statement.value.type())) {
      user_error("{} accumulates values of type {}; cast them to f32", where, to_string(statement.value.type()));
    }
    if (!same_kind(statement.value.type(), target.type)) {
      user_error("{} writes a value of type {} to {}, whose elements are {}; cast it", where, to_string(statement.value.type()),
                 target.name, to_string(target.type));
    }
  }

  /// Instances of `statement` whose element (through `relation`) some earlier statement accepted by `counts` has written.
  template <class Filter>
  isl::set covered(const Statement& statement, const std::string& tensor, const isl::map& relation, const Filter& counts) const {
    isl::set result = isl::set::empty(statement.domain.space());
    for (const Statement& writer : nest_.statements) {
      if (writer.write.tensor != tensor || !counts(writer)) continue;
      const isl::map writes = writer.write.relation.intersect_domain(writer.domain);
      const isl::map pairs = writes.apply_range(relation.reverse()).intersect(original_order(nest_, writer.name, statement.name));
      result = result.unite(pairs.range());
    }
    return result;
  }

  void check_initialised(const Statement& statement) const {
    const isl::set domain = statement.domain.intersect_params(context_);
    for (const Access& read : statement.reads) {
      if (nest_.tensor(read.tensor).role == TensorRole::input) continue;
      const isl::map relation = read.relation.intersect_domain(domain);
      const isl::set written = covered(statement, read.tensor, relation, [](const Statement&) { return true; });
      if (!relation.domain().is_subset(written)) {
        user_error("statement {} reads elements of {} that were not written before, at {}", statement.name, read.tensor,
                   isl_text(relation.domain().subtract(written).coalesce()));
      }
    }
    if (!statement.reduction) return;
    const isl::map relation = statement.write.relation.intersect_domain(domain);
    const isl::set written =
        covered(statement, statement.write.tensor, relation, [](const Statement& s) { return !s.reduction; });
    if (!domain.is_subset(written)) {
      user_error("statement {} accumulates into elements of {} that were not initialised, at {}", statement.name,
                 statement.write.tensor, isl_text(domain.subtract(written).coalesce()));
    }
  }

  /// The elements of a tensor that a nest writes.
  isl::set written_in(const Nest& nest, const Tensor& tensor) const {
    isl::set found = isl::set::empty(tensor_box(tensor).space());
    for (const Statement& writer : nest.statements) {
      if (writer.write.tensor == tensor.name)
        found = found.unite(writer.domain.intersect_params(context_).apply(writer.write.relation));
    }
    return found;
  }

  /// The nest writes the elements of an output that the well-formed one writes, and no other.
  void check_written(const Tensor& output) const {
    const Tensor* here = nest_.find_tensor(output.name);
    if (here == nullptr || here->role != TensorRole::output || here->type != output.type)
      user_error("the output {} of type {} is gone", output.name, to_string(output.type));
    const std::vector<Statement>&then = unchanged_->before().statements, &now = nest_.statements;
    const auto writes = [&](const Statement& each) { return each.write.tensor == output.name; };
    const auto stays = [&](const Statement& each) { return !writes(each) || unchanged_->statement(each); };
    if (std::count_if(then.begin(), then.end(), writes) == std::count_if(now.begin(), now.end(), writes) &&
        std::all_of(now.begin(), now.end(), stays))
      return;
    const isl::set before = written_in(unchanged_->before(), output), after = written_in(nest_, output);
    if (!before.is_subset(after))
      user_error("nothing writes these elements of output {}: {}", output.name, isl_text(before.subtract(after).coalesce()));
    if (!after.is_subset(before))
      user_error("these elements of output {} are none that are asked for: {}", output.name,
                 isl_text(after.subtract(before).coalesce()));
  }

  const Nest& nest_;
  isl::set context_;
  std::optional<Unchanged> unchanged_;
  std::set<std::string> names_;
  std::set<std::string> statements_;
  mutable std::map<const Tensor*, isl::set> boxes_;  ///< of the tensors that accesses have asked for
};

}  // namespace

void validate(const Nest& nest) {
  with_isl_budget("checking nest " + nest.op, [&] { Validator(nest).run(); });
}

void validate_changes(const Nest& valid, const Nest& nest) {
  with_isl_budget("checking nest " + nest.op, [&] { Validator(nest, &valid).run(); });
}

}  // namespace nestor
