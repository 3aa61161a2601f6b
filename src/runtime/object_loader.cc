// Lays out sections by protection (code, constants, data), copies, relocates, protects. One mapping holds all of them, so
// that 32-bit distances reach.
#include "runtime/object_loader.h"

#include "runtime/elf_view.h"
#include "support/error.h"

#include <sys/mman.h>

#include <array>
#include <cstring>
#include <limits>
#include <optional>

namespace nestor {
namespace {

constexpr std::uint64_t kLargest = 1u << 30;

enum Protection : std::uint8_t { kCode, kConstant, kData, kProtections };

std::uint64_t round_up(std::uint64_t value, std::uint64_t to) { return (value + to - 1) / to * to; }

// Name of a relocation for messages.
std::string relocation_name(std::uint32_t type) {
  switch (type) {
    case R_X86_64_GOT32:
      return "R_X86_64_GOT32";
    case R_X86_64_COPY:
      return "R_X86_64_COPY";
    case R_X86_64_32:
      return "R_X86_64_32";
    case R_X86_64_32S:
      return "R_X86_64_32S";
    case R_X86_64_16:
      return "R_X86_64_16";
    case R_X86_64_8:
      return "R_X86_64_8";
    case R_X86_64_TLSGD:
      return "R_X86_64_TLSGD";
    case R_X86_64_TLSLD:
      return "R_X86_64_TLSLD";
    case R_X86_64_DTPOFF32:
      return "R_X86_64_DTPOFF32";
    case R_X86_64_GOTTPOFF:
      return "R_X86_64_GOTTPOFF";
    case R_X86_64_TPOFF32:
      return "R_X86_64_TPOFF32";
    case R_X86_64_GOTOFF64:
      return "R_X86_64_GOTOFF64";
    case R_X86_64_GOTPC32:
      return "R_X86_64_GOTPC32";
    case R_X86_64_GOTPC64:
      return "R_X86_64_GOTPC64";
    case R_X86_64_SIZE32:
      return "R_X86_64_SIZE32";
    case R_X86_64_IRELATIVE:
      return "R_X86_64_IRELATIVE";
    default:
      return fmt::format("type {}", type);
  }
}

bool uses_got(std::uint32_t type) {
  return type == R_X86_64_GOTPCREL || type == R_X86_64_GOTPCRELX || type == R_X86_64_REX_GOTPCRELX;
}

Protection protection_of(const ElfSection& section) {
  if ((section.flags & SHF_EXECINSTR) != 0) return kCode;
  return (section.flags & SHF_WRITE) != 0 ? kData : kConstant;
}

// Things that would need more than copying and relocating.
void check_loadable(const ElfSection& section) {
  const bool constructors = section.type == SHT_INIT_ARRAY || section.type == SHT_FINI_ARRAY || section.type == SHT_PREINIT_ARRAY;
  if (constructors) user_error("the kernel's object has constructors (section {})", section.name);
  if ((section.flags & SHF_TLS) != 0) user_error("the kernel's object has thread-local data (section {})", section.name);
  if (section.loaded() && (section.flags & SHF_EXECINSTR) != 0 && (section.flags & SHF_WRITE) != 0) {
    user_error("the kernel's object has code that can be written (section {})", section.name);
  }
}

}  // namespace

struct LoadedObject::Impl {
  ElfView view;
  std::vector<std::uint64_t> offset;                    // of each loaded section in the mapping
  std::vector<std::uint64_t> got_slot;                  // of each symbol's entry in the mapping; 0: none
  std::array<std::uint64_t, kProtections + 1> begin{};  // of each protection's pages
  unsigned char* base = nullptr;
  std::uint64_t size = 0;
  struct Function {
    std::string name;
    void* address;
  };
  std::vector<Function> functions;

  ~Impl() {
    if (base != nullptr) ::munmap(base, size);
  }

