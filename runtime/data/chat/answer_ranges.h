// AnswerRanges: which bytes of a rendered conversation are the assistant's.
#pragma once

#include <cstddef>
#include <map>
#include <string_view>
#include <vector>

#include "runtime/data/chat/chat_template.h"

namespace dstrain {

// Finds the parts of a conversation's text that its answers make. Where the template marks them, they are what it marks.
// Otherwise the part of an answer is what a rendering of the conversation up to it has behind one of the conversation
// before it with the prompt for an answer. Where a template renders a message otherwise than where it was the last one, the
// part begins in the whole text where that differs from the prompt, and ends behind what follows the answer's content where
// it is the last message; both places are found from the contents of messages, which are replaced by others to see what
// changes. The caller keeps all that the constructor gets alive.
class AnswerRanges {
 public:
  AnswerRanges(const ChatTemplate& chat_template, const jinja::Value& messages,
               const jinja::Value& tools, const jinja::RenderedText& whole, jinja::Meter& meter)
      : template_(chat_template),
        messages_(messages),
        tools_(tools),
        whole_(whole),
        meter_(meter) {}

  // Returns the ranges of those messages for which `wanted` holds, in order. Throws UserError if one cannot be told from
  // what is around it.
  std::vector<jinja::TextRange> of(const std::vector<bool>& wanted);

 private:
  std::vector<jinja::TextRange> marked(const std::vector<bool>& wanted);
  jinja::TextRange unmarked(size_t answer);
  size_t begin_of(size_t answer);
  size_t begin_of_first();
  size_t end_of(size_t answer);
  size_t begin_by_prompt(size_t answer, std::string_view prompt, size_t from, size_t content) const;

  // Renders the first `count` messages, as they are or with another content of one of them, and its tool calls or none.
  jinja::RenderedText beginning(size_t count, bool prompt);
  jinja::RenderedText changed(size_t count, bool prompt, size_t changed, const char* content,
                              bool calls);
  jinja::RenderedText render(const jinja::Value& messages, bool prompt);
  // Returns the bytes of `text`, which is the rendering of the first `count` messages, that the content of a message, or its
  // tool calls, make. Throws UserError if they make none.
  jinja::TextRange content_in(std::string_view text, size_t count, bool prompt, size_t message);
  jinja::TextRange content_in_whole(size_t message);
  [[noreturn]] void fail(size_t message, std::string_view why) const;

  const ChatTemplate& template_;
  const jinja::Value& messages_;
  const jinja::Value& tools_;
  const jinja::RenderedText& whole_;
  jinja::Meter& meter_;
  std::map<size_t, jinja::TextRange> contents_;  // of messages, in the whole text
};

// Returns whether the message is the assistant's.
bool is_answer(const jinja::Value& message);

}  // namespace dstrain
