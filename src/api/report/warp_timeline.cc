// A discrete simulation: the role whose next event can begin first takes it.
#include "api/report/warp_timeline.h"

#include "api/report/event_trace.h"
#include "codegen/gpu/kernel_plans.h"
#include "support/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <optional>

namespace nestor {
namespace {

using nvptx::Event;
using Kind = nvptx::Event::Kind;

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr std::size_t kMostSpans = 2400;

/// Tiles of one circular buffer, by number.
struct RingState {
  std::vector<double> arrived;   ///< clock at which a tile is there
  std::vector<int> releases;     ///< roles that have given it back
  std::vector<double> released;  ///< by the last of these
};

/// A role and where it is.
struct Agent {
  std::string name;
  int group = -1;  ///< -1: the producer
  std::vector<Event> events;
  std::size_t at = 0;
  double clock = 0;
  std::vector<int> current, oldest;  ///< by circular buffer: the tile it is at, and the oldest that it holds
  std::deque<double> products;       ///< ends of those under way
  std::deque<double> batches;        ///< mma: arrivals of committed copies
  double open_batch = 0;
  int barriers = 0;         ///< passed
  std::vector<Event> amid;  ///< releases to be said during the next op
};

class Simulation {
 public:
  Simulation(const nvptx::TensorPlan& plan, const Sizes& sizes)
      : plan_(plan), rings_(plan.circular_buffers.size()), turns_(static_cast<std::size_t>(plan.warpgroups), 0) {
    const TraceValues values = middle_block(plan, sizes);
    if (plan.cores == nvptx::TensorCores::wgmma) add_agent("producer warp", -1, trace_of(plan.producer, values));
    const std::vector<Event> events = trace_of(plan.consumer, values);
    for (int group = 0; group < plan.warpgroups; ++group) add_agent(fmt::format("warpgroup {}", group), group, events);
    tensor_lane_ = add_lane("tensor cores", "unit");
    copy_lane_ = add_lane("copies", "unit");
    for (std::size_t r = 0; r < rings_.size(); ++r) {
      first_stage_.push_back(static_cast<int>(result_.lanes.size()));
      for (int stage = 0; stage < plan.circular_buffers[r].stages; ++stage)
        add_lane(fmt::format("{} stage {}", ring_name(r), stage), "stage");
    }
    if (plan.has_turns()) turns_[0] = 1;
  }

  Timeline run() {
    while (true) {
      Agent* next = nullptr;
      double first = kNever;
      bool done = true;
      for (Agent& agent : agents_) {
        if (agent.at == agent.events.size()) continue;
        done = false;
        const double start = start_of(agent);
        if (start < first) first = start, next = &agent;
      }
      if (done) break;
      if (next == nullptr) user_error("the roles of {} wait for each other in this drawing", plan_.kernel->symbol);
      take(*next, first);
    }
    draw_stages();
    for (const LaneSpan& span : result_.spans) result_.clocks = std::max(result_.clocks, span.end);
    return std::move(result_);
  }

 private:
  int add_lane(const std::string& name, const char* kind) {
    result_.lanes.push_back({name, kind});
    return static_cast<int>(result_.lanes.size()) - 1;
  }
  void add_agent(const std::string& name, int group, std::vector<Event> events) {
    Agent agent;
    agent.name = name;
    agent.group = group;
    agent.events = std::move(events);
    agent.current.assign(rings_.size(), 0);
    agent.oldest.assign(rings_.size(), 0);
    agents_.push_back(std::move(agent));
    add_lane(name, "role");
  }
  std::string ring_name(std::size_t ring) const {
    const nvptx::CircularBuffer& info = plan_.circular_buffers[ring];
    return info.scheduler ? std::string("work tiles") : plan_.buffer(info.buffer).name;
  }
  int lane_of(const Agent& agent) const { return static_cast<int>(&agent - agents_.data()); }
  bool all_copy() const { return plan_.cores != nvptx::TensorCores::wgmma; }
  RingState& ring(const Event& event) { return rings_[event.ring]; }
  static std::size_t index(int value) { return static_cast<std::size_t>(value); }

