// Any bytes as a nest file: read and written again alike, or refused with a UserError.
#include "poly/nest/nest_json.h"
#include "support/error.h"
#include "support/system/json_text.h"

#include <cstdint>
#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace nestor;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const Nest nest = nest_from_json(json_from_text(text, "the nest"));
    const std::string first = nest_to_json(nest).dump();
    if (nest_to_json(nest_from_json(json_from_text(first, "the nest"))).dump() != first) std::abort();
    static_cast<void>(describe(nest));
    static_cast<void>(digest(nest));
    static_cast<void>(complete_sizes(nest, {}));
  } catch (const UserError& error) {
    static_cast<void>(json_to_text(error.what()));
  }
  return 0;
}
