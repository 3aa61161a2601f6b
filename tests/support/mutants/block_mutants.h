// Every way to change one thing in a block plan: layouts, roles, barriers, places, conditions, combinations, copies ahead, loops.
#pragma once

#include "codegen/gpu/simt/plan/block_plan.h"

#include <fmt/format.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace nestor::testing {

struct BlockMutant {
  std::string what, where;
  nvptx::BlockPlan plan;
};

class BlockMutator {
 public:
  explicit BlockMutator(const nvptx::BlockPlan& plan) : plan_(plan) {}

  std::vector<BlockMutant> all() {
    for (std::size_t k = 0; k < plan_.ops.size(); ++k) of_op(k);
    for (const auto& [buffer, place] : plan_.placements) of_place(buffer, place);
    of_conditions();
    of_layout();
    of_exchange();
    where_ = "tree";
    std::vector<std::size_t> path;
    of_tree(plan_.root, path);
    return std::move(mutants_);
  }

 private:
  using Change = std::function<void(nvptx::BlockPlan&)>;
  using OpChange = std::function<void(nvptx::BlockOp&)>;

  void add(const std::string& what, const Change& change) {
    mutants_.push_back({what, where_, plan_});
    change(mutants_.back().plan);
  }

  // ---- ops

  void of_op(std::size_t k) {
    const nvptx::BlockOp& op = plan_.ops[k];
    where_ = op.op.name;
    const auto change = [&](const std::string& what, const OpChange& with) {
      add(what, [&](nvptx::BlockPlan& plan) { with(plan.ops[k]); });
    };
    for (std::size_t other = 0; op.reduces_columns() && other < plan_.ops.size(); ++other)
      change("another pass", [&](auto& o) { o.joins = static_cast<int>(other); });
    if (op.barrier_before) {
      change("drop barrier", [](auto& o) { o.barrier_before = false; });
      for (const std::size_t other : {k - 1, k + 1}) {
        if (other >= plan_.ops.size() || plan_.ops[other].barrier_before) continue;
        add("move barrier",
            [&](nvptx::BlockPlan& plan) { std::swap(plan.ops[k].barrier_before, plan.ops[other].barrier_before); });
      }
    }
    roles(op, change);
    shapes(op, change);
    combinations(op, change);
    if (op.product) products(op, change);
  }

  template <class F>
  void roles(const nvptx::BlockOp& op, const F& change) {
    using nvptx::DimRole;
    if (op.column >= 0 && op.rows.size() == 1) {
      change("swap row and column", [](auto& o) {
        std::swap(o.column, o.rows[0]);
        o.roles[static_cast<std::size_t>(o.column)] = DimRole::column;
        o.roles[static_cast<std::size_t>(o.rows[0])] = DimRole::row;
      });
    }
    if (op.column >= 0) {
      change("column to serial", [](auto& o) {
        o.roles[static_cast<std::size_t>(o.column)] = DimRole::serial;
        o.column = -1;
      });
    }
    for (std::size_t r = 0; r < op.rows.size(); ++r) {
      change("row to serial", [&](auto& o) {
        o.roles[static_cast<std::size_t>(o.rows[r])] = DimRole::serial;
        o.rows.erase(o.rows.begin() + static_cast<std::ptrdiff_t>(r));
      });
    }
    for (std::size_t d = 0; d < op.op.dims.size(); ++d) {
      if (op.roles[d] != DimRole::serial) continue;
      change("serial to row", [&](auto& o) {
        o.roles[d] = DimRole::row;
        o.rows.clear();
        for (std::size_t e = 0; e < o.roles.size(); ++e) {
          if (o.roles[e] == DimRole::row) o.rows.push_back(static_cast<int>(e));
        }
      });
      if (op.column < 0) {
        change("serial to column", [&](auto& o) {
          o.roles[d] = DimRole::column;
          o.column = static_cast<int>(d);
        });
      }
    }
  }

