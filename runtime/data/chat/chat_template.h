// ChatTemplate: how a conversation is written as one text, as transformers' apply_chat_template renders a template.
// Unchanging: threads share it.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "runtime/data/chat/jinja/interpreter.h"
#include "runtime/data/chat/jinja/meter.h"
#include "runtime/data/chat/jinja/syntax.h"

namespace dstrain {

class ChatTemplate {
 public:
  // Parses a template; `source` names it in messages. `tokens`: the special tokens that it may name, such as
  // bos_token. Throws UserError, "SOURCE: line 3: ...", for what is no template, or not available.
  ChatTemplate(std::string_view text, std::string source, jinja::Variables tokens);

  const std::string& source() const { return source_; }
  // Returns whether {% generation %} says in it which text is the assistant's.
  bool marks_assistant() const { return marks_assistant_; }

  // Returns a meter for a conversation. strftime_now() has the time of this call.
  jinja::Meter meter(const jinja::Limits& limits = {}) const;
  // Renders a list of messages, with a list of tools or none. Throws UserError, "SOURCE: line 3: ...".
  jinja::RenderedText render(const jinja::Value& messages, bool add_generation_prompt,
                             jinja::Meter& meter, const jinja::Value& tools = jinja::None{}) const;
  // Returns whether a name stands in it, as that of a variable, an attribute or an item.
  bool names(std::string_view name) const { return names_.contains(name); }

 private:
  std::string source_;
  jinja::Variables tokens_;
  jinja::Body body_;
  bool marks_assistant_;
  std::set<std::string, std::less<>> names_;
};

// Returns dstrain's own template of this name (chatml, llama3, qwen); empty if there is none.
std::string_view built_in_template(std::string_view name);

}  // namespace dstrain
