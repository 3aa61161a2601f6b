// Rule "gather_terms": terms of a sum of products lie side by side in copies of its operands, as in the products that convolutions become.
//
// Pattern    r_e += a_p b_q over dims of known extents, for all e the same ones, where a is a tensor of 16 bits that is read in strides along
//            dims of e (x[2 y + s, c]); or a temporary whose last index is no term; or several dims, the last of which has a number of
//            values that is no multiple of 16; or several dims, where nobody else reads a or b, temporaries both: nothing is copied then.
// Rewrite    a'[dims of e, t] = a_p, before the sum, where t numbers the terms in their order. A temporary that nobody else reads becomes a'
//            itself. The same for b. The sum runs over t and reads a' and b'. Both have zeros up to a multiple of 16 terms.
// Conditions the sum is alone in its loops; each operand follows a dim of e that the other does not, and all terms; zeros need a sum that
//            starts from 0.
// Proof      a' has the elements of a under other names, complete before the sum begins; t is one to one. Both operands have zeros in the
//            same places: r_e + 0 0 = r_e, as a sum that starts from +0 is never -0.
// Rounding   none: elements are copied, and added up in the same order.
// Source     K. Chellapilla, S. Puri, P. Simard, High performance convolutional neural networks for document processing, 2006.
#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <optional>

#include "poly/algebra/operands/half_products.h"
#include "poly/algebra/operands/whole_dims.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr const char* kName = "gather_terms";
constexpr std::int64_t kRun = 16;             ///< terms that tensor cores take at once
constexpr std::int64_t kMostTerms = 1 << 20;  ///< of known extents
constexpr std::int64_t kVector = 8;           ///< elements of 16 bytes
constexpr std::size_t kMostIndices = 5;       ///< of what tensor copies read

struct Operand {
  std::size_t ordinal = 0;
  std::vector<int> rows;  ///< dims of the result that it follows
  bool is_own = false;    ///< a temporary that the sum alone reads: it may have any layout
};

struct Gathering {
  std::vector<Operand> operands;
  std::vector<int> written, terms;     ///< dims of the sum
  std::vector<std::int64_t> extents;   ///< of `terms`
  std::int64_t count = 1, padded = 1;  ///< terms, without and with zeros
};

bool is_among(const std::vector<int>& dims, int dim) { return std::find(dims.begin(), dims.end(), dim) != dims.end(); }

/// Those of a set with 0 <= dim < extent.
isl::set within(const isl::set& set, int dim, std::int64_t extent) {
  isl_set* part = isl_set_lower_bound_si(set.copy(), isl_dim_set, static_cast<unsigned>(dim), 0);
  return isl::manage(isl_set_upper_bound_si(part, isl_dim_set, static_cast<unsigned>(dim), static_cast<int>(extent - 1)));
}

/// May the statements that write the temporary write another layout of it?
bool is_own(const Nest& nest, const Statement& sum, std::size_t ordinal) {
  const std::string& tensor = sum.reads[ordinal].tensor;
  if (nest.tensor(tensor).role != TensorRole::temporary || readers_of(nest, tensor).size() != 1) return false;
  const std::vector<const Statement*> writers = writers_of(nest, tensor);
  return std::all_of(writers.begin(), writers.end(), [&](const Statement* writer) {
    return writer->group < sum.group && !writer->reduction && alone_in_group(nest, writer->name) &&
           writer->write.relation.intersect_domain(domain_in(nest, *writer)).is_injective();
  });
}

