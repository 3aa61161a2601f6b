// Walks the loop tree once, and lists what each step of the table could be applied to.
#include "api/explore/step_ideas.h"

#include "poly/algebra/all_rules.h"
#include "poly/isl/isl_tools.h"
#include "poly/schedule/order/loop_tree.h"
#include "poly/schedule/steps/step_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>

namespace nestor {
namespace {

constexpr std::int64_t kLargestSplit = 64;
constexpr std::int64_t kSmallestTile = 4;    ///< a tile of fewer iterations is none
constexpr std::int64_t kFullyUnrolled = 16;  ///< iterations of loops that are unrolled as a whole
constexpr std::int64_t kUnrollFactor = 4;
constexpr std::size_t kValuesOfKnob = 2;

/// One loop and what is around it.
struct Place {
  Tree loop;
  std::vector<Tree> above;  ///< loops around it, outermost first
  Tree below;               ///< the loop that is all of its body, or null
  bool innermost = true;
  const std::string& name() const { return loop->name; }
  bool serial() const { return loop->loop_kind == LoopKind::serial; }
};

class Ideas {
 public:
  Ideas(const Schedule& schedule, const IdeaSettings& settings)
      : schedule_(schedule), settings_(settings), lengths_(loop_lengths(schedule, settings.sizes)) {
    collect(schedule.tree(), {});
    for (const SizeParam& size : schedule.nest().sizes) taken_.insert(size.name);
    for (const Place& place : places_) taken_.insert(place.name());
    gpu_ = settings.sm > 0 || std::any_of(places_.begin(), places_.end(),
                                          [](const Place& place) { return place.loop->loop_kind == LoopKind::gpu_block; });
  }

  std::vector<Step> all() {
    add_rules();
    add_joins();
    add_cuts();
    add_concurrency();
    add_inner_marks();
    add_grid_steps();
    add_copies();
    add_orders();
    std::erase_if(ideas_, [&](const Step& step) { return !settings_.only.empty() && step.name != settings_.only; });
    sort_by_work();
    return std::move(ideas_);
  }

 private:
  void collect(const Tree& node, std::vector<Tree> above) {
    if (node->kind == TreeNode::Kind::loop) {
      const Tree& body = node->children.front();
      Place place{node, above, body->kind == TreeNode::Kind::loop ? body : nullptr};
      const std::function<bool(const TreeNode&)> has_loop = [&](const TreeNode& inner) {
        return inner.kind == TreeNode::Kind::loop ||
               std::any_of(inner.children.begin(), inner.children.end(), [&](const Tree& child) { return has_loop(*child); });
      };
      place.innermost = !has_loop(*body);
      places_.push_back(std::move(place));
      above.push_back(node);
    } else if (node->kind == TreeNode::Kind::sequence) {
      sequences_.push_back({node, above});
    }
    for (const Tree& child : node->children) collect(child, above);
  }

  bool wants(const char* name) const { return settings_.only == name; }
  void add(std::string name, std::vector<nlohmann::json> args) { ideas_.push_back({std::move(name), std::move(args)}); }
  std::int64_t length(const std::string& loop) const {
    const auto found = lengths_.find(loop);
    return found == lengths_.end() ? 0 : found->second;
  }

  /// Among steps of one name those first whose loops have most iterations in all.
  void sort_by_work() {
    std::map<std::string, double> work;
    for (const Statement& statement : schedule_.nest().statements) {
      const std::vector<std::string> loops = schedule_.loops_of(statement.name);
      double points = 1;
      for (const std::string& loop : loops) points *= static_cast<double>(std::max<std::int64_t>(length(loop), 1));
      for (const std::string& loop : loops) work[loop] = std::max(work[loop], points);
    }
    const auto work_of = [&](const Step& step) {
      double most = 0;
      for (const nlohmann::json& arg : step.args) {
        const auto found = arg.is_string() ? work.find(arg.get<std::string>()) : work.end();
        if (found != work.end()) most = std::max(most, found->second);
      }
      return most;
    };
    std::map<std::string, std::size_t> rank;  // of a name: that of its first step
    for (const Step& step : ideas_) rank.emplace(step.name, rank.size());
    std::stable_sort(ideas_.begin(), ideas_.end(), [&](const Step& a, const Step& b) {
      return a.name == b.name ? work_of(a) > work_of(b) : rank.at(a.name) < rank.at(b.name);
    });
  }

