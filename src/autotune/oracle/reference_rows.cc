// Points that are evaluated a row at once, and what one element needs.
#include "autotune/oracle/reference.h"

#include "poly/nest/scalar_semantics.h"
#include "support/element_codec.h"
#include "support/error.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

namespace nestor {

std::array<std::int64_t, 64> coordinates_of(std::int64_t linear, const std::vector<std::int64_t>& strides) {
  std::array<std::int64_t, 64> found{};
  for (std::size_t d = 0; d < strides.size(); ++d) {
    found[d] = linear / strides[d];
    linear %= strides[d];
  }
  return found;
}

namespace {

/// Step from one of some elements to the next, by dim; nothing where they are not a straight row.
std::optional<std::vector<std::int64_t>> step_of(const std::int64_t* linear, int count,
                                                 const std::vector<std::int64_t>& strides) {
  std::vector<std::int64_t> steps(strides.size());
  if (count == 1) return steps;
  for (int k = 1; k < count; ++k) {
    if (linear[k] != linear[0] + k * (linear[1] - linear[0])) return std::nullopt;
  }
  const auto first = coordinates_of(linear[0], strides), second = coordinates_of(linear[1], strides),
             last = coordinates_of(linear[count - 1], strides);
  for (std::size_t d = 0; d < strides.size(); ++d) {
    steps[d] = second[d] - first[d];
    if (last[d] != first[d] + (count - 1) * steps[d]) return std::nullopt;
  }
  return steps;
}

constexpr double kFewTerms = 8;        ///< of a sum whose elements are evaluated as points are
constexpr double kWorthKeeping = 128;  ///< elementary evaluations, beyond which a temporary of one point is remembered
/// A cheap one is remembered, too, where so many points read it, of a tensor that has no more elements.
constexpr double kOftenRead = 8;
constexpr std::int64_t kMostKept = std::int64_t{1} << 24;
constexpr std::size_t kMostLookedAt = std::size_t{1} << 18;  ///< chunks of points of one element, for what they need

}  // namespace

/// Of the statement that writes an element last: of a sum of a few terms with all of them.
double Reference::cost_of_element(int statement) const {
  const CompiledStatement& code = statements_[statement];
  const double terms =
      code.reduction ? code.points / static_cast<double>(std::max<std::int64_t>(stores_[code.write.tensor].elements, 1)) : 1;
  return terms > 1 && terms <= kFewTerms ? terms * code.expanded : code.expanded;
}

void Reference::set_expanded_costs() {
  std::vector<double> reads(stores_.size());
  for (CompiledStatement& code : statements_) {
    code.expanded = 1 + static_cast<double>(code.value.size());
    for (const CompiledAccess& read : code.reads) {
      reads[read.tensor] += code.points;
      for (const int writer : stores_[read.tensor].writers) {
        if (statements_[writer].group < code.group) code.expanded += cost_of_element(writer);
      }
    }
  }
  for (std::size_t s = 0; s < statements_.size(); ++s) {
    CompiledStatement& code = statements_[s];
    const Store& written = stores_[code.write.tensor];
    const bool often = reads[code.write.tensor] >= kOftenRead * static_cast<double>(written.elements);
    code.remembered = cost_of_element(static_cast<int>(s)) > kWorthKeeping || (often && written.elements <= kMostKept);
  }
}

Reference::Makers Reference::makers_of(int tensor, int version) {
  const std::vector<int>& writers = stores_[tensor].writers;
  if (version < 1 || version > 2 || statements_[writers[0]].reduction || element_loops(writers[0]).instance.empty()) return {};
  if (version == 1) return {writers[0], -1};
  return element_loops(writers[1]).terms.empty() ? Makers{} : Makers{writers[0], writers[1]};
}

/// Whether elements of a row are remembered: all of them, which are then in `row`, some or none.
Reference::Known Reference::recall_row(int tensor, int version, const Row& row) {
  const Store& store = stores_[tensor];
  const LazyDoubles& values = version_of(tensor, version);
  const int known =
      static_cast<int>(std::count_if(row.linear, row.linear + row.count, [&](std::int64_t k) { return values.known(k); }));
  if (known < row.count) return known > 0 ? Known::some : Known::none;
  const LazyDoubles& errors = errors_of(tensor, version);
  for (int k = 0; k < row.count; ++k) {
    const double value = values.get(row.linear[k]);
    row.values[k] = store.sums_16_bits ? round_to(store.type, value) : value;
    row.errors[k] = errors.get(row.linear[k]);
  }
  return Known::all;
}

namespace {

/// The instance of the first element of a row, and its steps.
template <class Points>
Points points_of(const std::vector<DimFunction>& instance, const std::array<std::int64_t, 64>& first,
                 const std::vector<std::int64_t>& steps) {
  Points points;
  points.strides.resize(instance.size());
  for (std::size_t k = 0; k < instance.size(); ++k) {
    points.dims[k] = instance[k].at(first.data());
    for (std::size_t d = 0; d < steps.size(); ++d) points.strides[k] += instance[k].factors[d] * steps[d];
  }
  return points;
}

}  // namespace

Reference::Chunk Reference::evaluate_points(int statement, const Points& points, int count) {
  spend(statement, count);
  return evaluate_chunk(statement, points.dims.data(), points.strides, count, false);
}

/// Values and errors of elements in a row that are made at single points, or are sums of a few, all at once. Cheap ones that few points
/// read are evaluated anew each time, since that takes less than memory. False where elements are not such.
bool Reference::compute_row(int tensor, int version, const Row& row) {
  const Store& store = stores_[tensor];
  if (row.linear[0] < 0 || row.linear[row.count - 1] < 0) return false;  // -1: the read does not exist
  const Makers makers = makers_of(tensor, version);
  if (makers.start < 0) return false;
  const auto steps = step_of(row.linear, row.count, store.strides);
  if (!steps) return false;
  const bool remembered = statements_[makers.last()].remembered;
  if (remembered) {
    const Known known = recall_row(tensor, version, row);
    if (known == Known::all) return true;
    if (known == Known::some && cost_of_element(makers.last()) > kWorthKeeping) return false;
  }
  const auto first = coordinates_of(row.linear[0], store.strides);
  const bool same = std::all_of(steps->begin(), steps->end(), [](std::int64_t step) { return step == 0; });
  const int count = same ? 1 : row.count;
  const ElementType type = statements_[makers.start].type;
  const Chunk started =
      evaluate_points(makers.start, points_of<Points>(element_loops(makers.start).instance, first, *steps), count);
  std::array<ErrorSum, kChunk> errors;
  for (int k = 0; k < count; ++k) {
    row.values[k] = semantics::stored_value(store.type, type, started.values[k]);
    errors[k].start(row.values[k], started.errors[k]);
  }
  if (makers.sum >= 0) {
    const CompiledStatement& sum = statements_[makers.sum];
    for (const std::vector<DimFunction>& term : element_loops(makers.sum).terms) {
      const Chunk chunk = evaluate_points(makers.sum, points_of<Points>(term, first, *steps), count);
      ErrorSum::add_each(errors.data(), *sum.reduction, store.type, {sum.type, chunk.values, chunk.errors, chunk.operands, count},
                         row.values);
    }
  }
  for (int k = 0; k < row.count; ++k) {
    if (same && k > 0) {
      row.values[k] = row.values[0];
      row.errors[k] = row.errors[0];
      continue;
    }
    row.errors[k] = errors[k].error(row.values[k], store.narrow, store.orders, store.share);
    if (remembered) remember(tensor, version, row.linear[k], row.values[k], row.errors[k]);
    if (store.sums_16_bits) row.values[k] = round_to(store.type, row.values[k]);
  }
  return true;
}

void Reference::remember(int tensor, int version, std::int64_t linear, double value, double error) {
  errors_of(tensor, version).set(linear, error);  // first: whoever knows the value, in another process, reads its error
  version_of(tensor, version).set(linear, value);
}

/// Tables that forked processes see, too: of elements as each writer leaves them, or, for the `whole` evaluation, as the last one does, with
/// their sums. False: there is no memory for some of them.
bool Reference::share_tables(bool whole) {
  shared_ = true;
  try {
    for (std::size_t tensor = 0; tensor < stores_.size(); ++tensor) {
      const int last = static_cast<int>(stores_[tensor].writers.size());
      for (int version = whole ? std::max(last, 1) : 1; version <= last; ++version) {
        version_of(static_cast<int>(tensor), version);
        errors_of(static_cast<int>(tensor), version);
      }
      if (whole && stores_[tensor].reduced) stores_[tensor].sums = ZeroPages<ErrorSum>(stores_[tensor].elements, true);
    }
  } catch (const UserError&) {
    shared_ = false;  // what is computed is right, and not seen by others
  }
  return shared_;
}

bool Reference::share_elements() {
  prepare_elements();
  return share_tables(false);
}

Reference::Element Reference::final_element(const std::string& tensor, std::int64_t linear) const {
  const int index = store_index_.at(tensor);
  return {index, static_cast<int>(stores_[index].writers.size()), linear};
}

bool Reference::known(const Element& element) { return version_of(element.tensor, element.version).known(element.linear); }

bool Reference::compute_within(const Element& element, double most) {
  limit_ = spent_ + most;
  try {
    if (!known(element)) compute(element.tensor, element.version, element.linear);
    return true;
  } catch (const UserError&) {
    depth_ = 0;
    return false;
  }
}

namespace {

/// Each once, in order.
void make_unique(std::vector<Reference::Element>& elements) {
  if (!std::is_sorted(elements.begin(), elements.end())) std::sort(elements.begin(), elements.end());
  elements.erase(std::unique(elements.begin(), elements.end()), elements.end());
}

struct EnoughFound {};

}  // namespace

const std::vector<Reference::NeededRead>& Reference::needed_reads(int statement) {
  if (const auto known = needed_reads_.find(statement); known != needed_reads_.end()) return known->second;
  std::vector<NeededRead> found;
  for (const CompiledAccess& read : statements_[statement].reads) {
    if (stores_[read.tensor].input) continue;
    NeededRead& each = found.emplace_back(NeededRead{static_cast<int>(&read - statements_[statement].reads.data())});
    each.version = version_seen(statement, read.tensor);
    each.makers = makers_of(read.tensor, each.version);
    each.direct = each.makers.start < 0 || cost_of_element(each.makers.last()) > kWorthKeeping;
    // Cheap points of inputs alone need nothing else: there may be millions of them.
    const auto of_inputs = [&](int maker) { return maker < 0 || needed_reads(maker).empty(); };
    if (!each.direct && of_inputs(each.makers.start) && of_inputs(each.makers.sum)) found.pop_back();
  }
  return needed_reads_.emplace(statement, std::move(found)).first->second;
}

bool Reference::needs_others(const Element& element) {
  const std::vector<int>& writers = stores_[element.tensor].writers;
  return std::any_of(writers.begin(), writers.begin() + element.version,
                     [&](int writer) { return !needed_reads(writer).empty(); });
}

void Reference::add_needed(int statement, const std::int64_t* dims, std::vector<Element>& found) {
  for (const NeededRead& each : needed_reads(statement)) {
    const CompiledAccess& read = statements_[statement].reads[static_cast<std::size_t>(each.read)];
    const Store& store = stores_[read.tensor];
    if (read.guard && !read.guard->evaluate(dims)) continue;
    const Element element{read.tensor, each.version, read.at(dims, store.strides)};
    if (known(element)) continue;
    if (each.direct) {
      if (found.empty() || found.back() != element) found.push_back(element);
      continue;
    }
    const auto at = coordinates_of(element.linear, store.strides);
    const auto add = [&](int maker, const std::vector<DimFunction>& instance) {
      std::array<std::int64_t, 16> inner{};
      for (std::size_t k = 0; k < instance.size(); ++k) inner[k] = instance[k].at(at.data());
      add_needed(maker, inner.data(), found);
    };
    add(each.makers.start, element_loops(each.makers.start).instance);
    if (each.makers.sum < 0) continue;
    for (const std::vector<DimFunction>& term : element_loops(each.makers.sum).terms) add(each.makers.sum, term);
  }
}

Reference::Needed Reference::needed(const Element& element, std::size_t most, std::size_t& chunks) {
  std::vector<Element> found;
  bool complete = true;
  std::size_t passed = 0, looked_at = 0;
  const double spent = spent_;
  limit_ = std::numeric_limits<double>::infinity();
  const Sink sink = [&](int statement, const std::int64_t* dims, const std::vector<std::int64_t>& strides, int count) {
    if (passed < chunks) {
      ++passed;
      return;
    }
    passed = ++chunks;
    const CompiledStatement& code = statements_[statement];
    const bool inputs_alone = needed_reads(statement).empty();
    std::array<std::int64_t, 16> point{};
    for (int k = 0; k < count && !inputs_alone; ++k) {
      for (int d = 0; d < code.dims; ++d) point[d] = dims[d] + k * (strides.empty() ? 0 : strides[d]);
      add_needed(statement, point.data(), found);
    }
    if (found.size() > 2 * most) make_unique(found);
    if (found.size() > most || ++looked_at > kMostLookedAt) throw EnoughFound{};
  };
  try {
    for (int k = 0; k < element.version; ++k) {
      const ElementLoops& loops = element_loops(stores_[element.tensor].writers[k]);
      auto frame = coordinates_of(element.linear, stores_[element.tensor].strides);
      walk(loops.code, frame.data(), sink);
    }
  } catch (const EnoughFound&) {
    complete = false;
  }
  spent_ = spent;
  make_unique(found);
  return {std::move(found), complete};
}

std::vector<Reference::Element> Reference::remembered_tensors() {
  std::map<int, std::set<Element>> by_writer;  // the last one that makes it
  for (int statement = 0; statement < static_cast<int>(statements_.size()); ++statement) {
    for (const NeededRead& each : needed_reads(statement)) {
      const int tensor = statements_[statement].reads[static_cast<std::size_t>(each.read)].tensor;
      const Store& store = stores_[tensor];
      if (each.direct && each.version > 0 && store.elements > 0)
        by_writer[store.writers[static_cast<std::size_t>(each.version) - 1]].insert({tensor, each.version, store.elements - 1});
    }
  }
  std::vector<Element> all;
  for (const auto& [writer, elements] : by_writer) all.insert(all.end(), elements.begin(), elements.end());
  return all;
}

}  // namespace nestor
