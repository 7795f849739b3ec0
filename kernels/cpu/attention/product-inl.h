// The matrix product of portable attention: C (+)= A B in fp32 on register tiles. A is read element by element
// with two strides, so a transposed A costs nothing; B and C are read along vectors. Included once per Highway
// target.
// Invariant: each element of C is one chain of multiply-adds over ascending depth that starts from 0 or from C,
// whatever tile the element is in.
#if defined(DSTRAIN_ATTENTION_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DSTRAIN_ATTENTION_PRODUCT_INL_H_
#undef DSTRAIN_ATTENTION_PRODUCT_INL_H_
#else
#define DSTRAIN_ATTENTION_PRODUCT_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace dstrain::attention::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The left operand of a product. Its strides may have any values, so it may be a transposed matrix.
struct MatrixA {
  const float* data;
  int64_t row, column;  // elements from one row, or column, to the next
};
// The right operand of a product. The elements of a row are contiguous; rows begin `row` elements apart.
struct MatrixB {
  const float* data;
  int64_t row;
};
// The result of a product. The elements of a row are contiguous; rows begin `row` elements apart.
struct MatrixC {
  float* data;
  int64_t row;
};
// Whether a product overwrites its result or adds to it.
enum class Into : bool { set, add };

inline constexpr int64_t kLanes32 = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<float>()));
// 6 x 4 vectors of accumulators fill the 32 registers of AVX-512, 6 x 2 the 16 of AVX2.
inline constexpr int64_t kTileRows = 6;
inline constexpr int64_t kTileVectors = kLanes32 == 16 ? 4 : 2;

template <int64_t kRows, int64_t kVectors>
HWY_INLINE void tile(MatrixA a, MatrixB b, MatrixC c, int64_t depth, Into into) {
  const hn::ScalableTag<float> d;
  hn::Vec<decltype(d)> sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int64_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int64_t v = 0; v < kVectors; ++v) {
      sum[r][v] = into == Into::add ? hn::LoadU(d, c.data + r * c.row + v * kLanes32) : hn::Zero(d);
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    hn::Vec<decltype(d)> bv[kVectors];
#pragma GCC unroll 8
    for (int64_t v = 0; v < kVectors; ++v) bv[v] = hn::LoadU(d, b.data + v * kLanes32);
#pragma GCC unroll 8
    for (int64_t r = 0; r < kRows; ++r) {
      const auto av = hn::Set(d, a.data[r * a.row]);
#pragma GCC unroll 8
      for (int64_t v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(av, bv[v], sum[r][v]);
    }
    a.data += a.column;
    b.data += b.row;
  }
#pragma GCC unroll 8
  for (int64_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int64_t v = 0; v < kVectors; ++v) {
      hn::StoreU(sum[r][v], d, c.data + r * c.row + v * kLanes32);
    }
  }
}

template <int64_t kRows>
HWY_NOINLINE void strip_of(MatrixA a, MatrixB b, MatrixC c, int64_t vectors, int64_t depth,
                           Into into) {
  for (; vectors >= kTileVectors; vectors -= kTileVectors) {
    tile<kRows, kTileVectors>(a, b, c, depth, into);
    b.data += kTileVectors * kLanes32;
    c.data += kTileVectors * kLanes32;
  }
  if constexpr (kTileVectors == 4) {
    if (vectors == 3) tile<kRows, 3>(a, b, c, depth, into);
    if (vectors == 2) tile<kRows, 2>(a, b, c, depth, into);
  }
  if (vectors == 1) tile<kRows, 1>(a, b, c, depth, into);
}

// C (rows x vectors*lanes) (+)= A (rows x depth) B; rows from 1 to kTileRows.
inline void strip(int64_t rows, MatrixA a, MatrixB b, MatrixC c, int64_t vectors, int64_t depth,
                  Into into) {
  switch (rows) {
    case 1:
      return strip_of<1>(a, b, c, vectors, depth, into);
    case 2:
      return strip_of<2>(a, b, c, vectors, depth, into);
    case 3:
      return strip_of<3>(a, b, c, vectors, depth, into);
    case 4:
      return strip_of<4>(a, b, c, vectors, depth, into);
    case 5:
      return strip_of<5>(a, b, c, vectors, depth, into);
    default:
      return strip_of<6>(a, b, c, vectors, depth, into);
  }
}

}  // namespace dstrain::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