  void add_rules() {
    const auto is_rule = [](const Step& step) { return step.name == "apply_rule"; };
    if (!std::all_of(schedule_.steps().begin(), schedule_.steps().end(), is_rule)) return;
    for (const RuleMatch& match : find_matches(schedule_.nest())) {
      std::vector<nlohmann::json> args{match.rule};
      args.insert(args.end(), match.target.begin(), match.target.end());
      add("apply_rule", std::move(args));
    }
  }

  /// Loops of one body, and statements beside those that read what they write.
  void add_joins() {
    for (const Sequence& sequence : sequences_) {
      const std::vector<Tree>& bodies = sequence.node->children;
      for (std::size_t k = 1; k < bodies.size(); ++k) {
        if (bodies[k - 1]->kind == TreeNode::Kind::loop && bodies[k]->kind == TreeNode::Kind::loop)
          add("fuse_with", {bodies[k - 1]->name, bodies[k]->name});
      }
    }
    for (const Statement& writer : schedule_.nest().statements) {
      for (const Statement& reader : schedule_.nest().statements) {
        const bool reads = std::any_of(reader.reads.begin(), reader.reads.end(),
                                       [&](const Access& access) { return access.tensor == writer.write.tensor; });
        if (!reads || reader.name == writer.name) continue;
        const std::vector<std::string> own = schedule_.loops_of(writer.name);
        for (const std::string& loop : schedule_.loops_of(reader.name)) {
          if (std::find(own.begin(), own.end(), loop) == own.end()) add("compute_at", {writer.name, loop});
        }
      }
    }
  }

  /// A name for a new loop: "io" of "out.i".
  std::string fresh(const std::string& loop, const char* suffix) {
    std::string name = loop.substr(loop.find_last_of('.') + 1) + suffix;
    const std::string stem = name;
    for (int number = 2; taken_.contains(name); ++number) name = fmt::format("{}{}", stem, number);
    return name;
  }

  /// The largest usual factor that leaves two iterations; 0: the loop is too short.
  std::int64_t factor_of(const std::string& loop) const {
    for (std::int64_t factor = kLargestSplit; factor >= kSmallestTile; factor /= 2) {
      if (2 * factor <= length(loop)) return factor;
    }
    return 0;
  }

  void add_cuts() {
    for (const Place& place : places_) {
      const std::int64_t rows = factor_of(place.name());
      if (place.below != nullptr && rows > 0) {
        const std::string& inner = place.below->name;
        const std::int64_t columns = factor_of(inner);
        if (columns > 0 && place.serial() && place.below->loop_kind == LoopKind::serial)
          add("tile", {place.name(), inner, fresh(place.name(), "o"), fresh(inner, "o"), fresh(place.name(), "i"),
                       fresh(inner, "i"), rows, columns});
      }
      if (rows > 0) add("split", {place.name(), rows, fresh(place.name(), "o"), fresh(place.name(), "i")});
    }
  }

  /// Loops that nothing but such loops is around.
  void add_concurrency() {
    for (const Place& place : places_) {
      const auto kind = gpu_ ? LoopKind::gpu_block : LoopKind::parallel;
      const bool outside =
          std::all_of(place.above.begin(), place.above.end(), [&](const Tree& l) { return l->loop_kind == kind; });
      if (!place.serial()) {
        add("serial", {place.name()});
        continue;
      }
      if (!outside) continue;
      if (!gpu_ || wants("parallel")) add("parallel", {place.name()});
      if (gpu_ || wants("gpu_blocks")) add("gpu_blocks", {place.name()});
      if ((gpu_ || wants("gpu_blocks")) && place.below != nullptr) add("gpu_blocks", {place.name(), place.below->name});
    }
  }

  void add_inner_marks() {
    for (const Place& place : places_) {
      if (!place.serial()) continue;
      if (place.innermost && (!gpu_ || wants("vectorize"))) add("vectorize", {place.name()});
      if (place.innermost && (gpu_ || wants("gpu_lanes"))) add("gpu_lanes", {place.name()});
      if (length(place.name()) > 1 && length(place.name()) <= kFullyUnrolled) {
        add("unroll", {place.name()});
      } else if (place.innermost) {
        add("unroll", {place.name(), kUnrollFactor});
      }
    }
    for (const Place& place : places_) {
      if (!place.loop->specialized && runs_tiles(place)) add("specialize", {place.name()});
    }
  }

  /// Does one iteration take a tile of some dim?
  bool runs_tiles(const Place& place) const {
    const std::vector<std::string> statements = statements_under(*place.loop);
    return std::any_of(statements.begin(), statements.end(), [&](const std::string& statement) {
      const std::vector<LinearForm>& dims = schedule_.form(statement).dims;
      return std::any_of(dims.begin(), dims.end(), [&](const LinearForm& dim) { return dim.coefficient(place.name()) > 1; });
    });
  }

