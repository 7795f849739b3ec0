// TeacherInputs: where a batch has the values of a teacher.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "runtime/core/input_tensor.h"
#include "runtime/data/dataset.h"
#include "runtime/data/teacher/teacher_file.h"

namespace dstrain {

struct TeacherInputs {
  int32_t* ids = nullptr;  // null: the batch has none, as those of a validation
  float* log_probs = nullptr;
  int64_t top_k = 0;

  TeacherInputs() = default;
  // The inputs of `count` samples of `tokens` tokens.
  TeacherInputs(std::span<const InputTensor> inputs, int64_t count, int64_t tokens, int64_t k) {
    if (std::ranges::find(inputs, InputRole::teacher_ids, &InputTensor::role) == inputs.end())
      return;
    ids =
        static_cast<int32_t*>(samples_in(inputs, InputRole::teacher_ids, count, tokens * (k + 1)));
    log_probs =
        static_cast<float*>(samples_in(inputs, InputRole::teacher_log_probs, count, tokens * k));
    top_k = k;
  }

  // Returns those of what is behind so many tokens.
  TeacherInputs behind(int64_t tokens) const {
    TeacherInputs rest = *this;
    if (!ids) return rest;
    rest.ids += tokens * (top_k + 1);
    rest.log_probs += tokens * top_k;
    return rest;
  }
  // Says that the first `tokens` tokens have no label.
  void clear(int64_t tokens) const {
    if (!ids) return;
    std::fill_n(ids, tokens * (top_k + 1), -1);
    std::fill_n(log_probs, tokens * top_k, kNoLogProb);
  }
};

}  // namespace dstrain
