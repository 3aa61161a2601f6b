// Products of a nest and the sizes in the extents of their operands; rows of arguments.
#include "autotune/space/gpu/known_sizes.h"

#include "autotune/space/structure/axes.h"
#include "autotune/space/structure/rule_steps.h"
#include "autotune/space/window_points.h"
#include "codegen/tile/contraction.h"
#include "poly/algebra/all_rules.h"
#include "poly/algebra/operands/half_products.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/whole_function.h"
#include "support/tensor_view.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace nestor {
namespace {

constexpr std::int64_t kShortRow = 64;       ///< elements at most: two for each thread of a warp
constexpr std::int64_t kShortBytes = 256;    ///< of a row: half of a warp's vectors
constexpr std::int64_t kLongRow = 1 << 15;   ///< in the registers of a block
constexpr std::int64_t kShortSide = 256;     ///< a vector for each thread of a warp
constexpr std::int64_t kShortColumn = 32;    ///< in the registers of a thread
constexpr std::int64_t kSmallArgument = 8;   ///< of the largest argument's elements: rows of what is smaller matter little
constexpr std::int64_t kMostOfStep = 4096;   ///< elements of a temporary that a block keeps through a step
constexpr std::int64_t kMostWeights = 4096;  ///< of rows of weights that a block keeps for what sums them up
constexpr double kManyProducts = 1 << 27;    ///< that parts in memory may be worth
constexpr std::int64_t kMostDepth = 512;     ///< elements of a row that a block keeps beside tiles of what it is multiplied with

bool is_half_input(const Nest& nest, const Access& access) {
  const Tensor& tensor = nest.tensor(access.tensor);
  return tensor.role == TensorRole::input && size_in_bytes(tensor.type) == 2;
}

bool follows(const Access& access, int dim) {
  const auto dims = followed_dims(access);
  return std::find(dims.begin(), dims.end(), std::optional(dim)) != dims.end();
}

/// Adds the sizes in the extents of an operand along the dims that `wanted` names.
template <class Wanted>
void add_sizes(const Nest& nest, const Access& operand, const Wanted& wanted, std::set<std::string>& sizes) {
  const Tensor& tensor = nest.tensor(operand.tensor);
  const auto dims = followed_dims(operand);
  for (std::size_t p = 0; p < dims.size(); ++p) {
    if (dims[p] && wanted(*dims[p])) sizes.merge(sizes_in(nest, tensor.shape[p]));
  }
}

/// Is a tensor along one of its dims summed up, or searched for its largest element?
bool is_reduced(const Statement& statement, const Access& read) {
  if (!statement.reduction) return false;
  const auto dims = followed_dims(read);
  return std::any_of(dims.begin(), dims.end(), [&](const auto& dim) { return dim && !follows(statement.write, *dim); });
}

/// The sizes in the extents that a product of matrices sums over, beside a factor that may be stored in 16 bits; none where those are beyond
/// `most`, or the operands have no 16 bits.
std::set<std::string> sizes_of_depth(const Nest& nest, const Statement& statement, const Sizes& sizes, std::int64_t most) {
  std::set<std::string> found;
  const auto product = unscaled_contraction_of(statement);
  for (const auto& [ordinal, beside] : {std::pair(product->a, product->b), std::pair(product->b, product->a)}) {
    const Access &operand = statement.reads[static_cast<std::size_t>(ordinal)],
                 &other = statement.reads[static_cast<std::size_t>(beside)];
    const Tensor& tensor = nest.tensor(operand.tensor);
    const auto dims = followed_dims(operand);
    const std::vector<std::int64_t> shape = shape_at(tensor, sizes);
    std::int64_t depth = 1;
    for (std::size_t p = 0; p < dims.size(); ++p) depth *= dims[p] && !follows(statement.write, *dims[p]) ? shape[p] : 1;
    const bool computed = tensor.type == ElementType::f32 && tensor.role == TensorRole::temporary && is_half_input(nest, other);
    if ((size_in_bytes(tensor.type) != 2 && !computed) || depth > most) return {};
    if (computed) continue;
    add_sizes(nest, operand, [&](int dim) { return !follows(statement.write, dim); }, found);
  }
  return found;
}

/// Sizes of short dims that a sum of an argument runs over where these are several and lie innermost.
std::set<std::string> sizes_of_short_sums(const Nest& nest, const Sizes& sizes) {
  std::set<std::string> found;
  for (const Statement& statement : nest.statements) {
    if (!statement.reduction || multiplies_matrices(statement)) continue;
    for (const Access& read : statement.reads) {
      const Tensor& tensor = nest.tensor(read.tensor);
      if (tensor.role == TensorRole::temporary) continue;
      const auto dims = followed_dims(read);
      const std::vector<std::int64_t> shape = shape_at(tensor, sizes);
      const auto summed = [&](std::size_t p) { return dims[p] && !follows(statement.write, *dims[p]); };
      const bool several = dims.size() > 1 && summed(dims.size() - 1) && summed(dims.size() - 2);
      for (std::size_t p = dims.size(); several && p-- > 0 && summed(p);) {
        if (shape[p] < kShortSide) found.merge(sizes_in(nest, tensor.shape[p]));
      }
    }
  }
  return found;
}

/// Adds what hangs on results of reductions over dims with these sizes in their extents: tensors by name.
void add_made_of_sums(const Nest& nest, const std::set<std::string>& along, std::set<std::string>& made) {
  for (const Statement& statement : nest.statements) {
    const bool sums =
        statement.reduction && std::any_of(statement.reads.begin(), statement.reads.end(), [&](const Access& read) {
          const auto dims = followed_dims(read);
          for (std::size_t p = 0; p < dims.size(); ++p) {
            if (dims[p] && !follows(statement.write, *dims[p]) && sizes_in(nest, nest.tensor(read.tensor).shape[p]) == along)
              return true;
          }
          return false;
        });
    const bool reads = std::any_of(statement.reads.begin(), statement.reads.end(),
                                   [&](const Access& read) { return made.contains(read.tensor); });
    if (sums || reads) made.insert(statement.write.tensor);
  }
}

/// Sizes of short dims of temporaries that are reduced across memory after what they are made of was, by no product (a softmax over some
/// neighbours, for each channel): a block keeps those points for each of its columns. And of short rows, made of a reduction along them,
/// that are added up across memory (how much each part of a mixture has of all points): a block keeps such rows, and its share of the sums.
std::set<std::string> sizes_of_short_columns(const Nest& nest, const Sizes& sizes) {
  std::set<std::string> found;
  for (const Statement& statement : nest.statements) {
    if (!statement.reduction || multiplies_matrices(statement)) continue;
    for (const Access& read : statement.reads) {
      const Tensor& tensor = nest.tensor(read.tensor);
      if (tensor.role != TensorRole::temporary || read.tensor == statement.write.tensor) continue;
      const auto dims = followed_dims(read);
      const std::vector<std::int64_t> shape = shape_at(tensor, sizes);
      if (dims.empty() || !dims.back() || !follows(statement.write, *dims.back())) continue;
      for (std::size_t p = 0; p < dims.size(); ++p) {
        const bool row = p + 1 == dims.size(), added = statement.reduction == ReductionOp::add && is_reduced(statement, read);
        if (!dims[p] || (row ? !added : follows(statement.write, *dims[p]))) continue;
        if (shape[p] > (row ? kShortSide : kShortColumn)) continue;
        const std::set<std::string> along = sizes_in(nest, tensor.shape[p]);
        std::set<std::string> made;
        add_made_of_sums(nest, along, made);
        if (made.contains(read.tensor)) found.insert(along.begin(), along.end());
      }
    }
  }
  return found;
}

/// Is the tensor an operand of a product of matrices?
bool is_multiplied(const Nest& nest, const std::string& tensor) {
  return std::any_of(nest.statements.begin(), nest.statements.end(), [&](const Statement& statement) {
    if (!multiplies_matrices(statement)) return false;
    const auto product = unscaled_contraction_of(statement);
    return statement.reads[static_cast<std::size_t>(product->a)].tensor == tensor ||
           statement.reads[static_cast<std::size_t>(product->b)].tensor == tensor;
  });
}

/// Sizes of rows of weights that stand between a product and a sum over other dims (how much all heads of a group look at a key): what `made`, temporaries
/// that come from products, and sums over its rows make. A block keeps such rows, for all that the sum runs over.
std::set<std::string> sizes_of_kept_weights(const Nest& nest, const Sizes& sizes, const std::set<std::string>& made) {
  std::set<std::string> found;
  for (const Statement& sum : nest.statements) {
    if (sum.reduction != ReductionOp::add || multiplies_matrices(sum)) continue;
    for (const Access& read : sum.reads) {
      const Tensor& weights = nest.tensor(read.tensor);
      if (!made.contains(read.tensor) || weights.role != TensorRole::temporary || is_multiplied(nest, read.tensor)) continue;
      const auto dims = followed_dims(read);
      if (dims.empty() || !dims.back() || !follows(sum.write, *dims.back()) || !is_reduced(sum, read)) continue;
      const std::set<std::string> along = sizes_in(nest, weights.shape.back());
      std::set<std::string> of_rows;
      add_made_of_sums(nest, along, of_rows);
      const bool weighed = std::any_of(nest.statements.begin(), nest.statements.end(), [&](const Statement& writer) {
        if (writer.write.tensor != read.tensor || writer.reduction) return false;
        const auto column = followed_dims(writer.write).back();
        const auto reads_any = [&](const std::set<std::string>& tensors, bool along_rows) {
          return std::any_of(writer.reads.begin(), writer.reads.end(), [&](const Access& each) {
            return tensors.contains(each.tensor) && column && follows(each, *column) == along_rows;
          });
        };
        return reads_any(made, true) && reads_any(of_rows, false);
      });
      if (!weighed) continue;
      const std::vector<std::int64_t> shape = shape_at(weights, sizes);
      std::set<std::string> kept = along;
      std::int64_t elements = shape.back();
      for (std::size_t p = 0; p + 1 < dims.size(); ++p) {
        if (!dims[p] || follows(sum.write, *dims[p])) continue;
        kept.merge(sizes_in(nest, weights.shape[p]));
        elements *= shape[p];
      }
      if (elements <= kMostWeights) found.merge(kept);
    }
  }
  return found;
}

/// Sizes in the innermost extents of arguments of 16 bits with rows that tensor copies cannot take.
std::set<std::string> sizes_of_ragged_rows(const Nest& nest, const Sizes& sizes) {
  std::set<std::string> found;
  for (const Tensor& tensor : nest.tensors) {
    if (tensor.role == TensorRole::temporary || size_in_bytes(tensor.type) != 2 || tensor.shape.size() < 2) continue;
    if (shape_at(tensor, sizes).back() * 2 % kTensorMapAlignment != 0) found.merge(sizes_in(nest, tensor.shape.back()));
  }
  return found;
}

/// Sizes in the extents of 16-bit inputs along what a sum over several dims reduces, if a factor of its terms can become an operand.
std::set<std::string> sizes_of_computed_factors(const Nest& nest) {
  std::set<std::string> found;
  for (const RuleMatch& match : rule(kFactorRule).find(nest)) {
    const Statement& statement = nest.statement(match.target.at(0));
    if (reduced_dims(statement).size() < 2) continue;
    for (const Access& read : statement.reads) {
      if (is_half_input(nest, read)) add_sizes(nest, read, [&](int dim) { return !follows(statement.write, dim); }, found);
    }
  }
  return found;
}

/// Sizes of how many products a sum of integers adds up, which rule integer_product must know, and of the rows that its terms lie in: the block that
/// makes integers of a row keeps it.
std::set<std::string> sizes_of_integer_products(const Nest& nest) {
  std::set<std::string> found;
  for (const Statement& statement : nest.statements) {
    const bool products = statement.reduction == ReductionOp::add && statement.value.op() == ScalarOp::mul &&
                          statement.value.type() == ElementType::i32;
    if (!products || reduced_dims(statement).size() != 1) continue;
    const int reduced = reduced_dims(statement).front();
    found.merge(sizes_in(nest, extent_of(nest, statement.domain, reduced)));
    for (const Access& read : statement.reads) {
      const std::vector<std::set<int>> followed = dims_of_indices(statement, read);
      for (std::size_t p = 0; p < followed.size(); ++p) {
        if (followed[p].contains(reduced)) found.merge(sizes_in(nest, nest.tensor(read.tensor).shape[p]));
      }
    }
  }
  return found;
}

/// Sizes of 16-bit operands of products that rules for their layout must know: of short rows beside others (join_short_rows), and of indices that
/// are more than tensor copies have (gather_rows).
std::set<std::string> sizes_of_layouts(const Nest& nest, const Statement& statement, const Sizes& sizes) {
  constexpr std::size_t kMostIndices = 5;
  std::set<std::string> found;
  const auto product = unscaled_contraction_of(statement);
  for (const auto& [ordinal, beside] : {std::pair(product->a, product->b), std::pair(product->b, product->a)}) {
    const Access &operand = statement.reads[static_cast<std::size_t>(ordinal)],
                 &other = statement.reads[static_cast<std::size_t>(beside)];
    if (!is_half_input(nest, operand)) continue;
    const Tensor& tensor = nest.tensor(operand.tensor);
    const auto dims = followed_dims(operand);
    const std::vector<std::int64_t> shape = shape_at(tensor, sizes);
    const auto is_row = [&](std::size_t p) { return dims[p] && follows(statement.write, *dims[p]) && !follows(other, *dims[p]); };
    std::size_t last = dims.size();  // of rows
    while (last > 0 && !is_row(last - 1)) --last;
    if (last > 1 && is_row(last - 2) && shape[last - 1] <= kMostShortRows) found.merge(sizes_in(nest, tensor.shape[last - 1]));
    // The last two have indices of their own, and known extents need no size.
    std::size_t more = dims.size() - std::min(dims.size(), kMostIndices);
    const auto is_known = [&](std::size_t p) { return sizes_in(nest, tensor.shape[p]).empty(); };
    for (const bool known : {true, false}) {
      for (std::size_t p = dims.size() - std::min<std::size_t>(dims.size(), 2); p-- > 1 && more > 0;) {
        if (is_known(p) != known) continue;
        found.merge(sizes_in(nest, tensor.shape[p]));
        --more;
      }
    }
  }
  return found;
}

/// Sizes behind which parts of rows of 16-bit operands of products start (one input after another along a row of weights, keys behind
/// queries), where tensor copies take such starts: multiples of 16 bytes.
std::set<std::string> sizes_of_starts(const Nest& nest, const Statement& statement, const Sizes& sizes) {
  std::set<std::string> found;
  const auto product = unscaled_contraction_of(statement);
  for (const int ordinal : {product->a, product->b}) {
    const Access& operand = statement.reads[static_cast<std::size_t>(ordinal)];
    if (!is_half_input(nest, operand)) continue;
    const std::set<std::string> before = sizes_in_indices(operand).back();
    if (std::all_of(before.begin(), before.end(), [&](const std::string& size) { return sizes.at(size) % kAlignedHalves == 0; }))
      found.insert(before.begin(), before.end());
  }
  // Sums over other parts of the row have loops of their own where these are of another length.
  if (!found.empty()) found.merge(sizes_of_depth(nest, statement, sizes, std::numeric_limits<std::int64_t>::max()));
  return found;
}

/// Sizes of rows of running sums, which a block has whole.
std::set<std::string> sizes_of_prefixes(const Nest& definition, const Sizes& sizes) {
  const Nest nest = with_rule_everywhere(kLeavingRule, with_rule_everywhere(kPrefixRule, definition));
  std::set<std::string> found;
  for (const Statement& statement : nest.statements) {
    const int dim = prefix_dim(statement);
    if (dim < 0) continue;
    const Tensor& tensor = nest.tensor(statement.write.tensor);
    const auto dims = followed_dims(statement.write);
    const std::vector<std::int64_t> shape = shape_at(tensor, sizes);
    for (std::size_t p = 0; p < dims.size(); ++p) {
      if (dims[p] == dim && shape[p] <= kLongRow) found.merge(sizes_in(nest, tensor.shape[p]));
    }
  }
  return found;
}

/// Sizes of systems in temporaries, which a block has whole: not of the first dim, which numbers them.
std::set<std::string> sizes_of_systems(const Nest& nest, const Sizes& sizes) {
  std::set<std::string> found;
  for (const Statement& statement : nest.statements) {
    const Tensor& tensor = nest.tensor(statement.write.tensor);
    if (tensor.role != TensorRole::temporary || !reads_own_sums(statement)) continue;
    const std::vector<std::int64_t> shape = shape_at(tensor, sizes);
    for (std::size_t p = 1; p < shape.size(); ++p) {
      if (shape[p] <= kShortSide) found.merge(sizes_in(nest, tensor.shape[p]));
    }
  }
  return found;
}

/// Sizes in the extents along which statements of one group read what others of it have written elsewhere, as a step of a recurrence sums
/// over the state before. Empty: they need no more than their own elements.
std::set<std::string> sizes_between(const Nest& nest, const std::vector<const Statement*>& group) {
  std::set<std::string> found;
  for (const Statement* reader : group) {
    for (const Statement* writer : group) {
      const Tensor& tensor = nest.tensor(writer->write.tensor);
      const auto written = followed_dims(writer->write);
      for (const Access& read : reader->reads) {
        const auto dims = read.tensor == tensor.name ? followed_dims(read) : decltype(written){};
        for (std::size_t p = 0; p < dims.size(); ++p) {
          const bool same = dims[p] && dims[p] == written[p] && follows(reader->write, *dims[p]);
          if (!same) found.merge(sizes_in(nest, tensor.shape[p]));
        }
      }
    }
  }
  return found;
}

/// Sizes of rows that a block keeps while definitions read other places of them than their own, as steps of a wavelet do.
std::set<std::string> sizes_of_neighbours(const Nest& nest, const Sizes& sizes) {
  constexpr std::int64_t kFewestRows = 256, kLongestRow = 8192;
  std::set<std::string> found;
  for (const Statement& reader : nest.statements) {
    const auto written = followed_dims(reader.write);
    for (const Access& read : reader.reads) {
      const Tensor& tensor = nest.tensor(read.tensor);
      const auto dims = followed_dims(read);
      if (reader.reduction || tensor.role != TensorRole::temporary || dims.size() < 2 || dims != written) continue;
      const bool summed = std::any_of(nest.statements.begin(), nest.statements.end(), [&](const Statement& writer) {
        return writer.write.tensor == tensor.name && (writer.reduction || writer.group >= reader.group);
      });
      const std::vector<isl::pw_aff> own = functions_on(reader.write.relation, reader.domain),
                                     other = functions_on(read.relation, reader.domain);
      std::size_t same = 0;
      while (same < own.size() && own[same].plain_is_equal(other[same])) ++same;
      const std::vector<std::int64_t> shape = shape_at(tensor, sizes);
      const bool short_rows = shape.back() <= kLongestRow && product_of(shape) >= kFewestRows * shape.back();
      if (!summed && same + 1 == own.size() && short_rows) found.merge(sizes_in(nest, tensor.shape.back()));
    }
  }
  return found;
}

/// Sizes in the extents along which products of f32 sum over several dims, where these are large enough for products of parts (rule bf16x6).
std::set<std::string> sizes_of_wide_terms(const Nest& nest, const Statement& statement, const Sizes& sizes) {
  const auto product = unscaled_contraction_of(statement);
  std::set<std::string> found;
  double points = 1;
  for (int d = 0; d < static_cast<int>(statement.dims.size()); ++d)
    points *= static_cast<double>(evaluate_at(extent_of(nest, statement.domain, d), sizes));
  for (const int ordinal : {product->a, product->b}) {
    const Access& operand = statement.reads[static_cast<std::size_t>(ordinal)];
    if (nest.tensor(operand.tensor).type != ElementType::f32 || points < kManyProducts) return {};
    add_sizes(nest, operand, [&](int dim) { return !follows(statement.write, dim); }, found);
  }
  return found;
}

/// Sizes in the extents of what a block keeps from statement to statement in a step of a recurrence.
std::set<std::string> sizes_of_steps(const Nest& nest, const Sizes& sizes) {
  std::map<int, std::vector<const Statement*>> groups;
  for (const Statement& statement : nest.statements) groups[statement.group].push_back(&statement);
  std::set<std::string> found;
  for (const auto& [number, statements] : groups) {
    if (statements.size() < 2) continue;
    const std::set<std::string> between = sizes_between(nest, statements);
    for (const Statement* statement : statements) {
      const Tensor& tensor = nest.tensor(statement->write.tensor);
      if (tensor.role != TensorRole::temporary) continue;
      const std::vector<std::int64_t> shape = shape_at(tensor, sizes);
      std::set<std::string> own;
      std::int64_t kept = 1;
      for (std::size_t p = 0; p < shape.size(); ++p) {
        std::set<std::string> in_extent = sizes_in(nest, tensor.shape[p]);
        std::erase_if(in_extent, [&](const std::string& name) { return !between.contains(name); });
        if (in_extent.empty()) continue;
        kept *= shape[p];
        own.merge(in_extent);
      }
      if (kept <= kMostOfStep) found.merge(own);
    }
  }
  return found;
}

std::set<std::string> without_specialized(const Nest& nest, std::set<std::string> sizes) {
  for (const SizeParam& size : nest.sizes) {
    if (size.specialized) sizes.erase(size.name);
  }
  return sizes;
}

}  // namespace

