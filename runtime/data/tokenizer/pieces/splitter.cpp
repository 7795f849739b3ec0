#include "runtime/data/tokenizer/pieces/splitter.h"

#include <algorithm>

#include "runtime/data/tokenizer/unicode/classes.h"
#include "runtime/data/utf8.h"

namespace dstrain {

int64_t digits_run(std::string_view text, int64_t at, bool each, bool& digits) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  const auto read = [p](int64_t i, int64_t& next) {
    const utf8::Character c = utf8::decode_valid(p + i);
    next = i + c.bytes;
    return (unicode::classes()[c.code] & unicode::kDigit) != 0;
  };
  int64_t end = at;
  digits = read(at, end);
  if (digits && each) return end;
  for (int64_t next = end; end < std::ssize(text) && read(end, next) == digits; end = next) {
  }
  return end;
}

bool Splitter::has_only_published() const {
  const auto of = [this](SplitStage::Kind kind) {
    return std::ranges::any_of(stages_, [kind](const SplitStage& s) { return s.kind == kind; });
  };
  return of(SplitStage::Kind::published) && !of(SplitStage::Kind::foreign);
}

bool Splitter::cuts_at_spaces() const {
  return has_only_published();
}

bool Splitter::cuts_at_newlines() const {
  return has_only_published() && std::ranges::none_of(stages_, [](const SplitStage& s) {
           return s.kind == SplitStage::Kind::space;
         });
}

}  // namespace dstrain
