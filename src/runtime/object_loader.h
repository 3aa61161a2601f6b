// Loads a kernel's relocatable object into executable memory: a small linker for x86-64 ELF objects that refer to nothing
// outside themselves.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

namespace nestor {

/// The sections of one object in memory of this process, relocated and protected: code can be executed but not written,
/// constants only read. Immutable; safe to use from several threads.
class LoadedObject {
 public:
  /// Throws UserError when `object` is no complete, self-contained, position-independent x86-64 object: every offset is
  /// checked before it is followed, and an unknown relocation is refused by name.
  static std::shared_ptr<const LoadedObject> load(std::string_view object);
  ~LoadedObject();
  LoadedObject(const LoadedObject&) = delete;
  LoadedObject& operator=(const LoadedObject&) = delete;

  /// Address of a function defined by the object. Throws UserError when there is none of that name.
  void* function(std::string_view name) const;

 private:
  struct Impl;
  explicit LoadedObject(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace nestor
