// Ops on fragments: elementwise values, reductions of rows.
#include "codegen/gpu/mma/emit/tensor_emitter.h"
#include "codegen/gpu/mma/plan/tensor_exponents.h"

#include "support/error.h"

#include <llvm/IR/IntrinsicsNVPTX.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace nestor::nvptx {
namespace {

constexpr int kQuad = 4;         ///< threads that share a row
constexpr int kSixteenths = 16;  ///< of a fragment, in which shares of exponentials are given

}  // namespace

int TensorEmitter::number_in(const Fragment& fragment, const FragmentPlace& place) const {
  if (fragment.columns == 0) return 2 * place.tile + place.half;
  return place.tile * fragment.columns / 2 + 4 * place.pair + 2 * place.half + place.element;
}

llvm::Value* TensorEmitter::fragment_value(int buffer, const FragmentPlace& place) {
  const auto found = state_.tiles.find(buffer);
  if (found == state_.tiles.end()) internal_error("tensor kernel: {} is read before it is written", plan_->buffer(buffer).name);
  const Fragment& fragment = plan_->fragments.at(buffer);
  Value* value = found->second.at(static_cast<std::size_t>(number_in(fragment, place)));
  if (value == nullptr) internal_error("tensor kernel: a part of {} is read before it is written", plan_->buffer(buffer).name);
  return value;
}

llvm::Value* TensorEmitter::row_at(const FragmentPlace& place) {
  return b_.CreateNSWAdd(b_.CreateZExt(pack_at(first_row_), b_.getInt64Ty()),
                         b_.getInt64(static_cast<std::uint64_t>(row_distance(place))));
}

/// How far the value of the row dim lies behind that of the thread's first row.
int TensorEmitter::row_distance(const FragmentPlace& place) const {
  return (place.tile * kWarpgroupRows + 8 * place.half) / plan_->pack;
}

llvm::Value* TensorEmitter::pack_at(Value* row) { return plan_->pack == 1 ? row : b_.CreateUDiv(row, constant(plan_->pack)); }

llvm::Value* TensorEmitter::place_in_pack() {
  return b_.CreateZExt(b_.CreateURem(first_row_, constant(plan_->pack)), b_.getInt64Ty());
}

llvm::Value* TensorEmitter::column_at(const FragmentPlace& place) {
  return b_.CreateNSWAdd(b_.CreateZExt(first_column_, b_.getInt64Ty()),
                         b_.getInt64(static_cast<std::uint64_t>(std::int64_t{8} * place.pair + place.element)));
}

/// The op's dims at a place of the tile.
void TensorEmitter::set_point(const TensorOp& op, const FragmentPlace& place) {
  for (int d = 0; d < static_cast<int>(op.op.dims.size()); ++d) {
    const OpDim& dim = op.op.dims[static_cast<std::size_t>(d)];
    environment_[dim.var] = d == op.row      ? row_at(place)
                            : d == op.column ? column_at(place)
                            : d == op.pack   ? place_in_pack()
                                             : integer(dim.lower);
  }
}

void TensorEmitter::set_start(const TensorOp& op) {
  set_point(op, {});
  for (const int d : {op.row, op.column, op.pack}) {
    if (d >= 0) environment_[op.op.dims[static_cast<std::size_t>(d)].var] = b_.getInt64(0);
  }
}

int TensorEmitter::pairs_of(const TensorOp& op) const {
  if (op.column < 0) return 1;
  const auto columns = end_bound(op.op.dims[static_cast<std::size_t>(op.column)]);
  return static_cast<int>(ceil_div(*columns, 8));
}

// ---- elements

/// `bounded`: of the nearest element that there is.
llvm::Value* TensorEmitter::argument_address(const TileAccess& access, bool bounded) {
  const Buffer& buffer = plan_->buffer(access.buffer);
  Value* offset = nullptr;
  for (int p = 0; p < static_cast<int>(access.index.size()); ++p) {
    Value* index = integer(access.index[static_cast<std::size_t>(p)]);
    if (bounded && !access.index[static_cast<std::size_t>(p)].as_constant()) {
      Value* last = b_.CreateSub(integer(buffer.extents[static_cast<std::size_t>(p)]), b_.getInt64(1));
      index = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, index, last);
      index = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, index, b_.getInt64(0));
    }
    if (p + 1 < static_cast<int>(access.index.size())) index = b_.CreateNSWMul(index, arguments_.strides.at({access.buffer, p}));
    offset = offset == nullptr ? index : b_.CreateNSWAdd(offset, index);
  }
  if (offset == nullptr) offset = b_.getInt64(0);
  return b_.CreateInBoundsGEP(element_type(b_.getContext(), buffer.type), arguments_.pointers.at(access.buffer), offset);
}

