// TextMap: where the bytes of a changed text come from.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace dstrain {

// Bytes of a text.
struct TokenSpan {
  size_t begin = 0, end = 0;
};

// Describes the changed text from its beginning to its end, a run of bytes at a time.
class TextMap {
 public:
  // Appends a run of `bytes` bytes that are those of the original text from `original` on.
  void same(size_t bytes, size_t original);
  // Appends a run of `bytes` bytes that come from `original` together.
  void changed(size_t bytes, TokenSpan original);

  // Returns the bytes of the original text that the bytes of the changed one come from.
  TokenSpan original(TokenSpan changed) const;

 private:
  struct Run {
    size_t begin = 0;    // in the changed text
    TokenSpan original;  // of a run that is the same, only `begin` counts
    bool same = true;    // byte by byte
  };

  std::pair<size_t, size_t> place(size_t at) const;

  std::vector<Run> runs_;
  size_t bytes_ = 0;
};

}  // namespace dstrain
