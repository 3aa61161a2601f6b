// Word completion: what may be typed next in a line of the explorer.
#pragma once

#include "cli/terminal/line_reader.h"
#include "poly/schedule/schedule.h"

#include <string>
#include <vector>

namespace nestor::cli {

/// Arguments of the step that `line` begins with ("split(out.", "why split out."), by their kind: loops, statements, tensors, rules and
/// their targets; nothing where a number or a new name stands.
Completion complete_argument(const Schedule& schedule, const std::string& line);

/// `words` that begin with `typed`; of names with a dot those whose last part does, where there are no others.
std::vector<std::string> words_that_begin(const std::vector<std::string>& words, const std::string& typed);

/// Files and folders whose path begins with `typed`.
std::vector<std::string> files_that_begin(const std::string& typed);

}  // namespace nestor::cli
