// Groups of ops that may share strips, and the loops over these.
#include "codegen/host/row_strips.h"

#include "codegen/host/host_backend.h"
#include "codegen/tile/analysis/tile_rewrite.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

namespace nestor {
namespace {

constexpr std::int64_t kLeastRows = 4;            ///< of a strip: reductions work on four rows side by side
constexpr const char* kRow = "#row";              ///< no variable of a program has this name
constexpr std::int64_t kUnknownExtent = 1 << 10;  ///< stands for one that is known at launch only

std::vector<const TileAccess*> accesses_of(const TileOp& op, int buffer) {
  std::vector<const TileAccess*> found;
  if (op.write.buffer == buffer) found.push_back(&op.write);
  for (const TileAccess& read : op.reads) {
    if (read.buffer == buffer) found.push_back(&read);
  }
  return found;
}

/// Buffers that both touch and at least one of them writes.
std::set<int> meeting_buffers(const TileOp& a, const TileOp& b) {
  std::set<int> found;
  if (!accesses_of(b, a.write.buffer).empty()) found.insert(a.write.buffer);
  if (!accesses_of(a, b.write.buffer).empty()) found.insert(b.write.buffer);
  return found;
}

/// An op and the dim that is its rows.
struct Member {
  const TileOp* op;
  std::size_t dim;
  const OpDim& rows() const { return op->dims[dim]; }
};

/// The index at a place of an access, with kRow for the rows' variable, as all members have it; "" if it moves with other dims.
std::string row_index(const Member& member, const TileAccess& access, std::size_t place) {
  const IntExpr& index = access.index[place];
  for (std::size_t k = 0; k < member.op->dims.size(); ++k) {
    if (index.uses(member.op->dims[k].var) != (k == member.dim)) return "";
  }
  return index.coefficient(member.rows().var) == 1 ? index.substitute(member.rows().var, IntExpr::variable(kRow)).str() : "";
}

/// The place of the index at which all accesses of both have the same row; -1: there is none. What lies in a row is dense, so that it is
/// not the last place where others have more than one element.
int row_place(const Member& a, const Member& b, int buffer, const std::vector<IntExpr>& extents) {
  const bool only_last = std::all_of(extents.begin(), extents.end() - (extents.empty() ? 0 : 1),
                                     [](const IntExpr& extent) { return extent.as_constant() == 1; });
  const std::size_t places = only_last ? extents.size() : extents.size() - 1;
  for (std::size_t place = 0; place < places; ++place) {
    std::set<std::string> indices;
    for (const Member& member : {a, b}) {
      for (const TileAccess* access : accesses_of(*member.op, buffer)) indices.insert(row_index(member, *access, place));
    }
    if (indices.size() == 1 && !indices.begin()->empty()) return static_cast<int>(place);
  }
  return -1;
}

/// Ops of one sequence that run strip by strip.
class Group {
 public:
  Group(const std::vector<Buffer>& buffers, Member first) : buffers_(buffers), members_{first} {}

  /// Takes the op in if its rows are the group's and it meets the others in the same rows only.
  bool join(const TileOp& op) {
    for (std::size_t k = 0; k < op.dims.size(); ++k) {
      if (!has_same_rows(op.dims[k])) continue;
      const Member member{&op, k};
      if (!meets_in_rows(member)) continue;
      members_.push_back(member);
      return true;
    }
    return false;
  }

  bool has(const TileOp& op) const {
    return std::any_of(members_.begin(), members_.end(), [&](const Member& member) { return member.op == &op; });
  }

  /// Rows of a strip; 0: strips would not pay, as tiles fit these bytes.
  std::int64_t strip(std::int64_t bytes) const {
    if (cuts_columns()) return 0;
    std::int64_t all = 0, row = 0;
    for (const auto& [buffer, place] : shared_) {
      std::int64_t one_row = static_cast<std::int64_t>(size_in_bytes(buffers_[buffer].type)), rows = 1;
      for (std::size_t k = 0; k < buffers_[buffer].extents.size(); ++k)
        (static_cast<int>(k) == place ? rows : one_row) *= buffers_[buffer].extents[k].as_constant().value_or(kUnknownExtent);
      row += one_row;
      all += one_row * rows;
    }
    if (all <= bytes) return 0;
    std::int64_t rows = kLeastRows;
    while (2 * rows * row <= bytes) rows *= 2;
    const auto most = members_.front().rows().max_extent;
    return most && *most <= rows ? 0 : rows;
  }

  /// The loop over strips, with the members in their order.
  TileTree loop(std::int64_t strip) const {
    const OpDim& rows = members_.front().rows();
    const std::string var = rows.var + "_strip";
    const IntExpr first = IntExpr::variable(var);
    const auto length = (rows.upper - rows.lower).as_constant();
    const IntExpr end = length && *length % strip == 0 ? first + IntExpr(strip) : min(first + IntExpr(strip), rows.upper);
    std::vector<TileTree> body;
    for (const Member& member : members_) {
      TileOp op = *member.op;
      op.dims[member.dim].lower = first;
      op.dims[member.dim].upper = end;
      op.dims[member.dim].max_extent = strip;
      body.push_back(nvptx::make_op(std::move(op)));
    }
    auto loop = std::make_shared<TileNode>(*nvptx::make_loop(var, rows.lower, rows.upper, nvptx::make_sequence(std::move(body))));
    loop->step = strip;
    return loop;
  }

