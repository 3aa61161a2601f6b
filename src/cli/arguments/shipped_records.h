// The records of known devices that come with Nestor.
#pragma once

#include <string>
#include <vector>

namespace nestor::cli {

/// Files of JSON lines: those in $NESTOR_RECORDS, else in share/nestor/records beside the folder of this program, else in the
/// source tree it was built from. Throws UserError when there are none.
std::vector<std::string> shipped_records();

/// The path of the system database, its folder made when it is missing. Throws UserError when that is not allowed.
std::string system_database_to_write();

}  // namespace nestor::cli
