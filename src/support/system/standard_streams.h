// Standard streams that are closed, and why a named file does not open.
#pragma once

#include <string>

namespace nestor {

/// Takes the places of standard streams that are closed, so that no file that is opened gets their numbers. Reading and writing there fail
/// as on what is closed (EBADF), and so does opening them again by name (/dev/stdout, /proc/self/fd/1: ENXIO). Programs that are started
/// inherit that.
void occupy_standard_streams();

/// Why `path` does not open, in words: `error` is errno of the attempt.
std::string open_failure(const std::string& path, int error);

}  // namespace nestor
