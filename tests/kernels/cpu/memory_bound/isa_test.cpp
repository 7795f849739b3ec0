#include "runtime/core/isa/isa.h"

#include <cstdio>
#include <filesystem>

#include "hwy/targets.h"
#include "kernels/cpu/attention/portable.h"
#include "kernels/cpu/memory_bound/init_weights.h"
#include "kernels/cpu/products/f32_tiles.h"
#include "runtime/core/checksum.h"
#include "runtime/core/error.h"
#include "tests/kernels/parity/ops/run_op.h"
#include "tests/support/skip.h"

namespace dstrain::parity {
namespace {

TEST_CASE("instruction sets are named, ordered, and an unknown name lists them") {
  CHECK(isa_named("baseline") < isa_named("avx2"));
  CHECK(isa_named("avx2") < isa_named("avx512"));
  CHECK(isa_named("avx512") < isa_named("avx512_bf16"));
  CHECK(isa_named("avx512_bf16") < isa_named("amx"));
  for (Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::amx})
    CHECK(isa_named(name_of(isa)) == isa);
  CHECK_THROWS_AS(isa_named("sse9"), UserError);
  CHECK_THROWS_WITH(
      isa_named("sse9"),
      "DSTRAIN_MAX_ISA is \"sse9\"; expected one of baseline, avx2, avx512, avx512_bf16, amx");
}

TEST_CASE("kernels keep to the limit in the environment") {
  CHECK((widest_vectors() == Vectors::avx512) == (max_isa() >= Isa::avx512));
  CHECK((widest_vectors() == Vectors::avx2) == (max_isa() == Isa::avx2));
  const char* limit = std::getenv("DSTRAIN_MAX_ISA");
  if (limit && *limit) CHECK(max_isa() <= isa_named(limit));
}

// The sizes by which plans and kernels measure scratch memory: they depend on the vectors.
std::vector<int64_t> sizes() {
  const attention::Implementation& attention = attention::portable_implementation();
  return {f32_tile_rows(), f32_tile_columns(), f32_copies_of_a(), attention.query_block,
          attention.key_block};
}

TEST_CASE("what Highway's own choice becomes in a process changes no kernel") {
  const std::vector<int64_t> before = sizes();
  hwy::SupportedTargets();  // forgets targets that were disabled
  CHECK(sizes() == before);
  hwy::GetChosenTarget().Update(HWY_AVX3);
  CHECK(sizes() == before);
  hwy::GetChosenTarget().Update(HWY_AVX2);
  CHECK(sizes() == before);
  hwy::GetChosenTarget().DeInit();
}

// Returns the bits of all results of a small layer's step, with the targets that Highway may use now.
std::vector<std::string> results() {
  std::vector<std::string> bits;
  const auto add = [&](const Call& call, const std::vector<Operand>& in,
                       const std::vector<Operand>& out) {
    for (const Guarded& g : run_at_offset(call, in, out, 1)) bits.push_back(g.raw());
  };
  StepState state;
  state.seed = 3;
  state.lr = 0.1f;
  state.d_loss = 0.5f;
  const int64_t r = 9, c = 205;
  for (DType dtype : kRunTypes) {
    const Operand x{Shape{r, c}, dtype, normal_values(r * c, 1, 2)};
    const Operand y{Shape{r, c}, dtype, normal_values(r * c, 2)};
    const Operand w{Shape{c}, dtype, normal_values(c, 3)}, f{Shape{r}, DType::f32};
    const Operand statistic{Shape{r}, DType::f32, uniform_values(r, 4, 0, 1)};
    const Operand run{Shape{r, c}, dtype}, weight{Shape{c}, DType::f32};
    Call call{OpKind::activation};
    call.state = &state;
    call.attrs = ActivationAttrs{Activation::gelu};
    add(call, {x}, {run});
    call.op = OpKind::activation_grad;
    add(call, {x, y}, {run});
    call.op = OpKind::scale;
    call.attrs = ScaleAttrs{0.3f};
    add(call, {x}, {run});
    call.op = OpKind::add_dropout;
    call.attrs = DropoutAttrs{.dropout = 0.3f, .seq_len = 3};
    add(call, {x, y}, {run});
    call.op = OpKind::layer_norm;
    call.attrs = {};
    add(call, {x, w, w}, {run, f, f});
    call.op = OpKind::layer_norm_input_grad;
    add(call, {y, x, w, statistic, statistic, x}, {run});
    call.op = OpKind::layer_norm_weight_grad;
    add(call, {y, x, statistic, statistic}, {weight, weight});
    call.op = OpKind::rms_norm;
    add(call, {x, w}, {run, f});
    call.op = OpKind::rms_norm_input_grad;
    add(call, {y, x, w, statistic, x}, {run});
    call.op = OpKind::rms_norm_weight_grad;
    add(call, {y, x, statistic}, {weight});
    call.op = OpKind::gated;
    call.attrs = ActivationAttrs{Activation::silu};
    add(call, {x, y}, {run});
    call.op = OpKind::gated_grad;
    add(call, {y, x, y}, {run, run});
    const Operand heads{Shape{r, 4 * 50}, dtype, normal_values(r * 200, 7)};
    for (const OpKind op : {OpKind::rotary, OpKind::rotary_grad}) {
      call.op = op;
      call.attrs = RotaryAttrs{.head_size = 50, .seq_len = 3};
      add(call, {heads}, {{heads.shape, dtype}});
    }
    for (const BlockFormat format : {BlockFormat::int8, BlockFormat::nf4}) {
      call.op = OpKind::unpack_weight;
      call.attrs = UnpackAttrs{format};
      const Shape packed{packed_bytes(format, r * c)};
      add(call, {{packed, DType::u8, integer_values(packed.elements(), 8, 0, 64)}}, {run});
    }
    call.attrs = {};
    call.op = OpKind::sum_rows;
    add(call, {x}, {weight});
    call.op = OpKind::cross_entropy;
    add(call, {x, {Shape{r}, DType::i32, integer_values(r, 5, 0, c)}},
        {{Shape{1}, DType::f64}, run});
    const Operand moment{Shape{c}, DType::f32, uniform_values(c, 6, 0, 1)};
    call.op = OpKind::adam;
    add(call, {moment}, {moment, moment, moment, {Shape{c}, dtype}});
    for (const OpKind op : {OpKind::adagrad, OpKind::lion}) {
      call.op = op;
      add(call, {moment}, {moment, moment, {Shape{c}, dtype}});
    }
    const Operand codes{Shape{c}, DType::u8, integer_values(c, 9, 0, 256)},
        absmax{Shape{(c + 255) / 256}, DType::f32, uniform_values((c + 255) / 256, 6, 0, 1)};
    call.op = OpKind::adam_8bit;
    add(call, {moment}, {moment, codes, absmax, codes, absmax, {Shape{c}, dtype}});
    call.op = OpKind::lion_8bit;
    add(call, {moment}, {moment, codes, absmax, {Shape{c}, dtype}});
    call.op = OpKind::lamb_direction;
    add(call, {moment, moment}, {moment, moment, {Shape{c}, DType::f32}});
    call.op = OpKind::lamb;
    add(call, {moment, {Shape{2}, DType::f64, {3, 2}}}, {moment, {Shape{c}, dtype}});
    call.op = OpKind::muon_momentum;
    add(call, {moment}, {moment, {Shape{c}, DType::f32}});
    call.op = OpKind::muon;
    add(call, {moment}, {moment, {Shape{c}, dtype}});
  }
  const Guarded fresh(Shape{1000}, DType::f32);
  fill_normal(static_cast<float*>(fresh.data()), 77, 1000, 1, {1, 2}, 1);
  bits.push_back(fresh.raw());
  return bits;
}

// Each result's checksum, in a line.
std::string checksums() {
  std::string text;
  for (const std::string& bits : results())
    text += fmt::format("{:016x}\n", checksum_of(bits.data(), static_cast<int64_t>(bits.size())));
  return text;
}

// By another process of this program, whose limit is read when it starts.
TEST_CASE("checksums of a small layer's step", "[.]") {
  fmt::print("{}", checksums());
}

TEST_CASE("AVX2 and AVX-512 compute the same bits") {
  SKIP_UNLESS(max_isa() >= Isa::avx2, "no AVX2 here");
  const std::string best = checksums();
  const std::string command =
      fmt::format("DSTRAIN_MAX_ISA=avx2 '{}' \"checksums of a small layer's step\"",
                  std::filesystem::read_symlink("/proc/self/exe").string());
  std::FILE* const run = ::popen(command.c_str(), "r");
  REQUIRE(run != nullptr);
  std::string avx2;
  for (char buffer[4096]; const size_t n = std::fread(buffer, 1, sizeof buffer, run);)
    avx2.append(buffer, n);
  CHECK(::pclose(run) == 0);
  CHECK(avx2.find(best) != std::string::npos);  // after what the test runner writes
}

}  // namespace
}  // namespace dstrain::parity
