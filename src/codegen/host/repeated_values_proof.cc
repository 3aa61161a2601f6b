// Both programs side by side. Values are compared as text in which each result of a missing map stands as its value.
#include "codegen/host/repeated_values_proof.h"

#include "codegen/tile/analysis/tile_rewrite.h"
#include "support/error.h"
#include "support/substitution.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace nestor {
namespace {

std::string index_text(const std::vector<IntExpr>& index) {
  std::vector<std::string> parts;
  for (const IntExpr& expr : index) parts.push_back(expr.str());
  return fmt::format("{}", fmt::join(parts, ", "));
}

/// A node without what is below it.
std::string header(const TileNode& node) {
  const auto text = [](const IntExpr& expr) { return expr.defined() ? expr.str() : std::string("-"); };
  return fmt::format("{} {} {} {} {} {} {} {} {} {}", static_cast<int>(node.kind), node.var, text(node.lower), text(node.upper),
                     node.step, static_cast<int>(node.loop_kind), node.factor, describe(node.knobs), fmt::join(node.merged, ","),
                     text(node.condition));
}

/// All of the program but its tree.
std::string interface(TileProgram program) {
  program.root = nvptx::make_sequence({});
  return describe(program);
}

class RepeatedValues {
 public:
  RepeatedValues(const TileProgram& program, const TileProgram& repeated) : program_(program) {
    std::set<int> kept;
    nvptx::for_each_op(repeated.root, [&](const TileOp& op, bool) {
      kept.insert(op.write.buffer);
      for (const TileAccess& read : op.reads) kept.insert(read.buffer);
    });
    nvptx::for_each_op(program.root, [&](const TileOp& op, bool) {
      ++writers_[op.write.buffer];
      if (!kept.contains(op.write.buffer)) missing_.insert(op.write.buffer);
    });
    if (interface(program) != interface(repeated))
      internal_error("repeated values have changed the interface of {}", program.name);
  }

  void compare(const TileTree& old, const TileTree& now) {
    if (old == now) {
      if (touches_missing(old)) fail("an op that was not changed needs what is missing", old);
      return;
    }
    if (header(*old) != header(*now)) fail("another node", old);
    if (old->kind == TileNode::Kind::op) fail("it may not differ", old);
    const bool in_order = old->kind == TileNode::Kind::sequence;
    Definitions definitions;
    std::size_t next = 0;
    for (const TileTree& child : old->children) {
      const bool is_op = child->kind == TileNode::Kind::op;
      if (is_op && in_order && missing_.contains(child->op.write.buffer)) {
        define(child, definitions);
        continue;
      }
      if (next == now->children.size()) fail("it is missing", child);
      const TileTree& other = now->children[next++];
      if (is_op && other != child) {
        compare_readers(child, other, definitions);
      } else {
        compare(child, other);
      }
      nvptx::for_each_op(child, [&](const TileOp& op, bool) { overwrite(op.write.buffer, definitions); });
    }
    if (next != now->children.size()) fail("something stands behind it", old);
  }

 private:
  /// The map that wrote a missing buffer, and whether one of its operands has been written since.
  struct Definition {
    const TileOp* op;
    bool overwritten = false;
  };
  using Definitions = std::map<int, Definition>;

  [[noreturn]] void fail(const std::string& what, const TileTree& at) const {
    const std::string where = at->kind == TileNode::Kind::op ? describe(at->op, program_.buffers) : header(*at);
    internal_error("values computed again in {} are not shown to be those stored: {}: {}", program_.name, what, where);
  }

  bool touches_missing(const TileTree& tree) const {
    bool found = false;
    nvptx::for_each_op(tree, [&](const TileOp& op, bool) {
      found =
          found || missing_.contains(op.write.buffer) ||
          std::any_of(op.reads.begin(), op.reads.end(), [&](const TileAccess& read) { return missing_.contains(read.buffer); });
    });
    return found;
  }

  /// Only a map (or copy) at every point of its box that writes all that the buffer ever has can be replaced by its value.
  void define(const TileTree& at, Definitions& definitions) const {
    const TileOp& op = at->op;
    const Buffer& buffer = program_.buffers[op.write.buffer];
    const bool whole = op.kind == OpKind::map || op.kind == OpKind::copy;
    const bool plain = whole && !op.reduction && !op.guard.defined() && !op.fill && op.indices.empty();
    if (!plain) fail("it is no map of its whole box", at);
    if (buffer.memory != Memory::scratch || buffer.type != op.value.type()) fail("its result is seen elsewhere, or rounded", at);
    if (writers_.at(op.write.buffer) != 1) fail("others write there", at);
    definitions[op.write.buffer] = {&op};
  }

