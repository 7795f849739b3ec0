// Times the products of GPT-lite's block (forward, input gradient, weight gradient added in f32), alternating with
// plain calls of a library, and prints medians of ratios, because absolute rates mean little on a shared machine.
//
//   products_bench [threads] [repetitions] [bf16|f32] [rows]
//
// With one thread it measures the thread's CPU time, which other programs disturb less. With two and more it wants
// OMP_WAIT_POLICY=passive, without which the library's threads spin on the cores of ours.
#include <fmt/core.h>
#include <omp.h>
#include <time.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "benchmarks/products/baselines.h"
#include "kernels/cpu/products/products.h"
#include "runtime/core/memory.h"

namespace dstrain::bench {
namespace {

constexpr int kBlocks = 12;
struct Linear {
  const char* name;
  int64_t in, out;
  int count;  // in the model
};
constexpr Linear kLinears[] = {{"qkv", 768, 2304, kBlocks},
                               {"out_proj", 768, 768, kBlocks},
                               {"mlp.fc", 768, 3072, kBlocks},
                               {"mlp.proj", 3072, 768, kBlocks},
                               {"lm_head", 768, 65, 1}};
constexpr OpKind kOps[] = {OpKind::linear, OpKind::linear_input_grad, OpKind::linear_weight_grad};

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

class Bench {
 public:
  Bench(int threads, int repetitions, int64_t rows)
      : threads_(threads), repetitions_(repetitions), rows_(rows) {}

  void run(DType dtype) {
    fmt::print("{} against {}, {} thread(s), {} rows; ratios are medians of {}\n", name_of(dtype),
               library_name(dtype), threads_, rows_, repetitions_);
    fmt::print("{:<10}{:<20}{:>10}{:>12}{:>12}\n", "", "", "TFLOP/s", "x library", "x registers");
    double ours_sum = 0, baseline_sum = 0;
    for (const Linear& linear : kLinears) {
      for (const OpKind op : kOps) {
        const Times t = measure(linear, op, dtype);
        ours_sum += linear.count * median(t.ours);
        baseline_sum += linear.count * median(t.baseline);
        const double flops = 2.0 * rows_ * static_cast<double>(linear.in * linear.out);
        fmt::print("{:<10}{:<20}{:>10.2f}{:>12.2f}{:>12}\n", linear.name, name_of(op),
                   flops / median(t.ours) * 1e-12, median(t.speedup),
                   t.of_peak.empty() ? "-" : fmt::format("{:.2f}", median(t.of_peak)));
      }
    }
    fmt::print("whole model: {:.3f} s, library {:.3f} s\n\n", ours_sum, baseline_sum);
  }

 private:
  struct Times {
    std::vector<double> ours, baseline, speedup, of_peak;
  };

  double now() const {
    timespec t{};
    clock_gettime(threads_ == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }

  Times measure(const Linear& linear, OpKind op, DType dtype) const {
    const Shape x{rows_, linear.in}, w{linear.out, linear.in}, y{rows_, linear.out};
    const Shape a = op == OpKind::linear ? x : y;
    const Shape b = op == OpKind::linear_weight_grad ? x : w;
    const Shape c = op == OpKind::linear ? y : op == OpKind::linear_input_grad ? x : w;
    const DType out_type = op == OpKind::linear_weight_grad ? DType::f32 : dtype;
    const TensorSpec in_specs[] = {{a, dtype}, {b, dtype}};
    const TensorSpec out_spec{c, out_type};
    const KernelSpec spec{op, {}, in_specs, {&out_spec, 1}, threads_};
    const Memory in0 = filled({nullptr, a, dtype}), in1 = filled({nullptr, b, dtype});
    const Memory out = Memory::anonymous(c.elements() * size_of(out_type), "result");
    const Memory workspace = Memory::anonymous(product_workspace_bytes(spec) + 64, "workspace");
    const auto kernel = make_product(spec);
    const Tensor ins[] = {{in0.data(), a, dtype}, {in1.data(), b, dtype}};
    const Tensor outs[] = {{out.data(), c, out_type}};
    KernelCall call;
    call.in = ins;
    call.out = outs;
    call.workspace = {workspace.data(), {workspace.bytes()}, DType::u8};
    call.accumulate = op == OpKind::linear_weight_grad;

    const Operands operands{in0.data(), in1.data(), out.data()};
    const auto baseline = (dtype == DType::bf16 ? dnnl_matmul : library_sgemm)(
        op, rows_, linear.in, linear.out, operands);
    const double flops = 2.0 * rows_ * static_cast<double>(linear.in * linear.out);
    const auto clock = [this] { return now(); };
    Times t;
    for (int i = -1; i < repetitions_; ++i) {  // the first round warms up
      const double peak = dtype == DType::bf16 ? register_seconds(threads_, flops, clock) : 0;
      ::omp_pause_resource_all(
          omp_pause_hard);  // else oneDNN's threads, which spin, would have our cores
      const double ours = seconds([&] { kernel->run(call); });
#pragma omp parallel num_threads(threads_)
      {}  // starts them again
      const double theirs = seconds(baseline);
      if (i < 0) continue;
      t.ours.push_back(ours);
      t.baseline.push_back(theirs);
      t.speedup.push_back(theirs / ours);
      if (peak > 0) t.of_peak.push_back(peak / threads_ / ours);
    }
    return t;
  }

  template <class Run>
  double seconds(Run&& run) const {
    const double begin = now();
    run();
    return now() - begin;
  }

  // Returns memory filled with small numbers, none of them subnormal.
  static Memory filled(const Tensor& t) {
    Memory memory = Memory::anonymous(t.bytes(), "operand");
    for (int64_t i = 0; i < t.elements(); ++i) {
      const float value = static_cast<float>(i % 61 - 30) / 64;
      if (t.dtype == DType::f32) {
        reinterpret_cast<float*>(memory.data())[i] = value;
      } else {
        reinterpret_cast<bf16*>(memory.data())[i] = to_bf16(value);
      }
    }
    return memory;
  }

  int threads_, repetitions_;
  int64_t rows_;
};

int argument(int argc, char** argv, int i, int otherwise) {
  if (i >= argc) return otherwise;
  int value = 0;
  const char* end = argv[i] + std::strlen(argv[i]);
  const auto parsed = std::from_chars(argv[i], end, value);
  if (parsed.ptr != end || value < 1) {
    fmt::print(stderr,
               "products_bench: \"{}\"; expected [threads] [repetitions] [bf16|f32] [rows]\n",
               argv[i]);
    std::exit(1);
  }
  return value;
}

}  // namespace
}  // namespace dstrain::bench

int main(int argc, char** argv) {
  using namespace dstrain;
  const int threads = bench::argument(argc, argv, 1, omp_get_max_threads());
  omp_set_num_threads(threads);
  bench::Bench bench(threads, bench::argument(argc, argv, 2, 15),
                     bench::argument(argc, argv, 4, 2048));
  const std::string_view only = argc > 3 ? argv[3] : "";
  for (const DType dtype : {DType::bf16, DType::f32}) {
    if (only.empty() || only == name_of(dtype)) bench.run(dtype);
  }
  return 0;
}
