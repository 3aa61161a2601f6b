// Reads by the system's calls, whose reasons are told.
#include "support/system/text_file.h"

#include "nestor/error.h"
#include "support/system/standard_streams.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>

namespace nestor {
namespace {

class Descriptor {
 public:
  explicit Descriptor(const std::string& path)
      : own_(path != "-"), number_(own_ ? ::open(path.c_str(), O_RDONLY | O_CLOEXEC) : 0) {}
  ~Descriptor() {
    if (own_ && number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  bool own_;
  int number_;
};

}  // namespace

std::string text_of_file(const std::string& path) {
  const std::string name = path == "-" ? "standard input" : path;
  const auto refuse = [&] {
    throw UserError(
        fmt::format("cannot read {}: {}", name, path == "-" && errno == EBADF ? "it is closed" : open_failure(path, errno)));
  };
  const Descriptor file(path);
  if (file.number() < 0) refuse();
  std::string text;
  std::array<char, 1 << 16> part;
  for (;;) {
    const ssize_t got = ::read(file.number(), part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse();
    if (got == 0) return text;
    text.append(part.data(), static_cast<std::size_t>(got));
    if (text.size() > kLongestText)
      throw UserError(fmt::format("cannot read {}: it goes on after {} MiB", name, kLongestText >> 20U));
  }
}

bool read_line(std::istream& in, std::string& line, std::size_t longest) {
  line.clear();
  std::array<char, 1 << 12> part;
  for (;;) {
    errno = 0;
    in.getline(part.data(), part.size());
    const int error = errno;
    const auto got = static_cast<std::size_t>(in.gcount());
    // std::cin tells of a failure as of an end.
    if (in.bad() || (&in == &std::cin && std::ferror(stdin) != 0))
      throw UserError(fmt::format("reading failed: {}", error == EBADF ? "it is closed" : std::strerror(error)));
    const bool more = in.fail() && !in.eof() && got == part.size() - 1;
    // What ended the line counts as read, too.
    line.append(part.data(), in.eof() || in.fail() ? got : got - 1);
    if (line.size() > longest) throw UserError(fmt::format("a line goes on after {} bytes", longest));
    if (!more) return !in.fail() || !line.empty();
    in.clear(in.rdstate() & ~std::ios::failbit);
  }
}

}  // namespace nestor
