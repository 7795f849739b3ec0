#include "runtime/data/chat/answer_ranges.h"

#include <algorithm>
#include <array>
#include <memory>

#include "runtime/config/text.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

using jinja::Dict;
using jinja::RenderedText;
using jinja::TextRange;
using jinja::Value;

constexpr std::string_view kRemedy =
    "put {% generation %} and {% endgeneration %} around the assistant's text in a template of "
    "your own, or take one of dstrain's own (chatml, llama3, qwen or a file, named with "
    "dstrain.data.chat_template of a run, or with --chat_template of a command), or let the loss "
    "be on all tokens (loss_on all)";
constexpr std::string_view kSpace = " \t\r\n";

size_t common_beginning(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

size_t common_end(std::string_view a, std::string_view b) {
  size_t count = 0;
  const size_t most = std::min(a.size(), b.size());
  while (count < most && a[a.size() - 1 - count] == b[b.size() - 1 - count]) ++count;
  return count;
}

// Returns whether the text is white space and tags around thoughts, such as <think>, with which some templates begin what
// the model is to write.
bool opens_thoughts(std::string_view text) {
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
    if (text.empty()) return true;
    const size_t end = text.find_first_of(">]");
    if ((text[0] != '<' && text[0] != '[') || end == text.npos) return false;
    std::string tag(text.substr(0, end));
    std::ranges::transform(tag, tag.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
    constexpr std::array<std::string_view, 3> kWords = {"think", "thought", "reason"};
    if (std::ranges::none_of(kWords, [&tag](auto word) { return tag.find(word) != tag.npos; }))
      return false;
    text.remove_prefix(end + 1);
  }
}

// Returns the beginning of the tag in which a place of a text is; the place itself if it is in none.
size_t begin_of_tag(std::string_view text, size_t place) {
  const size_t open = text.substr(0, place).find_last_of("<[>]");
  return open != text.npos && (text[open] == '<' || text[open] == '[') ? open : place;
}

Value first_messages(const Value& messages, size_t count) {
  const auto& items = messages.list()->items;
  return jinja::list_of({items.begin(), items.begin() + static_cast<std::ptrdiff_t>(count)});
}

}  // namespace

bool is_answer(const Value& message) {
  const Value* role = message.dict()->find("role");
  return role && *role->text() == "assistant";
}

std::vector<TextRange> AnswerRanges::of(const std::vector<bool>& wanted) {
  if (template_.marks_assistant()) return marked(wanted);
  std::vector<TextRange> ranges;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!wanted[i]) continue;
    ranges.push_back(unmarked(i));
    if (ranges.size() > 1 && ranges.back().begin < ranges[ranges.size() - 2].end)
      fail(i, "it begins before the answer in front of it ends");
  }
  return ranges;
}

// Which message a mark belongs to is seen from the number of marks that it adds to the conversation before it.
std::vector<TextRange> AnswerRanges::marked(const std::vector<bool>& wanted) {
  const auto& items = messages_.list()->items;
  const auto all_answers = [&](size_t i) { return wanted[i] == is_answer(items[i]); };
  size_t same = 0;
  while (same < items.size() && all_answers(same)) ++same;
  if (same == items.size()) return whole_.generated;
  std::vector<TextRange> ranges;
  size_t before = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!is_answer(items[i])) continue;
    const size_t marks = beginning(i + 1, false).generated.size();
    if (marks <= before || marks > whole_.generated.size())
      fail(i, "the template marks no text of it where it is the last message");
    for (; before < marks; ++before)
      if (wanted[i]) ranges.push_back(whole_.generated[before]);
  }
  if (before != whole_.generated.size())
    fail_user(
        "{}: the template marks {} as the assistant's, and {} with its answers one after another, "
        "so what belongs to which message cannot be told: leave out the weights of messages",
        template_.source(), counted(std::ssize(whole_.generated), "text"), before);
  return ranges;
}

TextRange AnswerRanges::unmarked(size_t answer) {
  const TextRange range{begin_of(answer), end_of(answer)};
  if (range.end < range.begin) fail(answer, "its end is in front of its beginning");
  return range;
}

size_t AnswerRanges::begin_of(size_t answer) {
  if (answer == 0) return begin_of_first();
  const std::string before = beginning(answer, true).text;
  if (whole_.text.starts_with(before)) return before.size();
  const size_t from = content_in_whole(answer - 1).end;
  const size_t content = content_in_whole(answer).begin;
  if (from > content)
    fail(answer, "another message's content changes what is in front of its own content");
  const size_t tail = content_in(before, answer, true, answer - 1).end;
  return begin_by_prompt(answer, std::string_view(before).substr(tail), from, content);
}

