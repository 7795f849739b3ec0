// The emulated execution model: barriers, shuffles, shared memory, and the errors it reports.
#include <catch2/catch.hpp>
#include <numeric>
#include <vector>

#include "tests/kernels/cuda/emulation/run_grid.h"

namespace dstrain::emulated {
namespace {

using Catch::Matchers::Contains;

__global__ void count_visits(int* visits) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  atomicAdd(visits + block * blockDim.x * blockDim.y * blockDim.z + thread, 1);
}

TEST_CASE("every thread of every block runs once") {
  for (const Grid& grid :
       {Grid{1, 1}, Grid{5, 33}, Grid{dim3(3, 4, 5), dim3(7, 3, 2)}, Grid{2, 1024}}) {
    const size_t threads = size_t{grid.blocks.x} * grid.blocks.y * grid.blocks.z * grid.threads.x *
                           grid.threads.y * grid.threads.z;
    std::vector<int> visits(threads);
    run("count_visits", grid, count_visits, visits.data());
    CHECK(visits == std::vector<int>(threads, 1));
  }
}

// y = the sum of the block's x, in every thread, twice, so that the second use must wait for the first.
__global__ void sum_twice(const int* x, int* y) {
  __shared__ int part[32];
  for (int round = 0; round < 2; ++round) {
    int value = x[threadIdx.x];
    for (int m = 16; m > 0; m /= 2) value += __shfl_xor_sync(~0u, value, m);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = value;
    __syncthreads();
    int sum = 0;
    for (unsigned w = 0; w < blockDim.x / 32; ++w) sum += part[w];
    y[round * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)] = sum;
    __syncthreads();
  }
}

TEST_CASE("threads of a block share memory in the order of its barriers") {
  std::vector<int> x(256), y(512);
  std::iota(x.begin(), x.end(), 0);
  for (int launch = 0; launch < 5; ++launch) {
    std::fill(y.begin(), y.end(), 0);
    run("sum_twice", {1, 256}, sum_twice, x.data(), y.data());
    CHECK(y == std::vector<int>(512, 255 * 128));
  }
}

struct Lanes {
  int direct, crossed, down, up, in_group;
  unsigned ballot;
  int any, all, wide;
};

__global__ void exchange_lanes(Lanes* out) {
  const int lane = static_cast<int>(threadIdx.x);
  Lanes& o = out[lane];
  o.direct = __shfl_sync(~0u, 100 + lane, 3);
  o.crossed = __shfl_xor_sync(~0u, lane, 5);
  o.down = __shfl_down_sync(~0u, lane, 4);
  o.up = __shfl_up_sync(~0u, lane, 4);
  o.in_group = __shfl_sync(~0u, lane, 1, 8);
  o.ballot = __ballot_sync(~0u, lane % 3 == 0);
  o.any = __any_sync(~0u, lane == 17);
  o.all = __all_sync(~0u, lane != 17);
  o.wide = __shfl_sync(~0u, double(lane), 7) == 7.0;
}

// Groups of two warps add their ids as often as the group's number says, each with a barrier of its own.
__global__ void sum_in_groups(int* y) {
  __shared__ int part[8][2];
  const int group = static_cast<int>(threadIdx.x) / 64,
            warp = static_cast<int>(threadIdx.x) / 32 % 2;
  int sum = 0;
  for (int round = 0; round <= group; ++round) {
    if (threadIdx.x % 32 == 0) part[group][warp] = group + warp;
    sync_group(1 + group, 64);
    sum += part[group][0] + part[group][1];
    sync_group(1 + group, 64);
  }
  y[threadIdx.x] = sum;
}

TEST_CASE("groups of warps meet at barriers of their own") {
  std::vector<int> y(512);
  for (int launch = 0; launch < 5; ++launch) {
    run("sum_in_groups", {1, 512}, sum_in_groups, y.data());
    for (int i = 0; i < 512; ++i)
      REQUIRE(y[static_cast<size_t>(i)] == (i / 64 + 1) * (2 * (i / 64) + 1));
  }
}

TEST_CASE("lanes of a warp exchange values and votes") {
  std::vector<Lanes> out(32);
  run("exchange_lanes", {1, 32}, exchange_lanes, out.data());
  unsigned ballot = 0;
  for (int lane = 0; lane < 32; lane += 3) ballot |= 1u << lane;
  for (int lane = 0; lane < 32; ++lane) {
    const Lanes& o = out[static_cast<size_t>(lane)];
    CHECK(o.direct == 103);
    CHECK(o.crossed == (lane ^ 5));
    CHECK(o.down == (lane + 4 < 32 ? lane + 4 : lane));
    CHECK(o.up == (lane >= 4 ? lane - 4 : lane));
    CHECK(o.in_group == lane / 8 * 8 + 1);
    CHECK(o.ballot == ballot);
    CHECK(o.any == 1);
    CHECK(o.all == 0);
    CHECK(o.wide == 1);
  }
}

