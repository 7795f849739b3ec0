// StreamDecoder: the text of token ids that come one after another, in whole characters.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "runtime/data/tokenizer/tokenizer.h"

namespace dstrain {

// What add() and finish() return is together what the tokenizers library decodes from all ids.
class StreamDecoder {
 public:
  // The caller keeps `tokenizer` alive. With `skip_special` special tokens have no text.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = true)
      : tokenizer_(tokenizer), skip_special_(skip_special), strips_(tokenizer.strips()) {}

  // Returns the text that the id has completed: what the ids so far have left, up to a character that is cut short. A run
  // of tokens of byte fallback is held back until its end: if one of its bytes belongs to no character, none does.
  std::string add(uint32_t id);
  // Returns what is left, with U+FFFD for bytes that no id has completed; empty if there is none.
  std::string finish();

 private:
  std::string take(size_t bytes);
  std::string take_run();
  std::string stripped(const std::string& text);

  const Tokenizer& tokenizer_;
  bool skip_special_;
  int64_t strips_;     // how many times what begins the text may still be left out
  std::string run_;    // bytes of a run of byte fallback
  std::string begun_;  // other bytes that have not been returned
};

// Returns the text of some ids, with U+FFFD where bytes are no character. With `skip_special` special tokens have no text.
std::string decode(const Tokenizer& tokenizer, std::span<const uint32_t> ids, bool skip_special);

}  // namespace dstrain