 private:
  /// Are the rows the columns of tiles with one row? Where a tile has columns of its own, the others hold values of its rows.
  bool cuts_columns() const {
    const auto some = [&](const std::function<bool(std::size_t rank, std::size_t place)>& holds) {
      return std::any_of(shared_.begin(), shared_.end(), [&](const auto& shared) {
        return holds(buffers_[shared.first].extents.size(), static_cast<std::size_t>(shared.second));
      });
    };
    return some([](std::size_t rank, std::size_t place) { return rank > 1 && place + 1 == rank; }) &&
           !some([](std::size_t rank, std::size_t place) { return place + 1 < rank; });
  }

  bool has_same_rows(const OpDim& dim) const {
    const OpDim& rows = members_.front().rows();
    return dim.parallel && !dim.reduced && dim.lower.str() == rows.lower.str() && dim.upper.str() == rows.upper.str();
  }

  bool meets_in_rows(const Member& member) {
    std::map<int, int> places;
    for (const Member& other : members_) {
      for (const int buffer : meeting_buffers(*member.op, *other.op)) {
        const int place = row_place(member, other, buffer, buffers_[buffer].extents);
        if (place < 0) return false;
        if (buffers_[buffer].memory == Memory::scratch) places[buffer] = place;
      }
    }
    shared_.insert(places.begin(), places.end());
    return true;
  }

  const std::vector<Buffer>& buffers_;
  std::vector<Member> members_;
  std::map<int, int> shared_;  ///< scratch that members hand on, and where rows index it
};

/// Are steps of composites in the group with all of their ops, or not at all? One iteration takes a step from save to correction.
bool keeps_steps(const std::vector<TileTree>& children, const Group& group) {
  const auto visit = [&](const std::function<void(const TileOp&)>& each) {
    for (const TileTree& child : children) nvptx::for_each_op(child, [&](const TileOp& op, bool) { each(op); });
  };
  std::set<std::string> leads, inside, outside;
  visit([&](const TileOp& op) { leads.insert(op.claim.lead); });
  leads.erase("");
  visit([&](const TileOp& op) {
    const std::string& step = op.claim.lead.empty() ? op.claim.statement : op.claim.lead;
    if (leads.contains(step)) (group.has(op) ? inside : outside).insert(step);
  });
  return std::none_of(inside.begin(), inside.end(), [&](const std::string& lead) { return outside.contains(lead); });
}

class Strips {
 public:
  Strips(const std::vector<Buffer>& buffers, std::int64_t bytes) : buffers_(buffers), bytes_(bytes) {}

  TileTree run(const TileTree& tree) const {
    if (tree->kind == TileNode::Kind::op) return tree;
    auto out = std::make_shared<TileNode>(*tree);
    for (TileTree& child : out->children) child = run(child);
    if (tree->kind == TileNode::Kind::sequence) out->children = grouped(std::move(out->children));
    return out;
  }

 private:
  /// Staged copies stay whole: they are made for an iteration of their loops.
  static bool takes_rows(const TileTree& tree) {
    return tree->kind == TileNode::Kind::op && tree->op.kind != OpKind::contract && tree->op.kind != OpKind::points &&
           tree->op.claim.role != OpRole::stage;
  }

  /// The first op that begins a group takes its members out of what follows; the rest is looked through again.
  std::vector<TileTree> grouped(std::vector<TileTree> children) const {
    std::vector<TileTree> out;
    const std::vector<TileTree> all = children;
    while (!children.empty()) {
      std::vector<TileTree> rest;
      const TileTree group = group_from(children, all, rest);
      out.push_back(group != nullptr ? group : children.front());
      if (group == nullptr) rest.assign(children.begin() + 1, children.end());
      children = std::move(rest);
    }
    return out;
  }

  /// A loop over strips that begins with the first of `children`; `rest` are those that stay behind it. Null: none pays. `all`: of the sequence.
  TileTree group_from(const std::vector<TileTree>& children, const std::vector<TileTree>& all,
                      std::vector<TileTree>& rest) const {
    if (!takes_rows(children.front())) return nullptr;
    const TileOp& first = children.front()->op;
    for (std::size_t dim = 0; dim < first.dims.size(); ++dim) {
      if (!first.dims[dim].parallel || first.dims[dim].reduced) continue;
      Group group(buffers_, {&first, dim});
      rest.clear();
      for (std::size_t k = 1; k < children.size(); ++k) {
        if (!joins(group, children[k], rest)) rest.push_back(children[k]);
      }
      if (const std::int64_t strip = group.strip(bytes_); strip > 0 && keeps_steps(all, group)) return group.loop(strip);
    }
    return nullptr;
  }

  /// May the node pass all that stays behind the group, and is it taken in?
  static bool joins(Group& group, const TileTree& node, const std::vector<TileTree>& passed) {
    return takes_rows(node) &&
           std::all_of(passed.begin(), passed.end(),
                       [&](const TileTree& other) {
                         return other->kind == TileNode::Kind::op && meeting_buffers(node->op, other->op).empty();
                       }) &&
           group.join(node->op);
  }

  const std::vector<Buffer>& buffers_;
  std::int64_t bytes_;
};

}  // namespace

TileProgram in_row_strips(TileProgram program, std::int64_t bytes) {
  if (program.root) program.root = Strips(program.buffers, bytes).run(program.root);
  return program;
}

TileProgram in_host_order(TileProgram program) { return in_row_strips(std::move(program)); }

}  // namespace nestor
