#include <cudaTypedefs.h>

#include <array>

#include "kernels/cuda/attention/hopper/blocks.cuh"
#include "runtime/core/error.h"

namespace dstrain::cuda {
namespace {

// The driver's function, found through the runtime: the program links no driver library.
PFN_cuTensorMapEncodeTiled_v12000 find_encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result{};
  check_cuda(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                              cudaEnableDefault, &result),
             "cuTensorMapEncodeTiled");
  check(result == cudaDriverEntryPointSuccess, "the driver has no cuTensorMapEncodeTiled");
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
}

template <size_t kRank>
CUtensorMap encode(const void* at, CUtensorMapDataType type, CUtensorMapSwizzle swizzle,
                   const std::array<cuuint64_t, kRank>& sizes,
                   const std::array<cuuint64_t, kRank>& strides,  // in bytes, of dimensions 1 on
                   const std::array<cuuint32_t, kRank>& box) {
  static const auto encoder = find_encoder();
  std::array<cuuint32_t, kRank> steps;
  steps.fill(1);
  CUtensorMap map;
  const CUresult result =
      encoder(&map, type, kRank, const_cast<void*>(at), sizes.data(), strides.data(), box.data(),
              steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
              CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  check(result == CUDA_SUCCESS, "cuTensorMapEncodeTiled failed with error {}",
        static_cast<int>(result));
  return map;
}

// stride: elements from one row to the next.
CUtensorMap rows_map(const void* at, const AttentionArguments& a, int heads, int stride,
                     int64_t samples) {
  const auto size = static_cast<cuuint64_t>(a.head_size), seq = static_cast<cuuint64_t>(a.seq),
             row_bytes = 2 * static_cast<cuuint64_t>(stride);
  return encode<4>(at, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, CU_TENSOR_MAP_SWIZZLE_128B,
                   {size, seq, static_cast<cuuint64_t>(heads), static_cast<cuuint64_t>(samples)},
                   {row_bytes, 2 * size, seq * row_bytes, 0}, {64, kPanelRows, 1, 1});
}

CUtensorMap statistics_map(const float* at, const AttentionArguments& a, int64_t samples) {
  return encode<1>(at, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, CU_TENSOR_MAP_SWIZZLE_NONE,
                   {static_cast<cuuint64_t>(samples * a.heads * a.seq)}, {0}, {kPanelRows});
}

bool on_hopper() {
  int device = 0, major = 0, minor = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
             "compute capability");
  check_cuda(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
             "compute capability");
  return major == 9 && minor == 0;
}

}  // namespace

TensorMaps forward_maps(const AttentionArguments& a, int64_t samples) {
  TensorMaps maps{};
  maps.q = rows_map(a.q, a, a.heads, a.q_stride, samples);
  maps.k = rows_map(a.k, a, a.kv_heads, a.kv_stride, samples);
  maps.v = rows_map(a.v, a, a.kv_heads, a.kv_stride, samples);
  return maps;
}

TensorMaps gradient_maps(const AttentionArguments& a, int64_t samples) {
  TensorMaps maps = forward_maps(a, samples);
  maps.d_y = rows_map(a.d_y, a, a.heads, a.heads * a.head_size, samples);
  maps.lse = statistics_map(a.lse, a, samples);
  maps.delta = statistics_map(a.delta, a, samples);
  return maps;
}

bool hopper_takes(const AttentionArguments& a, int64_t samples) {
  if (a.head_size != 64 && a.head_size != 128) return false;
  if (!a.vector || !a.causal || a.window < a.seq || a.documents != nullptr) return false;
  // Rows of all heads, and blocks, are counted in 32 bits.
  if (samples * a.heads * a.seq > INT32_MAX) return false;
  return on_hopper();
}

}  // namespace dstrain::cuda
