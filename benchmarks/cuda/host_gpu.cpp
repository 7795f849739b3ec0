#include <chrono>

#include "benchmarks/cuda/gpu.h"
#include "kernels/cuda/library.h"

namespace dstrain::bench {
namespace {

using Clock = std::chrono::steady_clock;

class HostStopwatch final : public Stopwatch {
 public:
  void start(Stream& stream) override { start_ = now(stream); }
  void stop(Stream& stream) override { stop_ = now(stream); }
  double seconds() override { return std::chrono::duration<double>(stop_ - start_).count(); }

 private:
  static Clock::time_point now(Stream& stream) {
    stream.synchronize();
    return Clock::now();
  }
  Clock::time_point start_, stop_;
};

class HostGpu final : public Gpu {
 public:
  std::unique_ptr<Stopwatch> make_stopwatch() const override {
    return std::make_unique<HostStopwatch>();
  }
  int64_t cache_bytes() const override { return 1 << 10; }
  std::vector<Product> products(Tensor a, Tensor b, Tensor c, Tensor workspace,
                                Stream& stream) const override {
    const std::shared_ptr<KernelLibrary> library =
        make_emulated_library(*static_cast<EmulatedStream*>(stream.native()));
    const TensorSpec matrix{a.shape, a.dtype};
    const std::vector<TensorSpec> in{matrix, matrix};
    const std::shared_ptr<Kernel> kernel =
        library->make({.op = OpKind::linear, .attrs = {}, .in = in, .out = {&matrix, 1}});
    return {[=] {
      const Tensor reads[] = {a, b};
      kernel->run({.in = reads, .out = {&c, 1}, .workspace = workspace});
    }};
  }
};

}  // namespace

std::unique_ptr<Gpu> make_host_gpu() {
  return std::make_unique<HostGpu>();
}

}  // namespace dstrain::bench