std::set<std::string> sizes_known_to_products(const Nest& definition, const Sizes& sizes) {
  // Sums over taps that are written one by one are sums over several dims.
  const Nest nest = with_rule_everywhere(kRerollingRule, definition);
  std::map<std::string, std::set<std::string>> depths;  // by tensors that come from products: of all of these
  std::set<std::string> made;                           // tensors that come from products
  std::set<std::string> found;
  for (const Statement& statement : nest.statements) {
    std::set<std::string> before;
    for (const Access& read : statement.reads) {
      const auto known = depths.find(read.tensor);
      if (known == depths.end()) continue;
      before.insert(known->second.begin(), known->second.end());
      if (is_reduced(statement, read) && !multiplies_matrices(statement))
        found.insert(known->second.begin(), known->second.end());
    }
    if (multiplies_matrices(statement)) {
      before.merge(sizes_of_depth(nest, statement, sizes, kMostDepth));
      found.merge(sizes_of_layouts(nest, statement, sizes));
      found.merge(sizes_of_starts(nest, statement, sizes));
      // Loops over taps stand around tiles of the innermost terms.
      if (reduced_dims(statement).size() > 1) {
        found.merge(sizes_of_depth(nest, statement, sizes, std::numeric_limits<std::int64_t>::max()));
        found.merge(sizes_of_wide_terms(nest, statement, sizes));
      }
    }
    if (!before.empty()) depths[statement.write.tensor].merge(before);
    const bool comes =
        multiplies_matrices(statement) || std::any_of(statement.reads.begin(), statement.reads.end(),
                                                      [&](const Access& read) { return made.contains(read.tensor); });
    if (comes) made.insert(statement.write.tensor);
  }
  found.merge(sizes_of_kept_weights(nest, sizes, made));
  if (multiplies(nest)) found.merge(sizes_of_ragged_rows(nest, sizes));
  found.merge(sizes_of_computed_factors(nest));
  found.merge(sizes_of_integer_products(nest));
  return without_specialized(nest, std::move(found));
}

