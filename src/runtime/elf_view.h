// ElfView: a relocatable x86-64 object as checked sections and symbols. Nothing in the file is trusted.
#pragma once

#include <elf.h>
#include <cstdint>
#include <string_view>
#include <vector>

namespace nestor {

inline constexpr std::uint64_t kPage = 4096;  ///< bytes

struct ElfSection {
  std::string_view name;
  std::uint32_t type = 0;
  std::uint64_t flags = 0;
  std::uint64_t size = 0;
  std::uint64_t alignment = 1;  ///< a power of two, at most a page
  std::string_view bytes;       ///< of `size`, empty for SHT_NOBITS
  std::uint32_t link = 0, info = 0;
  bool loaded() const { return (flags & SHF_ALLOC) != 0; }
};

struct ElfSymbol {
  std::string_view name;
  unsigned char type = 0;     ///< STT_...
  std::uint16_t section = 0;  ///< index, or SHN_...
  std::uint64_t value = 0;
};

struct ElfView {
  std::vector<ElfSection> sections;
  std::vector<ElfSymbol> symbols;
};

/// Throws UserError for anything but a complete object; the views point into `object`.
ElfView parse_object(std::string_view object);

/// Records of a SHT_RELA section.
std::vector<Elf64_Rela> relocations_of(const ElfSection& section);

}  // namespace nestor
