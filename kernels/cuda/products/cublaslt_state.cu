#include <utility>

#include "kernels/cuda/products/cublaslt_state.cuh"
#include "runtime/core/error.h"
#include "runtime/core/log/log.h"

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
  // By default a product that splits its sum may add the parts in the dtype of the result.
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
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
  const Key key{p.op,   p.dtype, p.rows, p.in_features, p.out_features,
                p.bias, p.relu,  p.gelu, p.pre};
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
  if (!choice)
    log::warn(
        "cuBLASLt has no algorithm for {} of {} rows, {} x {} features in {}: a slower kernel "
        "is used",
        name_of(p.op), p.rows, p.in_features, p.out_features, name_of(p.dtype));
  return chosen_[key] = choice;
}

void ProductState::note_unaligned(const Product& p) {
  if (std::exchange(noted_unaligned_, true)) return;
  log::warn(
      "an operand of {} of {} rows, {} x {} features is not aligned to {} bytes: a slower "
      "kernel is used",
      name_of(p.op), p.rows, p.in_features, p.out_features, kOperandAlignment);
}

}  // namespace dstrain::cuda
