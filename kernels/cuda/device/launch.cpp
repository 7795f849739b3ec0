#include <cuda_runtime_api.h>

#include "runtime/core/error.h"

namespace dstrain::cuda {

void check_cuda(cudaError_t status, const char* what) {
  if (status != cudaSuccess)
    fail_run("{}: {} ({})", what, cudaGetErrorString(status), cudaGetErrorName(status));
}

}  // namespace dstrain::cuda