// Templates need a message in front of a prompt, so the prompt is taken from behind the first answer.
size_t AnswerRanges::begin_of_first() {
  const std::string without = beginning(1, false).text, with = beginning(1, true).text;
  if (!with.starts_with(without))
    fail(0, "the prompt for a further answer changes what is in front of it");
  const std::string_view prompt = std::string_view(with).substr(without.size());
  if (prompt.empty()) {
    const std::string before = beginning(0, true).text;
    if (!whole_.text.starts_with(before))
      fail(0, "the conversation begins with it, and the template has no prompt for answers");
    return before.size();
  }
  const size_t content = content_in_whole(0).begin;
  const std::string_view header = std::string_view(whole_.text).substr(0, content);
  size_t from = 0, longest = 0;
  for (size_t place = header.find(prompt[0]); place != header.npos;
       place = header.find(prompt[0], place + 1)) {
    const size_t same = common_beginning(prompt, header.substr(place));
    if (same < longest) continue;
    longest = same;
    from = place;
  }
  if (longest == 0) fail(0, "the conversation begins with it, and without the prompt for answers");
  return begin_by_prompt(0, prompt, from, content);
}

// The bytes from `from` on are the same as those of the prompt, up to where the answer begins; `content`: where the
// answer's content does. A prompt may end with the beginning of a thought that this answer has not.
size_t AnswerRanges::begin_by_prompt(size_t answer, std::string_view prompt, size_t from,
                                     size_t content) const {
  const std::string_view text = std::string_view(whole_.text).substr(from);
  const size_t same = common_beginning(prompt, text);
  if (same == prompt.size()) return from + same;
  const size_t end = std::min(same, content - from);
  const size_t begin = begin_of_tag(prompt, end);
  if (!opens_thoughts(prompt.substr(begin)))
    fail(answer, "the template renders what is in front of it otherwise than in a prompt");
  return from + begin;
}

size_t AnswerRanges::end_of(size_t answer) {
  if (answer + 1 == messages_.list()->items.size()) return whole_.text.size();
  const std::string after = beginning(answer + 1, false).text;
  if (whole_.text.starts_with(after)) return after.size();
  const size_t end = content_in_whole(answer).end;
  const std::string_view tail =
      std::string_view(after).substr(content_in(after, answer + 1, false, answer).end);
  const size_t same = common_beginning(tail, std::string_view(whole_.text).substr(end));
  if (tail.find_first_not_of(kSpace, same) != tail.npos)
    fail(answer, "the template renders what is behind it otherwise than where others follow");
  return end + same;
}

RenderedText AnswerRanges::beginning(size_t count, bool prompt) {
  return render(first_messages(messages_, count), prompt);
}

RenderedText AnswerRanges::changed(size_t count, bool prompt, size_t changed, const char* content,
                                   bool calls) {
  std::vector<Value> items = first_messages(messages_, count).list()->items;
  Dict message;
  for (const auto& [name, member] : items[changed].dict()->members())
    if (calls || name != "tool_calls") message.add(name, member);
  message.add("content", content);
  items[changed] = std::make_shared<const Dict>(std::move(message));
  return render(jinja::list_of(std::move(items)), prompt);
}

RenderedText AnswerRanges::render(const Value& messages, bool prompt) {
  // The whole conversation has been rendered before, so an error is of finding answers: beginnings of many turns take more
  // than may be taken, or the template refuses one.
  try {
    return template_.render(messages, prompt, meter_, tools_);
  } catch (const UserError& e) {
    fail_user(
        "{}; this is of the conversation's first {}: the assistant's tokens are found by rendering "
        "each beginning that has an answer; a template with {{% generation %}} and "
        "{{% endgeneration %}} around them (one of your own or dstrain's), or the loss on all "
        "tokens (loss_on all), needs none",
        e.what(), counted(std::ssize(messages.list()->items), "message"));
  }
}

TextRange AnswerRanges::content_in(std::string_view text, size_t count, bool prompt,
                                   size_t message) {
  TextRange range{text.size(), 0};
  // Some templates leave out the content of a message that calls tools.
  for (const bool calls : {true, false}) {
    // Where one of two texts has the byte that the content has, too, the other one has not.
    for (const char* const other : {"Q", "Z"}) {
      const std::string found = changed(count, prompt, message, other, calls).text;
      if (found == text) continue;
      const size_t begin = common_beginning(text, found);
      const size_t end =
          text.size() - common_end(text.substr(begin), std::string_view(found).substr(begin));
      range = {std::min(range.begin, begin), std::max(range.end, end)};
    }
    if (range.end >= range.begin) return range;
  }
  fail(message, "the text does not depend on its content");
}

TextRange AnswerRanges::content_in_whole(size_t message) {
  const auto known = contents_.find(message);
  if (known != contents_.end()) return known->second;
  return contents_[message] =
             content_in(whole_.text, messages_.list()->items.size(), false, message);
}

void AnswerRanges::fail(size_t message, std::string_view why) const {
  fail_user("{}: the assistant's tokens cannot be found at message {}: {}: {}", template_.source(),
            message, why, kRemedy);
}

}  // namespace dstrain
