// Values, reads, writes and indices of ops, against the nest's statements at the claimed instances.
#include "codegen/proof/model/outcome.h"
#include "codegen/proof/model/reached.h"
#include "codegen/proof/model/values.h"
#include "codegen/proof/obligations.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"

#include <fmt/format.h>
#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>

namespace nestor::proof {
namespace {

/// Members of a run whose ops say the same of indices and accesses, with the points of all of them.
struct Voice {
  const OpMember* member;
  isl::set instances;
};

std::string voice_text(const TileOp& op) {
  std::string text;
  const auto add = [&](const TileAccess& access) {
    text += fmt::format("{}[", access.buffer);
    for (const IntExpr& index : access.index) text += index.str() + ",";
  };
  add(op.write);
  for (const TileAccess& read : op.reads) add(read);
  for (const IntExpr& index : op.indices) text += "#" + index.str();
  text += op.value.str([](int k) { return fmt::format("r{}", k); }, [](int k) { return fmt::format("i{}", k); });
  return text;
}

std::vector<Voice> voices(const Run& run) {
  std::vector<Voice> result;
  std::map<std::string, std::size_t> index;
  for (const OpMember& member : run.members) {
    const auto [at, fresh] = index.try_emplace(voice_text(*member.op), result.size());
    if (fresh) {
      result.push_back({&member, member.instances});
    } else {
      isl::set& all = result[at->second].instances;
      all = all.unite(member.instances);
    }
  }
  for (Voice& voice : result) voice.instances = voice.instances.coalesce();
  return result;
}

class Meaning {
 public:
  Meaning(const Subject& subject, const Run& run) : subject_(subject), model_(subject.model), run_(run), s_(*run.statement) {}

  void prove() {
    for (const Voice& voice : voices(run_)) {
      if (voice.instances.is_empty()) continue;
      if (run_.part == OpPart::start) {
        prove_start(voice);
      } else {
        prove_points(voice);
      }
    }
  }

 private:
  void prove_start(const Voice& voice) {
    const TileOp& op = *voice.member->op;
    const auto constant = constant_value(s_.value);
    if (s_.reduction || !constant || *constant != neutral_element(*op.reduction, op.value.type()))
      throw BrokenObligation(fmt::format("{} does not write the neutral element that the op starts from", s_.name));
    expect_element(voice, op.write, s_.write, "write");
  }

  void prove_points(const Voice& voice) {
    const TileOp& op = *voice.member->op;
    if (op.name != s_.name) throw BrokenObligation(fmt::format("{} runs another statement than its name says", title(run_)));
    if (op.reduction != s_.reduction)
      throw BrokenObligation(fmt::format("{} does not reduce as its statement does", title(run_)));
    if (op.reads.size() != s_.reads.size() || op.indices.size() < s_.indices.size())
      throw BrokenObligation(fmt::format("{} has not the reads and indices of its statement", title(run_)));
    expect_element(voice, op.write, s_.write, "write");
    for (std::size_t k = 0; k < op.reads.size(); ++k)
      expect_element(voice, op.reads[k], s_.reads[k], fmt::format("read {}", k), static_cast<int>(k));
    for (std::size_t k = 0; k < s_.indices.size(); ++k) expect_index(voice, op.indices[k], s_.indices[k]);
    if (!matches_value(op, viewed_value(subject_, s_)))
      throw BrokenObligation(fmt::format("the value of {} is not its statement's", title(run_)));
  }

  /// A read counts where the value comes to it: the statement's need not say what lies elsewhere.
  void expect_element(const Voice& voice, const TileAccess& access, const Access& wanted, const std::string& what,
                      int read = -1) {
    const Buffer& buffer = model_.buffer(access.buffer);
    const Tensor& tensor = model_.nest().tensor(wanted.tensor);
    if (buffer.tensor != wanted.tensor || buffer.type != tensor.type || access.index.size() != tensor.shape.size())
      throw BrokenObligation(fmt::format("{}: its {} is in {}, not in {}", title(run_), what, buffer.name, wanted.tensor));
    const isl::map found = model_.element(*voice.member, access).intersect_domain(voice.instances);
    const isl::map expected = isl::manage(isl_map_preimage_domain_multi_aff(wanted.relation.copy(), run_.instance.copy()));
    if (found.is_subset(expected)) return;
    isl::set others = found.subtract(expected).domain();
    if (read >= 0) others = reached_points(model_, *voice.member, read, others);
    expect_empty(others, voice.member->space->variables(),
                 fmt::format("{}: its {} is not the statement's element of {}", title(run_), what, wanted.tensor));
  }

