// A tensor plan, line by line.
#include "codegen/gpu/mma/pipeline/print_tensor_plan.h"

#include <fmt/ranges.h>

namespace nestor::nvptx {
namespace {

using Kind = Event::Kind;

std::string list(const std::vector<IntExpr>& exprs) {
  std::vector<std::string> parts;
  for (const IntExpr& expr : exprs) parts.push_back(expr.str());
  return fmt::format("{}", fmt::join(parts, ", "));
}

class Printer {
 public:
  explicit Printer(const TensorPlan& plan) : plan_(plan) {}

  std::string run() {
    const bool warpgroups = plan_.cores == TensorCores::wgmma;
    line(0, fmt::format("tensor plan of {}: {} consumer warpgroups of {} rows{}{}, {} threads, {} bytes of shared memory",
                        plan_.kernel->symbol, plan_.warpgroups, plan_.row_tiles * kWarpgroupRows,
                        plan_.pack > 1 ? fmt::format(" in packs of {}", plan_.pack) : "",
                        warpgroups ? " and a producer warp" : ", which copy as well", plan_.threads(), plan_.shared_bytes));
    for (const GridLoop& loop : plan_.kernel->grid)
      line(1, fmt::format("grid {} = {} + {} * block, {} blocks", loop.var, loop.lower.str(), loop.step, loop.count.str()));
    if (plan_.ping_pong_tiles()) line(1, "work tiles of its own for each warpgroup, in turn");
    if (plan_.cluster() > 1) line(1, fmt::format("clusters of {} blocks", plan_.cluster()));
    if (plan_.persistent()) line(1, fmt::format("{} tile scheduler", plan_.dynamic_scheduler() ? "dynamic" : "static"));
    for (const auto& [buffer, fragment] : plan_.fragments) line(1, fragment_text(buffer, fragment));
    for (std::size_t r = 0; r < plan_.circular_buffers.size(); ++r) line(1, ring_text(r));
    for (std::size_t k = 0; k < plan_.ops.size(); ++k) op(k);
    line(1, warpgroups ? "consumers:" : "all threads:");
    visit(plan_.consumer, 2);
    if (warpgroups) {
      line(1, "producer:");
      visit(plan_.producer, 2);
    }
    return text_;
  }

 private:
  void line(int depth, const std::string& text) { text_ += std::string(static_cast<std::size_t>(2 * depth), ' ') + text + "\n"; }
  const std::string& op_name(int op) const { return plan_.ops[static_cast<std::size_t>(op)].op.name; }

  std::string fragment_text(int buffer, const Fragment& fragment) const {
    return fmt::format("{}: registers, {}{}", plan_.buffer(buffer).name,
                       fragment.columns > 0 ? fmt::format("{} columns{}", fragment.columns, fragment.by_row ? " of each row" : "")
                                            : std::string("one value a row"),
                       fragment.thread_sums ? ", each thread its part of the sum" : "");
  }

  std::string ring_name(int ring) const {
    const CircularBuffer& info = plan_.circular_buffers[static_cast<std::size_t>(ring)];
    return info.scheduler ? fmt::format("{} (work tiles)", ring) : fmt::format("{} ({})", ring, plan_.buffer(info.buffer).name);
  }

  std::string ring_text(std::size_t number) const {
    const CircularBuffer& ring = plan_.circular_buffers[number];
    std::string text = fmt::format("circular buffer {}: ", ring_name(static_cast<int>(number)));
    text += ring.scheduler ? std::string("the next work tile's number")
                           : fmt::format("[{}], {} x {}", list(ring.origin), ring.rows, ring.columns);
    text +=
        fmt::format(", {} stage{} from byte {}, {} readers", ring.stages, ring.stages == 1 ? "" : "s", ring.offset, ring.readers);
    if (ring.streamed) text += ", filled at every iteration";
    if (ring.in_registers) text += ", read once into registers";
    if (ring.blocks > 1) text += fmt::format(", multicast to {} blocks", ring.blocks);
    return text;
  }

