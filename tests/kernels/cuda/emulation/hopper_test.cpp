// The models of Hopper's instructions: barriers in shared memory, copies of boxes, products of warpgroups, and the errors
// that they report.
#include <catch2/catch.hpp>
#include <numeric>
#include <vector>

#include "kernels/cuda/attention/hopper/instructions.cuh"
#include "kernels/cuda/emulation/sanitizers.h"
#include "tests/kernels/cuda/emulation/run_grid.h"
#include "tests/support/skip.h"

namespace dstrain::emulated {
namespace {

using Catch::Matchers::Contains;

// --- barriers ----------------------------------------------------------------------------------

// Warp 0 fills a cell, and the others read it, for so many rounds: each waits for the other by a barrier.
__global__ void pass_values(int* sums, int rounds) {
  struct Memory {
    uint64_t filled, read;
    int cell;
  };
  Memory& memory = *reinterpret_cast<Memory*>(panel_memory());
  const int readers = static_cast<int>(blockDim.x) - 32;
  if (threadIdx.x == 0) {
    barrier_init(&memory.filled, 1);
    barrier_init(&memory.read, readers);
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int round = 0; round < rounds; ++round) {
      if (round > 0) barrier_wait(&memory.read, (round - 1) & 1);
      memory.cell = round + 1;
      barrier_arrive(&memory.filled);
    }
  } else if (threadIdx.x >= 32) {
    int sum = 0;
    for (int round = 0; round < rounds; ++round) {
      barrier_wait(&memory.filled, round & 1);
      sum += memory.cell;
      barrier_arrive(&memory.read);
    }
    sums[threadIdx.x - 32] = sum;
  }
}

TEST_CASE("barriers in shared memory have phases that end with their last arrival") {
  for (int launch = 0; launch < 5; ++launch) {
    std::vector<int> sums(96);
    run("pass_values", {1, 128, 64}, pass_values, sums.data(), 9);
    CHECK(sums == std::vector<int>(96, 45));
  }
}

enum class Misuse : uint8_t {
  no_init,
  two_inits,
  third_arrival,
  lost_arrival,
  overwritten,
  lost_bytes
};

__global__ void misuse_barrier(Misuse misuse) {
  auto* word = reinterpret_cast<uint64_t*>(panel_memory());
  if (misuse != Misuse::no_init) barrier_init(word, 2);
  if (misuse == Misuse::two_inits) barrier_init(word, 2);
  if (misuse == Misuse::overwritten) *word = 0;
  if (misuse == Misuse::third_arrival) {
    barrier_arrive_expecting(word, 16);
    barrier_arrive(word);
    barrier_arrive(word);
  }
  barrier_arrive(word);
  if (misuse == Misuse::lost_bytes) barrier_arrive_expecting(word, 32);
  barrier_wait(word, 0);
}

TEST_CASE("a barrier in shared memory that is used wrongly is an error that names the place") {
  const auto misused = [](Misuse misuse) { run("misuse", {1, 1, 64}, misuse_barrier, misuse); };
  CHECK_THROWS_WITH(misused(Misuse::no_init),
                    Contains("kernel misuse: barrier_arrive of block (0, 0, 0) at ") &&
                        Contains("hopper_test.cpp:") && Contains("before it is initialised"));
  CHECK_THROWS_WITH(misused(Misuse::two_inits), Contains("initialised again"));
  CHECK_THROWS_WITH(misused(Misuse::third_arrival), Contains("more than 2 threads arrive"));
  CHECK_THROWS_WITH(misused(Misuse::overwritten), Contains("memory was overwritten"));
  CHECK_THROWS_WITH(misused(Misuse::lost_arrival),
                    Contains("0 have ended and 1 wait") && Contains("waits at barrier_wait") &&
                        Contains("phase 0 that lacks 1 of 2 arrivals and 0 bytes"));
  CHECK_THROWS_WITH(misused(Misuse::lost_bytes), Contains("lacks 0 of 2 arrivals and 32 bytes"));
}

// --- copies ------------------------------------------------------------------------------------

// Copies a box to shared memory, and the memory to `out`.
__global__ void copy_out(const CUtensorMap map, int column, int row, uint16_t* out, bool waits) {
  unsigned char* const shared = panel_memory();
  auto* word = reinterpret_cast<uint64_t*>(shared + 8192);
  if (threadIdx.x == 0) {
    barrier_init(word, 1);
    barrier_arrive_expecting(word, map.box_bytes());
    copy_box(shared, map, {column, row, 0, 0}, word);
    if (waits) barrier_wait(word, 0);
    std::copy_n(reinterpret_cast<const uint16_t*>(shared), map.box_bytes() / 2, out);
    barrier_wait(word, 0);
  }
}

// A tensor of 5 rows of 72 elements, whose values are their places from 1 on.
CUtensorMap small_tensor(const std::vector<uint16_t>& values, Swizzle swizzle, uint32_t columns,
                         uint32_t rows) {
  return make_tensor_map<4>(values.data(), DType::bf16, swizzle, {72, 5, 1, 1}, {144, 720, 720, 0},
                            {columns, rows, 1, 1});
}

TEST_CASE("a copied box has zeros outside of the tensor, and chunks where the swizzle puts them") {
  std::vector<uint16_t> values(5 * 72);
  std::iota(values.begin(), values.end(), uint16_t{1});
  for (Swizzle swizzle : {Swizzle::none, Swizzle::bytes128, Swizzle::bytes64, Swizzle::bytes32}) {
    const uint32_t columns = swizzle == Swizzle::none ? 64 : span_of(swizzle) / 2, rows = 16;
    for (int column : {0, 64, -8})
      for (int row : {0, 2, -1}) {
        std::vector<uint16_t> out(columns * rows);
        run("copy_out", {1, 32, 8448}, copy_out, small_tensor(values, swizzle, columns, rows),
            column, row, out.data(), true);
        for (uint32_t r = 0; r < rows; ++r)
          for (uint32_t c = 0; c < columns; ++c) {
            const int at_row = row + static_cast<int>(r), at_column = column + static_cast<int>(c);
            const bool inside = at_row >= 0 && at_row < 5 && at_column >= 0 && at_column < 72;
            // As the PTX ISA draws it: rows of the span; chunk ^ (the number of the 128 bytes, below the chunks of a row).
            const uint32_t chunks = span_of(swizzle) / 16, byte = 2 * (r * columns + c);
            const uint32_t chunk = byte / 16 % chunks ^ byte / 128 % chunks;
            const uint32_t at = byte / (16 * chunks) * (8 * chunks) + chunk * 8 + c % 8;
            REQUIRE(out[at] == (inside ? values[static_cast<size_t>(at_row * 72 + at_column)] : 0));
          }
      }
  }
}

TEST_CASE("what a copy will write is undefined until it was waited for") {
  std::vector<uint16_t> values(5 * 72, 1), out(64 * 8);
  run("copy_out", {1, 32, 8448}, copy_out, small_tensor(values, Swizzle::bytes128, 64, 8), 0, 0,
      out.data(), false);
  CHECK(out == std::vector<uint16_t>(64 * 8, 0xffff));
}

TEST_CASE("a tensor map that the driver refuses is an error, and so is a copy beyond its bytes") {
  const std::vector<uint16_t> values(400);
  const auto map = [&](size_t offset, uint64_t stride, uint32_t columns, Swizzle swizzle) {
    return make_tensor_map<2>(values.data() + offset, DType::f16, swizzle, {8, 2}, {stride, 0},
                              {columns, 2});
  };
  map(0, 16, 8, Swizzle::none);
  CHECK_THROWS_WITH(map(1, 16, 8, Swizzle::none), Contains("address that is not a multiple of 16"));
  CHECK_THROWS_WITH(map(0, 24, 8, Swizzle::none), Contains("stride 0 of a tensor map is 24 bytes"));
  CHECK_THROWS_WITH(map(0, 16, 4, Swizzle::none), Contains("rows of 8 bytes"));
  CHECK_THROWS_WITH(map(0, 16, 320, Swizzle::none), Contains("320 elements, at most 256"));
  CHECK_THROWS_WITH(map(0, 16, 64, Swizzle::bytes64), Contains("of which 64 are swizzled"));
}

// --- products ----------------------------------------------------------------------------------

constexpr uint64_t descriptor(uint32_t at, uint32_t leading, uint32_t stride, Swizzle swizzle) {
  return uint64_t{at >> 4} | uint64_t{leading >> 4} << 16 | uint64_t{stride >> 4} << 32 |
         static_cast<uint64_t>(swizzle) << 62;
}

TEST_CASE("matrix descriptors find the rows of operands in the layouts of the PTX ISA") {
  constexpr int kRows = 128;
  std::vector<unsigned char> shared(1 << 16);
  const auto put = [&](uint32_t at, Swizzle swizzle, int row, int depth) {
    const auto value = static_cast<uint16_t>(row * 16 + depth);
    std::memcpy(shared.data() + swizzled(at, swizzle), &value, 2);
  };
  for (bool transposed : {false, true})
    for (Swizzle swizzle : {Swizzle::none, Swizzle::bytes128, Swizzle::bytes64, Swizzle::bytes32}) {
      const uint32_t leading = 4096, stride = swizzle == Swizzle::none ? 256 : 8 * span_of(swizzle);
      const uint32_t span = span_of(swizzle) / 2, first = 32768;
      std::fill(shared.begin(), shared.end(), 0xff);
      for (int row = 0; row < kRows; ++row)
        for (int depth = 0; depth < kProductDepth; ++depth) {
          // Along: the direction in which elements lie side by side. Across: the other.
          const auto along = static_cast<uint32_t>(transposed ? row : depth),
                     across = static_cast<uint32_t>(transposed ? depth : row);
          uint32_t at = first + across % 8 * 2 * span + along % span * 2;
          const bool by_leading = !transposed || swizzle != Swizzle::none;
          at += along / span * (by_leading ? leading : stride);
          at += across / 8 * (by_leading ? stride : leading);
          put(at, swizzle, row, depth);
        }
      OperandRows rows;
      read_operand(rows, kRows, shared.data(), shared.size(),
                   descriptor(first, leading, stride, swizzle), transposed);
      for (size_t row = 0; row < kRows; ++row)
        for (size_t depth = 0; depth < kProductDepth; ++depth)
          REQUIRE(rows[row][depth] == row * 16 + depth);
    }
  OperandRows rows;
  CHECK_THROWS_WITH(read_operand(rows, 64, shared.data(), shared.size(),
                                 descriptor(65536 - 512, 0, 1024, Swizzle::bytes128), false),
                    Contains("beyond the block's 65536 bytes"));
}

enum class Order : uint8_t {
  right,
  no_wait,
  early_read,
  no_group,
  early_write,
  one_warp_more,
  unread
};

// Each warpgroup: sums = a b^T of two panels of 64 x 64, and then sums += w c, with w in registers. Elements are small
// integers, so the sums are exact.
template <class T>
__global__ void multiply_panels(const T* a, const T* b, float* out, Order order) {
  T* const left = reinterpret_cast<T*>(panel_memory());
  T* const right = left + 64 * 64;
  for (int i = static_cast<int>(threadIdx.x); i < 64 * 64; i += static_cast<int>(blockDim.x)) {
    const int at = i / 64 * 64 + (i / 8 % 8 ^ i / 64 % 8) * 8 + i % 8;
    left[at] = a[i], right[at] = b[i];
  }
  __syncthreads();
  const uint64_t of_left = descriptor(shared_address(left), 0, 1024, Swizzle::bytes128),
                 of_right = descriptor(shared_address(right), 0, 1024, Swizzle::bytes128);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  float sums[8][4];
  if (order != Order::no_group) begin_products();
  for (uint64_t step = 0; step < 4; ++step)
    wgmma<T>(sums, of_left + 2 * step, of_right + 2 * step, step > 0);
  if (order == Order::one_warp_more && warp == 1) wgmma<T>(sums, of_left, of_right, true);
  commit_products();
  if (order == Order::early_read) finished(sums);
  if (order == Order::early_write) left[threadIdx.x] = T{};
  if (order != Order::no_wait) wait_products<0>();
  if (order != Order::no_wait) finished(sums);
  if (order == Order::right) {
    // Ones in column k of row k: adds the first 16 rows of b to the sums of the first 16 rows of each warp.
    uint32_t ones[4];
    const uint32_t one = from_float<T>(1).bits;
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i % 2 * 8, column = lane % 4 * 2 + i / 2 * 8;
      ones[i] = (row == column ? one : 0) | (row == column + 1 ? one : 0) << 16;
    }
    begin_products();
    wgmma<T>(sums, ones, of_right);
    commit_products();
    wait_products<0>();
    finished(sums);
  }
  for (int n = 0; n < 8; ++n)
    for (int i = 0; i < 4; ++i)
      out[(warp * 16 + lane / 4 + i / 2 * 8) * 64 + 8 * n + lane % 4 * 2 + i % 2] = sums[n][i];
  if (order == Order::unread) {
    begin_products();
    wgmma<T>(sums, of_left, of_right, true);
    commit_products();
  }
}

