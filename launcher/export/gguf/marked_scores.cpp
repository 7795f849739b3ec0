#include "launcher/export/gguf/marked_scores.h"

#include <fmt/format.h>

#include <cstddef>
#include <string_view>
#include <unordered_set>

#include "runtime/data/utf8.h"

namespace dstrain {
namespace {

constexpr float kLowest = -1e6F;

uint64_t pair_of(uint32_t left, uint32_t right) {
  return uint64_t{left} << 32 | right;
}

// Returns one pair of tokens that make a token without a merge, as text; empty: there is none.
std::string pair_without_merge(const TokenizerModel& model) {
  std::unordered_set<uint64_t> merges;
  for (const TokenMerge& merge : model.merges) merges.insert(pair_of(merge.left, merge.right));
  for (const auto& [token, id] : model.vocabulary)
    for (size_t at = 1; at < token.size(); ++at) {
      if (!utf8::starts_character(static_cast<unsigned char>(token[at]))) continue;
      const auto left = model.vocabulary.find(std::string_view(token).substr(0, at));
      if (left == model.vocabulary.end()) continue;
      const auto right = model.vocabulary.find(std::string_view(token).substr(at));
      if (right != model.vocabulary.end() && !merges.contains(pair_of(left->second, right->second)))
        return fmt::format("\"{}\" and \"{}\"", left->first, right->first);
    }
  return {};
}

}  // namespace

MarkedScores scores_of_merges(const TokenizerModel& model, int64_t ids) {
  MarkedScores result{.scores = std::vector<float>(static_cast<size_t>(ids), kLowest),
                      .difference = {}};
  std::vector<bool> scored(result.scores.size());
  float next = 0;
  for (size_t i = 0; i < model.merges.size(); ++i) {
    const uint32_t merged = model.merges[i].merged;
    if (!scored[merged]) {
      scored[merged] = true;
      result.scores[merged] = next--;
    } else if (model.merges[i - 1].merged != merged) {
      result.difference =
          "the tokenizer's merges are not in the order of the tokens that they make, by which "
          "llama.cpp merges";
    }
  }
  if (const std::string pair = pair_without_merge(model);
      result.difference.empty() && !pair.empty())
    result.difference =
        fmt::format("llama.cpp merges {} to a token, and the tokenizer has no such merge", pair);
  return result;
}

}  // namespace dstrain