  template <class F>
  void shapes(const nvptx::BlockOp& op, const F& change) {
    change("more lanes", [](auto& o) { o.layout = {o.layout.vector, 2 * o.layout.lanes, o.layout.groups / 2}; });
    change("fewer lanes", [](auto& o) { o.layout = {o.layout.vector, o.layout.lanes / 2, 2 * o.layout.groups}; });
    change("lanes for groups", [](auto& o) { std::swap(o.layout.lanes, o.layout.groups); });
    change("half the lanes", [](auto& o) { o.layout.lanes /= 2; });
    change("half the groups", [](auto& o) { o.layout.groups /= 2; });
    change("twice the groups", [](auto& o) { o.layout.groups *= 2; });
    change("longer runs", [](auto& o) { o.layout.run *= 2; });
    change("no runs", [](auto& o) { o.layout.run = 1; });
    change("wider vectors", [](auto& o) { o.layout.vector *= 2; });
    change("narrower vectors", [](auto& o) { o.layout.vector = std::max(o.layout.vector / 2, 1); });
    change("vectors or not", [](auto& o) { o.vectors = !o.vectors; });
    change("vector write or not", [](auto& o) { o.write_vector = !o.write_vector; });
    for (std::size_t k = 0; k < op.read_vectors.size(); ++k)
      change("vector read or not", [&](auto& o) { o.read_vectors[k] = !o.read_vectors[k]; });
    for (std::size_t k = 0; k < op.strided_reads.size(); ++k) {
      change("whole pieces or not", [&](auto& o) { o.strided_reads[k].stride = o.strided_reads[k].stride == 0 ? 2 : 0; });
      change("longer pieces", [&](auto& o) { o.strided_reads[k].stride += 1; });
      change("another place of pieces", [&](auto& o) { o.strided_reads[k].offset += 1; });
      change("an earlier place of pieces", [&](auto& o) { o.strided_reads[k].offset -= 1; });
    }
    change("all vectors", [](auto& o) {
      o.vectors = o.write_vector = true;
      o.read_vectors.assign(o.read_vectors.size(), true);
    });
    change("rows one by one or not", [](auto& o) { o.unroll_rows = !o.unroll_rows; });
    change("columns one by one or not", [](auto& o) { o.unroll_columns = !o.unroll_columns; });
    for (std::size_t d = 0; d < op.op.dims.size(); ++d) {
      if (op.op.dims[d].max_extent) {
        change("smaller extent", [&](auto& o) { *o.op.dims[d].max_extent -= 1; });
        change("half the extent", [&](auto& o) { *o.op.dims[d].max_extent /= 2; });
      }
      for (const int by : {-1, 1}) {
        change("another end", [&](auto& o) { o.op.dims[d].upper = o.op.dims[d].upper + IntExpr(by); });
        change("another start", [&](auto& o) { o.op.dims[d].lower = o.op.dims[d].lower + IntExpr(by); });
      }
    }
    if (op.op.guard.defined()) change("no guard", [](auto& o) { o.op.guard = IntExpr(); });
    change("another place", [](auto& o) {
      if (!o.op.write.index.empty()) o.op.write.index.front() = o.op.write.index.front() + IntExpr(1);
    });
  }