/// Sets `why` where there is none.
std::optional<Gathering> gathering_of(const Nest& nest, const Statement& sum, std::string& why) {
  why = "it is no sum of products of two 16-bit tensors";
  const auto halves = half_products(sum);
  if (!halves || sum.reads.size() != 2 || sum.reads[0].tensor == sum.reads[1].tensor) return std::nullopt;
  why = "it shares its loops with other statements of its definition";
  if (!alone_in_group(nest, sum.name)) return std::nullopt;
  Gathering result;
  result.terms = reduced_dims(sum);
  for (int dim = 0; dim < static_cast<int>(sum.dims.size()); ++dim) {
    if (!is_among(result.terms, dim)) result.written.push_back(dim);
  }
  why = "its terms have no known extents that are the same for all results";
  isl::set whole = without_dims(domain_in(nest, sum), result.terms);
  for (const int dim : result.terms) {
    const auto extent = known_value(nest, extent_of(nest, sum.domain, dim));
    if (!extent || *extent < 1 || (result.count *= *extent) > kMostTerms) return std::nullopt;
    result.extents.push_back(*extent);
    whole = within(whole, dim, *extent);
  }
  if (result.terms.empty() || !whole.is_equal(domain_in(nest, sum))) return std::nullopt;
  why = "a dim of it has negative values";
  isl::set positive = whole;
  for (const int dim : result.written)
    positive = isl::manage(isl_set_lower_bound_si(positive.release(), isl_dim_set, static_cast<unsigned>(dim), 0));
  if (!positive.is_equal(whole)) return std::nullopt;
  why =
      "the operands are not those of a product of matrices: each follows a dim of the result that the other does not, and both "
      "all terms";
  bool in_strides = false;
  for (const auto& [ordinal, other] : {std::pair(halves->first, halves->second), std::pair(halves->second, halves->first)}) {
    Operand operand{ordinal, {}, is_own(nest, sum, ordinal)};
    const isl::map& read = sum.reads[ordinal].relation;
    for (const int dim : result.written) {
      if (depends_on_dim(read, dim)) operand.rows.push_back(dim);
    }
    const bool all_terms =
        std::all_of(result.terms.begin(), result.terms.end(), [&](int dim) { return depends_on_dim(read, dim); });
    if (!follows_own_dim(sum, ordinal, other) || !all_terms) return std::nullopt;
    const isl::pw_aff last = functions_of(read).back();
    const bool ends_with_term = std::any_of(result.terms.begin(), result.terms.end(), [&](int dim) {
      return isl_pw_aff_involves_dims(last.get(), isl_dim_in, static_cast<unsigned>(dim), 1) == isl_bool_true;
    });
    in_strides = in_strides || moves_in_strides(sum.reads[ordinal], operand.rows) ||
                 (result.terms.size() > 1 && functions_of(read).size() > kMostIndices) ||
                 (operand.is_own && result.terms.size() > 1 && !ends_with_term);
    result.operands.push_back(operand);
  }
  why = "its operands are read one element after the other, in runs of 16 terms";
  const bool without_copies =
      std::all_of(result.operands.begin(), result.operands.end(), [](const Operand& operand) { return operand.is_own; });
  if (!in_strides && (result.terms.size() == 1 || (result.extents.back() % kRun == 0 && !without_copies))) return std::nullopt;
  result.padded = (result.count + kRun - 1) / kRun * kRun;
  why = "zeros among its terms need a sum that starts from 0";
  if (result.padded > result.count && !starts_from(nest, sum, 0)) return std::nullopt;
  why = "";
  return result;
}

std::vector<RuleMatch> find(const Nest& nest) {
  std::string why;
  return matching_statements(nest, kName, [&](const Statement& statement) {
    return gathering_of(nest, statement, why) ? "terms of " + statement.name + " lie side by side in copies of its operands" : "";
  });
}

class Gatherer {
 public:
  Gatherer(const Nest& nest, const Statement& sum, Gathering gathering)
      : before_(nest), result_(nest), sum_(sum), gathering_(std::move(gathering)) {}

  Nest gather() {
    Statement sum = sum_;
    sum.dims = names(gathering_.written);
    sum.dims.push_back(fresh_dim(result_, sum.dims, "t"));
    const auto last = static_cast<int>(gathering_.written.size());
    const isl::set all = isl::manage(isl_set_add_dims(onto(gathering_.written, sum.name).range().release(), isl_dim_set, 1));
    sum.domain = named(within(all, last, gathering_.padded), sum.name, sum.dims);
    const auto place = [&](int dim) {
      return static_cast<int>(std::find(gathering_.written.begin(), gathering_.written.end(), dim) - gathering_.written.begin());
    };
    for (const Operand& operand : gathering_.operands) {
      const std::string copied = add_copy(operand);
      std::vector<isl::pw_aff> functions;
      for (const int dim : operand.rows) functions.push_back(dim_function(sum.domain, place(dim)));
      functions.push_back(dim_function(sum.domain, last));
      sum.reads[operand.ordinal] = {copied, relation_of(sum.domain, copied, functions)};
    }
    // What is added to is the same for all terms: the element of the first one.
    std::vector<isl::pw_aff> first;
    for (int dim = 0; dim < static_cast<int>(sum_.dims.size()); ++dim) {
      const bool is_term = is_among(gathering_.terms, dim);
      const isl::pw_aff function = dim_function(sum.domain, is_term ? last : place(dim));
      first.push_back(is_term ? function.sub(function) : function);
    }
    sum.write.relation = relation_of(sum.domain, sum_.name, first).apply_range(sum_.write.relation).gist_domain(sum.domain);
    sum.group = result_.statement(sum.name).group;
    replace_statement(result_, sum);
    drop_unused(result_);
    return std::move(result_);
  }

