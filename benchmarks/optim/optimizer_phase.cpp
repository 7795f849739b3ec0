// Runs and times the host's optimizer phase for benchmarks/peers/compare_optimizers.py: the norm of bf16 gradients, the
// clip coefficient, AdamW on f32 weights and states, and the bf16 copy of the weights. Reads numbers of steps from
// standard input and answers each with one line of JSON: {"ms": [...]}.
// optimizer_phase [threads] [millions of parameters].
#include <fmt/ranges.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <vector>

#include "kernels/cpu/memory_bound/init_weights.h"
#include "kernels/cpu/memory_bound/memory_bound.h"
#include "runtime/core/error.h"
#include "runtime/core/memory.h"
#include "runtime/core/step_rules.h"

namespace dstrain {
namespace {

// The operands, kernels and state of one optimizer phase.
class Phase {
 public:
  Phase(int64_t n, int threads) {
    const TensorSpec wide{Shape{n}, DType::f32}, narrow{Shape{n}, DType::bf16};
    const TensorSpec sum{Shape{1}, DType::f64};
    grad_ = place(narrow);
    for (Tensor& t : updated_) t = place(wide);
    updated_.push_back(place(narrow));
    sum_ = place(sum);
    fill_uniform(updated_[0].as<float>(), 0, n, 0.02f, {1, 2}, threads);
    for (int64_t i = 0; i < n; ++i)
      grad_.as<bf16>()[i] = to_bf16(0.05f * updated_[0].as<float>()[i]);
    norm_in_ = {narrow};
    norm_out_ = {sum};
    const KernelSpec squares{OpKind::sum_squares, {}, norm_in_, norm_out_, threads};
    workspace_ = place({Shape{memory_bound_workspace_bytes(squares)}, DType::u8});
    squares_ = make_memory_bound(squares);
    adam_out_ = {wide, wide, wide, narrow};
    adam_ = make_memory_bound({OpKind::adam, AdamAttrs{.eps = 1e-8f, .weight_decay = 0.01f},
                               norm_in_, adam_out_, threads});
    state_.lr = 1e-4f;
  }

  void step() {
    const std::vector<Tensor> in{grad_}, square{sum_};
    KernelCall call;
    call.in = in;
    call.out = square;
    call.workspace = workspace_;
    call.state = &state_;
    squares_->run(call);
    state_.grad_square_sum = *sum_.as<double>();
    finish_step(state_, {.clip = 1.0f, .loss_scale = {}});
    ++state_.applied_steps;
    const auto t = static_cast<double>(state_.applied_steps);
    state_.bias_correction1 = static_cast<float>(1 - std::pow(state_.beta1, t));
    state_.bias_correction2 = static_cast<float>(1 - std::pow(state_.beta2, t));
    call.out = updated_;
    adam_->run(call);
  }

 private:
  Tensor place(const TensorSpec& s) {
    const int64_t bytes = s.shape.elements() * size_of(s.dtype);
    memory_.push_back(Memory::anonymous(std::max<int64_t>(64, bytes), "benchmark"));
    return {memory_.back().data(), s.shape, s.dtype};
  }

  std::vector<Memory> memory_;
  Tensor grad_, sum_, workspace_;
  std::vector<Tensor> updated_ = std::vector<Tensor>(3);  // weights, two moments, 16-bit weights
  std::vector<TensorSpec> norm_in_, norm_out_, adam_out_;
  std::unique_ptr<Kernel> squares_, adam_;
  StepState state_;
};

void answer_requests(Phase& phase) {
  for (int64_t steps = 0; std::cin >> steps;) {
    std::vector<double> ms;
    for (int64_t i = 0; i < steps; ++i) {
      const auto start = std::chrono::steady_clock::now();
      phase.step();
      const std::chrono::duration<double, std::milli> time =
          std::chrono::steady_clock::now() - start;
      ms.push_back(time.count());
    }
    fmt::print("{{\"ms\": [{:.3f}]}}\n", fmt::join(ms, ", "));
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace dstrain

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const int64_t millions = argc > 2 ? std::atoi(argv[2]) : 100;
  if (threads < 1 || millions < 1) {
    fmt::print(stderr, "usage: optimizer_phase [threads] [millions of parameters]\n");
    return 1;
  }
  dstrain::Phase phase(millions * 1000000, threads);
  for (int i = 0; i < 2; ++i) phase.step();
  fmt::print("{{\"ready\": \"dstrain\"}}\n");
  std::fflush(stdout);
  dstrain::answer_requests(phase);
  return 0;
}
