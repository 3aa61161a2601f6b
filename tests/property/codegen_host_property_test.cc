// Random ops, random boxes, guards, strides and types: compiled code and interpreter agree.
#include "unit/codegen/codegen_host_fixture.h"

namespace nestor::host_test {
namespace {

class RandomOps {
 public:
  explicit RandomOps(unsigned seed) : random_(seed) {}

  TileProgram make_program() {
    dims_.clear();
    const int count = pick(1, 3);
    for (int k = 0; k < count; ++k) {
      const std::int64_t extent = pick(1, chance(0.3) ? 70 : 20);
      extents_[names_[static_cast<std::size_t>(k)]] = extent;
      OpDim d =
          dim(names_[static_cast<std::size_t>(k)], chance(0.5) ? IntExpr(extent) : var(sizes_[static_cast<std::size_t>(k)]));
      if (chance(0.15)) d.kind = LoopKind::unroll, d.factor = pick(0, 4);
      if (chance(0.15)) d.kind = LoopKind::vectorize, d.factor = std::int64_t{1} << pick(0, 6);
      dims_.push_back(d);
    }
    TileOp o;
    o.name = "s";
    o.kind = OpKind::map;
    const bool reduces = count > 1 && chance(0.5);
    if (reduces) {
      dims_[static_cast<std::size_t>(pick(0, count - 1))].reduced = true;
      o.kind = OpKind::reduce;
      o.reduction = static_cast<ReductionOp>(pick(0, 3));
      o.initialize = chance(0.5);
    }
    for (OpDim& d : dims_) d.parallel = !d.reduced;
    o.dims = dims_;
    buffers_.clear();
    o.write = whole_access("out", TensorRole::output, chance(0.2) && !reduces ? narrow_type() : ElementType::f32);
    const int reads = pick(1, 3);
    std::vector<ScalarExpr> terms;
    for (int r = 0; r < reads; ++r) {
      const ElementType type = chance(0.3) ? narrow_type() : ElementType::f32;
      o.reads.push_back(some_access("in" + std::to_string(r), type));
      terms.push_back(read(r, type));
    }
    o.indices = {linear()};
    terms.push_back(op(ScalarOp::mul, {f32(0.01), ScalarExpr::cast(ElementType::f32, ScalarExpr::index(0))}));
    o.value = combine_terms(terms);
    if (o.reduction == ReductionOp::mul) o.value = op(ScalarOp::add, {f32(1), op(ScalarOp::mul, {f32(0.01), o.value})});
    const ElementType stored = buffers_[static_cast<std::size_t>(o.write.buffer)].type;
    if (stored != ElementType::f32) o.value = ScalarExpr::cast(stored, o.value);
    if (chance(0.5)) o.guard = guard();
    if (o.guard.defined() && !reduces && chance(0.5)) o.fill = pick(-3, 3);
    TileTree root = node(o);
    return program({"P", "Q", "R"}, buffers_, root);
  }

  Sizes sizes() const {
    Sizes out{{"P", 1}, {"Q", 1}, {"R", 1}};
    for (std::size_t k = 0; k < dims_.size(); ++k) out[sizes_[k]] = extents_.at(names_[k]);
    return out;
  }

 private:
  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool chance(double p) { return std::uniform_real_distribution<double>(0, 1)(random_) < p; }
  ElementType narrow_type() { return chance(0.5) ? ElementType::f16 : ElementType::bf16; }
  std::int64_t extent_of(const OpDim& d) const { return extents_.at(d.var); }

  int add_buffer(const std::string& name, TensorRole role, std::vector<IntExpr> extents, ElementType type) {
    buffers_.push_back(argument(name, role, std::move(extents), type));
    return static_cast<int>(buffers_.size()) - 1;
  }

  /// Every kept dim indexes the write once, in any order.
  TileAccess whole_access(const std::string& name, TensorRole role, ElementType type) {
    std::vector<OpDim> kept;
    for (const OpDim& d : dims_) {
      if (!d.reduced) kept.push_back(d);
    }
    std::shuffle(kept.begin(), kept.end(), random_);
    TileAccess access;
    std::vector<IntExpr> extents;
    for (const OpDim& d : kept) {
      const int factor = chance(0.1) ? 2 : 1, shift = chance(0.2) ? 3 : 0;
      access.index.push_back(var(d.var) * IntExpr(factor) + IntExpr(shift));
      extents.emplace_back(extent_of(d) * factor + shift);
    }
    access.buffer = add_buffer(name, role, std::move(extents), type);
    return access;
  }

