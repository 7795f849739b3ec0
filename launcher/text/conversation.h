// Conversation: messages and answers of a chat, as the token ids that a model reads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "launcher/text/text_model.h"
#include "runtime/data/chat/chat_template.h"

namespace dstrain {

class Conversation {
 public:
  // `system`: the first message; empty: none. The caller keeps `model`, which has a tokenizer, alive. `chat_template`: as the
  // option of that name; empty: the model's. Throws UserError if there is none.
  Conversation(const TextModel& model, const std::string& chat_template, const std::string& system);

  // Adds what the user says, and what the model has answered.
  void say(const std::string& text) { messages_.push_back({"user", text}); }
  void answer(const std::string& text) { messages_.push_back({"assistant", text}); }
  // Forgets all messages but the system's.
  void reset();
  // Forgets the last message.
  void take_back() { messages_.pop_back(); }
  // Forgets the first message behind the system's and its answer. Returns whether there was one before the last message.
  bool forget_first();

  // Returns the ids of all messages and of what stands in front of an answer. Throws UserError if the template refuses them.
  std::vector<int32_t> ids() const;
  // Returns the ids that end an answer: the model's, and the special token that the template puts behind one.
  const std::vector<int32_t>& ends() const { return ends_; }
  // Returns the texts that end an answer, where the template puts no special token behind it.
  const std::vector<std::string>& end_texts() const { return end_texts_; }

 private:
  struct Message {
    std::string role, text;
  };
  std::string rendered(const std::vector<Message>& messages, bool for_answer) const;
  void find_ends();

  const Tokenizer& tokenizer_;
  std::unique_ptr<const ChatTemplate> template_;
  std::vector<Message> messages_;
  size_t kept_ = 0;  // messages that reset() leaves
  std::vector<int32_t> ends_;
  std::vector<std::string> end_texts_;
};

}  // namespace dstrain