 private:
  void insert(const Statement& statement) {
    insert_statement(result_, begin_with_initialisers(result_, result_.statement(sum_.name)), statement);
  }

  /// Indices of a copy at the points of a set whose dims are `rows` rows, and then the terms.
  std::vector<isl::pw_aff> indices(const isl::set& points, std::size_t rows) const {
    std::vector<isl::pw_aff> functions;
    for (std::size_t k = 0; k < rows; ++k) functions.push_back(dim_function(points, static_cast<int>(k)));
    isl::pw_aff number = dim_function(points, static_cast<int>(rows));
    for (std::size_t k = 1; k < gathering_.terms.size(); ++k) {
      const isl::val extent(number.ctx(), static_cast<long>(gathering_.extents[k]));
      number =
          isl::manage(isl_pw_aff_scale_val(number.copy(), extent.copy())).add(dim_function(points, static_cast<int>(rows + k)));
    }
    functions.push_back(number);
    return functions;
  }

  isl::set named(isl::set set, const std::string& name, const std::vector<std::string>& dims) const {
    isl_set* result = isl_set_gist_params(isl_set_coalesce(set.release()), full_context(before_).release());
    result = isl_set_set_tuple_name(result, name.c_str());
    return isl::manage(with_dim_names(result, dims));
  }

  /// { Sum[dims] -> name[those of `dims`] }.
  isl::map onto(const std::vector<int>& dims, const std::string& name) const {
    isl_map* map = isl_map_from_domain(domain_in(before_, sum_).release());
    map = isl_map_add_dims(map, isl_dim_out, static_cast<unsigned>(dims.size()));
    for (std::size_t k = 0; k < dims.size(); ++k)
      map = isl_map_equate(map, isl_dim_in, dims[k], isl_dim_out, static_cast<int>(k));
    return isl::manage(isl_map_set_tuple_name(map, isl_dim_out, name.c_str()));
  }

  std::vector<std::string> names(const std::vector<int>& dims) const {
    std::vector<std::string> result;
    for (const int dim : dims) result.push_back(sum_.dims[static_cast<std::size_t>(dim)]);
    return result;
  }

  /// Statements that write the operand's copy; returns its name.
  std::string add_copy(const Operand& operand) {
    const Access& read = sum_.reads[operand.ordinal];
    const std::string name = fresh_name(result_, read.tensor + "_terms");
    Tensor tensor = before_.tensor(read.tensor);
    tensor.name = name;
    tensor.role = TensorRole::temporary;
    tensor.tolerance = {};
    tensor.shape.clear();
    for (const int dim : operand.rows) tensor.shape.push_back(extent_of(before_, sum_.domain, dim));
    isl_set* params = isl_set_universe(isl_set_get_space(full_context(before_).get()));
    const isl::val count(isl_set_get_ctx(params), static_cast<long>(gathering_.padded));
    tensor.shape.push_back(isl::manage(isl_pw_aff_val_on_domain(params, count.copy())));
    result_.tensors.push_back(tensor);

    std::vector<int> dims = operand.rows;
    dims.insert(dims.end(), gathering_.terms.begin(), gathering_.terms.end());
    Statement copy;
    copy.name = name;
    copy.dims = names(dims);
    const isl::map to_copy = onto(dims, name);
    copy.domain = named(to_copy.range(), name, copy.dims);
    copy.write = {name, relation_of(copy.domain, name, indices(copy.domain, operand.rows.size()))};
    // The operand is the same at all points that have one image: the first of them will do.
    const isl::map to_sum = isl::manage(isl_map_lexmin(isl_map_reverse(to_copy.copy())));
    copy.value = import_value(copy, sum_, to_sum, ScalarExpr::read(static_cast<int>(operand.ordinal), tensor.type));
    if (gathering_.padded > gathering_.count) insert(zeros_of(operand, tensor));
    if (!operand.is_own || !rewrite_writers(copy)) insert(has_short_runs() ? numbered(copy, operand) : copy);
    return name;
  }

  /// Are the innermost terms too few for a vector?
  bool has_short_runs() const {
    const auto is_long = [](std::int64_t extent) { return extent > 1; };
    const auto last = std::find_if(gathering_.extents.rbegin(), gathering_.extents.rend(), is_long);
    return std::count_if(gathering_.extents.begin(), gathering_.extents.end(), is_long) > 1 && *last % kVector != 0;
  }

