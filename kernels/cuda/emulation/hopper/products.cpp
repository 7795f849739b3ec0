#include "kernels/cuda/emulation/hopper/products.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/cuda/emulation/hopper/tensor_map.h"
#include "runtime/core/error.h"
#include "runtime/core/philox.h"

namespace dstrain::emulated {
namespace {

// A matrix descriptor, as the PTX ISA lays it out.
struct Matrix {
  uint32_t start, leading, stride;  // bytes
  Swizzle swizzle;

  explicit Matrix(uint64_t word)
      : start((word & 0x3fff) << 4),
        leading((word >> 16 & 0x3fff) << 4),
        stride((word >> 32 & 0x3fff) << 4),
        swizzle(static_cast<Swizzle>(word >> 62)) {
    check((word >> 49 & 7) == 0, "a matrix descriptor with a base offset");
  }
  // Returns where 8 elements lie side by side: with the depth along them, of row `row` and depth 8 chunk; or transposed,
  // rows 8 chunk to 8 chunk + 7 of depth `row`.
  uint32_t at(int row, int chunk, bool transposed) const {
    const auto r = static_cast<uint32_t>(row), c = static_cast<uint32_t>(chunk);
    const uint32_t span = span_of(swizzle), chunks = span / 16;
    uint32_t at = start + r % 8 * span;
    if (swizzle == Swizzle::none)
      at += transposed ? r / 8 * leading + c * stride : r / 8 * stride + c * leading;
    else
      at += r / 8 * stride + (transposed ? c % chunks * 16 + c / chunks * leading : c * 16);
    return swizzled(at, swizzle);
  }
};

float value_of(DType dtype, uint16_t bits) {
  return dtype == DType::f16 ? to_float(f16{bits}) : to_float(bf16{bits});
}

uint64_t hash_rows(uint64_t hash, const OperandRows& rows, int count) {
  for (size_t r = 0; r < static_cast<size_t>(count); ++r) {
    uint64_t words[4];
    std::memcpy(words, rows[r].data(), sizeof(words));
    for (uint64_t word : words) hash = (hash ^ word) * 0x9e3779b97f4a7c15ull + (hash >> 29);
  }
  return hash;
}

}  // namespace

void read_operand(OperandRows& rows, int count, const unsigned char* shared, size_t bytes,
                  uint64_t matrix, bool transposed) {
  const Matrix m(matrix);
  const int lines = transposed ? kProductDepth : count;
  const int chunks = (transposed ? count : kProductDepth) / 8;
  for (int line = 0; line < lines; ++line)
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const uint32_t at = m.at(line, chunk, transposed);
      if (uint64_t{at} + 16 > bytes)
        check(false, "a matrix descriptor beyond the block's {} bytes of shared memory", bytes);
      uint16_t values[8];
      std::memcpy(values, shared + at, sizeof(values));
      for (int e = 0; e < 8; ++e) {
        const int row = transposed ? 8 * chunk + e : line,
                  depth = transposed ? line : 8 * chunk + e;
        rows[static_cast<size_t>(row)][static_cast<size_t>(depth)] = values[e];
      }
    }
}

Products::Products()
    : of_warps_(std::make_unique_for_overwrite<std::array<Warp, kMostBlockThreads / kWarp>>()) {}

void Products::clear(unsigned warps) {
  warps_ = warps;
  if (!used_) return;
  used_ = false;
  threads_.fill({});
  for (Warp& warp : *of_warps_) warp.count = 0, warp.issued = 0;
  for (auto& history : history_) history.fill({});
}

void Products::begin(unsigned thread) {
  used_ = true;
  threads_[thread].open = true;
}

void Products::commit(unsigned thread) {
  threads_[thread].open = false;
  ++threads_[thread].committed;
}

void Products::wait(unsigned thread, unsigned pending, const unsigned char* shared, size_t bytes) {
  Thread& self = threads_[thread];
  const unsigned done = self.committed - std::min(pending, self.committed);
  if (done <= self.done) return;
  Warp& warp = (*of_warps_)[thread / kWarp];
  for (size_t p = 0; p < warp.count; ++p) {
    Pending& products = warp.pending[p];
    if (products.group >= done) continue;
    // The first lane that has waited compares for all.
    for (; products.products > 0; --products.products) {
      const Operands& o = products.operands[products.products - 1];
      OperandRows a, b;
      check(hash_operands(o.shape, o.a_matrix, o.b_matrix, shared, bytes, a, b) == o.hash,
            "an operand of a product changed in shared memory before the product was done");
    }
  }
  self.done = done;
}

bool Products::take(unsigned thread, float* sums, int tiles) {
  Warp& warp = (*of_warps_)[thread / kWarp];
  const unsigned lane = thread % kWarp;
  for (size_t p = 0; p < warp.count; ++p) {
    Pending& products = warp.pending[p];
    if (products.registers[lane] != sums || products.tiles != tiles ||
        (products.taken >> lane & 1u) != 0)
      continue;
    check(products.group < threads_[thread].done, "sums are read before their product is done");
    const unsigned g = lane / 4, q = lane % 4;
    for (unsigned n = 0; n < static_cast<unsigned>(tiles); ++n)
      for (unsigned i = 0; i < 4; ++i)
        sums[4 * n + i] = products.sums[g + i / 2 * 8][8 * n + 2 * q + i % 2];
    products.taken |= 1u << lane;
    if (products.taken == ~0u) {
      if (p + 1 != warp.count) products = warp.pending[warp.count - 1];
      --warp.count;
    }
    return true;
  }
  return false;
}

