#include "benchmarks/cuda/cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "benchmarks/cuda/case_list.h"
#include "runtime/ir/ops/newton_schulz.h"
#include "runtime/ir/quantized.h"

namespace dstrain::bench {
namespace {

constexpr float kDropout = 0.1f;

class List : CaseList {
 public:
  explicit List(const Shapes& shapes) : shapes_(shapes) {}

  std::vector<Case> make() {
    for (const Width& w : shapes_.widths) of_width(w);
    for (const Width& w : shapes_.heads) attention(w);
    for (const int64_t v : shapes_.vocabularies) of_vocabulary(v);
    flat();
    return take();
  }

 private:
  void of_width(const Width& w) {
    const int64_t r = w.batch * shapes_.seq, c = w.channels, t = shapes_.seq;
    const std::string at = fmt::format(" C={}", c);
    const Operand x = run({r, c}), wide = run({r, 4 * c}), row = run({c}), stat = f32({r});
    add("layer_norm" + at, OpKind::layer_norm, {}, {x, row, row}, {x, stat, stat});
    add("layer_norm_input_grad" + at, OpKind::layer_norm_input_grad, {}, {x, x, row, stat, stat, x},
        {x});
    add("layer_norm_weight_grad" + at, OpKind::layer_norm_weight_grad, {}, {x, x, stat, stat},
        {f32({c}), f32({c})});
    add("layer_norm_grad" + at, OpKind::layer_norm_grad, {}, {x, x, row, stat, stat, x},
        {x, f32({c}), f32({c})});
    add("rms_norm" + at, OpKind::rms_norm, {}, {x, row}, {x, stat});
    add("rms_norm_input_grad" + at, OpKind::rms_norm_input_grad, {}, {x, x, row, stat, x}, {x});
    add("rms_norm_weight_grad" + at, OpKind::rms_norm_weight_grad, {}, {x, x, stat}, {f32({c})});
    const RotaryAttrs rotary{.head_size = c / w.heads, .seq_len = t};
    add("rotary" + at, OpKind::rotary, rotary, {x}, {x});
    add("rotary_grad" + at, OpKind::rotary_grad, rotary, {x}, {in_place(x, 0)});
    const ActivationAttrs silu{Activation::silu};
    add("gated" + at, OpKind::gated, silu, {wide, wide}, {wide});
    add("gated_grad" + at, OpKind::gated_grad, silu, {wide, wide, wide}, {wide, wide});
    add("gelu" + at, OpKind::activation, ActivationAttrs{Activation::gelu}, {wide}, {wide});
    add("gelu_grad" + at, OpKind::activation_grad, ActivationAttrs{Activation::gelu}, {wide, wide},
        {wide});
    add("relu" + at, OpKind::activation, ActivationAttrs{Activation::relu}, {wide}, {wide});
    add("sum_rows" + at, OpKind::sum_rows, {}, {wide}, {f32({4 * c})});
    add("add" + at, OpKind::add, {}, {x, x}, {x});
    const SoftcapAttrs cap{30};
    add("softcap" + at, OpKind::softcap, cap, {wide}, {wide});
    add("softcap_grad" + at, OpKind::softcap_grad, cap, {wide, wide}, {in_place(wide, 0)});
    const Formula value = Formula::input(0), bias = Formula::input(1);
    add("map" + at, OpKind::map, MapAttrs{value * sigmoid(value + bias)}, {wide, run({4 * c})},
        {wide});
    add_general_cases(*this, shapes_.seq, r, c, w.heads, at);
    add_expert_cases(*this, r, c, at);
    add("scale" + at, OpKind::scale, ScaleAttrs{.factor = 0.5f}, {x}, {x});
    add("batch_norm" + at, OpKind::batch_norm, BatchNormAttrs{.relu = true}, {x, row, row, x},
        {x, f32({c}), f32({c})});
    add("batch_norm_grad" + at, OpKind::batch_norm_grad, BatchNormAttrs{.relu = true},
        {x, x, row, f32({c}), f32({c}), x}, {x, f32({c}), f32({c}), x});
    add("add_dropout 0" + at, OpKind::add_dropout, DropoutAttrs{.seq_len = t}, {x, x}, {x});
    const DropoutAttrs dropout{.dropout = kDropout, .seq_len = t};
    add("add_dropout 0.1" + at, OpKind::add_dropout, dropout, {x, x}, {x});
    for (const float drops : {0.0f, kDropout})
      add(fmt::format("add_layer_norm {:g}{}", drops, at), OpKind::add_layer_norm,
          AddLayerNormAttrs{.add = {.dropout = drops, .seq_len = t}}, {x, x, row, row},
          {x, x, stat, stat});
    add("dropout_grad 0.1" + at, OpKind::dropout_grad, dropout, {x}, {x});
    product(r, c, 3 * c);
    product(r, c, 4 * c);
    product(r, 4 * c, c);
    gelu_products(r, c, 4 * c);
    residual_product(r, c, c);
    residual_product(r, 4 * c, c);
    orthogonalize(c, c);
    orthogonalize(4 * c, c);
  }

