// The tables that make_tables.py writes, as runs and differences; classes.h and nfc.h unfold them.
#pragma once

#include <cstdint>

namespace dstrain::unicode {

// Pairs from code point 0 on: length of a run of code points of the same classes, and their classes (classes.h).
extern const uint32_t kClassRuns[];
extern const int kClassRunsCount;  // pairs

// Pairs: difference to the code point before, canonical combining class.
extern const uint32_t kCombiningRows[];
extern const int kCombiningRowsCount;  // pairs

// Triples: twice the difference to the code point before, plus 1 if NFC composes it; the two code points that it stands
// for, the second of which is 0 for a decomposition of one.
extern const uint32_t kDecompositionRows[];
extern const int kDecompositionRowsCount;  // triples

}  // namespace dstrain::unicode
