// Small helpers over isl that several parts of poly need: text, parsing, boxes and piecewise functions.
#pragma once

#include <isl/cpp.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "nestor/types.h"
#include "poly/isl/context.h"

namespace nestor {

std::string isl_text(const isl::set& set);
std::string isl_text(const isl::map& map);
std::string isl_text(const isl::pw_aff& function);

/// "j + 1" for { S[i, j] -> [(j + 1)] }; all of its text when it has several pieces.
std::string function_text(const isl::pw_aff& function);

/// Parses isl text in the calling thread's context. Throws UserError with `what` and the text when it does not parse.
isl::set parse_set(const std::string& text, const std::string& what);
isl::map parse_map(const std::string& text, const std::string& what);
isl::pw_aff parse_pw_aff(const std::string& text, const std::string& what);

/// `function` over the parameters alone (a domain `[]` without dims is dropped).
isl::pw_aff over_params(const isl::pw_aff& function);

/// { domain -> [dim k] } for a set's space.
isl::pw_aff dim_function(const isl::set& set, int position);

/// The relation { Statement[dims] -> Tensor[functions] }.
isl::map relation_of(const isl::set& domain, const std::string& tensor, const std::vector<isl::pw_aff>& functions);

/// The functions of a single-valued relation, one per range dimension.
std::vector<isl::pw_aff> functions_of(const isl::map& relation);

/// Every parameter replaced by its value in `sizes`; those without one are projected out.
isl::set at_sizes(const isl::set& set, const Sizes& sizes);
isl::map at_sizes(const isl::map& map, const Sizes& sizes);

/// The least and the greatest value of a dim of a set that is bounded and not empty, and has no parameters.
std::pair<std::int64_t, std::int64_t> dim_range(const isl::set& set, int dim);

/// Names of the parameters of an isl object's space.
std::vector<std::string> param_names(const isl::space& space);

}  // namespace nestor
