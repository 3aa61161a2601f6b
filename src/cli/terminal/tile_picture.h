// Tiles as a picture for terminals.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace nestor::cli {

/// The pair of loops among `spaces` (spaces_of() in api/report) with most kinds of cells, drawn along their dims: full, partial and empty ones
/// as signs, at most `width` columns and 40 lines. A sign stands for several cells where they are too many; it is partial when these
/// differ. "" when nothing has two loops, or fewer than 40 columns are there.
std::string tile_picture(const nlohmann::json& spaces, int width);

}  // namespace nestor::cli
