// Normalization form C, with the tables of the tokenizers library (those of Unicode 9.0).
#pragma once

#include <string>
#include <string_view>

namespace dstrain::unicode {

// Returns whether NFC changes nothing in `text`, which is valid UTF-8. May say no of a text that does not change.
bool surely_nfc(std::string_view text);

// A part of a text whose form does not depend on what is around it: where it ends, and whether it may change.
struct NfcSegment {
  size_t end = 0;
  bool changes = false;
};

// Returns the segment of `text`, which is valid UTF-8, that begins at `at`, where one ends or the text begins. One that may
// change is as short as can be: a character and what may be joined with it.
NfcSegment nfc_segment(std::string_view text, size_t at);

// Returns `text`, which must be valid UTF-8, in normalization form C.
std::string nfc(std::string_view text);

}  // namespace dstrain::unicode
