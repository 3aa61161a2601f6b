// Tensors of a few parts taken apart: a tensor, and statements, for each of them.
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "poly/algebra/values/few_terms.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"

namespace nestor {

std::optional<std::int64_t> number_of_index(const isl::set& domain, const Access& access, std::size_t index) {
  isl_map* values = access.relation.intersect_domain(domain).release();
  const auto rank = static_cast<unsigned>(isl_map_dim(values, isl_dim_out)), at = static_cast<unsigned>(index);
  values = isl_map_project_out(isl_map_project_out(values, isl_dim_out, at + 1, rank - at - 1), isl_dim_out, 0, at);
  const isl::set range = isl::manage(isl_set_project_out_all_params(isl_map_range(values)));
  if (range.is_empty() || isl_set_is_bounded(range.get()) != isl_bool_true) return std::nullopt;
  const auto [low, high] = dim_range(range, 0);
  return low == high ? std::optional(low) : std::nullopt;
}

namespace {

/// The only dim that an index of an access follows; -1: none, or several.
int dim_of_index(const Access& access, std::size_t index) {
  isl_map* relation = access.relation.copy();
  const auto rank = static_cast<unsigned>(isl_map_dim(relation, isl_dim_out)), at = static_cast<unsigned>(index);
  relation = isl_map_project_out(isl_map_project_out(relation, isl_dim_out, at + 1, rank - at - 1), isl_dim_out, 0, at);
  const isl::map alone = isl::manage(relation);
  int found = -1;
  for (int dim = 0; dim < static_cast<int>(isl_map_dim(alone.get(), isl_dim_in)); ++dim) {
    if (!depends_on_dim(alone, dim)) continue;
    if (found >= 0) return -1;
    found = dim;
  }
  return found;
}

/// The value with what its conditions are known to be: at one part an index of parts is a number.
ScalarExpr settled(const Nest& nest, const Statement& statement) {
  const auto is_number = [](const ScalarExpr& node) { return node.op() == ScalarOp::constant; };
  return statement.value.rewrite([&](const ScalarExpr& node) {
    if (node.op() == ScalarOp::index) {
      const isl::pw_aff& index = statement.indices[static_cast<std::size_t>(node.ordinal())];
      const Access access{"", isl::manage(isl_map_from_pw_aff(index.copy()))};
      const auto number = number_of_index(domain_in(nest, statement), access, 0);
      return number ? ScalarExpr::constant(static_cast<double>(*number), ElementType::i32) : node;
    }
    if (node.op() == ScalarOp::select && is_number(node.args()[0])) return node.args()[node.args()[0].number() != 0 ? 1 : 2];
    const bool condition = node.type() == ElementType::boolean && !node.args().empty() &&
                           std::all_of(node.args().begin(), node.args().end(), is_number);
    if (!condition) return node;
    const double value = evaluate(node, [](int) { return 0.0; }, [](int) { return 0; }, [](const std::string&) { return 0.0; });
    return ScalarExpr::constant(value, ElementType::boolean);
  });
}

class Parts {
 public:
  explicit Parts(const Nest& nest) : nest_(nest) {}

  /// False: the tensor, or one that follows it, cannot be taken apart.
  bool add(const std::string& tensor, std::size_t index) {
    const auto [known, fresh] = tensors_.emplace(tensor, index);
    if (!fresh) return known->second == index;
    if (nest_.tensor(tensor).role != TensorRole::temporary) return false;
    for (const Statement* writer : writers_of(nest_, tensor)) {
      if (!add_statement(*writer, dim_of_index(writer->write, index))) return false;
    }
    const std::vector<const Statement*> readers = readers_of(nest_, tensor);
    return std::all_of(readers.begin(), readers.end(),
                       [&](const Statement* reader) { return add_reader(*reader, tensor, index); });
  }

  /// Does a statement need several parts at a point?
  bool meet() const { return meet_; }

  /// The nest with a tensor for each part.
  Nest apart() const {
    Nest result = nest_;
    std::map<std::pair<std::string, std::int64_t>, std::string> own;  // tensor and part
    for (const auto& [name, index] : tensors_) {
      for (const std::int64_t value : values_) {
        Tensor part = nest_.tensor(name);
        part.shape.erase(part.shape.begin() + static_cast<std::ptrdiff_t>(index));
        part.name = own[{name, value}] = fresh_name(result, name + "_" + std::to_string(value));
        result.tensors.push_back(std::move(part));
      }
    }
    for (const Statement& statement : nest_.statements) {
      const auto dim = dims_.find(statement.name);
      const std::size_t place = position_of(result, statement.name);
      std::vector<Statement> made;
      if (dim == dims_.end()) {
        made.push_back(with_own_tensors(statement, own));
        replace_statement(result, made.front());
        continue;
      }
      for (std::size_t k = 0; k < values_.size(); ++k) {
        const std::string name = fresh_name(result, statement.name + "_" + std::to_string(values_[k]));
        insert_statement(result, place + k, with_own_tensors(at_value(statement, dim->second, values_[k], name), own));
      }
      erase_statement(result, statement.name);
    }
    drop_unused(result);
    return result;
  }

