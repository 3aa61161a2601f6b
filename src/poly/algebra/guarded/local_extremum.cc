// Rule "local_extremum": sums of exponentials relative to an extremum of several reductions take that of their own terms.
//
// Pattern    t_e = max(m_e, n_e, ..), elementwise, with m_e = max_j a_ej and n_e = max_k b_ek, and sums r = sum_j exp(c (a_j - t)) g_j, through
//            elementwise temporaries or not: one softmax over several sources. Minima likewise.
// Rewrite    r' = sum_j exp(c (a_j - m)) g_j, and who reads r reads r' w with w_e = exp(c (m_e - t_e)). What a source needs stands together.
// Conditions t and m are temporaries of f32; m has points, and t alone reads it; every m meets one t. All statements that read t in such terms
//            become homogeneous in exp(c (a - m)) (analyse_online); nothing but those sums reads the terms; sums are temporaries of f32 that
//            elementwise definitions read once they are complete. Each tensor is complete before others read it.
// Proof      exp(c (a - t)) = exp(c (a - m)) exp(c (m - t)), and the distributive law. It is how parts of a softmax are combined: M. Milakov,
//            N. Gimelshein, 2018, §3.1; Flash-Decoding, 2023. Where a row's a_j may all be -inf, terms see m kept finite (finite_lead.h): they
//            are 0 then, as exp(-inf - t) is, and 0 g_j is NaN where the definition's is. w = exp(c (m - t)) is made of m itself.
// Rounding   About 2 ulp relative, as for one move of rule online. Terms are at most 1, and so is w.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <set>

#include "poly/algebra/analysis/finite_lead.h"
#include "poly/algebra/analysis/online_plan.h"
#include "poly/algebra/rules/online.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/builders.h"
#include "poly/algebra/values/nest_edit.h"

