// Products by register blocks: rows, columns and ks of all threads' sums, and the operand tiles that pass through shared memory.
#include "codegen/gpu/simt/proof/block_vectors.h"

namespace nestor::nvptx {
namespace {

constexpr std::int64_t kStep = 4;  ///< ks that the code takes at once
constexpr int kWidest = 4;         ///< floats of an access to shared memory

/// The read that an f32 factor is, widened or not; -1: it is something else, or a cast rounds it.
int read_of(const ScalarExpr& factor) {
  if (factor.type() != ElementType::f32) return -1;
  const bool cast = factor.op() == ScalarOp::cast;
  const ScalarExpr& inner = cast ? factor.args()[0] : factor;
  const bool widens = inner.type() == ElementType::f16 || inner.type() == ElementType::bf16;
  if (cast && !widens) return read_of(inner);
  return inner.op() == ScalarOp::read ? inner.ordinal() : -1;
}

class ProductProver {
 public:
  ProductProver(BlockProof& proof, const OpSite& site)
      : proof_(proof), site_(site), op_(proof.op(site.op)), product_(*op_.product), form_(product_.form) {}

  void run() {
    const int dims = static_cast<int>(op_.op.dims.size());
    for (const int d : {form_.row, form_.column, form_.k}) {
      if (d < 0 || d >= dims) return proof_.fail("{} is a product without rows, columns or ks", name());
    }
    if (!is_product()) proof_.fail("{} is not the sum of products that it is computed as", name());
    roles();
    if (!proof_.good()) return;
    extents();
    if (product_.a_direct) direct(form_.a, form_.k, rows(), kStep);
    if (product_.b_direct) direct(form_.b, form_.column, columns(), op_.layout.vector);
    if (!product_.a_direct) staged(form_.a, form_.row, rows(), product_.a_copy_along_k, product_.a_copy_width);
    if (!product_.b_direct) staged(form_.b, form_.column, columns(), product_.b_copy_along_k, product_.b_copy_width);
    places();
    stages();
    if (op_.vectors) results();
    if (!op_.vectors && op_.write_vector) proof_.fail("{} moves vectors along no vectors of columns", name());
  }

 private:
  const std::string& name() const { return op_.op.name; }
  const OpDim& dim(int d) const { return proof_.dim(op_, d); }
  std::int64_t rows() const { return std::int64_t{product_.row_slots} * op_.layout.groups; }
  std::int64_t columns() const { return std::int64_t{product_.chunks} * op_.layout.lanes * op_.layout.vector; }
  std::optional<std::int64_t> exact(int d) const {
    const Affine length = affine_of(dim(d).upper) - affine_of(dim(d).lower);
    return length.is_constant() ? std::optional(length.constant) : std::nullopt;
  }

  /// A sum of terms whose leaves are reads, as f32, and constants. What is read beyond the ks is 0, and so must be their terms. What is
  /// read beside the operands is the same for all rows and columns.
  bool is_sum_of_terms() const {
    if (op_.op.kind != OpKind::reduce || op_.op.reduction != ReductionOp::add) return false;
    if (op_.op.value.type() != ElementType::f32) return false;
    const int count = static_cast<int>(op_.op.reads.size());
    const auto is_read = [&](int read) { return read >= 0 && read < count; };
    if (form_.a == form_.b || !is_read(form_.a) || !is_read(form_.b)) return false;
    for (int read = 0; read < count; ++read) {
      if (read == form_.a || read == form_.b) continue;
      if (op_.op.guard.defined() || reads(read, form_.row) || reads(read, form_.column)) return false;
    }
    const std::function<bool(const ScalarExpr&)> fits = [&](const ScalarExpr& e) {
      if (read_of(e) >= 0) return true;
      if (e.op() == ScalarOp::read || e.op() == ScalarOp::index || e.op() == ScalarOp::scalar) return false;
      return std::all_of(e.args().begin(), e.args().end(), fits);
    };
    return fits(op_.op.value) && evaluate(op_.op.value, [](int) { return 0.0; }, {}, {}) == 0;
  }