  void lay_out();
  std::uint64_t lay_out_got(std::uint64_t at);
  void map_and_copy();
  std::uint64_t address_of(std::uint64_t symbol) const;
  void relocate();
  void relocate_section(const ElfSection& relocations);
  void apply(const Elf64_Rela& relocation, const ElfSection& target, std::uint64_t target_offset);
  template <class T>
  void store(std::uint64_t at, __int128 value);
  void collect_functions();
  void protect();
};

void LoadedObject::Impl::lay_out() {
  offset.assign(view.sections.size(), 0);
  std::uint64_t at = 0;
  for (int protection = 0; protection < kProtections; ++protection) {
    begin[protection] = at;
    for (std::size_t k = 0; k < view.sections.size(); ++k) {
      const ElfSection& section = view.sections[k];
      check_loadable(section);
      if (!section.loaded() || protection_of(section) != protection) continue;
      offset[k] = round_up(at, section.alignment);
      if (section.size > kLargest || offset[k] + section.size > kLargest)
        user_error("the kernel's object wants more than {} bytes of memory", kLargest);
      at = offset[k] + section.size;
    }
    if (protection == kConstant) at = lay_out_got(at);
    at = round_up(at, kPage);
  }
  begin[kProtections] = at;
  size = at;
}

// One entry for each symbol that some relocation reaches through the table.
std::uint64_t LoadedObject::Impl::lay_out_got(std::uint64_t at) {
  got_slot.assign(view.symbols.size(), 0);
  at = round_up(at, 8);
  if (at == 0) at = 8;  // 0 means none
  for (const ElfSection& section : view.sections) {
    if (section.type != SHT_RELA) continue;
    for (const Elf64_Rela& relocation : relocations_of(section)) {
      const std::uint64_t symbol = ELF64_R_SYM(relocation.r_info);
      if (!uses_got(ELF64_R_TYPE(relocation.r_info)) || symbol >= got_slot.size() || got_slot[symbol] != 0) continue;
      got_slot[symbol] = at;
      at += 8;
    }
  }
  return at;
}

void LoadedObject::Impl::map_and_copy() {
  if (size == 0) user_error("the kernel's object has no code");
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) user_error("no memory for a kernel of {} bytes: {}", size, std::strerror(errno));
  base = static_cast<unsigned char*>(memory);
  for (std::size_t k = 0; k < view.sections.size(); ++k) {
    const ElfSection& section = view.sections[k];
    if (section.loaded() && !section.bytes.empty()) std::memcpy(base + offset[k], section.bytes.data(), section.bytes.size());
  }
}

std::uint64_t LoadedObject::Impl::address_of(std::uint64_t symbol) const {
  if (symbol >= view.symbols.size())
    user_error("the kernel's object is damaged: a relocation refers to symbol {} of {}", symbol, view.symbols.size());
  const ElfSymbol& found = view.symbols[symbol];
  if (found.section == SHN_ABS) return found.value;
  if (found.section == SHN_UNDEF) user_error("the kernel's object refers to \"{}\", which it does not define", found.name);
  if (found.section >= SHN_LORESERVE)
    user_error("the kernel's object has a symbol \"{}\" of unknown placement {:#x}", found.name, found.section);
  const ElfSection& section = view.sections[found.section];
  if (!section.loaded())
    user_error("the kernel's object refers to \"{}\" in section {}, which is not loaded", found.name, section.name);
  if (found.value > section.size) user_error("the kernel's object is damaged: \"{}\" lies outside its section", found.name);
  return reinterpret_cast<std::uint64_t>(base) + offset[found.section] + found.value;
}

void LoadedObject::Impl::relocate() {
  for (std::size_t symbol = 0; symbol < got_slot.size(); ++symbol) {
    if (got_slot[symbol] == 0) continue;
    const std::uint64_t address = address_of(symbol);
    std::memcpy(base + got_slot[symbol], &address, sizeof(address));
  }
  for (const ElfSection& section : view.sections) {
    if (section.type != SHT_REL && section.type != SHT_RELA) continue;
    if (section.info >= view.sections.size())
      user_error("the kernel's object is damaged: {} relocates a section that does not exist", section.name);
    if (!view.sections[section.info].loaded()) continue;  // debugging information
    if (section.type == SHT_REL) user_error("the kernel's object has relocations without addends (section {})", section.name);
    relocate_section(section);
  }
}

void LoadedObject::Impl::relocate_section(const ElfSection& relocations) {
  const ElfSection& target = view.sections[relocations.info];
  if (relocations.link >= view.sections.size() || view.sections[relocations.link].type != SHT_SYMTAB) {
    user_error("the kernel's object is damaged: {} has no symbols", relocations.name);
  }
  for (const Elf64_Rela& relocation : relocations_of(relocations)) apply(relocation, target, offset[relocations.info]);
}

