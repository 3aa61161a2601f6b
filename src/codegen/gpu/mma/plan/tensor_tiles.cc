// Which dims are rows and columns of fragments, and which arguments come through shared memory.
#include "codegen/gpu/mma/plan/op_places.h"
#include "codegen/gpu/mma/plan/plan_passes.h"
#include "codegen/gpu/mma/plan/seldom_sums.h"
#include "codegen/gpu/mma/plan/tensor_ranges.h"
#include "codegen/tile/analysis/affine.h"
#include "codegen/tile/analysis/conditions.h"
#include "codegen/tile/analysis/tile_rewrite.h"

#include "support/error.h"
#include "support/tensor_view.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace nestor::nvptx {
namespace {

/// Dims of ops and indices of scratch buffers that run over the same positions.
class Axes {
 public:
  int of(std::pair<int, int> member) {
    const auto [found, added] = numbers_.try_emplace(member, static_cast<int>(parents_.size()));
    if (added) parents_.push_back(found->second);
    return root(found->second);
  }
  void join(std::pair<int, int> a, std::pair<int, int> b) { parents_[static_cast<std::size_t>(of(a))] = of(b); }

 private:
  int root(int k) {
    while (parents_[static_cast<std::size_t>(k)] != k) k = parents_[static_cast<std::size_t>(k)];
    return k;
  }
  std::map<std::pair<int, int>, int> numbers_;
  std::vector<int> parents_;
};

/// Dims and buffer indices in one numbering: dim d of op k is (k, d), index p of buffer b is (-1 - b, p).
std::pair<int, int> dim_member(std::size_t op, int dim) { return {static_cast<int>(op), dim}; }
std::pair<int, int> index_member(int buffer, std::size_t index) { return {-1 - buffer, static_cast<int>(index)}; }

class TileFinder {
 public:
  TileFinder(TensorPlan& plan, const TileTree& tree) : plan_(plan), tree_(tree) {}

  void run() {
    collect(tree_);
    places_ = places_of_ops(tree_);
    if (std::none_of(plan_.ops.begin(), plan_.ops.end(), [](const TensorOp& op) { return op.kind == TensorOp::Kind::product; }))
      user_error("Kernel '{}' asks for tensor cores, but none of its ops is a product of two 16-bit tiles.", plan_.program->name);
    for (std::size_t k = 0; k < plan_.ops.size(); ++k) join_axes(k);
    for (std::size_t k = 0; k < plan_.ops.size(); ++k) join_stores(k);
    find_rows();
    count_rows();
    for (std::size_t k = 0; k < plan_.ops.size(); ++k) assign_dims(k);
    for (std::size_t k = 0; k < plan_.ops.size(); ++k) note_fragments(plan_.ops[k]);
    widen_fragments();
    for (TensorOp& op : plan_.ops) {
      if (op.kind == TensorOp::Kind::product) operands(op);
    }
    check_layouts();
    const auto in_halves = [](const TensorOp& op) { return op.halves > 1; };
    if (plan_.kernel->shape.operand_halves != 0 && std::none_of(plan_.ops.begin(), plan_.ops.end(), in_halves))
      user_error("Kernel '{}' has no product with a first operand computed in f32: leave out operand_halves.",
                 plan_.program->name);
    for (TensorOp& op : plan_.ops) {
      if (op.kind == TensorOp::Kind::map || op.kind == TensorOp::Kind::reduce) element_tiles(op);
    }
  }

 private:
  [[noreturn]] void refuse(const TileOp& op, const std::string& why) const {
    user_error("Kernel '{}' cannot use tensor cores: {} {}.", plan_.program->name, op.name, why);
  }

  void collect(const TileTree& tree) {
    if (tree->kind == TileNode::Kind::condition)
      user_error("Kernel '{}' cannot use tensor cores: a condition stands inside its blocks.", plan_.program->name);
    if (tree->kind == TileNode::Kind::op) add(tree->op);
    const bool loop = tree->kind == TileNode::Kind::loop;
    if (loop) loops_.insert(tree->var);
    for (const TileTree& child : loop ? *body_of(*tree).children : tree->children) collect(child);
  }

