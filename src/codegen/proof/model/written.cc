// Writers that come before a reader, place by place.
#include "codegen/proof/model/written.h"

#include "codegen/proof/model/time_order.h"

#include <fmt/format.h>
#include <isl/map.h>
#include <isl/set.h>

namespace nestor::proof {

bool holds_input(const Buffer& buffer) { return buffer.memory == Memory::argument && buffer.role == TensorRole::input; }

isl::set whole_buffer(const ProgramModel& model, const OpMember& member, int buffer) {
  const std::vector<IntExpr>& extents = model.buffer(buffer).extents;
  std::vector<std::string> places;
  for (std::size_t k = 0; k < extents.size(); ++k) places.push_back(fmt::format("place {}", k));
  const IntSpace space(places, isl::manage(isl_set_params(member.space->universe().release())));
  isl::set inside = space.universe();
  for (std::size_t k = 0; k < extents.size(); ++k) {
    const IntExpr place = IntExpr::variable(places[k]);
    inside = inside.intersect(space.at_least(place, IntExpr(0))).intersect(space.at_least(extents[k] - IntExpr(1), place));
  }
  return inside.intersect_params(model.context());
}

isl::map unwritten_before(const ProgramModel& model, const Run& reader, int buffer, const isl::map& wanted) {
  isl::map rest = wanted;
  for (const Run& writer : model.runs()) {
    if (writer.op().write.buffer != buffer) continue;
    const std::size_t shared = shared_loops(writer, reader);
    if (shared < model.buffer(buffer).scope.size() || writer.positions[shared] >= reader.positions[shared]) continue;
    for (const OpMember& member : writer.members) {
      const isl::set& points = writer.part == OpPart::fill ? member.executed : member.instances;
      const isl::map written = with_first_dims(model.place(member, member.op->write).intersect_domain(points), shared);
      rest = rest.subtract(isl::manage(isl_map_insert_dims(written.copy(), isl_dim_in, static_cast<unsigned>(shared),
                                                           static_cast<unsigned>(reader.depth() - shared))));
    }
  }
  return rest;
}

}  // namespace nestor::proof
