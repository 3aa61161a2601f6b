// Small helpers over isl that several parts of poly need.
#include "poly/isl/isl_tools.h"

#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>
#include <isl/space.h>
#include <isl/val.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <vector>

#include "support/error.h"

namespace nestor {
namespace {

std::string take(char* text) {
  std::string result = text != nullptr ? text : "(null)";
  std::free(text);  // NOLINT: isl hands out malloc'ed text
  return result;
}

constexpr std::size_t kLongestText = 1 << 18;
constexpr int kDeepestText = 1000;
constexpr std::size_t kMostDigits = 18;
constexpr int kMostExponent = 62;
constexpr int kLongestTuple = 64;  ///< isl's time grows with a high power of it

/// The first number in isl's text with more digits than fit 64 bits together with what is added to it; "" when there is none.
std::string long_number(const std::string& text) {
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (std::size_t k = 0; k < text.size();) {
    const std::size_t begin = k;
    while (k < text.size() && is_word(text[k])) ++k;
    std::size_t digits = begin;
    while (digits < k && std::isdigit(static_cast<unsigned char>(text[digits])) != 0) ++digits;
    if (digits - begin > kMostDigits) return text.substr(begin, digits - begin);
    if (k == begin) ++k;
  }
  return "";
}

/// isl divides two numbers by // at once, and GMP ends the process where the second is 0: whatever follows each // must be a positive number.
bool divides_by_no_number(const std::string& text) {
  for (std::size_t k = text.find("//"); k != std::string::npos; k = text.find("//", k)) {
    k = text.find_first_not_of(" \t\r\n", k + 2);
    const std::size_t end = k == std::string::npos ? k : text.find_first_not_of("0123456789", k);
    if (k == std::string::npos || text.substr(k, end - k).find_first_of("123456789") == std::string::npos) return true;
  }
  return false;
}

/// isl takes the exponent of a power without its sign, and GMP ends the process where the power does not fit memory: whatever follows each
/// ^ must be a number of at most kMostExponent.
bool raises_to_no_small_number(const std::string& text) {
  for (std::size_t k = text.find('^'); k != std::string::npos; k = text.find('^', k)) {
    k = text.find_first_not_of(" \t\r\n", k + 1);
    const std::size_t end = k == std::string::npos ? k : std::min(text.find_first_not_of("0123456789", k), text.size());
    if (k == std::string::npos || end == k || end - k > kMostDigits || std::stoll(text.substr(k, end - k)) > kMostExponent)
      return true;
  }
  return false;
}

/// Entries of the longest tuple in isl's text.
int longest_tuple(const std::string& text) {
  int longest = 0;
  std::vector<int> open;  // entries so far of the brackets around
  for (const char c : text) {
    if (c == '[') open.push_back(1);
    if (c == ',' && !open.empty()) longest = std::max(longest, ++open.back());
    if (c == ']' && !open.empty()) open.pop_back();
  }
  return longest;
}

std::string shown(const std::string& text) { return text.size() <= 500 ? text : text.substr(0, 500) + "..."; }

/// isl computes with numbers of any length and recurses; everything behind it has 64 bits and a stack.
void require_modest(const std::string& text, const std::string& what) {
  if (text.size() > kLongestText) user_error("{} has {} bytes, more than {}", what, text.size(), kLongestText);
  int depth = 0;
  for (const char c : text) {
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (depth > kDeepestText) user_error("{} has parentheses nested more than {} deep", what, kDeepestText);
  }
  if (longest_tuple(text) > kLongestTuple)
    user_error("{}: a tuple of \"{}\" has more than {} entries", what, shown(text), kLongestTuple);
  if (divides_by_no_number(text)) user_error("{}: in \"{}\", only a positive number may follow //", what, shown(text));
  if (raises_to_no_small_number(text))
    user_error("{}: in \"{}\", only a number from 0 to {} may follow ^", what, shown(text), kMostExponent);
  const std::string number = long_number(text);
  if (!number.empty()) user_error("{}: the number {} has more than {} digits", what, shown(number), kMostDigits);
}

/// isl prints parse errors to stderr by itself; the message of ours names what was parsed.
template <class T>
T parse(const std::string& text, const std::string& what, const char* kind) {
  require_modest(text, what);
  try {
    T parsed(isl_context(), text);
    // Products of numbers may be longer than each of them.
    if (const std::string number = long_number(isl_text(parsed)); !number.empty())
      user_error("{}: it comes to the number {}, which has more than {} digits", what, shown(number), kMostDigits);
    return parsed;
  } catch (const isl::exception_quota&) {
    throw;
  } catch (const isl::exception&) {
    isl_ctx* context = isl_context().get();
    if (isl_ctx_last_error(context) == isl_error_quota || isl_ctx_aborted(context) != 0) throw;
    isl_ctx_reset_error(context);
    user_error("{}: \"{}\" is not an isl {}", what, shown(text), kind);
  }
}

}  // namespace

std::string isl_text(const isl::set& set) { return take(isl_set_to_str(set.get())); }
std::string isl_text(const isl::map& map) { return take(isl_map_to_str(map.get())); }
std::string isl_text(const isl::pw_aff& function) { return take(isl_pw_aff_to_str(function.get())); }

std::string function_text(const isl::pw_aff& function) {
  std::string text = isl_text(function);
  if (function.n_piece() != 1) return text;
  const std::size_t arrow = text.rfind("[(");
  const std::size_t end = text.rfind(")]");
  if (arrow == std::string::npos || end == std::string::npos || end < arrow) return text;
  return text.substr(arrow + 2, end - arrow - 2);
}

isl::set parse_set(const std::string& text, const std::string& what) { return parse<isl::set>(text, what, "set"); }
isl::map parse_map(const std::string& text, const std::string& what) { return parse<isl::map>(text, what, "relation"); }

isl::pw_aff parse_pw_aff(const std::string& text, const std::string& what) {
  const isl::pw_aff function = parse<isl::pw_aff>(text, what, "function");
  if (function.involves_nan()) user_error("{}: \"{}\" is not a number everywhere", what, shown(text));
  return function;
}

isl::pw_aff over_params(const isl::pw_aff& function) {
  const isl::space domain = isl::manage(isl_pw_aff_get_domain_space(function.get()));
  if (isl_space_is_params(domain.get()) == isl_bool_true) return function;
  return isl::manage(isl_pw_aff_project_domain_on_params(function.copy()));
}

isl::pw_aff dim_function(const isl::set& set, int position) {
  return isl::manage(isl_pw_aff_var_on_domain(isl_local_space_from_space(isl_set_get_space(set.get())), isl_dim_set,
                                              static_cast<unsigned>(position)));
}

isl::map relation_of(const isl::set& domain, const std::string& tensor, const std::vector<isl::pw_aff>& functions) {
  isl_space* range = isl_space_set_alloc(isl_context().get(), 0, static_cast<unsigned>(functions.size()));
  range = isl_space_set_tuple_name(range, isl_dim_set, tensor.c_str());
  isl_space* from = isl_set_get_space(domain.get());
  isl_space* aligned = isl_space_align_params(range, isl_space_copy(from));
  isl::map relation = isl::manage(isl_map_universe(isl_space_map_from_domain_and_range(from, aligned)));
  for (std::size_t k = 0; k < functions.size(); ++k) {
    isl::map one = isl::manage(isl_map_from_pw_aff(functions[k].copy()));
    // { D -> [f_k] } spread into dimension k of the range.
    isl_map* spread = isl_map_insert_dims(one.copy(), isl_dim_out, 0, static_cast<unsigned>(k));
    spread = isl_map_add_dims(spread, isl_dim_out, static_cast<unsigned>(functions.size() - k - 1));
    spread = isl_map_set_tuple_name(spread, isl_dim_out, tensor.c_str());
    relation = relation.intersect(isl::manage(spread));
  }
  return relation;
}

std::vector<isl::pw_aff> functions_of(const isl::map& relation) {
  const isl::pw_multi_aff functions = isl::manage(isl_pw_multi_aff_from_map(relation.copy()));
  const unsigned count = relation.range_tuple_dim();
  std::vector<isl::pw_aff> result;
  result.reserve(count);
  for (unsigned k = 0; k < count; ++k) {
    result.push_back(isl::manage(isl_pw_multi_aff_get_pw_aff(functions.get(), static_cast<int>(k))));
  }
  return result;
}

isl::map at_sizes(const isl::map& map, const Sizes& sizes) {
  isl_map* fixed = map.copy();
  for (const auto& [name, value] : sizes) {
    const int position = isl_map_find_dim_by_name(fixed, isl_dim_param, name.c_str());
    if (position >= 0) fixed = isl_map_fix_si(fixed, isl_dim_param, static_cast<unsigned>(position), static_cast<int>(value));
  }
  return isl::manage(isl_map_project_out(fixed, isl_dim_param, 0, static_cast<unsigned>(isl_map_dim(fixed, isl_dim_param))));
}

isl::set at_sizes(const isl::set& set, const Sizes& sizes) {
  return at_sizes(isl::manage(isl_map_from_range(set.copy())), sizes).range();
}

std::pair<std::int64_t, std::int64_t> dim_range(const isl::set& set, int dim) {
  const isl::val low = isl::manage(isl_set_dim_min_val(set.copy(), dim)),
                 high = isl::manage(isl_set_dim_max_val(set.copy(), dim));
  return {isl_val_get_num_si(low.get()), isl_val_get_num_si(high.get())};
}

std::vector<std::string> param_names(const isl::space& space) {
  std::vector<std::string> names;
  const int count = static_cast<int>(isl_space_dim(space.get(), isl_dim_param));
  for (int k = 0; k < count; ++k) {
    const char* name = isl_space_get_dim_name(space.get(), isl_dim_param, static_cast<unsigned>(k));
    names.emplace_back(name != nullptr ? name : "");
  }
  return names;
}

}  // namespace nestor
