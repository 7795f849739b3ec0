// Latent attention (DeepSeek-AI, 2024): its keys, and how queries, keys and values of one head size come of its products. A head of
// queries and keys has columns without positions, `plain` ones, and behind them `rotated` ones; a head of values has `values`
// columns. Attention knows one size of heads, the larger of both: the columns that a head lacks are 0.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "models/decoder/decoder.h"
#include "runtime/ir/builder/builder.h"

namespace dstrain::models {

// Return a family's keys of latent attention, and the fields of its config.json that are no keys.
std::vector<ModelKey> latent_keys(const LatentPart& part);
std::vector<KeySpec> latent_fields(const LatentPart& part);
// Bring a section with the names of config.json into the form of the keys, and back: no rank is null in files, and 0 as a key.
void normalise_latent(Node& section);
void restore_latent(Node& section);
// Returns what is wrong with values that are legal one by one.
std::optional<KeyProblem> latent_problem(const ModelConfig& config);
// Makes the sizes of heads and ranks small (ModelFamily::shrink).
void shrink_latent(ModelConfig& config);

class LatentAttention {
 public:
  // A model's heads. What it refers to must outlive it. `documents`: as of Builder.
  LatentAttention(Builder& b, const ModelConfig& config);

  // Return the columns of rows of all queries, of the latent of keys and values with the rotated columns of keys behind it, of
  // that latent, of keys and values that come of it, and of the results.
  int64_t query_columns() const { return heads_ * (plain_ + rotated_); }
  int64_t joint_columns() const { return rank_ + rotated_; }
  int64_t rank() const { return rank_; }
  int64_t expanded_columns() const { return heads_ * (plain_ + values_); }
  int64_t result_columns() const { return heads_ * values_; }

  // Returns the latent in rows of `joint`.
  BufferId latent(BufferId joint);
  // Returns what attention makes of rows of queries, of `joint`, whose rotated columns belong to all heads of keys, and of what
  // comes of the latent, which has for each head its plain columns of keys, and values behind them.
  BufferId attend(BufferId queries, BufferId joint, BufferId expanded, int64_t seq_len,
                  double dropout);

 private:
  RotaryAttrs rotary(int64_t head_size, int64_t first_column) const;
  // Returns rows (R, heads * size) as (R, heads, columns): columns [from, from + kept) of each head to columns [to, to + kept).
  Builder::Seen part(BufferId rows, int64_t size, int64_t from, int64_t kept, int64_t to) const;
  BufferId of_heads(const Formula& formula, const std::vector<Builder::Seen>& parts,
                    int64_t columns);
  double score_scale() const;

  Builder& b_;
  const ModelConfig& c_;
  const int64_t heads_, rank_, plain_, rotated_, values_,
      size_;  // size_: of a head, as attention sees it
};

}  // namespace dstrain::models