/// Does this kernel write the buffer?
bool TensorEmitter::written_here(int buffer) const {
  return std::any_of(plan_->ops.begin(), plan_->ops.end(), [&](const TensorOp& op) { return op.op.write.buffer == buffer; });
}

/// An element, or anything where `wanted` (null: everywhere) does not hold: the argument's first element, unless other threads may be writing that.
llvm::Value* TensorEmitter::load_where(Value* wanted, const TileAccess& access, Value* address) {
  if (wanted == nullptr) return argument_load(access, address);
  if (!written_here(access.buffer))
    return argument_load(access, b_.CreateSelect(wanted, address, arguments_.pointers.at(access.buffer)));
  llvm::LLVMContext& context = b_.getContext();
  auto* inside = llvm::BasicBlock::Create(context, "element", &function_);
  auto* after = llvm::BasicBlock::Create(context, "after", &function_);
  llvm::BasicBlock* from = b_.GetInsertBlock();
  b_.CreateCondBr(wanted, inside, after);
  b_.SetInsertPoint(inside);
  Value* element = argument_load(access, address);
  llvm::BasicBlock* loaded = b_.GetInsertBlock();
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
  llvm::PHINode* result = b_.CreatePHI(element->getType(), 2);
  result->addIncoming(element, loaded);
  result->addIncoming(llvm::Constant::getNullValue(element->getType()), from);
  return result;
}

/// An element of an argument; outside of the op's points, and where `wanted` (null: nowhere) does not hold, there may be none: then it
/// is anything.
llvm::Value* TensorEmitter::argument_element(const TensorOp& op, const TileAccess& access, const FragmentPlace& place,
                                             Value* wanted) {
  Tests tests = masks(op, op.memory_mask);
  Value* test = inside(op, tests, place);
  if (wanted != nullptr) test = test == nullptr ? wanted : b_.CreateAnd(test, wanted);
  set_point(op, place);
  return load_where(test, access, argument_address(access));
}

/// An element that a row, a column or the whole tile shares is loaded once for all of them. Beyond the op's points, where the argument may have
/// ended, it is the nearest one: no test over rows and columns could be shared.
llvm::Value* TensorEmitter::shared_element(const TensorOp& op, int read, const FragmentPlace& place) {
  const TileAccess& access = op.op.reads[static_cast<std::size_t>(read)];
  const auto uses = [&](int dim) {
    return dim >= 0 && std::any_of(access.index.begin(), access.index.end(), [&](const IntExpr& index) {
             return index.uses(op.op.dims[static_cast<std::size_t>(dim)].var);
           });
  };
  const bool by_row = uses(op.row), by_column = uses(op.column);
  if ((by_row && by_column) || written_here(access.buffer)) return nullptr;
  Value*& known =
      shared_elements_[{read, by_row ? 2 * place.tile + place.half : -1, by_column ? 2 * place.pair + place.element : -1}];
  if (known == nullptr) {
    set_point(op, place);
    known = argument_load(access, argument_address(access, true));
  }
  return known;
}

llvm::LoadInst* TensorEmitter::load_element(const TileAccess& access, Value* address) {
  const Buffer& buffer = plan_->buffer(access.buffer);
  llvm::LoadInst* load = b_.CreateLoad(element_type(b_.getContext(), buffer.type), address);
  if (buffer.role == TensorRole::input)
    load->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(b_.getContext(), {}));
  return load;
}

llvm::Value* TensorEmitter::argument_load(const TileAccess& access, Value* address) {
  return from_element(b_, load_element(access, address), plan_->buffer(access.buffer).type);
}

/// An infinity that comes from points stays.
llvm::Value* TensorEmitter::finite_or_zero(Value* value, int buffer) {
  const auto empty = value_without_points(*plan_, buffer);
  if (!empty || !std::isinf(*empty)) return value;
  Value* none = b_.CreateFCmpOEQ(value, llvm::ConstantFP::get(value->getType(), *empty));
  return b_.CreateSelect(none, llvm::ConstantFP::getZero(value->getType()), value);
}

