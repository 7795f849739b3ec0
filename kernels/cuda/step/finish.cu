#include "kernels/cuda/step/finish.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int kThreads = 128;

// mine = {sum of sums[0..n) in order, loss, stop}; all threads read, the first one adds.
__global__ void collect_step(const double* sums, int64_t n, const double* loss,
                             const StepState* state, double* mine) {
  __shared__ double part[kThreads];
  const int64_t thread = static_cast<int64_t>(threadIdx.x);
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kThreads) {
    if (begin + thread < n) part[thread] = sums[begin + thread];
    __syncthreads();
    if (thread == 0)
      for (int64_t i = 0; i < kThreads && begin + i < n; ++i) total += part[i];
    __syncthreads();
  }
  if (thread != 0) return;
  mine[0] = total;
  mine[1] = *loss;
  mine[2] = state->stop;
}

__global__ void finish_step_kernel(const double* all, int64_t ranks, StepState* state,
                                   FinishRule rule) {
  StepState s = *state;
  add_finish_values(s, all, ranks, rule);
  finish_step(s, rule);
  *state = s;
}

class Finish final : public FinishKernels {
 public:
  Finish(const FinishRule& rule, const LaunchContext& context) : rule_(rule), context_(context) {}
  void collect(Tensor square_sums, Tensor loss, const StepState* state,
               Tensor mine) const override {
    launch(context_.stream, "collect_step", Grid{dim3(1), dim3(kThreads)}, collect_step,
           square_sums.as<const double>(), square_sums.elements(), loss.as<const double>(), state,
           mine.as<double>());
  }
  void finish(Tensor all, StepState* state) const override {
    launch(context_.stream, "finish_step", Grid{dim3(1), dim3(1)}, finish_step_kernel,
           all.as<const double>(), all.elements() / kFinishValues, state, rule_);
  }

 private:
  FinishRule rule_;
  LaunchContext context_;
};

}  // namespace

std::unique_ptr<FinishKernels> make_finish_kernels(const FinishRule& rule,
                                                   const LaunchContext& context) {
  return std::make_unique<Finish>(rule, context);
}

}  // namespace dstrain::DSTRAIN_BACKEND
