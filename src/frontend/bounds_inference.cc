// Walks from consumers to producers; within a Func, from what is read of it back to the definitions that provide it.
#include "frontend/bounds_inference.h"

#include <isl/constraint.h>
#include <isl/flow.h>
#include <isl/map.h>
#include <isl/set.h>
#include <isl/union_map.h>

#include <algorithm>

#include "poly/isl/context.h"
#include "poly/isl/isl_tools.h"
#include "support/error.h"

namespace nestor {
namespace {

/// Reads of a Func's own elements converge in two rounds, because pure variables keep their position in them; a definition
/// that needs more than this reads itself in a way that Halide does not allow.
constexpr int kMostRounds = 8;

/// How hard a set is to loop over: constraints and existential variables of its parts.
int complexity(const isl::set& set) {
  int total = 0;
  set.coalesce().foreach_basic_set([&](const isl::basic_set& part) {
    const isl::basic_set plain = isl::manage(isl_basic_set_remove_redundancies(part.copy()));
    isl_constraint_list* constraints = isl_basic_set_get_constraint_list(plain.get());
    total += static_cast<int>(isl_constraint_list_n_constraint(constraints));
    total += static_cast<int>(isl_basic_set_dim(plain.get(), isl_dim_div));
    isl_constraint_list_free(constraints);
  });
  return total;
}

/// `smaller`, a part of `domain`, unless it is the same or harder to loop over: the corners of a border are not worth four more
/// bounds.
isl::set simpler(const isl::set& domain, const isl::set& smaller) {
  const isl::set part = smaller.coalesce();
  if (domain.n_basic_set() > 1 && domain.is_subset(part)) return domain;
  const bool few_pieces = part.n_basic_set() <= std::max(1U, domain.coalesce().n_basic_set());
  return few_pieces && complexity(part) <= complexity(domain) ? part : domain;
}

class Inference {
 public:
  Inference(std::vector<FuncDraft>& funcs, const isl::set& context, const std::map<std::string, isl::set>& outputs)
      : funcs_(funcs), context_(context), outputs_(outputs), needed_(outputs) {}

  std::map<std::string, isl::set> run() {
    for (auto func = funcs_.rbegin(); func != funcs_.rend(); ++func) visit(*func);
    for (const FuncDraft& func : funcs_) {
      for (const StatementDraft& statement : func.statements) {
        need(statement.tensor, statement.write.intersect_domain(statement.domain).range());
      }
    }
    return needed_;
  }

 private:
  bool is_own(const FuncDraft& func, const std::string& tensor) const {
    for (const TensorRef& own : func.tensors) {
      if (own.name == tensor) return true;
    }
    return false;
  }

  /// Adds to what is needed of a tensor; true when that is news.
  bool need(const std::string& tensor, const isl::set& part) {
    const auto found = needed_.find(tensor);
    if (found == needed_.end()) {
      needed_.emplace(tensor, part);
      return !part.is_empty();
    }
    if (part.is_subset(found->second)) return false;
    found->second = found->second.unite(part).coalesce();
    return true;
  }

  void visit(FuncDraft& func) {
    for (const StatementDraft& statement : func.statements) {
      need(statement.tensor, isl::set::empty(statement.write.range().space()));
    }
    const std::map<std::string, isl::set> asked = needed_;
    grow(func);
    check_outputs(func);
    for (StatementDraft& statement : func.statements) {
      // A reduction must stay within what its tensor's first definition covers; an assignment may write more than is needed.
      const isl::set useful =
          statement.domain.intersect(needed_.at(statement.tensor).apply(statement.write.reverse())).coalesce();
      statement.domain = statement.reduction ? useful : simpler(statement.domain, useful);
    }
    drop_overwritten(func, asked);
    for (StatementDraft& statement : func.statements) {
      for (std::size_t k = 0; k < statement.reads.size(); ++k) {
        need(statement.reads[k].tensor, statement.read_relation(k).intersect_domain(statement.domain).range());
      }
      statement.domain = statement.domain.coalesce().gist_params(context_);
    }
  }

  /// Domains from the pure positions of what is needed, until the Func's reads of itself need nothing more.
  void grow(FuncDraft& func) {
    for (int round = 0; round < kMostRounds; ++round) {
      bool grown = false;
      for (StatementDraft& statement : func.statements) {
        const isl::set wanted = needed_.at(statement.tensor).apply(statement.pure_part.reverse());
        statement.domain = statement.base.intersect(wanted).intersect_params(context_).coalesce();
        for (std::size_t k = 0; k < statement.reads.size(); ++k) {
          if (!is_own(func, statement.reads[k].tensor)) continue;
          const isl::map relation = statement.read_relation(k).intersect_domain(statement.domain);
          grown = need(statement.reads[k].tensor, relation.range()) || grown;
        }
      }
      if (!grown) return;
    }
    user_error("Func '{}': what it reads of itself has no bound", func.statements.front().tensor);
  }

