// Times attention forward and backward at GPT-lite's shape (12 heads of 64), alternating with a probe of the
// machine's product rate, and prints medians.
//
// The minimum work of one layer, with E = B * heads * T (T + 1) / 2 elements of the causal triangle:
//   products      4 D E FLOP forward (scores, values), 10 D E backward (scores, d_y v^T, d_v, d_k, d_q)
//   exponentials  E forward and E backward
//   dropout       E / 8 Philox4x32-10 calls forward and again backward (8 elements a call)
// "products" in the output is the time of these products at the probe's rate, as a share of the threads' CPU time.
// A kernel whose exponentials, masks and packing cost nothing would reach 1.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <vector>

#include "benchmarks/attention/probes.h"
#include "kernels/cpu/attention/attention.h"
#include "runtime/core/memory.h"
#include "runtime/core/philox.h"
#include "runtime/core/threads/parts.h"

namespace {

using namespace dstrain;

constexpr int64_t kHeads = 12, kHeadSize = 64, kChannels = kHeads * kHeadSize;
constexpr int kLayers = 12;

struct Setting {
  int64_t batch, seq;
  float dropout;
  DType dtype;
};

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

struct Times {
  double wall;
  double cpu;  // mean CPU time of a thread
};

// The operands and the two kernels of one setting.
class Layer {
 public:
  Layer(const Setting& s, int threads) : s_(s), threads_(threads) {
    const int64_t rows = s.batch * s.seq;
    qkv_ = tensor({rows, 3 * kChannels}, s.dtype);
    y_ = tensor({rows, kChannels}, s.dtype);
    lse_ = tensor({s.batch, kHeads, s.seq}, DType::f32);
    d_y_ = tensor({rows, kChannels}, s.dtype);
    d_qkv_ = tensor({rows, 3 * kChannels}, s.dtype);
    fill(qkv_, 1);
    fill(d_y_, 2);
    const AttentionAttrs attrs{.dropout = s.dropout, .heads = kHeads, .seq_len = s.seq};
    forward_in_ = {qkv_};
    forward_out_ = {y_, lse_};
    backward_in_ = {d_y_, qkv_, y_, lse_};
    backward_out_ = {d_qkv_};
    const auto make = [&](OpKind op, const auto& in, const auto& out) {
      std::vector<TensorSpec> in_specs, out_specs;
      for (const Tensor& t : in) in_specs.push_back({t.shape, t.dtype});
      for (const Tensor& t : out) out_specs.push_back({t.shape, t.dtype});
      const KernelSpec spec{op, attrs, in_specs, out_specs, threads};
      scratch_bytes_ = std::max(scratch_bytes_, attention_workspace_bytes(spec));
      return make_attention(spec);
    };
    forward_ = make(OpKind::attention, forward_in_, forward_out_);
    backward_ = make(OpKind::attention_grad, backward_in_, backward_out_);
    scratch_ = tensor({scratch_bytes_}, DType::u8);
  }

  Times forward() const { return time(*forward_, forward_in_, forward_out_); }
  Times backward() const { return time(*backward_, backward_in_, backward_out_); }
  double elements() const {
    return static_cast<double>(s_.batch * kHeads) * static_cast<double>(s_.seq * (s_.seq + 1) / 2);
  }
  int64_t scratch_bytes() const { return scratch_bytes_; }