  template <class F>
  void combinations(const nvptx::BlockOp& op, const F& change) {
    if (op.op.reduction) change("starts or not", [](auto& o) { o.op.initialize = !o.op.initialize; });
    if (op.divided >= 0) {
      change("undivided", [](auto& o) { o.divided = -1; });
    } else {
      for (std::size_t d = 0; d < op.op.dims.size(); ++d) change("divided", [&](auto& o) { o.divided = static_cast<int>(d); });
    }
    if (op.partials_offset >= 0) {
      for (const int by : {-16, 16, -64, 64, 8}) change("another place of parts", [&](auto& o) { o.partials_offset += by; });
      change("no place of parts", [](auto& o) { o.partials_offset = 0; });
    }
    if (op.crosses_warps() || op.deferred) {
      change("deferred or not", [](auto& o) { o.deferred = !o.deferred; });
      change("gathers or not", [](auto& o) { o.gathers = !o.gathers; });
    }
    if (op.fused) {
      change("not fused", [](auto& o) { o.fused.reset(); });
      change("another lead", [](auto& o) { o.fused->lead -= 1; });
      change("other points", [](auto& o) { o.fused->points += 1; });
      change("no correction", [](auto& o) { o.fused->correction = ScalarExpr::scalar("r", ElementType::f32); });
    }
    for (std::size_t d = 0; !op.window.empty() && d < op.op.dims.size(); ++d) {
      change("another window", [&](auto& o) { o.window = {static_cast<int>(d)}; });
      change("a wider window", [&](auto& o) { o.window.insert(o.window.begin(), static_cast<int>(d)); });
    }
    if (!op.window.empty()) change("no window", [](auto& o) { o.window.clear(); });
    if (op.carried >= 0) change("nothing carried", [](auto& o) { o.carried = -1; });
    if (op.op.kind == OpKind::points) {
      for (std::size_t k = 0; k < op.op.reads.size(); ++k)
        change("another read carried", [&](auto& o) { o.carried = static_cast<int>(k); });
    }
    if (op.chosen) {
      change("no chosen terms", [](auto& o) { o.chosen.reset(); });
      for (const int by : {-1, 1}) change("another dim of chosen terms", [&](auto& o) { o.chosen->dim += by; });
      for (std::size_t k = 0; k < op.op.indices.size(); ++k)
        change("another index of chosen terms", [&](auto& o) { o.chosen->index = static_cast<int>(k); });
      change("another place of chosen terms", [](auto& o) {
        o.chosen->place = ScalarExpr::make(ScalarOp::add, {o.chosen->place, ScalarExpr::constant(1, ElementType::i32)});
      });
    }
    if (op.scattered) {
      change("no scattered terms", [](auto& o) { o.scattered.reset(); });
      for (const int by : {-1, 1}) change("another dim of scattered terms", [&](auto& o) { o.scattered->dim += by; });
      for (std::size_t k = 0; k < op.op.indices.size(); ++k)
        change("another index of scattered terms", [&](auto& o) { o.scattered->index = static_cast<int>(k); });
      change("another place of scattered terms", [](auto& o) {
        o.scattered->place = ScalarExpr::make(ScalarOp::add, {o.scattered->place, ScalarExpr::constant(1, ElementType::i32)});
      });
      change("terms chosen and scattered", [](auto& o) { o.chosen = o.scattered; });
    }
    if (op.own_sums) {
      change("no own sums", [](auto& o) { o.own_sums.reset(); });
      for (const int count : {1, 5, 32}) change("other sums at once", [&](auto& o) { o.own_sums->at_once = count; });
      for (const int by : {-1, 1}) change("another end of terms", [&](auto& o) { o.own_sums->end += by; });
      for (const int by : {-1, 1}) change("another shift of sums", [&](auto& o) { o.own_sums->shift += by; });
      change("rows for terms", [](auto& o) { std::swap(o.own_sums->row, o.own_sums->term); });
      for (const int width : {1, 2, 4, 8}) change("other vectors of terms", [&](auto& o) { o.own_sums->width = width; });
      for (std::size_t k = 0; k < op.op.reads.size(); ++k) {
        change("another read by vectors", [&](auto& o) {
          o.own_sums->vectors.resize(o.op.reads.size(), false);
          o.own_sums->vectors[k] = !o.own_sums->vectors[k];
        });
      }
    } else if (op.op.kind == OpKind::points && op.op.reduction) {
      change("own sums", [](auto& o) { o.own_sums.emplace(); });
    }
    if (op.prefix) {
      change("no prefix", [](auto& o) { o.prefix.reset(); });
      change("backward or not", [](auto& o) { o.prefix->backward = !o.prefix->backward; });
      change("exclusive or not", [](auto& o) { o.prefix->exclusive = !o.prefix->exclusive; });
      for (const int by : {-1, 1}) change("another end of sums", [&](auto& o) { o.prefix->kept += by; });
      for (const int by : {-1, 1}) change("another shift", [&](auto& o) { o.prefix->shift += by; });
      change("widened or not", [](auto& o) { o.prefix->widened = !o.prefix->widened; });
      change("other terms", [](auto& o) { o.prefix->summed.upper = o.prefix->summed.upper - IntExpr(1); });
    }
    if (op.joins >= 0) change("a pass of its own", [](auto& o) { o.joins = -1; });
    if (op.warp_lead >= 0) change("no warp's lead", [](auto& o) { o.warp_lead = -1; });
    if (op.ahead > 0) {
      for (const int by : {-1, 1}) change("another trip", [&](auto& o) { o.ahead += by; });
    }
  }