  /// Products that read a streamed tile of the same loop may share it, if all of them do so within one iteration: where products overlap,
  /// late ones read the tile of the iteration before.
  bool may_share(std::size_t op, std::size_t reader) const {
    return places_[op].loop == places_[reader].loop &&
           (plan_.kernel->shape.intra_warpgroup_overlap == 0 || may_be_late(op) == may_be_late(reader));
  }

  /// Products that the next iteration may run beside its own: sums that go on, of an operand made in registers.
  bool may_be_late(std::size_t op) const { return !plan_.ops[op].op.initialize && in_scratch(first_operand(op)); }

  const TileAccess& first_operand(std::size_t op) const {
    const TensorOp& product = plan_.ops[op];
    return product.op.reads[static_cast<std::size_t>(product.form.a)];
  }

  void add(const TileOp& op) {
    TensorOp entry;
    entry.op = op;
    if (op.kind == OpKind::points) refuse(op, "is no operation on whole tiles");
    if (const auto form = product_form(op, true)) {
      entry.kind = TensorOp::Kind::product;
      entry.form = *form;
    } else if (auto sum = seldom_sum(op, plan_.program->buffers, entry.form.k)) {
      entry.kind = TensorOp::Kind::seldom;
      entry.seldom = std::move(sum);
    } else if (op.reduction) {
      if (op.contraction && op.contraction->scale != 1)
        refuse(op, fmt::format("multiplies by {} within its sum: multiply the sum by it instead", op.contraction->scale));
      // A row's sum of products with a vector is one of its columns.
      const bool of_rows = op.dims.size() == 2 && op.dims.back().reduced && !op.dims.front().reduced;
      if (op.contraction && !of_rows) refuse(op, "is a product of more than rows, columns and one reduced dimension");
      entry.kind = TensorOp::Kind::reduce;
    } else if (plan_.buffer(op.write.buffer).memory != Memory::scratch) {
      entry.kind = TensorOp::Kind::store;
    }
    plan_.ops.push_back(std::move(entry));
  }

  bool in_scratch(const TileAccess& access) const { return plan_.buffer(access.buffer).memory == Memory::scratch; }

  /// Dim that an index of a scratch tile is; -1: the tile's only position there.
  int dim_of(const TileOp& op, const IntExpr& index) const {
    for (int d = 0; d < static_cast<int>(op.dims.size()); ++d) {
      if (index.op() == IntOp::variable && index.name() == op.dims[static_cast<std::size_t>(d)].var) return d;
    }
    if (!index.is_constant(0)) refuse(op, "reaches a tile at " + index.str() + ", not at its own position");
    return -1;
  }

  void join_axes(std::size_t k) {
    const TileOp& op = plan_.ops[k].op;
    const auto visit = [&](const TileAccess& access) {
      if (!in_scratch(access)) return;
      for (std::size_t p = 0; p < access.index.size(); ++p) {
        const int d = dim_of(op, access.index[p]);
        if (d >= 0) axes_.join(dim_member(k, d), index_member(access.buffer, p));
      }
    };
    visit(op.write);
    for (const TileAccess& read : op.reads) visit(read);
  }

  /// The only dim of the op in an index; -1: there is none, or several.
  static int only_dim(const TileOp& op, const IntExpr& index) {
    std::set<std::string> names;
    collect_variables(index, names);
    int found = -1;
    for (int d = 0; d < static_cast<int>(op.dims.size()); ++d) {
      if (!names.contains(op.dims[static_cast<std::size_t>(d)].var)) continue;
      if (found >= 0) return -1;
      found = d;
    }
    return found;
  }

