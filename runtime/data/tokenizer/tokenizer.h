// Tokenizer: BPE of bytes or of characters as a tokenizer.json describes it, between text and token ids, exactly as the
// tokenizers library does it. Unchanging: threads share it, each with a TextEncoder of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/data/tokenizer/added_tokens.h"
#include "runtime/data/tokenizer/bpe/byte_pairs.h"
#include "runtime/data/tokenizer/bpe/character_pairs.h"
#include "runtime/data/tokenizer/bpe/piece_cache.h"
#include "runtime/data/tokenizer/json/tokenizer_json.h"
#include "runtime/data/tokenizer/normalizer/normalizer.h"
#include "runtime/data/tokenizer/normalizer/text_map.h"
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
  // Returns how many bytes of a text a token that begins it stands for: without a space that the tokenizer puts in front.
  int64_t bytes_of_first(uint32_t id) const;
  bool is_special(uint32_t id) const { return id < special_.size() && special_[id]; }
  // Returns whether the token is one that decoding leaves out where asked to: a special one, but for one that normalization
  // changes, which the tokenizers library does not know again.
  bool is_skipped(uint32_t id) const { return id < skipped_.size() && skipped_[id]; }
  // Returns whether the token is decoded as a byte by byte fallback, such as <0x0A>.
  bool is_fallback_byte(uint32_t id) const {
    return id < fallback_bytes_.size() && fallback_bytes_[id];
  }
  // What is left out where decoded text begins: at most `strips` times `strip`.
  const std::string& strip() const { return strip_; }
  int64_t strips() const { return strips_; }

  // Returns whether the ids of `text`, any bytes, are those of its parts before and behind `at`. May say no where
  // they are.
  bool may_cut(std::string_view text, int64_t at) const;
  // Returns whether there are places where may_cut() can say yes.
  bool may_cut() const { return cuttable_ && splitter_.cuts_at_spaces(); }

 private:
  friend class TextEncoder;

  Tokenizer(TokenizerSpec spec, const std::string& source);
  void read_tokens(const TokenizerSpec& spec, const std::string& source);
  std::string decoded(const std::string& token, uint32_t id, const DecoderSpec& decoder);

  Normalizer normalizer_;
  Normalizer marks_at_begin_, marks_elsewhere_;  // of Metaspace
  bool cuttable_;                                // no text is put in, and pieces end at spaces
  Splitter splitter_;
  TokenSet raw_, in_normalized_;  // added tokens
  std::variant<BytePairs, CharacterPairs> pairs_;
  std::vector<std::string> decoded_;  // by id
  std::vector<bool> special_;         // by id
  std::vector<bool> skipped_;         // by id
  std::vector<bool> fallback_bytes_;  // by id
  bool space_in_front_;
  std::string strip_;
  int64_t strips_ = 0;
  TokenIds ids_;
  std::vector<uint32_t> prefix_, suffix_;
  std::vector<std::string> warnings_;
};

// Encodes texts on one thread, with a memory of the pieces that it has met.
class TextEncoder {
 public:
  explicit TextEncoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // Appends the ids of `text` by itself. Bytes that are no UTF-8 are U+FFFD, as in Python's errors="replace"; `invalid`
  // gets where they are.
  void encode(std::string_view text, std::vector<uint32_t>& ids, unicode::Invalid& invalid);
  // The same of valid UTF-8; `spans` gets the bytes of `text` that each token is made of, in order. Characters that
  // normalization joins, or that are tokens of bytes, belong to each of their tokens, and what is put in front of a text to
  // its first character.
  void encode_with_spans(std::string_view text, std::vector<uint32_t>& ids,
                         std::vector<TokenSpan>& spans);

 private:
  // `at_begin`: nothing of the whole text stands before. `spans`, if it is not null, gets the bytes of `text` of each
  // token.
  void encode_normalized(std::string_view text, bool at_begin, std::vector<uint32_t>& ids,
                         std::vector<TokenSpan>* spans);
  // The same of a text without added tokens.
  void encode_text(std::string_view text, bool at_begin, std::vector<uint32_t>& ids,
                   std::vector<TokenSpan>* spans);
  // The same of one that Metaspace does not change any more.
  void encode_marked(std::string_view text, std::vector<uint32_t>& ids,
                     std::vector<TokenSpan>* spans);
  void add_spans(std::string_view text, std::span<const uint32_t> ids,
                 std::vector<TokenSpan>& spans) const;
  // Appends the ids of a piece of any bytes.
  void encode_piece(std::string_view piece, std::vector<uint32_t>& ids);

  const Tokenizer& tokenizer_;
  PieceCache cache_;
  MergeScratch scratch_;
};

}  // namespace dstrain
