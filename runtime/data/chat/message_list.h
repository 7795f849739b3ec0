// The messages of a conversation, as data have them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/chat/jinja/value.h"

namespace dstrain {

// What the members "weight", "train" or "loss_weight" of a message say about the loss.
enum class MessageWeight : uint8_t { usual, counts, left_out };

struct MessageList {
  // A list of dicts with "role" and "content", both texts, without members that are null and without those of the loss; the
  // reasoning of one is there as "reasoning_content" and as "thinking".
  jinja::Value messages;
  std::vector<MessageWeight> weights;  // of each message

  size_t size() const { return weights.size(); }
};

// How the members of messages are called.
enum class MessageNames {
  roles,  // "role" and "content"
  speakers  // "from" and "value", with ShareGPT's names of roles; those of a message with a "role" as above
};

// Reads the messages of the member `name` of a line, and appends them to `list`. Content that is a list of text parts
// becomes one text. Throws UserError, "messages[2]: ...", for what is no list of messages, and for weights that a mask
// cannot express.
void add_messages(const jinja::Value& value, std::string_view name, MessageNames names,
                  MessageList& list);

}  // namespace dstrain
