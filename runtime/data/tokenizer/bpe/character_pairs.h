// CharacterPairs: the vocabulary and merges of a tokenizer whose pieces begin as their characters' tokens, as those that
// SentencePiece has made (Llama 2, Mistral, Gemma).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "runtime/data/tokenizer/bpe/pair_merges.h"
#include "runtime/data/tokenizer/bpe/token_ids.h"
#include "runtime/data/tokenizer/normalizer/text_map.h"
#include "runtime/data/utf8.h"

namespace dstrain {

// What becomes of a character that is no token.
struct UnknownCharacters {
  bool byte_fallback =
      false;  // the tokens <0x00> to <0xFF> of its bytes, if there is one for each of them
  uint32_t token = kNoToken;  // else this token; kNoToken: the character is left out
  bool fuse = false;          // one token for all that follow one another
};

// Returns the byte that a token such as <0x0A> stands for, as the tokenizers library reads it; -1: it stands for none.
int byte_of_token(std::string_view token);

class CharacterPairs {
 public:
  // `vocabulary`: all tokens but added ones. With `ignore_merges` a piece that is a token is this token without merges.
  CharacterPairs(TokenIds vocabulary, const std::vector<TokenMerge>& merges,
                 UnknownCharacters unknown, bool ignore_merges);

  // Appends the ids of `piece`, valid UTF-8; `spans`, if it is not null, gets the bytes of `piece` of each. All bytes of a
  // character that falls back to them are those of each of its tokens.
  void encode(std::string_view piece, MergeScratch& scratch, std::vector<uint32_t>& ids,
              std::vector<TokenSpan>* spans = nullptr) const;

  // Calls emit(part) for parts of `piece`, in order, whose ids are together those of `piece`. It is cut in front of each
  // mark U+2581, as a rule a space, that no merge joins with the character before it.
  template <class Emit>
  void cut(std::string_view piece, const Emit& emit) const;

  // Returns whether each character has a token, itself or by its bytes or as the token of unknown ones.
  bool knows_all() const { return unknown_.token != kNoToken || all_bytes_; }

 private:
  static constexpr uint32_t kMark = 0x2581;
  static constexpr std::string_view kMarkBytes = "\u2581";

  // Sets `row` to the tokens that `piece` begins as, and `sources`, if it is not null, to the bytes of each.
  void begin(std::string_view piece, std::vector<uint32_t>& row,
             std::vector<TokenSpan>* sources) const;
  bool begin_as_bytes(std::string_view character, std::vector<uint32_t>& row) const;
  // Returns whether no merge goes over the place `at` (above 0) of `piece`, where a mark begins.
  bool may_cut(std::string_view piece, size_t at) const;
  void note_joined(const std::vector<TokenMerge>& merges);

  TokenIds vocabulary_;
  PairMerges merges_;
  UnknownCharacters unknown_;
  bool ignore_merges_;
  std::vector<uint32_t> character_ids_;  // by code point
  std::array<uint32_t, 256> byte_ids_{};
  bool all_bytes_ = false;               // with byte_fallback, and each byte has a token
  std::vector<uint32_t> lengths_;        // by id: bytes of the token as the vocabulary has it
  std::unordered_set<uint32_t> joined_;  // characters that stand before a mark in a merged token
};

template <class Emit>
void CharacterPairs::cut(std::string_view piece, const Emit& emit) const {
  size_t done = 0;
  if (!ignore_merges_ && character_ids_[kMark] != kNoToken)
    for (size_t at = piece.find(kMarkBytes, 1); at < piece.size();
         at = piece.find(kMarkBytes, at + kMarkBytes.size())) {
      if (!may_cut(piece, at)) continue;
      emit(piece.substr(done, at - done));
      done = at;
    }
  emit(piece.substr(done));
}

}  // namespace dstrain