/// An element of the circular buffer's current tile. Four words of a thread, of two row halves and two column pairs, come at once.
llvm::Value* TensorEmitter::ring_element(int ring, const FragmentPlace& place) {
  Values& words = words_[{ring, place.tile, place.pair / 2}];
  if (words.empty()) words = row_matrices(ring, place.tile, place.pair / 2);
  Value* word = words[2 * static_cast<std::size_t>(place.pair % 2) + static_cast<std::size_t>(place.half)];
  if (place.element == 1) word = b_.CreateLShr(word, 16);
  return b_.CreateBitCast(b_.CreateTrunc(word, b_.getInt16Ty()),
                          register_type(b_.getContext(), plan_->buffer(this->ring(ring).buffer).type));
}

llvm::Value* TensorEmitter::element(const TensorOp& op, const ScalarExpr& value, const FragmentPlace& place) {
  ScalarLeaves leaves;
  leaves.read = [&](int ordinal, Value* wanted) -> Value* {
    if (ordinal == static_cast<int>(op.op.reads.size())) return test_outcome(op, place);
    const TileAccess& access = op.op.reads.at(static_cast<std::size_t>(ordinal));
    if (const auto ring = op.read_rings.find(ordinal); ring != op.read_rings.end()) return ring_element(ring->second, place);
    const auto fragment = plan_->fragments.find(access.buffer);
    if (fragment != plan_->fragments.end()) {
      Value* found = fragment_value(access.buffer, place);
      return op.finite_rows && fragment->second.columns == 0 ? finite_or_zero(found, access.buffer) : found;
    }
    if (Value* shared = shared_element(op, ordinal, place)) return shared;
    return argument_element(op, access, place, wanted);
  };
  leaves.index = [&](int ordinal) {
    set_point(op, place);
    return b_.CreateTrunc(integer(op.op.indices.at(static_cast<std::size_t>(ordinal))), b_.getInt32Ty());
  };
  leaves.scalar = [&](const std::string& name, ElementType) { return arguments_.scalars.at(name); };
  return emit_scalar(b_, math_, value, leaves);
}

void TensorEmitter::compute(int k, bool masked) {
  const TensorOp& op = this->op(k);
  words_.clear();
  shared_elements_.clear();
  switch (op.kind) {
    case TensorOp::Kind::map:
      return op.test ? tested_map(k, masked) : map(k, op.op.value, masked);
    case TensorOp::Kind::reduce:
      return reduce(op, masked);
    case TensorOp::Kind::seldom:
      return seldom_sum(op);
    case TensorOp::Kind::store:
      return store(op, k);
    case TensorOp::Kind::product:
      internal_error("tensor kernel: product {} is not issued", op.op.name);
  }
}

/// x of t = t * x with one x a row; undefined where the op has another form.
ScalarExpr TensorEmitter::row_factor(const TensorOp& op) const {
  const ScalarExpr& value = op.op.value;
  if (value.op() != ScalarOp::mul) return {};
  for (const std::size_t k : {std::size_t{0}, std::size_t{1}}) {
    const ScalarExpr &self = value.args()[k], &factor = value.args()[1 - k];
    if (self.op() != ScalarOp::read || op.op.reads[static_cast<std::size_t>(self.ordinal())].buffer != op.op.write.buffer)
      continue;
    bool by_row = true;
    factor.visit([&](const ScalarExpr& node) {
      if (node.op() == ScalarOp::index) by_row = false;
      if (node.op() != ScalarOp::read) return;
      const auto found = plan_->fragments.find(op.op.reads[static_cast<std::size_t>(node.ordinal())].buffer);
      by_row = by_row && found != plan_->fragments.end() && found->second.columns == 0;
    });
    if (by_row) return factor;
  }
  return {};
}

