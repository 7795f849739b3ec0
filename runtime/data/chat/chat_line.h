// The lines of JSON that data of fine-tuning are made of.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/chat/jinja/value.h"
#include "runtime/data/chat/message_list.h"

namespace dstrain {

enum class ChatLineKind { text, messages, prompt, preference };

// An object with exactly one of these: "text"; "messages"; "conversations", which become messages; "prompt" and
// "completion", two texts or two lists of messages; "instruction" and "output", which become a prompt and a completion by
// Alpaca's prompts, with an "input" or without; "chosen" and "rejected", two texts or two lists of messages. Their prompt is
// "prompt", of the same kind, or else what the two begin with alike: whole messages; of texts without a space at its end. A
// prompt with a completion may have a "label", true or false.
struct ChatLine {
  ChatLineKind kind = ChatLineKind::text;
  std::string text;  // or the prompt
  std::string completion;
  MessageList messages;  // of a prompt and a completion of messages: both
  size_t prompt_messages =
      0;  // how many of them, from the first on, are the prompt; 0: there is no completion
  jinja::Value
      tools;  // what the template gets as `tools`: a list or none; undefined: the line has none
  std::vector<ChatLine>
      answers;  // of a preference: the chosen and the rejected one, each behind the prompt
  std::optional<bool> label{};  // of a prompt and a completion: whether such an answer is desirable
};

bool is_blank_line(std::string_view line);

// Reads a line, and counts its other members in `ignored`. Throws UserError, which begins with what `place` returns, if
// the line is none of these.
ChatLine read_chat_line(std::string_view line, const std::function<std::string()>& place,
                        std::map<std::string, int64_t>& ignored);

// Counts a member that is not used. At most 100 names are kept.
void count_ignored(const std::string& name, std::map<std::string, int64_t>& ignored);

}  // namespace dstrain
