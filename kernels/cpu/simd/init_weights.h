// Fresh weights: element i of a parameter is a pure function of (key, i), with key =
// stream_key(seed, hash_name(name)), so a shard is filled alone and no count of threads or ranks
// changes a weight. Four elements come from one Philox block with counter (i / 4 low, high, 0, 0). The
// same bits at AVX2 and AVX-512.
#pragma once

#include <cstdint>

#include "runtime/core/philox.h"

namespace dstrain {

// Writes elements begin .. begin + count - 1 of N(0, std) to out[0 .. count). By Box and Muller: words
// 0 and 1 of a block give the radius and the angle of its first two elements, 2 and 3 of the others.
void fill_normal(float* out, int64_t begin, int64_t count, float std, PhiloxKey key, int threads);

// The same for the uniform distribution on [-bound, bound), one word an element.
void fill_uniform(float* out, int64_t begin, int64_t count, float bound, PhiloxKey key,
                  int threads);

}  // namespace dstrain
