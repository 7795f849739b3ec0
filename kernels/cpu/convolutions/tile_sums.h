// The inner part of a convolution: one tile of a result, as a sum of products of matrices, each summed in ascending k. Elements
// are f32, or pairs of bf16 that a product takes at once: `word` stands for either.
#pragma once

#include <cstdint>

#include "runtime/core/dtype.h"

namespace dstrain {

// Which operands a tile reads: element (i, k) of A is at i * a_row + k * a_depth, element (k, j) of B at k * b_depth + j, in
// words.
struct TileSums {
  // Two matrices whose product is added.
  struct Product {
    const void* a = nullptr;
    const void* b = nullptr;
  };
  const Product* products = nullptr;
  int64_t count = 0;               // of products
  int64_t depth = 0;               // words of k in each
  int64_t a_row = 0, a_depth = 0;  // one of them is 1
  int64_t b_depth = 0;
  bool whole_vectors = false;  // B may be read past `columns`, up to a whole number of vectors
  int64_t rows = 0, columns = 0;
  float* c = nullptr;
  int64_t c_row = 0;
  bool add = false;  // to what c has
};

// How words are multiplied on this processor.
struct TileKernel {
  int64_t rows = 0, columns = 0;  // the most of a tile
  void (*sum)(const TileSums&) = nullptr;
};

// The most elements of a tile on any processor.
inline constexpr int64_t kMostTile = 12 * 32;

TileKernel f32_tiles_of_sums();
// For processors with AVX512_BF16.
TileKernel dot_tiles_of_sums();
// Returns those of an operand's type: f32 or bf16.
inline TileKernel tiles_of_sums(DType dtype) {
  return dtype == DType::f32 ? f32_tiles_of_sums() : dot_tiles_of_sums();
}

}  // namespace dstrain
