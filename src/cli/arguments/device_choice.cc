// Compares a word with what identities of devices say.
#include "cli/arguments/device_choice.h"

#include "support/error.h"
#include "support/words/device_words.h"
#include "support/words/nearest_word.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace nestor::cli {

bool is_of_this_machine(const std::string& word) {
  return word == "host" || word == "cuda" || word.starts_with("cuda:") || word.starts_with("cuda/");
}

bool is_meant(const DeviceIdentity& device, const std::string& word) {
  return device.kind == word || device.key() == word || device.arch == word || contains_ignoring_case(device.name, word);
}

void refuse_device(const std::string& word, const std::vector<DeviceIdentity>& known, const std::vector<std::string>& here) {
  std::vector<std::string> words = here, listed;
  for (const DeviceIdentity& device : known) {
    for (const std::string& each : {device.name, device.arch, device.key()}) words.push_back(each);
    const std::string text = fmt::format("{} ({})", device.name, device.arch);
    if (std::find(listed.begin(), listed.end(), text) == listed.end()) listed.push_back(text);
  }
  user_error("no record is of a device '{}'; the database knows {}. Write host or cuda for a device of this machine{}", word,
             listed.empty() ? "none" : fmt::format("{}", fmt::join(listed, ", ")), meant_device(word, words));
}

}  // namespace nestor::cli
