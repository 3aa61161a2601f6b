// A block plan, line by line.
#include "codegen/gpu/simt/plan/print_block_plan.h"

#include <fmt/ranges.h>

namespace nestor::nvptx {
namespace {

std::string place_text(const Placement& place) {
  switch (place.kind) {
    case Placement::Kind::global:
      return "global memory";
    case Placement::Kind::shared:
      return fmt::format("shared memory, bytes {} to {}, strides [{}]", place.offset, place.offset + place.bytes,
                         fmt::join(place.strides, ", "));
    case Placement::Kind::registers:
      break;
  }
  std::string text =
      fmt::format("{} of each thread, {} x {} slots{}{}",
                  place.outside ? fmt::format("shared memory from byte {}", place.outside_offset) : "registers", place.row_slots,
                  place.column_slots, place.by_row ? ", by row" : "", place.by_column ? ", by column" : "");
  if (place.stages > 0)
    text += fmt::format("; copies of {} trips to come from byte {}, by pieces of {} bytes", place.stages, place.stages_offset,
                        place.piece);
  return text;
}

const char* role_text(DimRole role) { return role == DimRole::row ? "row" : role == DimRole::column ? "column" : "serial"; }

std::string layout_text(const BlockOp& op) {
  std::string text =
      fmt::format("{} lanes x {} groups, vectors of {}", op.layout.lanes, op.layout.groups, op.vectors ? op.layout.vector : 1);
  if (op.layout.run > 1) text += fmt::format(", runs of {} rows", op.layout.run);
  std::vector<std::string> roles;
  for (std::size_t d = 0; d < op.roles.size(); ++d)
    roles.push_back(fmt::format("{} {}", op.op.dims[d].var, role_text(op.roles[d])));
  if (!roles.empty()) text += fmt::format("; {}", fmt::join(roles, ", "));
  return text;
}

std::string product_text(const ProductPlan& product) {
  const auto operand = [](bool direct, std::int64_t offset, int stride) {
    return direct ? std::string("in place") : fmt::format("shared memory from byte {}, {} floats a row", offset, stride);
  };
  std::string text =
      fmt::format("product by register blocks, {} x {} slots, tiles of {} ks; first operand {}, second {}", product.row_slots,
                  product.chunks, product.k_tile, operand(product.a_direct, product.a_offset, product.a_stride),
                  operand(product.b_direct, product.b_offset, product.b_stride));
  if (product.b_by_column) text += " of a thread's columns";
  if (product.stages > 1) text += fmt::format("; {} tiles in shared memory, copied ahead", product.stages);
  return text;
}

class Printer {
 public:
  explicit Printer(const BlockPlan& plan) : plan_(plan) {}

  std::string run() {
    line(0, fmt::format("block plan of {}: {} threads{}, {} bytes of shared memory, {} blocks a multiprocessor",
                        plan_.kernel->symbol, plan_.threads,
                        plan_.cluster > 1 ? fmt::format(" in each of {} blocks of a cluster", plan_.cluster) : "",
                        plan_.shared_bytes, plan_.blocks_per_unit));
    if (plan_.square_warps) line(1, "warps of 8 lanes x 4 groups");
    for (const GridLoop& loop : plan_.kernel->grid)
      line(1, fmt::format("grid {} = {} + {} * block, {} blocks", loop.var, loop.lower.str(), loop.step, loop.count.str()));
    for (const auto& [size, divisor] : plan_.size_divisors) line(1, fmt::format("needs {} divisible by {}", size, divisor));
    for (const auto& [buffer, bytes] : plan_.alignments)
      line(1, fmt::format("needs {} at multiples of {} bytes", plan_.buffer(buffer).name, bytes));
    for (const auto& [buffer, place] : plan_.placements)
      line(1, fmt::format("{}: {}{}", plan_.buffer(buffer).name, place_text(place),
                          plan_.lasting.count(buffer) != 0 ? ", for all trips" : ""));
    visit(plan_.root, 1);
    return text_;
  }

 private:
  void line(int depth, const std::string& text) { text_ += std::string(static_cast<std::size_t>(2 * depth), ' ') + text + "\n"; }

  void visit(const BlockNode& node, int depth) {
    if (node.commit) line(depth, "commit copies");
    if (node.advance >= 0) line(depth, fmt::format("wait for the next copy of {}", plan_.buffer(node.advance).name));
    switch (node.kind) {
      case TileNode::Kind::loop:
        line(depth++, node.once ? fmt::format("let {} = {}", node.var, node.lower.str())
                                : fmt::format("for {} in [{}, {}) step {}{}", node.var, node.lower.str(), node.upper.str(),
                                              node.step, node.independent ? ", a block's work tiles" : ""));
        break;
      case TileNode::Kind::condition:
        line(depth++, fmt::format("if {}", node.condition.str()));
        break;
      case TileNode::Kind::op:
        op(plan_.ops[node.op], depth);
        break;
      case TileNode::Kind::sequence:
        break;
    }
    for (const BlockNode& child : node.children) visit(child, depth);
  }

  void op(const BlockOp& op, int depth) {
    if (op.barrier_before) line(depth, "barrier");
    line(depth, describe(op.op, plan_.program->buffers));
    line(depth + 2, layout_text(op));
    if (op.product) line(depth + 2, product_text(*op.product));
    if (op.carried >= 0) line(depth + 2, "each point has what the one before has written in a register");
    if (op.chosen) line(depth + 2, fmt::format("one {} alone, which data names", op.op.dims[op.chosen->dim].var));
    if (op.scattered) line(depth + 2, fmt::format("each term to the {} that data names", op.op.dims[op.scattered->dim].var));
    if (op.own_sums)
      line(depth + 2, op.own_sums->at_once == 1 ? std::string("each sum in a register")
                                                : fmt::format("{} neighbouring sums in registers{}", op.own_sums->at_once,
                                                              op.own_sums->width > 1 ? ", terms loaded by vectors" : ""));
    if (op.prefix)
      line(depth + 2, fmt::format("sums of all {} {} {}", op.prefix->backward ? "behind" : "before",
                                  op.op.dims[op.prefix->kept].var, op.prefix->exclusive ? "itself left out" : "and itself"));
    if (op.ahead > 0) line(depth + 2, fmt::format("copied {} trips ahead", op.ahead));
    if (op.divides()) line(depth + 2, fmt::format("groups divide {} among them", op.op.dims[op.divided].var));
    if (plan_.cluster > 1 && op.crosses_warps())
      line(depth + 2, fmt::format("blocks of the cluster exchange partial results from byte {}", plan_.exchange_offset));
    if (op.partials_offset >= 0)
      line(depth + 2, fmt::format("partial results meet in shared memory from byte {}", op.partials_offset));
    if (op.fused) line(depth + 2, fmt::format("combined with {}", plan_.ops[op.fused->lead].op.name));
    if (op.joins >= 0) line(depth + 2, fmt::format("in one pass with {}", plan_.ops[op.joins].op.name));
    for (const int d : op.window) line(depth + 2, fmt::format("{} written out for each run of rows", op.op.dims[d].var));
    if (op.deferred) line(depth + 2, "its follower combines the results of warps");
  }

  const BlockPlan& plan_;
  std::string text_;
};

}  // namespace

std::string describe(const BlockPlan& plan) { return Printer(plan).run(); }

}  // namespace nestor::nvptx