 private:
  Tensor tensor(const Shape& shape, DType dtype) {
    const Tensor t{nullptr, shape, dtype};
    memory_.push_back(Memory::anonymous(t.bytes(), "benchmark operand"));
    return {memory_.back().data(), shape, dtype};
  }
  static void fill(const Tensor& t, uint64_t seed) {
    for (int64_t i = 0; i < t.elements(); ++i) {
      const auto bits = static_cast<uint32_t>(mix64(seed + static_cast<uint64_t>(i) * 977) >> 40);
      const float x = static_cast<float>(bits) * 0x1p-23f - 1;
      if (t.dtype == DType::bf16) {
        t.as<bf16>()[i] = to_bf16(x);
      } else {
        t.as<float>()[i] = x;
      }
    }
  }
  Times time(const Kernel& kernel, std::span<const Tensor> in, std::span<const Tensor> out) const {
    StepState state;
    state.seed = 1337;
    KernelCall call;
    call.in = in;
    call.out = out;
    call.workspace = scratch_;
    call.state = &state;
    const double wall = bench::wall_seconds(), cpu = bench::process_seconds();
    kernel.run(call);
    return {bench::wall_seconds() - wall, (bench::process_seconds() - cpu) / threads_};
  }

  Setting s_;
  int threads_;
  std::vector<Memory> memory_;
  Tensor qkv_, y_, lse_, d_y_, d_qkv_, scratch_;
  std::vector<Tensor> forward_in_, forward_out_, backward_in_, backward_out_;
  std::unique_ptr<Kernel> forward_, backward_;
  int64_t scratch_bytes_ = 0;
};

void measure(const Setting& s, int threads, int rounds) {
  const Layer layer(s, threads);
  const auto probe = [&] {
    return s.dtype == DType::bf16 ? bench::bf16_rate(threads) : bench::multiply_add_rate(threads);
  };
  layer.forward();
  layer.backward();
  probe();
  std::vector<double> forward, backward, forward_core, backward_core, rate, forward_share,
      backward_share;
  const double flops = 4.0 * kHeadSize * layer.elements();
  for (int i = 0; i < rounds; ++i) {
    rate.push_back(probe());
    const Times f = layer.forward(), b = layer.backward();
    forward.push_back(f.wall);
    backward.push_back(b.wall);
    forward_core.push_back(f.cpu);
    backward_core.push_back(b.cpu);
    forward_share.push_back(flops / rate.back() / f.cpu);
    backward_share.push_back(2.5 * flops / rate.back() / b.cpu);
  }
  const double calls = s.dropout > 0 ? layer.elements() / 8 : 0;
  const auto pass = [](const char* name, const auto& wall, const auto& core, const auto& share) {
    return fmt::format("{} {:.2f} ms (on the cores {:.2f}, products {:.2f})", name,
                       median(wall) * 1e3, median(core) * 1e3, median(share));
  };
  fmt::print("{} B={} T={} dropout {}: {}, {}; {} layers {:.3f} s (on the cores {:.3f})\n",
             name_of(s.dtype), s.batch, s.seq, s.dropout,
             pass("forward", forward, forward_core, forward_share),
             pass("backward", backward, backward_core, backward_share), kLayers,
             kLayers * (median(forward) + median(backward)),
             kLayers * (median(forward_core) + median(backward_core)));
  fmt::print(
      "    floor of a layer: {:.2f} GFLOP at {:.0f} GFLOP/s, {:.1f} M exponentials, {:.1f} M "
      "Philox calls; scratch {:.1f} MB\n",
      3.5 * flops * 1e-9, median(rate) * 1e-9, 2 * layer.elements() * 1e-6, 2 * calls * 1e-6,
      static_cast<double>(layer.scratch_bytes()) * 1e-6);
}

}  // namespace

// Usage: bench_attention [threads [rounds [dtype [T]]]]
int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : thread_count();
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 9;
  const std::string_view only = argc > 3 ? argv[3] : "";
  const int64_t only_seq = argc > 4 ? std::atoi(argv[4]) : 0;
  for (DType dtype : {DType::f32, DType::bf16}) {
    if (!only.empty() && name_of(dtype) != only) continue;
    for (const auto& [batch, seq] : {std::array<int64_t, 2>{8, 256}, {1, 2048}}) {
      if (only_seq != 0 && seq != only_seq) continue;
      for (float dropout : {0.0f, 0.1f}) measure({batch, seq, dropout, dtype}, threads, rounds);
    }
  }
}
