// A head that files of weights have although the model's head is its embedding (tie_word_embeddings): copies of the embedding
// are common there, but another head is the sign of a wrong config.json, which transformers do not follow.
#pragma once

#include <string>

#include "runtime/config/family/model_config.h"

namespace dstrain {

// Throws UserError if weights, a file or an index, have a head of their own for a model whose head is its embedding. Reads
// both tensors where there is a head, a piece at a time.
void check_unread_head(const std::string& weights, const ModelConfig& model);

}  // namespace dstrain
