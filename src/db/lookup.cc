// Candidates by distance; the first group with a sound, valid and checked kernel answers.
#include "db/lookup.h"

#include "support/architecture.h"
#include "support/error.h"
#include "support/launch_recipe.h"
#include "support/system/json_text.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <vector>

namespace nestor {
namespace {

struct Candidate {
  double distance = 0;
  std::int64_t problem = 0;
  std::int64_t device = 0;
};

// Whether kernels fit, remembered by text: thousands of trials of one problem share a few constraints.
class Filter {
 public:
  explicit Filter(const Ask& ask) : ask_(ask) {}

  void try_to_load(const Record& record) const {
    if (ask_.loads) ask_.loads(record);
  }
  bool accepts(const std::string& architecture, const std::string& valid) {
    return remembered(runs_, architecture, [&] { return can_run(architecture, ask_.device->kind, ask_.device->arch); }) &&
           remembered(fits_, valid, [&] { return fits(valid); });
  }

 private:
  template <class Compute>
  static bool remembered(std::map<std::string, bool>& known, const std::string& key, Compute&& compute) {
    const auto found = known.find(key);
    if (found != known.end()) return found->second;
    return known[key] = compute();
  }

  // Text that does not parse belongs to a damaged record, which nobody should launch.
  bool fits(const std::string& valid) const {
    try {
      std::vector<SizeConstraint> constraints;
      for (const auto& entry : json_from_text(valid, "the sizes of a kernel")) {
        constraints.push_back({entry.at("terms"), entry.at("constant"), entry.at("equality"), entry.at("modulus")});
      }
      return is_valid_for(constraints, ask_.sizes);
    } catch (const nlohmann::json::exception&) {
      return false;
    } catch (const UserError&) {
      return false;
    }
  }

