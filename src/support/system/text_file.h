// Reading a whole text file that somebody named.
#pragma once

#include <string>

namespace nestor {

/// All bytes of the file; of standard input for "-". Throws UserError, with the reason, for what cannot be read: a folder, for instance.
std::string text_of_file(const std::string& path);

}  // namespace nestor