  bool is_product() const {
    if (is_sum_of_terms()) return true;
    if (op_.op.kind != OpKind::contract || op_.op.reduction != ReductionOp::add || op_.op.reads.size() != 2) return false;
    const ScalarExpr& value = op_.op.value;
    if (value.op() != ScalarOp::mul || value.type() != ElementType::f32) return false;
    const int x = read_of(value.args()[0]), y = read_of(value.args()[1]);
    return x >= 0 && y >= 0 && x != y && std::minmax(x, y) == std::minmax(form_.a, form_.b);
  }

  bool reads(int read, int d) const {
    const TileAccess& access = op_.op.reads[read];
    return std::any_of(access.index.begin(), access.index.end(), [&](const IntExpr& index) { return index.uses(dim(d).var); });
  }

  void roles() {
    if (op_.column != form_.column || op_.rows != std::vector<int>{form_.row} || op_.divided >= 0 || proof_.plan.cluster > 1)
      return proof_.fail("{}: rows and columns are not those of its sums", name());
    if (!dim(form_.k).reduced || dim(form_.row).reduced || dim(form_.column).reduced || reads(form_.a, form_.column) ||
        reads(form_.b, form_.row))
      proof_.fail("{}: its operands have other rows and columns", name());
    for (int d = 0; d < static_cast<int>(op_.op.dims.size()); ++d) {
      const bool of_form = d == form_.row || d == form_.column || d == form_.k;
      if (!of_form && !has_one_value(dim(d))) proof_.fail("{} runs over {} as well", name(), dim(d).var);
      const DimRole role = d == form_.row ? DimRole::row : d == form_.column ? DimRole::column : DimRole::serial;
      if (op_.roles[d] != role) proof_.fail("{}: roles of dims do not agree", name());
      for (const OpDim& other : op_.op.dims) {
        if (dim(d).lower.uses(other.var) || dim(d).upper.uses(other.var))
          proof_.fail("{}: bounds of {} need other dims", name(), dim(d).var);
      }
    }
  }

  void extents() {
    const auto row_bound = extent_bound(dim(form_.row)), column_bound = extent_bound(dim(form_.column));
    if (!row_bound || !column_bound || product_.row_slots < 1 || product_.chunks < 1 || *row_bound > rows() ||
        *column_bound > columns())
      return proof_.fail("{}: {} x {} sums are too few", name(), rows(), columns());
    prove_extent(proof_, site_, form_.row);
    prove_extent(proof_, site_, form_.column);
    if (product_.k_tile < kStep || product_.k_tile % kStep != 0) proof_.fail("{}: tiles of {} ks", name(), product_.k_tile);
    const auto ks = exact(form_.k);
    const bool any_direct = product_.a_direct || product_.b_direct;
    if (any_direct && (!ks || *ks % product_.k_tile != 0 || op_.op.guard.defined()))
      proof_.fail("{} reads an operand where it lies beyond its ks", name());
  }

  /// The operand is read where it lies in shared memory: whole, at aligned places.
  void direct(int read, int along, std::int64_t lines, std::int64_t width) {
    const TileAccess& access = op_.op.reads[read];
    const Placement* place = proof_.plan.placement(access.buffer);
    if (place == nullptr || place->kind != Placement::Kind::shared || proof_.plan.buffer(access.buffer).type != ElementType::f32)
      return proof_.fail("{} reads {} where it does not lie", name(), proof_.name(access));
    if (exact(read == form_.a ? form_.row : form_.column) != lines)
      return proof_.fail("{} reads {} beyond its rows or columns", name(), proof_.name(access));
    if (width > 1) prove_vector(proof_, op_, access, dim(along).var, width, Divisors(proof_, site_, dim(along).var, width));
  }

  /// The operand's tiles are copied: pieces are whole and start where they may.
  void staged(int read, int across, std::int64_t lines, bool along_k, int width) {
    const std::int64_t length = along_k ? product_.k_tile : lines;
    if (width < 1 || length % width != 0) return proof_.fail("{}: copies of {} of {} elements", name(), width, length);
    if (width == 1) return;
    const OpDim& along = dim(along_k ? form_.k : across);
    const Divisors divisors(proof_, site_, along.var, width);
    if (op_.op.guard.defined() || !divisors.divide_extent(along, width))
      proof_.fail("{}: {} does not end with a whole copy of {} elements", name(), along.var, width);
    prove_vector(proof_, op_, op_.op.reads[read], along.var, width, divisors);
  }

