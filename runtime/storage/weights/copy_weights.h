// Copying the weights of a model from one kind of files to another, without the model in memory.
#pragma once

#include <cstdint>
#include <functional>

#include "runtime/storage/state.h"
#include "runtime/storage/weights/weights_writer.h"

namespace dstrain {

inline constexpr int64_t kCopiedAtOnce = int64_t{1} << 22;  // elements

// Reads elements [begin, begin + count) of a weight to `to` as f32; `weight`: its index in the register.
using ReadWeight = std::function<void(size_t weight, int64_t begin, int64_t count, float* to)>;

// Writes all weights of a register to `writer`, which has been made for them, at most kCopiedAtOnce elements at a time.
// Throws what `read` throws, and RunError.
void copy_weights(const StateRegister& weights, const ReadWeight& read, WeightsWriter& writer);

}  // namespace dstrain
