// Texts in HTML and SVG.
#pragma once

#include <string>
#include <string_view>

namespace dstrain::report {

// Returns `text` for the content of an element or for a value in quotes, of HTML as of XML: it has no tag and ends no
// value. Bytes that are no UTF-8, and characters that XML forbids, become U+FFFD.
std::string escaped(std::string_view text);

// Returns `text` with at most `most` characters, of a longer one the beginning and the end with "…" between them.
std::string shortened(const std::string& text, size_t most);

// Returns the number of characters of valid UTF-8.
size_t characters_in(std::string_view text);

}  // namespace dstrain::report