  /// When the agent's next event can begin; never: others must go on first.
  double start_of(const Agent& agent) {
    const Event& event = agent.events[agent.at];
    switch (event.kind) {
      case Kind::wait_full:
        return all_copy() ? agent.clock : arrival(agent, event);
      case Kind::wait_empty:
        return place_free(agent, event);
      case Kind::wait_turn:
        return turns_[index(agent.group)] > 0 ? std::max(agent.clock, turn_clock_) : kNever;
      case Kind::barrier:
        return all_at_barrier(agent);
      default:
        return agent.clock;
    }
  }
  double arrival(const Agent& agent, const Event& event) {
    const auto tile = index(agent.current[index(event.ring)]);
    const RingState& state = ring(event);
    return tile < state.arrived.size() ? std::max(agent.clock, state.arrived[tile]) : kNever;
  }
  /// The tile that had the stage before has been given back by every warpgroup.
  double place_free(const Agent& agent, const Event& event) {
    const int before = agent.current[index(event.ring)] - plan_.circular_buffers[index(event.ring)].stages;
    const RingState& state = ring(event);
    if (before < 0) return agent.clock;
    if (index(before) >= state.releases.size() || state.releases[index(before)] < plan_.warpgroups) return kNever;
    return std::max(agent.clock, state.released[index(before)]);
  }
  double all_at_barrier(const Agent& agent) const {
    double last = agent.clock;
    for (const Agent& other : agents_) {
      if (other.barriers > agent.barriers) continue;
      if (other.at == other.events.size() || other.events[other.at].kind != Kind::barrier) return kNever;
      last = std::max(last, other.clock);
    }
    return last;
  }
  void span(int lane, double start, double end, const char* kind, const std::string& text) {
    if (end > start) result_.spans.push_back({lane, start, end, kind, text});
  }
  const std::string& op_name(const Event& event) const { return plan_.ops[index(event.op)].op.name; }

  void take(Agent& agent, double start) {
    const Event event = agent.events[agent.at++];
    if (start > agent.clock) span(lane_of(agent), agent.clock, start, "wait", wait_text(event));
    agent.clock = start;
    const EventCost cost = cost_of(plan_, event);
    switch (event.kind) {
      case Kind::load:
        return load(agent, event, cost);
      case Kind::product:
        return product(agent, event, cost);
      case Kind::compute:
      case Kind::narrow:
      case Kind::quad_reduction:
      case Kind::take_registers:
        return work(agent, event, cost);
      case Kind::release:
        if (event.count > 0) return agent.amid.push_back(event);
        return release(agent, event, agent.clock);
      case Kind::wait_products:
        return wait_for(agent, agent.products, event);
      case Kind::wait_copies:
        return wait_for(agent, agent.batches, event);
      default:
        return pass_on(agent, event);
    }
  }
  /// Events that take no time of their own.
  void pass_on(Agent& agent, const Event& event) {
    switch (event.kind) {
      case Kind::next_tile:
        ++agent.current[index(event.ring)];
        return;
      case Kind::commit_copies:
        agent.batches.push_back(std::exchange(agent.open_batch, 0));
        return;
      case Kind::barrier:
        ++agent.barriers;
        return;
      case Kind::wait_turn:
        --turns_[index(agent.group)];
        return;
      case Kind::pass_turn:
        ++turns_[index((agent.group + 1) % plan_.warpgroups)];
        turn_clock_ = agent.clock;
        return;
      default:
        return;
    }
  }

  std::string wait_text(const Event& event) const {
    if (event.ring >= 0) return fmt::format("{} {}", nvptx::name_of(event.kind), ring_name(index(event.ring)));
    return nvptx::name_of(event.kind);
  }

  void load(Agent& agent, const Event& event, const EventCost& cost) {
    RingState& state = ring(event);
    int& tile = agent.current[index(event.ring)];
    agent.clock += cost.role;
    // With mma every warpgroup copies its part of one tile: drawn once, with the first.
    if (!all_copy() || agent.group == 0) {
      const double start = std::max(agent.clock, copies_free_);
      copies_free_ = start + cost.unit;
      span(copy_lane_, start, copies_free_, "copy",
           fmt::format("{} tile {}", ring_name(index(event.ring)), state.arrived.size()));
      starts_.push_back({event.ring, start});
      state.arrived.push_back(copies_free_ + kCopyLatency);
    }
    agent.open_batch = std::max(agent.open_batch, state.arrived.empty() ? agent.clock : state.arrived.back());
    if (!all_copy()) ++tile;
  }
  void product(Agent& agent, const Event& event, const EventCost& cost) {
    const double issued = agent.clock + cost.role, start = std::max(issued, tensor_free_);
    tensor_free_ = start + cost.unit;
    span(tensor_lane_, start, tensor_free_, "product", fmt::format("{} of {}", op_name(event), agent.name));
    // With mma a warp goes on when it has the result.
    const double on = all_copy() ? tensor_free_ : issued;
    span(lane_of(agent), agent.clock, on, "product", "product " + op_name(event));
    agent.clock = on;
    if (!all_copy()) agent.products.push_back(tensor_free_);
  }
  void work(Agent& agent, const Event& event, const EventCost& cost) {
    const std::string what = event.op >= 0 ? op_name(event) : ring_or_buffer(event);
    span(lane_of(agent), agent.clock, agent.clock + cost.role, "compute", fmt::format("{} {}", nvptx::name_of(event.kind), what));
    for (const Event& early : agent.amid) release(agent, early, agent.clock + cost.role * early.count / nvptx::kAmidParts);
    agent.amid.clear();
    agent.clock += cost.role;
  }
  std::string ring_or_buffer(const Event& event) const {
    return event.kind == Kind::quad_reduction ? plan_.buffer(event.ring).name : ring_name(index(event.ring));
  }
  void release(Agent& agent, const Event& event, double clock) {
    RingState& state = ring(event);
    int& oldest = agent.oldest[index(event.ring)];
    if (state.releases.size() <= index(oldest))
      state.releases.resize(index(oldest) + 1), state.released.resize(index(oldest) + 1);
    ++state.releases[index(oldest)];
    state.released[index(oldest)] = std::max(state.released[index(oldest)], clock);
    ++oldest;
    agent.current[index(event.ring)] = std::max(agent.current[index(event.ring)], oldest);
  }
  void wait_for(Agent& agent, std::deque<double>& under_way, const Event& event) {
    double until = agent.clock;
    for (; under_way.size() > index(event.count); under_way.pop_front()) until = std::max(until, under_way.front());
    span(lane_of(agent), agent.clock, until, "wait", wait_text(event));
    agent.clock = until;
  }