  // In fp32, so that tensor cores' rate is a floor that it stays far from.
  void orthogonalize(int64_t rows, int64_t columns) {
    const Operand x = f32({rows, columns});
    add(fmt::format("orthogonalize {}x{}", rows, columns), OpKind::orthogonalize,
        OrthogonalizeAttrs{}, {x}, {in_place(x, 0)}, newton_schulz_flops({}, rows, columns));
  }

  void product(int64_t r, int64_t k, int64_t n) {
    const std::string at = fmt::format(" K={} N={}", k, n);
    const double flops =
        2 * static_cast<double>(r) * static_cast<double>(k) * static_cast<double>(n);
    const Operand x = run({r, k}), weight = run({n, k}), y = run({r, n});
    add("linear" + at, OpKind::linear, {}, {x, weight, run({n})}, {y}, flops);
    add("linear_input_grad" + at, OpKind::linear_input_grad, {}, {y, weight}, {x}, flops);
    add("linear_weight_grad" + at, OpKind::linear_weight_grad, {}, {y, x}, {f32({n, k})}, flops);
  }

  // The products next to gelu: forward followed by gelu, backward times gelu's derivative.
  void gelu_products(int64_t r, int64_t k, int64_t n) {
    const double flops =
        2 * static_cast<double>(r) * static_cast<double>(k) * static_cast<double>(n);
    const ActivationAttrs gelu{Activation::gelu};
    const Operand x = run({r, k}), wide = run({r, n}), absent{.spec = {}};
    add(fmt::format("linear gelu K={} N={}", k, n), OpKind::linear, gelu,
        {x, run({n, k}), run({n})}, {wide, wide}, flops);
    add(fmt::format("linear_input_grad gelu K={} N={}", n, k), OpKind::linear_input_grad, gelu,
        {x, run({k, n}), absent, wide}, {wide}, flops);
  }

  // The products whose result is added to a residual.
  void residual_product(int64_t r, int64_t k, int64_t n) {
    const double flops =
        2 * static_cast<double>(r) * static_cast<double>(k) * static_cast<double>(n);
    const Operand absent{.spec = {}};
    add(fmt::format("linear residual K={} N={}", k, n), OpKind::linear, {},
        {run({r, k}), run({n, k}), run({n}), absent, run({r, n})}, {run({r, n})}, flops);
  }

  void attention(const Width& w) {
    const int64_t r = w.batch * shapes_.seq, c = w.channels;
    const Operand qkv = run({r, 3 * c}), y = run({r, c}),
                  lse = f32({w.batch, w.heads, shapes_.seq});
    // Per head the causal half of two products of T x T x D, and of five in the gradient.
    const double product =
        static_cast<double>(r) * static_cast<double>(c) * static_cast<double>(shapes_.seq);
    for (const float dropout : {0.0f, kDropout}) {
      const AttentionAttrs attrs{.dropout = dropout, .heads = w.heads, .seq_len = shapes_.seq};
      const std::string at = fmt::format(" C={} D={}{}", c, c / w.heads,
                                         dropout > 0 ? fmt::format(" dropout {:g}", dropout) : "");
      add("attention" + at, OpKind::attention, attrs, {qkv}, {y, lse}, 2 * product);
      add("attention_grad" + at, OpKind::attention_grad, attrs, {y, qkv, y, lse}, {qkv},
          5 * product);
    }
  }