  void add_grid_steps() {
    const int sm = settings_.sm > 0 ? settings_.sm : 90;
    for (const Place& place : places_) {
      if (place.loop->loop_kind != LoopKind::gpu_block) continue;
      for (const KnobStep& step : knob_steps()) {
        if (is_set(step, place.loop->knobs)) continue;
        const Knob& knob = step.knobs.front();
        if (*knob.argument == '\0' || knob.optional) add(step.name, {place.name()});
        if (*knob.argument == '\0') continue;
        const auto& values = sm < 90 && !knob.searched_mma.empty() ? knob.searched_mma : knob.searched;
        std::size_t added = 0;
        for (const std::int64_t value : values) {
          const std::int64_t argument = knob.argument_for(value);
          if (value == knob.otherwise || argument < knob.least || argument > knob.most) continue;
          if (added++ < kValuesOfKnob || wants(step.name)) add(step.name, {place.name(), argument});
        }
      }
    }
  }

  /// Inputs beside the loops whose iterations read a part of them, and what bypasses the caches.
  void add_copies() {
    for (const Place& place : places_) {
      if (place.innermost || !(runs_tiles(place) || place.loop->loop_kind == LoopKind::gpu_block)) continue;
      std::set<std::string> read;
      for (const std::string& statement : statements_under(*place.loop)) {
        for (const Access& access : schedule_.nest().statement(statement).reads) {
          if (schedule_.nest().tensor(access.tensor).role == TensorRole::input) read.insert(access.tensor);
        }
      }
      for (const std::string& tensor : read) add("stage", {tensor, place.name()});
    }
    for (const Tensor& tensor : schedule_.nest().tensors) {
      const auto& known = schedule_.streaming_tensors();
      if (tensor.role == TensorRole::temporary || std::find(known.begin(), known.end(), tensor.name) != known.end()) continue;
      add("streaming", {tensor.name});
    }
  }

  /// Other orders of the same loops and bodies.
  void add_orders() {
    for (const Place& place : places_) {
      if (place.below != nullptr) add("reorder", {place.below->name, place.name()});
    }
    for (const Sequence& sequence : sequences_) {
      if (sequence.above.empty()) continue;
      for (std::size_t k = 1; k < sequence.node->children.size(); ++k)
        add("fission", {sequence.above.back()->name, statements_under(*sequence.node->children[k]).front()});
    }
    for (const Place& place : places_) {
      if (place.below != nullptr && place.serial()) add("skew", {place.name(), place.below->name, 1});
    }
    for (const Place& place : places_) {
      if (place.serial()) add("reverse", {place.name()});
    }
    for (const Sequence& sequence : sequences_) {
      for (std::size_t k = 1; k < sequence.node->children.size() && !sequence.above.empty(); ++k)
        add("shift", {statements_under(*sequence.node->children[k]).front(), sequence.above.back()->name, 1});
    }
  }

  struct Sequence {
    Tree node;
    std::vector<Tree> above;
  };
  const Schedule& schedule_;
  const IdeaSettings& settings_;
  std::map<std::string, std::int64_t> lengths_;
  std::vector<Place> places_;
  std::vector<Sequence> sequences_;
  std::set<std::string> taken_;
  bool gpu_ = false;
  std::vector<Step> ideas_;
};

}  // namespace

std::map<std::string, std::int64_t> loop_lengths(const Schedule& schedule, const Sizes& sizes) {
  std::map<std::string, std::int64_t> lengths;
  for (const Statement& statement : schedule.nest().statements) {
    const std::vector<std::string> loops = schedule.loops_of(statement.name);
    try {
      with_isl_budget("the lengths of loops", [&] {
        const isl::set points = at_sizes(schedule.loop_relation(statement.name).range(), sizes);
        if (points.is_empty()) return;
        for (std::size_t k = 0; k < loops.size(); ++k) {
          const auto [low, high] = dim_range(points, static_cast<int>(k));
          std::int64_t& length = lengths[loops[k]];
          length = std::max(length, high - low + 1);
        }
      });
    } catch (const UserError&) {  // over its budget: no length is known
    }
  }
  return lengths;
}

std::vector<Step> step_ideas(const Schedule& schedule, const IdeaSettings& settings) { return Ideas(schedule, settings).all(); }

}  // namespace nestor
