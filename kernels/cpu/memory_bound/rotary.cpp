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
  int64_t rows, seq_len, first_row, heads, rotated_heads, size,
      half;  // size: columns of a head; half: its pairs
  bool back;
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

// y may be x.
template <class T>
SIMD_FN void rotate_head(const T* x, const Angles& angles, int64_t size, int64_t half, T* y) {
  if (x != y) std::copy(x + 2 * half, x + size, y + 2 * half);
  for_packs(0, half, [=, &angles](int64_t i, auto n) SIMD_INLINE {
    const Pack a = load(x + i, n), b = load(x + half + i, n);
    const Pack c = load(angles.cosine + i, n), s = load(angles.sine + i, n);
    store(fnma(b, s, a * c), y + i, n);
    store(fma(a, s, b * c), y + half + i, n);
  });
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
          rotate_head(from + head, *angles, size, rotation.half, to + head);
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
      .half = attrs.rotated_columns() / 2,
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