  /// What touches no tile, as zeros beside a result, lies as others that store to the same tensor do.
  void join_stores(std::size_t k) {
    const TileOp& op = plan_.ops[k].op;
    const auto touches_tile = [&](const TileOp& other) {
      return in_scratch(other.write) ||
             std::any_of(other.reads.begin(), other.reads.end(), [&](const TileAccess& read) { return in_scratch(read); });
    };
    if (touches_tile(op)) return;
    for (std::size_t other = 0; other < plan_.ops.size(); ++other) {
      const TileOp& store = plan_.ops[other].op;
      if (store.write.buffer != op.write.buffer || !touches_tile(store)) continue;
      for (std::size_t p = 0; p < op.write.index.size(); ++p) {
        const int own = only_dim(op, op.write.index[p]), theirs = only_dim(store, store.write.index[p]);
        if (own >= 0 && theirs >= 0) axes_.join(dim_member(k, own), dim_member(other, theirs));
      }
      return;
    }
  }

  /// Warpgroups of all blocks take equal shares of the rows, in units of what one product takes.
  void count_rows() {
    std::int64_t rows = 0;
    for (const TensorOp& op : plan_.ops) {
      if (op.kind != TensorOp::Kind::product) continue;
      rows = std::max(rows, end_bound(op.op.dims[static_cast<std::size_t>(op.form.row)]).value_or(0));
      if (op.form.pack >= 0) plan_.pack = std::max(plan_.pack, pack_of(op));
    }
    rows *= plan_.pack;
    const std::int64_t at_once = std::int64_t{plan_.cluster()} * plan_.sharing_warpgroups() * kWarpgroupRows;
    plan_.row_tiles = static_cast<int>(std::max<std::int64_t>(ceil_div(rows, at_once), 1));
  }

  /// Rows of one value of the row dim: a power of two, with places that may stay empty.
  int pack_of(const TensorOp& op) const {
    const OpDim& dim = op.op.dims[static_cast<std::size_t>(op.form.pack)];
    const auto extent = end_bound(dim);
    if (!extent || *extent > kMostPacked || !never_negative(dim))
      refuse(op.op, fmt::format("has rows along {} and {}: one of the two may have {} values at most in a tile, from 0 on",
                                dim.var, op.op.dims[static_cast<std::size_t>(op.form.row)].var, kMostPacked));
    return static_cast<int>(std::bit_ceil(static_cast<unsigned>(*extent)));
  }

  /// The transposed product, whose rows are the columns of this one.
  static void turn(ProductForm& form) {
    std::swap(form.row, form.column);
    std::swap(form.a, form.b);
  }

  /// What is in registers is a first operand, whose rows are those of all products.
  void turn_products() {
    const auto reads_tile = [&](const TensorOp& op, int ordinal) {
      return in_scratch(op.op.reads[static_cast<std::size_t>(ordinal)]);
    };
    std::set<int> rows;
    for (std::size_t k = 0; k < plan_.ops.size(); ++k) {
      TensorOp& op = plan_.ops[k];
      if (op.kind != TensorOp::Kind::product || op.form.pack >= 0) continue;
      if (reads_tile(op, op.form.b) && !reads_tile(op, op.form.a)) turn(op.form);
      if (reads_tile(op, op.form.a)) rows.insert(axes_.of(dim_member(k, op.form.row)));
    }
    for (std::size_t k = 0; k < plan_.ops.size(); ++k) {
      TensorOp& op = plan_.ops[k];
      if (op.kind != TensorOp::Kind::product || op.form.pack >= 0 || reads_tile(op, op.form.a)) continue;
      const bool along = rows.contains(axes_.of(dim_member(k, op.form.row)));
      if (!along && rows.contains(axes_.of(dim_member(k, op.form.column)))) turn(op.form);
    }
    turn_to_reductions();
    if (plan_.kernel->shape.swap_ab != 0) swap_operands();
  }

  /// By request, all products are turned: rows of a product come by 64, columns by 8.
  void swap_operands() {
    for (std::size_t k = 0; k < plan_.ops.size(); ++k) {
      TensorOp& op = plan_.ops[k];
      if (op.kind != TensorOp::Kind::product) continue;
      if (op.form.pack >= 0) refuse(op.op, "has packs of rows, which cannot be columns: leave out swap_ab");
      if (in_scratch(first_operand(k)))
        refuse(op.op, "has a first operand in registers, which cannot be the second one: leave out swap_ab");
      turn(op.form);
    }
  }

