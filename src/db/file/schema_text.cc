// Splits statements at brackets, commas and spaces outside of quotes.
#include "db/file/schema_text.h"

#include <algorithm>
#include <vector>

namespace nestor {
namespace {

bool is_space(char c) { return std::string_view(" \t\r\n\f\v").find(c) != std::string_view::npos; }
bool is_quote(char c) { return c == '\'' || c == '"' || c == '`'; }
bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// The end of the quoted text or the comment that begins at `at`; `at` where none does.
std::size_t end_of_quoted(std::string_view sql, std::size_t at) {
  const auto after = [&](std::string_view mark, std::size_t from) {
    const std::size_t found = sql.find(mark, from);
    return found == std::string_view::npos ? sql.size() : found + mark.size();
  };
  if (is_quote(sql[at])) return after(sql.substr(at, 1), at + 1);
  if (sql.substr(at, 2) == "--") return after("\n", at);
  if (sql.substr(at, 2) == "/*") return after("*/", at + 2);
  return at;
}

/// Words and signs; quoted text is one word, a space stands where two words meet.
std::string without_spaces(std::string_view sql) {
  std::string plain;
  bool space = false;
  for (std::size_t at = 0; at < sql.size();) {
    const std::size_t end = end_of_quoted(sql, at);
    const bool quoted = end != at && is_quote(sql[at]);
    if (is_space(sql[at]) || (end != at && !quoted)) {
      space = true;
      at = std::max(end, at + 1);
      continue;
    }
    if (space && !plain.empty() && (is_word(plain.back()) || is_quote(plain.back())) && (is_word(sql[at]) || quoted))
      plain += ' ';
    space = false;
    const std::size_t taken = quoted ? end - at : 1;
    plain += sql.substr(at, taken);
    at += taken;
  }
  return plain;
}

/// The parts between commas that are in no brackets.
std::vector<std::string> parts_of(std::string_view text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::max(end_of_quoted(text, at), at + 1);
    depth += text[at] == '(' ? 1 : text[at] == ')' ? -1 : 0;
    if (text[at] == ',' && depth == 0) {
      parts.emplace_back();
    } else {
      parts.back() += text.substr(at, end - at);
    }
    at = end;
  }
  return parts;
}

}  // namespace

std::string plain_statement(std::string_view sql) {
  const std::string plain = without_spaces(sql);
  const std::size_t open = plain.find('('), close = plain.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) return plain;
  std::string head = plain.substr(0, open);
  // A renamed table has its name in quotes.
  std::erase(head, '"');
  std::vector<std::string> parts = parts_of(std::string_view(plain).substr(open + 1, close - open - 1));
  if (head.starts_with("CREATE TABLE")) std::sort(parts.begin(), parts.end());
  std::string text = head + "(";
  for (const std::string& part : parts) text += part + "\n";
  return text + plain.substr(close);
}

std::map<std::string, std::string> schema_statements(SQLite::Database& raw) {
  SQLite::Statement row(raw,
                        "SELECT type || ' ' || name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'");
  std::map<std::string, std::string> statements;
  while (row.executeStep()) statements[row.getColumn(0).getString()] = plain_statement(row.getColumn(1).getString());
  return statements;
}

}  // namespace nestor
