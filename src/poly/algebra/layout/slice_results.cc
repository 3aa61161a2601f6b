// Rule "slice_results": results that are slices of one product are products of their own.
//
// Pattern    r0_mo = f(t_m,o), r1_mo = g(t_m,o+O), .., results that each read a slice of t, where t comes from one sum of products of two 16-bit
//            tensors, by itself or through elementwise definitions: queries, keys and values of one matrix of weights.
// Rewrite    what t comes from, back to the sum, is made for each result's slice alone, right before it, at places counted from the slice's
//            first one. So each result has a kernel that keeps its sums, in place of one that stores t.
// Conditions slices lie one behind the other along one index that the sum has a dim for, have 64 places or more at the sizes' defaults, and
//            each starts at one affine function of the sizes. The sum, its start and the definitions are alone in their loops and the only ones
//            that know their temporaries; what they read is not written again before the last result.
// Proof      the same operations on the same values; elements that no result reads are read by nobody.
// Rounding   none.
#include <fmt/format.h>
#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "poly/algebra/operands/half_products.h"
#include "poly/algebra/operands/product_copies.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr const char* kName = "slice_results";
constexpr std::int64_t kFewestPlaces = 64;  ///< of a slice: a narrow one fills no tile of a product of its own

/// What a result reads of a tensor.
struct Slice {
  std::string reader;
  isl::set elements;
  std::optional<isl::pw_aff> first;  ///< of its places, over the sizes; known once they lie apart
};

/// A sum of products, and what is made of it element by element until results read slices.
struct Slices {
  std::vector<std::string> tensors;     ///< the sum's, then what is made of each; the last one is what results read
  std::vector<std::size_t> indices;     ///< that tell slices, by tensor
  std::map<std::string, int> dims;      ///< that these indices are, by statement
  std::vector<std::string> statements;  ///< that write the tensors, in their order
  std::vector<Slice> slices;
};

/// The index of `access` that is dim `dim` of the statement by itself; nothing where there is none.
std::optional<std::size_t> index_of_dim(const Statement& statement, const Access& access, int dim) {
  const std::vector<std::string> names = names_of_indices(statement, access);
  const auto found = std::find(names.begin(), names.end(), statement.dims[static_cast<std::size_t>(dim)]);
  return found == names.end() ? std::nullopt : std::optional(static_cast<std::size_t>(found - names.begin()));
}

/// The only read of a tensor; null where there are several.
const Access* only_read(const Statement& statement, const std::string& tensor) {
  const Access* found = nullptr;
  for (const Access& read : statement.reads) {
    if (read.tensor != tensor) continue;
    if (found != nullptr) return nullptr;
    found = &read;
  }
  return found;
}

/// All elements of a set at one index: { T[x] } -> { [x_index] }.
isl::set places(const isl::set& elements, std::size_t index) {
  const auto rank = static_cast<unsigned>(isl_set_dim(elements.get(), isl_dim_set)), at = static_cast<unsigned>(index);
  isl_set* set = isl_set_project_out(elements.copy(), isl_dim_set, at + 1, rank - at - 1);
  return isl::manage(isl_set_project_out(set, isl_dim_set, 0, at));
}

/// The tensors from the sum's to the one that several statements read.
std::vector<std::string> made_of(const Nest& nest, const std::string& sum) {
  std::vector<std::string> tensors{sum};
  for (;;) {
    const std::vector<const Statement*> readers = readers_of(nest, tensors.back());
    if (readers.size() != 1 || !is_elementwise_temporary(nest, readers.front()->write.tensor)) return tensors;
    tensors.push_back(readers.front()->write.tensor);
  }
}

class SliceFinder {
 public:
  explicit SliceFinder(const Nest& nest) : nest_(nest) {}

  /// Sets `why` where there are none.
  std::optional<Slices> from(const Statement& sum, std::string& why) {
    why = "it is no sum of products of two 16-bit tensors, of rows and columns";
    if (sum.reduction != ReductionOp::add || !half_products(sum) ||
        nest_.tensor(sum.write.tensor).role != TensorRole::temporary || !is_product_sum(nest_, sum.write.tensor) ||
        !multiplies_rows_by_columns(nest_, sum))
      return std::nullopt;
    found_.tensors = made_of(nest_, sum.write.tensor);
    const std::string& last = found_.tensors.back();
    why = "it is not read by definitions of several results alone, each once";
    if (!are_results(readers_of(nest_, last), last)) return std::nullopt;
    why = "what comes from it shares loops, or is made of what is written again";
    if (!may_be_moved()) return std::nullopt;
    why = fmt::format("results do not read slices of {} places or more, one behind the other along a dim of it", kFewestPlaces);
    for (std::size_t index = 0; index < nest_.tensor(last).shape.size(); ++index) {
      if (lie_apart(index) && follow(index)) return std::move(found_);
    }
    return std::nullopt;
  }