  /// Reductions run along columns: a product of which rows alone are reduced is turned.
  void turn_to_reductions() {
    std::set<int> reduced;
    for (std::size_t k = 0; k < plan_.ops.size(); ++k) {
      const TensorOp& op = plan_.ops[k];
      for (int d = 0; op.kind == TensorOp::Kind::reduce && d < static_cast<int>(op.op.dims.size()); ++d) {
        if (op.op.dims[static_cast<std::size_t>(d)].reduced) reduced.insert(axes_.of(dim_member(k, d)));
      }
    }
    for (std::size_t k = 0; k < plan_.ops.size(); ++k) {
      TensorOp& op = plan_.ops[k];
      if (op.kind != TensorOp::Kind::product || op.form.pack >= 0 || in_scratch(first_operand(k))) continue;
      const int row = axes_.of(dim_member(k, op.form.row)), column = axes_.of(dim_member(k, op.form.column));
      if (reduced.contains(row) && !reduced.contains(column)) turn(op.form);
    }
  }

  void find_rows() {
    turn_products();
    for (std::size_t k = 0; k < plan_.ops.size(); ++k) {
      const TensorOp& op = plan_.ops[k];
      if (op.kind != TensorOp::Kind::product) continue;
      rows_.insert(axes_.of(dim_member(k, op.form.row)));
      if (op.form.pack >= 0) packs_.insert(axes_.of(dim_member(k, op.form.pack)));
    }
    if (std::any_of(packs_.begin(), packs_.end(), [&](int axis) { return rows_.count(axis) != 0; }))
      user_error(
          "Kernel '{}' cannot use tensor cores: products have their rows along two loops, and not the same one within the other.",
          plan_.program->name);
    for (std::size_t k = 0; k < plan_.ops.size(); ++k) {
      const TensorOp& op = plan_.ops[k];
      if (op.kind != TensorOp::Kind::product) continue;
      for (const int d : {op.form.column, op.form.k}) {
        const int axis = axes_.of(dim_member(k, d));
        if (rows_.count(axis) + packs_.count(axis) != 0) refuse(op.op, "uses the rows of another product as columns");
      }
    }
  }

  /// What the dim of an op that is no product is.
  int& role_of(TensorOp& op, std::size_t k, int dim) {
    const int axis = axes_.of(dim_member(k, dim));
    return rows_.count(axis) != 0 ? op.row : packs_.count(axis) != 0 ? op.pack : op.column;
  }

  void assign_dims(std::size_t k) {
    TensorOp& op = plan_.ops[k];
    if (op.kind == TensorOp::Kind::product) {
      op.row = op.form.row;
      op.column = op.form.column;
      op.pack = op.form.pack;
      if (in_scratch(op.op.reads[static_cast<std::size_t>(op.form.b)]))
        refuse(op.op, "has a second operand in registers: only the first may be");
      check_rows(op);
      return;
    }
    for (int d = 0; d < static_cast<int>(op.op.dims.size()); ++d) {
      const OpDim& dim = op.op.dims[static_cast<std::size_t>(d)];
      if (single_valued(dim) || d == op.form.k) continue;
      int& role = role_of(op, k, d);
      if (role >= 0) refuse(op.op, "has more dimensions than rows and columns");
      role = d;
    }
    const bool seldom = op.kind == TensorOp::Kind::seldom;
    if (op.op.reduction && op.column < 0) refuse(op.op, "reduces its rows");
    if (op.op.reduction && !seldom && !op.op.dims[static_cast<std::size_t>(op.column)].reduced) refuse(op.op, "reduces its rows");
    // A tile's columns are known; those of memory may be more.
    if (op.op.reduction && !seldom) column_bound(op, op.column);
    if (op.row >= 0) check_rows(op);
  }

