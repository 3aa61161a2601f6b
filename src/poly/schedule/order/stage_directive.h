// A copy of what one iteration of a loop reads, as step `stage` asks for it.
#pragma once

#include <string>

namespace nestor {

struct StageDirective {
  std::string tensor;
  std::string loop;
  std::string memory;  ///< "scratch", "shared" or "registers"
  int slots = 1;
};

}  // namespace nestor
