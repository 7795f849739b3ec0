// What a teacher gives to the tokens of a file: the pass that writes FILE.teacher (runtime/data/teacher/teacher_file.h), by one
// process.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/data/token_source.h"
#include "runtime/engine/forward/forward_model.h"

namespace dstrain {

// Two tokens of a file or more, of which each is predicted from those in front of it in the range.
struct TokenRange {
  int64_t begin = 0, count = 0;
  bool operator==(const TokenRange&) const = default;
};

// Returns the ranges that runs on samples of `length` tokens read: windows, one behind the other; or with `begins`, where
// documents begin and the file ends, the first tokens of each document.
std::vector<TokenRange> ranges_of_windows(int64_t tokens, int64_t length);
std::vector<TokenRange> ranges_of_documents(std::span<const int64_t> begins, int64_t length);

// Receives values of FILE.teacher, and the byte at which they are.
using WriteTeacher = std::function<void(std::span<const std::byte> values, int64_t at)>;

// Computes of each token of the ranges, which do not fall, the `top_k` tokens that `model` finds likeliest to follow it, of
// equal ones those with the smallest ids, and calls `write` with all of the file from its beginning on. The model has logits
// alone, and a vocabulary of `ids`. `on_range` is told how many ranges are done.
void teach(ForwardModel& model, const TokenSource& source, std::span<const TokenRange> ranges,
           int64_t top_k, int64_t ids, const WriteTeacher& write,
           const std::function<void(int64_t done)>& on_range);

}  // namespace dstrain