template <class T>
std::vector<float> multiply_in(Order order, std::vector<float>* expected = nullptr) {
  std::vector<T> a(64 * 64), b(64 * 64);
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = from_float<T>(static_cast<float>(static_cast<int>(i * 37 % 11) - 5));
    b[i] = from_float<T>(static_cast<float>(static_cast<int>(i * 53 % 7) - 3));
  }
  std::vector<float> out(64 * 64);
  run("multiply", {1, 128, 16384}, multiply_panels<T>, static_cast<const T*>(a.data()),
      static_cast<const T*>(b.data()), out.data(), order);
  if (expected != nullptr) {
    expected->assign(64 * 64, 0);
    for (size_t r = 0; r < 64; ++r)
      for (size_t c = 0; c < 64; ++c) {
        float& sum = (*expected)[r * 64 + c];
        for (size_t k = 0; k < 64; ++k) sum += to_float(a[r * 64 + k]) * to_float(b[c * 64 + k]);
        sum += to_float(b[r % 16 * 64 + c]);
      }
  }
  return out;
}

TEST_CASE("products of warpgroups equal their definition, with operands of both kinds") {
  std::vector<float> expected;
  CHECK(multiply_in<bf16>(Order::right, &expected) == expected);
  CHECK(multiply_in<f16>(Order::right, &expected) == expected);
}

