// Copies by all threads of a block (TensorCores::mma): when they start and what makes them safe to read, put into the consumers' program.
// A tile's stage may be filled again behind a barrier that comes after its release, and a tile may be read behind a barrier before which
// every thread has waited for its own part of the copy. With two stages or more, both are the one barrier at the start of an iteration:
// tiles of `stages` - 1 iterations are under way while one computes. With one stage, a barrier that the iteration has between the release and
// the next wait serves, as between the two products of attention (as in FlashAttention-2, T. Dao, 2023, arXiv:2307.08691); else one is
// added behind the release.
#include "codegen/gpu/mma/pipeline/pipeline_passes.h"
#include "codegen/gpu/mma/plan/op_places.h"
#include "codegen/tile/analysis/affine.h"
#include "support/error.h"

#include <algorithm>
#include <iterator>

namespace nestor::nvptx {
namespace {

using Kind = Event::Kind;
using Nodes = std::vector<EventNode>;

EventNode copy_event(Kind kind, int ring = -1, int count = 0) { return event_node(kind, -1, ring, count); }

void append(Nodes& to, Nodes more) {
  to.insert(to.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

/// The circular buffers that one loop fills.
struct Stream {
  std::string var;
  IntExpr lower, upper;
  int stages = 1;
  std::vector<int> circular_buffers;  ///< in the order in which an iteration waits for them
  std::map<int, int> offsets;         ///< by circular buffer: iteration v reads the tile of v + offset
  std::set<int>
      loaded_early;  ///< with one stage: circular buffers filled in the iteration that reads them, so not before the loop
  bool peeled() const {
    return std::any_of(offsets.begin(), offsets.end(), [](const auto& entry) { return entry.second != 0; });
  }
};

class CopyPlanner {
 public:
  explicit CopyPlanner(TensorPlan& plan) : plan_(plan) {}

  void run() {
    plan_.producer = {};
    find_streams();
    Nodes body = std::move(plan_.consumer.children);
    rewrite(body);
    Nodes all = before_work_tile();
    wait_for_work_tile(body);
    append(all, std::move(body));
    plan_.consumer.children = std::move(all);
  }

 private:
  CircularBuffer& ring(int k) { return plan_.circular_buffers[static_cast<std::size_t>(k)]; }

  // ---- which loop fills which circular buffer, and when its tiles are read
  void find_streams() {
    const std::vector<OpPlace> places = places_of_ops(plan_.kernel->body);
    for (std::size_t k = 0; k < plan_.ops.size(); ++k) {
      for (const int r : {plan_.ops[k].a_ring, plan_.ops[k].b_ring}) {
        if (r < 0 || !ring(r).streamed) continue;
        if (places[k].condition.defined())
          user_error(
              "Kernel '{}': loop {} leaves out iterations in its middle, those where {} fails; copies by all threads, as compute "
              "capability 8.0 has them, go through loops from end to end. Use tensor cores of 9.0, or none.",
              plan_.program->name, places[k].var, places[k].condition.str());
        ring(r).var = places[k].var;
        ring(r).upper = places[k].upper;
        if (stream_of(places[k].var) == nullptr)
          streams_.push_back({places[k].var, places[k].lower, places[k].upper, ring(r).stages, {}, {}, {}});
      }
    }
    note_reads(plan_.consumer, nullptr, 0);
  }

  Stream* stream_of(const std::string& var) {
    const auto found = std::find_if(streams_.begin(), streams_.end(), [&](const Stream& s) { return s.var == var; });
    return found == streams_.end() ? nullptr : &*found;
  }

  void note_reads(const EventNode& node, Stream* around, int offset) {
    for (const EventNode& child : node.children) {
      if (child.kind == EventNode::Kind::loop) {
        note_reads(child, stream_of(child.var), 0);
      } else if (child.kind != EventNode::Kind::event) {
        note_reads(child, around, offset + (around == nullptr ? 0 : distance(child)));
      } else if (around != nullptr && child.event.kind == Kind::wait_full &&
                 around->offsets.try_emplace(child.event.ring, offset).second) {
        around->circular_buffers.push_back(child.event.ring);
      }
    }
  }

  /// How far the value that a sequence binds in a loop's body lies behind the loop's variable (a number below 0).
  static int distance(const EventNode& node) {
    if (node.var.empty()) return 0;
    const auto constant = node.lower.substitute(node.var, IntExpr(0)).as_constant();
    if (node.lower.coefficient(node.var) != 1 || !constant) internal_error("tensor copies: {} is no distance", node.lower.str());
    return static_cast<int>(*constant);
  }

  // ---- iterations
  /// Every loop's body, and what stands for its first or last iteration in part.
  void rewrite(Nodes& nodes) {
    for (EventNode& node : nodes) {
      Stream* stream = node.var.empty() ? nullptr : stream_of(node.var);
      if (stream == nullptr) {
        rewrite(node.children);
      } else if (stream->stages > 1) {
        start_iteration(*stream, node);
      } else if (node.kind != EventNode::Kind::loop || stream->peeled() || !share_barriers(*stream, node.children)) {
        refill(*stream, node.children, node.kind == EventNode::Kind::loop, 0);
      }
    }
  }

  static void take_waits(Nodes& nodes, std::vector<int>& circular_buffers) {
    for (EventNode& node : nodes) {
      take_waits(node.children, circular_buffers);
      if (is(node, Kind::wait_full)) circular_buffers.push_back(node.event.ring);
    }
    std::erase_if(nodes, [](const EventNode& node) { return is(node, Kind::wait_full); });
  }

  static bool waits(const EventNode& node) {
    return is(node, Kind::wait_full) || std::any_of(node.children.begin(), node.children.end(), waits);
  }

  /// Stages for more than one tile: one barrier for all of the iteration's tiles, behind which those of the iteration before are free.
  void start_iteration(const Stream& stream, EventNode& part) {
    const auto first = std::find_if(part.children.begin(), part.children.end(), waits);
    if (first == part.children.end()) return;
    const auto at = first - part.children.begin();
    std::vector<int> circular_buffers;
    take_waits(part.children, circular_buffers);
    // A part of an iteration is bound to the value of the tiles that it reads.
    const bool loop = part.kind == EventNode::Kind::loop;
    const int back = loop ? 0 : stream.offsets.at(circular_buffers.front());
    Nodes start = barrier(stream.stages - 2);
    Nodes loads;
    for (const int r : stream.circular_buffers) {
      const int ahead = stream.stages - 1 + stream.offsets.at(r) - back;
      const Affine rest = loop ? Affine{} : affine_of(part.lower + IntExpr(ahead) - stream.upper);
      const bool beyond = !loop && rest.is_constant() && rest.constant >= 0;
      if (!beyond) loads.push_back(copy_event(Kind::load, r, ahead));
    }
    if (!loads.empty()) loads.push_back(copy_event(Kind::commit_copies));
    append(start, std::move(loads));
    for (const int r : circular_buffers) start.push_back(copy_event(Kind::wait_full, r));
    part.children.insert(part.children.begin() + at, start.begin(), start.end());
  }

  static Nodes barrier(int batches) { return {copy_event(Kind::wait_copies, -1, batches), copy_event(Kind::barrier)}; }

  /// One stage, and an iteration that waits at several places: each tile is filled behind the first of them that follows its release. False,
  /// and nothing done, where one has no such place but its own.
  bool share_barriers(Stream& stream, Nodes& body) {
    std::vector<std::size_t> places;  // of waits; neighbours are one
    std::map<int, std::size_t> wait, release;
    for (std::size_t k = 0; k < body.size(); ++k) {
      if (is(body[k], Kind::wait_full)) {
        if (k == 0 || !is(body[k - 1], Kind::wait_full)) places.push_back(k);
        wait[body[k].event.ring] = places.back();
      }
      if (is(body[k], Kind::release)) release[body[k].event.ring] = k;
    }
    std::map<std::size_t, Nodes> loads;
    std::set<int> early;
    for (const int r : stream.circular_buffers) {
      if (wait.count(r) == 0 || release.count(r) == 0) return false;
      const auto next = std::upper_bound(places.begin(), places.end(), release[r]);
      if (next == places.end() && places.front() == wait[r]) return false;
      if (next == places.end()) early.insert(r);
      loads[next == places.end() ? places.front() : *next].push_back(copy_event(Kind::load, r, next == places.end() ? 0 : 1));
    }
    Nodes result;
    for (std::size_t k = 0; k < body.size(); ++k) {
      if (std::binary_search(places.begin(), places.end(), k)) {
        append(result, barrier(0));
        if (loads.count(k) != 0) {
          append(result, std::move(loads[k]));
          result.push_back(copy_event(Kind::commit_copies));
        }
      }
      result.push_back(std::move(body[k]));
    }
    body = std::move(result);
    stream.loaded_early = early;
    return true;
  }

  /// One stage: a barrier of its own behind each release, and the next tile's copy.
  void refill(const Stream& stream, Nodes& body, bool loop, int offset) {
    Nodes result, loads;
    for (EventNode& node : body) {
      if (!is(node, Kind::release) && !loads.empty()) {
        result.push_back(copy_event(Kind::barrier));
        append(result, std::move(loads));
        result.push_back(copy_event(Kind::commit_copies));
        loads = {};
      }
      if (node.kind == EventNode::Kind::sequence) refill(stream, node.children, loop, offset + (loop ? distance(node) : 0));
      if (is(node, Kind::wait_full) && (result.empty() || !is(result.back(), Kind::wait_full))) append(result, barrier(0));
      if (is(node, Kind::release)) {
        // In part of an iteration, the value that is bound is that of the tile.
        const int ahead = 1 + (loop ? stream.offsets.at(node.event.ring) - offset : 0);
        loads.push_back(copy_event(Kind::load, node.event.ring, ahead));
      }
      result.push_back(std::move(node));
    }
    if (!loads.empty()) {
      result.push_back(copy_event(Kind::barrier));
      append(result, std::move(loads));
      result.push_back(copy_event(Kind::commit_copies));
    }
    body = std::move(result);
  }

  // ---- what comes before
  /// Copies for the work tile and for the first iterations, in batches as iterations before the first would make them.
  Nodes before_work_tile() {
    Nodes nodes;
    // All threads have read the tiles of the work tile before.
    if (plan_.persistent()) nodes.push_back(copy_event(Kind::barrier));
    bool stays = false;
    for (int r = 0; r < static_cast<int>(plan_.circular_buffers.size()); ++r) {
      if (ring(r).streamed) continue;
      nodes.push_back(copy_event(Kind::load, r));
      stays = true;
    }
    if (stays) nodes.push_back(copy_event(Kind::commit_copies));
    for (const Stream& stream : streams_) {
      for (int batch = 0; batch < std::max(stream.stages - 1, 1); ++batch) {
        EventNode first;
        first.var = stream.var;
        first.lower = stream.lower;
        for (const int r : stream.circular_buffers) {
          const int ahead = batch + (stream.stages > 1 ? stream.offsets.at(r) : 0);
          if (ahead >= 0 && stream.loaded_early.count(r) == 0) first.children.push_back(copy_event(Kind::load, r, ahead));
        }
        nodes.push_back(std::move(first));
        nodes.push_back(copy_event(Kind::commit_copies));
        ++batches_;
      }
    }
    return nodes;
  }

  /// A barrier before the first operand that stays for the work tile.
  void wait_for_work_tile(Nodes& body) {
    const auto first = std::find_if(body.begin(), body.end(), [](const EventNode& node) { return is(node, Kind::wait_full); });
    if (first == body.end()) return;
    const Nodes wait = barrier(batches_);
    body.insert(first, wait.begin(), wait.end());
  }

  TensorPlan& plan_;
  std::vector<Stream> streams_;
  int batches_ = 0;  ///< behind that of the operands that stay
};

}  // namespace

void plan_copies(TensorPlan& plan) { CopyPlanner(plan).run(); }

}  // namespace nestor::nvptx
