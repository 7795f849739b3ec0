#include "runtime/data/chat/conversation_encoder.h"

#include <algorithm>
#include <memory>

#include "runtime/core/error.h"
#include "runtime/data/chat/answer_ranges.h"

namespace dstrain {
namespace {

using jinja::Dict;
using jinja::TextRange;
using jinja::Value;

// Returns the messages with one of them without a member.
Value without_member(const Value& messages, size_t message, const std::string& name) {
  std::vector<Value> items = messages.list()->items;
  Dict kept;
  for (const auto& [other, member] : items[message].dict()->members())
    if (other != name) kept.add(other, member);
  items[message] = std::make_shared<const Dict>(std::move(kept));
  return jinja::list_of(std::move(items));
}

// A template gets none where the line has no tools.
Value tools_of(const ChatLine& line) {
  return line.tools.is_undefined() ? Value(jinja::None{}) : line.tools;
}

// Names that a message may have its reasoning under: a template that reads one of the first two reads all.
bool is_reasoning(std::string_view name) {
  return name == "reasoning_content" || name == "thinking" || name == "reasoning";
}

}  // namespace

void ConversationEncoder::encode(const ChatLine& line, EncodedConversation& result,
                                 std::map<std::string, int64_t>& ignored) {
  const LossOn loss_on = encoding_.loss_on;
  const bool completion = line.kind == ChatLineKind::prompt || line.prompt_messages > 0;
  check(line.kind != ChatLineKind::preference, "a pair of answers is encoded as one document");
  if (loss_on == LossOn::assistant && line.kind != ChatLineKind::messages)
    fail_user("the loss is to be on the assistant's tokens, and the line has no \"messages\"");
  if (loss_on == LossOn::completion && !completion)
    fail_user("the loss is to be on completions, and the line has no \"completion\"");
  if (line.kind == ChatLineKind::messages)
    encode_messages(line, result, ignored);
  else
    encode_text(line, result);
}

void ConversationEncoder::encode_text(const ChatLine& line, EncodedConversation& result) {
  const auto add = [&result](std::span<const uint32_t> ids, bool counts) {
    result.ids.insert(result.ids.end(), ids.begin(), ids.end());
    result.counts.resize(result.ids.size(), counts ? 1 : 0);
  };
  const bool all = line.kind == ChatLineKind::text || encoding_.loss_on == LossOn::all;
  add(tokenizer_.prefix(), all);
  if (all) {
    unicode::Invalid none;  // JSON is UTF-8
    encoder_.encode(line.text + line.completion, result.ids, none);
  } else {
    std::vector<TokenSpan> spans;
    encoder_.encode_with_spans(line.text + line.completion, result.ids, spans);
    for (const TokenSpan& span : spans)
      result.counts.push_back(span.end > line.text.size() ? 1 : 0);
  }
  add(tokenizer_.suffix(), true);
  if (encoding_.end) add({&*encoding_.end, 1}, true);
}

void ConversationEncoder::encode_messages(const ChatLine& line, EncodedConversation& result,
                                          std::map<std::string, int64_t>& ignored) {
  const ChatTemplate* const chat_template = encoding_.chat_template;
  if (!chat_template && !encoding_.why_none.empty()) throw UserError(encoding_.why_none);
  if (!chat_template)
    fail_user(
        "the line has messages, and the model's directory has no chat template "
        "(chat_template.jinja, or \"chat_template\" in tokenizer_config.json): put one there, or "
        "name chatml, llama3, qwen or a file with dstrain.data.chat_template of a run, or with "
        "--chat_template of a command");
  const std::vector<bool> messages = picked(line);
  jinja::Meter meter = chat_template->meter(encoding_.limits);
  const Value tools = tools_of(line);
  const jinja::RenderedText rendered =
      chat_template->render(line.messages.messages, false, meter, tools);
  count_unread(line, rendered.text, ignored);
  std::vector<TokenSpan> spans;
  encoder_.encode_with_spans(rendered.text, result.ids, spans);
  const bool all = encoding_.loss_on == LossOn::all;
  result.counts.resize(result.ids.size(), all ? 1 : 0);
  if (all && std::ranges::find(messages, true) == messages.end()) return;
  AnswerRanges answers(*chat_template, line.messages.messages, tools, rendered, meter);
  mark(answers.of(messages), spans, all ? 0 : 1, result);
}

std::vector<bool> ConversationEncoder::picked(const ChatLine& line) const {
  const auto& items = line.messages.messages.list()->items;
  const LossOn loss_on = encoding_.loss_on;
  const size_t first = loss_on == LossOn::assistant ? 0 : line.prompt_messages;
  std::vector<bool> picked(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    const MessageWeight weight = line.messages.weights[i];
    const bool answer = is_answer(items[i]);
    if (loss_on == LossOn::all) {
      picked[i] = weight == MessageWeight::left_out;
      if (picked[i] && !answer)
        fail_user(
            "message {} is not the assistant's, and its weight leaves it out of a loss on all "
            "tokens, where only answers can be left out: remove the weight, or let the loss be on "
            "the assistant's tokens (loss_on assistant)",
            i);
      continue;
    }
    picked[i] = answer && i >= first && weight != MessageWeight::left_out;
    if (weight == MessageWeight::counts && !picked[i])
      fail_user(
          "message {} is {}, and its weight says that it counts in the loss, where only the "
          "assistant's {} count: remove the weight, or let the loss be on {}",
          i, answer ? "of the prompt" : "not the assistant's",
          first > 0 ? "messages in the completion" : "messages",
          answer ? "all of the assistant's tokens (loss_on assistant)"
                 : "all tokens (loss_on all)");
  }
  if (first > 0 && loss_on != LossOn::all &&
      std::none_of(items.begin() + static_cast<std::ptrdiff_t>(first), items.end(), is_answer))
    fail_user("none of the messages behind the prompt is the assistant's");
  return picked;
}

void ConversationEncoder::mark(const std::vector<TextRange>& ranges,
                               const std::vector<TokenSpan>& spans, uint8_t value,
                               EncodedConversation& result) const {
  const size_t first = result.ids.size() - spans.size();
  const auto at = [&](size_t token) {
    return result.counts.begin() + static_cast<std::ptrdiff_t>(first + token);
  };
  size_t token = 0;
  for (const TextRange& range : ranges) {
    while (token < spans.size() && spans[token].end <= range.begin) ++token;
    const size_t begin = token;
    while (token < spans.size() && spans[token].begin < range.end) ++token;
    const size_t end = encoding_.chat_template->marks_assistant()
                           ? token
                           : end_of_turn(first + begin, first + token, result) - first;
    std::fill(at(begin), at(end), value);
    // A token may be in two ranges.
    if (token > begin) --token;
  }
}

// What a template writes behind the token that ends a turn, as a rule a new line, is no part of the answer.
size_t ConversationEncoder::end_of_turn(size_t first, size_t last,
                                        const EncodedConversation& result) const {
  size_t end = last;
  while (end > first && !tokenizer_.is_special(result.ids[end - 1])) {
    const std::string_view bytes = tokenizer_.bytes_of(result.ids[end - 1]);
    if (bytes.find_first_not_of(" \t\r\n") != bytes.npos) return last;
    --end;
  }
  return end > first ? end : last;
}

void ConversationEncoder::count_unread(const ChatLine& line, const std::string& rendered,
                                       std::map<std::string, int64_t>& ignored) {
  const ChatTemplate& chat_template = *encoding_.chat_template;
  const auto& items = line.messages.messages.list()->items;
  for (size_t i = 0; i < items.size(); ++i)
    for (const auto& [name, member] : items[i].dict()->members()) {
      if (name == "role" || name == "content") continue;
      // Reasoning stands under several names, of which data have one.
      if (is_reasoning(name) && name != "reasoning_content") continue;
      const auto known = read_.find(name);
      const bool read = known != read_.end() ? known->second : reads(line, i, name, rendered);
      if (known == read_.end()) read_.emplace(name, read);
      if (!read) count_ignored("messages[]." + name, ignored);
    }
  if (line.tools.list() && !chat_template.names("tools")) count_ignored("tools", ignored);
}

// A template that has no such name may write messages as a whole.
bool ConversationEncoder::reads(const ChatLine& line, size_t message, const std::string& name,
                                const std::string& rendered) const {
  const ChatTemplate& chat_template = *encoding_.chat_template;
  if (chat_template.names(name) || (is_reasoning(name) && chat_template.names("thinking")))
    return true;
  jinja::Meter meter = chat_template.meter(encoding_.limits);
  try {
    return chat_template
               .render(without_member(line.messages.messages, message, name), false, meter,
                       tools_of(line))
               .text != rendered;
  } catch (const UserError&) {
    return true;  // without the member it refuses the message
  }
}

}  // namespace dstrain
