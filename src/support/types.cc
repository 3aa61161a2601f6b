// Names and widths of the element types.
#include "nestor/types.h"

#include <array>
#include <utility>

namespace nestor {
namespace {

struct TypeInfo {
  ElementType type;
  std::string_view name;
  std::size_t bytes;
};

constexpr std::array<TypeInfo, 6> kTypes{{{ElementType::f32, "f32", 4},
                                          {ElementType::f16, "f16", 2},
                                          {ElementType::bf16, "bf16", 2},
                                          {ElementType::i32, "i32", 4},
                                          {ElementType::boolean, "bool", 1},
                                          {ElementType::i64, "i64", 8}}};

}  // namespace

std::string_view to_string(ElementType type) { return kTypes[static_cast<std::size_t>(type)].name; }

std::optional<ElementType> element_type_from(std::string_view name) {
  for (const TypeInfo& info : kTypes) {
    if (info.name == name) return info.type;
  }
  return std::nullopt;
}

std::size_t size_in_bytes(ElementType type) { return kTypes[static_cast<std::size_t>(type)].bytes; }

}  // namespace nestor
