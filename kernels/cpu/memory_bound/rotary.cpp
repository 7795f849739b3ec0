// rotary and rotary_grad. A thread has rows of a sample, of all samples and heads, so that the angles of a position, which
// are f64, are computed once; with documents, once for neighbouring samples that have the same position there.
// Minimum memory traffic: 2 s R C bytes.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include "kernels/cpu/memory_bound/kernels.h"
#include "kernels/cpu/memory_bound/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/memory_bound/rotary.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/memory_bound/pack-inl.h"
#include "runtime/core/isa/best_variant.h"

#ifndef DSTRAIN_SIMD_ROTARY_ONCE
#define DSTRAIN_SIMD_ROTARY_ONCE
namespace dstrain::simd {
namespace {

struct Rotation {
  int64_t rows, seq_len, first_row, heads, rotated_heads;
  int64_t size, first_column,
      half;  // columns of a head, the first of its pairs, and how many pairs there are
  bool interleaved, back;
  RotaryTurns turns;
};

// cos and sin of the angles of one position.
struct Angles {
  int64_t position;
  alignas(64) float cosine[kMostRotaryPairs];
  alignas(64) float sine[kMostRotaryPairs];

  Angles(const Rotation& rotation, int64_t position_) : position(position_) {
    for (int64_t i = 0; i < rotation.half; ++i) {
      const double turns = static_cast<double>(position) * rotation.turns.of_pair[i];
      const double angle = 2 * std::numbers::pi * (turns - std::rint(turns));
      const double scale = rotation.turns.scale;
      cosine[i] = static_cast<float>(std::cos(angle) * scale);
      sine[i] = static_cast<float>(std::sin(angle) * (rotation.back ? -scale : scale));
    }
  }
};

}  // namespace
}  // namespace dstrain::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

// Rotates pairs of which the first columns are in a and the second ones in b, into c and d, which may be a and b.
template <class T>
SIMD_FN void rotate_pairs(const T* a, const T* b, const Angles& angles, int64_t half, T* c, T* d) {
  for_packs(0, half, [=, &angles](int64_t i, auto n) SIMD_INLINE {
    const Pack x = load(a + i, n), y = load(b + i, n);
    const Pack cosine = load(angles.cosine + i, n), sine = load(angles.sine + i, n);
    store(fnma(y, sine, x * cosine), c + i, n);
    store(fma(x, sine, y * cosine), d + i, n);
  });
}

// y may be x.
template <class T>
SIMD_FN void rotate_head(const T* x, const Angles& angles, const Rotation& rotation, T* y) {
  const int64_t half = rotation.half, first = rotation.first_column;
  if (x != y) {
    std::copy(x, x + first, y);
    std::copy(x + first + 2 * half, x + rotation.size, y + first + 2 * half);
  }
  const T* const from = x + first;
  T* const to = y + first;
  if (!rotation.interleaved) return rotate_pairs(from, from + half, angles, half, to, to + half);
  alignas(64) T a[kMostRotaryPairs];
  alignas(64) T b[kMostRotaryPairs];
  for (int64_t i = 0; i < half; ++i) {
    a[i] = from[2 * i];
    b[i] = from[2 * i + 1];
  }
  rotate_pairs(a, b, angles, half, a, b);
  for (int64_t i = 0; i < half; ++i) {
    to[2 * i] = a[i];
    to[2 * i + 1] = b[i];
  }
}

// Rotates rows [begin, end), which are less than seq_len, and the rows that follow each at multiples of seq_len: these have
// the same place in their samples. documents: of all rows, or null.
void rotate_rows(DType dtype, const Rotation& rotation, const int32_t* documents, const void* x,
                 void* y, int64_t begin, int64_t end) {
  with_type(dtype, [&](auto t) SIMD_INLINE {
    using T = decltype(t);
    const int64_t size = rotation.size;
    std::optional<Angles> angles;
    for (int64_t first = begin; first < end; ++first) {
      const int64_t place = (rotation.first_row + first) % rotation.seq_len;
      for (int64_t row = first; row < rotation.rows; row += rotation.seq_len) {
        const int64_t position = documents ? place - documents[row] : place;
        if (!angles || angles->position != position) angles.emplace(rotation, position);
        const T* const from = static_cast<const T*>(x) + row * rotation.heads * size;
        T* const to = static_cast<T*>(y) + row * rotation.heads * size;
        const int64_t rotated = rotation.rotated_heads * size, all = rotation.heads * size;
        for (int64_t head = 0; head < rotated; head += size)
          rotate_head(from + head, *angles, rotation, to + head);
        if (x != y) std::copy(from + rotated, from + all, to + rotated);
      }
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {

std::unique_ptr<Kernel> make_rotary(const KernelSpec& spec) {
  const auto attrs = attrs_as<RotaryAttrs>(spec.attrs);
  const Rotation rotation{
      .rows = rows(spec.in[0]),
      .seq_len = attrs.seq_len,
      .first_row = attrs.part.first,
      .heads = columns(spec.in[0]) / attrs.head_size,
      .rotated_heads = attrs.rotated_heads(columns(spec.in[0]) / attrs.head_size),
      .size = attrs.head_size,
      .first_column = attrs.first_column,
      .half = attrs.rotated_columns() / 2,
      .interleaved = attrs.interleaved,
      .back = spec.op == OpKind::rotary_grad,
      .turns = rotary_turns(attrs)};
  const int64_t samples = (rotation.rows + attrs.seq_len - 1) / attrs.seq_len;
  const int64_t bytes = samples * columns(spec.in[0]) * size_of(spec.in[0].dtype);
  return kernel_of([threads = spec.threads, rotation, dtype = spec.in[0].dtype,
                    grain = row_grain(bytes)](const KernelCall& call) {
    const int64_t places = std::min(rotation.rows, rotation.seq_len);
    parallel_ranges(threads, places, grain, [&](int64_t begin, int64_t end) {
      DSTRAIN_BEST(rotate_rows)
      (dtype, rotation, data<const int32_t>(call.in, 1), data(call.in, 0), data(call.out, 0), begin,
       end);
    });
  });
}

std::unique_ptr<Kernel> make_rotary_grad(const KernelSpec& spec) {
  return make_rotary(spec);  // which looks at the op
}

}  // namespace dstrain::simd
#endif