  void of_vocabulary(int64_t v) {
    const Width& w = shapes_.widths.front();
    const int64_t r = w.batch * shapes_.seq, c = w.channels;
    const std::string at = fmt::format(" V={}", v);
    const Operand logits = run({r, v}), loss{.spec = {Shape{1}, DType::f64}};
    add("cross_entropy" + at, OpKind::cross_entropy, {}, {logits, ids(r, v)},
        {loss, in_place(logits, 0)});
    product(r, c, v);
    if (v != shapes_.vocabularies.front()) return;
    divided(r, v);
    const EmbedAttrs attrs{.seq_len = shapes_.seq};
    add("log_probs", OpKind::log_probs, {}, {logits, ids(r, v)}, {f32({r})});
    add("log_probs_grad", OpKind::log_probs_grad, {}, {f32({r}), logits, ids(r, v)},
        {in_place(logits, 1)});
    const Operand x = run({r, c}), position = run({shapes_.seq, c});
    add("embed" + at, OpKind::embed, attrs, {ids(r, v), run({v, c}), position}, {x});
    // Only the table's rows that occur in the batch are read.
    last().floor.bytes = 2 * bytes_of(x) + bytes_of(position) + bytes_of(ids(r, v));
    add("embed_token_grad" + at, OpKind::embed_token_grad, {}, {x, ids(r, v)}, {f32({v, c})});
    add("embed_position_grad", OpKind::embed_position_grad, attrs, {x}, {f32({shapes_.seq, c})});
  }

  // What two ranks do that have parts of the same layers or samples.
  void divided(int64_t r, int64_t v) {
    constexpr int64_t ranks = 2, numbers = 3;
    const int64_t c = shapes_.widths.front().channels;
    const Operand x = run({r, c}), half = run({r, v / ranks}), loss{.spec = {Shape{1}, DType::f64}};
    const ColumnsAttrs columns{.parts = ranks};
    add("split_columns", OpKind::split_columns, columns, {x}, {x});
    add("join_columns", OpKind::join_columns, columns, {x}, {x});
    add("add_rows, a bias", OpKind::add_rows, EmbedAttrs{.seq_len = 1}, {x, run({1, c})}, {x});
    add("class_sums", OpKind::class_sums, {}, {half, ids(r, v / ranks)}, {f32({r, numbers})});
    add("cross_entropy_part", OpKind::cross_entropy_part, {},
        {half, ids(r, v / ranks), f32({ranks, r, numbers})}, {loss, in_place(half, 0)});
  }

  void flat() {
    const Shape n{shapes_.parameters};
    const Operand wide = f32(n), narrow = run(n);
    const AdamAttrs decay{.eps = 1e-8f, .weight_decay = 0.1f};
    const std::vector<Operand> states{updated(wide), updated(wide), updated(wide)};
    std::vector<Operand> with_copy = states;
    with_copy.push_back(narrow);
    add("adam f32", OpKind::adam, decay, {wide}, states);
    add("adam f32 and bf16 copy", OpKind::adam, decay, {wide}, with_copy);
    const std::vector<Operand> with_one{updated(wide), updated(wide), narrow};
    add("adagrad and bf16 copy", OpKind::adagrad, AdagradAttrs{}, {wide}, with_one);
    add("lion and bf16 copy", OpKind::lion, LionAttrs{}, {wide}, with_one);
    const Operand codes{.spec = {n, DType::u8}, .below = 256},
        absmax = f32({(shapes_.parameters + 255) / 256});
    add("adam_8bit and bf16 copy", OpKind::adam_8bit, decay, {wide},
        {updated(wide), updated(codes), updated(absmax), updated(codes), updated(absmax), narrow});
    add("lion_8bit and bf16 copy", OpKind::lion_8bit, LionAttrs{}, {wide},
        {updated(wide), updated(codes), updated(absmax), narrow});
    add("lamb_direction", OpKind::lamb_direction, LambDirectionAttrs{}, {wide, wide},
        {updated(wide), updated(wide), wide});
    add("lamb and bf16 copy", OpKind::lamb, LambAttrs{}, {wide, {.spec = {Shape{2}, DType::f64}}},
        {updated(wide), narrow});
    add("muon_momentum", OpKind::muon_momentum, MuonMomentumAttrs{}, {wide}, {updated(wide), wide});
    add("muon and bf16 copy", OpKind::muon, MuonAttrs{}, {wide}, {updated(wide), narrow});
    add("sgd momentum and bf16 copy", OpKind::sgd, SgdAttrs{.momentum = 0.9f}, {wide},
        {updated(wide), updated(wide), narrow});
    add("cast f32 to bf16", OpKind::cast, {}, {wide}, {narrow});
    add("accumulate bf16 to f32", OpKind::accumulate, {}, {narrow}, {wide});
    add("round_wire bf16", OpKind::round_wire, WireAttrs{kRun}, {wide}, {in_place(wide, 0)});
    add("sum_squares f32", OpKind::sum_squares, {}, {wide}, {{.spec = {Shape{1}, DType::f64}}});
    codecs();
  }

