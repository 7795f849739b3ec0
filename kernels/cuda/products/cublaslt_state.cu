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

// Whether the epilogue goes on with the product's sum: where cuBLASLt divides the sum, some of its algorithms round it to
// the dtype of the result before they add a bias (seen on an H200 with 65 columns), an error of several units in the
// last place.
bool must_not_divide(const Product& p) {
  return size_of(p.dtype) == 2 && p.op != OpKind::linear_weight_grad &&
         (p.bias || p.gelu || p.residual);
}

Preference preference_for(const Product& p) {
  cublasLtMatmulPreference_t made = nullptr;
  check_cublas(cublasLtMatmulPreferenceCreate(&made), "a preference of cuBLASLt");
  Preference preference(made);
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
      static_cast<uint64_t>(kProductWorkspace));
  // By default a product that splits its sum may add the parts in the dtype of the result.
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(must_not_divide(p) ? CUBLASLT_REDUCTION_SCHEME_NONE
                                               : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
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
                p.bias, p.relu,  p.gelu, p.pre,         p.residual};
  if (const auto known = chosen_.find(key); known != chosen_.end()) return known->second;
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle(), matmul.desc.get(), matmul.a.get(), matmul.b.get(), matmul.d.get(), matmul.d.get(),
      preference_for(p).get(), 1, &best, &found);
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
