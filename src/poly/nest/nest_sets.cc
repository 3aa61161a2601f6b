// A nest's sets and relations.
#include "poly/nest/nest_sets.h"

#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>
#include <isl/space.h>

#include <limits>
#include <map>
#include <string>

#include "poly/isl/isl_tools.h"
#include "support/error.h"

namespace nestor {

isl::set tensor_box(const Tensor& tensor) {
  isl::ctx ctx = isl_context();
  isl::space space = isl::manage(isl_space_set_alloc(ctx.get(), 0, static_cast<unsigned>(tensor.shape.size())));
  isl::set box = isl::set::universe(isl::manage(isl_space_set_tuple_name(space.release(), isl_dim_set, tensor.name.c_str())));
  for (std::size_t k = 0; k < tensor.shape.size(); ++k) {
    const isl::pw_aff extent = over_params(tensor.shape[k]);
    const isl::pw_aff index = dim_function(box, static_cast<int>(k));
    const isl::pw_aff bound = isl::manage(isl_pw_aff_insert_domain(extent.copy(), isl_pw_aff_get_domain_space(index.get())));
    const isl::set inside = index.lt_set(bound);
    box = isl::manage(isl_set_lower_bound_si(box.copy(), isl_dim_set, static_cast<unsigned>(k), 0)).intersect(inside);
  }
  return box;
}

namespace {

/// A set of sizes. Every rule asks for the same few again and again, and reading text takes longer than the rest.
isl::set range_of_size(const std::string& text, const std::string& name) {
  constexpr std::size_t kMost = 256;
  thread_local std::map<std::string, isl::set> known;
  if (const auto found = known.find(text); found != known.end()) return found->second;
  if (known.size() >= kMost) known.clear();
  return known.emplace(text, parse_set(text, "size " + name)).first->second;
}

/// The context with minima of sizes, and maxima up to `largest_maximum`.
isl::set context_within(const Nest& nest, std::int64_t largest_maximum) {
  isl::set context = nest.context;
  for (const SizeParam& size : nest.sizes) {
    std::string text = fmt::format("[{0}] -> {{ : {0} >= {1}", size.name, size.min);
    if (size.max && *size.max <= largest_maximum) text += fmt::format(" and {} <= {}", size.name, *size.max);
    context = context.intersect(range_of_size(text + " }", size.name));
  }
  return context;
}

}  // namespace

isl::set full_context(const Nest& nest) { return context_within(nest, std::numeric_limits<std::int64_t>::max()); }

isl::set shape_context(const Nest& nest) {
  constexpr std::int64_t kLargestTile = 1024;
  return context_within(nest, kLargestTile);
}

bool has_one_value(const Nest& nest, const isl::pw_aff& size) {
  const isl::pw_aff known = isl::manage(isl_pw_aff_gist_params(size.copy(), full_context(nest).release()));
  return isl_pw_aff_is_cst(known.get()) == isl_bool_true;
}

std::optional<std::int64_t> known_value(const Nest& nest, const isl::pw_aff& size) {
  if (!has_one_value(nest, size)) return std::nullopt;
  isl_pw_aff* known = isl_pw_aff_intersect_params(size.copy(), full_context(nest).release());
  const isl::val value = isl::manage(isl_pw_aff_max_val(known));
  return value.is_int() ? std::optional<std::int64_t>(value.get_num_si()) : std::nullopt;
}

isl::map original_order(const Nest& nest, const std::string& source, const std::string& sink) {
  std::size_t from = nest.statements.size();
  std::size_t to = nest.statements.size();
  for (std::size_t k = 0; k < nest.statements.size(); ++k) {
    if (nest.statements[k].name == source) from = k;
    if (nest.statements[k].name == sink) to = k;
  }
  if (from == nest.statements.size() || to == nest.statements.size()) {
    internal_error("no order between {} and {}: not statements of the nest", source, sink);
  }
  const Statement& a = nest.statements[from];
  const Statement& b = nest.statements[to];
  isl_ctx* ctx = isl_context().get();
  const auto dims_a = static_cast<unsigned>(a.dims.size());
  isl_map* order = nullptr;
  if (a.group != b.group) {
    isl_space* space = isl_space_alloc(ctx, 0, dims_a, static_cast<unsigned>(b.dims.size()));
    order = from < to ? isl_map_universe(space) : isl_map_empty(space);
  } else {
    order = from < to ? isl_map_lex_le(isl_space_set_alloc(ctx, 0, dims_a)) : isl_map_lex_lt(isl_space_set_alloc(ctx, 0, dims_a));
  }
  order = isl_map_set_tuple_name(order, isl_dim_in, source.c_str());
  return isl::manage(isl_map_set_tuple_name(order, isl_dim_out, sink.c_str()));
}

}  // namespace nestor