__global__ void partial_warp(int* sums, unsigned* ballots) {
  if (threadIdx.x >= 37) return;  // only five lanes of the second warp continue
  ballots[threadIdx.x] = __ballot_sync(threadIdx.x < 32 ? ~0u : 0x1fu, true);
  sums[threadIdx.x] = __all_sync(threadIdx.x < 32 ? ~0u : 0x1fu, threadIdx.x != 40);
}

TEST_CASE("a warp that is short takes part with the lanes it has") {
  std::vector<int> sums(64);
  std::vector<unsigned> ballots(64);
  run("partial_warp", {1, 37}, partial_warp, sums.data(), ballots.data());
  CHECK(ballots[0] == ~0u);
  CHECK(ballots[36] == 0x1fu);
  run("partial_warp", {1, 64}, partial_warp, sums.data(), ballots.data());
  CHECK(ballots[36] == 0x1fu);
  CHECK(sums[36] == 1);
}

__global__ void read_shared(uint32_t* out) {
  auto* shared = dynamic_shared<uint32_t>();
  out[blockIdx.x * blockDim.x + threadIdx.x] = shared[threadIdx.x];
  shared[threadIdx.x] = 7;
}

TEST_CASE("dynamic shared memory holds nothing from the block before") {
  std::vector<uint32_t> out(32);
  run("read_shared", {4, 8, 32}, read_shared, out.data());
  CHECK(out == std::vector<uint32_t>(32, ~0u));
}

__global__ void first_come(int* order, int* count) {
  order[atomicAdd(count, 1)] = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
}

TEST_CASE("threads and blocks start in another order at every launch") {
  EmulatedStream stream;
  std::vector<std::vector<int>> orders;
  for (int i = 0; i < 3; ++i) {
    std::vector<int> order(64);
    int count = 0;
    launch(&stream, "first_come", Grid{4, 16}, first_come, order.data(), &count);
    stream.synchronize();
    orders.push_back(order);
  }
  CHECK(orders[0] != orders[1]);
  CHECK(orders[1] != orders[2]);
}

// --- what is reported --------------------------------------------------------------------------

__global__ void ended_threads() {
  if (threadIdx.x < 3) return;
  __syncthreads();
}
__global__ void two_barriers() {
  // NOLINTNEXTLINE(bugprone-branch-clone): two places
  if (threadIdx.x < 3)
    __syncthreads();
  else
    __syncthreads();
}
__global__ void short_group() {
  if (threadIdx.x >= 32) sync_group(1, 64);
}
__global__ void two_sizes() {
  sync_group(1, threadIdx.x < 32 ? 64 : 32);
}
__global__ void part_of_warp() {
  sync_group(1, 20);
}
__global__ void split_warp() {
  if (threadIdx.x < 3)
    __shfl_sync(~0u, 1, 0);
  else
    __syncthreads();
}
__global__ void two_shuffles() {
  if (threadIdx.x < 3)
    __shfl_sync(~0u, 1, 0);
  else
    __ballot_sync(~0u, true);
}
__global__ void wrong_mask() {
  __syncwarp(0xfffffffeu);
}
__global__ void throwing() {
  throw std::runtime_error("from a thread");
}

TEST_CASE("a barrier that not all threads reach is an error that names the kernel") {
  CHECK_THROWS_WITH(run("ended_threads", {3, 40}, ended_threads),
                    Contains("emulated kernel ended_threads: of 40 threads of a block 3 have ended "
                             "and 37 wait for others that never come") &&
                        Contains("waits at __syncthreads of ") && Contains("grid_test.cpp:"));
  CHECK_THROWS_WITH(run("two_barriers", {1, 40}, two_barriers),
                    Contains("emulated kernel two_barriers") && Contains("is at the barrier of"));
}

TEST_CASE("a barrier of a group that is short, of two sizes or no whole warps is an error") {
  CHECK_THROWS_WITH(run("short_group", {1, 64}, short_group),
                    Contains("32 have ended and 32 wait") && Contains("waits at sync_group"));
  CHECK_THROWS_WITH(run("two_sizes", {1, 64}, two_sizes), Contains("kernel two_sizes"));
  CHECK_THROWS_WITH(run("part_of_warp", {1, 32}, part_of_warp), Contains("threads whole warps"));
}

