// libedit's editor behind LineReader, and the reader without it.
#include "cli/terminal/line_reader.h"

#include "cli/terminal/output.h"
#include "cli/terminal/screen.h"
#include "support/words/printable.h"

#include <histedit.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>

namespace nestor::cli {
namespace {

constexpr int kMostRemembered = 1000;
constexpr std::size_t kMostListed = 100;  ///< words below the line

std::string common_begin(const std::vector<std::string>& words) {
  std::string begin = words.front();
  for (const std::string& word : words) {
    const auto differ = std::mismatch(begin.begin(), begin.end(), word.begin(), word.end());
    begin.erase(differ.first, begin.end());
  }
  return begin;
}

/// The words in columns, as many as the terminal has room for.
std::string listed(const std::vector<std::string>& words) {
  std::size_t widest = 1;
  const std::size_t shown = std::min(words.size(), kMostListed);
  for (std::size_t k = 0; k < shown; ++k) widest = std::max(widest, columns_of(printable(words[k])));
  const int columns = terminal_width();
  const std::size_t across = std::max<std::size_t>(1, static_cast<std::size_t>(columns > 0 ? columns : 80) / (widest + 2));
  const std::size_t down = (shown + across - 1) / across;
  std::string text;
  for (std::size_t row = 0; row < down; ++row) {
    for (std::size_t k = row; k < shown; k += down) {
      const std::string word = printable(words[k]);
      text += word;
      if (k + down < shown) text.append(widest + 2 - columns_of(word), ' ');
    }
    text += "\n";
  }
  if (shown < words.size()) text += "and " + count_of(static_cast<std::int64_t>(words.size() - shown), "more word") + "\n";
  return text;
}

class EditingReader : public LineReader {
 public:
  EditingReader(Completer completer, InputHistory file, bool colour)
      : completer_(std::move(completer)), file_(std::move(file)), prompt_(colour ? "\1\033[1m\1>\1\033[0m\1 " : "> ") {
    std::setlocale(LC_CTYPE, "");
    if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
    editor_ = el_init("nestor", stdin, stdout, stderr);
    history_ = history_init();
    if (editor_ == nullptr || history_ == nullptr) return;
    HistEvent event{};
    history(history_, &event, H_SETSIZE, kMostRemembered);
    history(history_, &event, H_SETUNIQUE, 1);
    for (const std::string& line : file_.load()) history(history_, &event, H_ENTER, line.c_str());
    set_up();
  }
  ~EditingReader() override {
    if (history_ != nullptr) history_end(history_);
    if (editor_ != nullptr) el_end(editor_);
  }
  EditingReader(const EditingReader&) = delete;
  EditingReader& operator=(const EditingReader&) = delete;
  bool works() const { return editor_ != nullptr && history_ != nullptr; }

  std::optional<std::string> read() override {
    cancelled_ = false;
    int count = 0;
    const char* typed = el_gets(editor_, &count);
    if (typed == nullptr || count <= 0) {
      std::fputs("\n", stdout);
      return std::nullopt;
    }
    std::string line(typed, static_cast<std::size_t>(count));
    while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
    if (cancelled_) return "";
    if (line.find_first_not_of(" \t") != std::string::npos) {
      HistEvent event{};
      history(history_, &event, H_ENTER, line.c_str());
      file_.append(line);
    }
    return line;
  }

