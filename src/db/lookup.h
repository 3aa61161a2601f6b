// Look-up in one store: which kernel to use for sizes that may never have been measured.
#pragma once

#include "db/store.h"

#include <functional>
#include <optional>
#include <string>

namespace nestor {

/// What is asked for.
struct Ask {
  const DeviceIdentity* device;
  std::string op, variant;  ///< empty: any with that digest
  std::string nest_digest;  ///< empty: any
  Sizes sizes;
  std::function<void(const Record&)> loads = nullptr;  ///< throws UserError for a kernel that is to be passed over
};

/// An answer: the record with its kernel.
struct Answer {
  double distance = 0;
  Record record;
};

using Warn = std::function<void(const std::string&)>;

/// Throws UserError for a record that claims a trusted signature and has none.
void require_trusted(const Record& record, const std::string& path);

/// True when `a` is to be preferred: nearer, then pinned, then faster.
bool better(const Answer& a, const Answer& b);

/// What makes a device this very one, as text: all of its identity but the driver's version.
std::string identity_text(const DeviceIdentity& device);

/// Whether both are one device.
bool is_same_device(const DeviceIdentity& a, const DeviceIdentity& b);

/// Best kernel measured at exactly the asked sizes on the same device.
std::optional<Answer> find_exact(Store& store, const Ask& ask, const Warn& warn);

/// Best kernel valid at the asked sizes, measured nearest to them; on devices with the same key and name, or on all others of the
/// same kind.
std::optional<Answer> find_nearest(Store& store, const Ask& ask, bool same_device, const Warn& warn);

/// Sum over sizes of |log2(asked / measured)|; nullopt when the names differ.
std::optional<double> size_distance(const Sizes& asked, const Sizes& measured);

}  // namespace nestor