  TileAccess some_access(const std::string& name, ElementType type) {
    std::vector<OpDim> moving = dims_;
    std::shuffle(moving.begin(), moving.end(), random_);
    if (moving.size() > 1 && chance(0.4)) moving.pop_back();
    TileAccess access;
    std::vector<IntExpr> extents;
    for (const OpDim& d : moving) {
      const int form = pick(0, 9);
      IntExpr index = var(d.var);
      std::int64_t extent = extent_of(d);
      if (form == 0) index = index * IntExpr(2), extent *= 2;
      if (form == 1) index = IntExpr(extent - 1) - index;
      if (form == 2) index = floor_div(index, 3);
      if (form == 3) index = mod(index + IntExpr(1), 4), extent = 4;
      if (form == 4) index = index + var(dims_[0].var), extent += extent_of(dims_[0]);
      access.index.push_back(index);
      extents.emplace_back(extent);
    }
    access.buffer = add_buffer(name, TensorRole::input, std::move(extents), type);
    return access;
  }

  IntExpr linear() {
    IntExpr sum = pick(-5, 5);
    for (const OpDim& d : dims_) sum = sum + var(d.var) * IntExpr(pick(-2, 3));
    return chance(0.2) ? floor_div(sum, 2) : sum;
  }

  IntExpr comparison() {
    const IntExpr left = linear(), right = IntExpr(pick(-10, 30));
    const IntOp ops[] = {IntOp::ge, IntOp::gt, IntOp::ge, IntOp::eq};
    return IntExpr::make(ops[pick(0, 3)], {left, right});
  }

  IntExpr guard() {
    IntExpr all = comparison();
    if (chance(0.5)) all = all && comparison();
    if (chance(0.2)) all = IntExpr::make(IntOp::logical_or, {all, comparison()});
    return chance(0.1) ? IntExpr::make(IntOp::logical_not, {all}) : all;
  }

  ScalarExpr combine_terms(const std::vector<ScalarExpr>& terms) {
    ScalarExpr value = terms[0];
    for (std::size_t k = 1; k < terms.size(); ++k) {
      switch (pick(0, 4)) {
        case 0:
          value = op(ScalarOp::mul, {value, terms[k]});
          break;
        case 1:
          value = op(ScalarOp::max, {value, terms[k]});
          break;
        case 2:
          value = op(ScalarOp::select, {op(ScalarOp::lt, {f32(0.2), terms[k]}), value, terms[k]});
          break;
        default:
          value = op(ScalarOp::add, {value, terms[k]});
          break;
      }
    }
    const ScalarOp functions[] = {ScalarOp::tanh, ScalarOp::neg, ScalarOp::abs};
    return chance(0.3) ? op(functions[pick(0, 2)], {value}) : value;
  }

  std::mt19937 random_;
  const std::vector<std::string> names_{"i", "j", "k"}, sizes_{"P", "Q", "R"};
  std::map<std::string, std::int64_t> extents_;
  std::vector<OpDim> dims_;
  std::vector<Buffer> buffers_;
};

TEST(HostProperty, RandomOpsMeanWhatTheInterpreterSays) {
  RunOptions options;
  options.tolerance = 2e-4;
  for (unsigned seed = 0; seed < 250; ++seed) {
    RandomOps ops(seed);
    const TileProgram p = ops.make_program();
    options.seed = seed;
    options.gap = seed % 3;
    // One rounding to 16 bits may fall to the other side when f32 and double differ in the last bit.
    bool narrow = false;
    for (const Buffer& buffer : p.buffers)
      narrow = narrow || (buffer.role == TensorRole::output && buffer.type != ElementType::f32);
    options.tolerance = narrow ? 1e-2 : 2e-4;
    SCOPED_TRACE("seed " + std::to_string(seed));
    expect_as_interpreted(p, ops.sizes(), seed % 4 == 0 ? plain_target() : detect_host(), options);
    if (testing::Test::HasFailure()) break;
  }
}

}  // namespace
}  // namespace nestor::host_test
