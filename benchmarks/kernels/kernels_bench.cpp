// Times the SIMD kernels, alternating with loops of the same memory traffic, and prints the median of the ratios of
// their times with the lowest and the highest: kernels_bench [threads] [millions of parameters] [part of the labels].
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "benchmarks/kernels/timing.h"
#include "benchmarks/kernels/traffic.h"
#include "kernels/cpu/memory_bound/init_weights.h"
#include "kernels/cpu/memory_bound/memory_bound.h"
#include "runtime/core/error.h"
#include "runtime/core/isa/isa.h"
#include "runtime/core/memory.h"
#include "runtime/ir/quantized.h"

namespace dstrain {
namespace {

struct Bench {
  std::vector<TensorSpec> in, out;
  std::vector<Memory> memory;
  std::vector<Tensor> reads, writes;
  std::unique_ptr<Kernel> kernel;
  KernelCall call;
  StepState state;

  Bench(OpKind op, const OpAttrs& attrs, std::vector<TensorSpec> inputs,
        std::vector<TensorSpec> outputs, int threads)
      : in(std::move(inputs)), out(std::move(outputs)) {
    state.lr = 1e-3f;
    state.d_loss = 1;
    state.applied_steps = 1;
    const KernelSpec spec{op, attrs, in, out, threads};
    const auto place = [&](const TensorSpec& s) {
      const Tensor t{nullptr, s.shape, s.dtype};
      memory.push_back(Memory::anonymous(std::max<int64_t>(64, t.bytes()), "benchmark"));
      return Tensor{t.elements() > 0 ? memory.back().data() : nullptr, s.shape, s.dtype};
    };
    for (const TensorSpec& s : in) reads.push_back(place(s));
    for (const TensorSpec& s : out) writes.push_back(place(s));
    memory.push_back(Memory::anonymous(memory_bound_workspace_bytes(spec) + 64, "workspace"));
    kernel = make_memory_bound(spec);
    call.in = reads;
    call.out = writes;
    call.workspace = {memory.back().data(), Shape{memory.back().bytes()}, DType::u8};
    call.state = &state;
    fill_operands(threads);
  }

