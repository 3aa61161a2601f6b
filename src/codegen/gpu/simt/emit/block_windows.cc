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
  std::map<std::string, Value*> conditions;           ///< parts of guards
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
  for (std::size_t k = 0; op.op.guard.defined() && k < op.op.reads.size(); ++k) {
    if (plan_->in_registers(op.op.reads[k])) continue;
    for (const IntExpr& length :
         plan_->buffer(op.op.reads[k].buffer).extents)  // where no term counts, the first element is loaded
      all = both(all, length.as_constant().value_or(0) > 0 ? nullptr : b_.CreateICmpSGT(integer(length), b_.getInt64(0)));
  }
  const auto one_row = [&](int of, Value* value) {
    Value* exists = set_row(op, of, value);
    when(exists, [&] { for_columns(op, [&](int width, int column) { emit_unit(op, width, {std::max(of, 0), column}); }); });
  };
  const auto apart = [&] {
    short_code_ = true;
    if (slot < 0) loop(slot_value, number(run), 1, [&](Value* value) { one_row(-1, value); }, kRolled);
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
            set_window_row(op, window, row);
            write_sums(op, read_sums(op, window.sums[static_cast<std::size_t>(row)]), {window.slot.row + row, column});
          }
        });
  });
  whole_loads_ = false;
}

/// Sets the dims of a term of the run's row.
void BlockEmitter::set_term(const BlockOp& op, const Window& window, int row, const Term& term) {
  for (const int d : op.window) {
    const OpDim& dim = op.op.dims[d];
    environment_[dim.var] = b_.CreateNSWAdd(integer(dim.lower), b_.getInt64(static_cast<std::uint64_t>(term.at(dim.var))));
  }
  set_window_row(op, window, row);
}

void BlockEmitter::set_window_row(const BlockOp& op, const Window& window, int row) {
  const std::vector<std::int64_t> places = places_in_run(op, row);
  for (std::size_t k = 0; k < op.rows.size(); ++k) {
    const std::string& var = op.op.dims[op.rows[k]].var;
    environment_[var] = b_.CreateNSWAdd(window.first.at(var), b_.getInt64(static_cast<std::uint64_t>(places[k])));
  }
}

/// An expression at a term of a row, as a sum of the dims of the first row and constants: equal texts have equal values.
std::string BlockEmitter::text_at(const BlockOp& op, IntExpr expr, int row, const Term& term) {
  const std::vector<std::int64_t> places = places_in_run(op, row);
  for (std::size_t k = 0; k < op.rows.size(); ++k) {
    const std::string& var = op.op.dims[op.rows[k]].var;
    expr = expr.substitute(var, IntExpr::variable(var) + IntExpr(places[k]));
  }
  for (const int d : op.window) {
    const OpDim& dim = op.op.dims[d];
    expr = expr.substitute(dim.var, dim.lower + IntExpr(term.at(dim.var)));
  }
  const Affine form = affine_of(expr);
  std::string text = std::to_string(form.constant);
  for (const auto& [name, coefficient] : form.terms) text += " + " + std::to_string(coefficient) + " " + name;
  return text;
}

/// Whether the term counts; null: always. Parts of the guard that are the same for several terms are computed once.
Value* BlockEmitter::term_counts(const BlockOp& op, Window& window, const IntExpr& guard, int row, const Term& term) {
  if (!guard.defined()) return nullptr;
  if (guard.op() == IntOp::logical_and)
    return both(term_counts(op, window, guard.args()[0], row, term), term_counts(op, window, guard.args()[1], row, term));
  const bool compares = guard.op() == IntOp::ge || guard.op() == IntOp::gt;
  const std::string key =
      compares ? std::to_string(static_cast<int>(guard.op())) + " " + text_at(op, guard.args()[0] - guard.args()[1], row, term)
               : text_at(op, guard, row, term);
  Value*& holds = window.conditions[key];
  if (holds == nullptr) {
    set_term(op, window, row, term);
    holds = condition(guard);
  }
  return holds;
}

/// All terms of the dims that are written out, in order, each for all rows. An element is loaded where some term that reads it counts; else
/// the argument's first one takes its place.
void BlockEmitter::add_window(const BlockOp& op, Window& window) {
  window.loaded.clear();
  window.conditions.clear();
  struct Sum {
    int row = 0;
    Term term;
    Value* counts = nullptr;
    std::map<int, std::string> keys;  ///< of what it reads from memory
  };
  std::vector<Sum> sums;
  std::map<std::string, std::vector<Value*>> wanted;  ///< where to load, null: always; in order, that code is the same each time
  for (const std::vector<std::int64_t>& point : points_of_dims(op, op.window)) {
    Term term;
    for (std::size_t k = 0; k < op.window.size(); ++k) term[op.op.dims[op.window[k]].var] = point[k];
    for (int row = 0; row < op.layout.run; ++row) {
      Sum sum{row, term, term_counts(op, window, op.op.guard, row, term), {}};
      for (const int ordinal : unconditional_reads(op.op.value)) {
        const auto k = static_cast<std::size_t>(ordinal);
        const TileAccess& read = op.op.reads[k];
        if (plan_->in_registers(read)) continue;
        std::string key = std::to_string(read.buffer) + (op.read_vectors[k] ? "v" : "");
        for (const IntExpr& index : read.index) key += "; " + text_at(op, index, row, term);
        std::vector<Value*>& any = wanted[key];
        if (std::find(any.begin(), any.end(), sum.counts) == any.end()) any.push_back(sum.counts);
        sum.keys[ordinal] = key;
      }
      sums.push_back(std::move(sum));
    }
  }
  for (const Sum& sum : sums) {
    set_term(op, window, sum.row, sum.term);
    const Slot slot{window.slot.row + sum.row, window.slot.column};
    Loaded loaded;
    for (const auto& [ordinal, key] : sum.keys) {
      std::vector<Value*>& values = window.loaded[key];
      if (values.empty()) {
        const std::vector<Value*>& any = wanted.at(key);
        const bool always = std::find(any.begin(), any.end(), nullptr) != any.end();
        wanted_ = always ? nullptr : any.front();
        for (std::size_t k = 1; !always && k < any.size(); ++k) wanted_ = b_.CreateOr(wanted_, any[k]);
        values = load_read(op, ordinal, window.width, slot);
        wanted_ = nullptr;
      }
      loaded[ordinal] = values;
    }
    const ElementType type = op.sum_type();
    const std::vector<Value*> values =
        convert(point_values(op, op.op.value, window.width, slot, loaded), op.op.value.type(), type);
    for (std::size_t e = 0; e < values.size(); ++e) {
      Value* place = window.sums[static_cast<std::size_t>(sum.row)][e];
      Value* old = b_.CreateLoad(register_type(b_.getContext(), type), place);
      Value* combined = emit_combine(b_, math_, *op.op.reduction, type, old, values[e]);
      b_.CreateStore(sum.counts == nullptr ? combined : b_.CreateSelect(sum.counts, combined, old), place);
    }
  }
}

}  // namespace nestor::nvptx
