// The kernels that compute in the same order as the CPU's give the CPU's bits on every device.
#include "kernels/cpu/memory_bound/memory_bound.h"
#include "runtime/ir/quantized.h"
#include "tests/kernels/parity/ops/run_op.h"

namespace dstrain::parity {
namespace {

const CpuFamily kProcessor{make_memory_bound, memory_bound_workspace_bytes};

void require_processor_bits(const Call& call, const std::vector<Operand>& in,
                            const std::vector<Operand>& out) {
  for (int64_t start : {0, 1}) {
    const std::vector<Guarded> here = run_at_offset(call, in, out, start);
    const std::vector<Guarded> there = run_at_offset(call, in, out, start, kProcessor);
    for (size_t i = 0; i < here.size(); ++i) {
      INFO(name_of(call.op) << " start " << start);
      require_same_bits("output " + std::to_string(i), here[i], there[i]);
    }
  }
}

struct OpInputs {
  int64_t r = 21, c = 53, v = 300;
  StepState state;
  Call call{};

  OpInputs() {
    state.seed = 11;
    state.first_sample = 0x1'0000'0002;
    state.lr = 0.01f;
    state.adam_lr = 0.02f;
    state.grad_scale = 0.3f;
    state.bias_correction1 = 0.271f;
    state.bias_correction2 = 0.143f;
    state.applied_steps = 2;
    call.state = &state;
    call.sample_offset = 3;
  }
  Call with(OpKind op, const OpAttrs& attrs = {}) const {
    Call with_op = call;
    with_op.op = op;
    with_op.attrs = attrs;
    return with_op;
  }
  Operand rows(DType dtype, uint64_t seed) const {
    return {Shape{r, c}, dtype, normal_values(r * c, seed)};
  }
  Operand flat(DType dtype, uint64_t seed) const {
    return {Shape{r * c}, dtype, uniform_values(r * c, seed, 0, 1)};
  }
  Operand ids() const { return {Shape{r}, DType::i32, integer_values(r, 9, 0, v)}; }
};

TEST_CASE("element by element ops have the processor's bits") {
  const OpInputs o;
  const ActivationAttrs relu{Activation::relu};
  const DropoutAttrs dropout{.dropout = 0.2f, .site = 5, .seq_len = 7};
  for (DType dtype : kRunTypes) {
    const Operand out{Shape{o.r, o.c}, dtype};
    require_processor_bits(o.with(OpKind::add), {o.rows(dtype, 1), o.rows(dtype, 2)}, {out});
    require_processor_bits(o.with(OpKind::scale, ScaleAttrs{0.3f}), {o.rows(dtype, 1)}, {out});
    require_processor_bits(o.with(OpKind::activation, relu), {o.rows(dtype, 1)}, {out});
    require_processor_bits(o.with(OpKind::activation_grad, relu),
                           {o.rows(dtype, 1), o.rows(dtype, 2)}, {out});
    require_processor_bits(o.with(OpKind::add_dropout, dropout),
                           {o.rows(dtype, 1), o.rows(dtype, 2)}, {out});
    require_processor_bits(o.with(OpKind::dropout_grad, dropout), {o.rows(dtype, 1)}, {out});
    require_processor_bits(o.with(OpKind::embed, EmbedAttrs{7}),
                           {o.ids(),
                            {Shape{o.v, o.c}, dtype, normal_values(o.v * o.c, 3)},
                            {Shape{7, o.c}, dtype, normal_values(7 * o.c, 4)}},
                           {out});
  }
}

TEST_CASE("gradients of the tables have the processor's bits, written or added") {
  const OpInputs o;
  for (DType dtype : kRunTypes)
    for (bool accumulate : {false, true}) {
      const auto table = [&](int64_t n) {
        return Operand{Shape{n, o.c}, DType::f32, normal_values(n * o.c, 6)};
      };
      Call call = o.with(OpKind::embed_token_grad);
      call.accumulate = accumulate;
      require_processor_bits(call, {o.rows(dtype, 1), o.ids()}, {table(o.v)});
      call.op = OpKind::embed_position_grad;
      call.attrs = EmbedAttrs{7};
      require_processor_bits(call, {o.rows(dtype, 1)}, {table(7)});
      const Operand documents{Shape{o.r}, DType::i32, documents_of_samples(o.r / 7, 7)};
      require_processor_bits(call, {o.rows(dtype, 1), documents}, {table(7)});
    }
}

TEST_CASE("parts of rows, tokens and columns have the processor's bits") {
  const OpInputs o;
  const RowsPart part{5, 35};
  const EmbedAttrs rows{.seq_len = 7, .part = part};
  const EmbedAttrs tokens{.seq_len = 7, .part = part, .tokens = 90, .first_token = 100};
  const DropoutAttrs dropout{.dropout = 0.2f, .site = 5, .seq_len = 7, .part = part};
  std::vector<double> begins = documents_of_samples(5, 7);
  const Operand documents{Shape{o.r}, DType::i32, {begins.begin() + 5, begins.begin() + 5 + o.r}};
  for (DType dtype : kRunTypes) {
    const Operand x = o.rows(dtype, 1), out{x.shape, dtype};
    const auto table = [&](int64_t n, DType of) {
      return Operand{Shape{n, o.c}, of, normal_values(n * o.c, 3)};
    };
    require_processor_bits(o.with(OpKind::add_dropout, dropout), {x, o.rows(dtype, 2)}, {out});
    require_processor_bits(o.with(OpKind::dropout_grad, dropout), {x}, {out});
    require_processor_bits(o.with(OpKind::embed, rows),
                           {o.ids(), table(o.v, dtype), table(7, dtype), documents}, {out});
    require_processor_bits(o.with(OpKind::embed, tokens), {o.ids(), table(96, dtype)}, {out});
    require_processor_bits(o.with(OpKind::add_rows, rows), {x, table(7, dtype), documents}, {out});
    for (bool accumulate : {false, true}) {
      Call call = o.with(OpKind::embed_token_grad, tokens);
      call.accumulate = accumulate;
      require_processor_bits(call, {x, o.ids()}, {table(96, DType::f32)});
      call.op = OpKind::embed_position_grad;
      call.attrs = rows;
      require_processor_bits(call, {x}, {table(9, DType::f32)});
      require_processor_bits(call, {x, documents}, {table(9, DType::f32)});
    }
    for (const int64_t width : {5, 16}) {
      const ColumnsAttrs columns{.parts = 6, .sections = 2, .copies = 3};
      const Shape whole{o.r, 2 * 2 * width}, split{6, o.r, 2 * width};
      const auto values = [&](const Shape& shape) {
        return Operand{shape, dtype, normal_values(shape.elements(), 7)};
      };
      require_processor_bits(o.with(OpKind::split_columns, columns), {values(whole)},
                             {{split, dtype}});
      require_processor_bits(o.with(OpKind::join_columns, columns), {values(split)},
                             {{whole, dtype}});
    }
  }
}

TEST_CASE("what moves and sums flat ranges has the processor's bits") {
  const OpInputs o;
  for (DType from : kRunTypes)
    for (DType to : kRunTypes) {
      require_processor_bits(o.with(OpKind::cast), {o.flat(from, 1)}, {{Shape{o.r * o.c}, to}});
      Call call = o.with(OpKind::accumulate);
      call.accumulate = true;
      require_processor_bits(call, {o.flat(from, 1)}, {o.flat(to, 2)});
      call.op = OpKind::round_wire;
      call.attrs = WireAttrs{to};
      Operand in_place = o.flat(DType::f32, 3);
      in_place.same_as = 0;
      require_processor_bits(call, {o.flat(DType::f32, 3)}, {in_place});
    }
  const int64_t n = 3 * 4096 + 100;
  const Shape packed{quantized_bytes(n)};
  for (DType dtype : kRunTypes) {
    require_processor_bits(o.with(OpKind::quantize), {{Shape{n}, dtype, normal_values(n, 4, 10)}},
                           {{packed, DType::u8}});
    // Scales are bytes from 0 to 63, so that none is NaN.
    require_processor_bits(o.with(OpKind::dequantize),
                           {{packed, DType::u8, integer_values(quantized_bytes(n), 7, 0, 64)}},
                           {{Shape{n}, dtype}});
  }
  const int64_t senders = 3, sums = 2, part = 2 * 4096 + 51;
  const auto parts = [&](int64_t count) { return Shape{count, int4_bytes(part)}; };
  const Shape received{senders, sums, int4_bytes(part)};
  // Bytes from 0 to 63 as above.
  const Operand codes{received, DType::u8, integer_values(received.elements(), 7, 0, 64)};
  for (DType dtype : kRunTypes) {
    require_processor_bits(o.with(OpKind::quantize_int4, Int4Attrs{.part = part, .group = 3}),
                           {{Shape{6 * part}, dtype, normal_values(6 * part, 4, 10)}},
                           {{parts(6), DType::u8}});
    for (const bool accumulate : {false, true}) {
      Call call = o.with(OpKind::sum_int4, Int4Attrs{.part = part});
      call.accumulate = accumulate;
      require_processor_bits(call, {codes},
                             {{Shape{sums * part}, dtype, normal_values(sums * part, 8)}});
    }
    require_processor_bits(
        o.with(OpKind::error_squares),
        {{Shape{n}, DType::f32, normal_values(n, 4)}, {Shape{n}, dtype, normal_values(n, 5)}},
        {{Shape{2}, DType::f64}});
  }
  require_processor_bits(o.with(OpKind::requantize_int4, Int4Attrs{.part = part}), {codes},
                         {{parts(sums), DType::u8}});
  const Int4Attrs kept{.part = part, .group = 3, .error_beta = 0.8f, .error_steps = 1024};
  const auto errors = [&](int64_t count) {
    const Shape shape{count, quantized_bytes(part)};
    return Operand{shape, DType::u8, integer_values(shape.elements(), 9, 0, 64)};
  };
  for (DType dtype : kRunTypes)
    require_processor_bits(o.with(OpKind::quantize_int4, kept),
                           {{Shape{6 * part}, dtype, normal_values(6 * part, 4, 10)}, errors(6)},
                           {{parts(6), DType::u8}, errors(6)});
  require_processor_bits(o.with(OpKind::requantize_int4, kept), {codes, errors(sums)},
                         {{parts(sums), DType::u8}, errors(sums)});
  for (DType dtype : kRunTypes)
    require_processor_bits(o.with(OpKind::sum_squares),
                           {{Shape{n}, dtype, normal_values(n, 4, 10)}}, {{Shape{1}, DType::f64}});
}

TEST_CASE("running sums and orders have the processor's bits") {
  const OpInputs o;
  for (const DType dtype : kRunTypes)
    for (const Lines lines : {Lines{o.r * o.c, 1}, Lines{o.r, o.c}}) {
      require_processor_bits(o.with(OpKind::scan, ScanAttrs{.lines = lines, .reversed = true}),
                             {o.rows(dtype, 3)}, {{Shape{o.r, o.c}, DType::f32}});
      require_processor_bits(o.with(OpKind::sort, SortAttrs{.lines = lines, .kept = 9}),
                             {o.rows(dtype, 4)}, {{Shape{lines.count(o.r * o.c) * 9}, DType::i32}});
    }
}

TEST_CASE("draws have the processor's bits") {
  const OpInputs o;
  for (const int64_t inner : {o.c, o.c * 3, int64_t{1}})
    require_processor_bits(o.with(OpKind::uniform, UniformAttrs{.samples = 7, .inner = inner}), {},
                           {{Shape{3, 7, inner}, DType::f32}});
}

TEST_CASE("unpacked weights have the processor's bits") {
  const OpInputs o;
  const int64_t n = 3 * kWeightGroup + 77;
  for (const BlockFormat format : {BlockFormat::int8, BlockFormat::nf4})
    for (DType dtype : kRunTypes) {
      // Bytes from 0 to 63, so that no scale is NaN.
      const Shape packed{packed_bytes(format, n)};
      require_processor_bits(o.with(OpKind::unpack_weight, UnpackAttrs{format}),
                             {{packed, DType::u8, integer_values(packed.elements(), 7, 0, 64)}},
                             {{Shape{n}, dtype}});
    }
}

TEST_CASE("signs and their errors have the processor's bits") {
  const OpInputs o;
  const int64_t parts = 3, n = 2 * 4096 + 51, bytes = sign_bytes(n);
  const auto values = [](int64_t count, uint64_t seed) {
    return Operand{Shape{count}, DType::f32, normal_values(count, seed)};
  };
  // Scales are bytes from 0 to 63, so that none is NaN.
  const Operand packed{Shape{parts, bytes}, DType::u8, integer_values(parts * bytes, 7, 0, 64)};
  require_processor_bits(o.with(OpKind::quantize_signs), {values(parts * n, 1)},
                         {{Shape{parts, bytes}, DType::u8}, values(parts * n, 2)});
  require_processor_bits(o.with(OpKind::requantize_signs), {packed},
                         {{Shape{bytes}, DType::u8}, values(n, 3)});
  require_processor_bits(o.with(OpKind::dequantize_signs), {packed},
                         {{Shape{parts * n}, DType::f32}});
  const int64_t whole = 8 * 1031;
  const Operand bits{Shape{whole / 8}, DType::u8, integer_values(whole / 8, 8, 0, 256)};
  require_processor_bits(o.with(OpKind::positive_bits), {values(whole, 4)},
                         {{bits.shape, DType::u8}});
  require_processor_bits(o.with(OpKind::local_momentum, LocalMomentumAttrs{.share = 1.0f / 3}),
                         {values(whole, 5), bits}, {values(whole, 6)});
}

TEST_CASE("updates have the processor's bits") {
  const OpInputs o;
  for (DType grad : kRunTypes)
    for (DType copy : kRunTypes) {
      const Operand param = copy == DType::f32 ? absent() : Operand{Shape{o.r * o.c}, copy};
      const Operand master = o.flat(DType::f32, 2), m = o.flat(DType::f32, 3);
      for (bool decoupled : {false, true}) {
        const Call call =
            o.with(OpKind::adam,
                   AdamAttrs{.eps = 1e-5f, .weight_decay = 0.1f, .decoupled_decay = decoupled});
        require_processor_bits(call, {o.flat(grad, 1)}, {master, m, o.flat(DType::f32, 4), param});
      }
      for (const DType own : {DType::bf16, DType::f16})
        for (const DType moments : {DType::f32, own})
          if (grad == DType::f32 || grad == own)
            require_processor_bits(
                o.with(OpKind::adam, AdamAttrs{.eps = 1e-5f, .weight_decay = 0.1f}),
                {o.flat(grad, 1)}, {o.flat(own, 2), o.flat(moments, 3), o.flat(moments, 4)});
      for (bool nesterov : {false, true}) {
        const Call call = o.with(
            OpKind::sgd,
            SgdAttrs{
                .weight_decay = 0.1f, .momentum = 0.9f, .dampening = 0.1f, .nesterov = nesterov});
        require_processor_bits(call, {o.flat(grad, 1)}, {master, m, param});
      }
      const Operand sum = o.flat(DType::f32, 5);
      const Operand v = o.flat(DType::f32, 4), one{Shape{1}, DType::f32, {0.5}};
      const Call momentum =
          o.with(OpKind::local_momentum, LocalMomentumAttrs{.share = 1.0f / 3, .weight = 3});
      require_processor_bits(momentum, {o.flat(grad, 1), v}, {m});
      require_processor_bits(momentum, {o.flat(grad, 1), v}, {m, sum});
      require_processor_bits(momentum, {o.flat(grad, 1), v, m, one}, {{master.shape, DType::f32}});
      require_processor_bits(o.with(OpKind::frozen_adam, FrozenStepAttrs{1e-5f, 0.1f}),
                             {m, o.flat(DType::f32, 4)}, {master, param});
      require_processor_bits(
          o.with(OpKind::frozen_lamb_direction, FrozenStepAttrs{1e-5f, 0.1f}),
          {o.flat(DType::f32, 4), master, one, one},
          {m, sum, sum, {master.shape, DType::f32}, {Shape{1}, DType::f32, {0}}});
      require_processor_bits(o.with(OpKind::lamb, LambAttrs{}), {m, one, one}, {master, param});
      require_processor_bits(o.with(OpKind::momentum_scale), {m, {Shape{1}, DType::f32, {0}}},
                             {{Shape{1}, DType::f32}});
      require_processor_bits(o.with(OpKind::lamb_average, LambAverageAttrs{}),
                             {{Shape{8}, DType::f64, {1, 2, 3, 4, 5, 6, 7, 8}}},
                             {{Shape{2}, DType::f32, {1, 2}}});
      require_processor_bits(o.with(OpKind::lamb_factor, LambFactorAttrs{}),
                             {{Shape{2}, DType::f32, {1, 2}}, {Shape{4}, DType::f64, {1, 2, 0, 0}}},
                             {{Shape{2}, DType::f32, {1, 2}}});
      require_processor_bits(o.with(OpKind::local_weights, FrozenStepAttrs{1e-5f, 0.1f}),
                             {master, o.flat(DType::f32, 4), m}, {{master.shape, copy}});
      require_processor_bits(o.with(OpKind::end_local_steps, FrozenStepAttrs{1e-5f, 0.1f}),
                             {o.flat(DType::f32, 4)}, {master, sum, m, {master.shape, copy}});
      require_processor_bits(o.with(OpKind::adagrad, AdagradAttrs{.weight_decay = 0.1f}),
                             {o.flat(grad, 1)}, {master, sum, param});
      require_processor_bits(o.with(OpKind::lion, LionAttrs{.weight_decay = 0.1f}),
                             {o.flat(grad, 1)}, {master, m, param});
      const int64_t n = master.shape.elements(), blocks = (n + 255) / 256;
      const Operand codes{master.shape, DType::u8, integer_values(n, 6, 0, 256)},
          absmax{Shape{blocks}, DType::f32, uniform_values(blocks, 7, 0.01, 1)};
      require_processor_bits(o.with(OpKind::adam_8bit, AdamAttrs{.weight_decay = 0.1f}),
                             {o.flat(grad, 1)}, {master, codes, absmax, codes, absmax, param});
      require_processor_bits(o.with(OpKind::lion_8bit, LionAttrs{.weight_decay = 0.1f}),
                             {o.flat(grad, 1)}, {master, codes, absmax, param});
      require_processor_bits(
          o.with(OpKind::lamb_direction, LambDirectionAttrs{.eps = 1e-5f, .weight_decay = 0.1f}),
          {o.flat(grad, 1), master}, {m, o.flat(DType::f32, 4), {master.shape, DType::f32}});
      require_processor_bits(o.with(OpKind::lamb, LambAttrs{.parameters = 2}),
                             {m, {Shape{8}, DType::f64, {1, 2, 3, 4, 5, 6, 7, 8}}},
                             {master, param});
      require_processor_bits(o.with(OpKind::muon_momentum), {o.flat(grad, 1)},
                             {m, {master.shape, DType::f32}});
      require_processor_bits(o.with(OpKind::muon, MuonAttrs{.weight_decay = 0.1f, .scale = 2.5f}),
                             {m}, {master, param});
    }
}

TEST_CASE("updates by a share of the learning rate have the processor's bits") {
  const OpInputs o;
  const auto one = [&](uint64_t seed) { return o.flat(DType::f32, seed); };
  const Operand param{Shape{o.r * o.c}, DType::bf16};
  for (const float share : {0.25f, 0.3f, 0.0f}) {
    const auto require = [&](OpKind op, const OpAttrs& attrs, const std::vector<Operand>& in,
                             const std::vector<Operand>& out) {
      INFO("lr_scale " << share);
      require_processor_bits(o.with(op, attrs), in, out);
    };
    for (const bool beside_muon : {false, true}) {
      const AdamAttrs adam{.weight_decay = 0.1f, .beside_muon = beside_muon, .lr_scale = share};
      require(OpKind::adam, adam, {one(1)}, {one(2), one(3), one(4), param});
      require(OpKind::adam, adam, {one(1)}, {o.flat(DType::bf16, 2), one(3), one(4)});
    }
    require(OpKind::sgd, SgdAttrs{.weight_decay = 0.1f, .momentum = 0.9f, .lr_scale = share},
            {one(1)}, {one(2), one(3), param});
    require(OpKind::adagrad, AdagradAttrs{.weight_decay = 0.1f, .lr_scale = share}, {one(1)},
            {one(2), one(3), param});
    require(OpKind::lion, LionAttrs{.weight_decay = 0.1f, .lr_scale = share}, {one(1)},
            {one(2), one(3), param});
    require(OpKind::lamb, LambAttrs{.parameters = 1, .lr_scale = share},
            {one(1), {Shape{4}, DType::f64, {1, 2, 3, 4}}}, {one(2), param});
    require(OpKind::muon, MuonAttrs{.weight_decay = 0.1f, .scale = 2.5f, .lr_scale = share},
            {one(1)}, {one(2), param});
  }
}

TEST_CASE("low-rank factors have the processor's bits") {
  const OpInputs o;
  for (const auto& [n, k, rank] :
       {std::array<int64_t, 3>{7, 5, 2}, {1, 1, 1}, {300, 257, 3}, {17, 241, 1}}) {
    const Operand m{Shape{n, k}, DType::f32, normal_values(n * k, 1)},
        p{Shape{rank, n}, DType::f32, normal_values(rank * n, 2)},
        b{Shape{rank, k}, DType::f32, normal_values(rank * k, 3)};
    require_processor_bits(o.with(OpKind::project_rows), {m, b}, {{p.shape, DType::f32}});
    require_processor_bits(o.with(OpKind::project_columns), {m, p}, {{b.shape, DType::f32}});
    require_processor_bits(o.with(OpKind::expand_factors, ExpandAttrs{.ranks = 3}), {p, b, m},
                           {{m.shape, DType::f32, {}, 2}, {m.shape, DType::f32}});
    require_processor_bits(o.with(OpKind::random_factor, RandomFactorAttrs{1, 2}), {},
                           {{p.shape, DType::f32}});
    require_processor_bits(o.with(OpKind::gram_schmidt), {p}, {{p.shape, DType::f32, {}, 0}});
    require_processor_bits(o.with(OpKind::add_error), {m}, {m});
    require_processor_bits(o.with(OpKind::commit_state, CommitAttrs{.unscale = true}), {m}, {m});
    require_processor_bits(o.with(OpKind::update_buffer, UpdateBufferAttrs{0.9f, 0.1f}), {m}, {m});
  }
}

}  // namespace
}  // namespace dstrain::parity
