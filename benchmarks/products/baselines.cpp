#include "benchmarks/products/baselines.h"

#include <cpuid.h>
#include <fmt/core.h>
#include <immintrin.h>

#include <oneapi/dnnl/dnnl.hpp>

#include "kernels/cpu/products/amx_block.h"
#include "runtime/core/isa/isa.h"

namespace dstrain::bench {
namespace {

using dnnl::memory;

struct Sizes {
  int64_t m, n, k;
};

Sizes sizes_of(OpKind op, int64_t rows, int64_t in, int64_t out) {
  if (op == OpKind::linear) return {rows, out, in};
  if (op == OpKind::linear_input_grad) return {rows, in, out};
  return {out, in, rows};
}

// oneDNN 2.6 reads the tile palette from this CPUID leaf. Under hypervisors that hide it, oneDNN ends with SIGILL in
// its AMX code.
bool tells_tile_palettes() {
  constexpr unsigned kTileLeaf = 0x1d;
  unsigned palettes = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(kTileLeaf, 0, &palettes, &b, &c, &d) != 0 && palettes != 0;
}

// Limits the library to max_isa(). Must be called before any other call of it.
void limit_library() {
  if (max_isa() == Isa::baseline) {
    dnnl::set_max_cpu_isa(dnnl::cpu_isa::sse41);
  } else if (max_isa() == Isa::avx2) {
    dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2);
  } else if (max_isa() == Isa::avx512) {
    dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core);
  } else if (max_isa() == Isa::avx512_bf16 || !tells_tile_palettes()) {
    dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core_bf16);
  }
}

const dnnl::engine& engine() {
  static const dnnl::engine cpu = [] {
    limit_library();
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return cpu;
}

memory matrix(int64_t rows, int64_t columns, bool transposed, memory::data_type type,
              const void* data) {
  const memory::dims strides = transposed ? memory::dims{1, rows} : memory::dims{columns, 1};
  return memory({{rows, columns}, type, strides}, engine(), const_cast<void*>(data));
}

constexpr double kFlopsPerTileRound = 4 * 2.0 * 16 * 16 * 32;

__attribute__((target("amx-tile,amx-bf16"))) void multiply_tiles(int64_t rounds) {
  const BlockScope scope(amx_block());
  for (int64_t i = 0; i < rounds; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
}

// Enough independent sums to hide the instruction's latency.
constexpr int kDotSums = 16;
constexpr double kFlopsPerDotRound = kDotSums * 2.0 * 16 * 2;

__attribute__((target("avx512f,avx512bf16"))) void multiply_dots(int64_t rounds) {
  __m512 sums[kDotSums] = {};
  __m512bh a = (__m512bh)_mm512_setzero_si512(), b = a;
  asm volatile("" : "+v"(a), "+v"(b));
  for (__m512& sum : sums)
    asm volatile("" : "+v"(sum));  // hides from the compiler that all are equal
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (__m512& sum : sums) sum = _mm512_dpbf16_ps(sum, a, b);
  }
  for (__m512& sum : sums) asm volatile("" : "+v"(sum));
}

}  // namespace

std::function<void()> dnnl_matmul(OpKind op, int64_t rows, int64_t in, int64_t out,
                                  const Operands& operands) {
  using Type = memory::data_type;
  const Sizes s = sizes_of(op, rows, in, out);
  const bool weight_grad = op == OpKind::linear_weight_grad;
  const memory a = matrix(s.m, s.k, weight_grad, Type::bf16, operands.a);
  const memory b = matrix(s.k, s.n, op == OpKind::linear, Type::bf16, operands.b);
  const memory c = matrix(s.m, s.n, false, weight_grad ? Type::f32 : Type::bf16, operands.out);
  dnnl::primitive_attr attr;
  if (weight_grad) {
    dnnl::post_ops post;
    post.append_sum();
    attr.set_post_ops(post);
  }
  const dnnl::matmul product(dnnl::matmul::primitive_desc(
      dnnl::matmul::desc(a.get_desc(), b.get_desc(), c.get_desc()), attr, engine()));
  return [=, stream = dnnl::stream(engine())]() mutable {
    product.execute(stream, {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}});
    stream.wait();
  };
}

std::function<void()> library_sgemm(OpKind op, int64_t rows, int64_t in, int64_t out,
                                    const Operands& operands) {
  engine();
  const Sizes s = sizes_of(op, rows, in, out);
  const bool weight_grad = op == OpKind::linear_weight_grad;
  return [=] {
    dnnl_sgemm(weight_grad ? 'T' : 'N', op == OpKind::linear ? 'T' : 'N', s.m, s.n, s.k, 1.0f,
               static_cast<const float*>(operands.a), op == OpKind::linear ? in : out,
               static_cast<const float*>(operands.b), in, weight_grad ? 1.0f : 0.0f,
               static_cast<float*>(operands.out), s.n);
  };
}

std::string library_name(DType dtype) {
  if (dtype == DType::f32) return "oneDNN sgemm";
  engine();
  const bool amx = dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core_amx;
  return fmt::format("oneDNN matmul ({})", amx ? "AMX" : "without AMX");
}

double register_seconds(int threads, double flops, const std::function<double()>& now) {
  if (max_isa() < Isa::avx512_bf16) return 0;
  const bool tiles = max_isa() == Isa::amx;
  const auto rounds =
      static_cast<int64_t>(flops / (tiles ? kFlopsPerTileRound : kFlopsPerDotRound));
  const double begin = now();
#pragma omp parallel num_threads(threads)
  (tiles ? multiply_tiles : multiply_dots)(rounds);
  return now() - begin;
}

}  // namespace dstrain::bench
