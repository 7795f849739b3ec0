// Packing: whole documents in samples of T tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dstrain {

// Consecutive tokens of a source, which are a document, or the beginning of one.
struct DocumentPart {
  int32_t source = 0;  // its number
  int32_t tokens = 0;
  int64_t begin = 0;
  bool operator==(const DocumentPart&) const = default;
};

// Samples of whole documents: those of a sample lie one behind the other, and padding behind them. A sample may have several
// rows: the documents of a group lie in one row each, at the same place, and the next group lies behind the longest of them.
class PackedSamples {
 public:
  PackedSamples() = default;
  // `parts` have at most `length` tokens each, at least one, and are groups of `rows`. With `several` a sample has as many
  // groups as fit: each, the longest first, goes to the sample with the least room that it fits in (best fit), the newest of
  // equal ones, or to a new one. Otherwise each is a sample, in their order.
  PackedSamples(std::vector<DocumentPart> parts, int32_t length, bool several, int64_t rows = 1);

  int64_t samples() const { return static_cast<int64_t>(ends_.size()); }
  int64_t documents() const { return static_cast<int64_t>(parts_.size()); }
  int64_t groups() const { return documents() / rows_; }
  int64_t tokens() const { return tokens_; }
  // Returns the parts of a sample, group by group.
  std::span<const DocumentPart> sample(int64_t number) const;

 private:
  std::vector<DocumentPart> parts_;  // in the order of the samples
  std::vector<int64_t> ends_;        // of each sample: the number of groups up to its end
  int64_t tokens_ = 0, rows_ = 1;
};

// Returns the tokens of the longest part.
int32_t longest_of(std::span<const DocumentPart> parts);

}  // namespace dstrain
