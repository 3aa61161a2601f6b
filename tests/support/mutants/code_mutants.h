// Mutants of emitted code: one instruction that orders others is left out, moved behind the next one, or given another number. Made of the
// text of LLVM IR, where each such instruction is one line.
#pragma once

#include <cstdlib>
#include <regex>
#include <string>
#include <utility>
#include <vector>

namespace nestor::testing {

struct CodeMutant {
  std::string change;  ///< "left out", "parity flipped", ...
  std::string line;    ///< of the code as it was
  std::string ir;
  std::size_t number = 0;  ///< of the line
};

class CodeMutator {
 public:
  explicit CodeMutator(const std::string& ir) {
    for (std::size_t at = 0; at < ir.size();) {
      const std::size_t end = std::min(ir.find('\n', at), ir.size());
      lines_.push_back(ir.substr(at, end - at));
      at = end + 1;
    }
  }

  /// All that the rules give, in the order of the code.
  std::vector<CodeMutant> all() {
    mutants_.clear();
    for (std::size_t k = 0; k < lines_.size(); ++k) {
      if (!orders(lines_[k])) continue;
      if (has(k, "call void")) add(k, "left out", {});
      if (has(k, "call void")) move_down(k);
      numbers(k);
    }
    return std::move(mutants_);
  }

  /// The code with an instruction in front of that line which no run survives.
  std::string trapped(std::size_t number) const {
    std::string ir;
    for (std::size_t n = 0; n < lines_.size(); ++n) {
      if (n == number) ir += "  call void asm sideeffect \"bar.sync $0, 32;\", \"r,~{memory}\"(i32 99)\n";
      ir += lines_[n] + "\n";
    }
    return ir;
  }

 private:
  static bool holds(const std::string& line, const char* part) { return line.find(part) != std::string::npos; }
  /// Behind which instructions it breaks something to move one; all other moves commute, or do no more than make something late: a copy that
  /// starts later, a slot that is given back later, bytes that are expected after they have come.
  static bool breaks(const std::string& moved, const std::string& over) {
    static const std::vector<std::pair<const char*, std::vector<const char*>>> kMoves{
        {"mbarrier.try_wait", {"shared::cluster.global.tile", "wgmma.commit", "mbarrier.arrive.shared"}},
        {"wgmma.wait", {"mbarrier.arrive.shared"}},
        {"wgmma.fence", {"wgmma.commit"}},
        {"wgmma.commit", {"wgmma.wait"}},
        {"global.shared::cta", {"cp.async.bulk.commit"}},
        {"cp.async.bulk.wait", {"bar.sync", "mbarrier.arrive.shared"}},
        {"fence.proxy.async", {"bar.sync", "nvvm.barrier0"}},
        {"fence.mbarrier_init", {"barrier.cluster.arrive", "nvvm.barrier"}},
        {"cp.async.commit", {"cp.async.wait"}},
        {"cp.async.wait", {"nvvm.barrier0"}},
        {"cp.async.cg.shared", {"cp.async.commit"}},
        {"nvvm.cp.async.commit", {"nvvm.cp.async.wait"}},
        {"bar.sync $0, 128", {""}},
        {"nvvm.barrier0", {"cp.async", "nvvm.barrier0"}},
    };
    for (const auto& [part, behind] : kMoves) {
      if (!holds(moved, part)) continue;
      for (const char* other : behind) {
        if (holds(over, other)) return true;
      }
    }
    return false;
  }
  static bool orders(const std::string& line) {
    static const char* const kParts[] = {"mbarrier.",       "fence.",        "bar.sync",       "bar.arrive",
                                         "barrier.cluster", "wgmma.fence",   "wgmma.commit",   "wgmma.wait",
                                         "cp.async",        "nvvm.barrier0", "nvvm.bar.warp",  "nvvm.barrier",
                                         "nvvm.cp.async",   "st.async",      "setmaxnreg.dec", "bar.warp.sync"};
    if (line.find(" call ") == std::string::npos) return false;
    for (const char* part : kParts) {
      if (line.find(part) != std::string::npos) return true;
    }
    return false;
  }
  bool has(std::size_t k, const char* part) const { return lines_[k].find(part) != std::string::npos; }

