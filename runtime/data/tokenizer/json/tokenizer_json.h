// What a tokenizer.json says, read and checked; a Tokenizer is made from it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/data/tokenizer/added_tokens.h"
#include "runtime/data/tokenizer/bpe/byte_pairs.h"
#include "runtime/data/tokenizer/pieces/splitter.h"

namespace dstrain {

class JsonValue;

// Section model. Invariant: an id has one token at most, merges are of tokens of the vocabulary, ids are below
// kMostTokenIds.
struct TokenizerModel {
  std::unordered_map<std::string, uint32_t> vocabulary;  // tokens as the file has them
  std::vector<TokenMerge> merges;
  bool ignore_merges = false;
  bool needs_all_bytes = false;  // it says what becomes of a byte without a token
};

struct TokenizerSpec {
  TokenizerModel model;
  std::vector<AddedToken> added;
  bool nfc = false;
  std::vector<SplitStage> stages;
  std::vector<uint32_t> prefix, suffix;  // of a document, from the post-processor
  std::vector<std::string> warnings;     // what the user should know, a sentence each
};

// Throws UserError, which names `source` and the place in it, for a text that is not JSON, a file that is damaged, and
// parts of tokenizers that are not byte-level BPE.
TokenizerSpec read_tokenizer_json(std::string_view text, const std::string& source);

// What to do with a text whose tokenizer is none of byte-level BPE, for messages.
inline constexpr std::string_view kOtherTokenizer =
    "dstrain reads byte-level BPE: make a token file (.bin) with transformers";

// The sections, each of which throws UserError.
TokenizerModel read_model(const JsonValue& model);
std::vector<AddedToken> read_added_tokens(const JsonValue& list, const TokenizerModel& model);
// Reads normalizer, pre_tokenizer, post_processor and decoder of the whole file.
void read_pipeline(const JsonValue& file, TokenizerSpec& spec);

}  // namespace dstrain