uint64_t Products::hash_operands(const ProductShape& shape, uint64_t a_matrix, uint64_t b_matrix,
                                 const unsigned char* shared, size_t bytes, OperandRows& a,
                                 OperandRows& b) {
  uint64_t hash = mix64(b_matrix);
  if (!shape.a_in_registers) {
    read_operand(a, kGroupWarps * 16, shared, bytes, a_matrix, shape.a_transposed);
    hash = hash_rows(hash + a_matrix, a, kGroupWarps * 16);
  }
  read_operand(b, 8 * shape.tiles, shared, bytes, b_matrix, shape.b_transposed);
  return hash_rows(hash, b, 8 * shape.tiles);
}

Products::Pending& Products::pending_of(Warp& warp, const ProductShape& shape, void* const* lanes,
                                        unsigned group) {
  const auto lane_of = [&](unsigned l) { return static_cast<const ProductLane*>(lanes[l]); };
  for (size_t p = 0; p < warp.count; ++p) {
    Pending& products = warp.pending[p];
    if (products.registers[0] != lane_of(0)->sums) continue;
    check(products.tiles == shape.tiles && products.taken == 0,
          "a product adds to sums of another product that some lanes have read");
    products.group = group;
    return products;
  }
  check(warp.count < kMostPending, "more than {} sums of products are not done", kMostPending);
  Pending& products = warp.pending[warp.count++];
  products.group = group;
  products.tiles = shape.tiles;
  products.taken = 0;
  products.products = 0;
  for (unsigned l = 0; l < kWarp; ++l) {
    products.registers[l] = lane_of(l)->sums;
    for (unsigned n = 0; n < static_cast<unsigned>(shape.tiles); ++n)
      for (unsigned i = 0; i < 4; ++i) {
        float& sum = lane_of(l)->sums[4 * n + i];
        products.sums[l / 4 + i / 2 * 8][8 * n + 2 * (l % 4) + i % 2] = sum;
        sum = std::numeric_limits<float>::quiet_NaN();
      }
  }
  return products;
}

void Products::issue(unsigned warp, const ProductShape& shape, void* const* lanes,
                     const unsigned char* shared, size_t bytes) {
  check(shape.tiles >= 1 && shape.tiles <= 32, "a product of {} columns", 8 * shape.tiles);
  const Thread& first_thread = threads_[warp * kWarp];
  const auto& first = *static_cast<const ProductLane*>(lanes[0]);
  for (unsigned l = 0; l < kWarp; ++l) {
    const auto& lane = *static_cast<const ProductLane*>(lanes[l]);
    const Thread& thread = threads_[warp * kWarp + l];
    check(thread.open, "a product outside of a group: begin_products comes first");
    check(thread.committed == first_thread.committed && lane.a_matrix == first.a_matrix &&
              lane.b_matrix == first.b_matrix,
          "lanes of a warp issue different products");
  }
  Warp& self = (*of_warps_)[warp];
  Pending& products = pending_of(self, shape, lanes, first_thread.committed);
  check(products.products < kMostProducts, "more than {} products of the same sums are not done",
        kMostProducts);

  OperandRows a_rows, b_rows;
  const uint64_t hash =
      hash_operands(shape, first.a_matrix, first.b_matrix, shared, bytes, a_rows, b_rows);
  products.operands[products.products++] = {shape, first.a_matrix, first.b_matrix, hash};
  Issued& issued = history_[warp / kGroupWarps][self.issued++ % kHistory];
  if (issued.number < self.issued) issued = {self.issued, hash};
  check(
      issued.number != self.issued || issued.hash == hash,
      "the warps of a warpgroup issue different products, or find other operands in shared memory");

  float a[16][kProductDepth];
  const unsigned first_row = warp % kGroupWarps * 16;
  for (unsigned row = 0; row < 16 && !shape.a_in_registers; ++row)
    for (unsigned k = 0; k < kProductDepth; ++k)
      a[row][k] = value_of(shape.dtype, a_rows[first_row + row][k]);
  for (unsigned l = 0; l < kWarp && shape.a_in_registers; ++l)
    for (unsigned i = 0; i < 4; ++i) {
      const uint32_t pair = static_cast<const ProductLane*>(lanes[l])->a[i];
      float* const at = &a[l / 4 + i % 2 * 8][2 * (l % 4) + i / 2 * 8];
      at[0] = value_of(shape.dtype, static_cast<uint16_t>(pair));
      at[1] = value_of(shape.dtype, static_cast<uint16_t>(pair >> 16));
    }
  const auto columns = static_cast<unsigned>(8 * shape.tiles);
  float b[kProductDepth][256];
  for (unsigned column = 0; column < columns; ++column)
    for (unsigned k = 0; k < kProductDepth; ++k)
      b[k][column] = value_of(shape.dtype, b_rows[column][k]);
  for (unsigned row = 0; row < 16; ++row) {
    float* const sums = products.sums[row];
    if (!shape.add) std::fill_n(sums, columns, 0.0f);
    for (unsigned k = 0; k < kProductDepth; ++k)
      for (unsigned column = 0; column < columns; ++column)
        sums[column] += a[row][k] * b[k][column];
  }
}

void Products::check_ended() const {
  if (!used_) return;
  for (unsigned w = 0; w < warps_; ++w) {
    const Warp& warp = (*of_warps_)[w];
    check(warp.count == 0, "warp {} has not read the sums of {} products", w, warp.count);
    const uint64_t first = (*of_warps_)[w / kGroupWarps * kGroupWarps].issued;
    check(warp.issued == first, "warps {} and {} of a warpgroup have issued {} and {} products",
          w / kGroupWarps * kGroupWarps, w, first, warp.issued);
  }
}

}  // namespace dstrain::emulated
