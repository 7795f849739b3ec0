// Products on a GPU by cuBLASLt: sums in f32, bias and relu in its epilogue.
//
// cuBLASLt stores matrices by columns, dstrain by rows: our (r,c) matrix is its (c,r) matrix, without a copy. So
// it computes the transpose of every product, with the operands exchanged:
//   linear              y^T   (N,R) = op_T(weight^T: (K,N)) x^T (K,R)
//   linear_input_grad   d_x^T (K,R) = weight^T (K,N)        d_y^T (N,R)
//   linear_weight_grad  d_w^T (K,N) = x^T (K,R)             op_T(d_y^T: (N,R))
// It adds a bias along the rows of its result, which are our columns.
//
// gelu (the tanh form in cuBLASLt too) and its derivative are epilogues if the plan fused them with a product;
// the auxiliary matrix is gelu's operand. A residual is cuBLASLt's C. Bias gradients are separate ops, although
// the epilogue BGRADB would write them in f32 beside an f32 weight gradient: docs/kernels.md says why.
//
// Lower bound: 2 R K N FLOPs on tensor cores (f32: ordinary multiply-adds, or TF32 if it is allowed).
#include "kernels/cuda/products/cublaslt_state.cuh"
#include "kernels/cuda/products/products.cuh"
#include "kernels/cuda/products/tiled_product.cuh"
#include "kernels/operands.h"
#include "runtime/core/error.h"

namespace dstrain::cuda {
namespace {

cudaDataType_t type_of(DType dtype) {
  return dtype == DType::bf16 ? CUDA_R_16BF : dtype == DType::f16 ? CUDA_R_16F : CUDA_R_32F;
}

MatrixLayout layout_of(DType dtype, int64_t rows, int64_t columns) {
  cublasLtMatrixLayout_t layout = nullptr;
  check_cublas(cublasLtMatrixLayoutCreate(&layout, type_of(dtype), static_cast<uint64_t>(rows),
                                          static_cast<uint64_t>(columns), rows),
               "a matrix layout of cuBLASLt");
  return MatrixLayout(layout);
}

template <class T>
void set(const MatmulDesc& desc, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check_cublas(cublasLtMatmulDescSetAttribute(desc.get(), attribute, &value, sizeof(value)),
               "an attribute of a product of cuBLASLt");
}

cublasLtEpilogue_t epilogue_of(const Product& p) {
  if (p.gelu && p.op == OpKind::linear_input_grad) return CUBLASLT_EPILOGUE_DGELU;
  if (p.gelu && p.pre) return p.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
  if (p.gelu) return p.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  if (p.bias) return p.relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
  return p.relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT;
}

Matmul matmul_of(const Product& p, bool tf32) {
  const bool fast = tf32 && p.dtype == DType::f32;
  cublasLtMatmulDesc_t desc = nullptr;
  check_cublas(cublasLtMatmulDescCreate(
                   &desc, fast ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
               "a product of cuBLASLt");
  Matmul m;
  m.desc.reset(desc);
  const cublasOperation_t transposed = CUBLAS_OP_T;
  const int64_t r = p.rows, k = p.in_features, n = p.out_features;
  switch (p.op) {
    case OpKind::linear:
      set(m.desc, CUBLASLT_MATMUL_DESC_TRANSA, transposed);
      m.a = layout_of(p.dtype, k, n), m.b = layout_of(p.dtype, k, r);
      m.d = layout_of(p.dtype, n, r);
      break;
    case OpKind::linear_input_grad:
      m.a = layout_of(p.dtype, k, n), m.b = layout_of(p.dtype, n, r);
      m.d = layout_of(p.dtype, k, r);
      break;
    default:
      set(m.desc, CUBLASLT_MATMUL_DESC_TRANSB, transposed);
      m.a = layout_of(p.dtype, k, r), m.b = layout_of(p.dtype, n, r);
      m.d = layout_of(DType::f32, k, n);
  }
  set(m.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(p));
  if (p.bias) {
    set(m.desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(type_of(p.dtype)));
    // The heuristic reads only the address's alignment; run() sets the real address.
    set(m.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<uintptr_t>(kOperandAlignment));
  }
  if (p.pre) {
    set(m.desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.n());
    set(m.desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
        static_cast<uintptr_t>(kOperandAlignment));
  }
  return m;
}

bool aligned(const void* at) {
  return reinterpret_cast<uintptr_t>(at) % kOperandAlignment == 0;
}

class LtProduct final : public Kernel {
 public:
  LtProduct(const Product& product, const LaunchContext& context)
      : product_(product),
        context_(context),
        matmul_(matmul_of(product, context.tf32)),
        algorithm_(context.products->algorithm(product, matmul_)) {}

  bool possible() const { return algorithm_.has_value(); }

  void run(const KernelCall& call) const override {
    const bool grad = product_.op == OpKind::linear_weight_grad;
    const void* const bias = product_.bias ? call.in[2].data : nullptr;
    // Our a b is cuBLASLt's b^T a^T, so the operands are exchanged.
    const void* const a = call.in[1].data;
    const void* const b = call.in[0].data;
    void* const d = call.out[0].data;
    void* const pre = !product_.pre                   ? nullptr
                      : product_.op == OpKind::linear ? call.out[kPreOutput].data
                                                      : call.in[kPreInput].data;
    const void* const residual = product_.residual ? call.in[kResidualInput].data : nullptr;
    if (!algorithm_) return launch_tiled_product(product_, call, context_);
    if (!aligned(a) || !aligned(b) || !aligned(d) || !aligned(bias) || !aligned(pre) ||
        !aligned(residual)) {
      context_.products->note_unaligned(product_);
      return launch_tiled_product(product_, call, context_);
    }
    if (pre) set(matmul_.desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, pre);
    if (bias) set(matmul_.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);

    const float alpha = 1, beta = (grad && call.accumulate) || residual ? 1 : 0;
    const void* const c = residual ? residual : d;
    const auto scratch = reinterpret_cast<uintptr_t>(
        workspace<std::byte>(call, kProductWorkspace + kProductWorkspaceAlignment));
    const uintptr_t up = (kProductWorkspaceAlignment - scratch % kProductWorkspaceAlignment) %
                         kProductWorkspaceAlignment;
    check_cublas(
        cublasLtMatmul(context_.products->handle(), matmul_.desc.get(), &alpha, a, matmul_.a.get(),
                       b, matmul_.b.get(), &beta, c, matmul_.d.get(), d, matmul_.d.get(),
                       &*algorithm_, reinterpret_cast<void*>(scratch + up),
                       static_cast<size_t>(kProductWorkspace), context_.stream),
        name_of(product_.op).data());
  }

 private:
  const Product product_;
  const LaunchContext context_;
  const Matmul matmul_;
  const std::optional<cublasLtMatmulAlgo_t> algorithm_;
};

}  // namespace

int64_t product_workspace_bytes(const KernelSpec& spec) {
  product_of(spec);  // throws for specs that make_product refuses
  return kProductWorkspace + kProductWorkspaceAlignment;
}

std::unique_ptr<Kernel> make_product(const KernelSpec& spec, const LaunchContext& context) {
  const Product product = product_of(spec);
  auto kernel = std::make_unique<LtProduct>(product, context);
  if (product.gelu && !kernel->possible()) return nullptr;
  return kernel;
}

std::shared_ptr<ProductState> make_product_state() {
  return std::make_shared<ProductState>();
}

}  // namespace dstrain::cuda
