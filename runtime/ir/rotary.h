// Rotary position embedding (Su et al., 2021): what its angles follow from. Of D rotated columns of each head, columns i and
// i + D/2 are the pair i (0 <= i < D/2), or interleaved columns 2 i and 2 i + 1. It is rotated by position * frequency i:
//   y[i] = x[i] cos - x[i + D/2] sin,  y[i + D/2] = x[i + D/2] cos + x[i] sin
// Names and formulas are those of Hugging Face's rope_parameters.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/ir/rows_part.h"

namespace dstrain {

// How frequencies are changed for samples that are longer than those of pretraining.
enum class RotaryKind : uint8_t { plain, llama3, linear, dynamic, yarn };

// The attributes of rotary and rotary_grad.
struct RotaryAttrs {
  int64_t head_size = 0;  // columns of a head
  int64_t rotated =
      0;  // D, the columns that are rotated: even, at most 2 * kMostRotaryPairs; 0: all of a head
  int64_t first_column = 0;  // of those that are rotated
  bool interleaved = false;  // the columns of a pair are neighbours
  // 1: all heads of a row are rotated; 3: a row has queries, keys and values, of which the last third stays as it is.
  int64_t sections = 1;
  int64_t seq_len = 0;  // T: rows of a sample; positions are below it
  RowsPart part{};
  RotaryKind kind = RotaryKind::plain;
  double theta = 10000;  // frequency i of kind plain is theta^(-2 i / D)
  double factor = 1;     // by which samples are longer; of every kind but plain
  // Positions of pretraining: original_max_position_embeddings of llama3 and yarn, max_position_embeddings of dynamic.
  double original_positions = 0;
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn
  bool truncate = true;                              // yarn: the ends of its ramp are whole numbers
  // yarn: by which cos and sin are multiplied; 0: as follows from `factor` and these two, where both are given (not 0).
  double attention_factor = 0;
  double mscale = 0, mscale_all_dim = 0;

  int64_t rotated_columns() const { return rotated > 0 ? rotated : head_size; }
  // Returns how many of a row's heads are rotated, the first ones.
  int64_t rotated_heads(int64_t heads) const { return sections == 3 ? heads / 3 * 2 : heads; }
  bool operator==(const RotaryAttrs&) const = default;
};

// Kernels take the frequencies of a head by value.
inline constexpr int kMostRotaryPairs = 256;

// Returns what is wrong with the attributes, apart from seq_len; empty if they are legal.
std::string_view rotary_problem(const RotaryAttrs& attrs);

// Returns the D/2 frequencies, in radians for each position.
std::vector<double> rotary_frequencies(const RotaryAttrs& attrs);

// Returns what cos and sin are multiplied by: 1, but for yarn.
double rotary_scale(const RotaryAttrs& attrs);

// The frequencies as kernels read them.
struct RotaryTurns {
  double of_pair[kMostRotaryPairs] = {};  // whole turns for each position: frequency / (2 pi)
  double scale = 1;                       // of cos and sin
};
RotaryTurns rotary_turns(const RotaryAttrs& attrs);

}  // namespace dstrain
