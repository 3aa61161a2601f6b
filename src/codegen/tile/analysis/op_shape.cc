// Roles that the dims of an op can take.
#include "codegen/tile/analysis/op_shape.h"

#include "codegen/tile/analysis/affine.h"

#include <algorithm>
#include <limits>

namespace nestor::nvptx {
namespace {

int last_index_votes(const TileAccess& access, const TileOp& op, int dim, const std::vector<Buffer>& buffers) {
  if (access.index.empty() || access.index.back().coefficient(op.dims[dim].var) != 1) return 0;
  int weight = buffers[access.buffer].memory == Memory::scratch ? 1 : 2;
  for (const OpDim& other : op.dims) {
    if (uses_any(access, other.var) && !single_valued(other)) weight *= 4;  // an access over more dims moves more
  }
  return weight;
}

int column_votes(const TileOp& op, int dim, const std::vector<Buffer>& buffers) {
  int votes = last_index_votes(op.write, op, dim, buffers);
  for (const TileAccess& read : op.reads) votes += last_index_votes(read, op, dim, buffers);
  return votes;
}

/// Does the last index that uses either variable use the first one alone? Indices behind it, as that of a part, are the same for both.
bool runs_along(const TileAccess& access, const std::string& var, const std::string& other) {
  const auto last = std::find_if(access.index.rbegin(), access.index.rend(),
                                 [&](const IntExpr& index) { return index.uses(var) || index.uses(other); });
  return last != access.index.rend() && last->coefficient(var) == 1 && !last->uses(other);
}

struct ProductDims {
  std::vector<int> rows, columns, ks, batch;
  int a = -1, b = -1;
};

std::optional<ProductDims> classify(const TileOp& op, int a, int b) {
  ProductDims dims;
  dims.a = a;
  dims.b = b;
  for (int d = 0; d < static_cast<int>(op.dims.size()); ++d) {
    if (bounds_use_other_dims(op, op.dims[d])) return std::nullopt;
    if (single_valued(op.dims[d])) continue;
    const bool in_a = uses_any(op.reads[dims.a], op.dims[d].var), in_b = uses_any(op.reads[dims.b], op.dims[d].var);
    if (op.dims[d].reduced) {
      if (!in_a || !in_b) return std::nullopt;
      dims.ks.push_back(d);
    } else if (!op.dims[d].parallel) {
      return std::nullopt;
    } else {
      (in_a == in_b ? dims.batch : in_a ? dims.rows : dims.columns).push_back(d);
    }
  }
  if (dims.rows.empty() || dims.columns.empty() || dims.ks.empty()) return std::nullopt;
  // The innermost of each kind is tiled; C is stored along its columns, so that the operands may have to change places.
  if (runs_along(op.write, op.dims[dims.rows.back()].var, op.dims[dims.columns.back()].var)) {
    std::swap(dims.rows, dims.columns);
    std::swap(dims.a, dims.b);
  }
  return dims;
}

std::optional<ProductDims> classify(const TileOp& op) {
  if (!op.contraction || op.contraction->scale != 1 || op.reads.size() != 2) return std::nullopt;
  return classify(op, op.contraction->a, op.contraction->b);
}

/// Does it sum f32 terms of reads, each f32 or widened to it, that are 0 where all of these are?
bool sums_plain_terms(const TileOp& op) {
  if (op.kind != OpKind::reduce || op.reduction != ReductionOp::add || op.value.type() != ElementType::f32) return false;
  bool plain = true;
  wide_term(op.value).visit([&](const ScalarExpr& e) {
    const bool other = e.op() == ScalarOp::index || e.op() == ScalarOp::scalar;
    if (other || (e.op() == ScalarOp::read && e.type() != ElementType::f32)) plain = false;
  });
  const auto zero = [](int) { return 0.0; };
  return plain && evaluate(op.value, zero, {}, {}) == 0;
}

/// The two reads of a sum of such terms that change along dims of its results; nullopt where there are not two.
std::optional<std::pair<int, int>> operands_of_terms(const TileOp& op) {
  if (!sums_plain_terms(op)) return std::nullopt;
  std::vector<int> operands;
  for (int k = 0; k < static_cast<int>(op.reads.size()); ++k) {
    const bool changes = std::any_of(op.dims.begin(), op.dims.end(), [&](const OpDim& dim) {
      return !dim.reduced && !single_valued(dim) && uses_any(op.reads[k], dim.var);
    });
    if (changes) operands.push_back(k);
  }
  if (operands.size() != 2 || (op.reads.size() > 2 && op.guard.defined())) return std::nullopt;
  if (!op.value.reads(operands[0]) || !op.value.reads(operands[1])) return std::nullopt;
  return std::pair(operands[0], operands[1]);
}

/// The longest dim of a sum that threads may share although it runs across rows of memory, as nothing else of the op could be shared; -1: there
/// is none of a warp's length.
int longest_sum(const TileOp& op, const std::vector<bool>& spreadable) {
  constexpr std::int64_t kWarp = 32;
  int longest = -1;
  std::int64_t most = kWarp - 1;
  for (std::size_t d = 0; d < op.dims.size(); ++d) {
    const std::int64_t extent = extent_bound(op.dims[d]).value_or(std::numeric_limits<std::int64_t>::max());
    if (!spreadable[d] || !op.dims[d].reduced || single_valued(op.dims[d]) || extent <= most) continue;
    longest = static_cast<int>(d);
    most = extent;
  }
  return longest;
}

/// Where lanes would share a window's few taps: the dim of results that the window slides along, so that lanes have neighbouring results in place of
/// parts of one; -1: there is none as long.
int sliding_column(const TileOp& op, int taps, const std::vector<Buffer>& buffers, const std::vector<bool>& spreadable) {
  constexpr std::int64_t kMostTaps = 16;
  const std::optional<std::int64_t> few = exact_extent(op.dims[static_cast<std::size_t>(taps)]);
  if (!few || *few > kMostTaps) return -1;
  int found = -1;
  for (int d = 0; d < static_cast<int>(op.dims.size()); ++d) {
    const OpDim& dim = op.dims[static_cast<std::size_t>(d)];
    if (!spreadable[static_cast<std::size_t>(d)] || dim.reduced || extent_bound(dim).value_or(0) < kMostTaps ||
        column_votes(op, d, buffers) == 0)
      continue;
    const bool slides = std::any_of(op.reads.begin(), op.reads.end(), [&](const TileAccess& read) {
      return !read.index.empty() && read.index.back().coefficient(dim.var) == 1 &&
             read.index.back().uses(op.dims[static_cast<std::size_t>(taps)].var);
    });
    if (slides) found = d;
  }
  return found;
}

}  // namespace

ScalarExpr wide_term(const ScalarExpr& term) {
  return term.rewrite([](const ScalarExpr& e) {
    const bool widens = e.op() == ScalarOp::cast && e.type() == ElementType::f32 && e.args()[0].op() == ScalarOp::read;
    if (!widens) return e;
    const ElementType from = e.args()[0].type();
    const bool is_float = from == ElementType::f32 || from == ElementType::f16 || from == ElementType::bf16;
    return is_float ? ScalarExpr::read(e.args()[0].ordinal(), ElementType::f32) : e;
  });
}

std::optional<ProductForm> terms_form(const TileOp& op) {
  const auto operands = operands_of_terms(op);
  if (!operands) return std::nullopt;
  const auto dims = classify(op, operands->first, operands->second);
  if (!dims || dims->columns.size() != 1 || dims->rows.size() != 1 || dims->ks.size() != 1 || !dims->batch.empty())
    return std::nullopt;
  for (const int d : {dims->rows[0], dims->columns[0]}) {
    if (extent_bound(op.dims[d]).value_or(0) < kFewestTerms) return std::nullopt;
  }
  return ProductForm{dims->rows[0], dims->columns[0], dims->ks[0], -1, dims->a, dims->b};
}

bool single_valued(const OpDim& dim) { return exact_extent(dim) == 1; }

bool bounds_use_other_dims(const TileOp& op, const OpDim& dim) {
  return std::any_of(op.dims.begin(), op.dims.end(),
                     [&](const OpDim& other) { return dim.lower.uses(other.var) || dim.upper.uses(other.var); });
}

bool uses_any(const TileAccess& access, const std::string& var) {
  return std::any_of(access.index.begin(), access.index.end(), [&](const IntExpr& index) { return index.uses(var); });
}

std::vector<bool> spreadable_dims(const TileOp& op) {
  std::vector<bool> result;
  bool sequential_seen = false;
  for (const OpDim& dim : op.dims) {
    const bool own_reduction = dim.reduced && (op.kind == OpKind::reduce || op.kind == OpKind::contract);
    const bool free = (dim.parallel && !dim.reduced) || own_reduction;
    if (op.kind == OpKind::points && !free && !single_valued(dim)) sequential_seen = true;
    result.push_back(free && !sequential_seen && !bounds_use_other_dims(op, dim));
  }
  return result;
}

int choose_column(const TileOp& op, const std::vector<Buffer>& buffers, const std::vector<bool>& spreadable) {
  int best = -1, best_votes = -1;
  bool sequential = false;  // then a thread keeps its reductions to itself: others may be at another iteration
  for (std::size_t d = 0; d < op.dims.size(); ++d)
    sequential = sequential || (!spreadable[d] && !op.dims[d].reduced && !single_valued(op.dims[d]));
  for (int d = 0; d < static_cast<int>(op.dims.size()); ++d) {
    if (!spreadable[d] || single_valued(op.dims[d])) continue;
    int votes = column_votes(op, d, buffers);
    if (op.dims[d].kind == LoopKind::gpu_lane) votes += 1 << 20;
    if (op.dims[d].reduced && (votes == 0 || sequential)) continue;  // a sum across rows of memory stays in its thread
    if (votes >= best_votes) {
      best = d;
      best_votes = votes;
    }
  }
  if (best < 0 && !sequential) best = longest_sum(op, spreadable);
  if (best >= 0 && op.dims[best].reduced) {
    if (const int results = sliding_column(op, best, buffers, spreadable); results >= 0) return results;
  }
  return best;
}

std::optional<ProductForm> product_form(const TileOp& op, bool packs) {
  const auto dims = classify(op);
  if (!dims || dims->columns.size() != 1 || dims->ks.size() != 1 || !dims->batch.empty()) return std::nullopt;
  const bool packed = packs && dims->rows.size() == 2;
  if (dims->rows.size() != 1 && !packed) return std::nullopt;
  return ProductForm{dims->rows.back(), dims->columns[0], dims->ks[0], packed ? dims->rows[0] : -1, dims->a, dims->b};
}

std::optional<std::vector<int>> product_outer_dims(const TileOp& op) {
  const auto dims = classify(op);
  if (!dims) return std::nullopt;
  if (op.initialize && dims->ks.size() > 1) return std::nullopt;  // an outer k loop would start the sum again
  std::vector<int> outer = dims->batch;
  for (const auto* list : {&dims->rows, &dims->columns, &dims->ks}) outer.insert(outer.end(), list->begin(), list->end() - 1);
  std::sort(outer.begin(), outer.end());
  return outer;
}

int leading_serial_dims(const TileOp& op) {
  if (op.kind != OpKind::points) return 0;
  const auto free = [](const OpDim& dim) { return dim.parallel && !dim.reduced; };
  const auto first = std::find_if(op.dims.begin(), op.dims.end(), free);
  return first == op.dims.end() ? 0 : static_cast<int>(first - op.dims.begin());
}

}  // namespace nestor::nvptx