  void check_rows(const TensorOp& op) const {
    const OpDim& dim = op.op.dims[static_cast<std::size_t>(op.row)];
    auto extent = end_bound(dim);
    if (!extent) extent = extent_bound(dim);  // the proof says whether they go beyond
    if (!extent || *extent > plan_.work_tile_packs())
      refuse(op.op,
             fmt::format("has {} rows where {} warpgroups take {} each, {} in all",
                         extent ? std::to_string(*extent * plan_.pack) : "unknown", plan_.cluster() * plan_.sharing_warpgroups(),
                         plan_.rows() / plan_.sharing_warpgroups(), plan_.work_tile_rows()));
    const auto places = op.pack < 0 ? 1 : end_bound(op.op.dims[static_cast<std::size_t>(op.pack)]);
    if (!places || *places > plan_.pack)
      refuse(op.op, fmt::format("has packs of more rows than products, which have {}", plan_.pack));
  }

  std::int64_t column_bound(const TensorOp& op, int dim) const {
    const auto extent = end_bound(op.op.dims[static_cast<std::size_t>(dim)]);
    if (!extent)
      refuse(op.op, fmt::format("has as many columns as {} says, which is {}: fix the sizes in it (\"specialized\" in the "
                                "definition, or --fix-all)",
                                op.op.dims[static_cast<std::size_t>(dim)].upper.str(), kUnknownSize));
    return *extent;
  }

  void note_fragments(const TensorOp& op) {
    const auto visit = [&](const TileAccess& access, std::int64_t multiple) {
      if (!in_scratch(access)) return;
      Fragment& fragment = plan_.fragments[access.buffer];
      for (const IntExpr& index : access.index) {
        const int d = dim_of(op.op, index);
        if (d < 0) continue;
        if (d == op.row) {
          fragment.by_row = true;
        } else if (d != op.pack) {
          fragment.columns = std::max(fragment.columns, static_cast<int>(round_up(column_bound(op, d), multiple)));
        }
      }
      if (!fragment.by_row) refuse(op.op, "keeps values that no row belongs to");
      if (plan_.buffer(access.buffer).type != ElementType::f32 && plan_.buffer(access.buffer).type != ElementType::f16 &&
          plan_.buffer(access.buffer).type != ElementType::bf16)
        refuse(op.op, "keeps integers in a tile");
    };
    const bool product = op.kind == TensorOp::Kind::product;
    visit(op.op.write, 8);
    for (int r = 0; r < static_cast<int>(op.op.reads.size()); ++r)
      visit(op.op.reads[static_cast<std::size_t>(r)], product && r == op.form.a ? 16 : 8);
  }

  /// All ops find the rows, packs and columns of a tile at the same indices, and all or none of its columns.
  void check_layouts() const {
    std::map<int, std::pair<std::string, std::string>> layouts;  // by tile: a letter for each index, and the first op
    const auto letter = [&](const TensorOp& op, const IntExpr& index) {
      const int d = dim_of(op.op, index);
      if (d < 0) return '0';
      if (d == op.row) return 'r';
      if (d == op.pack) return 'p';
      return d == op.column || d == op.form.k ? 'c' : '0';
    };
    const auto check = [&](const TensorOp& op, const TileAccess& access) {
      if (!in_scratch(access)) return;
      std::string layout;
      for (const IntExpr& index : access.index) layout += letter(op, index);
      const auto& [known, first] = layouts.try_emplace(access.buffer, layout, op.op.name).first->second;
      if (layout != known)
        refuse(op.op,
               fmt::format("finds rows and columns of {} at other indices than {}", plan_.buffer(access.buffer).name, first));
    };
    for (const TensorOp& op : plan_.ops) {
      check(op, op.op.write);
      for (const TileAccess& read : op.op.reads) check(op, read);
    }
  }

  /// Tiles over the same columns get the same width: an op on several of them finds each element in the same place of all.
  void widen_fragments() {
    std::map<int, int> widths;  // by axis
    for (const bool measure : {true, false}) {
      for (auto& [buffer, fragment] : plan_.fragments) {
        const std::vector<IntExpr>& extents = plan_.buffer(buffer).extents;
        for (std::size_t p = 0; p < extents.size() && fragment.columns > 0; ++p) {
          const int axis = axes_.of(index_member(buffer, p));
          if (extents[p].is_constant(1) || rows_.count(axis) + packs_.count(axis) != 0) continue;
          int& width = widths[axis];
          if (measure) width = std::max(width, fragment.columns);
          fragment.columns = std::max(width, fragment.columns);
        }
      }
    }
  }

