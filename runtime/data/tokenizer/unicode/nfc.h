// Normalization form C, with the tables of the tokenizers library (those of Unicode 9.0).
#pragma once

#include <string>
#include <string_view>

namespace dstrain::unicode {

// Returns whether NFC changes nothing in `text`, which is valid UTF-8. May say no of a text that does not change.
bool surely_nfc(std::string_view text);

// Returns `text`, which must be valid UTF-8, in normalization form C.
std::string nfc(std::string_view text);

}  // namespace dstrain::unicode
