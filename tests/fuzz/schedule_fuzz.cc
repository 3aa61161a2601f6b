// Any bytes as steps, one a line or as JSON, on a product of matrices: applied, or refused with a UserError.
#include "poly/schedule/schedule.h"
#include "support/error.h"
#include "support/nests/sample_nests.h"
#include "support/system/json_text.h"

#include <cstdint>
#include <sstream>
#include <string>

namespace {

using namespace nestor;

constexpr int kMostSteps = 12;

void apply_json(Schedule schedule, const std::string& text) {
  const nlohmann::json json = json_from_text(text, "the schedule");
  require_flat_json(json, "the schedule");
  if (!json.is_array()) user_error("no list of steps");
  int applied = 0;
  for (const nlohmann::json& step : json) {
    if (++applied > kMostSteps) return;
    schedule = schedule.apply(step_from_json(step));
  }
  static_cast<void>(schedule.str());
}

void apply_lines(Schedule schedule, const std::string& text) {
  std::istringstream lines(text);
  int applied = 0;
  for (std::string line; std::getline(lines, line) && ++applied <= kMostSteps;) {
    try {
      const Step step = parse_step(line);
      static_cast<void>(json_to_text(step_to_json(step)));
      schedule = schedule.apply(step);
    } catch (const UserError& error) {
      static_cast<void>(json_to_text(error.what()));
    }
  }
  static_cast<void>(schedule.str());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Schedule kStart{samples::matmul()};
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    if (text.starts_with('['))
      apply_json(kStart, text);
    else
      apply_lines(kStart, text);
  } catch (const UserError& error) {
    static_cast<void>(json_to_text(error.what()));
  }
  return 0;
}