  void operands(TensorOp& op) {
    const TileAccess& a = op.op.reads[static_cast<std::size_t>(op.form.a)];
    const TileAccess& b = op.op.reads[static_cast<std::size_t>(op.form.b)];
    if (!in_scratch(op.op.write)) refuse(op.op, "writes memory: sum into a tile first");
    op.k = static_cast<int>(round_up(column_bound(op, op.form.k), 16));
    op.n = plan_.fragments.at(op.op.write.buffer).columns;
    const ElementType type = plan_.buffer(b.buffer).type;
    if (type != ElementType::f16 && type != ElementType::bf16) refuse(op.op, "has operands that are not f16 or bf16");
    op.product_type = type;
    op.b_ring = add_ring(op, b, op.form.column, op.n, op.b_by_column);
    const ElementType first = plan_.buffer(a.buffer).type;
    if (first != type && (size_in_bytes(first) == 2 || !in_scratch(a))) refuse(op.op, "mixes element types");
    if (in_scratch(a)) {
      op.halves = plan_.kernel->shape.operand_halves != 0 && first == ElementType::f32 ? 2 : 1;
      return;
    }
    if (plan_.pack > 1 && op.form.pack < 0) refuse(op.op, "has one row where other products have a pack of them");
    op.a_ring = add_ring(op, a, op.form.row, plan_.rows(), op.a_by_row);
  }

  /// A circular buffer for the operand with `free` (its row or column dim, `extent` of them) and k; `by_free`: memory runs along `free`.
  int add_ring(const TensorOp& op, const TileAccess& access, int free, int extent, bool& by_free) {
    const std::string& free_var = op.op.dims[static_cast<std::size_t>(free)].var;
    const std::string& k_var = op.op.dims[static_cast<std::size_t>(op.form.k)].var;
    const std::string pack_var =
        free == op.form.row && op.form.pack >= 0 ? op.op.dims[static_cast<std::size_t>(op.form.pack)].var : "";
    CircularBuffer ring;
    ring.buffer = access.buffer;
    ring.stages = std::max(plan_.kernel->shape.stages, 1);
    const int dense = static_cast<int>(access.index.size()) - 1;
    int free_stride = 1;
    const int free_index = strides_along(access.index, free_var, free_stride), k_index = runs_along(access.index, k_var);
    ring.pack_index = strides_along(access.index, pack_var, ring.pack_stride);
    for (const IntExpr& index : access.index)
      ring.origin.push_back(
          index.substitute(free_var, IntExpr(0)).substitute(k_var, IntExpr(0)).substitute(pack_var, IntExpr(0)));
    const std::string& name = plan_.buffer(access.buffer).name;
    require_copies(op.op, access.buffer);
    if (free_index < 0 || k_index < 0 || free_index == k_index || (free_index != dense && k_index != dense) ||
        (free_index == dense && free_stride != 1))
      refuse(op.op, "reads " + name + " other than by rows of neighbouring elements");
    by_free = free_index == dense;
    if (!pack_var.empty() && (by_free || ring.pack_index < 0 || ring.pack_index == free_index || ring.pack_index == k_index))
      refuse(op.op, "has rows along two indices of " + name + ", but not as rows of neighbouring elements");
    ring.row_index = by_free ? k_index : free_index;
    ring.row_stride = by_free ? 1 : free_stride;
    ring.rows = by_free ? op.k : extent;
    ring.columns = by_free ? extent : op.k;
    if (plan_.cluster() > 1 && free == op.form.row) ring.own_index = free_index;
    require_strides(op.op, ring);
    if (!starts_with_units(ring))
      refuse(op.op, fmt::format("reads tiles of {} that start at no multiple of {} bytes ({}), as copies of tiles do", name,
                                kTensorMapAlignment, ring.origin.back().str()));
    if (const int known = same_tile(static_cast<std::size_t>(&op - plan_.ops.data()), ring); known >= 0) return known;
    plan_.circular_buffers.push_back(std::move(ring));
    return static_cast<int>(plan_.circular_buffers.size()) - 1;
  }

