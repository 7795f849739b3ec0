#include "runtime/data/documents/mismatched_answers.h"

#include <algorithm>
#include <utility>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

void append(const EncodedConversation& from, size_t begin, size_t end, EncodedConversation& to) {
  const auto first = static_cast<std::ptrdiff_t>(begin), last = static_cast<std::ptrdiff_t>(end);
  to.ids.insert(to.ids.end(), from.ids.begin() + first, from.ids.begin() + last);
  to.counts.insert(to.counts.end(), from.counts.begin() + first, from.counts.begin() + last);
}

}  // namespace

MismatchedAnswers::Document MismatchedAnswers::document_of(const EncodedPart& part, size_t begin,
                                                           size_t end) {
  Document document;
  append(part, begin, end, document);
  const auto first = std::ranges::find_if(document.counts, [](uint8_t c) { return c != 0; });
  document.answer = static_cast<size_t>(first - document.counts.begin());
  return document;
}

EncodedConversation MismatchedAnswers::answer_of(const Document& document) {
  EncodedConversation answer;
  append(document, document.answer, document.ids.size(), answer);
  for (uint8_t& count : answer.counts) count = count != 0 ? 1 : 0;
  return answer;
}

void MismatchedAnswers::add(const Document& document, EncodedPart& to) {
  to.starts.push_back(to.ids.size());
  append(document, 0, document.ids.size(), to);
  to.starts.push_back(to.ids.size());
  append(document, 0, document.answer, to);
  append(last_, 0, last_.ids.size(), to);
  if (document.answer < document.ids.size()) last_ = answer_of(document);
}

EncodedPart MismatchedAnswers::take(const EncodedPart& part) {
  EncodedPart result;
  for (size_t i = 0; i < part.starts.size(); ++i) {
    const size_t end = i + 1 < part.starts.size() ? part.starts[i + 1] : part.ids.size();
    Document document = document_of(part, part.starts[i], end);
    const bool has_answer = document.answer < document.ids.size();
    if (answers_ == 2) {
      add(document, result);
      continue;
    }
    if (has_answer && ++answers_ == 2) last_ = answer_of(document);
    waiting_.push_back(std::move(document));
    if (answers_ < 2) continue;
    for (const Document& each : waiting_) add(each, result);
    waiting_.clear();
  }
  return result;
}

void MismatchedAnswers::finish(const std::string& path) const {
  if (waiting_.empty()) return;
  fail_user(
      "{} has {} with an answer: dstrain.objective kto compares each answer with that of another "
      "line, so give two or more",
      path, answers_ == 0 ? "no line" : "one line");
}

}  // namespace dstrain