/// Scales the rows of a tile by factors, in warps that have one beside 1.
void TensorEmitter::scale_seldom(int buffer, const std::function<Value*(const FragmentPlace& row)>& factor) {
  const Fragment& fragment = plan_->fragments.at(buffer);
  Values factors;
  Value* any = b_.getFalse();
  for (int row = 0; row < 2 * plan_->row_tiles; ++row) {
    factors.push_back(factor({row / 2, 0, row % 2, 0}));
    any = b_.CreateOr(any, b_.CreateFCmpUNE(factors.back(), llvm::ConstantFP::get(b_.getFloatTy(), 1.0)));
  }
  choose(b_.CreateIntrinsic(llvm::Intrinsic::nvvm_vote_any_sync, {}, {constant(-1), any}), [&] {
    Values values = state_.tiles.at(buffer);
    for (int row = 0; row < 2 * plan_->row_tiles; ++row) {
      for (int column = 0; column < fragment.columns / 4; ++column) {
        const FragmentPlace place{row / 2, column / 2, row % 2, column % 2};
        Value*& value = values[static_cast<std::size_t>(number_in(fragment, place))];
        value = b_.CreateFMul(value, factors[static_cast<std::size_t>(row)]);
      }
    }
    state_.tiles[buffer] = std::move(values);
  });
}

/// `expr`: the op's value, in this form. `gives_back`: what waits for the middle of the op is given back here.
void TensorEmitter::map(int k, const ScalarExpr& expr, bool masked, bool gives_back) {
  const TensorOp& op = this->op(k);
  const int buffer = op.op.write.buffer;
  const Fragment& fragment = plan_->fragments.at(buffer);
  const bool in_place =
      std::any_of(op.op.reads.begin(), op.op.reads.end(), [&](const TileAccess& read) { return read.buffer == buffer; });
  const bool selects = masked && !op.mask.empty() && (op.select || op.keeps || (in_place && !op.outside));
  Tests tests = selects ? masks(op, op.mask) : Tests{};
  const auto count =
      static_cast<std::size_t>(plan_->row_tiles) * static_cast<std::size_t>(fragment.columns == 0 ? 2 : fragment.columns / 2);
  Values values(count, nullptr);
  // Rows without points keep their value: a factor of 1 says so at one test a row.
  const bool rows_only =
      std::none_of(op.mask.begin(), op.mask.end(), [](const IntExpr& condition) { return condition.uses(kColumn); });
  const bool seldom = op.op.seldom && fragment.columns > 0 && (!selects || rows_only);
  const ScalarExpr factor = seldom || (selects && in_place && !op.outside && rows_only) ? row_factor(op) : ScalarExpr();
  const auto factor_at = [&](const FragmentPlace& row) -> Value* {
    Value* value = element(op, factor, row);
    if (Value* test = selects ? inside(op, tests, row) : nullptr)
      value = b_.CreateSelect(test, value, llvm::ConstantFP::get(b_.getFloatTy(), 1.0));
    return value;
  };
  if (seldom && factor.defined()) return scale_seldom(buffer, factor_at);
  // A product's step may make the tile wider than the op: what is beyond is 0, and no argument has anything for it.
  const int all_pairs = fragment.columns == 0 ? 1 : fragment.columns / 8;
  const int pairs = op.column < 0 ? all_pairs : std::min(all_pairs, pairs_of(op));
  const int sixteenths = fragment.columns > 0 && may_be_approximate(*plan_, k) ? plan_->kernel->shape.exp2_polynomial : 0;
  const Exponents exponents = sixteenths > 0 ? exponents_of(*plan_, k, masked) : Exponents{};
  std::map<int, Value*> units;  // by row
  const auto polynomial = [&](const FragmentPlace& place) {
    NvptxMath::Polynomial form{!exponents.least, !exponents.most};
    if (exponents.taint < 0) return form;
    form.unit = units[2 * place.tile + place.half];
    if (form.unit == nullptr) {
      Value* taint = fragment_value(op.op.reads[static_cast<std::size_t>(exponents.taint)].buffer, place);
      // Hidden, or LLVM shifts and chooses for every element instead.
      form.unit = units[2 * place.tile + place.half] = ptx_.opaque(NvptxMath::exponent_unit(b_, taint, exponents.bounded_below));
    }
    return form;
  };
  const int elements = fragment.columns == 0 ? 1 : 2;
  const int own_count = plan_->row_tiles * 2 * pairs * elements;
  int made = 0;
  const auto set = [&](const FragmentPlace& place, Value* scale) {
    const int number = number_in(fragment, place);
    Value*& result = values[static_cast<std::size_t>(number)];
    if (scale != nullptr) {
      result = b_.CreateFMul(fragment_value(buffer, place), scale);
      return;
    }
    if (number % kSixteenths < sixteenths) math_.use_polynomial(polynomial(place));
    result = element(op, expr, place);
    math_.use_polynomial({});
    if (gives_back) release_amid(k, ++made, own_count, result);
    if (Value* test = inside(op, tests, place)) {
      Value* other =
          op.outside ? scalar_constant(b_.getContext(), op.op.value.type(), *op.outside) : fragment_value(buffer, place);
      result = emit_choice(b_, test, result, other);
    }
  };
  for (int tile = 0; tile < plan_->row_tiles; ++tile) {
    if (!op.read_rings.empty()) {  // words of a tile hold both halves: used up before the next ones come
      for (int pair = 0; pair < pairs; ++pair) {
        for (int place = 0; place < 2 * elements; ++place) set({tile, pair, place / elements, place % elements}, nullptr);
      }
      continue;
    }
    for (int half = 0; half < 2; ++half) {
      Value* scale = factor.defined() ? factor_at({tile, 0, half, 0}) : nullptr;
      for (int pair = 0; pair < pairs; ++pair) {
        for (int e = 0; e < elements; ++e) set({tile, pair, half, e}, scale);
      }
    }
  }
  for (Value*& value : values) {
    if (value == nullptr) value = scalar_constant(b_.getContext(), op.op.value.type(), 0);
  }
  state_.tiles[buffer] = std::move(values);
}