std::set<std::string> sizes_of_short_rows(const Nest& definition, const Sizes& sizes) {
  const Nest nest = with_rule_everywhere(kTapsRule, definition);
  std::vector<std::pair<const Tensor*, std::vector<std::int64_t>>> arguments;
  std::int64_t most = 0;
  for (const Tensor& tensor : nest.tensors) {
    if (tensor.role == TensorRole::temporary) continue;
    arguments.emplace_back(&tensor, shape_at(tensor, sizes));
    most = std::max(most, product_of(arguments.back().second));
  }
  const bool products = multiplies(nest);
  std::set<std::string> found = sizes_of_short_sums(nest, sizes);
  found.merge(sizes_of_short_columns(nest, sizes));
  found.merge(sizes_of_windows(nest, sizes));
  found.merge(sizes_of_prefixes(nest, sizes));
  found.merge(sizes_of_systems(nest, sizes));
  found.merge(sizes_of_steps(nest, sizes));
  found.merge(sizes_of_neighbours(nest, sizes));
  for (const auto& [tensor, shape] : arguments) {
    if (shape.size() < 2 || product_of(shape) < most / kSmallArgument) continue;
    const std::int64_t most_of_row =
        products ? kShortRow : std::max(kShortRow, kShortBytes / static_cast<std::int64_t>(size_in_bytes(tensor->type)));
    std::int64_t run = 1;
    for (std::size_t p = shape.size(); p-- > 1 && run < most_of_row && shape[p] <= most_of_row; run *= shape[p])
      found.merge(sizes_in(nest, tensor->shape[p]));
  }
  return without_specialized(nest, std::move(found));
}

