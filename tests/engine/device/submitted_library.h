// SubmittedLibrary: the CPU's kernels on a device. Each run is submitted to an emulated stream with the
// addresses of operands and step state, so that the engine's device code is tested without device kernels.
#pragma once

#include <vector>

#include "kernels/cpu/cpu_library.h"
#include "kernels/cuda/library.h"
#include "runtime/core/devices/emulated_device.h"
#include "runtime/core/devices/emulated_stream.h"
#include "runtime/engine/step/backend.h"

namespace dstrain {

// A CPU kernel whose runs are submitted to an emulated stream. The stream must outlive it.
class SubmittedKernel final : public Kernel {
 public:
  SubmittedKernel(EmulatedStream& stream, std::shared_ptr<const Kernel> body)
      : stream_(stream), body_(std::move(body)) {}
  void run(const KernelCall& call) const override {
    stream_.submit([body = body_, call, in = std::vector<Tensor>(call.in.begin(), call.in.end()),
                    out = std::vector<Tensor>(call.out.begin(), call.out.end())] {
      KernelCall mine = call;
      mine.in = in;
      mine.out = out;
      body->run(mine);
    });
  }

 private:
  EmulatedStream& stream_;
  std::shared_ptr<const Kernel> body_;
};

// The two kernels that finish the gradients of a step, submitted to an emulated stream. The stream must outlive it.
class SubmittedFinish final : public FinishKernels {
 public:
  SubmittedFinish(EmulatedStream& stream, const FinishRule& rule) : stream_(stream), rule_(rule) {}
  void collect(Tensor square_sums, Tensor loss, const StepState* state,
               Tensor mine) const override {
    stream_.submit([=] {
      auto* out = mine.as<double>();
      out[0] = 0;
      for (int64_t u = 0; u < square_sums.elements(); ++u) out[0] += square_sums.as<double>()[u];
      out[1] = *loss.as<double>();
      out[2] = state->stop;
    });
  }
  void finish(Tensor all, StepState* state) const override {
    stream_.submit([all, state, rule = rule_] {
      add_finish_values(*state, all.as<const double>(), all.elements() / kFinishValues, rule);
      finish_step(*state, rule);
    });
  }

 private:
  EmulatedStream& stream_;
  FinishRule rule_;
};

class SubmittedLibrary final : public KernelLibrary {
 public:
  // `finish_on_device`: whether the library has FinishKernels.
  SubmittedLibrary(EmulatedStream& stream, bool finish_on_device, int64_t row_multiple)
      : stream_(stream),
        finish_on_device_(finish_on_device),
        row_multiple_(row_multiple),
        cpu_(make_cpu_library()) {}
  int64_t row_multiple() const override { return row_multiple_; }
  int64_t workspace_bytes(const KernelSpec& spec) const override {
    return cpu_->workspace_bytes(spec);
  }
  int64_t packed_bytes(const KernelSpec& spec) const override { return cpu_->packed_bytes(spec); }
  int64_t sum_rows_part(const KernelSpec& spec) const override { return cpu_->sum_rows_part(spec); }
  std::unique_ptr<Kernel> make(const KernelSpec& spec) const override {
    return std::make_unique<SubmittedKernel>(stream_, cpu_->make(spec));
  }
  std::unique_ptr<FinishKernels> make_finish(const FinishRule& rule) const override {
    if (!finish_on_device_) return nullptr;
    return std::make_unique<SubmittedFinish>(stream_, rule);
  }
  std::unique_ptr<RankSum> make_rank_sum() const override {
    return make_emulated_library(stream_)->make_rank_sum();
  }
  std::string description() const override { return "the CPU's kernels on a stream"; }

 private:
  EmulatedStream& stream_;
  bool finish_on_device_;
  int64_t row_multiple_;
  std::unique_ptr<KernelLibrary> cpu_;
};

// Returns a backend with asynchronous streams and the CPU's kernels.
inline Backend submitted_backend(bool finish_on_device = true, int64_t row_multiple = 1) {
  Backend backend;
  backend.device = make_emulated_device();
  backend.compute = backend.device->make_stream();
  backend.copies = backend.device->make_stream();
  backend.library = std::make_unique<SubmittedLibrary>(
      *static_cast<EmulatedStream*>(backend.compute->native()), finish_on_device, row_multiple);
  backend.host_library = make_cpu_library();
  return backend;
}

}  // namespace dstrain