  void check_outputs(const FuncDraft& func) const {
    for (const TensorRef& tensor : func.tensors) {
      const auto output = outputs_.find(tensor.name);
      if (output == outputs_.end()) continue;
      isl::set written = isl::set::empty(output->second.space());
      for (const StatementDraft& statement : func.statements) {
        if (statement.tensor != tensor.name) continue;
        written = written.unite(statement.write.intersect_domain(statement.domain).range());
      }
      const isl::set box = output->second.intersect_params(context_);
      const isl::set outside = written.subtract(box);
      if (!outside.is_empty()) {
        user_error("Func '{}': its updates write outside its output box, at {}", tensor.name, isl_text(outside.coalesce()));
      }
      const isl::set missing = box.subtract(written);
      if (!missing.is_empty()) {
        user_error("Func '{}': a part of its output box is never written: {}", tensor.name, isl_text(missing.coalesce()));
      }
      const isl::set beyond = needed_.at(tensor.name).subtract(box);
      if (!beyond.is_empty()) {
        user_error("Func '{}': elements outside its output box are read, at {}", tensor.name, isl_text(beyond.coalesce()));
      }
    }
  }

  /// Removes instances whose value is overwritten before anyone reads it, where what remains is no harder to describe.
  void drop_overwritten(FuncDraft& func, const std::map<std::string, isl::set>& asked) const {
    if (func.statements.size() < 2) return;
    try {
      with_isl_budget("finding values that are never read", [&] { keep_read(func, asked); });
    } catch (const UserError&) {
      // Too hard within the budget: the larger domains are right as well.
    }
  }

  void keep_read(FuncDraft& func, const std::map<std::string, isl::set>& asked) const {
    const isl::union_set sources = flow_sources(func, asked);
    for (StatementDraft& statement : func.statements) {
      const isl::set read = sources.extract_set(statement.universe.space()).intersect(statement.domain);
      statement.domain = simpler(statement.domain, read);
    }
  }

  /// Instances whose value some instance of the Func, or a consumer after it, reads.
  isl::union_set flow_sources(const FuncDraft& func, const std::map<std::string, isl::set>& asked) const {
    std::size_t depth = 0;
    for (const StatementDraft& statement : func.statements) {
      depth = std::max({depth, statement.dims.size(), static_cast<std::size_t>(statement.write.range_tuple_dim())});
    }
    isl::union_map writes = isl::manage(isl_union_map_empty(isl_set_get_space(context_.get())));
    isl::union_map reads = writes;
    isl::union_map order = writes;
    const auto place = [&](const isl::set& instances, int group, int position) {
      order = order.unite(schedule_of(instances, group, depth, position).to_union_map());
    };
    int position = 0;
    for (const StatementDraft& statement : func.statements) {
      const isl::map write = statement.write.intersect_domain(statement.domain);
      writes = writes.unite(write.to_union_map());
      if (statement.reduction) reads = reads.unite(write.to_union_map());
      for (std::size_t k = 0; k < statement.reads.size(); ++k) {
        if (!is_own(func, statement.reads[k].tensor)) continue;
        reads = reads.unite(statement.read_relation(k).intersect_domain(statement.domain).to_union_map());
      }
      place(statement.universe, statement.group, position++);
    }
    for (const TensorRef& tensor : func.tensors) {
      const auto wanted = asked.find(tensor.name);
      if (wanted == asked.end()) continue;
      const isl::map same = isl::manage(isl_set_identity(wanted->second.copy()));
      const isl::map consumer = same.set_domain_tuple("consumers of " + tensor.name);
      reads = reads.unite(consumer.to_union_map());
      place(consumer.domain(), func.statements.back().group + 1, 0);
    }
    isl_union_access_info* info = isl_union_access_info_from_sink(reads.copy());
    info = isl_union_access_info_set_must_source(info, writes.copy());
    info = isl_union_access_info_set_schedule_map(info, order.copy());
    isl_union_flow* flow = isl_union_access_info_compute_flow(info);
    const isl::union_map values = isl::manage(isl_union_flow_get_may_dependence(flow));
    isl_union_flow_free(flow);
    return values.domain();
  }

  /// { S[dims] -> [group, dims, 0, ..., position] }.
  static isl::map schedule_of(const isl::set& instances, int group, std::size_t depth, int position) {
    const unsigned dims = instances.tuple_dim();
    isl_space* space = isl_space_map_from_set(isl_set_get_space(instances.get()));
    space = isl_space_drop_dims(isl_space_reset_tuple_id(space, isl_dim_out), isl_dim_out, 0, dims);
    const unsigned length = static_cast<unsigned>(depth) + 2;
    isl_map* map = isl_map_universe(isl_space_add_dims(space, isl_dim_out, length));
    map = isl_map_fix_si(map, isl_dim_out, 0, group);
    for (unsigned k = 0; k + 2 < length; ++k) {
      map = k < dims ? isl_map_equate(map, isl_dim_in, k, isl_dim_out, k + 1) : isl_map_fix_si(map, isl_dim_out, k + 1, 0);
    }
    return isl::manage(isl_map_fix_si(map, isl_dim_out, length - 1, position));
  }

  std::vector<FuncDraft>& funcs_;
  const isl::set& context_;
  const std::map<std::string, isl::set>& outputs_;
  std::map<std::string, isl::set> needed_;
};

}  // namespace

std::map<std::string, isl::set> infer_bounds(std::vector<FuncDraft>& funcs, const isl::set& context,
                                             const std::map<std::string, isl::set>& outputs) {
  return Inference(funcs, context, outputs).run();
}

}  // namespace nestor
