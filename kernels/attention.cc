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
using nestor::kernels::joined;
using nestor::kernels::wide;

/// What a variant's options say, with the sizes that they add.
struct Options {
  explicit Options(const std::string& variant)
      : topleft(has_option(variant, "topleft")),
        dilated(has_option(variant, "dilated")),
        windowed(has_option(variant, "window") || dilated),
        prefixed(has_option(variant, "prefix")),
        causal(has_option(variant, "causal") || windowed),
        lse(has_option(variant, "lse")) {}

  bool topleft, dilated, windowed, prefixed, causal, lse;
  Param<int> window{"window"}, prefix{"prefix"}, dilation{"dilation"};

  void narrow(RDom& key, const Expr& query, const Expr& position) const {
    if (topleft) key.where(key <= query);
    if (causal) key.where(key <= position);
    if (windowed) key.where(key > position - window);
    if (prefixed) key.where(key < prefix || key <= position);
  }
};

/// What a tensor's index or extents begin with, innermost first: an element of the phase of a step.
std::vector<Expr> place(const Options& options, const Expr& d, const Expr& phase, const Expr& step) {
  return options.dilated ? std::vector<Expr>{d, phase, step} : std::vector<Expr>{d, step};
}

nestor::HalideDefinition attention(const std::string& variant) {
  const Type type = nestor::kernels::element_of(variant);
  const Options options(variant);
  const nestor::kernels::AttentionSizes sizes;
  const nestor::kernels::Heads heads(variant);
  const Param<float> scale = nestor::kernels::positive("scale");
  const int query_rank = 4 + heads.grouped + options.dilated, key_rank = 4 + options.dilated;
  ImageParam q(type, query_rank, "q"), k(type, key_rank, "k"), v(type, key_rank, "v");
  Var d("d"), j("j"), i("i"), c("c");
  nestor::kernels::Row row{i};
  if (options.dilated) row.push_back(c);
  const nestor::kernels::Row query_heads = heads.of_queries();
  row.insert(row.end(), query_heads.begin(), query_heads.end());
  const auto sees = [&](RDom& key) { options.narrow(key, i, i + sizes.keys - sizes.queries); };
  const auto query_at = [&](const Expr& dim) {
    return joined(place(options, dim, c, i), {query_heads.begin(), query_heads.end()});
  };
  const auto key_at = [&](const Expr& dim, const Expr& key) { return joined(place(options, dim, c, key), heads.of_keys()); };

  Func score("score"), out("out");
  const Func dot = nestor::kernels::dot_product(
      "dot", row, sizes.head_dim, [&](const Expr& e) { return wide(q(query_at(e))); },
      [&](const Expr& e, const Expr& key) { return wide(k(key_at(e, key))); });
  score(along(j, row)) = dot(along(j, row)) * scale;
  const nestor::kernels::SoftmaxSums sums = nestor::kernels::softmax_sums(
      score, row, sizes.keys, sees, [&](const Expr& dim, const Expr& key) { return wide(v(key_at(dim, key))); });
  std::vector<Var> element{d};
  if (options.dilated) element.push_back(c);
  element.push_back(i);
  element.insert(element.end(), query_heads.begin(), query_heads.end());
  out(element) = cast(type, sums.weighted(along(d, row)) / sums.total(row));

  const auto queries_of = [&](const Expr& dim) {
    return heads.queries(place(options, dim, options.dilation, sizes.queries), sizes);
  };
  const auto keys_of = [&](const Expr& dim) { return heads.keys(place(options, dim, options.dilation, sizes.keys), sizes); };
  const Expr value_dim = heads.width(sizes);
  nestor::HalideDefinition definition{
      .outputs = {{out, queries_of(value_dim)}},
      .inputs = {{q, queries_of(sizes.head_dim)}, {k, keys_of(sizes.head_dim)}, {v, keys_of(value_dim)}},
      .sizes = heads.sizes(sizes),
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
  // Sizes of masks stand before those of groups.
  const auto masked = [&](const Param<int>& size, int value) {
    definition.sizes.insert(definition.sizes.begin() + 5, {size, value});
  };
  if (options.dilated) masked(options.dilation, 4);
  if (options.prefixed) masked(options.prefix, 128);
  if (options.windowed) masked(options.window, 256);
  return definition;
}

NESTOR_OPERATOR(attention, attention,
                nestor::kernels::variants({"", "causal", "window", "topleft", "prefix", "dilated", "gqa", "causal.gqa",
                                           "window.gqa", "prefix.gqa", "topleft.gqa", "lse", "causal.lse", "window.lse",
                                           "gqa.lse", "causal.gqa.lse", "prefix.gqa.lse", "dilated.lse"}));
}  // namespace
