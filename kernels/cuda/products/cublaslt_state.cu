#include "kernels/cuda/products/cublaslt_state.cuh"
#include "runtime/core/error.h"

namespace dstrain::cuda {
namespace {

template <class T>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute, T value) {
  check_cublas(
      cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)),
      "a preference of cuBLASLt");
}

Preference our_preference() {
  cublasLtMatmulPreference_t made = nullptr;
  check_cublas(cublasLtMatmulPreferenceCreate(&made), "a preference of cuBLASLt");
  Preference preference(made);
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
      static_cast<uint64_t>(kProductWorkspace));
  for (const auto operand :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    set(preference, operand, kOperandAlignment);
  return preference;
}

}  // namespace

void check_cublas(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    fail_run("{}: {} ({})", what, cublasLtGetStatusString(status), cublasLtGetStatusName(status));
}

ProductState::~ProductState() {
  if (handle_ != nullptr) cublasLtDestroy(handle_);
}

cublasLtHandle_t ProductState::handle() {
  if (handle_ == nullptr) check_cublas(cublasLtCreate(&handle_), "cuBLASLt");
  return handle_;
}

std::optional<cublasLtMatmulAlgo_t> ProductState::algorithm(const Product& p,
                                                            const Matmul& matmul) {
  const Key key{p.op, p.dtype, p.rows, p.in_features, p.out_features,
                p.bias, p.relu, p.gelu, p.pre};
  if (const auto known = chosen_.find(key); known != chosen_.end()) return known->second;
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle(), matmul.desc.get(), matmul.a.get(), matmul.b.get(), matmul.d.get(), matmul.d.get(),
      our_preference().get(), 1, &best, &found);
  std::optional<cublasLtMatmulAlgo_t> choice;
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) {
    check_cublas(status, "cuBLASLt's heuristic");
    if (found > 0) choice = best.algo;
  }
  return chosen_[key] = choice;
}

}  // namespace dstrain::cuda
