#include "runtime/data/documents/json_records.h"

#include <algorithm>
#include <utility>

#include "runtime/core/error.h"
#include "runtime/core/files/input_file.h"
#include "runtime/data/chat/chat_line.h"

namespace dstrain {
namespace {

constexpr std::string_view kJsonSpace = " \t\r\n";

}  // namespace

bool begins_with_array(std::string_view text) {
  text = without_byte_order_mark(text);
  const size_t first = text.find_first_not_of(kJsonSpace);
  return first != text.npos && text[first] == '[';
}

JsonRecords::JsonRecords(std::string_view text, size_t begin, std::string path)
    : text_(text),
      path_(std::move(path)),
      begin_(begin),
      array_(begins_with_array(text.substr(begin))) {
  if (!array_) return;
  begin_ = behind_space(begin_) + 1;
  const size_t first = behind_space(begin_);
  if (first < text_.size() && text_[first] == ']') begin_ = behind_array(first + 1);
}

size_t JsonRecords::end_of_part(size_t at, size_t least) const {
  if (least >= text_.size() && !array_) return text_.size();
  if (!array_) return std::min(text_.find('\n', least - 1), text_.size() - 1) + 1;
  while (at < least && at < text_.size()) at = element(at).next;
  return at;
}

void JsonRecords::each(size_t begin, size_t end, const Take& take) const {
  for (size_t at = begin; at < end;) {
    if (array_) {
      const Element found = element(at);
      take(text_.substr(found.begin, found.end - found.begin), found.begin);
      at = found.next;
      continue;
    }
    const size_t newline = std::min(text_.find('\n', at), end);
    const std::string_view line = text_.substr(at, newline - at);
    if (!is_blank_line(line)) take(line, at);
    at = newline + 1;
  }
}

// Finds the comma or the bracket behind an element by its strings and brackets. Whether it is JSON shows when it is read.
JsonRecords::Element JsonRecords::element(size_t at) const {
  Element found{.begin = behind_space(at)};
  size_t depth = 0;
  for (size_t i = found.begin; i < text_.size(); ++i) {
    const char c = text_[i];
    if (c == '"') {
      for (++i; i < text_.size() && text_[i] != '"'; ++i)
        if (text_[i] == '\\') ++i;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (depth > 0) {
      if (c == ']' || c == '}') --depth;
    } else if (c == ',' || c == ']') {
      if (i == found.begin) fail(i, fmt::format("expected an element of the array, found '{}'", c));
      found.end = text_.find_last_not_of(kJsonSpace, i - 1) + 1;
      found.next = c == ',' ? i + 1 : behind_array(i + 1);
      return found;
    }
  }
  fail(std::min(found.begin, text_.size()),
       "the array ends in or behind this element, without ']'");
}

size_t JsonRecords::behind_space(size_t at) const {
  return std::min(text_.find_first_not_of(kJsonSpace, at), text_.size());
}

size_t JsonRecords::behind_array(size_t at) const {
  const size_t rest = behind_space(at);
  if (rest < text_.size())
    fail(rest,
         "text follows the array's end: expected one array of objects such as {\"messages\": "
         "[...]}, or such an object a line");
  return rest;
}

std::string JsonRecords::place_of(size_t offset) const {
  if (!array_) return line_of(offset);
  int64_t number = 1;
  for (size_t at = begin_; behind_space(at) < offset; ++number) at = element(at).next;
  return fmt::format("{}: element {}", line_of(offset), number);
}

std::string JsonRecords::line_of(size_t offset) const {
  return fmt::format("{}:{}", path_, 1 + std::ranges::count(text_.substr(0, offset), '\n'));
}

void JsonRecords::fail(size_t offset, std::string_view message) const {
  fail_user("{}: {}", line_of(offset), message);
}

}  // namespace dstrain