  /// Tiles that are copied while others are read: f32 as it lies in global memory, which nothing else of the block's copies ahead counts.
  void stages() {
    if (product_.stages < 1) return proof_.fail("{}: {} tiles in shared memory", name(), product_.stages);
    if (product_.stages == 1) return;
    for (const bool is_a : {true, false}) {
      if (is_a ? product_.a_direct : product_.b_direct) continue;
      const TileAccess& access = op_.op.reads[is_a ? form_.a : form_.b];
      const Buffer& buffer = proof_.plan.buffer(access.buffer);
      const int width = is_a ? product_.a_copy_width : product_.b_copy_width;
      const bool by_line = is_a || product_.b_by_column;
      const bool whole = width == 1 || (width == 4 && by_line == (is_a ? product_.a_copy_along_k : product_.b_copy_along_k));
      if (buffer.type != ElementType::f32 || proof_.plan.placement(access.buffer) != nullptr ||
          buffer.memory == Memory::scratch || !whole)
        proof_.fail("{}: {} cannot be copied ahead by pieces of {}", name(), proof_.name(access), width);
    }
    const auto ahead = [](const BlockOp& other) { return other.ahead > 0; };
    if ((product_.a_direct && product_.b_direct) || op_.op.guard.defined() ||
        std::any_of(proof_.plan.ops.begin(), proof_.plan.ops.end(), ahead))
      proof_.fail("{}: its tiles cannot be copied ahead", name());
  }

  /// Lines of the staged tiles do not overlap, and start where vectors may.
  void places() {
    if (!product_.a_direct && (product_.a_stride < product_.k_tile || product_.a_stride % 4 != 0))
      proof_.fail("{}: rows of the first operand are {} elements apart in shared memory", name(), product_.a_stride);
    // Threads read their vectors of it, copies write theirs where they run along the columns.
    const int vector = product_.b_by_column
                           ? kWidest
                           : std::max(op_.layout.vector, product_.b_copy_along_k ? 1 : std::min(product_.b_copy_width, kWidest));
    const std::int64_t row = product_.b_by_column ? std::int64_t{op_.layout.vector} * product_.k_tile : columns();
    if (!product_.b_direct && (product_.b_stride < row || product_.b_stride % vector != 0))
      proof_.fail("{}: rows of the second operand are {} elements apart in shared memory", name(), product_.b_stride);
  }

  void results() {
    const OpDim& column = dim(form_.column);
    const Divisors divisors(proof_, site_, column.var, op_.layout.vector);
    if (!divisors.divide_extent(column, op_.layout.vector) || (op_.op.guard.defined() && op_.op.guard.uses(column.var)))
      proof_.fail("{}: the columns of {} are no whole vectors of {}", name(), column.var, op_.layout.vector);
    if (op_.write_vector) prove_vector(proof_, op_, op_.op.write, column.var, op_.layout.vector, divisors);
  }

  BlockProof& proof_;
  const OpSite& site_;
  const BlockOp& op_;
  const ProductPlan& product_;
  const ProductForm& form_;
};

}  // namespace

/// Threads whose warps are squares have other neighbours than a layout says: nothing may meet across lanes or groups.
void prove_squares(BlockProof& proof) {
  const BlockPlan& plan = proof.plan;
  if (!plan.square_warps) return;
  const bool squares =
      plan.layout.lanes % kSquareLanes == 0 && plan.layout.groups % kSquareGroups == 0 && plan.layout.threads() == plan.threads;
  if (plan.cluster != 1 || !squares) return proof.fail("warps cannot be squares");
  for (const BlockOp& op : plan.ops) {
    if (op.reduces_columns() || op.divided >= 0 || op.ahead > 0 || op.fused || op.warp_lead >= 0)
      proof.fail("{}: results of lanes meet where warps are squares", op.op.name);
  }
}

void prove_products(BlockProof& proof) {
  prove_squares(proof);
  for (const OpSite& site : proof.sites) {
    if (proof.op(site.op).product) ProductProver(proof, site).run();
  }
}

}  // namespace nestor::nvptx
