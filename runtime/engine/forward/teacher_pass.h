// What a teacher gives to the tokens of a file: the pass that writes FILE.teacher (runtime/data/teacher/teacher_file.h), by one
// process.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/data/packing/pack.h"
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

// Returns samples of `length` tokens that have each of the ranges once: with `several` as many as fit into one.
PackedSamples samples_of(std::span<const TokenRange> ranges, int64_t length, bool several);

// Receives values of FILE.teacher, and the byte at which they are.
using WriteTeacher = std::function<void(std::span<const std::byte> values, int64_t at)>;

// Computes of each token of the samples the `top_k` tokens that `model` finds likeliest to follow it, of equal ones those with
// the smallest ids, and calls `write` with all of the file, in pieces of any order: what no sample has are ids 0 of minus
// infinity. The model has logits alone, a vocabulary of `ids`, and the input `documents` where a sample has several ranges.
// `on_sample` is told how many samples are done.
void teach(ForwardModel& model, const TokenSource& source, const PackedSamples& samples,
           int64_t top_k, int64_t ids, const WriteTeacher& write,
           const std::function<void(int64_t done)>& on_sample);

}  // namespace dstrain
