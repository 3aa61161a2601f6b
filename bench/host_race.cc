// One operator: Nestor's best stored kernel, Halide's autoschedulers, OpenBLAS and memcpy in turns, on the same random
// inputs, with cold caches, results compared before anything is timed. One JSON value:
// {"op", "variant", "sizes", "threads", "contenders": [{"name", "ms" (median), "min_ms", "samples", "prepare_s",
// "difference", "error"}]}; "difference" is the largest one from Nestor's results, relative where they exceed 1.
#include "host_peers.h"
#include "problem.h"
#include "race.h"

#include "support/error.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iostream>
#include <string>
#include <vector>

namespace nestor::bench {
namespace {

constexpr const char* kUsage =
    "usage: host_race OP.VARIANT --db=FILE [SIZE=VALUE ...] [--with=NAME,...] [--rounds=N] [--seconds=N] [--threads=N]\n"
    "                 [--realtime]\n"
    "       host_race --peak [--threads=N]\n"
    "names: Adams2019, Li2018, Mullapudi2016, openblas, memcpy";

struct Options {
  std::string op, variant, database;
  std::vector<std::string> peers;
  Sizes sizes;
  RaceOptions race;
  bool peak = false;
};

std::int64_t integer(const std::string& text, const std::string& what) {
  std::int64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size() || value < 1)
    user_error("{}: '{}' is not a positive integer", what, text);
  return value;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    if (comma > at) out.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return out;
}

void take(const std::string& name, const std::string& value, Options& options) {
  if (name == "--db") {
    options.database = value;
  } else if (name == "--with") {
    options.peers = split(value);
  } else if (name == "--rounds") {
    options.race.rounds = static_cast<int>(integer(value, name));
  } else if (name == "--seconds") {
    options.race.seconds = static_cast<double>(integer(value, name));
  } else if (name == "--threads") {
    options.race.threads = static_cast<int>(integer(value, name));
  } else {
    options.sizes[name] = integer(value, "size " + name);
  }
}

Options parse(const std::vector<std::string>& args) {
  Options options;
  for (const std::string& arg : args) {
    const std::size_t equals = arg.find('=');
    if (arg == "--peak") {
      options.peak = true;
    } else if (arg == "--realtime") {
      options.race.realtime = true;
    } else if (equals != std::string::npos) {
      take(arg.substr(0, equals), arg.substr(equals + 1), options);
    } else if (options.op.empty() && arg[0] != '-') {
      options.op = arg.substr(0, arg.find('.'));
      options.variant = arg.size() > options.op.size() ? arg.substr(options.op.size() + 1) : "f32";
    } else {
      user_error("'{}' is not understood\n{}", arg, kUsage);
    }
  }
  if (!options.peak && (options.op.empty() || options.database.empty())) user_error("{}", kUsage);
  return options;
}

Prepared prepare(Problem& problem, const std::string& name, const Options& options) {
  if (name == "nestor") return prepare_nestor(problem, options.op, options.variant, options.database, options.race.threads);
  if (name == "openblas") return prepare_sgemm(problem, options.race.threads);
  if (name == "memcpy") return prepare_copy(problem, options.race.threads);
  return problem.prepare_halide(name, options.race.threads);
}

double difference(const std::vector<float>& results, const std::vector<float>& reference) {
  double worst = results.size() == reference.size() ? 0 : INFINITY;
  for (std::size_t k = 0; k < std::min(results.size(), reference.size()); ++k) {
    const double error = std::abs(results[k] - reference[k]) / std::max(1.0F, std::abs(reference[k]));
    worst = std::isnan(error) ? INFINITY : std::max(worst, error);
  }
  return worst;
}

double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const std::size_t middle = samples.size() / 2;
  return samples.size() % 2 ? samples[middle] : (samples[middle - 1] + samples[middle]) / 2;
}

nlohmann::json describe(const Entry& entry, const Entry& nestor, double tolerance) {
  nlohmann::json out{{"name", entry.name}};
  if (entry.error.empty() && !entry.results.empty() && !nestor.results.empty()) {
    const double off = difference(entry.results, nestor.results);
    out["difference"] = off;
    // Both sides round.
    if (off > 2 * tolerance) out["error"] = fmt::format("results differ by {:.3g}", off);
  }
  if (!entry.error.empty()) out["error"] = entry.error;
  if (out.contains("error") || entry.samples_ms.empty()) return out;
  out["prepare_s"] = entry.prepare_s;
  out["samples"] = entry.samples_ms;
  out["ms"] = median(entry.samples_ms);
  out["min_ms"] = *std::min_element(entry.samples_ms.begin(), entry.samples_ms.end());
  return out;
}

nlohmann::json run(Options options) {
  Problem problem(options.op, options.variant, options.sizes);
  options.race.elements = problem.output_elements();
  options.peers.insert(options.peers.begin(), "nestor");
  std::vector<Contender> contenders;
  for (const std::string& name : options.peers)
    contenders.push_back({name, [&problem, &options, name] { return prepare(problem, name, options); }});
  const std::vector<Entry> entries = race(contenders, options.race);
  nlohmann::json lines = nlohmann::json::array();
  for (const Entry& entry : entries) lines.push_back(describe(entry, entries.front(), problem.tolerance()));
  return {{"op", options.op},
          {"variant", options.variant},
          {"sizes", problem.sizes()},
          {"threads", options.race.threads},
          {"contenders", lines}};
}

}  // namespace
}  // namespace nestor::bench

int main(int argc, char** argv) {
  try {
    const auto options = nestor::bench::parse({argv + 1, argv + argc});
    if (options.peak) {
      std::cout << nlohmann::json{{"peak_gflops", nestor::bench::peak_flops(options.race.threads) / 1e9}} << '\n';
    } else {
      std::cout << nestor::bench::run(options) << '\n';
    }
  } catch (const std::exception& error) {
    std::cerr << "host_race: " << error.what() << '\n';
    return 2;
  }
  return 0;
}
