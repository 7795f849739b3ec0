// The ids of a tokenizer.json, and its text with further tokens, as add_tokens() of transformers gives them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace dstrain {

// Returns the largest id of a tokenizer.json, plus 1, once `tokens` are added; 0: the text has no ids of tokens.
int64_t ids_with(std::string_view json, std::span<const std::string> tokens);

// Returns the text of a tokenizer.json with `tokens` behind its added tokens: each is found in a text as it stands there,
// before normalization, and is no special token. A token of the vocabulary keeps its id, others have the next free ones, in
// order; an added token stays as it is. Throws UserError, which names `source`, if the text is no tokenizer.json.
std::string with_added_tokens(std::string_view json, std::span<const std::string> tokens,
                              const std::string& source);

}  // namespace dstrain