  /// What every stage holds: from the start of a copy until the last warpgroup has given it back.
  void draw_stages() {
    double end = 0;
    for (const Agent& agent : agents_) end = std::max(end, agent.clock);
    std::vector<std::size_t> number(rings_.size(), 0);
    for (const auto& [r, start] : starts_) {
      const RingState& state = rings_[index(r)];
      const std::size_t tile = number[index(r)]++;
      const int lane = first_stage_[index(r)] + static_cast<int>(tile) % plan_.circular_buffers[index(r)].stages;
      const bool back = tile < state.released.size() && state.released[tile] > 0;
      const double arrived = state.arrived[tile];
      const std::string text = fmt::format("{} tile {}", ring_name(index(r)), tile);
      span(lane, start, arrived, "copy", text + " arrives");
      span(lane, arrived, back ? state.released[tile] : end, "held", text + " is held");
    }
  }

  const nvptx::TensorPlan& plan_;
  std::vector<RingState> rings_;
  std::vector<int> turns_;
  std::vector<Agent> agents_;
  std::vector<int> first_stage_;  ///< lane of a circular buffer's first stage
  std::vector<std::pair<int, double>> starts_;
  int tensor_lane_ = 0, copy_lane_ = 0;
  double tensor_free_ = 0, copies_free_ = 0, turn_clock_ = 0;
  Timeline result_;
};

int index_in(std::vector<std::string>& texts, const std::string& text) {
  const auto found = std::find(texts.begin(), texts.end(), text);
  if (found != texts.end()) return static_cast<int>(found - texts.begin());
  texts.push_back(text);
  return static_cast<int>(texts.size()) - 1;
}

/// Where the middle of a long timeline is left out: what starts in [first, second) is not drawn.
std::optional<std::pair<double, double>> gap_of(const std::vector<LaneSpan>& spans) {
  if (spans.size() <= kMostSpans) return std::nullopt;
  std::vector<double> starts;
  starts.reserve(spans.size());
  for (const LaneSpan& span : spans) starts.push_back(span.start);
  std::sort(starts.begin(), starts.end());
  return std::pair{starts[kMostSpans * 2 / 3], starts[starts.size() - kMostSpans / 3]};
}

nlohmann::json timeline_json(const nvptx::TensorPlan& plan, const Timeline& timeline) {
  nlohmann::json json{{"symbol", plan.kernel->symbol},
                      {"warpgroups", plan.warpgroups},
                      {"threads", plan.threads()},
                      {"shared_bytes", plan.shared_bytes},
                      {"clocks", std::llround(timeline.clocks)},
                      {"lanes", nlohmann::json::array()},
                      {"spans", nlohmann::json::array()},
                      {"gap", nullptr}};
  for (const Timeline::Lane& lane : timeline.lanes) json["lanes"].push_back({lane.name, lane.kind});
  const auto gap = gap_of(timeline.spans);
  if (gap) json["gap"] = {std::llround(gap->first), std::llround(gap->second)};
  std::vector<std::string> texts, kinds;
  for (const LaneSpan& span : timeline.spans) {
    if (gap && span.start >= gap->first && span.start < gap->second) continue;
    json["spans"].push_back({span.lane, std::llround(span.start), std::llround(span.end - span.start), index_in(kinds, span.kind),
                             index_in(texts, span.text)});
  }
  json["texts"] = texts;
  json["kinds"] = kinds;
  return json;
}

}  // namespace

Timeline timeline_of(const nvptx::TensorPlan& plan, const Sizes& sizes) { return Simulation(plan, sizes).run(); }

nlohmann::json timelines_of(const TileProgram& program, const NvptxTarget& target, const Sizes& sizes) {
  nlohmann::json kernels = nlohmann::json::array();
  const auto plans = plan_kernels(program, target);
  for (const PlannedKernel& kernel : plans->kernels) {
    if (kernel.tensor) kernels.push_back(timeline_json(*kernel.tensor, timeline_of(*kernel.tensor, sizes)));
  }
  return kernels;
}

}  // namespace nestor
