// Registers: which element a thread's slot holds, by every access to a tile, and whether all threads that hold it wrote it.
#include "codegen/gpu/simt/proof/block_proof.h"

#include <map>
#include <set>

namespace nestor::nvptx {
namespace {

/// How an access gives elements to slots: each index is the position of a row, of the column, or one number.
struct SlotMap {
  std::vector<Affine> index;          ///< over kRow + number and kColumn; those of extent 1 left out
  std::vector<std::int64_t> radices;  ///< extents of the rows but the first
  bool by_row = false, by_column = false;
  Layout layout;
  bool operator==(const SlotMap& other) const = default;
};

constexpr const char* kRow = "row ";
constexpr const char* kColumn = "column";

class RegisterProver {
 public:
  RegisterProver(BlockProof& proof, int buffer, const Placement& place) : proof_(proof), buffer_(buffer), place_(place) {}

  void run() {
    for (const OpSite& site : proof_.sites) {
      const BlockOp& op = proof_.op(site.op);
      if (op.op.write.buffer == buffer_) visit(op, op.op.write, true);
      for (const TileAccess& read : op.op.reads) {
        if (read.buffer == buffer_) visit(op, read, false);
      }
    }
  }

 private:
  const std::string& name() const { return proof_.plan.buffer(buffer_).name; }

  void visit(const BlockOp& op, const TileAccess& access, bool writes) {
    if (op.product && !writes) return proof_.fail("{} reads its operand {} in registers", op.op.name, name());
    const std::optional<SlotMap> map = map_of(op, access);
    if (!map) return;
    if (!first_) first_ = map;
    if (!(*map == *first_))
      return proof_.fail("{} finds other elements of {} in a thread's registers than {} does", op.op.name, name(), first_op_);
    if (first_op_.empty()) first_op_ = op.op.name;
    if (map->by_row != place_.by_row || map->by_column != place_.by_column)
      return proof_.fail("{}: the slots of {} do not follow its rows and columns", op.op.name, name());
    if (writes) writes_all(op, *map);
    slots(op, *map);
  }

  /// Nothing when an index is something else, which is reported.
  std::optional<SlotMap> map_of(const BlockOp& op, const TileAccess& access) {
    SlotMap map;
    std::set<std::string> seen;
    const Buffer& buffer = proof_.plan.buffer(buffer_);
    for (std::size_t k = 0; k < access.index.size(); ++k) {
      if (buffer.extents[k].is_constant(1)) continue;
      const Affine index = position(op, access.index[k]);
      const bool token = index.constant == 0 && index.terms.size() == 1 && index.terms.begin()->second == 1 &&
                         (index.terms.begin()->first == kColumn || index.terms.begin()->first.starts_with(kRow));
      if (!token || !seen.insert(index.terms.begin()->first).second) {
        proof_.fail("{}: index {} of {} in registers is no row or column of its own", op.op.name, access.index[k].str(), name());
        return std::nullopt;
      }
      map.index.push_back(index);
    }
    map.by_column = seen.count(kColumn) != 0;
    const std::size_t rows = seen.size() - (map.by_column ? 1 : 0);
    map.by_row = rows > 0;
    // A number by itself is in all threads, whatever share of other things they have.
    if (map.by_row || map.by_column) map.layout = op.layout;
    // Which rows are a thread's does not hang on how wide its pieces of columns are.
    if (!map.by_column) map.layout.vector = 1;
    if (map.by_row && rows != op.rows.size()) {
      proof_.fail("{}: {} in registers does not tell all rows apart", op.op.name, name());
      return std::nullopt;
    }
    for (std::size_t k = 1; map.by_row && k < op.rows.size(); ++k)
      map.radices.push_back(extent_bound(proof_.dim(op, op.rows[k])).value_or(-1));
    return map;
  }

  static Affine position(const BlockOp& op, const IntExpr& index) {
    IntExpr expr = index;
    for (int d = static_cast<int>(op.op.dims.size()) - 1; d >= 0; --d) {
      const OpDim& dim = op.op.dims[d];
      const auto row = std::find(op.rows.begin(), op.rows.end(), d);
      if (d == op.column) {
        expr = expr.substitute(dim.var, dim.lower + IntExpr::variable(kColumn));
      } else if (row != op.rows.end()) {
        expr = expr.substitute(dim.var, dim.lower + IntExpr::variable(kRow + std::to_string(row - op.rows.begin())));
      } else if (has_one_value(dim)) {
        expr = expr.substitute(dim.var, dim.lower);
      }
    }
    return affine_of(expr);
  }

  /// The op has one value for each element, and gives it to all threads that hold it.
  void writes_all(const BlockOp& op, const SlotMap& map) {
    const bool kept_column = op.column >= 0 && !proof_.dim(op, op.column).reduced;
    if (map.by_row != !op.rows.empty() || map.by_column != kept_column)
      proof_.fail("{}: several of its points write one element of {} in registers", op.op.name, name());
  }

  void slots(const BlockOp& op, const SlotMap& map) {
    const auto rows = op.row_bound(), columns = op.column_bound();
    const std::int64_t chunk = std::int64_t{op.layout.lanes} * op.layout.vector;
    if (place_.row_slots < 1 || place_.column_slots < 1) return proof_.fail("{} has no slots in registers", name());
    if (map.by_row && (!rows || slots_of(op, *rows) > place_.row_slots))
      return proof_.fail("{}: {} has {} slots for its rows in registers, too few", op.op.name, name(), place_.row_slots);
    if (map.by_column &&
        (!columns || ceil_div(std::max<std::int64_t>(*columns, 1), chunk) * op.layout.vector > place_.column_slots))
      return proof_.fail("{}: {} has {} slots for its columns in registers, too few", op.op.name, name(), place_.column_slots);
    // Slots are known when code is made: only of rows and columns that are written out one by one.
    const bool products = op.product.has_value();
    if (map.by_row && !products && !op.unroll_rows && slots_of(op, *rows) > 1)
      proof_.fail("{}: rows of {} in registers share a slot", op.op.name, name());
    if (map.by_column && !products && !op.unroll_columns && *columns > chunk)
      proof_.fail("{}: columns of {} in registers share a slot", op.op.name, name());
  }

  BlockProof& proof_;
  int buffer_;
  const Placement& place_;
  std::optional<SlotMap> first_;
  std::string first_op_;
};

}  // namespace

void prove_registers(BlockProof& proof) {
  for (const auto& [buffer, place] : proof.plan.placements) {
    if (proof.plan.buffer(buffer).memory != Memory::scratch) proof.fail("{} is placed on chip", proof.plan.buffer(buffer).name);
    if (place.kind == Placement::Kind::registers) RegisterProver(proof, buffer, place).run();
    if (place.kind == Placement::Kind::shared && proof.plan.cluster > 1)
      proof.fail("{} is shared by the blocks of a cluster", proof.plan.buffer(buffer).name);
  }
  for (const BlockOp& op : proof.plan.ops) {
    const auto placed = [&](const TileAccess& access) {
      const Placement* place = proof.plan.placement(access.buffer);
      const bool scratch = proof.plan.buffer(access.buffer).memory == Memory::scratch;
      if (scratch && (place == nullptr || place->kind == Placement::Kind::global))
        proof.fail("{} has no place on chip", proof.name(access));
    };
    placed(op.op.write);
    for (const TileAccess& read : op.op.reads) placed(read);
  }
}

}  // namespace nestor::nvptx
