// The list of what bench_cuda measures: that the kernels take it, that nothing is forgotten, and floors by
// hand.
#include "benchmarks/cuda/cases.h"

#include <catch2/catch.hpp>
#include <set>

#include "kernels/cuda/library.h"
#include "runtime/core/devices/emulated_stream.h"
#include "runtime/ir/quantized.h"
#include "runtime/ir/rule.h"

namespace dstrain::bench {
namespace {

const Case& named(const std::vector<Case>& cases, const std::string& name) {
  for (const Case& c : cases)
    if (c.name == name) return c;
  FAIL("there is no case '" << name << "'");
  return cases.front();
}

TEST_CASE("every case has a name of its own, a floor, and operands that its kernel takes") {
  EmulatedStream stream;
  const std::unique_ptr<KernelLibrary> library = make_emulated_library(stream);
  for (const Shapes& shapes : {gpt2_shapes(), tiny_shapes()}) {
    std::set<std::string> names;
    for (const Case& c : cases_of(shapes)) {
      CAPTURE(c.name);
      CHECK(names.insert(c.name).second);
      CHECK(c.floor.bytes > 0);
      const std::vector<TensorSpec> in = specs_of(c.in), out = specs_of(c.out);
      const KernelSpec spec{.op = c.op, .attrs = c.attrs, .in = in, .out = out};
      CHECK_NOTHROW(library->workspace_bytes(spec));
      CHECK_NOTHROW(library->make(spec));
    }
  }
}

TEST_CASE("every op that has a kernel on a GPU is measured") {
  std::set<OpKind> measured;
  for (const Case& c : cases_of(gpt2_shapes())) measured.insert(c.op);
  for (int i = 0; i < kOpKinds; ++i) {
    const auto op = static_cast<OpKind>(i);
    // GPUs take a weight as it is, and have no slots.
    if (!has_kernel(op) || op == OpKind::pack_weight || family_of(op) == OpFamily::decode) continue;
    CAPTURE(name_of(op));
    CHECK(measured.contains(op));
  }
}

TEST_CASE("floors of kernels that memory limits") {
  const std::vector<Case> cases = cases_of(gpt2_shapes());
  const double rows = 16 * 1024, c = 768, v = 50257, n = 124439808;
  const auto bytes = [&](const std::string& name) { return named(cases, name).floor.bytes; };
  CHECK(bytes("layer_norm C=768") == 2 * 2 * rows * c + 2 * 2 * c + 2 * 4 * rows);
  CHECK(bytes("layer_norm_grad C=768") == 4 * 2 * rows * c + 2 * c + 2 * 4 * rows + 2 * 4 * c);
  CHECK(bytes("add_layer_norm 0.1 C=768") == 4 * 2 * rows * c + 2 * 2 * c + 2 * 4 * rows);
  CHECK(bytes("rms_norm C=768") == 2 * 2 * rows * c + 2 * c + 4 * rows);
  CHECK(bytes("rotary C=768") == 2 * 2 * rows * c);
  CHECK(bytes("gated_grad C=768") == 5 * 2 * rows * 4 * c);
  CHECK(bytes("gelu C=768") == 2 * 2 * rows * 4 * c);
  CHECK(bytes("gelu_grad C=768") == 3 * 2 * rows * 4 * c);
  CHECK(bytes("add C=768") == 3 * 2 * rows * c);
  CHECK(bytes("map C=768") == 2 * 2 * rows * 4 * c + 2 * 4 * c);
  CHECK(bytes("map transposed C=768") == 2 * 2 * rows * c);
  CHECK(bytes("reduce rows C=768") == 2 * rows * 4 * c + 4 * rows);
  CHECK(bytes("reduce columns C=768") == 2 * rows * 4 * c + 4 * 4 * c);
  CHECK(bytes("contract heads C=768") == 2 * 2 * rows * c + 2 * rows * 12 * 1024);
  CHECK(bytes("take C=768") == 2 * 2 * rows * c + 4 * rows);
  CHECK(bytes("scale C=768") == 2 * 2 * rows * c);
  CHECK(bytes("cross_entropy V=50257") == 2 * 2 * rows * v + 4 * rows + 8);
  CHECK(bytes("embed V=50257") == 2 * 2 * rows * c + 2 * 1024 * c + 4 * rows);
  CHECK(bytes("embed_token_grad V=50257") == 2 * rows * c + 4 * rows + 4 * v * c);
  CHECK(bytes("adam f32") == 28 * n);
  CHECK(bytes("adam f32 and bf16 copy") == 30 * n);
  CHECK(bytes("adagrad and bf16 copy") == 22 * n);
  CHECK(bytes("lion and bf16 copy") == 22 * n);
  CHECK(bytes("adam_8bit and bf16 copy") == Approx((18 + 16.0 / 256) * n).epsilon(1e-6));
  CHECK(bytes("lion_8bit and bf16 copy") == Approx((16 + 8.0 / 256) * n).epsilon(1e-6));
  CHECK(bytes("lamb_direction") == 28 * n);
  CHECK(bytes("lamb and bf16 copy") == 14 * n + 16);
  CHECK(bytes("local_momentum f32, scaled") == 16 * n + 4);
  CHECK(bytes("frozen_lamb_direction") == 36 * n + 16);
  CHECK(bytes("lamb of a frozen moment and bf16 copy") == 14 * n + 8);
  CHECK(bytes("muon_momentum") == 16 * n);
  CHECK(bytes("muon and bf16 copy") == 14 * n);
  CHECK(bytes("sgd momentum and bf16 copy") == 22 * n);
  CHECK(bytes("round_wire bf16") == 8 * n);
  CHECK(bytes("sum_squares f32") == 4 * n + 8);
  const double int8 = n + 4 * n / 256, int4 = 4.0 * int4_bytes(n / 4);
  CHECK(bytes("quantize bf16") == 2 * n + int8);
  CHECK(bytes("dequantize bf16") == 2 * n + int8);
  const double groups = 121524;  // of 1024 values
  CHECK(bytes("unpack_weight int8 to bf16") == groups * 1088 + 2 * n);
  CHECK(bytes("unpack_weight nf4 to bf16") == groups * 576 + 2 * n);
  CHECK(bytes("quantize_int4 f32, 4 parts") == 4 * n + int4);
  CHECK(bytes("requantize_int4 of 4 ranks") == int4 + int4 / 4);
  const auto errors = 4 * static_cast<double>(quantized_bytes(n / 4));
  CHECK(bytes("quantize_int4 f32, 4 parts, errors") == 4 * n + int4 + 2 * errors);
  CHECK(bytes("requantize_int4 of 4 ranks, errors") == int4 + int4 / 4 + 2 * errors / 4);
  CHECK(bytes("sum_int4 of 4 ranks") == int4 + 4 * n / 4);
  CHECK(bytes("error_squares f32") == 8 * n + 16);
  CHECK(named(cases, "adam f32").floor.flops == 0);
}

TEST_CASE("floors of products and attention") {
  const std::vector<Case> cases = cases_of(gpt2_shapes());
  const auto flops = [&](const std::string& name) { return named(cases, name).floor.flops; };
  const double rows = 16 * 1024, c = 768;
  CHECK(flops("linear K=768 N=3072") == 2 * rows * c * 4 * c);
  CHECK(flops("linear_weight_grad K=3072 N=768") == 2 * rows * c * 4 * c);
  CHECK(flops("linear_input_grad K=768 N=50304") == 2 * rows * c * 50304);
  CHECK(flops("orthogonalize 3072x768") == 60 * c * c * c);
  // 12 heads of 64: the causal half of 2 x 2 T^2 D, of every head of 16 samples.
  CHECK(flops("attention C=768 D=64") == 0.5 * 16 * 12 * 2 * 2 * 1024.0 * 1024 * 64);
  CHECK(flops("attention_grad C=768 D=128") == 0.5 * 16 * 6 * 5 * 2 * 1024.0 * 1024 * 128);
}

}  // namespace
}  // namespace dstrain::bench
