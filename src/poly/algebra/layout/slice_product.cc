// Rule "slice_product": a product of which a slice is needed first is computed for that slice, and whole behind it.
//
// Pattern    s_q += f(t_(.., c, ..), ..), where t comes from one sum of products of two 16-bit tensors, by itself or through elementwise
//            definitions, c is a number where t has several values, and others read t behind s (one head's scores say what all heads forget).
// Rewrite    copies of what t comes from, back to the sum, stand before the first of the others, which read them. What there was is made for
//            the elements at c alone, without that index. So s keeps nobody from sharing loops with the product.
// Conditions all of these statements are alone in their loops and use no index as a value; nothing else reads what they write, and nothing
//            writes what they read from there on. All that read t at numbers do so at c, and stand before the others.
// Proof      the same operations on the same values; elements that are not made are read by nobody.
// Rounding   none.
#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>
#include <isl/val.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "poly/algebra/operands/product_copies.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr const char* kName = "slice_product";

/// The number that an index always is; nullopt: it changes.
std::optional<std::int64_t> number_of(const isl::pw_aff& index) {
  if (isl_pw_aff_is_cst(index.get()) != isl_bool_true || isl_pw_aff_n_piece(index.get()) != 1) return std::nullopt;
  isl_val* constant = nullptr;
  const auto take = [](isl_set* set, isl_aff* aff, void* user) {
    *static_cast<isl_val**>(user) = isl_aff_get_constant_val(aff);
    const bool plain = isl_aff_is_cst(aff) == isl_bool_true;
    isl_set_free(set);
    isl_aff_free(aff);
    return plain ? isl_stat_ok : isl_stat_error;
  };
  const bool plain = isl_pw_aff_foreach_piece(index.get(), take, &constant) == isl_stat_ok;
  const bool whole = plain && constant != nullptr && isl_val_is_int(constant) == isl_bool_true;
  const std::optional<std::int64_t> number = whole ? std::optional<std::int64_t>(isl_val_get_num_si(constant)) : std::nullopt;
  isl_val_free(constant);
  return number;
}

/// Indices of a read that are numbers though the tensor has several elements along them.
std::map<std::size_t, std::int64_t> sliced_indices(const Nest& nest, const Access& read) {
  std::map<std::size_t, std::int64_t> numbers;
  if (nest.tensor(read.tensor).role != TensorRole::temporary || !read.relation.is_single_valued() || read.relation.is_empty())
    return numbers;
  const std::vector<isl::pw_aff> functions = functions_of(read.relation);
  const std::vector<isl::pw_aff>& shape = nest.tensor(read.tensor).shape;
  for (std::size_t p = 0; p < functions.size(); ++p) {
    const auto number = number_of(functions[p]);
    if (number && known_value(nest, shape[p]) != 1) numbers[p] = *number;
  }
  return numbers;
}

/// What a tensor is made of, back to a product, and who reads it.
struct Slice {
  std::string tensor;
  std::map<std::size_t, std::int64_t> indices;  ///< c, by place
  std::vector<std::string> made_of;             ///< tensors, itself first, the sum of products last
  std::set<std::string> others;                 ///< statements that read all of it
  std::string first_other;
};

/// From the tensor back to a sum of products that nothing else reads; empty: it does not come from one.
std::vector<std::string> way_to_product(const Nest& nest, const std::string& tensor) {
  std::vector<std::string> way{tensor};
  while (!is_product_sum(nest, way.back())) {
    const Statement* definition = is_elementwise_temporary(nest, way.back()) ? sole_definition(nest, way.back()) : nullptr;
    if (definition == nullptr) return {};
    std::set<std::string> temporaries;
    for (const Access& read : definition->reads) {
      if (nest.tensor(read.tensor).role != TensorRole::input) temporaries.insert(read.tensor);
    }
    if (temporaries.size() != 1 || readers_of(nest, *temporaries.begin()).size() != 1) return {};
    way.push_back(*temporaries.begin());
  }
  return way;
}

