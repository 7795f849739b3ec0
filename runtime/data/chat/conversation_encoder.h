// ConversationEncoder: a line of fine-tuning data becomes token ids, each of which counts in the loss or not.
#pragma once

#include <cstdint>
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
  // each answer adds to the rendered messages before it and the prompt for it, up to the token that ends the turn; a
  // token counts if any of its bytes do. Throws UserError, without the line's place, if the template refuses the
  // messages, if it has no marks and renders some messages differently where others follow, and for a line that is not
  // for `loss_on` or has a preference.
  void encode(const ChatLine& line, EncodedConversation& result);
  TextEncoder& texts() { return encoder_; }

 private:
  void encode_text(const ChatLine& line, EncodedConversation& result);
  void encode_messages(const ChatLine& line, EncodedConversation& result);
  // Returns the assistant's parts of the rendered messages, by rendering the beginnings of the conversation.
  std::vector<jinja::TextRange> answers(const jinja::Value& messages, std::string_view rendered,
                                        jinja::Meter& meter);
  void leave_out_space(size_t first, size_t last, EncodedConversation& result) const;

  const Tokenizer& tokenizer_;
  ChatEncoding encoding_;
  TextEncoder encoder_;
};

}  // namespace dstrain