 private:
  /// Takes the statement apart along the dim, whose values are those of all others.
  bool add_statement(const Statement& statement, int dim) {
    if (dim < 0 || !alone_in_group(nest_, statement.name) || reads_own(statement)) return false;
    // Parts of a sum one after the other are its order.
    const std::vector<int> reduced = reduced_dims(statement);
    if (std::find(reduced.begin(), reduced.end(), dim) != reduced.end() && reduced.front() != dim) return false;
    const auto [known, fresh] = dims_.emplace(statement.name, dim);
    if (!fresh) return known->second == dim;
    std::vector<std::int64_t> values;
    for (const std::vector<std::int64_t>& point : few_values(domain_in(nest_, statement), {dim})) values.push_back(point.front());
    if (values.size() < 2 || (!values_.empty() && values != values_)) return false;
    values_ = values;
    return add_written(statement, dim);
  }

  static bool reads_own(const Statement& statement) {
    return std::any_of(statement.reads.begin(), statement.reads.end(),
                       [&](const Access& read) { return read.tensor == statement.write.tensor; });
  }

  /// What follows the dim is taken apart, too, if others read it.
  bool add_written(const Statement& statement, int dim) {
    const Access& write = statement.write;
    if (nest_.tensor(write.tensor).role != TensorRole::temporary) return true;
    for (std::size_t index = 0; index < nest_.tensor(write.tensor).shape.size(); ++index) {
      if (dim_of_index(write, index) == dim) return add(write.tensor, index);
    }
    return true;  // it is summed over
  }

  /// Does a reduction other than a sum of products have a result for each part, as rows have their extrema? These are complete before they meet:
  /// products need no parts for them.
  static bool keeps_parts(const Statement& reader, int dim) {
    const std::vector<int> reduced = reduced_dims(reader);
    return reader.reduction && !(reader.reads.size() > 1 && reader.value.op() == ScalarOp::mul) &&
           std::find(reduced.begin(), reduced.end(), dim) == reduced.end();
  }

  /// A reader of one part everywhere stays as it is, unless it makes parts itself.
  bool add_reader(const Statement& reader, const std::string& tensor, std::size_t index) {
    int dim = -1;
    bool numbers = true;
    std::set<std::int64_t> parts;
    for (const Access& read : reader.reads) {
      if (read.tensor != tensor) continue;
      if (const auto part = number_of_index(domain_in(nest_, reader), read, index)) {
        parts.insert(*part);
      } else {
        numbers = false;
        dim = dim_of_index(read, index);
      }
    }
    meet_ = meet_ || parts.size() > 1;
    if (!numbers) return !keeps_parts(reader, dim) && add_statement(reader, dim);
    for (std::size_t at = 0; at < nest_.tensor(reader.write.tensor).shape.size(); ++at) {
      const int made = dim_of_index(reader.write, at);
      if (made >= 0 && few_values(domain_in(nest_, reader), {made}).size() > 1) return add_statement(reader, made);
    }
    return true;
  }

  /// The statement at one value of a dim, which it has no longer.
  Statement at_value(const Statement& statement, int dim, std::int64_t value, const std::string& name) const {
    const auto at = static_cast<unsigned>(dim);
    isl_set* fixed = isl_set_fix_si(domain_in(nest_, statement).release(), isl_dim_set, at, static_cast<int>(value));
    isl_map* from = isl_map_project_out(isl_set_identity(fixed), isl_dim_in, at, 1);
    const isl::map whole = isl::manage(isl_map_set_tuple_name(from, isl_dim_in, name.c_str()));
    Statement part;
    part.name = name;
    part.dims = statement.dims;
    part.dims.erase(part.dims.begin() + dim);
    isl_set* domain = isl_set_gist_params(whole.domain().release(), full_context(nest_).release());
    domain = isl_set_set_tuple_name(domain, name.c_str());
    part.domain = isl::manage(with_dim_names(domain, part.dims));
    part.write = {statement.write.tensor, whole.apply_range(statement.write.relation)};
    part.reduction = statement.reduction;
    part.value = import_value(part, statement, whole, statement.value);
    part.value = settled(nest_, part);
    compact(part);
    return part;
  }

  /// The statement with its accesses to parts as those to tensors of their own.
  Statement with_own_tensors(const Statement& statement,
                             const std::map<std::pair<std::string, std::int64_t>, std::string>& own) const {
    Statement result = statement;
    const auto rename = [&](Access& access) {
      const auto known = tensors_.find(access.tensor);
      if (known == tensors_.end()) return;
      const auto value = number_of_index(domain_in(nest_, result), access, known->second);
      const std::string& name = own.at({access.tensor, value.value()});
      isl_map* relation = isl_map_project_out(access.relation.copy(), isl_dim_out, static_cast<unsigned>(known->second), 1);
      access = {name, isl::manage(isl_map_set_tuple_name(relation, isl_dim_out, name.c_str()))};
    };
    rename(result.write);
    for (Access& read : result.reads) rename(read);
    return result;
  }

  const Nest& nest_;
  std::map<std::string, std::size_t> tensors_;  ///< and the index that tells parts
  std::map<std::string, int> dims_;             ///< by statement
  std::vector<std::int64_t> values_;
  bool meet_ = false;
};

}  // namespace

std::optional<Nest> with_parts_apart(const Nest& nest, const std::string& tensor, std::size_t index) {
  Parts parts(nest);
  if (!parts.add(tensor, index) || !parts.meet()) return std::nullopt;
  return parts.apart();
}

}  // namespace nestor
