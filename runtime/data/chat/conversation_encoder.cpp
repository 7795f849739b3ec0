#include "runtime/data/chat/conversation_encoder.h"

#include <algorithm>

#include "runtime/config/text.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

using jinja::TextRange;
using jinja::Value;

// Returns whether the message is an answer.
bool is_answer(const Value& message) {
  const Value* role = message.dict()->find("role");
  return role && *role->text() == "assistant";
}

Value first_messages(const Value& messages, size_t count) {
  const auto& items = messages.list()->items;
  return jinja::list_of({items.begin(), items.begin() + static_cast<std::ptrdiff_t>(count)});
}

}  // namespace

void ConversationEncoder::encode(const ChatLine& line, EncodedConversation& result) {
  const LossOn loss_on = encoding_.loss_on;
  if (line.kind == ChatLineKind::preference)
    fail_user("the line has \"chosen\" and \"rejected\", of which no token file can be made");
  if (loss_on == LossOn::assistant && line.kind != ChatLineKind::messages)
    fail_user("the loss is to be on the assistant's tokens, and the line has no \"messages\"");
  if (loss_on == LossOn::completion && line.kind != ChatLineKind::prompt)
    fail_user("the loss is to be on completions, and the line has no \"completion\"");
  if (line.kind == ChatLineKind::messages)
    encode_messages(line, result);
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

void ConversationEncoder::encode_messages(const ChatLine& line, EncodedConversation& result) {
  const ChatTemplate* const chat_template = encoding_.chat_template;
  if (!chat_template && !encoding_.why_none.empty()) throw UserError(encoding_.why_none);
  if (!chat_template)
    fail_user(
        "the line has \"messages\", and the model's directory has no chat template "
        "(chat_template.jinja, or \"chat_template\" in tokenizer_config.json): put one there, or "
        "make a token file with --chat_template chatml, llama3, qwen or FILE of dstrain tokenize");
  jinja::Meter meter = chat_template->meter(encoding_.limits);
  const jinja::RenderedText rendered = chat_template->render(line.messages, false, meter);
  std::vector<TokenSpan> spans;
  const size_t first = result.ids.size();
  encoder_.encode_with_spans(rendered.text, result.ids, spans);
  if (encoding_.loss_on == LossOn::all) return result.counts.resize(result.ids.size(), 1);
  result.counts.resize(result.ids.size(), 0);
  const bool marked = chat_template->marks_assistant();
  size_t token = 0;
  for (const TextRange& range :
       marked ? rendered.generated : answers(line.messages, rendered.text, meter)) {
    while (token < spans.size() && spans[token].end <= range.begin) ++token;
    const size_t begin = token;
    for (; token < spans.size() && spans[token].begin < range.end; ++token)
      result.counts[first + token] = 1;
    if (!marked) leave_out_space(first + begin, first + token, result);
    // A token may be in two ranges.
    if (token > begin) --token;
  }
}

std::vector<TextRange> ConversationEncoder::answers(const Value& messages,
                                                    std::string_view rendered,
                                                    jinja::Meter& meter) {
  const ChatTemplate& chat_template = *encoding_.chat_template;
  const auto& items = messages.list()->items;
  // The whole conversation has been rendered before, so an error is of finding answers: beginnings of many turns take more
  // than may be taken, or the template refuses one.
  const auto beginning = [&](size_t count, bool prompt) {
    try {
      return chat_template.render(first_messages(messages, count), prompt, meter).text;
    } catch (const UserError& e) {
      fail_user(
          "{}; this is of the conversation's first {}: without marks in the template the "
          "assistant's tokens are found by rendering each beginning that has an answer; a template "
          "with {{% generation %}} and {{% endgeneration %}} around them (one of your own or "
          "dstrain's), or the loss on all tokens (loss_on all), needs none",
          e.what(), counted(static_cast<int64_t>(count), "message"));
    }
  };
  std::vector<TextRange> ranges;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!is_answer(items[i])) continue;
    const std::string before = beginning(i, true), after = beginning(i + 1, false);
    const char* const differs = !rendered.starts_with(before)  ? "with the prompt for the answer"
                                : !rendered.starts_with(after) ? "with the answer"
                                                               : nullptr;
    if (differs || after.size() < before.size())
      fail_user(
          "{}: the template renders the conversation up to message {} {} differently than where "
          "others follow, so the assistant's tokens cannot be found: put {{% generation %}} and "
          "{{% endgeneration %}} around them in a template of your own, or take one of dstrain's "
          "own (--chat_template FILE, chatml, llama3 or qwen of dstrain tokenize), or let the loss "
          "be on all tokens (loss_on all)",
          chat_template.source(), i, differs ? differs : "with the answer");
    ranges.push_back({before.size(), after.size()});
  }
  return ranges;
}

// What a template writes behind the token that ends a turn, as a rule a new line, is no part of the answer.
void ConversationEncoder::leave_out_space(size_t first, size_t last,
                                          EncodedConversation& result) const {
  size_t end = last;
  while (end > first && !tokenizer_.is_special(result.ids[end - 1])) {
    const std::string_view bytes = tokenizer_.bytes_of(result.ids[end - 1]);
    if (bytes.find_first_not_of(" \t\r\n") != bytes.npos) return;
    --end;
  }
  if (end > first)
    std::fill(result.counts.begin() + static_cast<std::ptrdiff_t>(end),
              result.counts.begin() + static_cast<std::ptrdiff_t>(last), 0);
}

}  // namespace dstrain
