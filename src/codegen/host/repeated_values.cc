// Which maps are cheap enough, which ops may repeat them, and their values inside these.
#include "codegen/host/repeated_values.h"

#include "codegen/tile/analysis/tile_rewrite.h"
#include "support/substitution.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace nestor {
namespace {

constexpr int kMostOperations = 2;
constexpr int kMostReaders = 2;

bool reads_buffer(const TileOp& op, int buffer) {
  return std::any_of(op.reads.begin(), op.reads.end(), [&](const TileAccess& read) { return read.buffer == buffer; });
}

/// Sums and products of reads, scalars and constants that are known before the loops.
bool is_cheap(const ScalarExpr& value) {
  int operations = 0;
  bool simple = value.type() == ElementType::f32;
  value.visit([&](const ScalarExpr& node) {
    switch (node.op()) {
      case ScalarOp::read:
      case ScalarOp::scalar:
      case ScalarOp::constant:
        simple = simple && node.type() == ElementType::f32;
        break;
      case ScalarOp::add:
      case ScalarOp::sub:
      case ScalarOp::mul:
        ++operations;
        break;
      default:
        simple = false;
    }
  });
  return simple && operations <= kMostOperations;
}

bool is_variable(const IntExpr& expr, const std::string& name) { return expr.op() == IntOp::variable && expr.name() == name; }

/// The dim of `op` that is this index; null: none is.
const OpDim* dim_at(const TileOp& op, const IntExpr& index) {
  const auto found = std::find_if(op.dims.begin(), op.dims.end(), [&](const OpDim& dim) { return is_variable(index, dim.var); });
  return found == op.dims.end() ? nullptr : &*found;
}

bool is_fixed(const TileOp& op, const IntExpr& index) {
  return std::none_of(op.dims.begin(), op.dims.end(), [&](const OpDim& dim) { return index.uses(dim.var); });
}

/// Variables of one op, and those of another in their place.
using Renaming = std::map<std::string, IntExpr>;

/// For each dim of `made`, the dim of `reader` that has its place in the access; empty: the boxes or the other indices differ.
Renaming same_box(const TileOp& made, const TileOp& reader, const TileAccess& read) {
  Renaming dims;
  for (std::size_t place = 0; place < read.index.size(); ++place) {
    const OpDim *written = dim_at(made, made.write.index[place]), *wanted = dim_at(reader, read.index[place]);
    if ((written == nullptr) != (wanted == nullptr)) return {};
    if (written == nullptr) {
      if (made.write.index[place].str() != read.index[place].str()) return {};
      continue;
    }
    if (written->lower.str() != wanted->lower.str() || written->upper.str() != wanted->upper.str()) return {};
    dims.emplace(written->var, IntExpr::variable(wanted->var));
  }
  return dims.size() == made.dims.size() ? dims : Renaming();
}

/// The reader with the value of `made` in place of what it reads of it, rounded as the store did: a product that became part of an fma
/// would differ from what other readers have, and a difference of such values (a score and its maximum) would not be 0.
TileOp with_value(const TileOp& made, TileOp reader) {
  std::vector<std::optional<ScalarExpr>> values(reader.reads.size());
  const std::size_t reads = reader.reads.size();
  for (std::size_t k = 0; k < reads; ++k) {
    if (reader.reads[k].buffer != made.write.buffer) continue;
    const int first = static_cast<int>(reader.reads.size());
    const Renaming dims = same_box(made, reader, reader.reads[k]);
    for (TileAccess access : made.reads) {
      for (IntExpr& index : access.index) index = substitute_all(index, dims);
      reader.reads.push_back(std::move(access));
    }
    values[k] = ScalarExpr::cast(made.value.type(), made.value.rewrite([&](const ScalarExpr& node) {
      return node.op() == ScalarOp::read ? ScalarExpr::read(node.ordinal() + first, node.type()) : node;
    }));
  }
  // What is read no more gives its place to what is read instead.
  std::vector<TileAccess> kept;
  std::vector<int> place(reader.reads.size(), -1);
  for (std::size_t k = 0; k < reader.reads.size(); ++k) {
    if (k < reads && values[k]) continue;
    place[k] = static_cast<int>(kept.size());
    kept.push_back(reader.reads[k]);
  }
  const auto moved = [&](const ScalarExpr& node) {
    return node.op() == ScalarOp::read ? ScalarExpr::read(place[static_cast<std::size_t>(node.ordinal())], node.type()) : node;
  };
  reader.value = reader.value.rewrite([&](const ScalarExpr& node) {
    if (node.op() != ScalarOp::read) return node;
    const auto& value = values[static_cast<std::size_t>(node.ordinal())];
    return value ? value->rewrite(moved) : moved(node);
  });
  reader.reads = std::move(kept);
  return reader;
}

class Repetition {
 public:
  explicit Repetition(const TileProgram& program) : program_(program) {}

