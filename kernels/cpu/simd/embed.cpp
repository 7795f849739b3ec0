// embed and its weight gradients. Minimum memory traffic in bytes, s bytes per element:
//   embed                2 s R C, as a row of the tables is read from memory at most once
//   embed_token_grad     s R C + 8 R C (reads, adds and writes a row), and 4 V C to clear the table
//   embed_position_grad  s R C + 4 T C
#include <algorithm>
#include <cstring>

#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/embed.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd/pack-inl.h"
#include "runtime/core/isa/best_variant.h"

#ifndef DSTRAIN_SIMD_EMBED_ONCE
#define DSTRAIN_SIMD_EMBED_ONCE
namespace dstrain::simd {
namespace {
struct EmbedShape {
  int64_t rows, columns, seq_len, vocabulary;
  DType dtype;
};
}  // namespace
}  // namespace dstrain::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

// Computes rows [begin, end) of x = token[ids] + position; position may be null, and documents.
void embed_rows(const EmbedShape& s, const int32_t* ids, const void* token, const void* position,
                const int32_t* documents, void* x, int64_t begin, int64_t end) {
  with_type(s.dtype, [&](auto t) SIMD_INLINE {
    using T = decltype(t);
    for (int64_t r = begin; r < end; ++r) {
      const T* a = static_cast<const T*>(token) + ids[r] * s.columns;
      T* to = static_cast<T*>(x) + r * s.columns;
      if (!position) {
        std::memcpy(to, a, static_cast<size_t>(s.columns) * sizeof(T));
        continue;
      }
      const int64_t place = r % s.seq_len - (documents ? documents[r] : 0);
      const T* b = static_cast<const T*>(position) + place * s.columns;
      for_packs(0, s.columns, [=](int64_t i, auto n) SIMD_INLINE {
        store(load(a + i, n) + load(b + i, n), to + i, n);
      });
    }
  });
}

// Computes columns [begin, end) of d_token: adds the rows of d_x in order, each to its token's row. With documents, ids are
// the rows at which these begin, and each row of d_x is added to that of its position.
void token_grad_columns(const EmbedShape& s, const void* d_x, const int32_t* ids, float* d_token,
                        bool documents, bool accumulate, int64_t begin, int64_t end) {
  if (!accumulate)
    for (int64_t v = 0; v < s.vocabulary; ++v)
      std::memset(d_token + v * s.columns + begin, 0,
                  static_cast<size_t>(end - begin) * sizeof(float));
  with_type(s.dtype, [&](auto t) SIMD_INLINE {
    using T = decltype(t);
    for (int64_t r = 0; r < s.rows; ++r) {
      const T* from = static_cast<const T*>(d_x) + r * s.columns;
      float* to = d_token + (documents ? r % s.seq_len - ids[r] : ids[r]) * s.columns;
      for_packs(begin, end, [=](int64_t i, auto n) SIMD_INLINE {
        store(load(to + i, n) + load(from + i, n), to + i, n);
      });
    }
  });
}

// Computes rows [begin, end) of d_position: the sum over the samples, added once; zeros where no sample has the position.
void position_grad_rows(const EmbedShape& s, const void* d_x, float* d_position, bool accumulate,
                        int64_t begin, int64_t end) {
  const int64_t samples = s.rows / s.seq_len;
  with_type(s.dtype, [&](auto t) SIMD_INLINE {
    using T = decltype(t);
    if (!accumulate && end > s.seq_len) {
      const int64_t first = std::max(begin, s.seq_len);
      std::fill(d_position + first * s.columns, d_position + end * s.columns, 0.0f);
    }
    for (int64_t p = begin; p < std::min(end, s.seq_len); ++p) {
      const T* from = static_cast<const T*>(d_x) + p * s.columns;
      float* to = d_position + p * s.columns;
      const int64_t stride = s.seq_len * s.columns;
      for_packs(0, s.columns, [=](int64_t i, auto n) SIMD_INLINE {
        sum_strided(from + i, samples, stride, accumulate, to + i, n);
      });
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {
namespace {

// The kernel of token_grad_columns.
std::unique_ptr<Kernel> token_grad_kernel(const KernelSpec& spec, int64_t seq_len, bool documents) {
  const EmbedShape s{elements(spec.in[1]), columns(spec.out[0]), seq_len, rows(spec.out[0]),
                     spec.in[0].dtype};
  return kernel_of([s, documents, threads = spec.threads](const KernelCall& call) {
    // Threads own columns, so that two threads never add to the same element.
    parallel_ranges(threads, s.columns, 64, [&](int64_t begin, int64_t end) {
      DSTRAIN_BEST(token_grad_columns)
      (s, data(call.in, 0), data<const int32_t>(call.in, 1), data<float>(call.out, 0), documents,
       call.accumulate, begin, end);
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> make_embed(const KernelSpec& spec) {
  const int64_t c = columns(spec.in[1]);
  const EmbedShape s{elements(spec.in[0]), c, attrs_as<EmbedAttrs>(spec.attrs).seq_len,
                     rows(spec.in[1]), spec.out[0].dtype};
  return kernel_of([s, threads = spec.threads](const KernelCall& call) {
    parallel_ranges(threads, s.rows, row_grain(s.columns * size_of(s.dtype)),
                    [&](int64_t begin, int64_t end) {
                      DSTRAIN_BEST(embed_rows)
                      (s, data<const int32_t>(call.in, 0), data(call.in, 1), data(call.in, 2),
                       data<const int32_t>(call.in, 3), data(call.out, 0), begin, end);
                    });
  });
}

std::unique_ptr<Kernel> make_embed_token_grad(const KernelSpec& spec) {
  return token_grad_kernel(spec, 1, false);
}

std::unique_ptr<Kernel> make_embed_position_grad(const KernelSpec& spec) {
  if (present(spec.in, 1))
    return token_grad_kernel(spec, attrs_as<EmbedAttrs>(spec.attrs).seq_len, true);
  const int64_t c = columns(spec.out[0]);
  const EmbedShape s{elements(spec.in[0]) / c, c, attrs_as<EmbedAttrs>(spec.attrs).seq_len, 0,
                     spec.in[0].dtype};
  return kernel_of(
      [s, positions = rows(spec.out[0]), threads = spec.threads](const KernelCall& call) {
        const int64_t row_bytes = s.rows / s.seq_len * s.columns * size_of(s.dtype);
        parallel_ranges(threads, positions, row_grain(row_bytes), [&](int64_t begin, int64_t end) {
          DSTRAIN_BEST(position_grad_rows)
          (s, data(call.in, 0), data<float>(call.out, 0), call.accumulate, begin, end);
        });
      });
}

}  // namespace dstrain::simd
#endif
