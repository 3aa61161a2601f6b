// Gathers cells into signs.
#include "cli/terminal/tile_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

namespace nestor::cli {
namespace {

constexpr int kLeastWidth = 40;
constexpr int kMostLines = 40;

/// "f12p1" as one letter a cell.
std::string unpacked(const std::string& runs) {
  std::string cells;
  for (std::size_t k = 0; k < runs.size();) {
    const char kind = runs[k++];
    std::size_t count = 0;
    for (; k < runs.size() && std::isdigit(static_cast<unsigned char>(runs[k])) != 0; ++k)
      count = 10 * count + static_cast<std::size_t>(runs[k] - '0');
    cells.append(count, kind);
  }
  return cells;
}

/// A picture's place among the spaces.
struct Choice {
  const nlohmann::json* space = nullptr;
  const nlohmann::json* pair = nullptr;
};

/// The one whose cells are of most kinds; then the one with most cells.
Choice most_telling(const nlohmann::json& spaces) {
  Choice best;
  std::pair<std::size_t, std::int64_t> most{0, 0};
  for (const nlohmann::json& space : spaces) {
    for (const nlohmann::json& pair : space.at("pairs")) {
      const std::string cells = unpacked(pair.at("cells"));
      const std::pair worth{std::set<char>(cells.begin(), cells.end()).size(),
                            std::min(pair.at("rows").get<std::int64_t>(), pair.at("columns").get<std::int64_t>())};
      if (worth > most) most = worth, best = {&space, &pair};
    }
  }
  return best;
}

std::string loop_text(const nlohmann::json& loop, std::int64_t drawn) {
  const std::string name = loop.at("name"), dim = loop.at("dim");
  const std::string part = loop.at("count") > drawn ? fmt::format(", the first {}", drawn) : "";
  return dim.empty() ? name + part : fmt::format("{} (of {}{})", name, dim, part);
}

/// Cells of one picture, along the dims of its loops.
class Grid {
 public:
  explicit Grid(const Choice& choice)
      : rows_(choice.pair->at("rows")), columns_(choice.pair->at("columns")), cells_(unpacked(choice.pair->at("cells"))) {
    const auto backwards = [&](const char* loop) {
      return choice.space->at("loops").at(choice.pair->at(loop).get<std::size_t>()).at("scale").get<std::int64_t>() < 0;
    };
    up_ = backwards("a");
    left_ = backwards("b");
  }
  int rows() const { return rows_; }
  int columns() const { return columns_; }

  /// What `step` x `step` cells are together.
  char kind(int row, int column, int step) const {
    char found = 0;
    for (int r = row; r < std::min(row + step, rows_); ++r) {
      for (int c = column; c < std::min(column + step, columns_); ++c) {
        const char own = cells_[(up_ ? rows_ - 1 - r : r) * columns_ + (left_ ? columns_ - 1 - c : c)];
        if (found != 0 && found != own) return 'p';
        found = own;
      }
    }
    return found;
  }

 private:
  int rows_, columns_;
  std::string cells_;
  bool up_ = false, left_ = false;
};

const char* sign(char kind) { return kind == 'f' ? "█" : kind == 'p' ? "▒" : "·"; }

}  // namespace

std::string tile_picture(const nlohmann::json& spaces, int width) {
  const Choice choice = most_telling(spaces);
  if (choice.pair == nullptr || width < kLeastWidth) return "";
  const Grid grid(choice);
  // A sign is half as wide as high: two of them make a square.
  const int across = (width - 2) / 2;
  const int step = std::max({1, (grid.columns() + across - 1) / across, (grid.rows() + kMostLines - 1) / kMostLines});
  const nlohmann::json& loops = choice.space->at("loops");
  std::string text = fmt::format("{} down, {} across: █ full, ▒ partial, · empty{}\n",
                                 loop_text(loops.at(choice.pair->at("a").get<std::size_t>()), grid.rows()),
                                 loop_text(loops.at(choice.pair->at("b").get<std::size_t>()), grid.columns()),
                                 step > 1 ? fmt::format("; a sign is {0} x {0} tiles", step) : "");
  for (int row = 0; row < grid.rows(); row += step) {
    text += "  ";
    for (int column = 0; column < grid.columns(); column += step) {
      const char* drawn = sign(grid.kind(row, column, step));
      text += fmt::format("{0}{0}", drawn);
    }
    text += "\n";
  }
  return text;
}

}  // namespace nestor::cli
