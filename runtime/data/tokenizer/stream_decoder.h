// StreamDecoder: the text of token ids that come one after another, in whole characters.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/data/tokenizer/tokenizer.h"

namespace dstrain {

// What add() and finish() return is together what Tokenizer::decode() returns for all ids, without special tokens.
class StreamDecoder {
 public:
  // The caller keeps `tokenizer` alive.
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // Returns the text that the id has completed: what the ids so far have left, up to a character that is cut short.
  std::string add(uint32_t id);
  // Returns what is left of a character that no id has completed, as U+FFFD; empty if there is none.
  std::string finish();

 private:
  std::string take(size_t bytes);

  const Tokenizer& tokenizer_;
  std::string begun_;  // bytes that have not been returned
};

}  // namespace dstrain