  TileTree run(const TileTree& tree) const {
    if (tree->kind == TileNode::Kind::op) return tree;
    auto out = std::make_shared<TileNode>(*tree);
    for (TileTree& child : out->children) child = run(child);
    if (tree->kind != TileNode::Kind::sequence) return out;
    for (std::size_t k = 0; k < out->children.size();) {
      if (!repeat(out->children, k)) ++k;
    }
    return out;
  }

 private:
  /// Leaves out child k if those that read its result can compute it.
  bool repeat(std::vector<TileTree>& children, std::size_t k) const {
    if (children[k]->kind != TileNode::Kind::op || !may_be_repeated(children[k]->op)) return false;
    const TileOp made = children[k]->op;
    std::vector<std::size_t> readers;
    bool changed = false;  // operands, by what comes before a reader
    for (std::size_t next = k + 1; next < children.size(); ++next) {
      bool reads = false, writes = false;
      nvptx::for_each_op(children[next], [&](const TileOp& op, bool) {
        reads = reads || reads_buffer(op, made.write.buffer);
        writes = writes || reads_buffer(made, op.write.buffer);
      });
      changed = changed || writes;
      if (!reads) continue;
      if (changed || children[next]->kind != TileNode::Kind::op || !can_repeat(made, children[next]->op)) return false;
      readers.push_back(next);
    }
    if (readers.empty() || readers.size() > kMostReaders || touches(made.write.buffer) != readers.size() + 1) return false;
    for (const std::size_t reader : readers) children[reader] = nvptx::make_op(with_value(made, children[reader]->op));
    children.erase(children.begin() + static_cast<std::ptrdiff_t>(k));
    return true;
  }

  bool in_scratch(const TileAccess& access) const {
    const Buffer& buffer = program_.buffers[access.buffer];
    return buffer.memory == Memory::scratch && buffer.type == ElementType::f32;
  }

  /// Operands lie as the result does: vectors of the one are vectors of the other.
  bool may_be_repeated(const TileOp& op) const {
    if ((op.kind != OpKind::map && op.kind != OpKind::copy) || op.reduction || op.guard.defined() || op.fill ||
        !op.indices.empty())
      return false;
    if (op.dims.empty() || !is_cheap(op.value) || !in_scratch(op.write)) return false;
    const std::string last = op.write.index.back().str();
    return std::all_of(op.reads.begin(), op.reads.end(), [&](const TileAccess& read) {
      return in_scratch(read) && read.buffer != op.write.buffer && !read.index.empty() &&
             (read.index.back().str() == last || is_fixed(op, read.index.back()));
    });
  }

  static bool can_repeat(const TileOp& made, const TileOp& reader) {
    const bool takes_values = reader.kind == OpKind::map || reader.kind == OpKind::copy || reader.kind == OpKind::reduce;
    return takes_values && std::all_of(reader.reads.begin(), reader.reads.end(), [&](const TileAccess& read) {
             return read.buffer != made.write.buffer || !same_box(made, reader, read).empty();
           });
  }

  /// Ops of the program that read or write the buffer. The program is as it was given: a map left out before read other buffers, or it
  /// could not have been left out.
  std::size_t touches(int buffer) const {
    std::size_t count = 0;
    nvptx::for_each_op(program_.root,
                       [&](const TileOp& op, bool) { count += op.write.buffer == buffer || reads_buffer(op, buffer) ? 1 : 0; });
    return count;
  }

  const TileProgram& program_;
};

}  // namespace

TileProgram with_repeated_values(TileProgram program) {
  if (program.root) program.root = Repetition(program).run(program.root);
  return program;
}

}  // namespace nestor
