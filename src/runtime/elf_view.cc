// Reads headers, sections and symbols; every range is checked against the file's size.
#include "runtime/elf_view.h"

#include "support/error.h"

#include <bit>
#include <cstring>

namespace nestor {
namespace {

// `count` bytes at `offset`.
std::string_view range(std::string_view object, std::uint64_t offset, std::uint64_t count, const char* what) {
  if (offset > object.size() || count > object.size() - offset) {
    user_error("the kernel's object is damaged: {} ends at byte {} + {}, the object has {}", what, offset, count, object.size());
  }
  return object.substr(offset, count);
}

// A copy: the file promises no alignment.
template <class T>
T record(std::string_view bytes, std::uint64_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

std::string_view name_at(std::string_view table, std::uint64_t offset) {
  if (offset >= table.size()) user_error("the kernel's object is damaged: a name lies outside its table");
  const std::size_t end = table.find('\0', offset);
  if (end == std::string_view::npos) user_error("the kernel's object is damaged: a name does not end");
  return table.substr(offset, end - offset);
}

Elf64_Ehdr checked_header(std::string_view object) {
  const auto header = record<Elf64_Ehdr>(range(object, 0, sizeof(Elf64_Ehdr), "the ELF header"), 0);
  const unsigned char* ident = header.e_ident;
  if (std::memcmp(ident, ELFMAG, SELFMAG) != 0) user_error("the kernel's object is no ELF file");
  if (ident[EI_CLASS] != ELFCLASS64 || ident[EI_DATA] != ELFDATA2LSB || ident[EI_VERSION] != EV_CURRENT ||
      header.e_machine != EM_X86_64) {
    user_error("the kernel's object is not for x86-64");
  }
  if (header.e_type != ET_REL) user_error("the kernel's object is not relocatable (ELF type {})", header.e_type);
  if (header.e_shentsize != sizeof(Elf64_Shdr))
    user_error("the kernel's object is damaged: section headers of {} bytes", header.e_shentsize);
  if (header.e_shnum == 0 || header.e_shstrndx >= header.e_shnum)
    user_error("the kernel's object is damaged: it names no sections");
  return header;
}

ElfSection checked_section(std::string_view object, const Elf64_Shdr& header) {
  ElfSection section;
  section.type = header.sh_type;
  section.flags = header.sh_flags;
  section.size = header.sh_size;
  section.link = header.sh_link;
  section.info = header.sh_info;
  section.alignment = header.sh_addralign == 0 ? 1 : header.sh_addralign;
  if (header.sh_type != SHT_NULL && header.sh_type != SHT_NOBITS)
    section.bytes = range(object, header.sh_offset, header.sh_size, "a section");
  if (section.loaded() && (!std::has_single_bit(section.alignment) || section.alignment > kPage)) {
    user_error("the kernel's object wants a section aligned to {} bytes; powers of two up to {} are possible", section.alignment,
               kPage);
  }
  return section;
}

std::vector<ElfSymbol> checked_symbols(const ElfView& view) {
  const ElfSection* table = nullptr;
  for (const ElfSection& section : view.sections) {
    if (section.type != SHT_SYMTAB) continue;
    if (table != nullptr) user_error("the kernel's object is damaged: it has two symbol tables");
    table = &section;
  }
  if (table == nullptr) user_error("the kernel's object has no symbols");
  if (table->bytes.size() % sizeof(Elf64_Sym) != 0 || table->link >= view.sections.size())
    user_error("the kernel's object is damaged: bad symbol table");
  const std::string_view names = view.sections[table->link].bytes;
  std::vector<ElfSymbol> symbols;
  for (std::uint64_t k = 0; k < table->bytes.size() / sizeof(Elf64_Sym); ++k) {
    const auto raw = record<Elf64_Sym>(table->bytes, k);
    const bool special = raw.st_shndx == SHN_UNDEF || raw.st_shndx >= SHN_LORESERVE;
    if (!special && raw.st_shndx >= view.sections.size())
      user_error("the kernel's object is damaged: a symbol lies in a section that does not exist");
    symbols.push_back(
        {name_at(names, raw.st_name), static_cast<unsigned char>(ELF64_ST_TYPE(raw.st_info)), raw.st_shndx, raw.st_value});
  }
  return symbols;
}

}  // namespace

ElfView parse_object(std::string_view object) {
  const Elf64_Ehdr header = checked_header(object);
  const std::string_view table =
      range(object, header.e_shoff, std::uint64_t{header.e_shnum} * sizeof(Elf64_Shdr), "the section table");
  ElfView view;
  for (std::uint64_t k = 0; k < header.e_shnum; ++k)
    view.sections.push_back(checked_section(object, record<Elf64_Shdr>(table, k)));
  const std::string_view names = view.sections[header.e_shstrndx].bytes;
  for (std::uint64_t k = 0; k < header.e_shnum; ++k) view.sections[k].name = name_at(names, record<Elf64_Shdr>(table, k).sh_name);
  view.symbols = checked_symbols(view);
  return view;
}

std::vector<Elf64_Rela> relocations_of(const ElfSection& section) {
  if (section.bytes.size() % sizeof(Elf64_Rela) != 0)
    user_error("the kernel's object is damaged: section {} has a broken record", section.name);
  std::vector<Elf64_Rela> records;
  const std::uint64_t count = section.bytes.size() / sizeof(Elf64_Rela);
  records.reserve(count);
  for (std::uint64_t k = 0; k < count; ++k) records.push_back(record<Elf64_Rela>(section.bytes, k));
  return records;
}

}  // namespace nestor