llvm::Value* TensorEmitter::quad_sum(Value* value, ReductionOp op, ElementType type) {
  for (int distance = 1; distance < kQuad; distance *= 2) {
    Value* bits = b_.CreateBitCast(value, b_.getInt32Ty());
    Value* other =
        b_.CreateIntrinsic(llvm::Intrinsic::nvvm_shfl_sync_bfly_i32, {}, {constant(-1), bits, constant(distance), constant(31)});
    value = emit_combine(b_, math_, op, type, value, b_.CreateBitCast(other, value->getType()));
  }
  return value;
}

void TensorEmitter::reduce(const TensorOp& op, bool masked) {
  const int buffer = op.op.write.buffer;
  const Fragment& fragment = plan_->fragments.at(buffer);
  const ElementType type = op.op.value.type();
  const ReductionOp combiner = *op.op.reduction;
  Tests tests = masked && op.select ? masks(op, op.mask) : Tests{};
  llvm::Constant* neutral = scalar_constant(b_.getContext(), type, neutral_element(combiner, type));
  const bool fresh = op.op.initialize;
  const bool starts_with_old = !fresh && (fragment.thread_sums || combiner == ReductionOp::max || combiner == ReductionOp::min);
  Values totals(static_cast<std::size_t>(plan_->row_tiles) * 2, nullptr);
  const auto number = static_cast<int>(&op - plan_->ops.data());
  const int last_amid = std::max(pairs_of(op) * amid_parts(number) / kAmidParts, 1) - 1;
  Value* amid = nullptr;  // what all rows have added up by then
  for (int tile = 0; tile < plan_->row_tiles; ++tile) {
    for (int half = 0; half < 2; ++half) {
      Value* total = starts_with_old ? fragment_value(buffer, {tile, 0, half, 0}) : nullptr;
      for (int pair = 0; pair < pairs_of(op); ++pair) {
        for (int e = 0; e < 2; ++e) {
          const FragmentPlace place{tile, pair, half, e};
          Value* value = element(op, op.op.value, place);
          if (Value* test = inside(op, tests, place)) value = emit_choice(b_, test, value, neutral);
          total = total == nullptr ? value : emit_combine(b_, math_, combiner, type, total, value);
        }
        if (amid_parts(number) > 0 && pair == last_amid) amid = amid == nullptr ? total : b_.CreateFAdd(amid, total);
      }
      if (!fragment.thread_sums) total = quad_sum(total, combiner, type);
      if (!starts_with_old && !fresh)
        total = emit_combine(b_, math_, combiner, type, fragment_value(buffer, {tile, 0, half, 0}), total);
      totals[static_cast<std::size_t>(tile) * 2 + static_cast<std::size_t>(half)] = total;
    }
  }
  if (amid != nullptr) release_amid(number, kAmidParts, kAmidParts, amid);
  state_.tiles[buffer] = std::move(totals);
}

void TensorEmitter::quad_reduction(int buffer) {
  for (Value*& value : state_.tiles.at(buffer)) value = quad_sum(value, ReductionOp::add, plan_->buffer(buffer).type);
}

}  // namespace nestor::nvptx
