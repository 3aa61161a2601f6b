// Schedule: construction, the persistent step list, and what it tells about itself.
#include "poly/schedule/schedule.h"

#include "poly/schedule/order/isl_maps.h"
#include "poly/schedule/order/loop_tree.h"
#include "poly/schedule/order/schedule_data.h"
#include "poly/schedule/steps/editor.h"
#include "support/error.h"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace nestor {
namespace {

/// What every schedule holds, and what was asked of it or tried on it: searches try the same steps again and again.
struct TriedData : ScheduleData {
  explicit TriedData(ScheduleData data) : ScheduleData(std::move(data)) {}
  static constexpr std::size_t kMost = 64;
  mutable std::map<std::string, std::shared_ptr<const ScheduleData>> tried;  ///< by the step; null: it cannot be applied
  mutable std::optional<std::vector<Step>> own_steps;                        ///< as values
};

}  // namespace

Schedule::Schedule(Nest nest)
    : Schedule(original_order_of(std::make_shared<const NestFacts>(nest, Nest(nest), std::vector<Composite>{}, false))) {
  with_isl_budget("checking reads of nest " + nest.op, [&] { data_->facts->guarded_sizes(); });
}

Schedule::Schedule(ScheduleData data) : data_(std::make_shared<const TriedData>(std::move(data))) {}

Schedule Schedule::apply(const Step& step) const { return Schedule(ScheduleEditor::applied(*data_, step, true)); }

std::optional<Schedule> Schedule::try_apply(const Step& step) const {
  auto& tried = static_cast<const TriedData&>(*data_).tried;
  const std::string key = step_to_json(step).dump();
  auto found = tried.find(key);
  if (found == tried.end()) {
    std::shared_ptr<const ScheduleData> after;
    try {
      after = Schedule(ScheduleEditor::applied(*data_, step, false)).data_;
    } catch (const UserError&) {  // NOLINT(bugprone-empty-catch): nothing comes of it
    }
    if (tried.size() >= TriedData::kMost) tried.clear();
    found = tried.emplace(key, std::move(after)).first;
  }
  if (!found->second) return std::nullopt;
  Schedule result = *this;
  result.data_ = found->second;
  return result;
}

Schedule Schedule::apply_all(const std::vector<Step>& steps) const {
  Schedule schedule = *this;
  for (const Step& step : steps) schedule = schedule.apply(step);
  return schedule;
}

const Nest& Schedule::nest() const { return data_->facts->nest; }
const Nest& Schedule::original_nest() const { return data_->facts->original; }
const std::vector<Dependence>& Schedule::dependences() const { return data_->facts->dependences(); }
const std::vector<Composite>& Schedule::composites() const { return data_->facts->composites; }
std::int64_t Schedule::guarded_sizes() const { return data_->facts->guarded_sizes(); }
bool Schedule::reassociation_allowed() const { return data_->facts->reassociation; }
const Tree& Schedule::tree() const { return data_->tree; }

const std::vector<Step>& Schedule::steps() const {
  auto& own = static_cast<const TriedData&>(*data_).own_steps;
  if (own) return *own;
  own.emplace();
  for (const auto& step : data_->steps) own->push_back(*step);
  return *own;
}

const std::vector<StageDirective>& Schedule::stages() const { return data_->stages; }
const std::vector<std::string>& Schedule::streaming_tensors() const { return data_->streaming; }

std::vector<Composite> Schedule::active_composites() const {
  std::vector<Composite> active;
  for (const std::size_t index : data_->active) active.push_back(data_->facts->composites[index]);
  return active;
}

const LoopForm& Schedule::form(const std::string& statement) const { return data_->forms.at(statement); }

std::vector<std::string> Schedule::loops_of(const std::string& statement) const {
  return TreeIndex(data_->tree).loop_names(statement);
}

isl::map Schedule::loop_relation(const std::string& statement) const {
  return isl_guarded("the loops of " + statement, [&] {
    const Statement& definition = nest().statement(statement);
    return loop_relation_of(definition, LoopSpace(definition, form(statement), loops_of(statement)));
  });
}

}  // namespace nestor
