// Compilation of a nest for the reference evaluator: all isl work is done here, once a statement.
#include "autotune/oracle/group_order.h"
#include "autotune/oracle/needed_part.h"
#include "autotune/oracle/reference.h"
#include "poly/algebra/values/polynomial.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"
#include "support/element_codec.h"
#include "support/error.h"
#include "support/system/available_memory.h"

#include <isl/aff.h>
#include <isl/ast_build.h>
#include <isl/map.h>
#include <isl/set.h>
#include <isl/union_map.h>

#include <algorithm>

namespace nestor {
namespace {

std::string slot_name(const char* prefix, int k) { return prefix + std::to_string(k); }

/// { Statement[dims] -> Tensor[index] } as the set [dims as parameters d0, d1, ...] -> { Tensor[index] }.
isl::set dims_as_params(const isl::map& map) {
  isl_map* result = map.copy();
  const int dims = static_cast<int>(isl_map_dim(result, isl_dim_in));
  result = isl_map_move_dims(result, isl_dim_param, 0, isl_dim_in, 0, dims);
  for (int k = 0; k < dims; ++k) result = isl_map_set_dim_name(result, isl_dim_param, k, slot_name("d", k).c_str());
  return isl::manage(isl_map_range(result));
}

SlotMap dim_slots(int dims) {
  SlotMap slots;
  for (int k = 0; k < dims; ++k) slots[slot_name("d", k)] = k;
  return slots;
}

DimFunction make_function(IndexExpr expr, int dims) {
  DimFunction function;
  function.linear = true;
  for (int k = 0; k < dims && function.linear; ++k) {
    const auto factor = expr.coefficient(k);
    function.linear = factor.has_value();
    function.factors.push_back(factor.value_or(0));
  }
  if (function.linear) {
    const std::array<std::int64_t, 16> origin{};
    function.constant = expr.evaluate(origin.data());
  }
  function.expr = std::move(expr);
  return function;
}

/// One linear function of parameters that are slots, and nothing else; far cheaper than isl's expressions.
std::optional<IndexExpr> linear_expression(__isl_keep isl_pw_aff* function, const SlotMap& slots) {
  if (isl_pw_aff_n_piece(function) != 1 || isl_pw_aff_dim(function, isl_dim_in) > 0) return std::nullopt;
  isl_aff* only = nullptr;
  const auto take = [](isl_set* domain, isl_aff* aff, void* found) {
    isl_set_free(domain);
    *static_cast<isl_aff**>(found) = aff;
    return isl_stat_ok;
  };
  isl_pw_aff_foreach_piece(function, take, static_cast<void*>(&only));
  const isl::aff aff = isl::manage(only);
  if (isl_aff_dim(only, isl_dim_div) > 0 || isl_aff_is_nan(only) == isl_bool_true) return std::nullopt;
  bool whole = true;
  const auto number = [&](__isl_take isl_val* value) {
    whole = whole && isl_val_is_int(value) == isl_bool_true;
    const long found = isl_val_get_num_si(value);
    isl_val_free(value);
    return static_cast<std::int64_t>(found);
  };
  const std::int64_t constant = number(isl_aff_get_constant_val(only));
  std::vector<std::pair<int, std::int64_t>> factors;
  for (int k = 0; k < static_cast<int>(isl_aff_dim(only, isl_dim_param)); ++k) {
    const std::int64_t factor = number(isl_aff_get_coefficient_val(only, isl_dim_param, k));
    if (factor == 0) continue;
    const auto slot = slots.find(isl_aff_get_dim_name(only, isl_dim_param, static_cast<unsigned>(k)));
    if (slot == slots.end()) return std::nullopt;
    factors.emplace_back(slot->second, factor);
  }
  return whole ? std::optional(IndexExpr(constant, factors)) : std::nullopt;
}

/// 0 where there are no points, of which isl has no expression: nothing asks for its value.
IndexExpr expression_of(__isl_take isl_pw_aff* function, const isl::set& context, const SlotMap& slots) {
  if (isl_pw_aff_n_piece(function) == 0 || context.is_empty()) {
    isl_pw_aff_free(function);
    return IndexExpr(0);
  }
  if (auto linear = linear_expression(function, slots)) {
    isl_pw_aff_free(function);
    return *std::move(linear);
  }
  isl_ast_build* build = isl_ast_build_from_context(isl_set_params(context.copy()));
  isl_ast_expr* expr = isl_ast_build_expr_from_pw_aff(build, function);
  if (!expr) internal_error("oracle: isl gives no expression for an access");
  IndexExpr result(expr, slots);
  isl_ast_expr_free(expr);
  isl_ast_build_free(build);
  return result;
}

/// Whether the values of parameters are in a set, where they are in `context`; false where there are none.
IndexExpr membership(const isl::set& set, const isl::set& context, const SlotMap& slots) {
  if (context.is_empty()) return IndexExpr(0);
  isl_ast_build* build = isl_ast_build_from_context(context.copy());
  isl_ast_expr* expr = isl_ast_build_expr_from_set(build, set.copy());
  if (!expr) internal_error("oracle: isl gives no expression for a condition");
  IndexExpr result(expr, slots);
  isl_ast_expr_free(expr);
  isl_ast_build_free(build);
  return result;
}

/// The functions behind a single-valued relation, and its guard where it does not hold on the whole domain.
CompiledAccess compile_access(const isl::map& relation, const isl::set& domain, int tensor,
                              const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides) {
  CompiledAccess access;
  access.tensor = tensor;
  const int dims = static_cast<int>(isl_set_dim(domain.get(), isl_dim_set));
  const SlotMap slots = dim_slots(dims);
  isl_map* inside = isl_map_intersect_domain(relation.copy(), domain.copy());
  for (std::size_t k = 0; k < shape.size(); ++k) {
    inside = isl_map_lower_bound_si(inside, isl_dim_out, k, 0);
    inside = isl_map_upper_bound_si(inside, isl_dim_out, k, static_cast<int>(shape[k] - 1));
  }
  const isl::map exact = isl::manage(inside);
  const isl::set domain_params = dims_as_params(isl::manage(isl_map_from_domain_and_range(domain.copy(), domain.copy())));
  if (!domain.is_subset(exact.domain())) {
    access.guard = membership(dims_as_params(exact).params(), domain_params.params(), slots);
  }
  isl_pw_multi_aff* functions = isl_pw_multi_aff_from_set(dims_as_params(exact).release());
  functions = isl_pw_multi_aff_gist_params(functions, isl_set_params(domain_params.copy()));
  bool linear = true;
  for (std::size_t k = 0; k < shape.size(); ++k) {
    isl_pw_aff* function = isl_pw_multi_aff_get_pw_aff(functions, static_cast<int>(k));
    access.index.push_back(make_function(expression_of(function, domain_params, slots), dims));
    linear = linear && access.index.back().linear;
  }
  isl_pw_multi_aff_free(functions);
  access.address.linear = linear;
  access.address.factors.assign(dims, 0);
  for (std::size_t k = 0; linear && k < shape.size(); ++k) {
    for (int d = 0; d < dims; ++d) access.address.factors[d] += strides[k] * access.index[k].factors[d];
    access.address.constant += strides[k] * access.index[k].constant;
  }
  return access;
}

/// Elements on the pages of memory that a write touches, about.
double touched_elements(const isl::map& write, const std::vector<std::int64_t>& shape) {
  constexpr double kPage = 4096 / sizeof(double);
  const isl::set range = write.range();
  if (range.is_empty()) return 0;
  double rows = 1, row = 1;
  bool whole = true;  // the dims behind
  for (std::size_t k = shape.size(); k-- > 0;) {
    const auto [low, high] = dim_range(range, static_cast<int>(k));
    const auto extent = static_cast<double>(high - low + 1);
    (whole ? row : rows) *= extent;
    whole = whole && high - low + 1 == shape[k];
  }
  return rows * (row + kPage);
}

double box_points(const isl::set& domain) {
  if (domain.is_empty()) return 0;
  double points = 1;
  const int dims = static_cast<int>(isl_set_dim(domain.get(), isl_dim_set));
  for (int k = 0; k < dims; ++k) {
    const auto [low, high] = dim_range(domain, k);
    points *= static_cast<double>(high - low + 1);
  }
  return points;
}

/// For each dim: does some instance read what an instance that differs in this dim alone writes?
std::vector<bool> find_self_dependences(const isl::map& write, const std::vector<isl::map>& reads, int dims) {
  std::vector<bool> result(dims, false);
  for (const isl::map& read : reads) {
    isl_map* pairs = isl_map_apply_range(write.copy(), isl_map_reverse(read.copy()));
    for (int k = 0; k < dims; ++k) {
      isl_map* along = isl_map_copy(pairs);
      for (int d = 0; d < dims; ++d) {
        if (d != k) along = isl_map_equate(along, isl_dim_in, d, isl_dim_out, d);
      }
      isl_map* up = isl_map_order_lt(isl_map_copy(along), isl_dim_in, k, isl_dim_out, k);
      isl_map* down = isl_map_order_gt(along, isl_dim_in, k, isl_dim_out, k);
      if (isl_map_is_empty(up) != isl_bool_true || isl_map_is_empty(down) != isl_bool_true) result[k] = true;
      isl_map_free(up);
      isl_map_free(down);
    }
    isl_map_free(pairs);
  }
  return result;
}

/// Does some instance read what another one writes?
bool reads_other_instances(const isl::map& write, const std::vector<isl::map>& reads) {
  return std::any_of(reads.begin(), reads.end(), [&](const isl::map& read) {
    const isl::map pairs = write.apply_range(read.reverse());
    return !pairs.is_subset(isl::manage(isl_map_identity(isl_map_get_space(pairs.get()))));
  });
}

constexpr std::size_t kMostTerms = 8;  ///< of an element of a sum that are counted one by one

/// Adds the instances of a statement that write an element, by its `rank` coordinates; false: which ones hangs on the element, or they are
/// many. `frame`: zeros, and the loops around.
bool add_instances(const LoopCode& code, int rank, std::array<std::int64_t, 64>& frame,
                   std::vector<std::vector<DimFunction>>& found) {
  const auto is_same = [&](const IndexExpr& bound) {
    for (int k = 0; k < rank; ++k) {
      if (bound.coefficient(k) != 0) return false;
    }
    return true;
  };
  switch (code.kind) {
    case LoopCode::Kind::condition:
      return false;
    case LoopCode::Kind::block:
      return std::all_of(code.children.begin(), code.children.end(),
                         [&](const LoopCode& child) { return add_instances(child, rank, frame, found); });
    case LoopCode::Kind::loop: {
      if (!is_same(code.lower) || !is_same(code.upper)) return false;
      const std::int64_t lower = code.lower.evaluate(frame.data()), upper = code.upper.evaluate(frame.data());
      for (std::int64_t value = lower; value <= upper; value += code.step) {
        frame[static_cast<std::size_t>(code.slot)] = value;
        if (!add_instances(code.children[0], rank, frame, found)) return false;
      }
      frame[static_cast<std::size_t>(code.slot)] = 0;
      return true;
    }
    case LoopCode::Kind::statement:
      break;
  }
  std::vector<DimFunction>& instance = found.emplace_back();
  for (const IndexExpr& argument : code.arguments) {
    DimFunction& dim = instance.emplace_back(DimFunction{argument, true, {}, argument.evaluate(frame.data())});
    for (int k = 0; k < rank; ++k) {
      const auto factor = argument.coefficient(k);
      if (!factor) return false;
      dim.factors.push_back(*factor);
    }
  }
  return found.size() <= kMostTerms;
}

/// What a block holds, where that is one thing.
void open_blocks_of_one(LoopCode& code) {
  while (code.kind == LoopCode::Kind::block && code.children.size() == 1) {
    LoopCode only = std::move(code.children[0]);
    code = std::move(only);
  }
}

/// Loops over the instances in the order of `schedule`, compiled; slots for the loops follow those in `slots`. `context`: what holds
/// of the parameters.
LoopCode compile_schedule(__isl_take isl_union_map* schedule, __isl_take isl_set* context, SlotMap& slots) {
  isl_ast_build* build = isl_ast_build_from_context(context);
  isl_ast_node* node = isl_ast_build_node_from_schedule_map(build, schedule);
  isl_ast_build_free(build);
  if (!node) internal_error("oracle: isl generates no loops");
  LoopCode code = compile_loops(node, slots);
  isl_ast_node_free(node);
  open_blocks_of_one(code);
  return code;
}

/// { Statement[dims] -> [dims, position] } on the domain; `length` pads all statements of a group to one length.
isl_map* order_of(const isl::set& domain, int position) {
  isl_map* order = isl_set_identity(domain.copy());
  order = isl_map_reset_tuple_id(order, isl_dim_out);
  const unsigned dims = static_cast<unsigned>(isl_set_dim(domain.get(), isl_dim_set));
  order = isl_map_insert_dims(order, isl_dim_out, dims, 1);
  return isl_map_fix_si(order, isl_dim_out, dims, position);
}

/// The least and the largest value of each dim, where the points are all that lie between them.
std::optional<std::vector<std::pair<std::int64_t, std::int64_t>>> box_of(const isl::set& domain) {
  if (domain.is_empty()) return std::nullopt;
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  isl_set* box = isl_set_universe(isl_set_get_space(domain.get()));
  for (int k = 0; k < static_cast<int>(isl_set_dim(domain.get(), isl_dim_set)); ++k) {
    ranges.push_back(dim_range(domain, k));
    isl_ctx* ctx = isl_set_get_ctx(box);
    box = isl_set_lower_bound_val(box, isl_dim_set, k, isl_val_int_from_si(ctx, ranges.back().first));
    box = isl_set_upper_bound_val(box, isl_dim_set, k, isl_val_int_from_si(ctx, ranges.back().second));
  }
  // Not isl_set_is_box, which takes every second point for a box.
  return isl::manage(box).is_subset(domain) ? std::optional(std::move(ranges)) : std::nullopt;
}

/// The loops of one statement whose points are a box, in the order of its dims: what isl would generate, without isl. Nothing elsewhere.
std::optional<LoopCode> loops_of_box(const isl::set& domain, const std::string& statement, SlotMap& slots) {
  const auto ranges = box_of(domain);
  if (!ranges) return std::nullopt;
  LoopCode code;
  code.kind = LoopCode::Kind::statement;
  code.statement = statement;
  std::vector<LoopCode> loops;
  for (int k = 0; k < static_cast<int>(ranges->size()); ++k) {
    const auto [low, high] = (*ranges)[static_cast<std::size_t>(k)];
    if (low == high) {
      code.arguments.emplace_back(low);
      continue;
    }
    LoopCode& loop = loops.emplace_back();
    loop.kind = LoopCode::Kind::loop;
    loop.slot = slots.emplace(slot_name("c", k), static_cast<int>(slots.size())).first->second;
    loop.lower = IndexExpr(low);
    loop.upper = IndexExpr(high);
    code.arguments.emplace_back(0, std::vector<std::pair<int, std::int64_t>>{{loop.slot, 1}});
  }
  for (; !loops.empty(); loops.pop_back()) {
    loops.back().children.push_back(std::move(code));
    code = std::move(loops.back());
  }
  return code;
}

}  // namespace

namespace {

/// Is the statement a sum of products of two tensors' elements?
bool adds_products(const Statement& statement) {
  const auto is_read = [](const ScalarExpr& factor) { return strip_exact_casts(factor).op() == ScalarOp::read; };
  const ScalarExpr& value = statement.value;
  return statement.reduction == ReductionOp::add && value.op() == ScalarOp::mul &&
         std::all_of(value.args().begin(), value.args().end(), is_read);
}

}  // namespace

DefinitionCost::DefinitionCost(const Nest& nest, Products products) : sizes_(nest.sizes) {
  SlotMap slots;
  for (const SizeParam& size : sizes_) slots.emplace(size.name, static_cast<int>(slots.size()));
  with_isl_budget("counting a definition's points", [&] {
    context_ =
        membership(nest.context.params(), isl::manage(isl_set_universe(nest.context.params().get_space().release())), slots);
    for (const Statement& statement : nest.statements) {
      Box box{1, {}};
      const bool cheap = products == Products::side_by_side && adds_products(statement);
      if (!cheap) statement.value.visit([&](const ScalarExpr&) { ++box.nodes; });
      const isl::set context = statement.domain.params();
      for (int k = 0; k < static_cast<int>(statement.dims.size()); ++k) {
        isl_pw_aff* most = isl_set_dim_max(statement.domain.copy(), k);
        isl_pw_aff* extent = isl_pw_aff_sub(most, isl_set_dim_min(statement.domain.copy(), k));
        box.extents.push_back(expression_of(isl_pw_aff_gist_params(extent, context.copy()), context, slots));
      }
      boxes_.push_back(std::move(box));
    }
  });
}

std::optional<double> DefinitionCost::at(const Sizes& sizes) const {
  std::vector<std::int64_t> frame;
  for (const SizeParam& size : sizes_) {
    frame.push_back(sizes.at(size.name));
    if (frame.back() < size.min || (size.max && frame.back() > *size.max)) return std::nullopt;
  }
  if (!context_.evaluate(frame.data())) return std::nullopt;
  double cost = 0;
  for (const Box& box : boxes_) {
    double points = box.nodes;
    for (const IndexExpr& extent : box.extents)
      points *= static_cast<double>(std::max<std::int64_t>(extent.evaluate(frame.data()) + 1, 0));
    cost += points;
  }
  return cost;
}

namespace {

/// Of the first element of each of some tensors, with all that it needs.
std::optional<double> cost_of_first(const Nest& nest, const Sizes& sizes, const std::vector<const Tensor*>& tensors,
                                    DefinitionCost::Products products) {
  std::map<std::string, isl::set> first;
  for (const Tensor* tensor : tensors) first.emplace(tensor->name, at_sizes(tensor_box(*tensor), sizes).lexmin());
  return DefinitionCost(needed_part(nest, sizes, first), products).at(sizes);
}

}  // namespace

std::optional<double> cost_of_first_elements(const Nest& nest, const Sizes& sizes) {
  std::vector<const Tensor*> outputs;
  for (const Tensor& tensor : nest.tensors) {
    if (tensor.role == TensorRole::output) outputs.push_back(&tensor);
  }
  return cost_of_first(nest, sizes, outputs, DefinitionCost::Products::one_by_one);
}

std::optional<double> cost_of_first_element(const Nest& nest, const Sizes& sizes, const std::string& output) {
  return cost_of_first(nest, sizes, {&nest.tensor(output)}, DefinitionCost::Products::side_by_side);
}

Reference::Reference(const Nest& nest, const Sizes& sizes, const std::map<std::string, double>& scalars,
                     const HostTensors& inputs)
    : scalars_(scalars), rounding_(rounding_model(nest)) {
  for (const ScalarParam& scalar : nest.scalars) scalars_.emplace(scalar.name, scalar.default_value);
  for (const Tensor& tensor : nest.tensors) {
    Store store;
    store.name = tensor.name;
    store.type = tensor.type;
    store.shape = shape_at(tensor, sizes);
    store.strides.assign(store.shape.size(), 1);
    for (std::size_t k = store.shape.size(); k-- > 1;)
      store.strides[k - 1] = store.strides[k] * std::max<std::int64_t>(store.shape[k], 1);
    for (const std::int64_t extent : store.shape) store.elements *= extent;
    if (tensor.role == TensorRole::input) set_input(store, inputs);
    store_index_[tensor.name] = static_cast<int>(stores_.size());
    stores_.push_back(std::move(store));
  }
  with_isl_budget("preparing the oracle", [&] {
    for (const Statement& statement : nest.statements) compile_statement(statement, nest, sizes);
  });
  set_expanded_costs();
  for (std::size_t s = 0; s < statements_.size(); ++s) {
    for (const CompiledAccess& read : statements_[s].reads) {
      for (const int writer : stores_[read.tensor].writers) {
        if (statements_[writer].group == statements_[s].group) backward_possible_ = false, recurrent_ = true;
      }
    }
  }
}

void Reference::compile_statement(const Statement& statement, const Nest&, const Sizes& sizes) {
  CompiledStatement code;
  code.name = statement.name;
  code.group = statement.group;
  code.dims = static_cast<int>(statement.dims.size());
  if (code.dims > 15) user_error("oracle: statement {} has {} dims; at most 15 are supported", statement.name, code.dims);
  code.value = ValueCode(statement.value, scalars_);
  code.reduction = statement.reduction;
  code.type = statement.value.type();
  const isl::set domain = at_sizes(statement.domain, sizes);
  const auto access_of = [&](const Access& access) {
    const int tensor = store_index_.at(access.tensor);
    return compile_access(at_sizes(access.relation, sizes), domain, tensor, stores_[tensor].shape, stores_[tensor].strides);
  };
  code.write = access_of(statement.write);
  const isl::map write = at_sizes(statement.write.relation, sizes).intersect_domain(domain);
  std::vector<isl::map> reads, self_reads;
  for (const Access& read : statement.reads) {
    code.reads.push_back(access_of(read));
    reads.push_back(at_sizes(read.relation, sizes).intersect_domain(domain));
    if (read.tensor == statement.write.tensor) self_reads.push_back(reads.back());
  }
  code.self_dependent = find_self_dependences(write, self_reads, code.dims);
  code.reads_others = reads_other_instances(write, self_reads);
  const SlotMap slots = dim_slots(code.dims);
  const isl::set domain_params = dims_as_params(isl::manage(isl_map_from_domain_and_range(domain.copy(), domain.copy())));
  for (const isl::pw_aff& index : statement.indices) {
    const isl::map graph = at_sizes(isl::manage(isl_map_from_pw_aff(index.copy())), sizes).intersect_domain(domain);
    isl_pw_multi_aff* function = isl_pw_multi_aff_from_set(dims_as_params(graph).release());
    isl_pw_aff* only = isl_pw_multi_aff_get_pw_aff(function, 0);
    isl_pw_multi_aff_free(function);
    only = isl_pw_aff_gist_params(only, isl_set_params(domain_params.copy()));
    code.indices.push_back(make_function(expression_of(only, domain_params, slots), code.dims));
  }
  code.points = box_points(domain);
  Store& written = stores_[code.write.tensor];
  written.writers.push_back(static_cast<int>(statements_.size()));
  written.touched =
      std::min<double>(static_cast<double>(written.elements), written.touched + touched_elements(write, written.shape));
  written.reduced = written.reduced || code.reduction.has_value();
  if (const auto narrow = rounding_.statements[statements_.size()].narrow) written.narrow = narrow;
  if (rounding_.statements[statements_.size()].expands) written.orders = kExpandedOrders;
  if (rounding_.statements[statements_.size()].factors) written.share = kFactoredShare;
  written.sums_16_bits = written.sums_16_bits || (code.reduction && size_in_bytes(written.type) == 2);
  statements_.push_back(std::move(code));
  touched_.push_back({domain, write, std::move(reads)});
}

const Reference::ElementLoops& Reference::element_loops(int statement) {
  const auto known = element_loops_.find(statement);
  if (known != element_loops_.end()) return known->second;
  ElementLoops loops;
  SlotMap slots;
  isl_map* write = touched_[static_cast<std::size_t>(statement)].write.copy();
  const int rank = static_cast<int>(isl_map_dim(write, isl_dim_out));
  write = isl_map_move_dims(write, isl_dim_param, 0, isl_dim_out, 0, rank);
  for (int k = 0; k < rank; ++k) {
    write = isl_map_set_dim_name(write, isl_dim_param, k, slot_name("e", k).c_str());
    slots[slot_name("e", k)] = k;
  }
  const isl::set instances = isl::manage(isl_map_domain(write));
  isl_set* inside = isl_set_universe(isl_space_params(isl_set_get_space(instances.get())));
  const std::vector<std::int64_t>& shape = stores_[statements_[statement].write.tensor].shape;
  for (int k = 0; k < rank; ++k) {
    const auto at = static_cast<unsigned>(isl_set_find_dim_by_name(inside, isl_dim_param, slot_name("e", k).c_str()));
    inside = isl_set_lower_bound_si(inside, isl_dim_param, at, 0);
    inside = isl_set_upper_bound_val(inside, isl_dim_param, at, isl_val_int_from_si(isl_set_get_ctx(inside), shape[k] - 1));
  }
  with_isl_budget("inverting a write access",
                  [&] { loops.code = compile_schedule(isl_union_map_from_map(order_of(instances, 0)), inside, slots); });
  loops.slots = static_cast<int>(slots.size());
  if (loops.slots > 64) internal_error("oracle: {} loop variables", loops.slots);
  finish_loops(loops.code, false);
  if (loops.code.kind == LoopCode::Kind::statement) {
    for (const IndexExpr& argument : loops.code.arguments) loops.instance.push_back(make_function(argument, rank));
    if (!std::all_of(loops.instance.begin(), loops.instance.end(), [](const DimFunction& dim) { return dim.linear; }))
      loops.instance.clear();
  }
  std::array<std::int64_t, 64> frame{};
  const bool few = statements_[statement].reduction && add_instances(loops.code, rank, frame, loops.terms);
  if (!few) loops.terms.clear();
  return element_loops_.emplace(statement, std::move(loops)).first->second;
}

void Reference::prepare_elements() {
  for (int s = 0; s < static_cast<int>(statements_.size()); ++s) element_loops(s);
}

/// Resolves statements and finds innermost loops whose points may be evaluated together.
void Reference::finish_loops(LoopCode& code, bool whole) const {
  if (code.kind == LoopCode::Kind::statement) {
    const auto found =
        std::find_if(statements_.begin(), statements_.end(), [&](const auto& s) { return s.name == code.statement; });
    code.statement_index = static_cast<int>(found - statements_.begin());
    return;
  }
  for (LoopCode& child : code.children) finish_loops(child, whole);
  // A loop around one statement is a row of points, whatever isl put between them.
  if (code.kind == LoopCode::Kind::loop) open_blocks_of_one(code.children[0]);
  if (code.kind != LoopCode::Kind::loop || code.children[0].kind != LoopCode::Kind::statement) return;
  const LoopCode& leaf = code.children[0];
  const CompiledStatement& statement = statements_[leaf.statement_index];
  std::vector<std::int64_t> strides;
  int moving = 0;
  for (std::size_t k = 0; k < leaf.arguments.size(); ++k) {
    const auto factor = leaf.arguments[k].coefficient(code.slot);
    if (!factor) return;
    strides.push_back(*factor * code.step);
    if (*factor == 0) continue;
    ++moving;
    if (whole && statement.self_dependent[k]) return;
  }
  // A loop may run along a diagonal.
  if (whole && moving > 1 && statement.reads_others) return;
  code.strides = std::move(strides);
}

namespace {

void add_statements(const LoopCode& code, std::vector<const LoopCode*>& found) {
  if (code.kind == LoopCode::Kind::statement) found.push_back(&code);
  for (const LoopCode& child : code.children) add_statements(child, found);
}

bool moved_within(const LoopCode& code, const IndexExpr& argument) {
  if (code.kind == LoopCode::Kind::loop && argument.coefficient(code.slot) != 0) return true;
  return std::any_of(code.children.begin(), code.children.end(),
                     [&](const LoopCode& child) { return moved_within(child, argument); });
}

/// Has some index of both accesses values that differ by the same number in all iterations of a loop, which moves some of the dims?
bool stay_apart(const CompiledAccess& write, const CompiledAccess& read, const std::vector<bool>& moved) {
  for (std::size_t k = 0; k < write.index.size() && k < read.index.size(); ++k) {
    const DimFunction &to = write.index[k], &from = read.index[k];
    if (!to.linear || !from.linear || to.constant == from.constant || to.factors != from.factors) continue;
    bool fixed = true;
    for (std::size_t dim = 0; dim < to.factors.size(); ++dim) fixed = fixed && (to.factors[dim] == 0 || !moved[dim]);
    if (fixed) return true;
  }
  return false;
}

}  // namespace

/// Which dim of the statement do iterations of the loop alone move, so that they write elements of their own and read nothing that others
/// write? None: -1. `leaves`: all places of the statement in the loop.
int Reference::own_dim(const LoopCode& code, const LoopCode& leaf, const std::vector<const LoopCode*>& leaves) const {
  const CompiledStatement& statement = statements_[leaf.statement_index];
  std::vector<bool> within;  // a dim that another place has other values of moves, too
  for (std::size_t k = 0; k < leaf.arguments.size(); ++k) {
    const bool alike = leaves.size() == 1 || std::all_of(leaves.begin(), leaves.end(), [&](const LoopCode* other) {
                         return leaf.arguments[k].is_same_slot(other->arguments[k]);
                       });
    within.push_back(!alike || moved_within(code, leaf.arguments[k]));
  }
  const auto meets = [&](const CompiledAccess& read) {
    return read.tensor == statement.write.tensor && !stay_apart(statement.write, read, within);
  };
  if (std::any_of(statement.reads.begin(), statement.reads.end(), meets)) return -1;
  int moved = -1;
  for (std::size_t k = 0; k < leaf.arguments.size(); ++k) {
    const auto factor = leaf.arguments[k].coefficient(code.slot);
    if (!factor || (*factor != 0 && moved >= 0)) return -1;
    if (*factor != 0) moved = static_cast<int>(k);
  }
  if (moved < 0 || moved_within(code.children[0], leaf.arguments[static_cast<std::size_t>(moved)])) return -1;
  // Two places meet in one iteration alone.
  if (leaves.size() > 1 && !leaf.arguments[static_cast<std::size_t>(moved)].is_slot(code.slot)) return -1;
  const bool own = std::any_of(statement.write.index.begin(), statement.write.index.end(), [&](const DimFunction& index) {
    if (!index.linear || index.factors[static_cast<std::size_t>(moved)] == 0) return false;
    return std::count(index.factors.begin(), index.factors.end(), 0) + 1 == static_cast<std::ptrdiff_t>(index.factors.size());
  });
  return own ? moved : -1;
}

/// Marks loops whose iterations write elements of their own and read nothing that these write, as the grid of another step: one dim moves by
/// them alone, and is an index of what is written. Several places of one statement, as the sides of a border, have this dim in common.
void Reference::mark_parallel(LoopCode& code) const {
  for (LoopCode& child : code.children) mark_parallel(child);
  if (code.kind != LoopCode::Kind::loop) return;
  std::vector<const LoopCode*> leaves;
  add_statements(code.children[0], leaves);
  if (leaves.empty()) return;
  const auto is_other = [&](const LoopCode* leaf) { return leaf->statement_index != leaves.front()->statement_index; };
  if (std::any_of(leaves.begin(), leaves.end(), is_other)) return;
  const int moved = own_dim(code, *leaves.front(), leaves);
  code.parallel = moved >= 0 && std::all_of(leaves.begin() + 1, leaves.end(),
                                            [&](const LoopCode* leaf) { return own_dim(code, *leaf, leaves) == moved; });
}

void Reference::refuse_cost(double cost, double limit) {
  user_error(
      "oracle: evaluating the definition at these sizes takes {:.0f} million operations, more than {:.0f} million; use smaller "
      "sizes",
      cost / 1e6, limit / 1e6);
}

void Reference::compile_all() {
  if (group_loops_.empty()) compile_groups();
}

/// The original order of the statements first .. last - 1, or one with the same results whose rows of points are evaluated faster.
isl::union_map Reference::order_of_group(std::size_t first, std::size_t last) const {
  constexpr double kWorthDistributing = 1e6;
  double points = 0;
  for (std::size_t s = first; s < last; ++s) points += statements_[s].points;
  if (last - first > 1 && points > kWorthDistributing) {
    const auto begin = touched_.begin();
    try {
      return isl_guarded("distributing the oracle's loops", [&] {
        return distributed_order({begin + static_cast<std::ptrdiff_t>(first), begin + static_cast<std::ptrdiff_t>(last)});
      });
    } catch (const UserError&) {  // it takes too long
    }
  }
  isl_union_map* order = isl_union_map_from_map(order_of(touched_[first].domain, 0));
  for (std::size_t s = first + 1; s < last; ++s) {
    order = isl_union_map_add_map(order, order_of(touched_[s].domain, static_cast<int>(s - first)));
  }
  return isl::manage(order);
}

/// Loops over each group of statements.
void Reference::compile_groups() {
  for (std::size_t first = 0; first < statements_.size();) {
    std::size_t last = first;
    while (last < statements_.size() && statements_[last].group == statements_[first].group) ++last;
    SlotMap slots;
    if (auto box = last == first + 1 ? loops_of_box(touched_[first].domain, statements_[first].name, slots) : std::nullopt) {
      finish_loops(*box, true);
      mark_parallel(*box);
      group_loops_.push_back(*std::move(box));
      first = last;
      continue;
    }
    isl_union_map* schedule = order_of_group(first, last).release();
    LoopCode code;
    isl_set* anything = isl_set_universe(isl_space_params_alloc(isl_union_map_get_ctx(schedule), 0));
    with_isl_budget("generating the oracle's loops", [&] { code = compile_schedule(schedule, anything, slots); });
    finish_loops(code, true);
    mark_parallel(code);
    group_loops_.push_back(std::move(code));
    first = last;
  }
}

}  // namespace nestor