  /// Tiles of what is in the workspace come by copies like those of arguments: other kernels have written it, in rows of whole pieces.
  void require_copies(const TileOp& op, int buffer) const {
    if (plan_.buffer(buffer).memory != Memory::workspace) return;
    const std::string& name = plan_.buffer(buffer).name;
    const auto written = [&](const TensorOp& other) { return other.op.write.buffer == buffer; };
    if (std::any_of(plan_.ops.begin(), plan_.ops.end(), written))
      refuse(op, "reads " + name + ", which the same kernel writes: compute it in a kernel of its own before");
    if (const int pieces = static_cast<int>(kTensorMapAlignment) / static_cast<int>(size_in_bytes(plan_.buffer(buffer).type));
        !has_whole_rows(buffer, pieces))
      refuse(op, fmt::format("reads {}, whose rows are no multiple of {} elements in memory", name, pieces));
  }

  /// Rows of a tile that lie several elements apart come by tensor copies, which reach no further than a box.
  void require_strides(const TileOp& op, const CircularBuffer& ring) const {
    if (ring.row_stride == 1 && ring.pack_stride == 1) return;
    const std::string& name = plan_.buffer(ring.buffer).name;
    if (plan_.cores != TensorCores::wgmma)
      refuse(op, fmt::format("reads rows of {} that lie {} apart, which needs the tensor copies of compute capability 9.0", name,
                             std::max(ring.row_stride, ring.pack_stride)));
    const int rows = ring.pack_index < 0 ? ring.rows : ring.rows / plan_.pack;
    if ((rows - 1) * ring.row_stride >= kMostCopiedRows)
      refuse(op,
             fmt::format("reads {} rows of {} that lie {} apart, and a tensor copy reaches over {} of them: choose smaller tiles",
                         rows, name, ring.row_stride, kMostCopiedRows));
  }

  bool has_whole_rows(int buffer, int elements) const {
    const Buffer& info = plan_.buffer(buffer);
    const auto row = info.extents.back().as_constant();
    return info.pad % elements == 0 || (row && *row % elements == 0);
  }

  /// Elementwise operands over rows and columns that a loop moves come as products' operands do: element by element, each would be a load
  /// with an address and a test of its own. (Where all threads copy they load them themselves: a copy would be one more for each element.)
  void element_tiles(TensorOp& op) {
    if (plan_.cores != TensorCores::wgmma || op.row < 0 || op.column < 0) return;
    for (int r = 0; r < static_cast<int>(op.op.reads.size()); ++r) {
      if (auto ring = element_ring(op, op.op.reads[static_cast<std::size_t>(r)])) {
        op.read_rings[r] = static_cast<int>(plan_.circular_buffers.size());
        plan_.circular_buffers.push_back(std::move(*ring));
      }
    }
  }

