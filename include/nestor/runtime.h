// Public API: look up the best known kernel for an operator at given sizes, and launch it. Nothing is compiled here.
//
//   const nestor::Library library = nestor::Library::open();
//   const nestor::Kernel kernel = library.query("matvec", "f32", {{"rows", 1000}, {"cols", 512}});
//   if (kernel) kernel.launch({{a}, {x}, {y}}, {{"rows", 1000}, {"cols", 512}});
#pragma once

#include "nestor/error.h"
#include "nestor/export.h"
#include "nestor/match.h"
#include "nestor/types.h"

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace nestor {

/// A size by name, in elements.
struct NamedSize {
  std::string_view name;
  std::int64_t value;
};

/// A scalar argument by name; it is converted to the type that the kernel declares.
struct NamedScalar {
  std::string_view name;
  double value;
};

/// A tensor argument. The memory stays the caller's; it must live until the kernel is done.
struct TensorArg {
  void* data = nullptr;                        ///< first element; aligned to the element's size
  std::span<const std::int64_t> strides = {};  ///< in elements, outermost first, the last 1; empty: dense, row-major
  std::span<const std::int64_t> shape = {};    ///< checked against the kernel's when given; empty: not checked
  std::optional<ElementType> type = {};        ///< checked when given
};

/// How a launch is to run. A host kernel takes the defaults alone.
struct LaunchOptions {
  /// GPU: a CUstream or cudaStream_t of the kernel's device, in its primary context; nullptr: the legacy default stream.
  void* stream = nullptr;
  /// GPU: ask the driver where each tensor lies, well under a microsecond. Without, a wrong address is an error of the device.
  bool check_memory = true;
};

struct KernelState;

/// A kernel and how well it fits what was asked. Cheap to copy; outlives its library; safe to use from several threads.
class NESTOR_API Kernel {
 public:
  Kernel() = default;  ///< no kernel
  explicit Kernel(std::shared_ptr<const KernelState> state) : state_(std::move(state)) {}
  explicit operator bool() const { return state_ != nullptr; }

  MatchKind match() const;  ///< none for no kernel
  /// Sum over sizes of |log2(asked / measured)|.
  double distance() const;
  /// JSON: where it was measured and how fast, its tensors with types and shapes, sizes, scalars, conditions on sizes, and why kernels that
  /// would have come before were passed over. The same for all sizes that the kernel serves.
  std::string_view info() const;

  /// On the host, runs the kernel and returns when it is done. On a GPU, puts it into the stream and returns at once: it takes
  /// no lock, does not wait, and can be captured into a graph; a workspace, if the kernel has one, is taken and given back in
  /// the stream's order (in a graph it is the graph's). The current context of the thread does not matter. `tensors` in the
  /// order of info(); `sizes` must hold all size parameters; scalars that are not given take their default. Throws UserError,
  /// before anything is written, for a wrong number of tensors, a wrong type or shape, a null or misaligned pointer, a last
  /// stride other than 1, sizes for which the kernel is not valid, an output whose memory overlaps another tensor's, and on a
  /// GPU for memory that is not that GPU's or too small, and a stream of another device. Throws DeviceError when the driver
  /// refuses the launch; what fails while the kernel runs is told by the stream.
  void launch(std::span<const TensorArg> tensors, std::span<const NamedSize> sizes, std::span<const NamedScalar> scalars = {},
              const LaunchOptions& options = {}) const;
  void launch(std::span<const TensorArg> tensors, const Sizes& sizes, std::span<const NamedScalar> scalars = {},
              const LaunchOptions& options = {}) const;
  void launch(std::initializer_list<TensorArg> tensors, std::initializer_list<NamedSize> sizes,
              std::initializer_list<NamedScalar> scalars = {}, const LaunchOptions& options = {}) const;

 private:
  std::shared_ptr<const KernelState> state_;
};

struct LibraryOptions {
  int threads = 0;               ///< threads of a host kernel, the caller's included; 0: all CPUs this process may use
  std::string system_path = {};  ///< system database; "": the default one, if there is one
  bool use_system = true;        ///< consult a system database at all
  /// Serve records that nobody trusted signed, too. A record holds native code that runs in this process: say so only of databases that
  /// nobody else can write. $NESTOR_ALLOW_UNSIGNED=1 does the same.
  bool allow_unsigned = false;
};

/// A tuning database, opened for reading. Records are served that come with Nestor, that this user's key signed, or a key that the user
/// trusts (docs/database.md#trust). Cheap to copy (copies share everything); safe to use from several threads.
class NESTOR_API Library {
 public:
  /// `path` "": $NESTOR_DB, else the user's default database, else the system's. Throws UserError when there is none, or
  /// it is damaged, or of a newer version.
  static Library open(const std::string& path = "", const LibraryOptions& options = {});

  /// The best known kernel, loaded and checked; an empty Kernel when none fits. `device`: "host", "cuda" (the first GPU) or
  /// "cuda:1". An answer is remembered, also that there is none: asking for the same again takes well under a microsecond,
  /// allocates nothing and takes no lock. At most 32,768 answers are; then they are forgotten, as by refresh(). A kernel that does
  /// not load is passed over. The first query for a GPU makes its primary context, unless the process has done so. Throws
  /// UserError for a device that is not here (or whose driver is too old) and for sizes that are not positive, and
  /// where none of the kernels that fit loads; DeviceError when the driver fails.
  Kernel query(std::string_view op, std::string_view variant, std::span<const NamedSize> sizes,
               std::string_view device = "host") const;
  Kernel query(std::string_view op, std::string_view variant, const Sizes& sizes, std::string_view device = "host") const;
  Kernel query(std::string_view op, std::string_view variant, std::initializer_list<NamedSize> sizes,
               std::string_view device = "host") const;

  /// The same for exactly the nest with this digest (32 digits, as `info()` and `nestor query --json` have it), whatever its name: of
  /// two definitions with one name, query() takes kernels of either. Throws UserError for what is no digest.
  Kernel query_nest(std::string_view digest, std::span<const NamedSize> sizes, std::string_view device = "host") const;
  Kernel query_nest(std::string_view digest, const Sizes& sizes, std::string_view device = "host") const;

  /// Forgets remembered answers, so that what was tuned since is found. Kernels in use stay valid.
  void refresh();

  int threads() const;

  struct Impl;

 private:
  explicit Library(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace nestor
