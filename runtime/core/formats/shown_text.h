// Text of a file in a message.
#pragma once

#include <string>
#include <string_view>

namespace dstrain {

// Returns `text` without control characters, cut after 100 bytes.
inline std::string shown_text(std::string_view text) {
  constexpr size_t limit = 100;
  std::string shown(text.substr(0, limit));
  for (char& c : shown)
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = '?';
  return text.size() > limit ? shown + "..." : shown;
}

}  // namespace dstrain