 private:
  void set_up() {
    el_set(editor_, EL_CLIENTDATA, this);
    el_set(editor_, EL_PROMPT_ESC, &EditingReader::prompt_of, '\1');
    el_set(editor_, EL_EDITOR, "emacs");
    el_set(editor_, EL_HIST, history, history_);
    el_set(editor_, EL_SIGNAL, 1);  // a new width is seen, and Ctrl-Z leaves the terminal as it was
    el_set(editor_, EL_ADDFN, "nestor-complete", "complete a word", &EditingReader::complete);
    el_set(editor_, EL_ADDFN, "nestor-cancel", "give up the line", &EditingReader::cancel);
    el_set(editor_, EL_ADDFN, "nestor-suspend", "stop the program until it is continued", &EditingReader::suspend);
    el_set(editor_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    el_source(editor_, nullptr);
    el_set(editor_, EL_BIND, "^I", "nestor-complete", nullptr);
    // Ctrl-C and Ctrl-Z are keys while a line is edited, and signals at all other times.
    el_set(editor_, EL_SETTY, "-d", "-isig", nullptr);
    el_set(editor_, EL_BIND, "^C", "nestor-cancel", nullptr);
    el_set(editor_, EL_BIND, "^Z", "nestor-suspend", nullptr);
  }

  static EditingReader& self(EditLine* editor) {
    void* reader = nullptr;
    el_get(editor, EL_CLIENTDATA, &reader);
    return *static_cast<EditingReader*>(reader);
  }
  static char* prompt_of(EditLine* editor) { return self(editor).prompt_.data(); }

  static unsigned char cancel(EditLine* editor, int) {
    self(editor).cancelled_ = true;
    const LineInfo* line = el_line(editor);
    el_cursor(editor, static_cast<int>(line->lastchar - line->cursor));
    el_insertstr(editor, "^C");
    char enter[] = "\n";
    el_push(editor, enter);
    return CC_REFRESH;
  }

  /// libedit's handler gives the terminal back before it stops, and takes it again afterwards.
  static unsigned char suspend(EditLine*, int) {
    ::kill(0, SIGTSTP);
    return CC_REDISPLAY;
  }

  static unsigned char complete(EditLine* editor, int) {
    const LineInfo* line = el_line(editor);
    const std::string typed(line->buffer, static_cast<std::size_t>(line->cursor - line->buffer));
    Completion found;
    try {
      found = self(editor).completer_(typed);
    } catch (const std::exception&) {  // nothing may be thrown through libedit
      return CC_REFRESH_BEEP;
    }
    if (found.words.empty()) return CC_REFRESH_BEEP;
    const std::string word = typed.substr(found.start), begin = common_begin(found.words);
    const bool single = found.words.size() == 1;
    const std::string whole = single ? begin + found.behind : begin;
    if (whole.size() > word.size() || single) {
      const auto old = static_cast<int>(columns_of(word));  // libedit counts characters
      if (old > 0) el_deletestr(editor, old);
      return el_insertstr(editor, whole.c_str()) < 0 ? CC_REFRESH_BEEP : CC_REFRESH;
    }
    std::fputs(("\n" + listed(found.words)).c_str(), stdout);
    std::fflush(stdout);
    return CC_REDISPLAY;
  }

  Completer completer_;
  InputHistory file_;
  std::string prompt_;
  EditLine* editor_ = nullptr;
  History* history_ = nullptr;
  bool cancelled_ = false;
};

class PlainReader : public LineReader {
 public:
  std::optional<std::string> read() override {
    if (terminal_) std::cout << "> ";
    require_written();
    std::string line;
    if (!std::getline(std::cin, line)) return std::nullopt;
    if (!terminal_) std::cout << "> " << printable(line, true) << "\n";
    return line;
  }

 private:
  const bool terminal_ = isatty(STDIN_FILENO) != 0;
};

}  // namespace

std::unique_ptr<LineReader> make_editing_reader(Completer completer, InputHistory history, bool colour) {
  const char* kind = std::getenv("TERM");
  const bool has_cursor = kind != nullptr && *kind != '\0' && std::string_view(kind) != "dumb";
  if (isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0 || !has_cursor) return nullptr;
  auto reader = std::make_unique<EditingReader>(std::move(completer), std::move(history), colour);
  return reader->works() ? std::move(reader) : nullptr;
}

std::unique_ptr<LineReader> make_plain_reader() { return std::make_unique<PlainReader>(); }

}  // namespace nestor::cli