TEST_CASE("a warp whose lanes part is an error that names the kernel") {
  CHECK_THROWS_WITH(
      run("split_warp", {1, 32}, split_warp),
      Contains("kernel split_warp: of 32 threads of a block 0 have ended and 32 wait"));
  CHECK_THROWS_WITH(run("two_shuffles", {1, 32}, two_shuffles),
                    Contains("kernel two_shuffles") && Contains("others of its warp at"));
  CHECK_THROWS_WITH(run("wrong_mask", {1, 32}, wrong_mask), Contains("is not in its mask"));
}

TEST_CASE("what a thread throws arrives, and the device works on") {
  for (int i = 0; i < 3; ++i)
    CHECK_THROWS_WITH(run("throwing", {2, 64}, throwing), "from a thread");
  std::vector<int> visits(64);
  run("count_visits", {1, 64}, count_visits, visits.data());
  CHECK(visits == std::vector<int>(64, 1));
}

TEST_CASE("a launch beyond the limits is an error that names the kernel") {
  CHECK_THROWS_WITH(run("too_wide", {1, 1025}, two_barriers), Contains("kernel too_wide: 1025"));
  CHECK_THROWS_WITH(run("too_much", {1, 1, 1 << 20}, two_barriers), Contains("shared memory"));
  CHECK_THROWS_WITH(run("too_high", {dim3(1, 65536), 1}, two_barriers), Contains("65535"));
}

// --- for ThreadSanitizer -----------------------------------------------------------------------

// Thread i passes a value to thread i + 1. Without the barrier the results may still be right by chance.
template <bool kBarrier>
__global__ void hand_over(int* out) {
  __shared__ int box[64];
  box[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (kBarrier) __syncthreads();
  out[threadIdx.x] = box[(threadIdx.x + 1) % blockDim.x];
}

TEST_CASE("a barrier orders what threads of a block hand over") {
  std::vector<int> out(64);
  run("hand_over", {1, 64}, hand_over<true>, out.data());
  CHECK(out[0] == 1);
}

// Groups of two warps, and a pass of values within each.
template <bool kBarrier>
__global__ void hand_over_in_group(int* out) {
  __shared__ int box[128];
  const int group = static_cast<int>(threadIdx.x) / 64;
  box[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (kBarrier) sync_group(1 + group, 64);
  out[threadIdx.x] = box[64 * group + static_cast<int>(threadIdx.x + 1) % 64];
}

TEST_CASE("a barrier of a group orders what its threads hand over") {
  std::vector<int> out(128);
  run("hand_over_in_group", {1, 128}, hand_over_in_group<true>, out.data());
  CHECK(out[63] == 0);
  CHECK(out[127] == 64);
}

// Hidden tests: run one by one under ThreadSanitizer, which must report the race.
TEST_CASE("missing barrier", "[.][race]") {
  std::vector<int> out(64);
  run("hand_over", {1, 64}, hand_over<false>, out.data());
}

TEST_CASE("missing group barrier", "[.][race]") {
  std::vector<int> out(128);
  run("hand_over_in_group", {1, 128}, hand_over_in_group<false>, out.data());
}

__global__ void neighbours(int* out) {
  out[0] = static_cast<int>(blockIdx.x);
}

TEST_CASE("blocks that write the same element", "[.][race]") {
  int out = 0;
  run("neighbours", {2, 1}, neighbours, &out);
}

template <bool kBarrier>
__global__ void hand_over_in_warp(int* out) {
  __shared__ int box[32];
  box[threadIdx.x] = static_cast<int>(threadIdx.x);
  __shfl_sync(~0u, 1, 0);  // exchanges values but orders no memory accesses
  if (kBarrier) __syncwarp();
  out[threadIdx.x] = box[(threadIdx.x + 1) % 32];
}

TEST_CASE("__syncwarp orders what lanes of a warp hand over") {
  std::vector<int> out(32);
  run("hand_over_in_warp", {1, 32}, hand_over_in_warp<true>, out.data());
  CHECK(out[0] == 1);
}

TEST_CASE("missing warp barrier", "[.][race]") {
  std::vector<int> out(32);
  run("hand_over_in_warp", {1, 32}, hand_over_in_warp<false>, out.data());
}

}  // namespace
}  // namespace dstrain::emulated
