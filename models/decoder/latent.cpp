#include "models/decoder/latent.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "models/decoder/rotary_keys.h"
#include "models/hugging_face/fields.h"
#include "models/sizes.h"
#include "runtime/config/keys/table/coerce.h"
#include "runtime/ir/formula/formula.h"

namespace dstrain::models {
namespace {

constexpr std::string_view kQueryRank = "q_lora_rank";
constexpr int64_t kSmallColumns = 16;  // of what shrink_latent() leaves

}  // namespace

std::vector<ModelKey> latent_keys(const LatentPart& part) {
  using enum FactChange;
  if (!part.exists()) return {};
  KeySpec query_rank =
      size_key("dstrain.model.q_lora_rank", part.query_rank,
               "channels between the two products of queries; null: they are one product");
  query_rank.min = 0;
  query_rank.nullable = true;
  return {{query_rank, impossible},
          {size_key("dstrain.model.kv_lora_rank", part.rank,
                    "channels of the latent of keys and values")},
          {size_key("dstrain.model.qk_nope_head_dim", part.plain,
                    "columns without positions of a head of queries and keys")},
          {size_key("dstrain.model.qk_rope_head_dim", part.rotated,
                    "rotated columns of a head of queries and keys")},
          {size_key("dstrain.model.v_head_dim", part.values, "columns of a head of values")},
          {{.key = "dstrain.model.rope_interleave",
            .fallback = "true",
            .note = "pairs that are rotated are neighbouring columns"},
           forbidden}};
}

std::vector<KeySpec> latent_fields(const LatentPart& part) {
  if (!part.exists()) return {};
  return {
      harmless("dstrain.model.head_dim", "qk_rope_head_dim says it"),
      harmless("dstrain.model.qk_head_dim", "the sum of qk_nope_head_dim and qk_rope_head_dim")};
}

void normalise_latent(Node& section) {
  for (Member& m : section.members) {
    if (m.key != kQueryRank || !m.value.is(Node::Kind::null)) continue;
    m.value.kind = Node::Kind::integer;
    m.value.integer = 0;
    m.value.real = 0;
  }
}

void restore_latent(Node& section) {
  for (Member& m : section.members)
    if (m.key == kQueryRank && to_real(m.value, false) == 0.0) m.value.kind = Node::Kind::null;
}

std::optional<KeyProblem> latent_problem(const ModelConfig& c) {
  const int64_t heads = c.integer("num_attention_heads"),
                of_keys = c.integer("num_key_value_heads");
  if (of_keys > 0 && of_keys != heads)
    return KeyProblem{
        {"dstrain.model.num_key_value_heads", "dstrain.model.num_attention_heads"},
        fmt::format("latent attention has as many heads of keys as of queries: expected "
                    "num_key_value_heads {}",
                    heads)};
  return rotary_key_problem(c, c.integer("qk_rope_head_dim"));
}

void shrink_latent(ModelConfig& c) {
  for (const std::string_view key :
       {"q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "v_head_dim"})
    c.set(key, std::min(c.integer(key), kSmallColumns));
  c.set("qk_rope_head_dim", std::min(c.integer("qk_rope_head_dim"), kSmallColumns / 2));
  c.set("num_key_value_heads", c.integer("num_attention_heads"));
}

LatentAttention::LatentAttention(Builder& b, const ModelConfig& config)
    : b_(b),
      c_(config),
      heads_(config.integer("num_attention_heads")),
      rank_(config.integer("kv_lora_rank")),
      plain_(config.integer("qk_nope_head_dim")),
      rotated_(config.integer("qk_rope_head_dim")),
      values_(config.integer("v_head_dim")),
      size_(std::max(plain_ + rotated_, values_)) {}

RotaryAttrs LatentAttention::rotary(int64_t head_size, int64_t first_column) const {
  RotaryAttrs attrs = rotary_of(c_, rotated_);
  attrs.head_size = head_size;
  attrs.rotated = rotated_;
  attrs.first_column = first_column;
  attrs.interleaved = c_.flag("rope_interleave");
  return attrs;
}

// transformers square the factor of yarn that mscale_all_dim gives, and multiply scores by it.
double LatentAttention::score_scale() const {
  const RotaryAttrs attrs = rotary_of(c_, rotated_);
  const double root = std::sqrt(static_cast<double>(plain_ + rotated_));
  if (attrs.kind == RotaryKind::plain || attrs.mscale_all_dim == 0 || attrs.factor <= 1)
    return 1 / root;
  const double mscale = 0.1 * attrs.mscale_all_dim * std::log(attrs.factor) + 1;
  return mscale * mscale / root;
}

Builder::Seen LatentAttention::part(BufferId rows, int64_t size, int64_t from, int64_t kept,
                                    int64_t to) const {
  const int64_t columns = b_.program().at(rows).shape[-1];
  View view;
  view.offset = from - to;
  view.strides = {columns, columns == size ? 0 : size, 1};
  view.begin[2] = to;
  view.end[2] = to + kept;
  return {rows, view};
}

BufferId LatentAttention::of_heads(const Formula& formula, const std::vector<Builder::Seen>& parts,
                                   int64_t columns) {
  const Shape& all = b_.program().at(parts[0].buffer).shape;
  const Shape space{all.elements() / all[-1], heads_, columns};
  return b_.matrix(b_.map(formula, space, parts), heads_ * columns);
}

BufferId LatentAttention::latent(BufferId joint) {
  const int64_t rows = b_.program().at(joint).shape.elements() / joint_columns();
  View view;
  view.strides = {joint_columns(), 1};
  return b_.map(Formula::input(0), Shape{rows, rank_}, {{joint, view}});
}

BufferId LatentAttention::attend(BufferId queries, BufferId joint, BufferId expanded,
                                 int64_t seq_len, double dropout) {
  const Formula first = Formula::input(0), both = first + Formula::input(1);
  const int64_t of_queries = plain_ + rotated_, of_expanded = plain_ + values_;
  const BufferId documents = b_.documents(seq_len);
  if (size_ > of_queries)
    queries = of_heads(first, {part(queries, of_queries, 0, of_queries, 0)}, size_);
  queries = b_.rotary(queries, seq_len, rotary(size_, plain_), documents);
  const int64_t rows = b_.program().at(joint).shape.elements() / joint_columns();
  View behind;
  behind.offset = rank_;
  behind.strides = {joint_columns(), 1};
  const BufferId turned = b_.rotary(b_.map(first, Shape{rows, rotated_}, {{joint, behind}}),
                                    seq_len, rotary(rotated_, 0), documents);
  const BufferId keys = of_heads(
      both,
      {part(expanded, of_expanded, 0, plain_, 0), part(turned, rotated_, 0, rotated_, plain_)},
      size_);
  const BufferId values = of_heads(first, {part(expanded, of_expanded, plain_, values_, 0)}, size_);
  const BufferId y = b_.attention(queries, keys, values,
                                  {.heads = heads_,
                                   .kv_heads = heads_,
                                   .seq_len = seq_len,
                                   .dropout = dropout,
                                   .scale = score_scale()},
                                  documents);
  return size_ == values_ ? y : of_heads(first, {part(y, size_, 0, values_, 0)}, values_);
}

}  // namespace dstrain::models
