// Any bytes as isl's text for a set, a relation and a function: read and written again alike, or refused with a UserError.
#include "poly/isl/context.h"
#include "poly/isl/isl_tools.h"
#include "support/error.h"

#include <isl/aff.h>

#include <cstdint>
#include <cstdlib>
#include <string>

namespace {

bool alike(const isl::set& a, const isl::set& b) { return a.is_equal(b); }
bool alike(const isl::map& a, const isl::map& b) { return a.is_equal(b); }
bool alike(const isl::pw_aff& a, const isl::pw_aff& b) { return isl_pw_aff_is_equal(a.get(), b.get()) == isl_bool_true; }

/// Reads `text` by `parse`, then what isl writes of that: both are equal.
template <class Parse>
void read_twice(const std::string& text, const Parse& parse) {
  try {
    nestor::with_isl_budget("text", [&] {
      const auto first = parse(text, "text");
      if (!alike(parse(nestor::isl_text(first), "written text"), first)) std::abort();
    });
  } catch (const nestor::UserError&) {}
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  read_twice(text, nestor::parse_set);
  read_twice(text, nestor::parse_map);
  read_twice(text, nestor::parse_pw_aff);
  return 0;
}