  void op(std::size_t number) {
    const TensorOp& op = plan_.ops[number];
    line(1, fmt::format("op {}: {}", number, describe(op.op, plan_.program->buffers)));
    if (op.kind == TensorOp::Kind::product)
      line(3, fmt::format("product of {} and circular buffer {}, k {}, n {}{}",
                          op.a_ring >= 0  ? fmt::format("circular buffer {}", op.a_ring)
                          : op.halves > 1 ? "registers in two halves"
                                          : "registers",
                          op.b_ring, op.k, op.n, op.late ? ", beside the next iteration" : ""));
    if (op.seldom)
      line(3, fmt::format("added up in memory where it is {} that {}", op.seldom->adds,
                          describe(op.seldom->condition, op.op, plan_.program->buffers)));
    if (op.kind != TensorOp::Kind::store && !op.mask.empty()) line(3, fmt::format("mask: {}", list(op.mask)));
    if (op.kind == TensorOp::Kind::store && !op.memory_mask.empty()) line(3, fmt::format("mask: {}", list(op.memory_mask)));
    if (op.keeps) line(3, "elsewhere what was there");
    if (op.select) line(3, fmt::format("elsewhere {}", op.outside.value_or(0)));
    if (op.test) line(3, fmt::format("test of columns: {}", test_text(op)));
    if (op.through_shared)
      line(3, fmt::format("stored through shared memory from byte {}, {} columns at once{}", op.stage_offset,
                          op.stage_blocks * op.stage_columns, op.waits_for_place ? ", when the tile before has left" : ""));
  }

  std::string test_text(const TensorOp& op) const {
    const auto text = [&](const ScalarExpr& expr) { return describe(expr, op.op, plan_.program->buffers); };
    return fmt::format("{}{}; {} at all of them: {}", op.test->usual ? "" : "not ", text(op.test->condition),
                       op.test->usual ? "true" : "false", text(op.test->value)) +
           (op.test->clamped ? ", as far as there are any" : "");
  }

  void visit(const EventNode& node, int depth) {
    switch (node.kind) {
      case EventNode::Kind::event:
        return line(depth, event_text(node.event));
      case EventNode::Kind::loop:
        line(depth++, fmt::format("for {} in [{}, {}){}{}", node.var, node.lower.str(), node.upper.str(),
                                  node.unroll > 1 ? fmt::format(" unrolled by {}", node.unroll) : "",
                                  node.masked ? "" : ", without masks"));
        break;
      case EventNode::Kind::condition:
        line(depth++, fmt::format("if {}", node.condition.str()));
        break;
      case EventNode::Kind::sequence:
        if (!node.var.empty()) line(depth++, fmt::format("let {} = {}", node.var, node.lower.str()));
        break;
    }
    for (const EventNode& child : node.children) visit(child, depth);
  }

  std::string event_text(const Event& event) const {
    std::string text = name_of(event.kind);
    if (event.kind == Kind::quad_reduction) return fmt::format("{} {}", text, plan_.buffer(event.ring).name);
    if (event.ring >= 0) text += fmt::format(" {}", ring_name(event.ring));
    if (event.op >= 0 && event.ring < 0) text += fmt::format(" {}", op_name(event.op));
    if (event.kind == Kind::wait_products) text += fmt::format(" but {}", event.count);
    if (event.kind == Kind::wait_copies) text += fmt::format(" but {}", event.count);
    if (event.kind == Kind::load && event.count > 0) text += fmt::format(", {} iterations ahead", event.count);
    if (event.kind == Kind::release && event.count > 0)
      text += fmt::format(", after part {} of {} of {}", event.count, kAmidParts, op_name(event.op));
    if (event.blocks > 1) text += fmt::format(", of {} blocks", event.blocks);
    return text;
  }

  const TensorPlan& plan_;
  std::string text_;
};

}  // namespace

std::string describe(const TensorPlan& plan) { return Printer(plan).run(); }

}  // namespace nestor::nvptx
