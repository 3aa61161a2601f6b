// Tile programs as readable code.
#include "codegen/tile/tile_program.h"

#include "support/error.h"

#include <fmt/ranges.h>

#include <array>

namespace nestor {
namespace {

std::string list(const std::vector<IntExpr>& exprs) {
  std::vector<std::string> parts;
  parts.reserve(exprs.size());
  for (const IntExpr& expr : exprs) parts.push_back(expr.str());
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string access_text(const std::vector<Buffer>& buffers, const TileAccess& access) {
  return fmt::format("{}[{}]", buffers[access.buffer].name, list(access.index));
}

std::string dim_text(const OpDim& dim) {
  std::string text = fmt::format("{} in [{}, {})", dim.var, dim.lower.str(), dim.upper.str());
  if (dim.reduced) text += " reduced";
  if (!dim.reduced && !dim.parallel) text += " ordered";
  if (dim.kind != LoopKind::serial) text += fmt::format(" {}", to_string(dim.kind));
  if (dim.factor != 0) text += fmt::format("({})", dim.factor);
  return text;
}

void print(const TileProgram& program, const TileTree& node, int depth, std::string& out) {
  const std::string indent(static_cast<std::size_t>(2 * depth), ' ');
  int inner = depth;
  if (node->kind == TileNode::Kind::loop) {
    out += fmt::format("{}{} {} in [{}, {})", indent, node->loop_kind == LoopKind::serial ? "for" : to_string(node->loop_kind),
                       node->var, node->lower.str(), node->upper.str());
    if (node->step != 1) out += fmt::format(" step {}", node->step);
    if (!node->knobs.empty()) out += " (" + describe(node->knobs) + ")";
    out += "\n";
    inner = depth + 1;
  } else if (node->kind == TileNode::Kind::condition) {
    out += fmt::format("{}if {}\n", indent, node->condition.str());
    inner = depth + 1;
  } else if (node->kind == TileNode::Kind::op) {
    out += indent + describe(node->op, program.buffers) + "\n";
  }
  for (const TileTree& child : node->children) print(program, child, inner, out);
}

}  // namespace

std::string_view to_string(Memory memory) {
  constexpr std::array<std::string_view, 3> kNames{"argument", "workspace", "scratch"};
  return kNames[static_cast<std::size_t>(memory)];
}

std::string_view to_string(OpKind kind) {
  constexpr std::array<std::string_view, 5> kNames{"copy", "map", "reduce", "contract", "points"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string describe(const ScalarExpr& value, const TileOp& op, const std::vector<Buffer>& buffers) {
  return value.str([&](int k) { return access_text(buffers, op.reads[k]); }, [&](int k) { return op.indices[k].str(); });
}

std::string describe(const TileOp& op, const std::vector<Buffer>& buffers) {
  std::vector<std::string> dims;
  dims.reserve(op.dims.size());
  for (const OpDim& dim : op.dims) dims.push_back(dim_text(dim));
  const std::string value = describe(op.value, op, buffers);
  const std::string assign = op.reduction ? fmt::format("{}=", to_string(*op.reduction)) : "=";
  std::string text = fmt::format("{} {} {{{}}}: {} {} {}", to_string(op.kind), op.name, fmt::join(dims, "; "),
                                 access_text(buffers, op.write), assign, value);
  if (op.initialize) text += " from neutral";
  if (op.guard.defined()) text += " where " + op.guard.str();
  if (op.fill) text += fmt::format(" else {}", *op.fill);
  return text;
}

std::string describe(const TileProgram& program) {
  std::vector<std::string> parameters;
  for (const std::string& size : program.sizes) {
    const auto fixed = program.fixed_sizes.find(size);
    parameters.push_back(fixed == program.fixed_sizes.end() ? size : fmt::format("{} = {}", size, fixed->second));
  }
  for (const ScalarParam& scalar : program.scalars)
    parameters.push_back(fmt::format("{} {}", to_string(scalar.type), scalar.name));
  std::string out = fmt::format("kernel {}({})\n", program.name, fmt::join(parameters, ", "));
  for (const Buffer& buffer : program.buffers) {
    out += fmt::format("{} {} {}[{}]{}\n", buffer.memory == Memory::argument ? to_string(buffer.role) : to_string(buffer.memory),
                       to_string(buffer.type), buffer.name, list(buffer.extents), buffer.streaming ? " streaming" : "");
  }
  print(program, program.root, 0, out);
  return out;
}

}  // namespace nestor