// S, A, P, G and GOT as in the System V ABI, AMD64 supplement, table 4.9.
void LoadedObject::Impl::apply(const Elf64_Rela& relocation, const ElfSection& target, std::uint64_t target_offset) {
  const std::uint32_t type = ELF64_R_TYPE(relocation.r_info);
  if (type == R_X86_64_NONE) return;
  const bool wide = type == R_X86_64_64 || type == R_X86_64_PC64;
  const std::uint64_t width = wide ? 8 : 4;
  if (relocation.r_offset > target.bytes.size() || width > target.bytes.size() - relocation.r_offset) {
    user_error("the kernel's object is damaged: a relocation lies outside section {}", target.name);
  }
  const std::uint64_t at = target_offset + relocation.r_offset;
  const __int128 place = reinterpret_cast<std::uint64_t>(base) + at;
  const std::uint64_t symbol = ELF64_R_SYM(relocation.r_info);
  const auto value = static_cast<__int128>(address_of(symbol)) + relocation.r_addend;
  switch (type) {
    case R_X86_64_64:
      return store<std::uint64_t>(at, value);
    case R_X86_64_PC64:
      return store<std::int64_t>(at, value - place);
    case R_X86_64_PC32:
    case R_X86_64_PLT32:
      return store<std::int32_t>(at, value - place);  // every callee is in the same mapping
    case R_X86_64_GOTPCREL:
    case R_X86_64_GOTPCRELX:
    case R_X86_64_REX_GOTPCRELX: {
      const __int128 slot = reinterpret_cast<std::uint64_t>(base) + got_slot[symbol];
      return store<std::int32_t>(at, slot + relocation.r_addend - place);
    }
    default:
      user_error("the kernel's object has a relocation that is not supported: {} in section {}", relocation_name(type),
                 target.name);
  }
}

template <class T>
void LoadedObject::Impl::store(std::uint64_t at, __int128 value) {
  if (value < std::numeric_limits<T>::min() || value > std::numeric_limits<T>::max()) {
    user_error("the kernel's object is damaged: a relocation does not fit its place");
  }
  const T narrow = static_cast<T>(value);
  std::memcpy(base + at, &narrow, sizeof(narrow));
}

void LoadedObject::Impl::collect_functions() {
  for (std::uint64_t k = 0; k < view.symbols.size(); ++k) {
    const ElfSymbol& symbol = view.symbols[k];
    if (symbol.type != STT_FUNC || symbol.section == SHN_UNDEF || symbol.section >= SHN_LORESERVE) continue;
    const ElfSection& section = view.sections[symbol.section];
    if (!section.loaded() || protection_of(section) != kCode || symbol.value >= section.size) continue;
    functions.push_back({std::string(symbol.name), reinterpret_cast<void*>(address_of(k))});
  }
}

void LoadedObject::Impl::protect() {
  constexpr std::array<int, kProtections> kModes{PROT_READ | PROT_EXEC, PROT_READ, PROT_READ | PROT_WRITE};
  for (std::size_t k = 0; k < kProtections; ++k) {
    const std::uint64_t length = begin[k + 1] - begin[k];
    if (length == 0 || ::mprotect(base + begin[k], length, kModes[k]) == 0) continue;
    user_error("the system does not allow this process to run generated code: {}", std::strerror(errno));
  }
}

LoadedObject::LoadedObject(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LoadedObject::~LoadedObject() = default;

std::shared_ptr<const LoadedObject> LoadedObject::load(std::string_view object) {
  auto impl = std::make_unique<Impl>();
  impl->view = parse_object(object);
  impl->lay_out();
  impl->map_and_copy();
  impl->relocate();
  impl->collect_functions();
  impl->protect();
  impl->view = {};  // its views end with `object`
  return std::shared_ptr<const LoadedObject>(new LoadedObject(std::move(impl)));
}

void* LoadedObject::function(std::string_view name) const {
  for (const Impl::Function& function : impl_->functions) {
    if (function.name == name) return function.address;
  }
  user_error("the kernel's object defines no function \"{}\"", name);
}

}  // namespace nestor
