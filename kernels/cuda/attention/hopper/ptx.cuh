// Implements kernels/cuda/attention/hopper/instructions.cuh for GPUs.
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>

#include <array>
#include <type_traits>

#include "kernels/cuda/attention/mma.cuh"
#include "runtime/core/error.h"

namespace dstrain::cuda {

enum class Swizzle : uint8_t { none, bytes128 };

// --- the host's ----------------------------------------------------------------------------------

inline bool has_hopper_instructions() {
  int device = 0, major = 0, minor = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
             "compute capability");
  check_cuda(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
             "compute capability");
  return major == 9 && minor == 0;
}

// Returns the driver's function, found through the runtime: the program links no driver library.
inline PFN_cuTensorMapEncodeTiled_v12000 find_map_encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result{};
  check_cuda(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                              cudaEnableDefault, &result),
             "cuTensorMapEncodeTiled");
  check(result == cudaDriverEntryPointSuccess, "the driver has no cuTensorMapEncodeTiled");
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
}

template <size_t kRank>
CUtensorMap make_tensor_map(const void* at, DType dtype, Swizzle swizzle,
                            const std::array<uint64_t, kRank>& sizes,
                            const std::array<uint64_t, kRank>& strides,
                            const std::array<uint32_t, kRank>& box) {
  static const auto encoder = find_map_encoder();
  const CUtensorMapDataType type = dtype == DType::bf16  ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                   : dtype == DType::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                         : CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  std::array<cuuint64_t, kRank> of_sizes, of_strides;
  std::array<cuuint32_t, kRank> of_box, steps;
  for (size_t d = 0; d < kRank; ++d) {
    of_sizes[d] = sizes[d];
    of_strides[d] = strides[d];
    of_box[d] = box[d];
    steps[d] = 1;
  }
  CUtensorMap map;
  const CUresult result =
      encoder(&map, type, kRank, const_cast<void*>(at), of_sizes.data(), of_strides.data(),
              of_box.data(), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
              swizzle == Swizzle::none ? CU_TENSOR_MAP_SWIZZLE_NONE : CU_TENSOR_MAP_SWIZZLE_128B,
              CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  check(result == CUDA_SUCCESS, "cuTensorMapEncodeTiled failed with error {}",
        static_cast<int>(result));
  return map;
}

// --- barriers and copies -------------------------------------------------------------------------

__device__ __forceinline__ unsigned char* panel_memory() {
  extern __shared__ __align__(1024) unsigned char dst_panel_memory[];
  return dst_panel_memory;
}

__device__ __forceinline__ void barrier_init(uint64_t* word, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(shared_address(word)),
               "r"(arrivals)
               : "memory");
}

__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(uint64_t* word) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(shared_address(word)) : "memory");
}

__device__ __forceinline__ void barrier_arrive_expecting(uint64_t* word, uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(shared_address(word)),
      "r"(bytes)
      : "memory");
}

__device__ __forceinline__ void barrier_wait(uint64_t* word, int parity) {
  uint32_t done;
  do {
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}\n"
        : "=r"(done)
        : "r"(shared_address(word)), "r"(parity)
        : "memory");
  } while (done == 0);
}

__device__ __forceinline__ void copy_box(void* to, const CUtensorMap& from, const int (&at)[1],
                                         uint64_t* word) {
  asm volatile(
      "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2}], [%3];\n" ::"r"(shared_address(to)),
      "l"(reinterpret_cast<uint64_t>(&from)), "r"(at[0]), "r"(shared_address(word))
      : "memory");
}
__device__ __forceinline__ void copy_box(void* to, const CUtensorMap& from, const int (&at)[4],
                                         uint64_t* word) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5}], [%6];\n" ::"r"(shared_address(to)),
      "l"(reinterpret_cast<uint64_t>(&from)), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]),
      "r"(shared_address(word))
      : "memory");
}

// --- products ------------------------------------------------------------------------------------

__device__ __forceinline__ void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}
__device__ __forceinline__ void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kPending) : "memory");
}
// Keeps the compiler from reading the sums before the wait in front of this.
template <int kTiles>
__device__ __forceinline__ void finished(float (&sums)[kTiles][4]) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(sums[n][i])::"memory");
}

#define DSTRAIN_SUMS(n)                                                         \
  "+f"(sums[kFrom + n][0]), "+f"(sums[kFrom + n][1]), "+f"(sums[kFrom + n][2]), \
      "+f"(sums[kFrom + n][3])
#define DSTRAIN_ALL_SUMS                                                               \
  DSTRAIN_SUMS(0), DSTRAIN_SUMS(1), DSTRAIN_SUMS(2), DSTRAIN_SUMS(3), DSTRAIN_SUMS(4), \
      DSTRAIN_SUMS(5), DSTRAIN_SUMS(6), DSTRAIN_SUMS(7)
#define DSTRAIN_SUM_NAMES                                                   \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define DSTRAIN_WGMMA(type) "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " "

#define DSTRAIN_WGMMA_OF_PANELS(type)                                                             \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n" DSTRAIN_WGMMA(type) DSTRAIN_SUM_NAMES \
               ", %32, %33, p, 1, 1, 0, 0;\n}\n"                                                  \
               : DSTRAIN_ALL_SUMS                                                                 \
               : "l"(a), "l"(b), "r"(static_cast<uint32_t>(add)))
#define DSTRAIN_WGMMA_OF_REGISTERS(type)                                                          \
  asm volatile(DSTRAIN_WGMMA(type) DSTRAIN_SUM_NAMES ", {%32, %33, %34, %35}, %36, 1, 1, 1, 1;\n" \
               : DSTRAIN_ALL_SUMS                                                                 \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

template <class T, int kFrom = 0, int kTiles>
__device__ __forceinline__ void wgmma(float (&sums)[kTiles][4], uint64_t a, uint64_t b, bool add) {
  if constexpr (std::is_same_v<T, bf16>)
    DSTRAIN_WGMMA_OF_PANELS("bf16");
  else
    DSTRAIN_WGMMA_OF_PANELS("f16");
}

template <class T, int kFrom = 0, int kTiles>
__device__ __forceinline__ void wgmma(float (&sums)[kTiles][4], const uint32_t (&a)[4],
                                      uint64_t b) {
  if constexpr (std::is_same_v<T, bf16>)
    DSTRAIN_WGMMA_OF_REGISTERS("bf16");
  else
    DSTRAIN_WGMMA_OF_REGISTERS("f16");
}
#undef DSTRAIN_WGMMA_OF_REGISTERS
#undef DSTRAIN_WGMMA_OF_PANELS
#undef DSTRAIN_WGMMA
#undef DSTRAIN_SUM_NAMES
#undef DSTRAIN_ALL_SUMS
#undef DSTRAIN_SUMS

}  // namespace dstrain::cuda
