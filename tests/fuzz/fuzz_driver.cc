// Runs a fuzz target without libFuzzer: FUZZ [OPTIONS] FILE_OR_FOLDER... runs all files, then inputs made of them.
//
//   -runs=N      inputs beyond the files (0)          -seed=S   other inputs
//   -seconds=T   ends after this time                 -limit=T  an input that takes longer is a finding (60 s)
//   -keep=FOLDER writes inputs there that reach something new, where that is seen (NESTOR_FUZZ_COVERAGE)
//   -trace=0     leaves no crash.input
//
// The input that runs is in ./crash.input, so that whatever ends the process leaves it there.
#include "fuzz/fuzz_coverage.h"
#include "fuzz/fuzz_leaks.h"
#include "fuzz/fuzz_mutator.h"
#include "support/system/text_file.h"

#include <fcntl.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using namespace nestor::fuzz;
using Clock = std::chrono::steady_clock;

/// An input that takes so many times the mean is not built upon.
constexpr double kSlow = 10;

struct Options {
  std::int64_t runs = 0;
  std::uint64_t seed = 1;
  double seconds = 1e9;
  long limit_seconds = 60;
  bool trace = true;
  std::string keep;
  std::vector<std::string> corpus;
};

void read_corpus(const std::string& path, std::vector<std::string>& corpus) {
  if (!std::filesystem::is_directory(path)) {
    corpus.push_back(nestor::text_of_file(path));
    return;
  }
  for (const auto& entry : std::filesystem::directory_iterator(path))
    corpus.push_back(nestor::text_of_file(entry.path().string()));
}

Options options_of(int argc, char** argv) {
  Options options;
  for (int k = 1; k < argc; ++k) {
    const std::string text = argv[k];
    const std::string value = text.substr(std::min(text.size(), text.find('=') + 1));
    if (text.starts_with("-runs=")) {
      options.runs = std::atoll(value.c_str());
    } else if (text.starts_with("-seed=")) {
      options.seed = std::strtoull(value.c_str(), nullptr, 10);
    } else if (text.starts_with("-seconds=")) {
      options.seconds = std::atof(value.c_str());
    } else if (text.starts_with("-limit=")) {
      options.limit_seconds = std::atol(value.c_str());
    } else if (text.starts_with("-keep=")) {
      options.keep = value;
    } else if (text == "-trace=0") {
      options.trace = false;
    } else {
      read_corpus(text, options.corpus);
    }
  }
  std::sort(options.corpus.begin(), options.corpus.end());
  return options;
}

/// A file that always holds the input that runs; gone when all went well.
class Trace {
 public:
  explicit Trace(bool wanted) : file_(wanted ? open(kName, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644) : -1) {}

  void note(const std::string& text) {
    if (file_ < 0) return;
    if (pwrite(file_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()) ||
        ftruncate(file_, static_cast<off_t>(text.size())) != 0) {
      std::perror(kName);
      std::exit(2);
    }
  }

  void remove() {
    if (file_ >= 0) unlink(kName);
  }

 private:
  static constexpr const char* kName = "crash.input";
  int file_;
};

void took_too_long(int) {
  constexpr char kText[] = "SUMMARY: an input took longer than the limit\n";
  static_cast<void>(!write(2, kText, sizeof(kText) - 1));
  std::abort();
}

class Driver {
 public:
  explicit Driver(const Options& options)
      : options_(options), start_(Clock::now()), trace_(options.trace), mutator_(options.corpus, options.seed) {
    std::signal(SIGALRM, took_too_long);
  }

  int run_all() {
    for (const std::string& text : options_.corpus) run(text);
    while (done_ < options_.runs + static_cast<std::int64_t>(options_.corpus.size()) && seconds() < options_.seconds) {
      const std::string text = mutator_.next();
      if (run(text)) keep(text);
    }
    look_for_leaks();
    trace_.remove();
    const double rate = static_cast<double>(done_) / std::max(seconds(), 1e-3);
    std::printf("%lld inputs, no finding (%.0f a second, %zu kept, %zu pairs of blocks reached)\n", static_cast<long long>(done_),
                rate, mutator_.size(), pairs_reached());
    return 0;
  }

 private:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  /// Whether it reached anything new, in a time that does not make all that is made of it slow.
  bool run(const std::string& text) {
    trace_.note(text);
    const itimerval limit{{0, 0}, {options_.limit_seconds, 0}};
    setitimer(ITIMER_REAL, &limit, nullptr);
    forget_reached();
    const double begin = seconds();
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
    const bool news = reached_news();
    ++done_;
    const bool slow = (seconds() - begin) * static_cast<double>(done_) > kSlow * seconds();
    recent_.push_back(text);
    if (recent_.size() >= kInputsBetweenLeakChecks) look_for_leaks();
    return news && !slow;
  }

  void keep(const std::string& text) {
    mutator_.keep(text);
    if (options_.keep.empty()) return;
    std::filesystem::create_directories(options_.keep);
    std::ofstream(options_.keep + "/" + std::to_string(options_.seed) + "-" + std::to_string(done_), std::ios::binary) << text;
  }

  void look_for_leaks() {
    alarm(0);
    if (options_.trace && leaked()) {
      trace_.note(leaking_input(std::filesystem::read_symlink("/proc/self/exe").string(), recent_));
      std::fprintf(stderr, "SUMMARY: memory leaks; crash.input is the input that leaks, or all that may\n");
      std::_Exit(1);
    }
    recent_.clear();
  }

  const Options& options_;
  Clock::time_point start_;
  Trace trace_;
  Mutator mutator_;
  std::int64_t done_ = 0;
  /// What ran since leaks were looked for.
  std::vector<std::string> recent_;
};

}  // namespace

int main(int argc, char** argv) {
  const Options options = options_of(argc, argv);
  return Driver(options).run_all();
}
