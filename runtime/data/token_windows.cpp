#include "runtime/data/token_windows.h"

#include <algorithm>
#include <utility>

#include "runtime/core/error.h"

namespace dstrain {

TokenWindows::TokenWindows(std::unique_ptr<TokenSource> source, int64_t tokens_of_window)
    : source_(std::move(source)), length_(tokens_of_window) {
  check(length_ > 0 && source_->tokens() > 1, "windows of {} of {} tokens", length_,
        source_->tokens());
  windows_ = (source_->tokens() - 2) / length_ + 1;
}

void TokenWindows::read(Split, int64_t first, int64_t count,
                        std::span<const InputTensor> inputs) const {
  auto* ids = static_cast<int32_t*>(samples_in(inputs, InputRole::token_ids, count, length_));
  auto* labels = static_cast<int32_t*>(samples_in(inputs, InputRole::labels, count, length_));
  for (int64_t i = 0; i < count; ++i)
    read_window(first + i, ids + i * length_, labels + i * length_);
  source_->file().check_whole();
  if (source_->targets_file()) source_->targets_file()->check_whole();
}

void TokenWindows::read_window(int64_t window, int32_t* ids, int32_t* labels) const {
  const int64_t begin = window * length_;
  const int64_t targets = std::clamp(source_->tokens() - 1 - begin, int64_t{0}, length_);
  std::fill(ids + targets, ids + length_, 0);
  std::fill(labels + targets, labels + length_, -1);
  if (targets == 0) return;
  source_->read(begin, targets, ids, labels);
  if (targets < length_) ids[targets] = labels[targets - 1];  // the sequence's last token
  source_->ignore(begin + 1, targets, labels);
}

}  // namespace dstrain
