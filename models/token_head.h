// The head of models that read tokens.
#pragma once

#include <string>

#include "runtime/config/family/hugging_face.h"
#include "runtime/config/family/model_config.h"
#include "runtime/ir/builder/builder.h"

namespace dstrain::models {

struct TokenHead {
  std::string name{kHeadTensor};
  BufferId table = kNone;  // the token embedding, where that is the head
  float std = 0;           // of fresh weights
  double softcap = 0;      // of logits; 0: none
};

// Ends a model whose last layer gives x (R, width): with its loss, or with the logits, which the host reads. Where the model
// gives a score (ModelConfig::gives_score), the head is kScoreTensor (1, width) in place of the vocabulary's, and the loss is
// that of rewards.
void add_token_head(Builder& b, const ModelConfig& model, BufferId x, const TokenHead& head);

}  // namespace dstrain::models
