// Attention.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "models/exported/fold/elements.h"
#include "models/exported/lower/operators.h"
#include "models/exported/lower/reductions.h"

namespace dstrain::exported {
namespace {

using Formulas = std::span<const Formula>;

// Queries (samples, heads, tokens, width), keys and values (samples, kv_heads, tokens, width).
struct Attention {
  Value q, k, v;
  double scale = 0;
  double dropout = 0;
  int64_t window = 0;   // keys that a query sees; 0: all up to its own
  bool causal = false;  // false: each query sees all keys
  int64_t heads() const { return q.shape[1]; }
  int64_t kv_heads() const { return k.shape[1]; }
};

// The keys that queries see: those up to their own, of which the last `window` if that is not 0, or all.
struct SeenKeys {
  bool causal = false;
  int64_t window = 0;
};

// Returns the keys that a mask shows. Nothing if it shows others.
std::optional<SeenKeys> keys_of(const HostTensor& mask) {
  if (mask.rank() < 2) return std::nullopt;
  const size_t rank = mask.rank();
  const int64_t queries = mask.sizes[rank - 2], keys = mask.sizes[rank - 1];
  if (queries != keys) return std::nullopt;
  const auto read = loader_of<double>(mask.type);
  int64_t at = 0, window = 0;
  const int64_t last = (queries - 1) * keys;  // the first key of the last query
  std::vector<bool> shown;
  for (Walk walk(mask.sizes, {&mask}); !walk.is_done(); walk.next(), ++at) {
    const double x = read(walk.at(0));
    const bool sees = mask.type == ScalarType::boolean ? x != 0 : x == 0;
    const bool hides = mask.type == ScalarType::boolean ? x == 0 : std::isinf(x) && x < 0;
    if (!sees && !hides) return std::nullopt;
    shown.push_back(sees);
    if (last <= at && at < last + keys && sees) ++window;
  }
  if (std::ranges::find(shown, false) == shown.end()) return SeenKeys{};
  for (size_t i = 0; i < shown.size(); ++i) {
    const auto key = static_cast<int64_t>(i) % keys,
               query = static_cast<int64_t>(i) / keys % queries;
    if (shown[i] != (key <= query && key > query - window)) return std::nullopt;
  }
  return SeenKeys{.causal = true, .window = window == keys ? 0 : window};
}

// Returns heads (samples, heads, tokens, width) as rows of tokens (samples * tokens, heads * width).
BufferId rows_of(Lowering& l, const Value& heads) {
  const Value by_token = transpose(heads, 1, 2);
  const Shape& s = by_token.shape;
  const Shape matrix{s[0] * s[1], s[2] * s[3]};
  const BufferId rows = l.rows(l.reshaped(by_token, matrix));
  if (l.builder().program().at(rows).shape.rank == 2) return rows;
  return l.builder().map(Formula::input(0), matrix, {{rows, dense_view(matrix)}});
}

// The program's operation, where each query sees all keys, or those up to its own.
Value whole_attention(Lowering& l, const Attention& a) {
  const Shape& s = a.q.shape;
  const bool usual = a.scale == 1 / std::sqrt(static_cast<double>(s[3]));
  const BufferId id = l.builder().attention(rows_of(l, a.q), rows_of(l, a.k), rows_of(l, a.v),
                                            {.heads = a.heads(),
                                             .kv_heads = a.kv_heads(),
                                             .seq_len = s[2],
                                             .dropout = a.dropout,
                                             .window = a.window,
                                             .scale = usual ? 0 : a.scale,
                                             .causal = a.causal});
  return transpose(whole(id, {s[0], s[2], s[1], s[3]}, a.q.type), 1, 2);
}

// Any mask: a softmax of products.
Value general(Lowering& l, const Node& node, const Attention& a, const std::optional<Value>& mask) {
  const auto repeated = [&a](const Value& x) {
    // Each head of keys serves neighbouring heads of queries.
    const int64_t times = a.heads() / a.kv_heads();
    if (times == 1) return x;
    const Shape& s = x.shape;
    const Value apart = expand(unsqueeze(x, 2), {s[0], s[1], times, s[2], s[3]});
    return apart;
  };
  const auto grouped = [&a](const Value& x, Lowering& lowering) {
    const Shape& s = x.shape;
    return lowering.reshaped(x, {s[0], a.kv_heads(), s[1] / a.kv_heads(), s[2], s[3]});
  };
  const bool shared = a.heads() != a.kv_heads();
  const Value q = shared ? grouped(a.q, l) : a.q;
  Value scores = l.contracted(q, repeated(a.k));
  scores = l.reshaped(scores, {a.q.shape[0], a.heads(), a.q.shape[2], a.k.shape[2]});
  const auto scale = static_cast<float>(a.scale);
  if (!mask) {
    scores = scaled(scores, a.scale);
  } else if (mask->type == ScalarType::boolean) {
    scores = l.pointwise(
        node,
        [scale](Formulas f) {
          return select(f[1], scale * f[0], -std::numeric_limits<float>::infinity());
        },
        {scores, *mask}, a.q.type);
  } else {
    scores = l.pointwise(
        node, [scale](Formulas f) { return scale * f[0] + f[1]; }, {scores, *mask}, a.q.type);
  }
  Value weights = softmax_of(l, node, scores, 3);
  if (shared) weights = grouped(l.computed(weights), l);
  const Value v = repeated(a.v);
  const Value out = l.contracted(weights, transpose(v, v.shape.rank - 2, v.shape.rank - 1));
  return l.reshaped(out, {a.q.shape[0], a.heads(), a.q.shape[2], a.v.shape[3]});
}

// Queries that see no key get NaN from a softmax; PyTorch's attention says 0, where a mask of truth values hides all.
void refuse_empty_rows(const Node& node, const HostTensor& mask) {
  if (mask.type != ScalarType::boolean || mask.rank() == 0) return;
  const int64_t keys = mask.sizes.back();
  const auto read = loader_of<double>(mask.type);
  int64_t at = 0;
  bool any = false;
  for (Walk walk(mask.sizes, {&mask}); !walk.is_done(); walk.next(), ++at) {
    any = any || read(walk.at(0)) != 0;
    if (at % keys != keys - 1) continue;
    if (!any) Lowering::fail(node, "has a mask that hides all keys from a query");
    any = false;
  }
}

void lower_attention(Lowering& l, const Node& node) {
  Attention a{
      .q = l.operand(node, "query"), .k = l.operand(node, "key"), .v = l.operand(node, "value")};
  const Shape result = l.shape_of(node.outputs[0]);
  // Dimensions before the heads are samples.
  for (Value* x : {&a.q, &a.k, &a.v}) {
    const Shape s = x->shape;
    if (s.rank < 3) Lowering::fail(node, "has queries, keys or values of {}", to_string(s));
    if (s.rank == 3) *x = unsqueeze(*x, 0);
    if (s.rank > 4)
      *x = l.reshaped(*x, {s.elements() / (s[-1] * s[-2] * s[-3]), s[-3], s[-2], s[-1]});
  }
  a.dropout = node.real("dropout_p");
  const double usual = 1 / std::sqrt(static_cast<double>(a.q.shape[3]));
  a.scale = node.has("scale") ? node.real("scale") : usual;
  if (static_cast<float>(a.scale) == static_cast<float>(usual)) a.scale = usual;
  if (a.heads() % a.kv_heads() != 0)
    Lowering::fail(node, "has {} heads of queries and {} of keys", a.heads(), a.kv_heads());
  const HostTensor* mask = node.has("attn_mask") ? l.constant(node, "attn_mask") : nullptr;
  const bool same = a.q.shape[2] == a.k.shape[2] && a.q.shape[3] == a.v.shape[3];
  std::optional<SeenKeys> seen;
  if (!node.has("attn_mask")) seen = SeenKeys{.causal = node.flag("is_causal")};
  if (mask) seen = keys_of(*mask);
  if (seen && same && a.scale > 0) {
    a.causal = seen->causal;
    a.window = seen->window;
    return l.set(node, l.reshaped(whole_attention(l, a), result));
  }
  if (node.flag("is_causal"))
    Lowering::fail(node,
                   "is causal with {} queries and {} keys of widths {} and {}: expected as many",
                   a.q.shape[2], a.k.shape[2], a.q.shape[3], a.v.shape[3]);
  if (a.dropout > 0 && l.builder().options().training)
    Lowering::fail(node,
                   "drops weights of attention with a mask that depends on inputs, or with other "
                   "numbers of queries and keys, which is not supported: "
                   "export the model with dropout 0 there");
  if (mask) refuse_empty_rows(node, *mask);
  std::optional<Value> given;
  if (node.has("attn_mask")) given = l.operand(node, "attn_mask");
  l.set(node, l.reshaped(general(l, node, a, given), result));
}

constexpr LoweredOp kAttention[] = {
    {"aten.scaled_dot_product_attention.default", lower_attention},
};

}  // namespace

std::span<const LoweredOp> attention_operators() {
  return kAttention;
}

}  // namespace dstrain::exported
