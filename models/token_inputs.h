// The inputs of models that predict the next token.
#pragma once

#include <string_view>
#include <vector>

#include "runtime/config/family/family.h"

namespace dstrain::models {

// Returns token ids, the numbers of their documents, and their targets, i32 of the shape of a sample. `context` and
// `vocabulary`: the names of the keys that say its length and the number of ids.
inline std::vector<ModelInput> token_inputs(std::string_view context, std::string_view vocabulary) {
  return {{"ids", InputRole::token_ids, DType::i32, {context}, vocabulary},
          {"documents", InputRole::documents, DType::i32, {context}},
          {"targets", InputRole::labels, DType::i32, {context}, vocabulary}};
}

}  // namespace dstrain::models
