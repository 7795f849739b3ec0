// embed, add_rows and their weight gradients. Minimum memory traffic in bytes, s bytes per element:
//   embed, add_rows      2 s R C, as a row of the tables is read from memory at most once
//   embed_token_grad     s R C + 8 R C (reads, adds and writes a row), and 4 V C to clear the table
//   embed_position_grad  s R C + 4 T C
#include <algorithm>
#include <cstring>

#include "kernels/cpu/memory_bound/kernels.h"
#include "kernels/cpu/memory_bound/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/memory_bound/embed.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/memory_bound/pack-inl.h"
#include "runtime/core/isa/best_variant.h"

#ifndef DSTRAIN_SIMD_EMBED_ONCE
#define DSTRAIN_SIMD_EMBED_ONCE
namespace dstrain::simd {
namespace {
struct EmbedShape {
  int64_t rows, columns, table_rows;
  DType dtype;
  EmbedAttrs attrs;

  // Returns the row of the table of tokens that token `id` has, -1 where the table has another part of the tokens.
  int64_t row_of(int32_t id) const {
    if (attrs.tokens == 0) return id;
    const int64_t row = id - attrs.first_token;
    return 0 <= row && row < attrs.tokens ? row : -1;
  }
  // Returns which row of its sample row `r` is.
  int64_t place_of(int64_t r) const { return (attrs.part.first + r) % attrs.seq_len; }
};
}  // namespace
}  // namespace dstrain::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

// Copies rows [begin, end) of x from the table of tokens; those of tokens that it does not have become zeros.
void token_rows(const EmbedShape& s, const int32_t* ids, const void* token, void* x, int64_t begin,
                int64_t end) {
  const int64_t bytes = s.columns * size_of(s.dtype);
  for (int64_t r = begin; r < end; ++r) {
    const int64_t row = s.row_of(ids[r]);
    char* to = static_cast<char*>(x) + r * bytes;
    if (row < 0)
      std::memset(to, 0, static_cast<size_t>(bytes));
    else
      std::memcpy(to, static_cast<const char*>(token) + row * bytes, static_cast<size_t>(bytes));
  }
}

// Computes rows [begin, end) of y = rows of x + rows of `position`. Row r of y takes row ids[r] of x, or row r where ids is
// null; then y may be x. documents may be null.
void add_position_rows(const EmbedShape& s, const int32_t* ids, const void* x, const void* position,
                       const int32_t* documents, void* y, int64_t begin, int64_t end) {
  with_type(s.dtype, [&](auto t) SIMD_INLINE {
    using T = decltype(t);
    int64_t place = s.place_of(begin);
    for (int64_t r = begin; r < end; ++r) {
      const T* a = static_cast<const T*>(x) + (ids ? ids[r] : r) * s.columns;
      const T* b =
          static_cast<const T*>(position) + (place - (documents ? documents[r] : 0)) * s.columns;
      T* to = static_cast<T*>(y) + r * s.columns;
      for_packs(0, s.columns, [=](int64_t i, auto n) SIMD_INLINE {
        store(load(a + i, n) + load(b + i, n), to + i, n);
      });
      if (++place == s.attrs.seq_len) place = 0;
    }
  });
}

// Computes columns [begin, end) of d_token: adds the rows of d_x in order, each to its token's row, and leaves out those of
// tokens that the table does not have. With documents, ids are the rows at which these begin, and each row of d_x is added
// to that of its position.
void token_grad_columns(const EmbedShape& s, const void* d_x, const int32_t* ids, float* d_token,
                        bool documents, bool accumulate, int64_t begin, int64_t end) {
  if (!accumulate)
    for (int64_t v = 0; v < s.table_rows; ++v)
      std::memset(d_token + v * s.columns + begin, 0,
                  static_cast<size_t>(end - begin) * sizeof(float));
  with_type(s.dtype, [&](auto t) SIMD_INLINE {
    using T = decltype(t);
    for (int64_t r = 0; r < s.rows; ++r) {
      const int64_t row = documents ? s.place_of(r) - ids[r] : s.row_of(ids[r]);
      if (row < 0) continue;
      const T* from = static_cast<const T*>(d_x) + r * s.columns;
      float* to = d_token + row * s.columns;
      for_packs(begin, end, [=](int64_t i, auto n) SIMD_INLINE {
        store(load(to + i, n) + load(from + i, n), to + i, n);
      });
    }
  });
}

