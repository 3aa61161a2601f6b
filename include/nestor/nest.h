// Public API: what is to be computed. Opaque: isl spaces and accesses appear as text alone.
//
// Programs write nestor::Nest, nestor::Schedule and so on; nestor::api::Nest is the same class by an older name.
// Inside the library nestor::Nest is the data that a handle stands for. So handles are declared in nestor_api, beside nestor.
// A using-directive brings them in: nestor::Nest is the handle wherever the data's headers are not included.
#pragma once

#include "nestor/error.h"
#include "nestor/export.h"
#include "nestor/types.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace nestor_api {}

namespace nestor {
using namespace ::nestor_api;
namespace api = ::nestor_api;
}  // namespace nestor

namespace nestor_api {

/// A symbolic size of a nest, in elements.
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
  nestor::ElementType type = nestor::ElementType::f32;
  std::string role;  ///< "input", "output" or "temporary"
};

/// An operator as a naive loop nest, built in, from a file, from JSON, or from Halide (nestor/halide.h). Immutable; copies
/// share. Use it, and schedules of it, on the thread that made it.
class NESTOR_API Nest {
 public:
  /// A built-in operator by name, or the path of a .nest.json file (anything with a slash or ".json" at its end).
  /// `variant` "": the operator's first. Throws UserError that lists what there is, or says why the file is no nest.
  static Nest load(const std::string& source, const std::string& variant = "");
  /// From the text of a nest file (docs/nest.md): the same nest as load() of the file. Throws UserError naming the offending key.
  static Nest from_json(const std::string& text);
  /// Names of the built-in operators.
  static std::vector<std::string> builtin();

  std::string op() const;
  std::string variant() const;
  std::string digest() const;  ///< 32 hexadecimal digits, equal on every machine
  std::string json() const;    ///< text of a nest file
  std::vector<SizeInfo> sizes() const;
  std::vector<TensorInfo> tensors() const;
  std::string str() const;          ///< statements and tensors, readable
  std::string dependences() const;  ///< one dependence a line, each with its relation { Source[dims] -> Sink[dims] }

 private:
  friend class Schedule;
  friend struct Internals;
  struct Impl;
  explicit Nest(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

}  // namespace nestor_api
