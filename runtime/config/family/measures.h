// ModelMeasures: the sizes of a model, counted in the program that its family builds. Numbers of elements are doubles,
// which do not overflow: each size of a model may be as large as 2^31.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/core/blocks/weight_blocks.h"

namespace dstrain {

// The table of the token embedding.
struct TokenTable {
  std::string name;  // of the parameter
  int64_t rows = 0, width = 0;
  bool shared = false;  // another operation reads it, so its gradient is dense
  bool frozen = false;  // it has no gradient
};

struct ModelMeasures {
  int64_t layers = 0;                     // all, also those without a number
  std::vector<std::string> named_layers;  // those without a number, in order: "embedding", "head"
  double parameters = 0;
  double frozen = 0;  // of the parameters, those that training leaves as they are
  double packed = 0;  // of the frozen ones, those in blocks
  BlockFormat blocks = BlockFormat::none;  // of these
  double matrix_elements = 0;  // of the parameters, those of matrices: without biases and norms
  double activations = 0;      // of a sample: all results of the forward pass, inputs included
  int64_t rows = 1;            // of a sample's last loss: its predictions
  double logits = 0;           // of a sample, of all losses
  bool divides_loss = false;   // logits and losses can be computed in pieces of rows
  std::optional<TokenTable> token_table;
};

}  // namespace dstrain
