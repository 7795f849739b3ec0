// Gpu: the functions of a device that only bench_cuda uses: a stopwatch, the size of the cache, and products by the
// vendor's library. In a build without CUDA, no_gpu.cpp replaces the GPU.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "runtime/core/devices/device.h"
#include "runtime/core/tensor.h"

namespace dstrain::bench {

// Measures the time between two points in the work of a stream.
class Stopwatch {
 public:
  virtual ~Stopwatch() = default;
  // Record the start and the stop of a measurement in the work of `stream`.
  virtual void start(Stream& stream) = 0;
  virtual void stop(Stream& stream) = 0;
  // Waits for the stop and returns the seconds since the start.
  virtual double seconds() = 0;
};

// Enqueues one product of the GEMM probe.
using Product = std::function<void()>;

class Gpu {
 public:
  virtual ~Gpu() = default;
  virtual std::unique_ptr<Stopwatch> make_stopwatch() const = 0;
  virtual int64_t cache_bytes() const = 0;
  // Returns variants that enqueue c (n,n) = a (n,n) b (n,n)^T on `stream`, in bf16 with f32 sums: the algorithms
  // that the library suggests, its first choice first. The operands must outlive them.
  virtual std::vector<Product> products(Tensor a, Tensor b, Tensor c, Tensor workspace,
                                        Stream& stream) const = 0;
};

// Returns GPU 0. Throws UserError in a build without CUDA.
std::unique_ptr<Gpu> make_gpu();

// Returns the replacement for the emulated device: the host's clock and our own product.
std::unique_ptr<Gpu> make_host_gpu();

}  // namespace dstrain::bench