/// Of the read of a statement; sets `why` where there is none.
std::optional<Slice> slice_at(const Nest& nest, const Access& read, std::string& why) {
  Slice slice{read.tensor, sliced_indices(nest, read), {}, {}, {}};
  why = "it reduces no slice of what comes from a sum of products of two 16-bit tensors";
  if (nest.tensor(read.tensor).role != TensorRole::temporary || slice.indices.empty()) return std::nullopt;
  slice.made_of = way_to_product(nest, read.tensor);
  if (slice.made_of.empty()) return std::nullopt;
  why = "others read other slices, or all of it before";
  int last_of_slice = -1;
  for (const Statement* reader : readers_of(nest, read.tensor)) {
    bool whole = false, part = false;
    for (const Access& each : reader->reads) {
      if (each.tensor != read.tensor) continue;
      const auto indices = sliced_indices(nest, each);
      if (!indices.empty() && indices != slice.indices) return std::nullopt;
      (indices.empty() ? whole : part) = true;
    }
    if (whole && part) return std::nullopt;
    if (part) last_of_slice = std::max(last_of_slice, reader->group);
    if (whole && slice.others.empty()) slice.first_other = reader->name;
    if (whole) slice.others.insert(reader->name);
  }
  if (slice.others.empty() || nest.statement(slice.first_other).group <= last_of_slice) return std::nullopt;
  why = "what it is made of shares its loops, or is made of what is written again";
  for (const std::string& tensor : slice.made_of) {
    for (const Statement* writer : writers_of(nest, tensor)) {
      const bool before = writer->group < nest.statement(slice.first_other).group;
      if (!before || !writer->indices.empty() || !alone_in_group(nest, writer->name) ||
          !may_recompute(nest, *writer, nest.statement(slice.first_other)))
        return std::nullopt;
    }
  }
  return slice;
}

std::optional<Slice> slice_of(const Nest& nest, const Statement& statement, std::string& why) {
  why = "it reduces no slice of what comes from a sum of products of two 16-bit tensors";
  if (!statement.reduction) return std::nullopt;
  for (const Access& read : statement.reads) {
    if (auto slice = slice_at(nest, read, why)) return slice;
  }
  return std::nullopt;
}

/// Places at which all elements of a set are the same number, the last one first.
std::vector<int> fixed_places(const isl::set& set) {
  std::vector<int> places;
  for (int p = static_cast<int>(isl_set_dim(set.get(), isl_dim_set)); p-- > 0;) {
    const isl::val number = isl::manage(isl_set_plain_get_val_if_fixed(set.get(), isl_dim_set, static_cast<unsigned>(p)));
    if (number.is_int()) places.push_back(p);
  }
  return places;
}

/// The relation between what is left of a statement without some of its dims and of a tensor without some of its indices.
isl::map without(const isl::map& relation, const std::vector<int>& dims, const std::vector<int>& places) {
  const std::string statement = isl_map_get_tuple_name(relation.get(), isl_dim_in),
                    tensor = isl_map_get_tuple_name(relation.get(), isl_dim_out);
  isl_map* rest = relation.copy();
  for (const int dim : dims) rest = isl_map_project_out(rest, isl_dim_in, static_cast<unsigned>(dim), 1);
  for (const int place : places) rest = isl_map_project_out(rest, isl_dim_out, static_cast<unsigned>(place), 1);
  rest = isl_map_set_tuple_name(rest, isl_dim_in, statement.c_str());
  return isl::manage(isl_map_set_tuple_name(rest, isl_dim_out, tensor.c_str()));
}

/// Statements make what the slice's readers need, and no more, along the dims that are left; tensors have the indices that are left.
class Restriction {
 public:
  Restriction(Nest nest, const Slice& slice) : nest_(std::move(nest)), slice_(slice) {}

