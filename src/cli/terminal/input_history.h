// Input history: lines typed in earlier sessions, in the user's state folder.
#pragma once

#include <string>
#include <vector>

namespace nestor::cli {

/// A text file of lines, oldest first. Nothing here throws: a history that cannot be read is empty, one that cannot be written stays as it is.
class InputHistory {
 public:
  /// `path` "": nothing is kept.
  explicit InputHistory(std::string path) : path_(std::move(path)) {}
  /// $XDG_STATE_HOME/nestor/NAME, else ~/.local/state/nestor/NAME; "" without a home.
  static std::string default_path(const std::string& name);

  /// The last 1,000 lines. A file of more than twice as many is cut to these. Lines with control characters are left out.
  std::vector<std::string> load() const;
  /// Appends a line at once, so that sessions side by side and killed ones lose none. The folder is made where it is missing, for the user alone.
  void append(const std::string& line) const;

 private:
  std::string path_;
};

}  // namespace nestor::cli
