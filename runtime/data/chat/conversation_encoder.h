// ConversationEncoder: a line of fine-tuning data becomes token ids, each of which counts in the loss or not.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/job.h"
#include "runtime/data/chat/chat_line.h"
#include "runtime/data/chat/chat_template.h"
#include "runtime/data/tokenizer/tokenizer.h"

namespace dstrain {

// How lines become tokens.
struct ChatEncoding {
  const ChatTemplate* chat_template = nullptr;  // null: there is none, so messages are an error
  std::string why_none;                         // the message then; empty: the model brings none
  std::optional<uint32_t> end;                  // the token behind texts and completions, if any
  LossOn loss_on = LossOn::usual;
  jinja::Limits limits;  // of rendering a conversation
};

// Token ids, and for each whether it counts in the loss.
struct EncodedConversation {
  std::vector<uint32_t> ids;
  std::vector<uint8_t> counts;
};

// Encodes on one thread. The caller keeps the tokenizer and the template alive.
class ConversationEncoder {
 public:
  ConversationEncoder(const Tokenizer& tokenizer, const ChatEncoding& encoding)
      : tokenizer_(tokenizer), encoding_(encoding), encoder_(tokenizer) {}

  // Appends a line's tokens. Messages are rendered by the template and encoded as a whole, without what the
  // post-processor adds. Their assistant's tokens are those that {% generation %} marks, or, without marks, those that
  // each answer adds to the rendered messages before it and the prompt for it, up to the token that ends the turn
  // (AnswerRanges); a token counts if any of its bytes do. Answers whose weight is 0 do not count, and neither do those of a
  // prompt. Members of messages, and tools, that the template does not read are counted in `ignored`. Throws UserError,
  // without the line's place, if the template refuses the messages, if the assistant's tokens cannot be told from others,
  // and for a line that is not for `loss_on` or has weights that it cannot give. A pair of answers is encoded one by one.
  void encode(const ChatLine& line, EncodedConversation& result,
              std::map<std::string, int64_t>& ignored);
  TextEncoder& texts() { return encoder_; }

 private:
  void encode_text(const ChatLine& line, EncodedConversation& result);
  void encode_messages(const ChatLine& line, EncodedConversation& result,
                       std::map<std::string, int64_t>& ignored);
  // Returns of each message whether its text is to count, or, where the loss is on all tokens, whether it is not to.
  std::vector<bool> picked(const ChatLine& line) const;
  // Gives the tokens of ranges `value` in `counts`; `spans` are those of the last tokens.
  void mark(const std::vector<jinja::TextRange>& ranges, const std::vector<TokenSpan>& spans,
            uint8_t value, EncodedConversation& result) const;
  // Counts what the template does not read; `rendered`: the text that it makes of the line.
  void count_unread(const ChatLine& line, const std::string& rendered,
                    std::map<std::string, int64_t>& ignored);
  bool reads(const ChatLine& line, size_t message, const std::string& name,
             const std::string& rendered) const;
  // Returns the end of the tokens from `first` to `last` without those of white space behind a turn's end.
  size_t end_of_turn(size_t first, size_t last, const EncodedConversation& result) const;

  const Tokenizer& tokenizer_;
  ChatEncoding encoding_;
  TextEncoder encoder_;
  std::map<std::string, bool> read_;  // of members of messages, whether the template reads them
};

}  // namespace dstrain