  static void overwrite(int buffer, Definitions& definitions) {
    for (auto& [name, definition] : definitions) {
      const auto& reads = definition.op->reads;
      if (std::any_of(reads.begin(), reads.end(), [&](const TileAccess& read) { return read.buffer == buffer; }))
        definition.overwritten = true;
    }
  }

  /// The op in which a value is asked for, and the maps that it may ask for.
  struct Reader {
    const TileTree& at;
    const Definitions& definitions;
  };

  void compare_readers(const TileTree& old, const TileTree& now, const Definitions& definitions) const {
    const TileOp &before = old->op, &after = now->op;
    if (now->kind != TileNode::Kind::op || before.kind == OpKind::contract || before.kind == OpKind::points)
      fail("it may not differ", old);
    if (before.seldom != after.seldom || index_text(before.indices) != index_text(after.indices)) fail("it does more", old);
    const Reader reader{old, definitions};
    const std::string wanted = value_text(before, before.value, {}, reader);
    if (frame(before) != frame(after) || wanted != describe(after.value, after, program_.buffers))
      fail(fmt::format("not {} but {}", wanted, describe(after, program_.buffers)), old);
  }

  /// The op without its value.
  std::string frame(TileOp op) const {
    op.value = ScalarExpr::constant(0);
    return describe(op, program_.buffers);
  }

  using Point = std::map<std::string, IntExpr>;  ///< dims of an op, as expressions of the reader's

  /// `value` of `op` at a point, with values in place of what is missing.
  std::string value_text(const TileOp& op, const ScalarExpr& value, const Point& point, const Reader& reader) const {
    const auto read = [&](int k) -> std::string {
      TileAccess access = op.reads[static_cast<std::size_t>(k)];
      for (IntExpr& index : access.index) index = substitute_all(index, point);
      if (missing_.contains(access.buffer)) return missing_text(access, reader);
      return fmt::format("{}[{}]", program_.buffers[access.buffer].name, index_text(access.index));
    };
    return value.str(read, [&](int k) { return op.indices[static_cast<std::size_t>(k)].str(); });
  }

  /// What the missing map has written where `access` reads, rounded as it was stored.
  std::string missing_text(const TileAccess& access, const Reader& reader) const {
    const auto found = reader.definitions.find(access.buffer);
    if (found == reader.definitions.end())
      fail("it reads what is missing before that is known, or in another sequence", reader.at);
    const TileOp& map = *found->second.op;
    const TileOp& by = reader.at->op;
    if (found->second.overwritten) fail("an operand has been overwritten", reader.at);
    if (std::any_of(map.reads.begin(), map.reads.end(), [&](const TileAccess& read) { return read.buffer == by.write.buffer; }))
      fail("it overwrites an operand", reader.at);
    Point point;
    for (std::size_t k = 0; k < access.index.size(); ++k) {
      const IntExpr& written = map.write.index[k];
      const auto dim = std::find_if(map.dims.begin(), map.dims.end(), [&](const OpDim& each) { return written.uses(each.var); });
      if (dim == map.dims.end() ? written.str() != access.index[k].str() : !lies_inside(access.index[k], *dim, by))
        fail("it reads outside of what was written", reader.at);
      if (dim == map.dims.end()) continue;
      if (written.str() != dim->var || !point.emplace(dim->var, access.index[k]).second)
        fail("its point is not known", reader.at);
    }
    if (point.size() != map.dims.size()) fail("its point is not known", reader.at);
    return value_text(map, ScalarExpr::cast(map.value.type(), map.value), point, reader);
  }

  /// Is `index` a dim of `by` that has the values of `dim`?
  static bool lies_inside(const IntExpr& index, const OpDim& dim, const TileOp& by) {
    return std::any_of(by.dims.begin(), by.dims.end(), [&](const OpDim& each) {
      return index.str() == each.var && each.lower.str() == dim.lower.str() && each.upper.str() == dim.upper.str();
    });
  }

  const TileProgram& program_;
  std::map<int, int> writers_;
  std::set<int> missing_;
};

}  // namespace

void prove_repeated_values(const TileProgram& program, const TileProgram& repeated) {
  if (program.root && program.root != repeated.root) RepeatedValues(program, repeated).compare(program.root, repeated.root);
}

}  // namespace nestor
