// Reading text that somebody named: whole files, and lines. Neither is endless.
#pragma once

#include <cstddef>
#include <iosfwd>
#include <string>

namespace nestor {

/// No nest, schedule or line of a record is longer, in bytes. A device such as /dev/zero would fill the memory.
inline constexpr std::size_t kLongestText = std::size_t{1} << 28;

/// All bytes of the file; of standard input for "-". Throws UserError, with the reason, for what cannot be read, a folder, for instance, and
/// for more than kLongestText bytes.
std::string text_of_file(const std::string& path);

/// std::getline with an end: throws UserError for a line of more than `longest` bytes, and where reading fails.
bool read_line(std::istream& in, std::string& line, std::size_t longest = kLongestText);

}  // namespace nestor