  /// The circular buffer of an access at [.., row, .., column] of a 16-bit input; nullopt: it has another form.
  std::optional<CircularBuffer> element_ring(const TensorOp& op, const TileAccess& access) const {
    const Buffer& buffer = plan_.buffer(access.buffer);
    const bool half = buffer.type == ElementType::f16 || buffer.type == ElementType::bf16;
    const OpDim &row = op.op.dims[static_cast<std::size_t>(op.row)], &column = op.op.dims[static_cast<std::size_t>(op.column)];
    if (!half || buffer.role != TensorRole::input || !has_whole_units(buffer)) return std::nullopt;
    if (plan_.pack > 1 && op.pack < 0) return std::nullopt;
    const std::string pack_var = op.pack < 0 ? "" : op.op.dims[static_cast<std::size_t>(op.pack)].var;
    CircularBuffer ring;
    ring.buffer = access.buffer;
    ring.rows = plan_.rows();
    const auto written = plan_.fragments.find(op.op.write.buffer);
    ring.columns = std::max(static_cast<int>(round_up(column_bound(op, op.column), 8)),
                            written == plan_.fragments.end() ? 0 : written->second.columns);
    ring.stages = std::max(plan_.kernel->shape.stages, 1);
    const int dense = static_cast<int>(access.index.size()) - 1;
    for (int p = 0; p <= dense; ++p) {
      IntExpr index = access.index[static_cast<std::size_t>(p)];
      if (p == dense ? index.coefficient(column.var) != 1 : index.uses(column.var)) return std::nullopt;
      if (index.uses(row.var)) {
        if (ring.row_index >= 0 || p == dense || index.coefficient(row.var) != 1) return std::nullopt;
        ring.row_index = p;
        if (plan_.cluster() > 1) ring.own_index = p;
      }
      if (index.uses(pack_var)) {
        if (ring.pack_index >= 0 || p == dense || index.uses(row.var) || index.coefficient(pack_var) != 1) return std::nullopt;
        ring.pack_index = p;
      }
      for (int d = 0; d < static_cast<int>(op.op.dims.size()); ++d) {
        const OpDim& dim = op.op.dims[static_cast<std::size_t>(d)];
        index = index.substitute(dim.var, d == op.row || d == op.column || d == op.pack ? IntExpr(0) : dim.lower);
      }
      ring.origin.push_back(std::move(index));
    }
    if (plan_.pack > 1 && ring.pack_index < 0) return std::nullopt;  // one element for several rows
    if (!starts_with_units(ring)) return std::nullopt;
    ring.streamed = moves(ring);
    return ring.row_index >= 0 && ring.streamed && ring.rows <= kMostCopiedRows ? std::optional(ring) : std::nullopt;
  }

  /// Copies by tensor maps have places of their first element to keep to; others take its elements one by one.
  bool starts_with_units(const CircularBuffer& ring) const {
    return plan_.cores != TensorCores::wgmma || starts_with_unit(ring.origin.back(), plan_.buffer(ring.buffer).type);
  }

  /// A loop of the work tile's body changes the tile.
  bool moves(const CircularBuffer& ring) const {
    return std::any_of(ring.origin.begin(), ring.origin.end(), [&](const IntExpr& index) {
      return std::any_of(loops_.begin(), loops_.end(), [&](const std::string& loop) { return index.uses(loop); });
    });
  }

  /// The circular buffer that holds the same tile already, for the whole work tile or for another product of the same iteration; -1: none does.
  int same_tile(std::size_t op, const CircularBuffer& ring) const {
    const auto same = [&](const CircularBuffer& other) {
      return other.buffer == ring.buffer && other.row_index == ring.row_index && other.pack_index == ring.pack_index &&
             other.row_stride == ring.row_stride && other.pack_stride == ring.pack_stride && other.rows == ring.rows &&
             other.columns == ring.columns && other.own_index == ring.own_index &&
             std::equal(other.origin.begin(), other.origin.end(), ring.origin.begin(),
                        [](const IntExpr& a, const IntExpr& b) { return a.str() == b.str(); });
    };
    for (int r = 0; r < static_cast<int>(plan_.circular_buffers.size()); ++r) {
      if (!same(plan_.circular_buffers[static_cast<std::size_t>(r)])) continue;
      bool shared = true;
      for (std::size_t reader = 0; moves(ring) && reader < plan_.ops.size(); ++reader) {
        const TensorOp& other = plan_.ops[reader];
        if (other.kind == TensorOp::Kind::product && (other.a_ring == r || other.b_ring == r))
          shared = shared && may_share(op, reader);
      }
      if (shared) return r;
    }
    return -1;
  }

  TensorPlan& plan_;
  const TileTree& tree_;
  Axes axes_;
  std::set<int> rows_, packs_;
  std::set<std::string> loops_;  ///< of the work tile's body
  std::vector<OpPlace> places_;  ///< of ops
};

}  // namespace

void find_tiles(TensorPlan& plan, const TileTree& tree) { TileFinder(plan, tree).run(); }

}  // namespace nestor::nvptx