  template <class F>
  void products(const nvptx::BlockOp& op, const F& change) {
    change("fewer rows", [](auto& o) { o.product->row_slots -= 1; });
    change("more rows", [](auto& o) { o.product->row_slots += 1; });
    change("fewer columns", [](auto& o) { o.product->chunks -= 1; });
    change("shorter ks", [](auto& o) { o.product->k_tile /= 2; });
    change("longer ks", [](auto& o) { o.product->k_tile *= 2; });
    change("odd ks", [](auto& o) { o.product->k_tile -= 1; });
    for (const int by : {-16, 16}) {
      change("another first operand's place", [&](auto& o) { o.product->a_offset += by; });
      change("another second operand's place", [&](auto& o) { o.product->b_offset += by; });
    }
    for (const int by : {-4, -1, 1, 4}) {
      change("another first operand's stride", [&](auto& o) { o.product->a_stride += by; });
      change("another second operand's stride", [&](auto& o) { o.product->b_stride += by; });
    }
    change("first operand in place or not", [](auto& o) { o.product->a_direct = !o.product->a_direct; });
    change("second operand in place or not", [](auto& o) { o.product->b_direct = !o.product->b_direct; });
    change("wider first copies", [](auto& o) { o.product->a_copy_width *= 4; });
    change("wider second copies", [](auto& o) { o.product->b_copy_width *= 4; });
    change("first copies the other way", [](auto& o) { o.product->a_copy_along_k = !o.product->a_copy_along_k; });
    change("second copies the other way", [](auto& o) { o.product->b_copy_along_k = !o.product->b_copy_along_k; });
    add("other warps", [](nvptx::BlockPlan& plan) { plan.square_warps = !plan.square_warps; });
    for (const int by : {-1, 1}) change("other stages", [&](auto& o) { o.product->stages += by; });
    change("no copies ahead", [](auto& o) { o.product->stages = 1; });
    change("another order of the second operand", [](auto& o) { o.product->b_by_column = !o.product->b_by_column; });
    change("operands change places", [](auto& o) { std::swap(o.product->form.a, o.product->form.b); });
    (void)op;
  }

  // ---- places and conditions

  void of_place(int buffer, const nvptx::Placement& place) {
    where_ = plan_.buffer(buffer).name;
    const auto change = [&](const std::string& what, const std::function<void(nvptx::Placement&)>& with) {
      add(what, [&](nvptx::BlockPlan& plan) { with(plan.placements.at(buffer)); });
    };
    if (place.kind == nvptx::Placement::Kind::shared) {
      for (const int by : {-16, 16, 4, 64}) change("another offset", [&](auto& p) { p.offset += by; });
      change("offset 0", [](auto& p) { p.offset = 0; });
      change("half the bytes", [](auto& p) { p.bytes /= 2; });
      for (std::size_t k = 0; k < place.strides.size(); ++k) {
        for (const int by : {-1, 1}) change("another stride", [&](auto& p) { p.strides[k] += by; });
      }
      return;
    }
    change("fewer row slots", [](auto& p) { p.row_slots -= 1; });
    change("fewer column slots", [](auto& p) { p.column_slots -= 1; });
    change("half the column slots", [](auto& p) { p.column_slots /= 2; });
    change("by row or not", [](auto& p) { p.by_row = !p.by_row; });
    change("by column or not", [](auto& p) { p.by_column = !p.by_column; });
    if (place.outside) {
      for (const int by : {-16, 16}) change("another place outside", [&](auto& p) { p.outside_offset += by; });
      change("first place outside", [](auto& p) { p.outside_offset = 0; });
    }
    if (place.stages == 0) return;
    for (const int by : {-1, 1}) change("another number of circular buffer slots", [&](auto& p) { p.stages += by; });
    for (const int by : {-16, 16}) change("another place of the circular buffer", [&](auto& p) { p.stages_offset += by; });
    change("first place of the circular buffer", [](auto& p) { p.stages_offset = 0; });
    change("other pieces", [](auto& p) { p.piece = p.piece == 16 ? 4 : 16; });
  }

  void of_conditions() {
    where_ = "conditions";
    for (const auto& [size, divisor] : plan_.size_divisors) {
      add("drop divisor", [&](nvptx::BlockPlan& plan) { plan.size_divisors.erase(size); });
      add("half the divisor", [&](nvptx::BlockPlan& plan) { plan.size_divisors[size] /= 2; });
    }
    for (const auto& [buffer, bytes] : plan_.alignments) {
      add("drop alignment", [&](nvptx::BlockPlan& plan) { plan.alignments.erase(buffer); });
      add("half the alignment", [&](nvptx::BlockPlan& plan) { plan.alignments[buffer] /= 2; });
    }
  }