  void add(std::size_t k, const std::string& change, const std::vector<std::string>& instead) {
    std::string ir;
    for (std::size_t n = 0; n < lines_.size(); ++n) {
      if (n != k) {
        ir += lines_[n] + "\n";
        continue;
      }
      for (const std::string& line : instead) ir += line + "\n";
    }
    mutants_.push_back({change, lines_[k], std::move(ir), k});
  }

  /// Behind the next instruction that orders others, in the same block.
  void move_down(std::size_t k) {
    for (std::size_t n = k + 1; n < lines_.size(); ++n) {
      const std::string& line = lines_[n];
      if (line.rfind("  br ", 0) == 0 || line.rfind("  ret ", 0) == 0 || line.empty() || line[0] != ' ') return;
      if (!orders(line)) continue;
      if (!breaks(lines_[k], line)) continue;
      const std::string moved = lines_[k];
      std::vector<std::string> lines = lines_;
      lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(k));
      lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(n), moved);
      std::string ir;
      for (const std::string& each : lines) ir += each + "\n";
      mutants_.push_back({"moved behind " + line, moved, std::move(ir), k});
      return;
    }
  }

  /// Replaces the number that follows `before` (a regular expression) by what `change` makes of it.
  template <class Change>
  void number(std::size_t k, const std::string& before, const std::string& name, const Change& change) {
    std::smatch found;
    const std::regex pattern("(" + before + ")([0-9]+)");
    if (!std::regex_search(lines_[k], found, pattern)) return;
    const int old = std::atoi(found[found.size() - 1].str().c_str()), now = change(old);
    if (now == old || now < 0) return;
    add(k, name, {found.prefix().str() + found[1].str() + std::to_string(now) + found.suffix().str()});
  }

  /// The operand behind `before` with its last bit flipped.
  void flip(std::size_t k, const std::string& before, const std::string& name) {
    std::smatch found;
    const std::regex pattern("(" + before + ")i32 (%[0-9A-Za-z._]+|[0-9]+)([,)])");
    if (!std::regex_search(lines_[k], found, pattern)) return;
    add(k, name,
        {"  %mutant = xor i32 " + found[2].str() + ", 1",
         found.prefix().str() + found[1].str() + "i32 %mutant" + found[3].str() + found.suffix().str()});
  }

  void numbers(std::size_t k) {
    if (has(k, "mbarrier.try_wait")) flip(k, ".*, ", "parity flipped");
    if (has(k, "expect_tx")) {
      number(k, ".*, i32 ", "half of the bytes", [](int n) { return n / 2; });
      number(k, ".*, i32 ", "more bytes", [](int n) { return n + 128; });
    }
    if (has(k, "mbarrier.init")) {
      number(k, ".*, i32 ", "one arrival more", [](int n) { return n + 1; });
      number(k, ".*, i32 ", "one arrival less", [](int n) { return n > 1 ? n - 1 : n; });
    }
    if (has(k, "\"bar.")) {
      number(k, R"(bar\.(sync|arrive) \$0, )", "more threads", [](int n) { return n + 32; });
      number(k, R"(bar\.(sync|arrive) \$0, )", "fewer threads", [](int n) { return n / 2; });
    }
    if (has(k, "wgmma.wait_group")) number(k, R"(aligned )", "waits for less", [](int n) { return n + 1; });
    if (has(k, "cp.async.wait_group")) number(k, R"(wait_group )", "waits for less", [](int n) { return n + 1; });
    if (has(k, "cp.async.bulk.wait_group")) number(k, R"(wait_group\.read )", "waits for less", [](int n) { return n + 1; });
    if (has(k, "nvvm.cp.async.wait.group")) number(k, R"(\(i32 )", "waits for less", [](int n) { return n + 1; });
  }

  std::vector<std::string> lines_;
  std::vector<CodeMutant> mutants_;
};

}  // namespace nestor::testing
