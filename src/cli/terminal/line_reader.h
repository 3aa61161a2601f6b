// Line reader: lines that somebody types, with editing, history and completion.
#pragma once

#include "cli/terminal/input_history.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace nestor::cli {

/// What may be typed at a place in a line.
struct Completion {
  std::size_t start = 0;           ///< where the word begins that is to be completed
  std::vector<std::string> words;  ///< that may stand there, whole
  std::string behind;              ///< what follows when a single word is left: a space, "("
};
/// Of a line up to the cursor.
using Completer = std::function<Completion(const std::string& line)>;

class LineReader {
 public:
  virtual ~LineReader() = default;
  /// The next line without its end; nothing at the end of the input. Ctrl-C gives up the line: it is read as an empty one.
  virtual std::optional<std::string> read() = 0;
};

/// Lines can be edited as Emacs does (or as ~/.editrc says: libedit), Tab completes, the arrows and Ctrl-R go through the history. Null where
/// standard input or output is no terminal, or one without cursor ($TERM is "dumb" or empty). `colour`: of the prompt "> ".
std::unique_ptr<LineReader> make_editing_reader(Completer completer, InputHistory history, bool colour);

/// Lines as they come, after a prompt `> ` on a terminal. Elsewhere the prompt and the line are written, as if somebody had typed it.
std::unique_ptr<LineReader> make_plain_reader();

}  // namespace nestor::cli
