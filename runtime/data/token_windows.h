// TokenWindows: a whole sequence in windows of T tokens, one behind the other, for a model to be measured on all of it.
// The targets of a window are the tokens that follow its own; the last one may be short, and the sequence's last token
// has no target. What a short window lacks, and windows behind the last one, are ids 0 without targets (-1).
#pragma once

#include <memory>

#include "runtime/data/dataset.h"
#include "runtime/data/token_source.h"

namespace dstrain {

class TokenWindows : public Dataset {
 public:
  // `source`: at least two tokens; ids must be checked.
  TokenWindows(std::unique_ptr<TokenSource> source, int64_t tokens_of_window);

  int64_t samples(Split) const override { return windows_; }
  void read(Split split, int64_t first, int64_t count,
            std::span<const InputTensor> inputs) const override;
  const Vocabulary& vocabulary() const override { return source_->vocabulary(); }
  void check_unchanged() const override { source_->file().check_unchanged(); }
  const TokenSource& source() const { return *source_; }

 private:
  void read_window(int64_t window, int32_t* ids, int32_t* labels) const;

  std::unique_ptr<TokenSource> source_;
  int64_t length_, windows_;
};

}  // namespace dstrain
