// Runs a fuzz target without libFuzzer: FUZZ [-runs=N] [-seed=S] [-seconds=T] FILE_OR_FOLDER... runs all files, then N inputs made of them.
//
// Inputs are changed byte by byte, cut, repeated, and put together from two; the last one is in ./crash.input while it runs, so that a crash leaves it there.
#include "support/system/text_file.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

constexpr std::size_t kLongest = 1 << 14;

struct Options {
  std::int64_t runs = 0;
  std::uint64_t seed = 1;
  double seconds = 1e9;
  std::vector<std::string> corpus;
};

Options options_of(int argc, char** argv) {
  Options options;
  for (int k = 1; k < argc; ++k) {
    const std::string text = argv[k];
    if (text.starts_with("-runs=")) {
      options.runs = std::atoll(argv[k] + 6);
    } else if (text.starts_with("-seed=")) {
      options.seed = std::strtoull(argv[k] + 6, nullptr, 10);
    } else if (text.starts_with("-seconds=")) {
      options.seconds = std::atof(argv[k] + 9);
    } else if (std::filesystem::is_directory(text)) {
      for (const auto& entry : std::filesystem::directory_iterator(text))
        options.corpus.push_back(nestor::text_of_file(entry.path().string()));
    } else {
      options.corpus.push_back(nestor::text_of_file(text));
    }
  }
  std::sort(options.corpus.begin(), options.corpus.end());
  return options;
}

/// Pieces that readers treat in a special way.
const std::vector<std::string>& pieces() {
  static const std::vector<std::string> list{"",
                                             "0",
                                             "-1",
                                             "1e400",
                                             "99999999999999999999",
                                             "18446744073709551615",
                                             "-9223372036854775808",
                                             "null",
                                             "[]",
                                             "{}",
                                             "[[[[[[",
                                             "\"",
                                             "\\",
                                             "(",
                                             ")",
                                             ",",
                                             "\xff\xfe",
                                             "\xed\xa0\x80",
                                             "\n",
                                             "#",
                                             "//",
                                             "floor(",
                                             "mod",
                                             "exists",
                                             "} -> {",
                                             "1/3",
                                             "nan",
                                             "inf"};
  return list;
}

class Mutator {
 public:
  Mutator(const std::vector<std::string>& corpus, std::uint64_t seed) : corpus_(corpus), random_(seed) {}

  std::string next() {
    std::string text = corpus_.empty() ? "" : any(corpus_);
    for (std::size_t k = 1 + below(6); k > 0; --k) change(text);
    text.resize(std::min(text.size(), kLongest));
    return text;
  }

 private:
  std::size_t below(std::size_t limit) { return limit == 0 ? 0 : random_() % limit; }
  const std::string& any(const std::vector<std::string>& list) { return list[below(list.size())]; }

  void change(std::string& text) {
    const std::size_t at = below(text.size() + 1), length = below(std::min<std::size_t>(text.size() - at, 40) + 1);
    switch (below(7)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(random_());
        return;
      case 1:
        text.erase(at, length);
        return;
      case 2:
        text.insert(at, any(pieces()));
        return;
      case 3:
        text.replace(at, length, any(pieces()));
        return;
      case 4:
        for (std::size_t k = below(200); k > 0 && text.size() < kLongest; --k) text.insert(at, text.substr(at, length));
        return;
      case 5: {
        const std::string& other = corpus_.empty() ? text : any(corpus_);
        const std::size_t from = below(other.size() + 1);
        text.insert(at, other.substr(from, below(200)));
        return;
      }
      default:
        // A digit more or less is a number that was never tried.
        for (std::size_t k = at; k < text.size(); ++k) {
          if (text[k] < '0' || text[k] > '9') continue;
          text[k] = static_cast<char>('0' + below(10));
          return;
        }
    }
  }

  const std::vector<std::string>& corpus_;
  std::mt19937_64 random_;
};

/// A file that always holds the input that runs.
class Trace {
 public:
  void note(const std::string& text) {
    std::ofstream file("crash.input", std::ios::binary | std::ios::trunc);
    file << text;
  }
  ~Trace() { std::filesystem::remove("crash.input"); }
};

}  // namespace

int main(int argc, char** argv) {
  const Options options = options_of(argc, argv);
  const auto start = std::chrono::steady_clock::now();
  Trace trace;
  std::int64_t done = 0;
  const auto run = [&](const std::string& text) {
    trace.note(text);
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
    ++done;
  };
  for (const std::string& text : options.corpus) run(text);
  Mutator mutator(options.corpus, options.seed);
  for (std::int64_t k = 0; k < options.runs; ++k) {
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > options.seconds) break;
    run(mutator.next());
  }
  std::printf("%lld inputs, no finding\n", static_cast<long long>(done));
  return 0;
}
