// The order of an fp32 product's additions, which kernels/cpu/products/sgemm.h states.
#include "kernels/cpu/products/sgemm.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "runtime/core/memory.h"
#include "tests/kernels/parity/values.h"

namespace dstrain {
namespace {

std::vector<float> normal_floats(int64_t count, uint64_t seed) {
  const std::vector<double> values = parity::normal_values(count, seed);
  return {values.begin(), values.end()};
}

// A call with operands of its own. Its workspace holds what is no number.
struct OwnedSgemm {
  SgemmCall call;
  std::vector<float> a, b, c;
  Memory workspace;

  OwnedSgemm(int64_t m, int64_t n, int64_t k, bool a_transposed, bool b_transposed, bool accumulate,
             int threads)
      : a(normal_floats(m * k, 1)), b(normal_floats(k * n, 2)), c(normal_floats(m * n, 3)) {
    const int64_t floats = sgemm_workspace_floats(m, n, k, threads);
    workspace = Memory::anonymous(floats * static_cast<int64_t>(sizeof(float)), "a workspace");
    float* const scratch = reinterpret_cast<float*>(workspace.data());
    std::fill_n(scratch, floats, std::numeric_limits<float>::quiet_NaN());
    call = {.m = m,
            .n = n,
            .k = k,
            .a = a.data(),
            .a_stride = a_transposed ? m : k,
            .a_transposed = a_transposed,
            .b = b.data(),
            .b_stride = b_transposed ? k : n,
            .b_transposed = b_transposed,
            .c = c.data(),
            .c_stride = n,
            .accumulate = accumulate,
            .threads = threads,
            .workspace = scratch,
            .workspace_floats = floats};
  }
};

// Whether products are added before they are rounded, as AVX2 and what is above do.
bool fuses() {
  constexpr float x = 1 + 0x1p-12F;
  OwnedSgemm g(1, 1, 2, false, false, false, 1);
  g.a[0] = -(1 + 0x1p-11F);
  g.b[0] = 1;
  g.a[1] = g.b[1] = x;
  sgemm(g.call);
  return g.c[0] != 0;
}

// Returns element (i,j) of the result, computed by itself.
float element(const SgemmCall& g, bool fused, int64_t i, int64_t j) {
  const int64_t part = sgemm_part_length(g.k);
  float total = g.accumulate ? g.c[i * g.c_stride + j] : 0;
  for (int64_t first = 0; first < g.k; first += part) {
    float sum = 0;
    for (int64_t k = first; k < std::min(g.k, first + part); ++k) {
      const float left = g.a_transposed ? g.a[k * g.a_stride + i] : g.a[i * g.a_stride + k];
      const float right = g.b_transposed ? g.b[j * g.b_stride + k] : g.b[k * g.b_stride + j];
      sum = fused ? std::fma(left, right, sum) : sum + left * right;
    }
    total = first == 0 && !g.accumulate ? sum : total + sum;
  }
  return total;
}

}  // namespace

TEST_CASE("an fp32 product adds in ascending k in each part, and the parts in order") {
  const bool fused = fuses();
  struct Size {
    int64_t m, n, k;
  };
  // One tile and less, several panels with and without an incomplete last one, one part of k and several, and lengths of
  // parts that no step of the packing divides.
  for (const Size s : {Size{1, 1, 1}, Size{5, 33, 7}, Size{24, 64, 50}, Size{61, 97, 383},
                       Size{36, 130, 401}, Size{50, 900, 9}, Size{13, 70, 1000}})
    for (const bool a_transposed : {false, true})
      for (const bool b_transposed : {false, true})
        for (const int threads : {1, 3}) {
          const bool accumulate = threads == 3;
          OwnedSgemm g(s.m, s.n, s.k, a_transposed, b_transposed, accumulate, threads);
          std::vector<float> expected(g.c.size());
          for (int64_t i = 0; i < s.m; ++i)
            for (int64_t j = 0; j < s.n; ++j)
              expected[static_cast<size_t>(i * s.n + j)] = element(g.call, fused, i, j);
          sgemm(g.call);
          INFO(s.m << " x " << s.n << " x " << s.k << (a_transposed ? ", A transposed" : "")
                   << (b_transposed ? ", B transposed" : "") << ", threads " << threads);
          CHECK(g.c == expected);
        }
}

}  // namespace dstrain
