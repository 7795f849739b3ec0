// TextStream: what is printed of a text whose tokens come one after another.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/data/tokenizer/stream_decoder.h"
#include "runtime/data/vocabulary.h"

namespace dstrain {

// Text of a tokenizer or of a vocabulary's characters; or, where there is neither, ids separated by commas, which
// --prompt_ids accepts.
class TextStream {
 public:
  // `tokenizer` may be null. `stops`: texts each of which ends the new text and is not printed. The caller keeps the
  // arguments alive.
  TextStream(const Vocabulary& vocabulary, const Tokenizer* tokenizer,
             std::span<const std::string> stops);

  // Returns what is to be printed of the prompt.
  std::string prompt(std::span<const int32_t> ids);
  // Returns what a new token has made certain of the new text. What may be the beginning of a stop is held back.
  std::string add(int32_t id);
  // Returns whether one of the stops has come: nothing follows.
  bool stopped() const { return stopped_; }
  // Returns what is left.
  std::string finish();

 private:
  std::string text_of(int32_t id);
  // Takes what is certain out of held_.
  std::string take_certain(bool at_end);

  const Vocabulary& vocabulary_;
  std::span<const std::string> stops_;
  std::optional<StreamDecoder> decoder_;
  std::string held_;
  bool first_ = true, stopped_ = false;
};

}  // namespace dstrain