void specialize_product_sizes(Nest& nest) {
  std::set<std::string> first, second, kept;
  for (const Statement& statement : nest.statements) {
    const auto product = unscaled_contraction_of(statement);
    if (!product) continue;
    const Access &a = statement.reads[static_cast<std::size_t>(product->a)],
                 &b = statement.reads[static_cast<std::size_t>(product->b)];
    const bool half_a = is_half_input(nest, a), half_b = is_half_input(nest, b);
    if (half_a && half_b) {
      const auto reduced = [&](int dim) { return !follows(statement.write, dim); };
      for (const Access* operand : {&a, &b}) {
        add_sizes(nest, *operand, reduced, first);
        add_sizes(nest, *operand, [&](int dim) { return !reduced(dim); }, kept);
      }
    } else if (half_a != half_b && nest.tensor((half_a ? b : a).tensor).role == TensorRole::temporary) {
      const Access& rows = half_a ? b : a;
      add_sizes(nest, half_a ? a : b, [&](int dim) { return follows(statement.write, dim) && !follows(rows, dim); }, second);
    }
  }
  if (first.empty() || second.empty()) return;
  for (SizeParam& size : nest.sizes) {
    const bool along = first.contains(size.name) || second.contains(size.name);
    size.specialized = size.specialized || (along && !kept.contains(size.name));
  }
}

}  // namespace nestor