namespace nestor {
namespace {

constexpr const char* kName = "local_extremum";

/// One of the reductions that meet, and what becomes relative to it.
struct Source {
  std::string lead;                ///< m = max_j a_j
  isl::map elements;               ///< { meeting -> m }, one to one
  std::vector<std::string> terms;  ///< statements that read m in place of t
  OnlinePlan plan;                 ///< of the lead then
};

bool is_f32_temporary(const Nest& nest, const std::string& tensor) {
  return nest.tensor(tensor).role == TensorRole::temporary && nest.tensor(tensor).type == ElementType::f32;
}

/// Values of nested maxima (or minima) that are read, by ordinal.
void collect_met(const ScalarExpr& expr, ScalarOp op, std::set<int>& met) {
  if (expr.op() == ScalarOp::read) met.insert(expr.ordinal());
  if (expr.op() != op) return;
  for (const ScalarExpr& arg : expr.args()) collect_met(arg, op, met);
}

/// The reduction that makes what the meeting reads, if its extremum is of the same kind and of no use to others.
const Statement* lead_of(const Nest& nest, const Statement& meeting, const Access& read) {
  const ReductionOp op = meeting.value.op() == ScalarOp::max ? ReductionOp::max : ReductionOp::min;
  if (!is_f32_temporary(nest, read.tensor)) return nullptr;
  for (const Statement* lead : writers_of(nest, read.tensor)) {
    if (lead->reduction != op || initialisers_of(nest, *lead).empty() || !always_has_points(nest, *lead)) continue;
    const std::vector<const Statement*> readers = readers_of(nest, read.tensor);
    const bool alone = std::all_of(readers.begin(), readers.end(), [&](const Statement* reader) {
      return reader->name == meeting.name || reader->name == lead->name;
    });
    if (alone) return lead;
  }
  return nullptr;
}

/// Lets a reader of the meeting's result read the source's extremum instead.
void read_source(Nest& nest, const std::string& reader, const Statement& meeting, const Source& source) {
  Statement statement = nest.statement(reader);
  const isl::map to_source =
      meeting.write.relation.intersect_domain(domain_in(nest, meeting)).reverse().apply_range(source.elements);
  for (Access& read : statement.reads) {
    if (read.tensor != meeting.write.tensor) continue;
    const isl::map relation = read.relation.intersect_domain(domain_in(nest, statement)).apply_range(to_source);
    read = {nest.statement(source.lead).write.tensor, relation.gist_domain(statement.domain).coalesce()};
  }
  replace_statement(nest, statement);
}

/// Lets a term see the source's extremum kept finite.
void keep_finite(Nest& nest, const std::string& term, const Source& source) {
  Statement statement = nest.statement(term);
  const Statement& lead = nest.statement(source.lead);
  statement.value = statement.value.rewrite([&](const ScalarExpr& node) {
    const bool is_lead = node.op() == ScalarOp::read && statement.reads.at(node.ordinal()).tensor == lead.write.tensor;
    return is_lead ? finite_lead(source.plan, *lead.reduction, node) : node;
  });
  replace_statement(nest, statement);
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool takes_part(const OnlinePlan& plan, const std::string& statement) {
  return contains(plan.mediators, statement) || contains(plan.followers, statement);
}

/// Why what the source's plan consists of is of use to others.
std::string objection_to_plan(const Nest& nest, const Source& source) {
  for (const std::string& term : source.terms) {
    if (!takes_part(source.plan, term)) return fmt::format("no sum needs {} alone", term);
  }
  for (const std::string& mediator : source.plan.mediators) {
    const std::string& tensor = nest.statement(mediator).write.tensor;
    if (nest.tensor(tensor).role != TensorRole::temporary) return fmt::format("{} is a result itself", tensor);
    for (const Statement* reader : readers_of(nest, tensor)) {
      if (!takes_part(source.plan, reader->name)) return fmt::format("{} is read by {} as well", tensor, reader->name);
    }
  }
  for (const std::string& follower : source.plan.followers) {
    const Statement& sum = nest.statement(follower);
    if (!is_f32_temporary(nest, sum.write.tensor)) return fmt::format("{} is no temporary of f32", sum.write.tensor);
    for (const Statement* reader : readers_of(nest, sum.write.tensor)) {
      if (reader->name == follower) continue;
      if (reader->reduction) return fmt::format("{} sums up {}", reader->name, sum.write.tensor);
      if (reader->group <= sum.group) return fmt::format("{} reads {} before it is complete", reader->name, sum.write.tensor);
    }
  }
  return "";
}

/// The source with its terms and plan; nullopt where it has none, or `why`.
std::optional<Source> source_of(const Nest& nest, const Statement& meeting, int ordinal, std::string& why) {
  const Access& read = meeting.reads.at(ordinal);
  const Statement* lead = lead_of(nest, meeting, read);
  if (lead == nullptr) return std::nullopt;
  Source source{lead->name, read.relation.intersect_domain(domain_in(nest, meeting)), {}, {}};
  if (!source.elements.is_injective()) return std::nullopt;
  Nest trial = nest;
  for (const Statement* reader : readers_of(nest, meeting.write.tensor)) {
    Nest more = trial;
    read_source(more, reader->name, meeting, source);
    const auto plan = analyse_online(more, source.lead, &why);
    if (!plan || !plan->degree.contains(reader->name)) continue;
    source.terms.push_back(reader->name);
    source.plan = *plan;
    trial = std::move(more);
  }
  if (source.terms.empty()) return std::nullopt;
  const std::string objection = objection_to_plan(trial, source);
  if (!objection.empty()) why = objection;
  return objection.empty() ? std::optional(std::move(source)) : std::nullopt;
}

/// Is each tensor complete before others read it? Then statements may stand in any order in which this holds.
bool writes_before_reads(const Nest& nest) {
  for (std::size_t reader = 0; reader < nest.statements.size(); ++reader) {
    for (const Access& read : nest.statements[reader].reads) {
      for (const Statement* writer : writers_of(nest, read.tensor)) {
        if (position_of(nest, writer->name) > reader) return false;
      }
    }
  }
  return true;
}

std::vector<Source> sources_of(const Nest& nest, const Statement& meeting, std::string& why) {
  const bool extremum = meeting.value.op() == ScalarOp::max || meeting.value.op() == ScalarOp::min;
  why = "it is no maximum or minimum of several reductions";
  if (meeting.reduction || !extremum) return {};
  std::set<int> met;
  collect_met(meeting.value, meeting.value.op(), met);
  if (met.size() < 2) return {};
  const std::string& tensor = meeting.write.tensor;
  if (!is_elementwise_temporary(nest, tensor) || !is_f32_temporary(nest, tensor) || !alone_in_group(nest, meeting.name)) {
    why = fmt::format("{} is no temporary of f32 with one definition", tensor);
    return {};
  }
  std::vector<Source> sources;
  for (const int ordinal : met) {
    if (auto source = source_of(nest, meeting, ordinal, why)) sources.push_back(*std::move(source));
  }
  if (!sources.empty() && !writes_before_reads(nest)) {
    why = "some tensor is written again after it was read";
    return {};
  }
  return sources;
}

/// w = exp(c (m - t)), for all elements of the meeting; returns the tensor's name.
std::string add_weight(Nest& nest, const Statement& meeting, const Source& source, const std::string& follower) {
  const Statement& lead = nest.statement(source.lead);
  const std::string name = fresh_name(nest, lead.write.tensor + "_weight");
  Tensor storage = nest.tensor(meeting.write.tensor);
  storage.name = name;
  nest.tensors.push_back(storage);
  Statement weight = renamed(meeting, name);
  const isl::map met = weight.write.relation;
  weight.write = {name, met.set_range_tuple(name)};
  const isl::map elements = with_domain_tuple(source.elements, name).gist_domain(weight.domain).coalesce();
  const auto read = [&](const std::string& tensor, const isl::map& relation) {
    return ScalarExpr::read(add_read(weight, {tensor, relation}), ElementType::f32);
  };
  const ScalarExpr own = read(lead.write.tensor, elements), all = read(meeting.write.tensor, met);
  weight.value = final_factor(source.plan, follower, own, all);
  compact(weight);
  insert_statement(nest, group_end(nest, meeting.name), weight);
  return name;
}

/// Whoever reads the follower's sums, which are relative to the source's extremum, multiplies them.
void weigh_sums(Nest& nest, const Statement& meeting, const Source& source, const std::string& follower,
                const std::string& weight) {
  const std::string tensor = nest.statement(follower).write.tensor;
  const isl::map to_weight = source.plan.lead_elements.at(follower)
                                 .apply_range(source.elements.reverse())
                                 .apply_range(meeting.write.relation.set_range_tuple(weight));
  std::vector<std::string> readers;
  for (const Statement* reader : readers_of(nest, tensor)) readers.push_back(reader->name);
  for (const std::string& name : readers) {
    if (name == follower) continue;
    Statement reader = nest.statement(name);
    const isl::set domain = domain_in(nest, reader);
    const std::vector<Access> reads = reader.reads;
    reader.value = reader.value.rewrite([&](const ScalarExpr& node) {
      if (node.op() != ScalarOp::read || reads.at(node.ordinal()).tensor != tensor) return node;
      const isl::map elements = reads[node.ordinal()].relation.intersect_domain(domain);
      const isl::map seen = elements.apply_range(to_weight).gist_domain(reader.domain).coalesce();
      return build::mul(node, ScalarExpr::read(add_read(reader, {weight, seen}), ElementType::f32));
    });
    compact(reader);
    replace_statement(nest, reader);
  }
}

/// Groups of statements that lead to the follower.
void collect_needed(const Nest& nest, const std::string& tensor, std::set<int>& groups) {
  for (const Statement* writer : writers_of(nest, tensor)) {
    if (!groups.insert(writer->group).second) continue;
    for (const Statement& other : nest.statements) {
      if (other.group != writer->group) continue;
      for (const Access& read : other.reads) collect_needed(nest, read.tensor, groups);
    }
  }
}

/// What leads to the sums of one source after the other, and then all that is left.
void gather_sources(Nest& nest, const std::vector<Source>& sources) {
  std::vector<Statement> ordered;
  std::set<int> placed;
  const auto place = [&](const std::set<int>& groups) {
    for (const Statement& statement : nest.statements) {
      if (groups.contains(statement.group) && !placed.contains(statement.group)) ordered.push_back(statement);
    }
    placed.insert(groups.begin(), groups.end());
  };
  for (const Source& source : sources) {
    std::set<int> groups;
    for (const std::string& follower : source.plan.followers) collect_needed(nest, nest.statement(follower).write.tensor, groups);
    place(groups);
  }
  std::set<int> all;
  for (const Statement& statement : nest.statements) all.insert(statement.group);
  place(all);
  int number = -1, before = -1;
  for (Statement& statement : ordered) {
    if (statement.group != before) ++number;
    before = std::exchange(statement.group, number);
  }
  nest.statements = std::move(ordered);
}

std::vector<RuleMatch> find(const Nest& nest) {
  return matching_statements(nest, kName, [&](const Statement& statement) -> std::string {
    std::string why;
    const std::vector<Source> sources = sources_of(nest, statement, why);
    std::vector<std::string> leads;
    for (const Source& source : sources) leads.push_back(source.lead);
    return leads.empty() ? "" : fmt::format("terms are relative to {}, each to its own", fmt::join(leads, ", "));
  });
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const std::string name = statement_argument(nest, kName, target, 1);
  const Statement meeting = nest.statement(name);
  std::string why;
  const std::vector<Source> sources = sources_of(nest, meeting, why);
  if (sources.empty()) refuse_rule(kName, name, why);
  Nest result = nest;
  for (const Source& source : sources) {
    for (const std::string& term : source.terms) {
      read_source(result, term, meeting, source);
      if (source.plan.infinite_terms) keep_finite(result, term, source);
    }
    std::vector<std::pair<std::string, std::string>> weights;  // by the followers that they were made for
    for (const std::string& follower : source.plan.followers) {
      auto same = std::find_if(weights.begin(), weights.end(), [&](const auto& made) {
        return source.plan.base.at(made.first) == source.plan.base.at(follower) &&
               same_product(source.plan.degree.at(made.first), source.plan.degree.at(follower));
      });
      if (same == weights.end()) same = weights.emplace(same, follower, add_weight(result, meeting, source, follower));
      weigh_sums(result, meeting, source, follower, same->second);
    }
  }
  gather_sources(result, sources);
  return {std::move(result), {}, false};
}

}  // namespace

const Rule& local_extremum_rule() {
  static const Rule rule{kName,
                         "sums of exponentials relative to an extremum of several take that of their own terms",
                         "exp(c(a-t)) = exp(c(a-m)) exp(c(m-t)), and the distributive law; Milakov & Gimelshein 2018",
                         "about 2 ulp relative, as for one move of the maximum",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
