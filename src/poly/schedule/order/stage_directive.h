// A copy of what one iteration of a loop reads, as step `stage` asks for it.
#pragma once

#include <string>

namespace nestor {

struct StageDirective {
  std::string tensor;
  std::string loop;
  int stages = 1;  ///< copies under way at once, with that of the iteration itself
};

}  // namespace nestor
