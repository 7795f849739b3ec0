#include <array>

#include "kernels/cuda/attention/hopper/blocks.cuh"
#include "runtime/core/error.h"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

// stride: elements from one row to the next.
template <class T>
CUtensorMap rows_map(const void* at, const AttentionArguments& a, int heads, int stride,
                     int64_t samples) {
  const auto size = static_cast<uint64_t>(a.head_size), seq = static_cast<uint64_t>(a.seq),
             row_bytes = 2 * static_cast<uint64_t>(stride);
  return make_tensor_map<4>(
      at, std::is_same_v<T, bf16> ? DType::bf16 : DType::f16, Swizzle::bytes128,
      {size, seq, static_cast<uint64_t>(heads), static_cast<uint64_t>(samples)},
      {row_bytes, 2 * size, seq * row_bytes, 0}, {64, kPanelRows, 1, 1});
}

CUtensorMap statistics_map(const float* at, const AttentionArguments& a, int64_t samples) {
  return make_tensor_map<1>(at, DType::f32, Swizzle::none,
                            {static_cast<uint64_t>(samples * a.heads * a.seq)}, {0},
                            {kStatisticsBox});
}

}  // namespace

template <class T>
TensorMaps forward_maps(const AttentionArguments& a, int64_t samples) {
  TensorMaps maps{};
  maps.q = rows_map<T>(a.q, a, a.heads, a.q_stride, samples);
  maps.k = rows_map<T>(a.k, a, a.kv_heads, a.kv_stride, samples);
  maps.v = rows_map<T>(a.v, a, a.kv_heads, a.kv_stride, samples);
  return maps;
}

template <class T>
TensorMaps gradient_maps(const AttentionArguments& a, int64_t samples) {
  TensorMaps maps = forward_maps<T>(a, samples);
  maps.d_y = rows_map<T>(a.d_y, a, a.heads, a.heads * a.head_size, samples);
  maps.lse = statistics_map(a.lse, a, samples);
  maps.delta = statistics_map(a.delta, a, samples);
  return maps;
}

template TensorMaps forward_maps<bf16>(const AttentionArguments&, int64_t);
template TensorMaps forward_maps<f16>(const AttentionArguments&, int64_t);
template TensorMaps gradient_maps<bf16>(const AttentionArguments&, int64_t);
template TensorMaps gradient_maps<f16>(const AttentionArguments&, int64_t);

bool hopper_takes(const AttentionArguments& a, int64_t samples, const LaunchContext& context) {
  if (!context.hopper) return false;
  if (a.head_size != 64 && a.head_size != 128) return false;
  if (!a.vector || !a.causal) return false;
  // Rows of all heads, and blocks, are counted in 32 bits.
  if (samples * a.heads * a.seq > INT32_MAX) return false;
  return has_hopper_instructions();
}

}  // namespace dstrain::DSTRAIN_BACKEND
