// How a proof ends early: with an obligation that does not hold, or with one that could not be decided.
#pragma once

#include <isl/cpp.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace nestor::proof {

/// An obligation that a point of the program breaks. what() says which, at which op, and a point as a counterexample.
class BrokenObligation : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An obligation that the checker cannot decide.
class OpenObligation : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// One point of a set that is not empty, with its sizes: "n = 5: i = 1, j = 2". `names`: of the dims, outermost first.
std::string sample_text(const isl::set& points, const std::vector<std::string>& names);

/// The same of a pair of points: "n = 5: (i = 1) and (i = 2)".
std::string sample_text(const isl::map& pairs, const std::vector<std::string>& source, const std::vector<std::string>& sink);

/// Throws BrokenObligation with a counterexample unless `points` is empty.
void expect_empty(const isl::set& points, const std::vector<std::string>& names, const std::string& what);

/// Is the relation empty? The conjunction around its parts is asked first.
bool is_empty(const isl::map& pairs);

}  // namespace nestor::proof