  void expect_index(const Voice& voice, const IntExpr& index, const isl::pw_aff& wanted) {
    const isl::pw_aff found = voice.member->space->value(index);
    isl_pw_aff* named =
        isl_pw_aff_set_tuple_id(wanted.copy(), isl_dim_in, isl_multi_aff_get_tuple_id(run_.instance.get(), isl_dim_out));
    const isl::pw_aff expected = isl::manage(isl_pw_aff_pullback_multi_aff(named, run_.instance.copy()));
    const isl::set same = isl::manage(isl_pw_aff_eq_set(found.copy(), expected.copy()));
    if (voice.instances.is_subset(same)) return;
    expect_empty(voice.instances.subtract(same), voice.member->space->variables(),
                 fmt::format("{}: index '{}' is not the statement's", title(run_), index.str()));
  }

  const Subject& subject_;
  const ProgramModel& model_;
  const Run& run_;
  const Statement& s_;
};

void prove_tensor(const ProgramModel& model, const Buffer& buffer) {
  const Tensor* tensor = model.nest().find_tensor(buffer.tensor);
  if (tensor == nullptr || buffer.type != tensor->type || buffer.extents.size() != tensor->shape.size())
    throw BrokenObligation(fmt::format("buffer {} holds no tensor of the nest", buffer.name));
  if (buffer.memory != Memory::argument) return;
  if (tensor->role == TensorRole::temporary || tensor->role != buffer.role || buffer.name != tensor->name)
    throw BrokenObligation(fmt::format("argument {} is none of the nest's", buffer.name));
  const IntSpace sizes({}, model.context());
  for (std::size_t k = 0; k < buffer.extents.size(); ++k) {
    const isl::pw_aff held = over_params(sizes.value(buffer.extents[k])), shape = over_params(tensor->shape[k]);
    const isl::set same = isl::manage(isl_pw_aff_eq_set(held.copy(), shape.copy()));
    if (!model.context().is_subset(same))
      throw BrokenObligation(fmt::format("index {} of argument {} has another extent than its tensor", k, buffer.name));
  }
  const bool moved = std::any_of(buffer.origin.begin(), buffer.origin.end(), [](const IntExpr& e) { return !e.is_constant(0); });
  if (moved || !buffer.scope.empty())
    throw BrokenObligation(fmt::format("argument {} does not start at its tensor's start", buffer.name));
}

void prove_scalars(const ProgramModel& model) {
  const auto same = [](const ScalarParam& a, const ScalarParam& b) { return a.name == b.name && a.type == b.type; };
  const std::vector<ScalarParam>&own = model.program().scalars, &wanted = model.nest().scalars;
  if (!std::equal(own.begin(), own.end(), wanted.begin(), wanted.end(), same))
    throw BrokenObligation("the program's scalars are not the nest's, in their order");
}

}  // namespace

void prove_interface(const Subject& subject) {
  const ProgramModel& model = subject.model;
  const isl::set sizes = full_context(model.nest());
  if (!model.context().is_subset(sizes)) {
    throw BrokenObligation(fmt::format("the program is valid for sizes outside of the nest's context, for example {}",
                                       sample_text(model.context().subtract(sizes), {})));
  }
  for (const auto& [name, value] : model.program().fixed_sizes) {
    const IntSpace space({}, model.context());
    const isl::set fixed = isl::manage(isl_set_params(space.equal(IntExpr::variable(name), IntExpr(value)).release()));
    if (!model.context().is_subset(fixed))
      throw BrokenObligation(fmt::format("the program is made for {} = {}, and others are admitted", name, value));
  }
  prove_scalars(model);
  std::vector<std::string> arguments, tensors;
  for (const Buffer& buffer : model.program().buffers) {
    prove_tensor(model, buffer);
    if (buffer.memory == Memory::argument) arguments.push_back(buffer.name);
  }
  for (const Tensor& tensor : model.nest().tensors) {
    if (tensor.role != TensorRole::temporary) tensors.push_back(tensor.name);
  }
  if (arguments != tensors) throw BrokenObligation("the program's arguments are not the nest's, in their order");
}

void prove_meaning(const Subject& subject) {
  for (const Run& run : subject.model.runs()) {
    if (run.statement != nullptr && run.part != OpPart::fill) Meaning(subject, run).prove();
  }
}

}  // namespace nestor::proof
