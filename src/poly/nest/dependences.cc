// Memory based dependences by plain relation algebra: compositions of accesses, cut down to the original order.
#include "poly/nest/dependences.h"

#include <fmt/format.h>
#include <isl/map.h>

#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

/// An access of a statement instance; `accumulator` marks the two that a reduction makes to the element it writes.
struct InstanceAccess {
  const std::string* tensor;
  isl::map relation;  ///< { Statement -> Tensor }, on the statement's domain
  bool write;
  bool accumulator;
};

std::vector<InstanceAccess> touches_of(const Statement& statement, const isl::set& domain) {
  std::vector<InstanceAccess> touches;
  const bool accumulates = statement.reduction.has_value();
  const isl::map write = statement.write.relation.intersect_domain(domain);
  touches.push_back({&statement.write.tensor, write, true, accumulates});
  if (accumulates) touches.push_back({&statement.write.tensor, write, false, true});
  for (const Access& read : statement.reads) {
    touches.push_back({&read.tensor, read.relation.intersect_domain(domain), false, false});
  }
  return touches;
}

DependenceKind kind_of(const InstanceAccess& source, const InstanceAccess& sink) {
  if (source.write) return sink.write ? DependenceKind::output : DependenceKind::flow;
  return DependenceKind::anti;
}

/// Collects the relations of one pair of statements, one entry for each (tensor, kind, reduction).
class PairCollector {
 public:
  PairCollector(const Statement& source, const Statement& sink) : source_(source), sink_(sink) {}

  void add(const InstanceAccess& from, const InstanceAccess& to, const isl::map& relation) {
    const bool own = &source_ == &sink_ && from.accumulator && to.accumulator;
    const DependenceKind kind = own ? DependenceKind::flow : kind_of(from, to);
    for (Dependence& found : found_) {
      if (found.kind == kind && found.tensor == *from.tensor && found.reduction == own) {
        found.relation = found.relation.unite(relation);
        return;
      }
    }
    found_.push_back({kind, source_.name, sink_.name, *from.tensor, relation, own});
  }

  /// Appends the entries, flow first; pairs that a flow entry orders already are not repeated.
  void append_to(std::vector<Dependence>& all) {
    for (const DependenceKind kind : {DependenceKind::flow, DependenceKind::anti, DependenceKind::output}) {
      for (Dependence& entry : found_) {
        if (entry.kind != kind || ordered_by_flow(entry)) continue;
        entry.relation = entry.relation.coalesce();
        all.push_back(entry);
      }
    }
  }

 private:
  bool ordered_by_flow(const Dependence& entry) const {
    if (entry.kind == DependenceKind::flow) return false;
    for (const Dependence& flow : found_) {
      if (flow.kind == DependenceKind::flow && flow.tensor == entry.tensor && !flow.reduction &&
          entry.relation.is_subset(flow.relation)) {
        return true;
      }
    }
    return false;
  }

  const Statement& source_;
  const Statement& sink_;
  std::vector<Dependence> found_;
};

void collect_pair(const Nest& nest, const Statement& source, const std::vector<InstanceAccess>& from, const Statement& sink,
                  const std::vector<InstanceAccess>& to, std::vector<Dependence>& all) {
  const isl::map order = original_order(nest, source.name, sink.name);
  PairCollector pairs(source, sink);
  for (const InstanceAccess& a : from) {
    for (const InstanceAccess& b : to) {
      if ((!a.write && !b.write) || *a.tensor != *b.tensor) continue;
      // The second pairing of one accumulator with itself would only repeat the first.
      if (&source == &sink && a.accumulator && b.accumulator && !(a.write && !b.write)) continue;
      const isl::map relation = a.relation.apply_range(b.relation.reverse()).intersect(order);
      if (!relation.is_empty()) pairs.add(a, b, relation);
    }
  }
  pairs.append_to(all);
}

}  // namespace

std::string_view to_string(DependenceKind kind) {
  switch (kind) {
    case DependenceKind::flow:
      return "flow";
    case DependenceKind::anti:
      return "anti";
    case DependenceKind::output:
      return "output";
  }
  return "flow";
}

std::vector<Dependence> compute_dependences(const Nest& nest) {
  std::vector<Dependence> all;
  with_isl_budget("the dependences of " + nest.op, [&] {
    std::vector<std::vector<InstanceAccess>> touches;
    touches.reserve(nest.statements.size());
    for (const Statement& statement : nest.statements) {
      touches.push_back(touches_of(statement, statement.domain.intersect_params(nest.context)));
    }
    for (std::size_t source = 0; source < nest.statements.size(); ++source) {
      for (std::size_t sink = 0; sink < nest.statements.size(); ++sink) {
        const Statement& a = nest.statements[source];
        const Statement& b = nest.statements[sink];
        if (sink < source && a.group != b.group) continue;
        collect_pair(nest, a, touches[source], b, touches[sink], all);
      }
    }
  });
  return all;
}

std::string describe(const Dependence& dependence) {
  const auto tuple = [&](isl_dim_type type, const std::string& name) {
    std::string text = name + "[";
    const auto count = static_cast<unsigned>(isl_map_dim(dependence.relation.get(), type));
    for (unsigned k = 0; k < count; ++k) {
      const char* dim = isl_map_get_dim_name(dependence.relation.get(), type, k);
      text += fmt::format("{}{}", k > 0 ? ", " : "", dim != nullptr ? std::string(dim) : fmt::format("i{}", k));
    }
    return text + "]";
  };
  return fmt::format("{}: {} -> {} through {}{}", to_string(dependence.kind), tuple(isl_dim_in, dependence.source),
                     tuple(isl_dim_out, dependence.sink), dependence.tensor, dependence.reduction ? " (reduction)" : "");
}

}  // namespace nestor
