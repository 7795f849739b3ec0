#include "kernels/cpu/products/sgemm.h"

#include <algorithm>
#include <utility>

#include "kernels/cpu/products/f32_tiles.h"
#include "runtime/core/error.h"
#include "runtime/core/threads/parts.h"
#include "runtime/ir/ops/row_blocks.h"

namespace dstrain {
namespace {

constexpr int64_t kMostDepth = 384;  // k in one part
constexpr int64_t kMostColumns =
    768;  // columns of B that a thread packs at a time, for its second-level cache
constexpr int64_t kPackingCost = 25;  // cost of packing an element, in multiplications
constexpr int64_t kAlignFloats = 16;

int64_t cut_into(int64_t size, int64_t most) {
  return (size + most - 1) / most;
}
int64_t round_up(int64_t size, int64_t to) {
  return cut_into(size, to) * to;
}

// Returns the length of nearly equal parts of at most `most`; 0 for size 0.
int64_t part_length(int64_t size, int64_t most) {
  return size == 0 ? 0 : cut_into(size, cut_into(size, most));
}

// How the result is divided among threads.
struct SgemmCut {
  int64_t row_parts = 1, column_parts = 1;
  int64_t rows = 0, columns = 0;  // size of a part, in whole tiles

  SgemmCut(int64_t m, int64_t n, int threads) {
    const int64_t tile_rows = f32_tile_rows(), tile_columns = f32_tile_columns();
    int64_t least = INT64_MAX;
    for (int64_t across = 1; across <= threads; ++across) {
      const int64_t r = round_up(cut_into(m, threads / across), tile_rows);
      const int64_t c = round_up(cut_into(n, across), tile_columns);
      const int64_t cost = r * c + kPackingCost * (r * cut_into(c, kMostColumns) + c);
      if (cost >= least) continue;
      least = cost;
      rows = r;
      columns = c;
    }
    row_parts = cut_into(m, rows);
    column_parts = cut_into(n, columns);
  }
  int64_t parts() const { return row_parts * column_parts; }
};

// A thread's packed panels, in floats: of B, and one of A, of which there are two.
struct SgemmScratch {
  int64_t b, a;

  SgemmScratch(int64_t columns, int64_t k) {
    const int64_t depth = std::min(k, kMostDepth);
    b = round_up(std::min(columns, kMostColumns), f32_tile_columns()) * depth;
    b = round_up(b, kAlignFloats);
    a = round_up(f32_tile_rows() * f32_copies_of_a() * depth, kAlignFloats);
  }
  int64_t floats() const { return b + 2 * a; }
};

// Computes rows [row, row + rows) and columns [column, column + columns) of the result.
void multiply_part(const SgemmCall& g, int64_t row, int64_t rows, int64_t column, int64_t columns,
                   const SgemmScratch& scratch, float* memory) {
  const int64_t depth = sgemm_part_length(g.k), height = f32_tile_rows();
  const int64_t width = round_up(part_length(columns, kMostColumns), f32_tile_columns());
  float* const packed_b = memory;
  float* packed_a = packed_b + scratch.b;
  float* packed_next = packed_a + scratch.a;
  const auto part_of = [](const float* data, int64_t stride, bool depth_major, int64_t at,
                          int64_t count, int64_t first, int64_t length) {
    return F32Source{data + (depth_major ? first * stride + at : at * stride + first), stride,
                     count, length, depth_major};
  };
  for (int64_t j = 0; j < columns; j += width) {
    const int64_t n = std::min(width, columns - j);
    for (int64_t first = 0; first < g.k; first += depth) {
      const int64_t length = std::min(depth, g.k - first);
      const auto panel_of_a = [&](int64_t i) {
        const int64_t m = std::clamp<int64_t>(rows - i, 0, height);
        return part_of(g.a, g.a_stride, g.a_transposed, row + i, m, first, length);
      };
      pack_f32_b(part_of(g.b, g.b_stride, !g.b_transposed, column + j, n, first, length), packed_b);
      pack_f32_a(panel_of_a(0), packed_a);
      for (int64_t i = 0; i < rows; i += height) {
        multiply_f32({.a = packed_a,
                      .b = packed_b,
                      .rows = std::min(height, rows - i),
                      .columns = n,
                      .depth = length,
                      .c = g.c + (row + i) * g.c_stride + column + j,
                      .stride = g.c_stride,
                      .add = g.accumulate || first > 0,
                      .next_a = panel_of_a(i + height),
                      .packed_next = packed_next});
        std::swap(packed_a, packed_next);
      }
    }
  }
}

}  // namespace

void sgemm(const SgemmCall& g) {
  const SgemmCut cut(g.m, g.n, g.threads);
  const SgemmScratch scratch(cut.columns, g.k);
  const int64_t floats = scratch.floats() * cut.parts();
  check(floats <= g.workspace_floats, "a product writes {} floats of scratch memory, and has {}",
        floats, g.workspace_floats);
  run_parts(cut.parts(), [&](int64_t part) {
    const int64_t row = part / cut.column_parts * cut.rows;
    const int64_t column = part % cut.column_parts * cut.columns;
    multiply_part(g, row, std::min(cut.rows, g.m - row), column,
                  std::min(cut.columns, g.n - column), scratch,
                  g.workspace + scratch.floats() * part);
  });
}

int64_t sgemm_part_length(int64_t k) {
  // Pieces of rows can then consist of whole parts and of whole blocks of other sums over rows.
  return k <= kMostDepth ? k : round_up(part_length(k, kMostDepth), RowBlocks::kMultiple);
}

int64_t sgemm_workspace_floats(int64_t m, int64_t n, int64_t k, int threads) {
  return std::min<int64_t>(threads,
                           cut_into(m, f32_tile_rows()) * cut_into(n, f32_tile_columns())) *
         SgemmScratch(n, k).floats();
}

}  // namespace dstrain
