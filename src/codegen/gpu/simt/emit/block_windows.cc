// Sums of sliding windows: the rows of a run are summed up together, term by term. What several of them read is loaded once, and stays in
// registers meanwhile.
#include "codegen/gpu/simt/emit/block_emitter.h"

#include <algorithm>

namespace nestor::nvptx {

using llvm::Value;

/// A run of rows that all exist, at one vector of columns.
struct BlockEmitter::Window {
  int width = 1;
  Slot slot;                                          ///< of the first row
  std::map<std::string, Value*> first;                ///< values of the row dims in it
  std::vector<std::vector<Value*>> sums;              ///< of each row
  std::map<std::string, std::vector<Value*>> loaded;  ///< by buffer and indices
};

void BlockEmitter::emit_windows(const BlockOp& op) {
  const int run = op.layout.run;
  const auto bound = op.row_bound();
  if (op.unroll_rows || (bound && op.layout.row_slots(*bound) <= run)) {
    const auto slots = static_cast<int>(std::max<std::int64_t>(op.layout.row_slots(bound.value_or(1)), run));
    for (int slot = 0; slot < slots; slot += run) emit_run(op, slot, b_.getInt64(static_cast<std::uint64_t>(slot)));
    return;
  }
  loop(b_.getInt64(0), row_slots(op), run, [&](Value* slot) { emit_run(op, -1, slot); });
}

/// The run that starts at a slot (`slot` < 0: known at run time only). Where some of its rows do not exist, the others are summed up one by one.
void BlockEmitter::emit_run(const BlockOp& op, int slot, Value* slot_value) {
  const int run = op.layout.run;
  const auto number = [&](int row) { return b_.CreateNSWAdd(slot_value, b_.getInt64(static_cast<std::uint64_t>(row))); };
  const auto outer = environment_;
  Value* all = nullptr;
  for (int row = run; row-- > 0;) all = both(all, set_row(op, slot < 0 ? -1 : slot + row, number(row)));
  const auto one_row = [&](int of, Value* value) {
    Value* exists = set_row(op, of, value);
    when(exists, [&] { for_columns(op, [&](int width, int column) { emit_unit(op, width, {std::max(of, 0), column}); }); });
  };
  const auto apart = [&] {
    short_code_ = true;
    if (slot < 0) loop(slot_value, number(run), 1, [&](Value* value) { one_row(-1, value); }, 0);
    for (int row = 0; slot >= 0 && row < run; ++row) one_row(slot + row, number(row));
    short_code_ = false;
  };
  // The dims have the values of the first row here.
  if (all == nullptr) {
    sum_run(op, slot);
  } else {
    when_else(all, [&] { sum_run(op, slot); }, apart);
  }
  environment_ = outer;
}

void BlockEmitter::sum_run(const BlockOp& op, int slot) {
  whole_loads_ = true;
  Window window;
  for (const int d : op.rows) window.first[op.op.dims[d].var] = environment_.at(op.op.dims[d].var);
  std::set<std::string> written_out;
  for (const int d : op.window) written_out.insert(op.op.dims[d].var);
  for_columns(op, [&](int width, int column) {
    window.width = width;
    window.slot = {std::max(slot, 0), column};
    for_serial(
        op, [](const OpDim& dim) { return !dim.reduced; },
        [&] {
          window.sums.clear();
          for (int row = 0; row < op.layout.run; ++row) window.sums.push_back(new_sums(op, width));
          short_code_ = true;
          for_serial(
              op, [&](const OpDim& dim) { return dim.reduced && !written_out.contains(dim.var); },
              [&] { add_window(op, window); });
          short_code_ = false;
          for (int row = 0; row < op.layout.run; ++row) {
            const std::vector<std::int64_t> places = places_in_run(op, row);
            for (std::size_t k = 0; k < op.rows.size(); ++k) {
              const std::string& var = op.op.dims[op.rows[k]].var;
              environment_[var] = b_.CreateNSWAdd(window.first.at(var), b_.getInt64(static_cast<std::uint64_t>(places[k])));
            }
            write_sums(op, read_sums(op, window.sums[static_cast<std::size_t>(row)]), {window.slot.row + row, column});
          }
        });
  });
  whole_loads_ = false;
}

/// All terms of the dims that are written out, in order.
void BlockEmitter::add_window(const BlockOp& op, Window& window) {
  window.loaded.clear();
  std::vector<std::int64_t> extents;
  std::int64_t terms = 1;
  for (const int d : op.window) {
    extents.push_back(*exact_extent(op.op.dims[d]));
    terms *= extents.back();
  }
  for (std::int64_t term = 0; term < terms; ++term) {
    std::map<std::string, std::int64_t> point;
    std::int64_t rest = term;
    for (std::size_t k = extents.size(); k-- > 0; rest /= extents[k]) point[op.op.dims[op.window[k]].var] = rest % extents[k];
    add_window_point(op, window, point);
  }
}

/// One term of each row. Reads with the same indices, as sums of the dims of the first row and constants, are of one element.
void BlockEmitter::add_window_point(const BlockOp& op, Window& window, const std::map<std::string, std::int64_t>& point) {
  for (const int d : op.window) {
    const OpDim& dim = op.op.dims[d];
    environment_[dim.var] = b_.CreateNSWAdd(integer(dim.lower), b_.getInt64(static_cast<std::uint64_t>(point.at(dim.var))));
  }
  for (int row = 0; row < op.layout.run; ++row) {
    const std::vector<std::int64_t> places = places_in_run(op, row);
    std::map<std::string, std::int64_t> moved;
    for (std::size_t k = 0; k < op.rows.size(); ++k) {
      const std::string& var = op.op.dims[op.rows[k]].var;
      moved[var] = places[k];
      environment_[var] = b_.CreateNSWAdd(window.first.at(var), b_.getInt64(static_cast<std::uint64_t>(places[k])));
    }
    const Slot slot{window.slot.row + row, window.slot.column};
    Loaded loaded;
    for (const int ordinal : unconditional_reads(op.op.value)) {
      const auto k = static_cast<std::size_t>(ordinal);
      const TileAccess& read = op.op.reads[k];
      if (plan_->in_registers(read)) continue;
      std::string key = std::to_string(read.buffer) + (op.read_vectors[k] ? "v" : "");
      for (const IntExpr& index : read.index) {
        IntExpr at = index;
        for (const auto& [var, by] : moved) at = at.substitute(var, IntExpr::variable(var) + IntExpr(by));
        for (const int d : op.window)
          at = at.substitute(op.op.dims[d].var, op.op.dims[d].lower + IntExpr(point.at(op.op.dims[d].var)));
        const Affine form = affine_of(at);
        key += "; " + std::to_string(form.constant);
        for (const auto& [name, coefficient] : form.terms) key += " + " + std::to_string(coefficient) + " " + name;
      }
      std::vector<Value*>& values = window.loaded[key];
      if (values.empty()) values = load_read(op, ordinal, window.width, slot);
      loaded[ordinal] = values;
    }
    const ElementType type = op.sum_type();
    const std::vector<Value*>& sums = window.sums[static_cast<std::size_t>(row)];
    const std::vector<Value*> values =
        convert(point_values(op, op.op.value, window.width, slot, loaded), op.op.value.type(), type);
    for (std::size_t e = 0; e < values.size(); ++e) {
      Value* old = b_.CreateLoad(register_type(b_.getContext(), type), sums[e]);
      b_.CreateStore(emit_combine(b_, math_, *op.op.reduction, type, old, values[e]), sums[e]);
    }
  }
}

}  // namespace nestor::nvptx
