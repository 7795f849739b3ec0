// The GPU: times from CUDA's events, products by cuBLASLt.
#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <array>

#include "benchmarks/cuda/gpu.h"
#include "runtime/core/error.h"

namespace dstrain::bench {
namespace {

constexpr int kMostCandidates = 8;

void check_cuda(cudaError_t code, const char* what) {
  if (code != cudaSuccess) fail_run("{}: {}", what, cudaGetErrorString(code));
}

void check_cublas(cublasStatus_t code, const char* what) {
  if (code != CUBLAS_STATUS_SUCCESS) fail_run("{}: {}", what, cublasLtGetStatusString(code));
}

cudaStream_t stream_of(Stream& stream) {
  return static_cast<cudaStream_t>(stream.native());
}

class CudaStopwatch final : public Stopwatch {
 public:
  CudaStopwatch() {
    for (cudaEvent_t& event : events_) check_cuda(cudaEventCreate(&event), "making an event");
  }
  CudaStopwatch(const CudaStopwatch&) = delete;
  CudaStopwatch& operator=(const CudaStopwatch&) = delete;
  ~CudaStopwatch() override {
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
  }
  void start(Stream& stream) override {
    check_cuda(cudaEventRecord(events_[0], stream_of(stream)), "recording an event");
  }
  void stop(Stream& stream) override {
    check_cuda(cudaEventRecord(events_[1], stream_of(stream)), "recording an event");
  }
  double seconds() override {
    float ms = 0;
    check_cuda(cudaEventSynchronize(events_[1]), "a kernel");
    check_cuda(cudaEventElapsedTime(&ms, events_[0], events_[1]), "the time between two events");
    return static_cast<double>(ms) * 1e-3;
  }

 private:
  std::array<cudaEvent_t, 2> events_{};
};

// Square products by cuBLASLt, and the handle that they need.
class LtProducts {
 public:
  explicit LtProducts(int64_t n) {
    check_cublas(cublasLtCreate(&handle_), "cuBLASLt");
    check_cublas(cublasLtMatmulDescCreate(&desc_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "a product");
    const cublasOperation_t transposed = CUBLAS_OP_T;
    check_cublas(cublasLtMatmulDescSetAttribute(desc_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                                sizeof(transposed)),
                 "a product");
    const auto size = static_cast<uint64_t>(n);
    check_cublas(cublasLtMatrixLayoutCreate(&layout_, CUDA_R_16BF, size, size, n), "a matrix");
  }
  LtProducts(const LtProducts&) = delete;
  LtProducts& operator=(const LtProducts&) = delete;
  ~LtProducts() {
    cublasLtMatrixLayoutDestroy(layout_);
    cublasLtMatmulDescDestroy(desc_);
    cublasLtDestroy(handle_);
  }

  std::vector<cublasLtMatmulAlgo_t> algorithms(int64_t workspace_bytes) const {
    cublasLtMatmulPreference_t preference = nullptr;
    check_cublas(cublasLtMatmulPreferenceCreate(&preference), "a preference");
    const auto bytes = static_cast<size_t>(workspace_bytes);
    std::array<cublasLtMatmulHeuristicResult_t, kMostCandidates> results{};
    int found = 0;
    cublasStatus_t status = cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof(bytes));
    if (status == CUBLAS_STATUS_SUCCESS)
      status = cublasLtMatmulAlgoGetHeuristic(handle_, desc_, layout_, layout_, layout_, layout_,
                                              preference, kMostCandidates, results.data(), &found);
    cublasLtMatmulPreferenceDestroy(preference);
    check_cublas(status, "cuBLASLt's heuristic");
    std::vector<cublasLtMatmulAlgo_t> algorithms;
    for (int i = 0; i < found; ++i)
      if (results[static_cast<size_t>(i)].state == CUBLAS_STATUS_SUCCESS)
        algorithms.push_back(results[static_cast<size_t>(i)].algo);
    return algorithms;
  }

  void run(const cublasLtMatmulAlgo_t& algorithm, Tensor a, Tensor b, Tensor c, Tensor workspace,
           cudaStream_t stream) const {
    const float alpha = 1, beta = 0;
    check_cublas(cublasLtMatmul(handle_, desc_, &alpha, a.data, layout_, b.data, layout_, &beta,
                                c.data, layout_, c.data, layout_, &algorithm, workspace.data,
                                static_cast<size_t>(workspace.bytes()), stream),
                 "the GEMM probe");
  }

 private:
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t layout_ = nullptr;
};

class CudaGpu final : public Gpu {
 public:
  std::unique_ptr<Stopwatch> make_stopwatch() const override {
    return std::make_unique<CudaStopwatch>();
  }
  int64_t cache_bytes() const override {
    int bytes = 0;
    check_cuda(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, 0), "the size of the cache");
    return bytes;
  }
  std::vector<Product> products(Tensor a, Tensor b, Tensor c, Tensor workspace,
                                Stream& stream) const override {
    const auto library = std::make_shared<LtProducts>(a.shape[0]);
    std::vector<Product> products;
    for (const cublasLtMatmulAlgo_t& algorithm : library->algorithms(workspace.bytes()))
      products.emplace_back(
          [=, at = stream_of(stream)] { library->run(algorithm, a, b, c, workspace, at); });
    return products;
  }
};

}  // namespace

std::unique_ptr<Gpu> make_gpu() {
  return std::make_unique<CudaGpu>();
}

}  // namespace dstrain::bench
