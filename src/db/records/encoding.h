// Bytes as the database and its text records keep them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nestor {

std::string zstd_compress(std::string_view data);
/// Throws UserError when `data` is not one complete zstd frame of known size (at most 64 MiB).
std::string zstd_decompress(std::string_view data);

/// RFC 4648, with padding.
std::string base64_encode(std::string_view data);
/// Throws UserError for anything base64_encode does not write.
std::string base64_decode(std::string_view text);

/// Doubles as little-endian bytes.
std::string doubles_to_bytes(const std::vector<double>& values);
/// Throws UserError when the length is no multiple of 8.
std::vector<double> doubles_from_bytes(std::string_view bytes);

}  // namespace nestor
