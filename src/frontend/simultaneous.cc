// Orders tuple components; breaks circles by snapshots.
#include "frontend/simultaneous.h"

#include <isl/map.h>

#include <algorithm>

#include "poly/isl/isl_tools.h"

namespace nestor {
namespace {

isl::map anonymous(const isl::map& relation) { return isl::manage(isl_map_reset_tuple_id(relation.copy(), isl_dim_in)); }

/// True when an instance of `reader` reads, by its read `k`, the element that the same instance of `writer` overwrites.
bool conflicts(const StatementDraft& reader, std::size_t k, const StatementDraft& writer) {
  if (reader.reads[k].tensor != writer.tensor) return false;
  const isl::map read = anonymous(reader.read_relation(k).intersect_domain(reader.base));
  const isl::map write = anonymous(writer.write.intersect_domain(writer.base));
  return !read.intersect(write).is_empty();
}

bool conflicts(const StatementDraft& reader, const StatementDraft& writer) {
  for (std::size_t k = 0; k < reader.reads.size(); ++k) {
    if (conflicts(reader, k, writer)) return true;
  }
  return false;
}

/// `function` of one statement's instances as one of another's with the same dims.
isl::pw_aff moved(const isl::pw_aff& function, const StatementDraft& to) {
  return isl::manage(isl_pw_aff_set_tuple_id(function.copy(), isl_dim_in, isl_set_get_tuple_id(to.universe.get())));
}

isl::set moved(const isl::set& set, const StatementDraft& to) {
  return isl::manage(isl_set_set_tuple_id(set.copy(), isl_set_get_tuple_id(to.universe.get())));
}

/// Saves what `reader` reads by its read `k` from the element that `writer` overwrites, and lets it read the copy.
StatementDraft take_snapshot(StatementDraft& reader, std::size_t k, const StatementDraft& writer, std::vector<TensorRef>& tensors,
                             NameTable& tensor_names, NameTable& statement_names) {
  const auto source = std::find_if(tensors.begin(), tensors.end(), [&](const TensorRef& t) { return t.name == writer.tensor; });
  const TensorRef copy{tensor_names.take(writer.tensor + "_old"), source->type, source->boolean};
  const std::string name = statement_names.take(copy.name);
  const isl::set universe = isl::manage(isl_set_set_tuple_name(reader.universe.copy(), name.c_str()));
  const auto renamed = [&](const isl::map& relation) {
    const isl::map from = isl::manage(isl_map_set_tuple_name(relation.copy(), isl_dim_in, name.c_str()));
    return isl::map(isl::manage(isl_map_set_tuple_name(from.copy(), isl_dim_out, copy.name.c_str())));
  };
  StatementDraft snapshot(universe, renamed(writer.write));
  snapshot.name = name;
  snapshot.dims = reader.dims;
  snapshot.tensor = copy.name;
  snapshot.pure_part = renamed(writer.pure_part);
  snapshot.base = moved(reader.base.intersect(reader.reads[k].guard), snapshot);
  ReadDraft read{writer.tensor, {}, universe};
  for (const isl::pw_aff& index : reader.reads[k].index) read.index.push_back(moved(index, snapshot));
  snapshot.reads.push_back(read);
  snapshot.value = ScalarExpr::read(0, copy.type);
  tensors.push_back(copy);
  reader.reads[k].tensor = copy.name;
  reader.reads[k].index.clear();
  for (const isl::pw_aff& index : functions_of(writer.write)) reader.reads[k].index.push_back(moved(index, reader));
  return snapshot;
}

}  // namespace

void order_simultaneous(std::vector<StatementDraft>& components, std::vector<TensorRef>& tensors, NameTable& tensor_names,
                        NameTable& statement_names) {
  std::vector<StatementDraft> snapshots;
  std::vector<StatementDraft> ordered;
  std::vector<StatementDraft> waiting = components;
  while (!waiting.empty()) {
    const auto overwritten_too_early = [&](const StatementDraft& writer) {
      return std::any_of(waiting.begin(), waiting.end(),
                         [&](const StatementDraft& reader) { return reader.name != writer.name && conflicts(reader, writer); });
    };
    auto next = std::find_if_not(waiting.begin(), waiting.end(), overwritten_too_early);
    if (next == waiting.end()) {
      next = waiting.begin();
      for (auto reader = waiting.begin() + 1; reader != waiting.end(); ++reader) {
        for (std::size_t k = 0; k < reader->reads.size(); ++k) {
          if (!conflicts(*reader, k, *next)) continue;
          snapshots.push_back(take_snapshot(*reader, k, *next, tensors, tensor_names, statement_names));
        }
      }
    }
    ordered.push_back(*next);
    waiting.erase(next);
  }
  components = snapshots;
  components.insert(components.end(), ordered.begin(), ordered.end());
}

}  // namespace nestor
