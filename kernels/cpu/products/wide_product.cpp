#include "kernels/cpu/products/wide_product.h"

#include <algorithm>

#include "kernels/cpu/products/convert.h"
#include "kernels/cpu/products/sgemm.h"
#include "kernels/operands.h"

namespace dstrain {
namespace {

constexpr int64_t kPanelRows = 512;                  // rows of activations widened at a time
constexpr int64_t kChunkElements = 4 * 1024 * 1024;  // elements of the weight widened at a time

// The blocks of the computation: panels of R by chunks of N. K is never divided.
struct Tiling {
  int64_t panel;
  int64_t chunk;
};

Tiling tiling_of(const Product& p) {
  const int64_t chunk =
      std::max<int64_t>(256, kChunkElements / std::max(p.in_features, kPanelRows));
  return {std::min(p.rows, kPanelRows), std::min(p.out_features, chunk)};
}

// Floats of the widened blocks, a multiple of a cache line.
int64_t wide_floats(const Product& p, const Tiling& t) {
  constexpr int64_t kLine = 16;
  int64_t floats = 0;
  if (p.op == OpKind::linear) {
    floats = (t.chunk + t.panel) * p.in_features + t.panel * t.chunk;
  } else if (p.op == OpKind::linear_input_grad) {
    floats = (t.chunk + p.rows) * p.in_features + t.panel * t.chunk;
  } else {
    floats = t.panel * (p.in_features + t.chunk);
  }
  return (floats + kLine - 1) / kLine * kLine;
}

// Floats of workspace for the f32 products of the blocks.
int64_t multiply_floats(const Product& p, const Tiling& t) {
  const int64_t k = p.in_features;
  if (p.op == OpKind::linear) return sgemm_workspace_floats(t.panel, t.chunk, k, p.threads);
  if (p.op == OpKind::linear_input_grad)
    return sgemm_workspace_floats(t.panel, k, t.chunk, p.threads);
  return sgemm_workspace_floats(t.chunk, k, t.panel, p.threads);
}

// A matrix that is divided into blocks.
struct Matrix {
  char* data;
  DType dtype;
  int64_t stride;

  Block at(int64_t row, int64_t column) const {
    return {data + (row * stride + column) * size_of(dtype), dtype, stride};
  }
};

class WideProduct final : public Kernel {
 public:
  explicit WideProduct(const Product& product) : p_(product), tiling_(tiling_of(product)) {}

  void run(const KernelCall& call) const override {
    if (p_.op == OpKind::linear) {
      forward(call);
    } else if (p_.op == OpKind::linear_input_grad) {
      input_grad(call);
    } else {
      weight_grad(call);
    }
  }

 private:
  float* scratch(const KernelCall& call) const {
    return workspace<float>(call, wide_floats(p_, tiling_) + multiply_floats(p_, tiling_));
  }

  Matrix matrix(const Tensor& t, int64_t stride) const { return {t.as<char>(), p_.dtype, stride}; }

  // Calls run(first, count) for each block of `step` elements of [0, size).
  template <class Run>
  static void blocks(int64_t size, int64_t step, Run run) {
    for (int64_t at = 0; at < size; at += step) run(at, std::min(step, size - at));
  }

  void multiply(SgemmCall gemm, const KernelCall& call) const {
    gemm.threads = p_.threads;
    gemm.workspace_floats = multiply_floats(p_, tiling_);
    gemm.workspace = scratch(call) + wide_floats(p_, tiling_);
    sgemm(gemm);
  }

  void forward(const KernelCall& call) const {
    const int64_t k = p_.in_features, n = p_.out_features;
    const Matrix x = matrix(call.in[0], k), weight = matrix(call.in[1], k);
    const Matrix y = matrix(call.out[0], n);
    float* wide_weight = scratch(call);
    float* wide_x = wide_weight + tiling_.chunk * k;
    float* wide_y = wide_x + tiling_.panel * k;
    blocks(n, tiling_.chunk, [&](int64_t n0, int64_t columns) {
      widen(weight.at(n0, 0), columns, k, wide_weight, k, p_.threads);
      const void* bias = p_.bias ? call.in[2].as<char>() + n0 * size_of(p_.dtype) : nullptr;
      blocks(p_.rows, tiling_.panel, [&](int64_t r0, int64_t rows) {
        widen(x.at(r0, 0), rows, k, wide_x, k, p_.threads);
        multiply({rows, columns, k, wide_x, k, false, wide_weight, k, true, wide_y, columns}, call);
        finish(wide_y, columns, rows, columns, bias, p_.relu, y.at(r0, n0), p_.threads);
      });
    });
  }

  void input_grad(const KernelCall& call) const {
    const int64_t k = p_.in_features, n = p_.out_features;
    const Matrix d_y = matrix(call.in[0], n), weight = matrix(call.in[1], k);
    const Matrix d_x = matrix(call.out[0], k);
    float* wide_weight = scratch(call);
    float* wide_d_y = wide_weight + tiling_.chunk * k;
    float* wide_d_x = wide_d_y + tiling_.panel * tiling_.chunk;
    blocks(n, tiling_.chunk, [&](int64_t n0, int64_t columns) {
      widen(weight.at(n0, 0), columns, k, wide_weight, k, p_.threads);
      blocks(p_.rows, tiling_.panel, [&](int64_t r0, int64_t rows) {
        widen(d_y.at(r0, n0), rows, columns, wide_d_y, columns, p_.threads);
        multiply({rows, k, columns, wide_d_y, columns, false, wide_weight, k, false,
                  wide_d_x + r0 * k, k, n0 > 0},
                 call);
      });
    });
    finish(wide_d_x, k, p_.rows, k, nullptr, false, d_x.at(0, 0), p_.threads);
  }

  void weight_grad(const KernelCall& call) const {
    const int64_t k = p_.in_features, n = p_.out_features;
    const Matrix d_y = matrix(call.in[0], n), x = matrix(call.in[1], k);
    float* d_weight = call.out[0].as<float>();
    float* wide_x = scratch(call);
    float* wide_d_y = wide_x + tiling_.panel * k;
    blocks(p_.rows, tiling_.panel, [&](int64_t r0, int64_t rows) {
      widen(x.at(r0, 0), rows, k, wide_x, k, p_.threads);
      blocks(n, tiling_.chunk, [&](int64_t n0, int64_t columns) {
        widen(d_y.at(r0, n0), rows, columns, wide_d_y, columns, p_.threads);
        multiply({columns, k, rows, wide_d_y, columns, true, wide_x, k, false, d_weight + n0 * k, k,
                  call.accumulate || r0 > 0},
                 call);
      });
    });
  }

  Product p_;
  Tiling tiling_;
};

}  // namespace

int64_t wide_product_workspace_bytes(const Product& p) {
  const Tiling t = tiling_of(p);
  return (wide_floats(p, t) + multiply_floats(p, t)) * size_of(DType::f32);
}

int64_t wide_product_sum_rows_part() {
  return kPanelRows;
}

std::unique_ptr<Kernel> make_wide_product(const Product& product) {
  return std::make_unique<WideProduct>(product);
}

void run_wide_product(const Product& product, const KernelCall& call) {
  WideProduct(product).run(call);
}

}  // namespace dstrain