 private:
  bool are_results(const std::vector<const Statement*>& readers, const std::string& tensor) {
    for (const Statement* reader : readers) {
      const Access* read = only_read(*reader, tensor);
      if (reader->reduction || nest_.tensor(reader->write.tensor).role != TensorRole::output || read == nullptr) return false;
      const isl::set elements = domain_in(nest_, *reader).apply(read->relation);
      found_.slices.push_back({reader->name, elements, std::nullopt});
    }
    return readers.size() > 1;
  }

  bool may_be_moved() {
    for (const std::string& tensor : found_.tensors) {
      for (const Statement* writer : writers_of(nest_, tensor)) {
        found_.statements.push_back(writer->name);
        const auto keeps = [&](const Slice& slice) { return may_recompute(nest_, *writer, nest_.statement(slice.reader)); };
        if (!alone_in_group(nest_, writer->name) || !std::all_of(found_.slices.begin(), found_.slices.end(), keeps)) return false;
      }
    }
    return true;
  }

  std::int64_t places_by_default(const isl::set& slice) const {
    Sizes sizes;
    for (const SizeParam& size : nest_.sizes) sizes[size.name] = size.default_value;
    const isl::set fixed = at_sizes(slice, sizes);
    if (fixed.is_empty()) return 0;
    const auto [low, high] = dim_range(fixed, 0);
    return high - low + 1;
  }

  bool lie_apart(std::size_t index) {
    std::vector<isl::set> taken;
    for (Slice& slice : found_.slices) {
      const isl::set own = places(slice.elements, index);
      const auto meets = [&](const isl::set& other) { return !own.is_disjoint(other); };
      if (std::any_of(taken.begin(), taken.end(), meets) || places_by_default(own) < kFewestPlaces) return false;
      taken.push_back(own);
      const isl::pw_aff first = isl::manage(isl_set_dim_min(own.copy(), 0)).gist_params(full_context(nest_)).coalesce();
      if (isl_pw_aff_isa_aff(first.get()) != isl_bool_true) return false;
      slice.first = first;
    }
    return true;
  }

  /// Is the index a dim of each statement, back to the sum?
  bool follow(std::size_t index) {
    found_.indices.assign(found_.tensors.size(), index);
    found_.dims.clear();
    for (std::size_t k = found_.tensors.size(); k-- > 0;) {
      for (const Statement* writer : writers_of(nest_, found_.tensors[k])) {
        const std::vector<std::string> names = names_of_indices(*writer, writer->write);
        if (names.empty()) return false;
        const auto dim = std::find(writer->dims.begin(), writer->dims.end(), names[found_.indices[k]]);
        const int place = found_.dims[writer->name] = static_cast<int>(dim - writer->dims.begin());
        if (k == 0) continue;
        const Access* read = only_read(*writer, found_.tensors[k - 1]);
        const auto before = read == nullptr ? std::nullopt : index_of_dim(*writer, *read, place);
        if (!before) return false;
        found_.indices[k - 1] = *before;
      }
    }
    return true;
  }

  const Nest& nest_;
  Slices found_;
};

std::optional<Slices> slices_of(const Nest& nest, const Statement& statement, std::string& why) {
  return SliceFinder(nest).from(statement, why);
}

/// { From[x] -> to[x with x_at - first in place of x_at] }
isl::map shifted(const isl::set& from, const std::string& to, std::size_t at, const isl::pw_aff& first) {
  const isl::set all = isl::manage(isl_set_universe(isl_set_get_space(from.get())));
  std::vector<isl::pw_aff> functions;
  for (int k = 0; k < static_cast<int>(isl_set_dim(all.get(), isl_dim_set)); ++k) functions.push_back(dim_function(all, k));
  functions[at] = functions[at].sub(over_params(first).insert_domain(all.space()));
  return relation_of(all, to, functions);
}

