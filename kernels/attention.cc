// softmax(scale q k^T) v for every batch and head, and on request the logarithm of each row's sum of exponentials.
// Which keys j a query i sees, with p = i + keys - queries, so that the last query stands at the last key:
//   (none)   all
//   causal   j <= p
//   topleft  j <= i, as if queries and keys began together
//   window   p - window < j <= p
//   prefix   j < prefix or j <= p
//   dilated  a window over every dilation-th position: position x of the sequence is phase x mod dilation of step x / dilation,
//            so that a tensor [batch, heads, sequence, head_dim] is one [batch, heads, steps, dilation, head_dim]
// gqa: groups of query heads share a head of keys and values (group = 1: plain, key_heads = 1: one for all), and
// values have a head size of their own.
#include "attention_parts.h"

namespace {
using namespace Halide;
using nestor::kernels::along;
using nestor::kernels::has_option;
using nestor::kernels::wide;

/// What a variant's options say, with the sizes that they add.
struct Options {
  explicit Options(const std::string& variant)
      : topleft(has_option(variant, "topleft")),
        dilated(has_option(variant, "dilated")),
        windowed(has_option(variant, "window") || dilated),
        prefixed(has_option(variant, "prefix")),
        causal(has_option(variant, "causal") || windowed),
        grouped(has_option(variant, "gqa")),
        lse(has_option(variant, "lse")) {}

  bool topleft, dilated, windowed, prefixed, causal, grouped, lse;
  Param<int> key_heads{"key_heads"}, group{"group"}, value_dim{"value_dim"}, window{"window"}, prefix{"prefix"};
  Param<int> dilation{"dilation"};

  void narrow(RDom& key, const Expr& query, const Expr& position) const {
    if (topleft) key.where(key <= query);
    if (causal) key.where(key <= position);
    if (windowed) key.where(key > position - window);
    if (prefixed) key.where(key < prefix || key <= position);
  }
};

/// Index of a tensor of queries or keys, innermost first; `rest` are its heads and batch.
std::vector<Expr> place(const Options& options, const Expr& d, const Expr& phase, const Expr& step,
                        const std::vector<Expr>& rest) {
  std::vector<Expr> index{d};
  if (options.dilated) index.push_back(phase);
  index.push_back(step);
  index.insert(index.end(), rest.begin(), rest.end());
  return index;
}

nestor::HalideDefinition attention(const std::string& variant) {
  const Type type = nestor::kernels::element_of(variant);
  const Options options(variant);
  const nestor::kernels::AttentionSizes sizes;
  const Param<float> scale = nestor::kernels::positive("scale");
  const int query_rank = 4 + options.grouped + options.dilated, key_rank = 4 + options.dilated;
  ImageParam q(type, query_rank, "q"), k(type, key_rank, "k"), v(type, key_rank, "v");
  Var d("d"), j("j"), i("i"), c("c"), g("g"), h("h"), b("b");
  nestor::kernels::Row row{i}, heads{h, b};
  if (options.dilated) row.push_back(c);
  if (options.grouped) heads.insert(heads.begin(), g);
  row.insert(row.end(), heads.begin(), heads.end());
  const std::vector<Expr> query_heads(heads.begin(), heads.end()), key_heads{h, b};
  const auto sees = [&](RDom& key) { options.narrow(key, i, i + sizes.keys - sizes.queries); };

  Func score("score"), out("out");
  const Func dot = nestor::kernels::dot_product(
      "dot", row, sizes.head_dim, [&](const Expr& e) { return wide(q(place(options, e, c, i, query_heads))); },
      [&](const Expr& e, const Expr& key) { return wide(k(place(options, e, c, key, key_heads))); });
  score(along(j, row)) = dot(along(j, row)) * scale;
  const nestor::kernels::SoftmaxSums sums = nestor::kernels::softmax_sums(
      score, row, sizes.keys, sees,
      [&](const Expr& dim, const Expr& key) { return wide(v(place(options, dim, c, key, key_heads))); });
  std::vector<Var> element{d};
  if (options.dilated) element.push_back(c);
  element.push_back(i);
  element.insert(element.end(), heads.begin(), heads.end());
  out(element) = cast(type, sums.weighted(along(d, row)) / sums.total(row));

  const Expr value_dim = options.grouped ? Expr(options.value_dim) : Expr(sizes.head_dim);
  const Expr head_count = options.grouped ? Expr(options.key_heads) : Expr(sizes.heads);
  const std::vector<Expr> key_extents{head_count, sizes.batch};
  std::vector<Expr> query_extents = key_extents;
  if (options.grouped) query_extents.insert(query_extents.begin(), options.group);
  const auto queries_of = [&](const Expr& dim) { return place(options, dim, options.dilation, sizes.queries, query_extents); };
  const auto keys_of = [&](const Expr& dim) { return place(options, dim, options.dilation, sizes.keys, key_extents); };
  nestor::HalideDefinition definition{
      .outputs = {{out, queries_of(value_dim)}},
      .inputs = {{q, queries_of(sizes.head_dim)}, {k, keys_of(sizes.head_dim)}, {v, keys_of(value_dim)}},
      .sizes = sizes.sizes(),
      .scalars = {{scale, 0.125}},
      .tolerance = nestor::kernels::tolerance_for(variant, 1e-4)};
  if (options.lse) {
    Func lse("lse");
    const std::vector<Var> by_row(element.begin() + 1, element.end());
    lse(by_row) = sums.largest(row) + log(sums.total(row));
    std::vector<Expr> extents = queries_of(value_dim);
    extents.erase(extents.begin());
    definition.outputs.push_back({lse, extents});
  }
  if (options.causal || options.prefixed) definition.require = {sizes.keys >= sizes.queries};
  if (options.windowed) definition.sizes.push_back({options.window, 256});
  if (options.prefixed) definition.sizes.push_back({options.prefix, 128});
  if (options.dilated) definition.sizes.push_back({options.dilation, 4});
  if (options.grouped) {
    definition.sizes[1] = {options.key_heads, 2};
    definition.sizes.push_back({options.group, 4});
    definition.sizes.push_back({.param = options.value_dim, .default_value = 64, .specialized = true});
  }
  return definition;
}

NESTOR_OPERATOR(attention, attention,
                nestor::kernels::variants({"", "causal", "window", "topleft", "prefix", "dilated", "gqa", "causal.gqa",
                                           "window.gqa", "prefix.gqa", "lse", "causal.lse", "window.lse", "gqa.lse",
                                           "causal.gqa.lse", "prefix.gqa.lse", "dilated.lse"}));
}  // namespace
