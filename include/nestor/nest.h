// Public API: what is to be computed. Opaque: isl spaces and accesses appear as text alone.
#pragma once

#include "nestor/error.h"
#include "nestor/export.h"
#include "nestor/types.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace nestor::api {

/// A symbolic size of a nest.
struct SizeInfo {
  std::string name;
  std::int64_t min = 1;
  std::optional<std::int64_t> max;
  std::int64_t default_value = 1;
  bool specialized = false;  ///< fixed when a kernel is compiled; else given at launch
};

/// An argument or a temporary of a nest.
struct TensorInfo {
  std::string name;
  ElementType type = ElementType::f32;
  std::string role;  ///< "input", "output" or "temporary"
};

/// An operator as a naive loop nest. Immutable; copies share. Use it, and schedules of it, on the thread that made it.
class NESTOR_API Nest {
 public:
  /// A built-in operator by name, or the path of a .nest.json file. `variant` "": the operator's first. Throws UserError.
  static Nest load(const std::string& source, const std::string& variant = "");
  /// From the text of a nest file (docs/nest.md). Throws UserError naming the offending key.
  static Nest from_json(const std::string& text);
  /// Names of the built-in operators.
  static std::vector<std::string> builtin();

  std::string op() const;
  std::string variant() const;
  std::string digest() const;  ///< 32 hexadecimal digits, equal on every machine
  std::string json() const;    ///< text of a nest file; also what tune_nest_json (nestor/tune.h) takes
  std::vector<SizeInfo> sizes() const;
  std::vector<TensorInfo> tensors() const;
  std::string str() const;          ///< statements and tensors, readable
  std::string dependences() const;  ///< one dependence a line, each with its relation { Source[dims] -> Sink[dims] }

 private:
  friend class Schedule;
  struct Impl;
  explicit Nest(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

}  // namespace nestor::api
