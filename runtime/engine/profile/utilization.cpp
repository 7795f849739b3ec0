#include "runtime/engine/profile/utilization.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <numeric>
#include <vector>

#include "runtime/core/error.h"
#include "runtime/core/log/live_line.h"
#include "runtime/ir/rule.h"

namespace dstrain {
namespace {

// Large enough that a product reaches the rate of larger ones, and small enough to take milliseconds.
constexpr int64_t kCpuSize = 1024, kGpuSize = 8192;
constexpr double kMostSeconds = 0.1;  // after these no further product is measured
constexpr int kMostProducts = 10;

// Fills `bytes` of a device's matrix with numbers between -1 and 1: some processors multiply zeros faster.
void fill(const Backend& backend, std::byte* matrix, int64_t bytes, DType dtype) {
  constexpr size_t kPieceValues = size_t{1} << 20;
  std::vector<std::byte> values(kPieceValues * static_cast<size_t>(size_of(dtype)));
  uint32_t random = 1;
  for (size_t i = 0; i < kPieceValues; ++i) {
    random = random * 1664525U + 1013904223U;
    const float value = static_cast<float>(random >> 8) / static_cast<float>(1U << 23) - 1;
    std::byte* const at = values.data() + i * static_cast<size_t>(size_of(dtype));
    if (dtype == DType::f32) {
      std::memcpy(at, &value, sizeof value);
    } else {
      // The upper half of the bits of a number below 1 is a bf16, and also an f16 of a size below 2.
      uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof bits);
      const auto half = static_cast<uint16_t>(bits >> 16U);
      std::memcpy(at, &half, sizeof half);
    }
  }
  const auto piece = static_cast<int64_t>(values.size());
  for (int64_t begin = 0; begin < bytes; begin += piece)
    backend.device->upload(matrix + begin, values.data(), std::min(piece, bytes - begin));
}

}  // namespace

double model_flops(const Plan& plan) {
  double sum = 0;
  for (const Issue& issue : plan.order)
    sum += needed_flops(plan.program,
                        plan.program.instructions[static_cast<size_t>(issue.instruction)]);
  return sum;
}

double product_rate(const Backend& backend, DType dtype, int64_t size, int threads) {
  const Shape shape{size, size};
  const TensorSpec matrix{shape, dtype}, absent{};
  const std::array in{matrix, matrix, absent, absent, absent};
  const std::array out{matrix, absent};
  const KernelSpec spec{OpKind::linear, ActivationAttrs{}, in, out, threads};
  const int64_t bytes = shape.elements() * size_of(dtype);
  const int64_t scratch = backend.library->workspace_bytes(spec);
  Memory memory;
  try {
    memory = backend.device->allocate(3 * bytes + std::max<int64_t>(scratch, 1), "a product");
  } catch (const RunError&) {
    return 0;
  }
  std::byte* const x = memory.data();
  fill(backend, x, 2 * bytes, dtype);
  const std::array reads{Tensor{x, shape, dtype}, Tensor{x + bytes, shape, dtype}, Tensor{},
                         Tensor{}, Tensor{}};
  const std::array writes{Tensor{x + 2 * bytes, shape, dtype}, Tensor{}};
  const std::unique_ptr<Kernel> kernel = backend.library->make(spec);
  const KernelCall call{reads, writes, Tensor{x + 3 * bytes, {scratch}, DType::u8}};
  using Clock = std::chrono::steady_clock;
  const auto seconds_of_one = [&] {
    const auto begin = Clock::now();
    kernel->run(call);
    backend.compute->synchronize();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  double best = seconds_of_one(), spent = best;
  for (int done = 1; done < kMostProducts && (done < 3 || spent < kMostSeconds); ++done) {
    const double seconds = seconds_of_one();
    best = std::min(best, seconds);
    spent += seconds;
  }
  const auto edge = static_cast<double>(size);
  return best > 0 ? 2 * edge * edge * edge / best : 0;
}

double full_rate_seconds(const Plan& plan, const Backend& backend, const Job& job, int threads,
                         Communicator& comm) {
  double rate = 0;
  if (comm.rank() == 0 && LiveLine::where_shown()) {
    const bool gpu = backend.device->kind() == DeviceKind::cuda;
    rate = product_rate(backend, job.dtype, gpu ? kGpuSize : kCpuSize, threads);
  }
  const double mine = model_flops(plan);
  std::vector<double> all(static_cast<size_t>(comm.size()));
  comm.gather_values({&mine, 1}, all);
  const double flops = std::accumulate(all.begin(), all.end(), 0.0);
  return rate > 0 ? flops / (rate * comm.size()) : 0;
}

}  // namespace dstrain