  Nest apply() {
    isl::set needed = tensor_box(nest_.tensor(slice_.tensor));
    for (const auto& [place, number] : slice_.indices)
      needed = isl::manage(isl_set_fix_si(needed.release(), isl_dim_set, static_cast<unsigned>(place), static_cast<int>(number)));
    for (const std::string& tensor : slice_.made_of) needed = restrict_writers(tensor, needed);
    return std::move(nest_);
  }

 private:
  /// Returns what is needed of the tensor that its definition reads, where there is one.
  isl::set restrict_writers(const std::string& tensor, const isl::set& needed) {
    const std::vector<int> places = fixed_places(needed);
    isl::set below = needed;
    std::vector<std::string> names;
    for (const Statement* writer : writers_of(nest_, tensor)) names.push_back(writer->name);
    for (const std::string& name : names) {
      Statement statement = nest_.statement(name);
      statement.domain = statement.domain.intersect(statement.write.relation.intersect_range(needed).domain());
      for (const Access& read : statement.reads) {
        if (nest_.tensor(read.tensor).role != TensorRole::input)
          below = read.relation.intersect_domain(domain_in(nest_, statement)).range();
      }
      statement.write.relation = without(statement.write.relation, {}, places);
      replace_statement(nest_, without_fixed_dims(statement));
    }
    for (const Statement* reader : readers_of(nest_, tensor)) {
      Statement changed = *reader;
      for (Access& read : changed.reads) {
        if (read.tensor == tensor) read.relation = without(read.relation, {}, places);
      }
      replace_statement(nest_, changed);
    }
    for (Tensor& each : nest_.tensors) {
      for (const int place : places) {
        if (each.name == tensor) each.shape.erase(each.shape.begin() + place);
      }
    }
    return below;
  }

  Statement without_fixed_dims(Statement statement) const {
    const std::vector<int> dims = fixed_places(statement.domain);
    for (Access* access : accesses_of(statement)) {
      const isl::map inside = access->relation.intersect_domain(statement.domain);
      access->relation = without(inside, dims, {});
    }
    isl_set* domain = statement.domain.copy();
    for (const int dim : dims) {
      domain = isl_set_project_out(domain, isl_dim_set, static_cast<unsigned>(dim), 1);
      statement.dims.erase(statement.dims.begin() + dim);
    }
    domain = isl_set_set_tuple_name(isl_set_gist_params(domain, full_context(nest_).release()), statement.name.c_str());
    statement.domain = isl::manage(isl_set_coalesce(with_dim_names(domain, statement.dims)));
    for (Access* access : accesses_of(statement))
      access->relation = access->relation.gist_domain(statement.domain).gist_params(full_context(nest_));
    return statement;
  }

  static std::vector<Access*> accesses_of(Statement& statement) {
    std::vector<Access*> all{&statement.write};
    for (Access& read : statement.reads) all.push_back(&read);
    return all;
  }

  Nest nest_;
  const Slice& slice_;
};

std::vector<RuleMatch> find(const Nest& nest) {
  std::string why;
  return matching_statements(nest, kName, [&](const Statement& statement) {
    const auto slice = slice_of(nest, statement, why);
    return slice ? slice->tensor + " is made for the slice that " + statement.name + " reads, and again behind it" : "";
  });
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const Slice slice = required_match(nest, kName, target, slice_of);
  const std::set<std::string> copied(slice.made_of.begin(), slice.made_of.end());
  const auto takes = [&](const Statement& statement) { return slice.others.contains(statement.name); };
  Nest whole = with_copies(nest, copied, takes, group_begin(nest, slice.first_other));
  return {Restriction(std::move(whole), slice).apply(), {}, false};
}

}  // namespace

const Rule& slice_product_rule() {
  static const Rule rule{
      kName,
      "a product of which a slice is needed first is made for the slice, and whole behind it (argument: the slice's reader)",
      "the copies are made by the same operations on the same values",
      "none",
      find,
      apply};
  return rule;
}

}  // namespace nestor
