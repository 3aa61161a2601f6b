// Parses NESTOR_DEBUG once and writes debug lines.
#include "support/debug.h"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>

namespace nestor {
namespace {

constexpr std::array<std::string_view, 5> kNames{"trials", "timing", "tiles", "plans", "ptx"};

std::string_view name_of(DebugSwitch which) { return kNames[static_cast<std::size_t>(which)]; }

void for_each_word(std::string_view list, const std::function<void(std::string_view)>& visit) {
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    const std::string_view word = list.substr(0, comma);
    if (!word.empty()) visit(word);
    if (comma == std::string_view::npos) return;
    list.remove_prefix(comma + 1);
  }
}

std::array<bool, kNames.size()> read_switches() {
  std::array<bool, kNames.size()> on{};
  const char* list = std::getenv("NESTOR_DEBUG");
  for_each_word(list == nullptr ? "" : list, [&](std::string_view word) {
    for (std::size_t k = 0; k < kNames.size(); ++k) on[k] = on[k] || word == "all" || word == kNames[k];
  });
  return on;
}

}  // namespace

bool debug_enabled(DebugSwitch which) {
  static const std::array<bool, kNames.size()> on = read_switches();
  return on[static_cast<std::size_t>(which)];
}

void debug_log(DebugSwitch which, std::string_view text) {
  if (debug_enabled(which)) fmt::print(stderr, "[nestor {}] {}\n", name_of(which), text);
}

std::string unknown_debug_switches(std::string_view list) {
  std::string unknown;
  for_each_word(list, [&](std::string_view word) {
    bool known = word == "all";
    for (const std::string_view name : kNames) known = known || word == name;
    if (!known) unknown += fmt::format("{}{}", unknown.empty() ? "" : ", ", word);
  });
  return unknown;
}

DebugTimer::DebugTimer(std::string what) : what_(std::move(what)), start_(std::chrono::steady_clock::now()) {}

DebugTimer::~DebugTimer() {
  const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start_;
  debug_log(DebugSwitch::timing, fmt::format("{}: {:.2f} ms", what_, elapsed.count()));
}

}  // namespace nestor
