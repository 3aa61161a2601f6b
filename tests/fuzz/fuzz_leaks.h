// Which inputs of a fuzz target leak memory, where the address sanitizer is linked.
#pragma once

#include <string>
#include <vector>

namespace nestor::fuzz {

/// Inputs between two looks for leaks: a look takes milliseconds.
inline constexpr std::size_t kInputsBetweenLeakChecks = 5000;

/// Whether memory that nothing points to any more was found; the sanitizer has said where it was allocated.
bool leaked();

/// The one of these inputs that leaks when `program` runs it alone, or all of them one after the other where none does. Takes seconds.
std::string leaking_input(const std::string& program, const std::vector<std::string>& inputs);

}  // namespace nestor::fuzz
