// The schedules of shipped records, each once, and small sizes at which all of their code runs.
#pragma once

#include "poly/nest/nest_json.h"
#include "poly/schedule/schedule.h"
#include "support/launch_recipe.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <vector>

namespace nestor::testing {

struct ShippedSchedule {
  std::string name;  ///< operator, variant, file and the record's number in it
  std::string op;    ///< operator and variant
  nlohmann::json nest, steps;
  Sizes sizes;          ///< of the record
  bool tensor = false;  ///< on tensor cores
};

inline std::ostream& operator<<(std::ostream& out, const ShippedSchedule& schedule) { return out << schedule.name; }

/// The next record of a file, its nest under "nest" also where a line of its own defines it; null at the end.
class ShippedLines {
 public:
  explicit ShippedLines(const std::filesystem::path& file) : in_(file) {}
  nlohmann::json next() {
    for (std::string line; std::getline(in_, line);) {
      nlohmann::json record = nlohmann::json::parse(line);
      if (record.contains("digest")) {
        nests_[record.at("digest")] = record.at("nest");
        continue;
      }
      if (!record.contains("nest")) record["nest"] = nests_.at(record.at("problem").at("nest_digest"));
      return record;
    }
    return {};
  }

 private:
  std::ifstream in_;
  std::map<std::string, nlohmann::json> nests_;
};

/// Those of all records in the folder, by file and number.
inline std::vector<ShippedSchedule> shipped_schedules(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".jsonl") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<ShippedSchedule> result;
  std::set<std::string> seen;
  for (const auto& file : files) {
    ShippedLines lines(file);
    int number = 0;
    for (nlohmann::json record = lines.next(); !record.is_null(); record = lines.next()) {
      ++number;
      const auto& problem = record.at("problem");
      if (record.at("device").at("kind") != "cuda" ||
          !seen.insert(record.at("steps").at("steps").dump() + record.at("steps").at("fixed").dump() +
                       problem.at("nest_digest").dump())
               .second)
        continue;
      ShippedSchedule schedule;
      schedule.op = problem.at("op").get<std::string>() + "_" + problem.at("variant").get<std::string>();
      std::replace_if(
          schedule.op.begin(), schedule.op.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
      schedule.name =
          schedule.op + "_" + file.stem().string().substr(file.stem().string().rfind('-') + 1) + "_" + std::to_string(number);
      schedule.nest = record.at("nest");
      schedule.steps = record.at("steps");
      for (const auto& [name, value] : problem.at("sizes").items()) schedule.sizes[name] = value.get<std::int64_t>();
      const auto architecture = record.at("kernel").at("architecture").get<std::string>();
      schedule.tensor = architecture.ends_with("a");
      result.push_back(std::move(schedule));
    }
  }
  return result;
}

/// Sizes that are fixed stay. Long ones become short and ragged: a few tiles and a rest, of rows that tensor maps can name (16 bytes); short
/// ones 1 or 2.
inline Sizes small_sizes(const ShippedSchedule& schedule, const Nest& nest, const LaunchRecipe& recipe, std::int64_t length) {
  std::set<std::string> dense;  // of which a last index depends
  for (const ArgumentSpec& argument : recipe.arguments) {
    for (const auto& [name, value] : schedule.sizes) {
      if (!argument.shape.empty() && argument.shape.back().uses(name)) dense.insert(name);
    }
  }
  std::int64_t longest = 1;
  for (const auto& [name, value] : schedule.sizes) {
    if (recipe.fixed_sizes.count(name) == 0) longest = std::max(longest, value);
  }
  Sizes sizes;
  int shorts = 0;
  for (const SizeParam& size : nest.sizes) {
    const std::int64_t wanted = schedule.sizes.at(size.name);
    const auto fixed = recipe.fixed_sizes.find(size.name);
    std::int64_t value = std::min<std::int64_t>(wanted, 1 + shorts++ % 2);
    if (wanted >= 256) value = std::max<std::int64_t>(length * wanted / longest, 9);
    if (wanted >= 256 && dense.count(size.name) != 0) value = (value + 7) / 8 * 8;
    if (fixed != recipe.fixed_sizes.end()) value = fixed->second;
    sizes[size.name] = std::max(value, size.min);
  }
  return sizes;
}

}  // namespace nestor::testing