// Computes rows [begin, end) of d_position: the sum over the samples, added once; zeros where no row has the position.
void position_grad_rows(const EmbedShape& s, const void* d_x, float* d_position, bool accumulate,
                        int64_t begin, int64_t end) {
  const int64_t seq_len = s.attrs.seq_len, stride = seq_len * s.columns;
  with_type(s.dtype, [&](auto t) SIMD_INLINE {
    using T = decltype(t);
    for (int64_t p = begin; p < end; ++p) {
      float* to = d_position + p * s.columns;
      // The first of the rows that have this position; the next ones follow at a distance of seq_len.
      const int64_t first =
          p < seq_len ? (p + seq_len - s.attrs.part.first % seq_len) % seq_len : s.rows;
      if (first >= s.rows) {
        if (!accumulate) std::fill_n(to, s.columns, 0.0f);
        continue;
      }
      const T* from = static_cast<const T*>(d_x) + first * s.columns;
      const int64_t samples = (s.rows - first + seq_len - 1) / seq_len;
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
std::unique_ptr<Kernel> token_grad_kernel(const KernelSpec& spec, bool documents) {
  const EmbedShape s{elements(spec.in[1]), columns(spec.out[0]), rows(spec.out[0]),
                     spec.in[0].dtype, attrs_as<EmbedAttrs>(spec.attrs)};
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
  const EmbedShape s{elements(spec.in[0]), columns(spec.in[1]), rows(spec.in[1]), spec.out[0].dtype,
                     attrs_as<EmbedAttrs>(spec.attrs)};
  return kernel_of([s, threads = spec.threads](const KernelCall& call) {
    const auto* ids = data<const int32_t>(call.in, 0);
    const void *token = data(call.in, 1), *position = data(call.in, 2);
    void* x = data(call.out, 0);
    parallel_ranges(threads, s.rows, row_grain(s.columns * size_of(s.dtype)),
                    [&](int64_t begin, int64_t end) {
                      if (!position)
                        DSTRAIN_BEST(token_rows)(s, ids, token, x, begin, end);
                      else
                        DSTRAIN_BEST(add_position_rows)
                      (s, ids, token, position, data<const int32_t>(call.in, 3), x, begin, end);
                    });
  });
}

std::unique_ptr<Kernel> make_add_rows(const KernelSpec& spec) {
  const EmbedShape s{rows(spec.in[0]), columns(spec.in[0]), rows(spec.in[1]), spec.out[0].dtype,
                     attrs_as<EmbedAttrs>(spec.attrs)};
  return kernel_of([s, threads = spec.threads](const KernelCall& call) {
    parallel_ranges(threads, s.rows, row_grain(s.columns * size_of(s.dtype)),
                    [&](int64_t begin, int64_t end) {
                      DSTRAIN_BEST(add_position_rows)
                      (s, nullptr, data(call.in, 0), data(call.in, 1),
                       data<const int32_t>(call.in, 2), data(call.out, 0), begin, end);
                    });
  });
}

std::unique_ptr<Kernel> make_embed_token_grad(const KernelSpec& spec) {
  return token_grad_kernel(spec, false);
}

std::unique_ptr<Kernel> make_embed_position_grad(const KernelSpec& spec) {
  if (present(spec.in, 1)) return token_grad_kernel(spec, true);
  const int64_t c = columns(spec.out[0]);
  const EmbedShape s{elements(spec.in[0]) / c, c, rows(spec.out[0]), spec.in[0].dtype,
                     attrs_as<EmbedAttrs>(spec.attrs)};
  return kernel_of([s, threads = spec.threads](const KernelCall& call) {
    const int64_t samples = (s.rows + s.attrs.seq_len - 1) / s.attrs.seq_len;
    const int64_t grain = row_grain(samples * s.columns * size_of(s.dtype));
    parallel_ranges(threads, s.table_rows, grain, [&](int64_t begin, int64_t end) {
      DSTRAIN_BEST(position_grad_rows)
      (s, data(call.in, 0), data<float>(call.out, 0), call.accumulate, begin, end);
    });
  });
}

}  // namespace dstrain::simd
#endif