  const Ask& ask_;
  std::map<std::string, bool> runs_, fits_;
};

// A query about problems of one definition, said by its names ?1 and ?2, its digest ?3, or all three. Such texts live forever.
struct ProblemQuery {
  explicit ProblemQuery(const char* format)
      : by_name(fmt::format(fmt::runtime(format), "p.op = ?1 AND p.variant = ?2 AND (?3 = '' OR n.digest = ?3)")),
        by_digest(fmt::format(fmt::runtime(format), "n.digest = ?3")) {}
  const std::string& of(const Ask& ask) const { return ask.op.empty() ? by_digest : by_name; }
  std::string by_name, by_digest;
};

std::vector<Candidate> exact_candidates(Store& store, const Ask& ask) {
  static const ProblemQuery kQuery(
      "SELECT p.id, d.id, d.details FROM problem p JOIN nest n ON n.id = p.nest_id CROSS JOIN device d"
      " WHERE {} AND p.sizes = ?4 AND d.key = ?5 AND d.name = ?6");
  auto row = store.connection().query(kQuery.of(ask), ask.op, ask.variant, ask.nest_digest, canonical_sizes(ask.sizes),
                                      ask.device->key(), ask.device->name);
  std::vector<Candidate> found;
  while (row.step()) {
    DeviceIdentity measured = *ask.device;
    measured.details = row.text(2);
    if (is_same_device(*ask.device, measured)) found.push_back({0, row.integer(0), row.integer(1)});
  }
  return found;
}

/// Problems and devices with a trial that may be served: any, or one that a trusted key claims (?8) or that comes with Nestor (?9).
constexpr const char* kMeasured =
    "SELECT p.id, d.id, s.name, s.value FROM problem p JOIN nest n ON n.id = p.nest_id CROSS JOIN device d"
    " LEFT JOIN problem_size s ON s.problem_id = p.id"
    " WHERE {{}} AND d.kind = ?4 AND (d.key = ?5 AND d.name = ?7) = ?6"
    " AND (EXISTS (SELECT 1 FROM trial t WHERE t.problem_id = p.id AND t.device_id = d.id AND t.status = 'ok' AND t.kernel_id"
    " IS NOT NULL{} AND served(t.checked, d.kind, t.signer, t.seal)){})"
    " ORDER BY p.id, d.id";

std::vector<Candidate> candidates_by_distance(Store& store, const Ask& ask, bool same_device) {
  static const ProblemQuery kAny(fmt::format(kMeasured, "", "").c_str());
  static const ProblemQuery kVouched(fmt::format(kMeasured, " AND t.signer IN (SELECT value FROM json_each(?8))",
                                                 " OR p.id || '/' || d.id IN (SELECT value FROM json_each(?9))")
                                         .c_str());
  const bool any = store.trust().allows_unsigned();
  auto row = store.connection().query((any ? kAny : kVouched).of(ask), ask.op, ask.variant, ask.nest_digest, ask.device->kind,
                                      ask.device->key(), std::int64_t{same_device}, ask.device->name);
  if (!any) {
    row.bind(8, store.trust().signers_json());
    row.bind(9, store.shipped().pairs);
  }
  std::map<std::pair<std::int64_t, std::int64_t>, Sizes> measured;
  while (row.step()) {
    Sizes& sizes = measured[{row.integer(0), row.integer(1)}];
    if (!row.is_null(2)) sizes[row.text(2)] = row.integer(3);
  }
  std::vector<Candidate> found;
  for (const auto& [ids, sizes] : measured) {
    if (const auto distance = size_distance(ask.sizes, sizes)) found.push_back({*distance, ids.first, ids.second});
  }
  std::stable_sort(found.begin(), found.end(), [](const Candidate& a, const Candidate& b) { return a.distance < b.distance; });
  return found;
}

/// Trials of a problem (?1) on a device (?2) that may be served, best first: any, or those that a trusted key claims (?3) or that come with
/// Nestor (?4). The + keeps SQLite from walking through all trials of the problem.
constexpr const char* kBest =
    "SELECT t.id, k.architecture, k.valid FROM trial t JOIN kernel k ON k.id = t.kernel_id LEFT JOIN pin ON pin.trial_id = t.id"
    " WHERE {0}t.problem_id = ?1 AND {0}t.device_id = ?2 AND t.status = 'ok' AND t.kernel_id IS NOT NULL{1}"
    " AND served(t.checked, (SELECT kind FROM device WHERE id = ?2), t.signer, t.seal)"
    " ORDER BY pin.trial_id IS NULL, t.median_ms, t.id";

Connection::Query served_trials(Store& store, const Candidate& candidate) {
  static const std::string kAny = fmt::format(kBest, "", "");
  static const std::string kVouched =
      fmt::format(kBest, "+",
                  " AND t.id IN (SELECT id FROM trial WHERE problem_id = ?1 AND device_id = ?2 AND status = 'ok'"
                  " AND kernel_id IS NOT NULL AND signer IN (SELECT value FROM json_each(?3))"
                  " UNION ALL SELECT value FROM json_each(?4))");
  if (store.trust().allows_unsigned()) return store.connection().query(kAny, candidate.problem, candidate.device);
  const auto& shipped = store.shipped().trials;
  const auto found = shipped.find({candidate.problem, candidate.device});
  return store.connection().query(kVouched, candidate.problem, candidate.device, store.trust().signers_json(),
                                  found == shipped.end() ? std::string("[]") : found->second);
}

// The best trial of one candidate whose kernel fits and is sound.
std::optional<Answer> best_of(Store& store, const Candidate& candidate, Filter& filter, const Warn& warn) {
  auto row = served_trials(store, candidate);
  while (row.step()) {
    if (!filter.accepts(row.text(1), row.text(2))) continue;
    try {
      Record record = store.read_listed(row.integer(0), true);
      require_trusted(record, store.path());
      filter.try_to_load(record);
      return Answer{candidate.distance, std::move(record)};
    } catch (const UserError& error) {
      warn(fmt::format("{}; trial {} is skipped", error.what(), row.integer(0)));
    }
  }
  return std::nullopt;
}

std::optional<Answer> nearest_of(Store& store, const std::vector<Candidate>& candidates, const Ask& ask, const Warn& warn) {
  Filter filter(ask);
  std::optional<Answer> best;
  for (const Candidate& candidate : candidates) {
    if (best && candidate.distance > best->distance) break;
    std::optional<Answer> answer = best_of(store, candidate, filter, warn);
    if (answer && (!best || better(*answer, *best))) best = std::move(answer);
  }
  return best;
}

}  // namespace

void require_trusted(const Record& record, const std::string& path) {
  if (!record.trial.trusted)
    user_error("{}: the signature of trial {} is not one of the key {}", path, record.trial.id, record.trial.signature.signer);
}

std::string identity_text(const DeviceIdentity& device) {
  nlohmann::json details = json_or_discarded(device.details);  // of a foreign file, before any seal was compared
  if (details.is_object()) details.erase("driver_cuda_version");
  const std::string lasting = details.is_discarded() ? device.details : details.dump();
  return fmt::format("{}\n{}\n{}", device.key(), device.name, lasting);
}

bool is_same_device(const DeviceIdentity& a, const DeviceIdentity& b) {
  if (a.key() != b.key() || a.name != b.name) return false;
  return a.details == b.details || identity_text(a) == identity_text(b);
}

bool better(const Answer& a, const Answer& b) {
  return std::tuple(a.distance, !a.record.pinned, a.record.trial.median_ms) <
         std::tuple(b.distance, !b.record.pinned, b.record.trial.median_ms);
}

std::optional<double> size_distance(const Sizes& asked, const Sizes& measured) {
  if (asked.size() != measured.size()) return std::nullopt;
  double distance = 0;
  for (auto a = asked.begin(), m = measured.begin(); a != asked.end(); ++a, ++m) {
    if (a->first != m->first) return std::nullopt;
    distance += std::abs(std::log2(static_cast<double>(a->second) / static_cast<double>(m->second)));
  }
  return distance;
}

std::optional<Answer> find_exact(Store& store, const Ask& ask, const Warn& warn) {
  return nearest_of(store, exact_candidates(store, ask), ask, warn);
}

std::optional<Answer> find_nearest(Store& store, const Ask& ask, bool same_device, const Warn& warn) {
  return nearest_of(store, candidates_by_distance(store, ask, same_device), ask, warn);
}

}  // namespace nestor
