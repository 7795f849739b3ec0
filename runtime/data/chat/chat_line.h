// The lines of JSON that data of fine-tuning are made of.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "runtime/data/chat/jinja/value.h"

namespace dstrain {

enum class ChatLineKind { text, messages, prompt, preference };

// An object with exactly one of these: "text"; "messages"; "prompt" and "completion"; "chosen" and "rejected", with a
// "prompt" or without.
struct ChatLine {
  ChatLineKind kind = ChatLineKind::text;
  std::string text;  // or the prompt
  std::string completion;
  // A list of messages, dicts with "role" and "content" that have no members that are null; the reasoning of one is there as
  // "reasoning_content" and as "thinking". Of a preference two lists, or two texts.
  jinja::Value messages, chosen, rejected;
};

bool is_blank_line(std::string_view line);

// Reads a line, and counts its other members in `ignored`. Throws UserError, which begins with what `place` returns, if
// the line is none of these.
ChatLine read_chat_line(std::string_view line, const std::function<std::string()>& place,
                        std::map<std::string, int64_t>& ignored);

}  // namespace dstrain
