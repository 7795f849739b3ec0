// A head that files of weights have although the model's head is its embedding (tie_word_embeddings): copies of the embedding
// are common there, but another head is the sign of a wrong config.json, which transformers do not follow.
#pragma once

#include <string>

#include "runtime/config/family/model_config.h"
#include "runtime/config/family/weight_map.h"

namespace dstrain {

// Returns whether weights, a file or an index, have a head with other values than the embedding for a model whose head is its
// embedding. The names of both begin with `before`, and are those of `names` otherwise. Reads both tensors where there is a head,
// a piece at a time.
bool has_other_head(const std::string& weights, const ModelConfig& model, const ForeignNames& names,
                    const std::string& before = "");

// Throws UserError if weights, a file or an index, have a head of their own for a model whose head is its embedding.
void check_unread_head(const std::string& weights, const ModelConfig& model);

}  // namespace dstrain
