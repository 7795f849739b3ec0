// Lines of conversations for tests, and the text that counts of what they become.
#pragma once

#include <catch2/catch.hpp>
#include <cstdint>
#include <map>
#include <string>

#include "runtime/data/chat/conversation_encoder.h"

namespace dstrain {

inline std::map<std::string, int64_t> ignored_in(const std::string& line, ChatLine& read) {
  std::map<std::string, int64_t> ignored;
  read = read_chat_line(
      line, [] { return "a.jsonl:7"; }, ignored);
  return ignored;
}

inline ChatLine read(const std::string& line) {
  ChatLine result;
  ignored_in(line, result);
  return result;
}

// Returns a message of JSON; `more`: further members, each with a comma in front.
inline std::string message(const std::string& role, const std::string& content,
                           const std::string& more = "") {
  return "{\"role\": \"" + role + "\", \"content\": \"" + content + "\"" + more + "}";
}

// Encodes a line by a template, and returns the text of the tokens that count; what is ignored is counted in `ignored`.
inline std::string counted_text(const Tokenizer& tokenizer, const std::string& chat_template,
                                const ChatLine& line, LossOn loss_on = LossOn::usual,
                                int64_t steps = jinja::Limits().steps,
                                std::map<std::string, int64_t>* ignored = nullptr) {
  const ChatTemplate parsed(chat_template, "t", {});
  ChatEncoding encoding;
  encoding.chat_template = &parsed;
  encoding.loss_on = loss_on;
  encoding.limits.steps = steps;
  EncodedConversation all;
  std::map<std::string, int64_t> none;
  ConversationEncoder(tokenizer, encoding).encode(line, all, ignored ? *ignored : none);
  REQUIRE(all.ids.size() == all.counts.size());
  std::string text;
  for (size_t i = 0; i < all.ids.size(); ++i)
    if (all.counts[i] != 0) text += tokenizer.bytes_of(all.ids[i]);
  return text;
}

// ChatML without marks.
inline const std::string kPlain =
    "{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ ':' ~ m.content ~ '<|im_end|>\\n' }}{% "
    "endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant:' }}{% endif %}";

}  // namespace dstrain
