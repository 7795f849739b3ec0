// What bench_cuda asks of a device beyond its streams and kernels: times, the size of its cache, and a
// product by the vendor's library that owes nothing to ours. In a build without CUDA null objects take the
// GPU's place (no_gpu.cpp).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "runtime/core/devices/device.h"
#include "runtime/core/tensor.h"

namespace dstrain::bench {

class Stopwatch {
 public:
  virtual ~Stopwatch() = default;
  // Points in the work of `stream`; start, then stop.
  virtual void start(Stream& stream) = 0;
  virtual void stop(Stream& stream) = 0;
  // Seconds between the two points; waits for the second.
  virtual double seconds() = 0;
};

// What a candidate of the GEMM probe runs.
using Product = std::function<void()>;

class Gpu {
 public:
  virtual ~Gpu() = default;
  virtual std::unique_ptr<Stopwatch> make_stopwatch() const = 0;
  virtual int64_t cache_bytes() const = 0;
  // Ways to enqueue c (n,n) = a (n,n) b (n,n)^T on `stream`, bf16, sums in f32: the library's best guesses,
  // the first one its own choice. The operands outlive them.
  virtual std::vector<Product> products(Tensor a, Tensor b, Tensor c, Tensor workspace,
                                        Stream& stream) const = 0;
};

// GPU 0. Throws UserError in a build without CUDA.
std::unique_ptr<Gpu> make_gpu();

// In place of a GPU for the emulated device: the host's clock, and our own product.
std::unique_ptr<Gpu> make_host_gpu();

}  // namespace dstrain::bench
