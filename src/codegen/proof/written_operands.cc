// Operands that code multiplies by 0 beside an op's points: they must hold values there.
#include "codegen/proof/model/outcome.h"
#include "codegen/proof/model/written.h"
#include "codegen/proof/obligations.h"

#include <fmt/format.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>

namespace nestor::proof {
namespace {

/// { [loops] -> [place] } that the op's code may read by `access`, however its tiles are cut: indices that follow loops alone are as they
/// are, the others anywhere in the buffer.
isl::map reach(const ProgramModel& model, const Run& run, const OpMember& member, const TileAccess& access) {
  const std::vector<OpDim>& dims = member.op->dims;
  isl_map* places = with_first_dims(model.place(member, access).intersect_domain(member.executed), run.depth()).release();
  for (std::size_t k = 0; k < access.index.size(); ++k) {
    const bool moves = std::any_of(dims.begin(), dims.end(), [&](const OpDim& dim) { return access.index[k].uses(dim.var); });
    if (moves) places = isl_map_eliminate(places, isl_dim_out, static_cast<unsigned>(k), 1);
  }
  return isl::manage(places).intersect_range(whole_buffer(model, member, access.buffer));
}

bool prove_written_for(const ProgramModel& model, const Run& run, const std::string& tensor) {
  bool computed = false;
  for (const OpMember& member : run.members) {
    for (const TileAccess& access : member.op->reads) {
      const Buffer& buffer = model.buffer(access.buffer);
      if (buffer.tensor != tensor || holds_input(buffer)) continue;
      computed = true;
      if (unwritten_before(model, run, access.buffer, reach(model, run, member, access)).is_empty()) continue;
      throw OpenObligation(
          fmt::format("{} multiplies elements of {} by 0 that need not have been written before", title(run), tensor));
    }
  }
  return computed;
}

}  // namespace

bool prove_written(const ProgramModel& model, const std::vector<ZeroedOperand>& operands) {
  bool computed = false;
  for (const ZeroedOperand& operand : operands) {
    bool found = false;
    for (const Run& run : model.runs()) {
      if (run.name != operand.op || run.part != OpPart::points) continue;
      found = true;
      computed = prove_written_for(model, run, operand.tensor) || computed;
    }
    if (!found)
      throw OpenObligation(
          fmt::format("op {} multiplies elements of {} by 0 and is none of the program's", operand.op, operand.tensor));
  }
  return computed;
}

}  // namespace nestor::proof
