// What somebody meant who wrote a word in the place of a device.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nestor {

/// "; did you mean 'host'?": the word of `known` that is nearest, or has the word as a part (sm_90 of cuda/sm_90), or is what people call so
/// elsewhere (cpu, gpu, h100). Nothing where none is near.
std::string meant_device(std::string_view word, const std::vector<std::string>& known);

}  // namespace nestor
