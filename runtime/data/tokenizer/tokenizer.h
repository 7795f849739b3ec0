// Tokenizer: byte-level BPE as a tokenizer.json describes it, between text and token ids, exactly as the tokenizers
// library does it. Unchanging: threads share it, each with a TextEncoder of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/data/tokenizer/added_tokens.h"
#include "runtime/data/tokenizer/bpe/byte_pairs.h"
#include "runtime/data/tokenizer/bpe/piece_cache.h"
#include "runtime/data/tokenizer/json/tokenizer_json.h"
#include "runtime/data/tokenizer/unicode/lossy.h"

namespace dstrain {

class Tokenizer {
 public:
  // Reads the text of a tokenizer.json; `source` names it in messages. Throws UserError.
  Tokenizer(std::string_view json, const std::string& source);

  // Returns the largest id plus 1.
  int64_t vocabulary_size() const { return static_cast<int64_t>(decoded_.size()); }
  std::optional<uint32_t> id_of(const std::string& token) const;
  // What the post-processor puts in front of a document, and behind it.
  std::span<const uint32_t> prefix() const { return prefix_; }
  std::span<const uint32_t> suffix() const { return suffix_; }
  // What the user should know about the file, a sentence each.
  const std::vector<std::string>& warnings() const { return warnings_; }
  void add_warning(std::string warning) { warnings_.push_back(std::move(warning)); }

  // Returns the ids of a text by itself, without prefix and suffix. For texts by the million use a TextEncoder.
  std::vector<uint32_t> encode(std::string_view text) const;
  // Returns the bytes that a token stands for, which need not be whole characters; none of an id that has no token.
  std::string_view bytes_of(uint32_t id) const;
  // Returns whether the token is special: one that decode() leaves out where asked to.
  bool is_special(uint32_t id) const { return id < special_.size() && special_[id]; }
  // Returns the text of some ids, with U+FFFD where bytes are no character.
  std::string decode(std::span<const uint32_t> ids, bool skip_special) const;

  // Returns whether the ids of `text`, any bytes, are those of its parts before and behind `at`. May say no where
  // they are.
  bool may_cut(std::string_view text, int64_t at) const;
  // Returns whether there are places where may_cut() can say yes.
  bool may_cut() const { return splitter_.cuts_at_spaces(); }

 private:
  friend class TextEncoder;

  Tokenizer(TokenizerSpec spec, const std::string& source);
  void read_tokens(const TokenizerSpec& spec, const std::string& source);
  std::string normalized(std::string_view text) const;

  bool nfc_;
  Splitter splitter_;
  TokenSet raw_, in_normalized_;  // added tokens
  BytePairs pairs_;
  std::vector<std::string> decoded_;  // by id
  std::vector<bool> special_;         // by id
  std::unordered_map<std::string, uint32_t> ids_;
  std::vector<uint32_t> prefix_, suffix_;
  std::vector<std::string> warnings_;
};

// Bytes of a text.
struct TokenSpan {
  size_t begin = 0, end = 0;
};

// Encodes texts on one thread, with a memory of the pieces that it has met.
class TextEncoder {
 public:
  explicit TextEncoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // Appends the ids of `text` by itself. Bytes that are no UTF-8 are U+FFFD, as in Python's errors="replace"; `invalid`
  // gets where they are.
  void encode(std::string_view text, std::vector<uint32_t>& ids, unicode::Invalid& invalid);
  // The same of valid UTF-8; `spans` gets the bytes of `text` that each token is made of, in order. Characters that
  // normalization joins belong to each of their tokens.
  void encode_with_spans(std::string_view text, std::vector<uint32_t>& ids,
                         std::vector<TokenSpan>& spans);

 private:
  // `spans`, if it is not null, gets the bytes of `text` of each token.
  void encode_normalized(std::string_view text, std::vector<uint32_t>& ids,
                         std::vector<TokenSpan>* spans);
  void add_spans(std::string_view text, size_t offset, std::span<const uint32_t> ids,
                 std::vector<TokenSpan>& spans) const;
  void encode_piece(std::string_view piece, std::vector<uint32_t>& ids);

  const Tokenizer& tokenizer_;
  PieceCache cache_;
  MergeScratch scratch_;
};

}  // namespace dstrain