  // The gradients and parameters of a model whose parts belong to four ranks.
  void codecs() {
    constexpr int64_t ranks = 4;
    const int64_t n = shapes_.parameters, part = n / ranks, int4 = int4_bytes(part);
    const auto bytes = [](Shape shape) { return Operand{.spec = {shape, DType::u8}}; };
    const Operand int8 = bytes({quantized_bytes(n)});
    add("quantize bf16", OpKind::quantize, {}, {run({n})}, {int8});
    add("dequantize bf16", OpKind::dequantize, {}, {int8}, {run({n})});
    for (const BlockFormat format : {BlockFormat::int8, BlockFormat::nf4})
      add(fmt::format("unpack_weight {} to bf16", name_of(format)), OpKind::unpack_weight,
          UnpackAttrs{format}, {bytes({packed_bytes(format, n)})}, {run({n})});
    const Int4Attrs attrs{.part = part};
    add("quantize_int4 f32, 4 parts", OpKind::quantize_int4, attrs, {f32({ranks * part})},
        {bytes({ranks, int4})});
    add("requantize_int4 of 4 ranks", OpKind::requantize_int4, attrs, {bytes({ranks, 1, int4})},
        {bytes({1, int4})});
    const Int4Attrs kept{.part = part, .error_beta = 0.8f, .error_steps = 1024};
    const Operand errors = bytes({ranks, quantized_bytes(part)});
    const Operand sum_errors = bytes({1, quantized_bytes(part)});
    add("quantize_int4 f32, 4 parts, errors", OpKind::quantize_int4, kept,
        {f32({ranks * part}), errors}, {bytes({ranks, int4}), errors});
    add("requantize_int4 of 4 ranks, errors", OpKind::requantize_int4, kept,
        {bytes({ranks, 1, int4}), sum_errors}, {bytes({1, int4}), sum_errors});
    add("sum_int4 of 4 ranks", OpKind::sum_int4, attrs, {bytes({ranks, 1, int4})}, {f32({part})});
    add("error_squares f32", OpKind::error_squares, {}, {f32({n}), f32({n})},
        {{.spec = {Shape{2}, DType::f64}}});
    factors(n);
    signs(n, ranks);
  }

  // Low-rank factors of a matrix that is as large as the model.
  void factors(int64_t n) {
    constexpr int64_t rank = 4, columns = 64;
    const int64_t rows = n / columns;
    const Operand m = f32({rows, columns}), p = f32({rank, rows}), q = f32({rank, columns});
    add("project_rows rank 4", OpKind::project_rows, {}, {m, q}, {p});
    add("project_columns rank 4", OpKind::project_columns, {}, {m, p}, {q});
    add("expand_factors rank 4", OpKind::expand_factors, ExpandAttrs{}, {p, q, m},
        {in_place(m, 2), m});
    add("gram_schmidt rank 4", OpKind::gram_schmidt, GramSchmidtAttrs{}, {p}, {in_place(p, 0)});
    add("random_factor rank 4", OpKind::random_factor, RandomFactorAttrs{}, {}, {p});
    add("add_error", OpKind::add_error, {}, {m}, {updated(m)});
    add("commit_state", OpKind::commit_state, CommitAttrs{}, {m}, {m});
    add("update_buffer", OpKind::update_buffer, UpdateBufferAttrs{}, {m}, {updated(m)});
  }