/// Copies for one slice.
class SliceCopies {
 public:
  SliceCopies(Nest& result, const Nest& nest, const Slices& slices, const Slice& slice)
      : result_(result), nest_(nest), slices_(slices), slice_(slice) {
    std::vector<isl::set> needed(slices.tensors.size(), slice.elements);
    for (std::size_t k = slices.tensors.size() - 1; k > 0; --k) {
      const Statement& definition = *sole_definition(nest, slices.tensors[k]);
      const isl::set points =
          domain_in(nest, definition).intersect(definition.write.relation.intersect_range(needed[k]).domain());
      needed[k - 1] = points.apply(only_read(definition, slices.tensors[k - 1])->relation);
    }
    // Statements and tensors may have the same names, as those that they are copies of.
    for (const std::string& name : slices.statements) names_[name] = fresh_name(result, name + "_" + slice.reader);
    for (std::size_t k = 0; k < slices.tensors.size(); ++k) add_tensor(slices.tensors[k], needed[k], slices.indices[k]);
  }

  void insert() {
    std::size_t position = group_begin(result_, slice_.reader);
    for (const std::string& name : slices_.statements) insert_statement(result_, position++, copy_of(nest_.statement(name)));
    Statement reader = result_.statement(slice_.reader);
    for (Access& read : reader.reads) move(read, domain_in(nest_, reader));
    replace_statement(result_, reader);
  }

 private:
  struct Own {
    std::string name;
    isl::set needed;
    isl::map to;  ///< { tensor[..] -> own[..] }
  };

  void add_tensor(const std::string& tensor, const isl::set& needed, std::size_t index) {
    Tensor own = nest_.tensor(tensor);
    own.name = fresh_name(result_, tensor + "_" + slice_.reader);
    const isl::map to = shifted(needed, own.name, index, *slice_.first);
    own.shape[index] = extent_of(nest_, needed.apply(to), static_cast<int>(index));
    own_.emplace(tensor, Own{own.name, needed, to});
    result_.tensors.push_back(std::move(own));
  }

  void move(Access& access, const isl::set& domain) const {
    const auto own = own_.find(access.tensor);
    if (own == own_.end()) return;
    access = {own->second.name,
              access.relation.intersect_domain(domain).apply_range(own->second.to).gist_domain(domain).coalesce()};
  }

  Statement copy_of(const Statement& statement) const {
    const isl::set needed = own_.at(statement.write.tensor).needed,
                   points = domain_in(nest_, statement).intersect(statement.write.relation.intersect_range(needed).domain());
    Statement copy;
    copy.name = names_.at(statement.name);
    copy.dims = statement.dims;
    const auto dim = static_cast<std::size_t>(slices_.dims.at(statement.name));
    const isl::map whole = shifted(points, copy.name, dim, *slice_.first).intersect_domain(points).reverse();
    isl_set* domain = isl_set_coalesce(isl_set_gist_params(whole.domain().release(), full_context(nest_).release()));
    copy.domain = isl::manage(with_dim_names(domain, copy.dims));
    copy.write = {statement.write.tensor, whole.apply_range(statement.write.relation)};
    copy.reduction = statement.reduction;
    copy.value = import_value(copy, statement, whole, statement.value);
    move(copy.write, copy.domain);
    for (Access& read : copy.reads) move(read, copy.domain);
    return copy;
  }

  Nest& result_;
  const Nest& nest_;
  const Slices& slices_;
  const Slice& slice_;
  std::map<std::string, Own> own_;            ///< by tensor
  std::map<std::string, std::string> names_;  ///< of copies, by statement
};

std::vector<RuleMatch> find(const Nest& nest) {
  return matching_statements(nest, kName, [&](const Statement& statement) {
    std::string why;
    const auto slices = slices_of(nest, statement, why);
    return slices ? fmt::format("{} results have sums of their own", slices->slices.size()) : "";
  });
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const Slices slices = required_match(nest, kName, target, slices_of);
  Nest result = nest;
  for (const Slice& slice : slices.slices) SliceCopies(result, nest, slices, slice).insert();
  for (const std::string& name : slices.statements) erase_statement(result, name);
  drop_unused(result);
  return {std::move(result), {}, false};
}

}  // namespace

const Rule& slice_results_rule() {
  static const Rule rule{kName,
                         "results that are slices of one product are products of their own (argument: the sum of products)",
                         "the same operations on the same values; elements that are not made are read by nobody",
                         "none",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
