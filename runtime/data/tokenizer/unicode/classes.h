// The classes of code points that tokenizers ask for, as the tokenizers library has them (make_tables.py).
#pragma once

#include <cstdint>

#include "runtime/data/utf8.h"

namespace dstrain::unicode {

// The bits of a code point's classes.
inline constexpr uint8_t kLetter = 1;  // \p{L} of Unicode 16
inline constexpr uint8_t kNumber = 2;  // \p{N}
inline constexpr uint8_t kMark = 4;    // \p{M}
inline constexpr uint8_t kSpace = 8;   // \s
inline constexpr uint8_t kWord = 16;   // \w as it stands beside an added token of single words
inline constexpr uint8_t kDigit = 32;  // a digit of the pre-tokenizer Digits
inline constexpr uint8_t kChanges =
    64;  // NFC may change it, order it, or compose it with what is before it

// Returns the classes of every code point, an array of utf8::kCodePoints bytes that lives as long as the process.
const uint8_t* classes();

}  // namespace dstrain::unicode
