// The classes of code points that tokenizers ask for, as the tokenizers library has them (make_tables.py).
#pragma once

#include <cstdint>

#include "runtime/data/utf8.h"

namespace dstrain::unicode {

// The bits of a code point's classes.
enum Class : uint8_t {
  kLetter = 1,    // \p{L} of Unicode 16
  kNumber = 2,    // \p{N}
  kMark = 4,      // \p{M}
  kSpace = 8,     // \s
  kWord = 16,     // \w as it stands beside an added token of single words
  kDigit = 32,    // a digit of the pre-tokenizer Digits
  kChanges = 64,  // NFC may change it, order it, or compose it with what is before it
};

// Returns the classes of every code point, an array of utf8::kCodePoints bytes that lives as long as the process.
const uint8_t* classes();

}  // namespace dstrain::unicode
