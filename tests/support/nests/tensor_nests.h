// Nests for tensor cores and the steps that bring them there: attention in the forms that masks give it, and two products in a row that
// are no attention.
#pragma once

#include "codegen/gpu/kernel/kernel_split.h"
#include "codegen/gpu/mma/plan/tensor_plan.h"
#include "codegen/gpu/mma/tensor_kernel.h"
#include "codegen/tile/tile_program.h"
#include "support/error.h"
#include "support/nests/sample_nests.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ostream>
#include <string>
#include <vector>

namespace nestor::testing {

/// Keys that a query sees. prefix: all of the first P and those up to its own; sinks: of those up to its own the first P and the last W.
/// picture: causal, but for places 40 to 149 that all see each other. halves: blocks of 64 in the first 128 places see themselves and the
/// blocks before their own in the second half; in that half, blocks up to their own are seen.
enum class Seen { all, causal, window, prefix, sinks, picture, halves, frames, blocks };

inline bool has_window(Seen seen) { return seen == Seen::window || seen == Seen::sinks; }
inline bool has_prefix(Seen seen) { return seen == Seen::prefix || seen == Seen::sinks; }

struct AttentionForm {
  Seen seen = Seen::all;
  ElementType type = ElementType::f16;
  ElementType result = ElementType::f16;
  int depth = 64;
  bool biased = false;      ///< bias[h, i, j] is added to scores
  int maps = 1;             ///< 2: less kSecondMap times the attention of q2 and k2
  bool grouped = false;     ///< G heads of queries share one of keys and values: rows are [h, g, i]; a window is g wider
  bool own_powers = false;  ///< the sum of weights computes them from the scores once more
  bool started = false;     ///< maxima start from log(weight[h, i])
  bool shifted = false;     ///< log(weight[h, i]) in place of maxima
};

inline constexpr double kSecondMap = 0.5;

/// The condition of key `j` for query `i`: the last query sees the last key.
inline std::string seen_keys(Seen seen, const std::string& j, bool grouped = false) {
  const std::string inside = "0 <= " + j + " < K", own = "i + K - Q", more = grouped ? " - g" : "";
  switch (seen) {
    case Seen::all:
      return inside;
    case Seen::causal:
      return inside + " and " + j + " <= " + own;
    case Seen::window:
      return inside + " and " + own + " - W" + more + " < " + j + " <= " + own;
    case Seen::prefix:
      return inside + " and (" + j + " < P or " + j + " <= " + own + ")";
    case Seen::sinks:
      return inside + " and " + j + " <= " + own + " and (" + j + " < P or " + j + " > " + own + " - W)";
    case Seen::picture:
      return inside + " and (" + j + " <= " + own + " or (40 <= i < 150 and 40 <= " + j + " < 150))";
    case Seen::halves:
      return inside + " and ((i >= 128 and 128 <= " + j + " < 64*floor(i/64) + 64) or (i < 128 and 128 <= " + j +
             " < 64*floor(i/64) + 128) or (i < 128 and 64*floor(i/64) <= " + j + " < 64*floor(i/64) + 64))";
    case Seen::blocks:
      return inside + " and floor(" + j + "/128) <= floor(i/128)";
    case Seen::frames:
      return inside + " and floor(" + j + "/20) <= floor(i/20) and (" + j + " < 20 or floor(" + j + "/20) > floor(i/20) - 3)";
  }
  return inside;
}

/// "q[h, i, e]" as "q[h, g, i, e]" where heads of queries are grouped.
inline std::string in_group(std::string text, bool grouped) {
  const auto at = text.find("h, i");
  return grouped && at != std::string::npos ? text.insert(at + 3, "g, ") : text;
}

/// out[h, i, d] = softmax over j of (scale * sum over e of q[h, i, e] k[h, j, e]) times v[h, j, d]; with a second map, less half of the same
/// for q2 and k2.
inline Nest attention_nest(const AttentionForm& form = {}) {
  using namespace samples;
  const std::string row = std::string(form.grouped ? "0 <= g < G and " : "") + "0 <= h < H and 0 <= i < Q";
  const std::string deep = std::to_string(form.depth);
  const auto seen = [&](const std::string& j) { return row + " and " + seen_keys(form.seen, j, form.grouped); };
  const auto dense = [&](const std::string& d) { return " and 0 <= " + d + " < " + deep; };
  const auto by_row = [&](std::vector<std::string> more) {
    std::vector<std::string> extents{"H"};
    if (form.grouped) extents.emplace_back("G");
    extents.emplace_back("Q");
    extents.insert(extents.end(), more.begin(), more.end());
    return extents;
  };
  const auto wide = [&](int k) {
    return form.type == ElementType::f32 ? read(k) : ScalarExpr::cast(ElementType::f32, read(k, form.type));
  };
  std::vector<std::pair<std::string, std::int64_t>> sizes{{"H", 2}, {"Q", 200}, {"K", 200}};
  if (has_window(form.seen)) sizes.emplace_back("W", 48);
  if (has_prefix(form.seen)) sizes.emplace_back("P", 24);
  if (form.grouped) sizes.emplace_back("G", 4);
  NestBuilder nest("attention", sizes);
  if (form.seen != Seen::all) nest.context("K >= Q");
  if (form.biased) nest.tensor("bias", TensorRole::input, by_row({"K"}), form.type);
  nest.scalar("scale", 0.5);
  std::vector<std::string> out_reads;
  for (int map = 0; map < form.maps; ++map) {
    // "q[h, i, e]" is "q2[h, i, e]" for the second map.
    const auto own = [&](const std::string& text) {
      std::string name = in_group(text, form.grouped);
      return map == 0 ? name : name.insert(std::min(name.find_first_of("[_"), name.size()), std::to_string(map + 1));
    };
    std::vector<std::string> score_reads{own("dot[h, i, j]")};
    ScalarExpr score = read(0) * ScalarExpr::scalar("scale", ElementType::f32);
    if (form.biased) {
      score_reads.push_back(in_group("bias[h, i, j]", form.grouped));
      score = score + wide(1);
    }
    nest.tensor(own("q"), TensorRole::input, by_row({deep}), form.type)
        .tensor(own("k"), TensorRole::input, {"H", "K", deep}, form.type);
    const bool weighed = form.started || form.shifted;
    const std::vector<std::string> weights = weighed ? std::vector{own("weight[h, i]")} : std::vector<std::string>{};
    const ScalarExpr start = weighed ? apply(ScalarOp::log, read(0)) : number(-infinity());
    if (weighed) nest.tensor(own("weight"), TensorRole::input, by_row({}));
    if (map == 0) nest.tensor("v", TensorRole::input, {"H", "K", deep}, form.type);
    nest.tensor(own("dot"), TensorRole::temporary, by_row({"K"}))
        .tensor(own("score"), TensorRole::temporary, by_row({"K"}))
        .tensor(own("largest"), TensorRole::temporary, by_row({}))
        .tensor(own("power"), TensorRole::temporary, by_row({"K"}))
        .tensor(own("total"), TensorRole::temporary, by_row({}))
        .tensor(own("weighted"), TensorRole::temporary, by_row({deep}));
    nest.statement(own("dot_init[h, i, j] : ") + seen("j"), own("dot[h, i, j]"), {}, number(0))
        .statement(own("dot[h, i, j, e] : ") + seen("j") + dense("e"), own("dot[h, i, j]"),
                   {own("q[h, i, e]"), own("k[h, j, e]")}, wide(0) * wide(1), ReductionOp::add)
        .statement(own("score[h, i, j] : ") + seen("j"), own("score[h, i, j]"), score_reads, score)
        .statement(own("largest_init[h, i] : ") + row, own("largest[h, i]"), weights, start);
    if (!form.shifted) {
      nest.statement(own("largest[h, i, r] : ") + seen("r"), own("largest[h, i]"), {own("score[h, i, r]")}, read(0),
                     ReductionOp::max);
    }
    nest.statement(own("power[h, i, j] : ") + seen("j"), own("power[h, i, j]"), {own("score[h, i, j]"), own("largest[h, i]")},
                   apply(ScalarOp::exp, read(0) - read(1)))
        .statement(own("weighted_init[h, i, d] : ") + row + dense("d"), own("weighted[h, i, d]"), {}, number(0))
        .statement(own("weighted[h, i, d, t] : ") + seen("t") + dense("d"), own("weighted[h, i, d]"),
                   {own("power[h, i, t]"), "v[h, t, d]"}, read(0) * wide(1), ReductionOp::add)
        .statement(own("total_init[h, i] : ") + row, own("total[h, i]"), {}, number(0))
        .statement(
            own("total[h, i, s] : ") + seen("s"), own("total[h, i]"),
            form.own_powers ? std::vector{own("score[h, i, s]"), own("largest[h, i]")} : std::vector{own("power[h, i, s]")},
            form.own_powers ? apply(ScalarOp::exp, read(0) - read(1)) : read(0), ReductionOp::add);
    out_reads.push_back(own("weighted[h, i, d]"));
    out_reads.push_back(own("total[h, i]"));
  }
  ScalarExpr result = read(0) / read(1);
  if (form.maps == 2) result = result - number(kSecondMap) * (read(2) / read(3));
  return nest.tensor("out", TensorRole::output, by_row({deep}), form.result)
      .statement(in_group("out[h, i, d] : ", form.grouped) + row + dense("d"), in_group("out[h, i, d]", form.grouped), out_reads,
                 form.result == ElementType::f32 ? result : ScalarExpr::cast(form.result, result))
      .build();
}

/// out[h, i, d] = sum over j <= i + K - Q of scale * (sum over e of q[h, i, e] k[h, j, e]) * v[h, j, d]: no softmax, no row values.
inline Nest linear_attention_nest(ElementType type = ElementType::f16, int depth = 64, Seen form = Seen::causal) {
  using namespace samples;
  const std::string row = "0 <= h < H and 0 <= i < Q", deep = std::to_string(depth);
  const auto seen = [&](const std::string& j) { return row + " and " + seen_keys(form, j); };
  const auto dense = [&](const std::string& d) { return " and 0 <= " + d + " < " + deep; };
  const auto wide = [&](int k) { return ScalarExpr::cast(ElementType::f32, read(k, type)); };
  return NestBuilder("linear_attention", {{"H", 2}, {"Q", 200}, {"K", 200}})
      .context("K >= Q")
      .scalar("scale", 0.5)
      .tensor("q", TensorRole::input, {"H", "Q", deep}, type)
      .tensor("k", TensorRole::input, {"H", "K", deep}, type)
      .tensor("v", TensorRole::input, {"H", "K", deep}, type)
      .tensor("dot", TensorRole::temporary, {"H", "Q", "K"})
      .tensor("score", TensorRole::temporary, {"H", "Q", "K"})
      .tensor("weighted", TensorRole::temporary, {"H", "Q", deep})
      .tensor("out", TensorRole::output, {"H", "Q", deep})
      .statement("dot_init[h, i, j] : " + seen("j"), "dot[h, i, j]", {}, number(0))
      .statement("dot[h, i, j, e] : " + seen("j") + dense("e"), "dot[h, i, j]", {"q[h, i, e]", "k[h, j, e]"}, wide(0) * wide(1),
                 ReductionOp::add)
      .statement("score[h, i, j] : " + seen("j"), "score[h, i, j]", {"dot[h, i, j]"},
                 read(0) * ScalarExpr::scalar("scale", ElementType::f32))
      .statement("weighted_init[h, i, d] : " + row + dense("d"), "weighted[h, i, d]", {}, number(0))
      .statement("weighted[h, i, d, t] : " + seen("t") + dense("d"), "weighted[h, i, d]", {"score[h, i, t]", "v[h, t, d]"},
                 read(0) * wide(1), ReductionOp::add)
      .statement("out[h, i, d] : " + row + dense("d"), "out[h, i, d]", {"weighted[h, i, d]"}, read(0))
      .build();
}

/// Tiles of `rows` rows and `columns` keys: each statement's loops in tiles, all fused along heads and query tiles, those over keys
/// also along key tiles. Where heads of queries are grouped, `pack` of them are in a tile, each with its share of the rows.
inline std::vector<std::string> tile_steps(const Nest& nest, int rows, int columns, int pack) {
  std::vector<std::string> steps, names, streams;
  for (const Statement& s : nest.statements) {
    names.push_back(s.name);
    steps.push_back(fmt::format("split({0}.i, {1}, {0}.io, {0}.ii)", s.name, rows / pack));
    std::string order = fmt::format("reorder({0}.h, {0}.io", s.name), inner = fmt::format(", {}.ii", s.name);
    if (pack > 1) {
      steps.push_back(fmt::format("split({0}.g, {1}, {0}.go, {0}.gi)", s.name, pack));
      order = fmt::format("reorder({0}.h, {0}.go, {0}.io", s.name);
      inner = fmt::format(", {0}.gi, {0}.ii", s.name);
    }
    for (const std::string& dim : s.dims) {
      if (dim == "h" || dim == "i" || dim == "g") continue;
      if (dim == "d" || dim == "e") {
        inner += fmt::format(", {}.{}", s.name, dim);
        continue;
      }
      steps.push_back(fmt::format("split({0}.{1}, {2}, {0}.jo, {0}.ji)", s.name, dim, columns));
      order += fmt::format(", {}.jo", s.name);
      inner += fmt::format(", {}.ji", s.name);
      streams.push_back(s.name);
    }
    steps.push_back(order + inner + ")");
  }
  const std::string last = names.back();
  const std::vector<std::string> outer =
      pack > 1 ? std::vector<std::string>{"h", "go", "io"} : std::vector<std::string>{"h", "io"};
  for (const std::string& loop : outer) {
    for (std::size_t k = names.size() - 1; k-- > 0;)
      steps.push_back(fmt::format("fuse_with({}.{}, {}.{})", names[k], loop, last, loop));
  }
  for (std::size_t k = streams.size() - 1; k-- > 0;)
    steps.push_back(fmt::format("fuse_with({}.jo, {}.jo)", streams[k], streams.back()));
  for (const std::string& loop : outer) steps.push_back(fmt::format("gpu_blocks({}.{})", last, loop));
  return steps;
}

/// A nest scheduled for tensor cores: rules, tiles, tensor_cores(out.io, warpgroups, stages), then `more`.
struct TensorSteps {
  std::vector<std::string> rules{"apply_rule exp2_scale", "apply_rule online largest"};
  int rows = 128, columns = 64, warpgroups = 2, stages = 2;
  std::vector<std::string> more{};
  int pack = 1;
};

/// Rules for attention whose maximum stays behind until terms would more than double so many times.
inline std::vector<std::string> lazy_rules(int doublings) {
  return {"apply_rule exp2_scale", fmt::format("apply_rule online largest {}", doublings)};
}

/// Rules for attention of two maps.
inline std::vector<std::string> two_map_rules() {
  return {"apply_rule exp2_scale", "apply_rule online largest", "apply_rule online largest2"};
}

/// A form of an operator and steps for it, under a name.
template <typename Form, typename Steps>
struct NamedCase {
  std::string name;
  Form form;
  Steps steps;
  friend std::ostream& operator<<(std::ostream& out, const NamedCase& test) { return out << test.name; }
};

/// A target of compute capability 8.0, where all threads copy.
inline NvptxTarget older() {
  NvptxTarget target;
  target.sm = 80;
  return target;
}

inline Schedule tensor_schedule(const Nest& nest, const TensorSteps& choice = {}) {
  Schedule schedule{nest};
  for (const std::string& step : choice.rules) schedule = schedule.apply(parse_step(step));
  for (const std::string& step : tile_steps(schedule.nest(), choice.rows, choice.columns, choice.pack))
    schedule = schedule.apply(parse_step(step));
  schedule = schedule.apply(parse_step(fmt::format("tensor_cores(out.io, {}, {})", choice.warpgroups, choice.stages)));
  for (const std::string& step : choice.more) schedule = schedule.apply(parse_step(step));
  return schedule;
}

inline TileProgram tensor_program(const Nest& nest, const TensorSteps& choice = {}) {
  return build_tile_program(tensor_schedule(nest, choice));
}

/// The plan of a program with one kernel, and what it refers to.
struct PlannedTensor {
  nvptx::LaunchPlan launches;
  nvptx::TensorPlan plan;

  explicit PlannedTensor(const TileProgram& program, const NvptxTarget& target = {})
      : launches(nvptx::plan_launches(program, 256)) {
    plan = nvptx::plan_tensor(launches.kernels.at(0), launches.program, target);
  }
  PlannedTensor(const PlannedTensor&) = delete;
  PlannedTensor& operator=(const PlannedTensor&) = delete;

  const nvptx::TensorOp& op(const std::string& name) const {
    for (const nvptx::TensorOp& op : plan.ops) {
      if (op.op.name == name) return op;
    }
    internal_error("no op {}", name);
  }
  const nvptx::CircularBuffer& ring(const std::string& argument) const {
    for (const nvptx::CircularBuffer& ring : plan.circular_buffers) {
      if (plan.buffer(ring.buffer).name == argument) return ring;
    }
    internal_error("no circular buffer of {}", argument);
  }
  const nvptx::Fragment& fragment(const std::string& tensor) const {
    for (const auto& [buffer, fragment] : plan.fragments) {
      if (plan.buffer(buffer).tensor == tensor) return fragment;
    }
    internal_error("no fragment of {}", tensor);
  }
};

}  // namespace nestor::testing
