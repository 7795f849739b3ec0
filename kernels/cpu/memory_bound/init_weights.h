// Initial weights. Element i of a parameter is a function of (key, i) alone, with
// key = stream_key(seed, hash_name(name)). So a rank fills its slice without the others, and the number of
// threads or ranks changes no weight. A Philox block with counter (i / 4 low, i / 4 high, 0, 0) gives four
// elements. AVX2 and AVX-512 give the same bits.
#pragma once

#include <cstdint>

#include "runtime/core/philox.h"

namespace dstrain {

// Writes elements begin .. begin + count - 1, drawn from N(0, std), to out[0 .. count). Uses the Box-Muller
// transform: words 0 and 1 of a Philox block give the radius and angle of its first two elements, words 2 and
// 3 those of the other two.
void fill_normal(float* out, int64_t begin, int64_t count, float std, PhiloxKey key, int threads);

// The same for the uniform distribution on [-bound, bound): one word gives one element.
void fill_uniform(float* out, int64_t begin, int64_t count, float bound, PhiloxKey key,
                  int threads);

}  // namespace dstrain
