// The scores by which llama.cpp merges the tokens of a tokenizer with SentencePiece's marks: of two neighbours those that
// make the token of the highest score.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/data/tokenizer/json/tokenizer_json.h"

namespace dstrain {

struct MarkedScores {
  std::vector<float> scores;  // by id
  // What llama.cpp merges and the tokenizer does not, or in another order, a sentence; empty: nothing.
  std::string difference;
};

// Returns the scores of the first `ids` ids: minus the place of a token's first merge, of tokens without merges the lowest.
MarkedScores scores_of_merges(const TokenizerModel& model, int64_t ids);

}  // namespace dstrain
