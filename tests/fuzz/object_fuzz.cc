// Any bytes as a kernel's object: loaded, or refused with a UserError. Nothing of it is run.
#include "runtime/object_loader.h"
#include "support/error.h"

#include <cstdint>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace nestor;
  try {
    const auto object = LoadedObject::load({reinterpret_cast<const char*>(data), size});
    static_cast<void>(object->function("kernel"));
  } catch (const UserError&) {}
  return 0;
}
