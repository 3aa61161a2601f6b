// Rows that tensor copies bring and take lie where products read them, and where stores write them.
#include "codegen/gpu/mma/proof/tensor_proof.h"

namespace nestor::nvptx {
namespace {

const std::string& var_of(const TensorOp& op, int dim) { return op.op.dims[static_cast<std::size_t>(dim)].var; }

/// Does the variable move the index `at` of the access by `stride` elements, and no other one?
bool runs_at(const TileAccess& access, const std::string& var, int at, int stride = 1) {
  for (int p = 0; p < static_cast<int>(access.index.size()); ++p) {
    if (access.index[static_cast<std::size_t>(p)].coefficient(var) != (p == at ? stride : 0)) return false;
  }
  return at >= 0 && at < static_cast<int>(access.index.size());
}

/// An operand with the dim `free` and terms: one of the two is dense in memory, the other one runs over the rows of the tile.
void check_operand_rows(TensorProof& proof, const TensorOp& op, int ring_number, const TileAccess& access, int free,
                        bool by_free) {
  const CircularBuffer& ring = proof.ring(ring_number);
  const int dense = static_cast<int>(access.index.size()) - 1;
  const std::string &rows = var_of(op, by_free ? op.form.k : free), &columns = var_of(op, by_free ? free : op.form.k);
  if (ring.row_index == dense || !runs_at(access, rows, ring.row_index, ring.row_stride) || !runs_at(access, columns, dense))
    proof.fail("{} does not hold rows and columns as {} reads them", proof.name(ring_number), op.op.name);
}

/// Those of rows and columns along one index each: others are compared with what copies write (tensor_check_values.cc).
void check_stored_rows(TensorProof& proof, const TensorOp& op) {
  if (op.joined_rows.period + op.joined_columns.period > 0) return;
  const TileAccess& access = op.op.write;
  const int dense = static_cast<int>(access.index.size()) - 1;
  const bool packs = op.pack >= 0 ? op.pack_index != op.row_index && op.pack_index != dense &&
                                        runs_at(access, var_of(op, op.pack), op.pack_index)
                                  : op.pack_index < 0;
  if (!packs || op.row_index == dense || !runs_at(access, var_of(op, op.row), op.row_index) ||
      !runs_at(access, var_of(op, op.column), dense))
    proof.fail("{} does not write its rows where tensor copies put them", op.op.name);
}

}  // namespace

void prove_rows(TensorProof& proof) {
  for (const TensorOp& op : proof.plan.ops) {
    if (op.kind == TensorOp::Kind::store && op.through_shared) check_stored_rows(proof, op);
    if (op.kind != TensorOp::Kind::product) continue;
    check_operand_rows(proof, op, op.b_ring, op.op.reads[static_cast<std::size_t>(op.form.b)], op.form.column, op.b_by_column);
    if (op.a_ring >= 0)
      check_operand_rows(proof, op, op.a_ring, op.op.reads[static_cast<std::size_t>(op.form.a)], op.form.row, op.a_by_row);
  }
}

}  // namespace nestor::nvptx