  // Gives every page memory of its own: pages that nothing has written are all the same one, which the caches have.
  void fill_operands(int threads) {
    for (std::vector<Tensor>* side : {&reads, &writes})
      for (const Tensor& t : *side) {
        if (!t) continue;
        if (t.dtype == DType::f32) {
          fill_uniform(t.as<float>(), 0, t.elements(), 0.5f, {1, 2}, threads);
        } else if (t.dtype == DType::bf16) {
          std::vector<float> x(static_cast<size_t>(t.elements()));
          fill_uniform(x.data(), 0, t.elements(), 0.5f, {1, 2}, threads);
          std::transform(x.begin(), x.end(), t.as<bf16>(), to_bf16);
        } else {
          // Packed values: this byte makes scales that are neither denormal nor NaN. Other dtypes are indices.
          std::memset(t.data, t.dtype == DType::u8 ? 0x3f : 0, static_cast<size_t>(t.bytes()));
        }
      }
  }
  // Returns the traffic of the operands; the last `in_place` of those written are read too.
  Traffic traffic(size_t in_place) const {
    Traffic sum{};
    for (const Tensor& t : reads) sum.read += t.bytes();
    for (size_t i = 0; i < writes.size(); ++i)
      (i + in_place < writes.size() ? sum.written : sum.updated) += writes[i].bytes();
    return sum;
  }
  void run() const { kernel->run(call); }
};

// Works on slices of the parameters, alternating between our kernel and the loop. A slice is short enough to run
// between two interruptions by the scheduler, and has left the caches when it is used again.
void bench_adam(DType copy, int64_t n, int threads) {
  const int64_t slices = std::max<int64_t>(1, n / 500'000), size = n / slices;
  const bool has_copy = copy != DType::f32;
  const TensorSpec flat{Shape{size}, DType::f32};
  std::vector<TensorSpec> in{flat}, out{flat, flat, flat};
  if (has_copy) out.push_back({Shape{size}, copy});
  const KernelSpec spec{OpKind::adam, AdamAttrs{.eps = 1e-8f, .weight_decay = 0.01f}, in, out,
                        threads};
  const std::unique_ptr<Kernel> kernel = make_memory_bound(spec);

  std::vector<Memory> memory;
  for (int k = 0; k < 4; ++k) {
    memory.push_back(Memory::anonymous(4 * n, "benchmark"));
    fill_uniform(reinterpret_cast<float*>(memory.back().data()), 0, n, 0.5f, {1, 2}, threads);
  }
  auto* second = reinterpret_cast<float*>(memory[3].data());  // second moments are not negative
  for (int64_t i = 0; i < n; ++i) second[i] = std::abs(second[i]);
  memory.push_back(Memory::anonymous(2 * n, "benchmark"));

  StepState state;
  state.lr = 1e-3f;
  std::vector<double> times, ratios;
  for (int64_t run = 0; run < std::max<int64_t>(60, 2 * slices); ++run) {
    const int64_t at = run % slices * size;
    const auto part = [&](size_t k) { return reinterpret_cast<float*>(memory[k].data()) + at; };
    auto* narrow = reinterpret_cast<uint16_t*>(memory[4].data()) + at;
    const std::vector<Tensor> reads{{part(0), flat.shape, DType::f32}};
    std::vector<Tensor> writes;
    for (size_t k = 1; k < 4; ++k) writes.push_back({part(k), flat.shape, DType::f32});
    if (has_copy) writes.push_back({narrow, flat.shape, copy});
    KernelCall call;
    call.in = reads;
    call.out = writes;
    call.state = &state;
    const auto other = (at + n / 2) % (slices * size);
    const auto beside = [&](size_t k) { return part(k) - at + other; };
    const auto ours = [&] { kernel->run(call); };
    const auto loop = [&] {
      adam_traffic(beside(0), beside(1), beside(2), beside(3),
                   has_copy ? narrow - at + other : nullptr, size, threads);
    };
    const bool first = run % 2 == 0;
    const double a = seconds(first ? std::function<void()>(ours) : loop, threads);
    const double b = seconds(first ? std::function<void()>(loop) : ours, threads);
    times.push_back(first ? a : b);
    ratios.push_back(first ? b / a : a / b);
  }
  const double traffic = static_cast<double>(size) * (has_copy ? 30 : 28);
  fmt::print("adam{:<24} {:9.3f} ms {:7.1f} GB/s   same traffic / ours {}\n",
             has_copy ? fmt::format(", {} copy", name_of(copy)) : ", f32",
             median(times) * 1e3 * static_cast<double>(slices), traffic / median(times) * 1e-9,
             spread(ratios));
}

// What is the same for all kernels.
struct Options {
  int threads;
  int64_t n;           // parameters
  std::string filter;  // kernels whose labels do not have this are left out
};

// Compares an operation with a loop that reads and writes as many bytes. The last `in_place` of `out` are read too.
void bench_op(const Options& options, const std::string& label, OpKind op, const OpAttrs& attrs,
              std::vector<TensorSpec> in, std::vector<TensorSpec> out, size_t in_place = 0) {
  if (label.find(options.filter) == std::string::npos) return;
  const int threads = options.threads;
  Bench b(op, attrs, std::move(in), std::move(out), threads);
  const Traffic traffic = b.traffic(in_place);
  const auto filled = [](int64_t bytes) {
    Memory m = Memory::anonymous(std::max<int64_t>(64, bytes), "traffic");
    std::memset(m.data(), 1, static_cast<size_t>(m.bytes()));
    return m;
  };
  const Memory from = filled(traffic.read), to = filled(traffic.written),
               changed = filled(traffic.updated);
  const Timing t = compare(
      [&] { b.run(); },
      [&] { flat_traffic(traffic, from.data(), to.data(), changed.data(), threads); }, 21, threads);
  fmt::print("{:<28} {:9.3f} ms {:7.1f} GB/s   same traffic / ours {}\n", label, t.kernel * 1e3,
             static_cast<double>(traffic.bytes()) / t.kernel * 1e-9, spread(t.ratios));
}

// Packed gradients and parameters, whose parts belong to four ranks.
void bench_codecs(const Options& options) {
  constexpr int64_t ranks = 4;
  const int64_t n = options.n, part = n / ranks / kQuantizedBlock * kQuantizedBlock;
  const int64_t int4 = int4_bytes(part);
  const auto bytes = [](Shape shape) { return TensorSpec{shape, DType::u8}; };
  const Int4Attrs attrs{.part = part};
  const TensorSpec wide{Shape{ranks * part}, DType::f32};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const TensorSpec whole{Shape{ranks * part}, dtype}, own{Shape{part}, dtype};
    const auto bench = [&](std::string_view name, OpKind op, const OpAttrs& with, TensorSpec in,
                           TensorSpec out) {
      bench_op(options, fmt::format("{} {}", name, name_of(dtype)), op, with, {in}, {out});
    };
    bench("quantize", OpKind::quantize, {}, own, bytes({quantized_bytes(part)}));
    bench("dequantize", OpKind::dequantize, {}, bytes({ranks, quantized_bytes(part)}), whole);
    for (const BlockFormat format : {BlockFormat::int8, BlockFormat::nf4})
      bench(fmt::format("unpack_weight {}", name_of(format)), OpKind::unpack_weight,
            UnpackAttrs{format}, bytes({packed_bytes(format, ranks * part)}), whole);
    bench("quantize_int4", OpKind::quantize_int4, attrs, whole, bytes({ranks, int4}));
    const TensorSpec errors = bytes({ranks, quantized_bytes(part)});
    bench_op(options, fmt::format("quantize_int4, errors {}", name_of(dtype)),
             OpKind::quantize_int4,
             Int4Attrs{.part = part, .error_beta = 0.8f, .error_steps = 1024}, {whole, errors},
             {bytes({ranks, int4}), errors});
    bench("sum_int4 of 4", OpKind::sum_int4, attrs, bytes({ranks, 1, int4}), own);
    bench_op(options, fmt::format("quantize_signs {}", name_of(dtype)), OpKind::quantize_signs,
             SignAttrs{}, {whole}, {bytes({ranks, sign_bytes(part)}), wide}, 1);
  }
  bench_op(options, "requantize_int4 of 4", OpKind::requantize_int4, attrs,
           {bytes({ranks, 1, int4})}, {bytes({1, int4})});
  const TensorSpec signs = bytes({ranks, sign_bytes(part)});
  bench_op(options, "requantize_signs of 4", OpKind::requantize_signs, {}, {signs},
           {bytes({sign_bytes(part)}), {Shape{part}, DType::f32}}, 1);
  bench_op(options, "dequantize_signs", OpKind::dequantize_signs, {}, {signs}, {wide});
  bench_op(options, "error_squares", OpKind::error_squares, {}, {wide, wide},
           {{Shape{2}, DType::f64}});
}

// Low-rank factors of a matrix that is as large as n values.
void bench_factors(const Options& options) {
  constexpr int64_t columns = 768;
  const int64_t rows = options.n / columns;
  const TensorSpec matrix{Shape{rows, columns}, DType::f32};
  for (const int64_t rank : {1, 4}) {
    const TensorSpec p{Shape{rank, rows}, DType::f32}, q{Shape{rank, columns}, DType::f32};
    const auto bench = [&](std::string_view name, OpKind op, std::vector<TensorSpec> in,
                           std::vector<TensorSpec> out, size_t in_place = 0) {
      bench_op(options, fmt::format("{} rank {}", name, rank), op, {}, std::move(in),
               std::move(out), in_place);
    };
    bench("project_rows", OpKind::project_rows, {matrix, q}, {p});
    bench("project_columns", OpKind::project_columns, {matrix, p}, {q});
    bench("expand_factors", OpKind::expand_factors, {p, q, matrix}, {matrix, matrix});
    bench("gram_schmidt", OpKind::gram_schmidt, {}, {p}, 1);
    bench("random_factor", OpKind::random_factor, {}, {p});
  }
  bench_op(options, "add_error", OpKind::add_error, {}, {matrix}, {matrix}, 1);
  bench_op(options, "commit_state", OpKind::commit_state, {}, {matrix}, {matrix});
  bench_op(options, "update_buffer", OpKind::update_buffer, {}, {matrix}, {matrix}, 1);
}

void bench_all(const Options& options) {
  const auto& [threads, n, filter] = options;
  fmt::print("{} threads, {}\n", threads, name_of(max_isa()));
  for (DType copy : {DType::f32, DType::bf16, DType::f16})
    if (filter.empty()) bench_adam(copy, n, threads);
  const int64_t r = 2048, c = 768;
  for (DType dtype : {DType::f32, DType::bf16}) {
    const TensorSpec x{Shape{r, c}, dtype}, wide{Shape{r, 4 * c}, dtype};
    const TensorSpec row{Shape{c}, dtype}, stat{Shape{r}, DType::f32}, grad{Shape{c}, DType::f32};
    const TensorSpec ids{Shape{r}, DType::i32}, big{Shape{256, 50257}, dtype};
    const TensorSpec table{Shape{65, c}, DType::f32}, loss{Shape{1}, DType::f64};
    const auto bench = [&](std::string_view name, OpKind op, const OpAttrs& attrs,
                           std::vector<TensorSpec> in, std::vector<TensorSpec> out) {
      bench_op(options, fmt::format("{} {}", name, name_of(dtype)), op, attrs, std::move(in),
               std::move(out));
    };
    bench("layer_norm", OpKind::layer_norm, {}, {x, row, row}, {x, stat, stat});
    bench("layer_norm_input_grad", OpKind::layer_norm_input_grad, {}, {x, x, row, stat, stat, x},
          {x});
    bench("layer_norm_weight_grad", OpKind::layer_norm_weight_grad, {}, {x, x, stat, stat},
          {grad, grad});
    bench("rms_norm", OpKind::rms_norm, {}, {x, row}, {x, stat});
    bench("rms_norm_input_grad", OpKind::rms_norm_input_grad, {}, {x, x, row, stat, x}, {x});
    bench("rms_norm_weight_grad", OpKind::rms_norm_weight_grad, {}, {x, x, stat}, {grad});
    bench("rotary", OpKind::rotary, RotaryAttrs{.head_size = 64, .seq_len = 512}, {x}, {x});
    bench("gated", OpKind::gated, ActivationAttrs{Activation::silu}, {wide, wide}, {wide});
    bench("gated_grad", OpKind::gated_grad, ActivationAttrs{Activation::silu}, {wide, wide, wide},
          {wide, wide});
    bench("relu", OpKind::activation, ActivationAttrs{Activation::relu}, {wide}, {wide});
    bench("gelu", OpKind::activation, ActivationAttrs{Activation::gelu}, {wide}, {wide});
    bench("gelu grad", OpKind::activation_grad, ActivationAttrs{Activation::gelu}, {wide, wide},
          {wide});
    bench("add_dropout 0.1", OpKind::add_dropout, DropoutAttrs{.dropout = 0.1f, .seq_len = 256},
          {x, x}, {x});
    bench("dropout_grad 0.1", OpKind::dropout_grad, DropoutAttrs{.dropout = 0.1f, .seq_len = 256},
          {x}, {x});
    bench("cross_entropy V 50257", OpKind::cross_entropy, {}, {big, {Shape{256}, DType::i32}},
          {loss, big});
    bench("sum_rows", OpKind::sum_rows, {}, {wide}, {{Shape{4 * c}, DType::f32}});
    bench("embed_token_grad V 65", OpKind::embed_token_grad, {}, {x, ids}, {table});
    bench("accumulate", OpKind::accumulate, {}, {wide}, {{Shape{r, 4 * c}, DType::f32}});
  }
  bench_codecs(options);
  bench_factors(options);
  bench_op(options, "sum_squares", OpKind::sum_squares, {}, {{Shape{n}, DType::f32}},
           {{Shape{1}, DType::f64}});
  if (!filter.empty()) return;
  const Memory weights = Memory::anonymous(n * 4, "weights");
  auto* w = reinterpret_cast<float*>(weights.data());
  const double t = seconds([&] { fill_normal(w, 0, n, 0.02f, {1, 2}, threads); }, threads);
  fmt::print("fill_normal {} M: {:.3f} s\n", n / 1000000, t);
}

}  // namespace
}  // namespace dstrain

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const int64_t millions = argc > 2 ? std::atoi(argv[2]) : 40;
  if (threads < 1 || millions < 1) {
    fmt::print(stderr,
               "usage: kernels_bench [threads] [millions of parameters] [part of the labels]\n");
    return 1;
  }
  dstrain::bench_all({threads, millions * 1000000, argc > 3 ? argv[3] : ""});
  return 0;
}