  /// The copy with one dim for the number of a term, so that neighbouring threads write neighbouring elements.
  Statement numbered(const Statement& copy, const Operand& operand) const {
    Statement result = copy;
    result.dims = names(operand.rows);
    result.dims.push_back(fresh_dim(result_, result.dims, "t"));
    result.domain = named(copy.domain.apply(copy.write.relation), copy.name, result.dims);
    result.write.relation = isl::manage(isl_set_identity(result.domain.copy())).set_range_tuple(copy.write.tensor);
    std::vector<isl::pw_aff> functions;
    for (std::size_t k = 0; k < operand.rows.size(); ++k) functions.push_back(dim_function(result.domain, static_cast<int>(k)));
    isl::pw_aff rest = dim_function(result.domain, static_cast<int>(operand.rows.size()));
    for (std::size_t k = gathering_.extents.size(); k-- > 0;) {
      const isl::val extent(rest.ctx(), static_cast<long>(gathering_.extents[k]));
      const isl::pw_aff term = k > 0 ? isl::manage(isl_pw_aff_mod_val(rest.copy(), extent.copy())) : rest;
      functions.insert(functions.begin() + static_cast<std::ptrdiff_t>(operand.rows.size()), term);
      rest = isl::manage(isl_pw_aff_floor(isl_pw_aff_scale_down_val(rest.copy(), extent.copy())));
    }
    const isl::map to_copy = relation_of(result.domain, copy.name, functions);
    for (Access& read : result.reads) read.relation = to_copy.apply_range(read.relation).intersect_domain(result.domain);
    return result;
  }

  Statement zeros_of(const Operand& operand, const Tensor& tensor) const {
    Statement zeros;
    zeros.name = fresh_name(result_, tensor.name + "_zeros");
    zeros.dims = names(operand.rows);
    zeros.dims.push_back(fresh_dim(result_, zeros.dims, "t"));
    const auto place = static_cast<unsigned>(operand.rows.size());
    isl_set* domain = isl_set_add_dims(onto(operand.rows, zeros.name).range().release(), isl_dim_set, 1);
    domain = isl_set_lower_bound_si(domain, isl_dim_set, place, static_cast<int>(gathering_.count));
    domain = isl_set_upper_bound_si(domain, isl_dim_set, place, static_cast<int>(gathering_.padded - 1));
    zeros.domain = named(isl::manage(domain), zeros.name, zeros.dims);
    zeros.write = {tensor.name, isl::manage(isl_set_identity(zeros.domain.copy())).set_range_tuple(tensor.name)};
    zeros.value = ScalarExpr::cast(tensor.type, ScalarExpr::constant(0));
    return zeros;
  }

  /// What writes a temporary writes its copy, if no element of it has several places there.
  bool rewrite_writers(const Statement& copy) {
    const isl::map source = copy.reads.front().relation.intersect_domain(domain_in(before_, copy));
    if (!source.is_injective()) return false;
    // Elements that are written again before the sum reads them are written once.
    isl::set again = isl::set::empty(copy.domain.space());
    std::vector<const Statement*> writers = writers_of(before_, copy.reads.front().tensor);
    std::reverse(writers.begin(), writers.end());
    for (const Statement* writer : writers) {
      isl::map to_copy = writer->write.relation.intersect_domain(domain_in(before_, *writer)).apply_range(source.reverse());
      const isl::set written = to_copy.range();
      to_copy = to_copy.intersect_range(written.subtract(again));
      again = again.unite(written).coalesce();
      if (to_copy.is_empty()) {  // the sum reads none of its elements, and nothing else does
        erase_statement(result_, writer->name);
        continue;
      }
      Statement other;
      other.name = writer->name;
      other.dims = copy.dims;
      other.group = result_.statement(writer->name).group;
      other.domain = named(to_copy.range(), other.name, other.dims);
      other.write = {copy.write.tensor, relation_of(other.domain, copy.write.tensor,
                                                    indices(other.domain, copy.dims.size() - gathering_.terms.size()))};
      other.value = import_value(other, *writer, to_copy.reverse().set_domain_tuple(other.name), writer->value);
      replace_statement(result_, other);
    }
    return true;
  }

  const Nest& before_;
  Nest result_;
  const Statement sum_;
  const Gathering gathering_;
};

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const std::string name = statement_argument(nest, kName, target, 1);
  std::string why;
  std::optional<Gathering> gathering = gathering_of(nest, nest.statement(name), why);
  if (!gathering) refuse_rule(kName, name, why);
  return {Gatherer(nest, nest.statement(name), std::move(*gathering)).gather(), {}, false};
}

}  // namespace

const Rule& gather_terms_rule() {
  static const Rule rule{kName,
                         "terms of a sum of products lie side by side in copies of its operands (argument: statement)",
                         "copies hold the operands' elements under other names; zeros beside them meet zeros",
                         "none",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