  // Momenta of so many ranks that travel as signs, and what makes and uses them.
  void signs(int64_t n, int64_t ranks) {
    const int64_t part = n / ranks;
    const auto packed = [](int64_t parts, int64_t of_part) {
      return Operand{.spec = {Shape{parts, sign_bytes(of_part)}, DType::u8}};
    };
    const Operand whole = f32({ranks * part}), error = f32({part});
    const Operand bits{.spec = {Shape{ranks * part / 8}, DType::u8}};
    add("positive_bits", OpKind::positive_bits, {}, {whole}, {bits});
    const LocalMomentumAttrs share{.share = 0.25f};
    add("local_momentum f32", OpKind::local_momentum, share, {whole, whole}, {updated(whole)});
    add("local_momentum f32, by bits", OpKind::local_momentum, share, {whole, bits},
        {updated(whole)});
    add("quantize_signs, 4 parts", OpKind::quantize_signs, {}, {whole},
        {packed(ranks, part), updated(whole)});
    add("quantize_signs of a bf16 gradient", OpKind::quantize_signs, SignAttrs{.gradient = true},
        {run({ranks * part})}, {packed(ranks, part), updated(whole)});
    add("requantize_signs of 4 ranks", OpKind::requantize_signs, {}, {packed(ranks, part)},
        {packed(1, part), updated(error)});
    add("dequantize_signs, 4 parts", OpKind::dequantize_signs, {}, {packed(ranks, part)}, {whole});
    add("frozen_adam and bf16 copy", OpKind::frozen_adam, FrozenStepAttrs{}, {whole, whole},
        {updated(whole), run({ranks * part})});
    const Operand one = f32({1}), two{.spec = {Shape{2}, DType::f64}};
    add("local_momentum f32, scaled", OpKind::local_momentum, share, {whole, whole, whole, one},
        {whole});
    add("frozen_lamb_direction", OpKind::frozen_lamb_direction, FrozenStepAttrs{},
        {whole, whole, one, one},
        {updated(whole), updated(whole), updated(whole), whole, updated(one)});
    add("lamb of a frozen moment and bf16 copy", OpKind::lamb, LambAttrs{}, {whole, one, one},
        {updated(whole), run({ranks * part})});
    add("momentum_scale", OpKind::momentum_scale, {}, {whole, one}, {one});
    add("lamb_average", OpKind::lamb_average, LambAverageAttrs{}, {two}, {updated(one)});
    add("lamb_factor", OpKind::lamb_factor, LambFactorAttrs{}, {one, two}, {updated(one)});
    add("local_momentum f32, added up", OpKind::local_momentum, LocalMomentumAttrs{.weight = 4},
        {whole, whole}, {updated(whole), updated(whole)});
    add("local_weights bf16", OpKind::local_weights, FrozenStepAttrs{}, {whole, whole, whole},
        {run({ranks * part})});
    add("end_local_steps and bf16 copy", OpKind::end_local_steps, FrozenStepAttrs{}, {whole},
        {updated(whole), whole, updated(whole), run({ranks * part})});
  }

  const Shapes& shapes_;
};

}  // namespace

Shapes gpt2_shapes() {
  return {.vocabularies = {50257, 50304},
          .widths = {{768, 12, 16}, {1024, 16, 12}, {1600, 25, 8}},
          .heads = {{768, 12, 16}, {1600, 25, 8}, {768, 6, 16}, {1536, 12, 8}}};
}

Shapes tiny_shapes() {
  return {.seq = 32,
          .vocabularies = {65, 72},
          .widths = {{64, 1, 2}, {80, 1, 1}},
          .heads = {{64, 1, 1}, {128, 1, 1}},
          .parameters = 5000,
          .probe_size = 64,
          .probe_bytes = 1 << 16};
}

std::vector<Case> cases_of(const Shapes& shapes) {
  return List(shapes).make();
}

std::vector<TensorSpec> specs_of(const std::vector<Operand>& operands) {
  std::vector<TensorSpec> specs;
  for (const Operand& o : operands) specs.push_back(o.spec);
  return specs;
}

}  // namespace dstrain::bench
