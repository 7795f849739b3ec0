// What a tokenizer.json says, read and checked; a Tokenizer is made from it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/tokenizer/added_tokens.h"
#include "runtime/data/tokenizer/bpe/character_pairs.h"
#include "runtime/data/tokenizer/bpe/pair_merges.h"
#include "runtime/data/tokenizer/bpe/token_ids.h"
#include "runtime/data/tokenizer/normalizer/normalizer.h"
#include "runtime/data/tokenizer/pieces/splitter.h"

namespace dstrain {

class JsonValue;

// Section model. Invariant: an id has one token at most, merges are of tokens of the vocabulary, ids are below
// kMostTokenIds.
struct TokenizerModel {
  TokenIds vocabulary;  // tokens as the file has them
  std::vector<TokenMerge> merges;
  bool ignore_merges = false;
  UnknownCharacters unknown;  // token: unk_token's, if the vocabulary has it
  std::string unk_token;      // empty: none

  // Returns whether the section says what becomes of a byte or a character without a token.
  bool replaces_unknown() const { return !unk_token.empty() || unknown.byte_fallback; }
};

// Section decoder: how tokens become text.
struct DecoderSpec {
  bool byte_level = false;                     // by the letters of bytes, and none of the others
  std::vector<NormalizeReplace> replacements;  // in each token, in order; contents may be empty
  bool byte_fallback = false;                  // <0x0A> is a byte
  // At most `strips` of this character are left out where the whole text begins.
  std::string strip;
  int64_t strips = 0;
};

// What a tokenizer.json says.
struct TokenizerSpec {
  TokenizerModel model;
  std::vector<AddedToken> added;
  std::vector<NormalizerStep> normalizer;
  // What the pre-tokenizer Metaspace changes in the part of a text that begins it, and in parts behind added tokens.
  std::vector<NormalizerStep> marks_at_begin, marks_elsewhere;
  std::vector<SplitStage> stages;
  bool byte_level = false;  // pieces begin as their bytes' tokens, else as their characters'
  DecoderSpec decoder;
  std::vector<uint32_t> prefix, suffix;  // of a document, from the post-processor
  std::vector<std::string> warnings;     // what the user should know, a sentence each
};

// Throws UserError, which names `source` and the place in it, for a text that is not JSON, a file that is damaged, and
// parts of tokenizers that are not available.
TokenizerSpec read_tokenizer_json(std::string_view text, const std::string& source);

// What to do with a text whose tokenizer is of another model, for messages.
inline constexpr std::string_view kOtherTokenizer =
    "dstrain reads BPE, byte-level or with SentencePiece's marks: make a token file (.bin) with "
    "transformers";

// The sections, each of which throws UserError. What the spec has of other sections is not looked at, but for
// read_decoder, which looks at byte_level.
TokenizerModel read_model(const JsonValue& model);
std::vector<AddedToken> read_added_tokens(const JsonValue& list, const TokenizerModel& model);
void read_normalizer(const JsonValue& normalizer, TokenizerSpec& spec);
void read_pre_tokenizer(const JsonValue& pre_tokenizer, TokenizerSpec& spec);
void read_post_processor(const JsonValue& post_processor, TokenizerSpec& spec);
void read_decoder(const JsonValue& decoder, TokenizerSpec& spec);

// Returns the member "String" of a pattern, which is not empty; nothing if the pattern is a regular expression.
std::optional<std::string> literal_pattern(const JsonValue& pattern);
// Calls visit with a stage, or with each of those that a Sequence has. `list`: the name of a Sequence's member.
void each_stage(const JsonValue& stage, const char* list,
                const std::function<void(const JsonValue&)>& visit);

}  // namespace dstrain