TEST_CASE(
    "sums of products are undefined until they were waited for, and reading them is an error") {
  CHECK_THROWS_WITH(multiply_in<bf16>(Order::no_wait), Contains("has not read the sums"));
  CHECK_THROWS_WITH(multiply_in<bf16>(Order::early_read),
                    Contains("kernel multiply: finished of block (0, 0, 0) at ") &&
                        Contains("sums are read before their product is done"));
}

TEST_CASE("products that the PTX ISA leaves undefined are errors") {
  CHECK_THROWS_WITH(multiply_in<bf16>(Order::no_group), Contains("begin_products comes first"));
  CHECK_THROWS_WITH(multiply_in<bf16>(Order::early_write), Contains("in shared memory"));
  CHECK_THROWS_WITH(multiply_in<bf16>(Order::one_warp_more), Contains("of a warpgroup"));
  CHECK_THROWS_WITH(multiply_in<bf16>(Order::unread), Contains("has not read the sums"));
}

// --- seeded faults -----------------------------------------------------------------------------

TEST_CASE("a seeded fault is that of the stream's grids until it is taken back") {
  SKIP_UNLESS(!under_tsan(), "the fault is a race, which ThreadSanitizer reports");
  std::vector<int> sums(96);
  EmulatedStream stream;
  stream.submit([] { seed_fault(Fault::no_wait_for_readers); });
  for (int launch_count = 0; launch_count < 4; ++launch_count)
    launch(&stream, "pass_values", Grid{1, 128, 64}, pass_values, sums.data(), 9);
  // Threads arrive twice in a phase, or read what is not there.
  bool found = false;
  try {
    stream.synchronize();
    found = sums != std::vector<int>(96, 45);
  } catch (const InternalError&) {
    found = true;
  }
  CHECK(found);
  EmulatedStream other;
  launch(&other, "pass_values", Grid{1, 128, 64}, pass_values, sums.data(), 9);
  other.synchronize();
  CHECK(sums == std::vector<int>(96, 45));
}

}  // namespace
}  // namespace dstrain::emulated
