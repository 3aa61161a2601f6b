// The whole definition in its original order, by one process or by several that share each loop.
#include "autotune/oracle/reference.h"

#include "poly/algebra/values/polynomial.h"
#include "poly/nest/scalar_semantics.h"
#include "support/element_codec.h"
#include "support/error.h"
#include "support/system/available_memory.h"
#include "support/system/process_team.h"

#include <algorithm>

namespace nestor {
namespace {

constexpr double kWorthSharing = 5e7;     ///< elementary evaluations, a few nanoseconds each
constexpr double kMemoryLimit = 1.5e9;    ///< bytes
constexpr double kBetweenMeetings = 2e4;  ///< of them, at least: a meeting takes some tens of microseconds

/// How often processes that share parallel loops meet; more than `most`: often enough.
double count_meetings(const LoopCode& code, std::int64_t* frame, double most) {
  switch (code.kind) {
    case LoopCode::Kind::block: {
      double meetings = 0;
      for (const LoopCode& child : code.children) {
        if (meetings <= most) meetings += count_meetings(child, frame, most - meetings);
      }
      return meetings;
    }
    case LoopCode::Kind::condition:
      if (code.condition.evaluate(frame)) return count_meetings(code.children[0], frame, most);
      return code.children.size() > 1 ? count_meetings(code.children[1], frame, most) : 0;
    case LoopCode::Kind::statement:
      return 1;
    case LoopCode::Kind::loop:
      break;
  }
  if (code.parallel || !code.strides.empty()) return 1;
  double meetings = 0;
  const std::int64_t upper = code.upper.evaluate(frame);
  for (std::int64_t value = code.lower.evaluate(frame); value <= upper && meetings <= most; value += code.step) {
    frame[code.slot] = value;
    meetings += count_meetings(code.children[0], frame, most - meetings);
  }
  return meetings;
}

/// What one of several processes runs of a parallel loop.
LoopCode share_of(const LoopCode& code, const std::int64_t* frame, int number, int size) {
  LoopCode share = code;
  const std::int64_t lower = code.lower.evaluate(frame), upper = code.upper.evaluate(frame);
  const std::int64_t count = upper < lower ? 0 : (upper - lower) / code.step + 1;
  share.lower = IndexExpr(lower + code.step * (count * number / size));
  share.upper = IndexExpr(lower + code.step * (count * (number + 1) / size) - 1);
  return share;
}

}  // namespace

Reference::Sink Reference::whole_sink() {
  return [this](int statement, const std::int64_t* dims, const std::vector<std::int64_t>& strides, int count) {
    rounds_ ? store_rounded(statement, dims, strides, count) : store_chunk(statement, dims, strides, count);
  };
}

/// As walk(), by all processes of a team: a share of each parallel loop, and what stands outside of these by the first of them.
void Reference::walk_together(const LoopCode& code, std::int64_t* frame, const Sink& sink, ProcessTeam& team) {
  const bool splits = code.kind == LoopCode::Kind::loop && code.parallel;
  if (splits) {
    walk(share_of(code, frame, team.number(), team.size()), frame, sink);
    return team.meet();
  }
  if (code.kind == LoopCode::Kind::statement || !code.strides.empty()) {
    if (team.number() == 0) walk(code, frame, sink);
    return team.meet();
  }
  if (code.kind == LoopCode::Kind::block) {
    for (const LoopCode& child : code.children) walk_together(child, frame, sink, team);
  } else if (code.kind == LoopCode::Kind::condition) {
    if (code.condition.evaluate(frame))
      walk_together(code.children[0], frame, sink, team);
    else if (code.children.size() > 1)
      walk_together(code.children[1], frame, sink, team);
  } else {
    const std::int64_t upper = code.upper.evaluate(frame);
    for (std::int64_t value = code.lower.evaluate(frame); value <= upper; value += code.step) {
      frame[code.slot] = value;
      walk_together(code.children[0], frame, sink, team);
    }
  }
}

/// Everything by several processes; false: that is not worth it, or one of them failed, and what is there is of no use.
bool Reference::evaluate_together(int processes) {
  const double cost = full_cost(), most = cost / kBetweenMeetings;
  if (processes < 2 || cost < kWorthSharing) return false;
  double meetings = 0;
  for (const LoopCode& code : group_loops_) {
    std::array<std::int64_t, 64> frame{};
    meetings += count_meetings(code, frame.data(), most);
  }
  if (meetings > most || !share_tables(true)) return false;
  const bool good = ProcessTeam::run(
      processes,
      [&](ProcessTeam& team) {
        const Sink sink = whole_sink();
        for (const LoopCode& code : group_loops_) {
          std::array<std::int64_t, 64> frame{};
          walk_together(code, frame.data(), sink, team);
        }
      },
      stop_);
  if (stop_ != nullptr && stop_->load()) throw EvaluationStopped{};
  shared_ = good;
  return good;
}

double Reference::bytes_of_all() const {
  double bytes = 0;
  for (const Store& store : stores_) {
    const std::size_t size = store.input ? 0 : store.reduced ? sizeof(double) + sizeof(ErrorSum) : 2 * sizeof(double);
    bytes += static_cast<double>(size) * store.touched;
  }
  return bytes;
}

bool Reference::can_evaluate_all(double cost_limit) const { return full_cost() <= cost_limit && bytes_of_all() <= kMemoryLimit; }

void Reference::evaluate_all(double cost_limit, int processes) {
  limit_ = cost_limit;
  if (full_cost() > cost_limit) refuse_cost(full_cost(), cost_limit);
  const double bytes = bytes_of_all();
  if (bytes > kMemoryLimit) {
    user_error("oracle: reference values at these sizes take {:.1f} GB, more than {:.1f} GB; use smaller sizes", bytes / 1e9,
               kMemoryLimit / 1e9);
  }
  require_memory({static_cast<std::int64_t>(bytes)}, "evaluating the definition");
  evaluated_ = true;
  compile_all();
  if (evaluate_together(processes)) return;
  for (Store& store : stores_) {
    store.versions.clear();
    store.errors.clear();
    if (store.reduced) store.sums = ZeroPages<ErrorSum>(store.elements);
  }
  const Sink sink = whole_sink();
  for (const LoopCode& code : group_loops_) {
    std::array<std::int64_t, 64> frame{};
    walk(code, frame.data(), sink);
  }
}

/// In f32, one term after the other; terms of products whose operands may be rounded to 16 bits are: what rounding does to a recurrence.
void Reference::evaluate_rounded(double cost_limit, int processes) {
  rounds_ = true;
  evaluate_all(cost_limit, processes);
}

void Reference::store_rounded(int statement, const std::int64_t* dims, const std::vector<std::int64_t>& strides, int count) {
  const CompiledStatement& code = statements_[statement];
  const Chunk chunk = evaluate_chunk(statement, dims, strides, count, true);
  const Store& store = stores_[code.write.tensor];
  LazyDoubles& memory = version_of(code.write.tensor, static_cast<int>(store.writers.size()));
  const auto rounded = [&](double value) { return is_float(code.type) ? static_cast<double>(static_cast<float>(value)) : value; };
  const ElementType term_type = code.reduction ? rounding_.statements[statement].narrow.value_or(code.type) : code.type;
  const auto term = [&](int k) { return term_type == code.type ? chunk.values[k] : round_to(term_type, chunk.values[k]); };
  const double neutral = code.reduction ? neutral_element(*code.reduction, code.type) : 0;
  std::array<std::int64_t, kChunk> addresses;
  code.write.elements(dims, strides, count, store.strides, addresses.data());
  const std::int64_t first = addresses[0];
  if (code.reduction && code.write.address.linear && (count == 1 || addresses[1] == first)) {
    double sum = memory.known(first) ? memory.get(first) : neutral;
    if (*code.reduction == ReductionOp::add && is_float(code.type)) {
      auto total = static_cast<float>(sum);
      for (int k = 0; k < count; ++k) total += static_cast<float>(term(k));
      return memory.set(first, static_cast<double>(total));
    }
    for (int k = 0; k < count; ++k) sum = rounded(semantics::combine(*code.reduction, code.type, sum, rounded(term(k))));
    return memory.set(first, sum);
  }
  for (int k = 0; k < count; ++k) {
    const std::int64_t address = addresses[static_cast<std::size_t>(k)];
    double value = rounded(term(k));
    if (code.reduction) {
      const double before = memory.known(address) ? memory.get(address) : neutral;
      value = rounded(semantics::combine(*code.reduction, code.type, before, value));
    } else {
      value = semantics::stored_value(store.type, code.type, value);
    }
    memory.set(address, value);
  }
}

}  // namespace nestor