  void of_layout() {
    where_ = "all ops";
    const auto change = [&](const std::string& what, const std::function<void(nvptx::Layout&)>& with) {
      add(what, [&](nvptx::BlockPlan& plan) {
        with(plan.layout);
        for (nvptx::BlockOp& op : plan.ops) with(op.layout);
      });
    };
    change("more lanes", [](auto& l) { l = {l.vector, 2 * l.lanes, l.groups / 2}; });
    change("fewer lanes", [](auto& l) { l = {l.vector, l.lanes / 2, 2 * l.groups}; });
    change("longer runs", [](auto& l) { l.run *= 2; });
    change("no runs", [](auto& l) { l.run = 1; });
    change("wider vectors", [](auto& l) { l.vector *= 2; });
    change("narrower vectors", [](auto& l) { l.vector = std::max(l.vector / 2, 1); });
    add("fewer threads", [](nvptx::BlockPlan& plan) { plan.threads -= 32; });
    add("more threads", [](nvptx::BlockPlan& plan) { plan.threads += 32; });
  }

  void of_exchange() {
    where_ = "shared memory";
    if (plan_.shared_bytes > 0) add("fewer bytes", [](nvptx::BlockPlan& plan) { plan.shared_bytes -= 16; });
    if (plan_.exchange_offset < 0) return;
    add("half the exchange", [](nvptx::BlockPlan& plan) { plan.exchange_bytes /= 2; });
    for (const int by : {-16, 16}) add("another place to exchange", [&](nvptx::BlockPlan& plan) { plan.exchange_offset += by; });
    add("first place to exchange", [](nvptx::BlockPlan& plan) { plan.exchange_offset = 0; });
  }

  // ---- tree

  using Nodes = std::vector<nvptx::BlockNode>;

  void of_children(const std::string& what, const std::vector<std::size_t>& path, const std::function<void(Nodes&)>& change) {
    add(what, [&](nvptx::BlockPlan& plan) {
      nvptx::BlockNode* node = &plan.root;
      for (const std::size_t k : path) node = &node->children[k];
      change(node->children);
    });
  }

  void of_tree(const nvptx::BlockNode& node, std::vector<std::size_t>& path) {
    for (std::size_t k = 0; k < node.children.size(); ++k) {
      const nvptx::BlockNode& child = node.children[k];
      where_ = fmt::format("tree, depth {}, child {}", path.size(), k);
      const auto at = static_cast<std::ptrdiff_t>(k);
      of_children("drop", path, [&](Nodes& nodes) { nodes.erase(nodes.begin() + at); });
      if (k + 1 < node.children.size()) of_children("swap", path, [&](Nodes& nodes) { std::swap(nodes[k], nodes[k + 1]); });
      of_node(child, path, k);
      path.push_back(k);
      of_tree(child, path);
      path.pop_back();
    }
  }

  void of_node(const nvptx::BlockNode& node, const std::vector<std::size_t>& path, std::size_t k) {
    if (node.kind == TileNode::Kind::condition) {
      of_children("no condition", path, [&](Nodes& nodes) { nodes[k].kind = TileNode::Kind::sequence; });
      of_children("opposite", path,
                  [&](Nodes& nodes) { nodes[k].condition = IntExpr::make(IntOp::logical_not, {nodes[k].condition}); });
    }
    if (node.kind != TileNode::Kind::loop) return;
    for (const int by : {-1, 1}) {
      of_children("another end", path, [&](Nodes& nodes) { nodes[k].upper = nodes[k].upper + IntExpr(by); });
      of_children("another start", path, [&](Nodes& nodes) { nodes[k].lower = nodes[k].lower + IntExpr(by); });
    }
    of_children("another step", path, [&](Nodes& nodes) { nodes[k].step += 1; });
    of_children("independent or not", path, [&](Nodes& nodes) { nodes[k].independent = !nodes[k].independent; });
  }

  const nvptx::BlockPlan& plan_;
  std::string where_;
  std::vector<BlockMutant> mutants_;
};

}  // namespace nestor::testing
