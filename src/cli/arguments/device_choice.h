// Words for devices of records: a device of this machine, a key, an architecture, or a part of a name.
#pragma once

#include "db/database.h"

#include <string>
#include <vector>

namespace nestor::cli {

/// host, cuda, cuda:1: a device of this machine.
bool is_of_this_machine(const std::string& word);

/// Whether the word means the device: its kind, key or architecture, or a part of its name in any case.
bool is_meant(const DeviceIdentity& device, const std::string& word);

/// Throws UserError: the records have no device of that word. Says which they have, and the nearest word, of `here` too.
[[noreturn]] void refuse_device(const std::string& word, const std::vector<DeviceIdentity>& known,
                                const std::vector<std::string>& here = {"host", "cuda"});

}  // namespace nestor::cli
