#include "tests/kernels/parity/device_sample.h"
#include "tests/kernels/parity/ops/run_op.h"

namespace dstrain::parity {
namespace {

using Values = std::vector<double>;

struct UpdateInputs {
  int64_t n;
  DType grad_dtype;
  Values grad, p, m, v;

  explicit UpdateInputs(int64_t count, DType of_gradient = DType::f32)
      : n(count),
        grad_dtype(of_gradient),
        grad(rounded(normal_values(n, 1, 100), grad_dtype)),
        p(rounded(normal_values(n, 2), DType::f32)),
        m(rounded(normal_values(n, 3, 0.1), DType::f32)),
        v(rounded(uniform_values(n, 4, 0, 0.1), DType::f32)) {}
  Operand in() const { return {Shape{n}, grad_dtype, grad}; }
  Operand state(const Values& x) const { return {Shape{n}, DType::f32, x}; }
};

StepState adam_state(int t) {
  StepState s;
  s.lr = 0.01f;
  s.beta1 = 0.9;
  s.beta2 = 0.95;
  s.bias_correction1 = static_cast<float>(1 - std::pow(0.9, t));
  s.bias_correction2 = static_cast<float>(1 - std::pow(0.95, t));
  s.grad_scale = 0.01f;
  return s;
}

TEST_CASE("adam does one step of AdamW or of Adam with L2, and writes the rounded copy") {
  Sample sample = sample_if_emulated(1);
  for (int64_t n : {1, 16, 97, 40000})
    for (const auto& [decoupled, grad] :
         {std::pair{true, DType::f32}, std::pair{false, DType::f32}, std::pair{true, DType::bf16},
          std::pair{true, DType::f16}})
      for (DType copy : {DType::f32, DType::bf16, DType::f16}) {  // f32: without a copy
        if (!sample.takes()) continue;
        UpdateInputs o(n, grad);
        const StepState s = adam_state(3);
        Call call{OpKind::adam};
        call.state = &s;
        call.attrs = AdamAttrs{.eps = 1e-8f, .weight_decay = 0.1f, .decoupled_decay = decoupled};
        const auto out = run_everywhere(call, {o.in()},
                                        {o.state(o.p), o.state(o.m), o.state(o.v),
                                         copy == DType::f32 ? absent() : Operand{Shape{n}, copy}});
        for (size_t i = 0; i < o.p.size(); ++i) {
          const double wd = 0.1f;
          const double g = o.grad[i] * 0.01f + (decoupled ? 0 : wd * o.p[i]);
          o.m[i] = 0.9 * o.m[i] + (1 - 0.9) * g;
          o.v[i] = 0.95 * o.v[i] + (1 - 0.95) * g * g;
          const double step =
              o.m[i] / s.bias_correction1 / (std::sqrt(o.v[i] / s.bias_correction2) + 1e-8);
          o.p[i] -= 0.01f * (step + (decoupled ? wd * o.p[i] : 0));
        }
        require_close("p", out[0].values(), o.p, {2e-7, 2e-7});
        require_close("m", out[1].values(), o.m, {1e-6, 1e-7});
        require_close("v", out[2].values(), o.v, {1e-6, 1e-7});
        if (copy != DType::f32) CHECK(out[3].values() == rounded(out[0].values(), copy));
      }
}

TEST_CASE(
    "adam rounds 16-bit weights that are their own masters, and 16-bit moments, once a step") {
  for (const int64_t n : {1, 16, 97, 40000})
    for (const DType dtype : {DType::bf16, DType::f16})
      for (const DType grad : {DType::f32, dtype})
        for (const DType moments : {DType::f32, dtype}) {
          INFO(n << " " << name_of(dtype) << ", gradient " << name_of(grad) << ", moments "
                 << name_of(moments));
          UpdateInputs o(n, grad);
          o.p = rounded(o.p, dtype);
          o.m = rounded(o.m, moments);
          o.v = rounded(o.v, moments);
          const StepState s = adam_state(3);
          Call call{OpKind::adam};
          call.state = &s;
          call.attrs = AdamAttrs{.eps = 1e-8f, .weight_decay = 0.1f, .decoupled_decay = true};
          const Shape shape{n};
          const auto out = run_everywhere(
              call, {o.in()},
              {{shape, dtype, o.p}, {shape, moments, o.m}, {shape, moments, o.v}, absent()});
          for (size_t i = 0; i < o.p.size(); ++i) {
            const double g = o.grad[i] * 0.01f;
            o.m[i] = 0.9 * o.m[i] + (1 - 0.9) * g;
            o.v[i] = 0.95 * o.v[i] + (1 - 0.95) * g * g;
            const double step =
                o.m[i] / s.bias_correction1 / (std::sqrt(o.v[i] / s.bias_correction2) + 1e-8);
            o.p[i] -= 0.01f * (step + 0.1f * o.p[i]);
          }
          // Half a unit of the last place, and what f32 rounds before it.
          const auto unit = [](DType type) {
            return type == DType::bf16 ? 0x1p-8 : type == DType::f16 ? 0x1p-11 : 1e-6;
          };
          require_close("p", out[0].values(), o.p, {1.001 * unit(dtype), 1e-7});
          require_close("m", out[1].values(), o.m, {1.001 * unit(moments), 1e-7});
          require_close("v", out[2].values(), o.v, {1.001 * unit(moments), 1e-7});
        }
}

TEST_CASE("adam keeps betas close to one apart from one") {
  constexpr double beta1 = 0.999, beta2 = 0.99999;
  StepState s = adam_state(1);
  s.beta1 = beta1;
  s.beta2 = beta2;
  s.bias_correction1 = s.bias_correction2 = 1;  // as with bias_correction: false
  s.grad_scale = 1;
  constexpr size_t n = 64;
  const Values grad(n, 0.5);
  Values p(n, 1), m(n), v(n);
  double exact_p = 1, exact_m = 0, exact_v = 0;
  for (int step = 0; step < 300; ++step) {
    Call call{OpKind::adam};
    call.state = &s;
    call.attrs = AdamAttrs{.eps = 1e-8f, .decoupled_decay = true};
    const Operand g{Shape{n}, DType::f32, grad};
    const auto out = run_everywhere(call, {g},
                                    {{Shape{n}, DType::f32, p},
                                     {Shape{n}, DType::f32, m},
                                     {Shape{n}, DType::f32, v},
                                     absent()});
    p = out[0].values();
    m = out[1].values();
    v = out[2].values();
    exact_m = beta1 * exact_m + (1 - beta1) * 0.5;
    exact_v = beta2 * exact_v + (1 - beta2) * 0.25;
    exact_p -= static_cast<double>(0.01f) * exact_m / (std::sqrt(exact_v) + 1e-8);
  }
  require_close("m", m, Values(n, exact_m), {2e-6, 0});
  require_close("v", v, Values(n, exact_v), {2e-6, 0});
  require_close("p", p, Values(n, exact_p), {2e-6, 0});
}

TEST_CASE("an optimizer leaves everything as it is when the step is skipped") {
  const UpdateInputs o(97);
  StepState s = adam_state(1);
  s.skip = 1;
  for (OpKind op : {OpKind::adam, OpKind::sgd}) {
    Call call{op};
    call.state = &s;
    std::vector<Operand> states{o.state(o.p), o.state(o.m)};
    if (op == OpKind::adam) states.push_back(o.state(o.v));
    states.push_back({Shape{97}, DType::bf16, o.grad});
    const auto out = run_everywhere(call, {o.in()}, states);
    for (size_t i = 0; i < out.size(); ++i)
      CHECK(out[i].values() == rounded(states[i].values, states[i].dtype));
  }
  Call call{OpKind::adam};
  call.state = &s;
  const std::vector<Operand> own_masters{
      {Shape{97}, DType::bf16, o.p}, o.state(o.m), o.state(o.v), absent()};
  const auto out = run_everywhere(call, {o.in()}, own_masters);
  CHECK(out[0].values() == rounded(o.p, DType::bf16));
}

TEST_CASE("sgd follows torch over three steps, with every combination of its options") {
  for (double momentum : {0.0, 0.9})
    for (double dampening : {0.0, 0.5})
      for (bool nesterov : {false, true})
        for (double decay : {0.0, 0.1}) {
          if (nesterov && (momentum == 0 || dampening != 0)) continue;  // PyTorch refuses it
          INFO("momentum " << momentum << " dampening " << dampening << " nesterov " << nesterov);
          UpdateInputs o(97);
          Values buffer(97, 123), p = o.p, torch_p = o.p, torch_buffer;
          for (int step = 0; step < 3; ++step) {
            StepState s;
            s.lr = 0.1f;
            s.grad_scale = 0.5f;
            s.applied_steps = step;
            const auto grad =
                rounded(normal_values(97, 10 + static_cast<uint64_t>(step)), DType::f32);
            Call call{OpKind::sgd};
            call.state = &s;
            call.attrs = SgdAttrs{.weight_decay = static_cast<float>(decay),
                                  .momentum = static_cast<float>(momentum),
                                  .dampening = static_cast<float>(dampening),
                                  .nesterov = nesterov};
            const auto out = run_everywhere(
                call, {{Shape{97}, DType::f32, grad}},
                {o.state(p), momentum > 0 ? o.state(buffer) : absent(), {Shape{97}, DType::bf16}});
            p = out[0].values();
            if (momentum > 0) buffer = out[1].values();
            Values g(97);
            for (size_t i = 0; i < 97; ++i) g[i] = 0.5 * grad[i] + decay * torch_p[i];
            if (momentum > 0) {
              if (step == 0)
                torch_buffer = g;
              else
                for (size_t i = 0; i < 97; ++i)
                  torch_buffer[i] = momentum * torch_buffer[i] + (1 - dampening) * g[i];
              for (size_t i = 0; i < 97; ++i)
                g[i] = nesterov ? g[i] + momentum * torch_buffer[i] : torch_buffer[i];
            }
            for (size_t i = 0; i < 97; ++i) torch_p[i] -= static_cast<double>(0.1f) * g[i];
            require_close("p", p, torch_p, {1e-6, 1e-6});
            CHECK(out[2].values() == rounded(p, DType::bf16));
          }
        }
}

TEST_CASE("a 16-bit gradient updates as the same values in f32 do") {
  for (const DType grad : {DType::bf16, DType::f16})
    for (const OpKind op : {OpKind::adam, OpKind::sgd}) {
      const UpdateInputs narrow(97, grad);
      const StepState s = adam_state(2);
      Call call{op};
      call.state = &s;
      if (op == OpKind::sgd) call.attrs = SgdAttrs{.momentum = 0.9f};
      std::vector<Operand> states{narrow.state(narrow.p), narrow.state(narrow.m)};
      if (op == OpKind::adam) states.push_back(narrow.state(narrow.v));
      states.push_back({Shape{97}, grad});
      const auto a = run_everywhere(call, {narrow.in()}, states);
      const auto b = run_everywhere(call, {narrow.state(narrow.grad)}, states);
      for (size_t i = 0; i < a.size(); ++i)
        require_same_bits("output " + std::to_string(i), a[i], b[i]);
    }
}

// What updates by a share of the learning rate: an optimizer's op with weight decay, of moments and a 16-bit copy.
struct ScaledUpdate {
  OpKind op;
  OpAttrs whole, share;  // lr_scale 1 and another
  std::vector<Operand> in, out;
};

std::vector<ScaledUpdate> scaled_updates(const UpdateInputs& o, float share) {
  const Shape shape{o.n};
  const Operand p = o.state(o.p), m = o.state(o.m), v = o.state(o.v), copy{shape, DType::bf16};
  std::vector<ScaledUpdate> list;
  const auto add = [&](OpKind op, auto attrs, std::vector<Operand> in, std::vector<Operand> out) {
    const OpAttrs whole = attrs;
    attrs.lr_scale = share;
    list.push_back({op, whole, attrs, std::move(in), std::move(out)});
  };
  for (const bool decoupled : {false, true})
    for (const bool beside_muon : {false, true}) {
      const AdamAttrs attrs{
          .weight_decay = 0.1f, .decoupled_decay = decoupled, .beside_muon = beside_muon};
      add(OpKind::adam, attrs, {o.in()}, {p, m, v, copy});
      add(OpKind::adam, attrs, {o.in()}, {{shape, DType::f16, o.p}, m, v, absent()});
    }
  for (const float momentum : {0.0f, 0.9f})
    add(OpKind::sgd, SgdAttrs{.weight_decay = 0.1f, .momentum = momentum}, {o.in()},
        {p, momentum > 0 ? m : absent(), copy});
  add(OpKind::adagrad, AdagradAttrs{.weight_decay = 0.1f}, {o.in()}, {p, v, copy});
  add(OpKind::lion, LionAttrs{.weight_decay = 0.1f}, {o.in()}, {p, m, copy});
  add(OpKind::lamb, LambAttrs{}, {m, {Shape{2}, DType::f64, {3, 2}}}, {p, copy});
  add(OpKind::muon, MuonAttrs{.weight_decay = 0.1f, .scale = 1.5f}, {m}, {p, copy});
  return list;
}

TEST_CASE("lr_scale multiplies the learning rate of every optimizer, and of its decoupled decay") {
  const UpdateInputs o(97);
  StepState state = adam_state(2);
  state.adam_lr = 0.03f;
  state.applied_steps = 1;
  for (const float share : {0.25f, 0.3f, 1.0f}) {
    StepState slower = state;
    slower.lr *= share;
    slower.adam_lr *= share;
    for (const ScaledUpdate& u : scaled_updates(o, share)) {
      INFO(name_of(u.op) << " at " << share);
      const auto scaled = run_everywhere({u.op, u.share, 1, &state}, u.in, u.out),
                 expected = run_everywhere({u.op, u.whole, 1, &slower}, u.in, u.out),
                 whole = run_everywhere({u.op, u.whole, 1, &state}, u.in, u.out);
      for (size_t i = 0; i < scaled.size(); ++i)
        require_same_bits("output " + std::to_string(i), scaled[i], expected[i]);
      CHECK((scaled[0].values() == whole[0].values()) == (share == 1));
    }
  }
}

TEST_CASE("at lr_scale 0 the weights stay, and the optimizer's state moves on") {
  const UpdateInputs o(97);
  StepState state = adam_state(2);
  state.adam_lr = 0.03f;
  state.applied_steps = 1;
  for (const ScaledUpdate& u : scaled_updates(o, 0)) {
    INFO(name_of(u.op));
    const auto still = run_everywhere({u.op, u.share, 1, &state}, u.in, u.out),
               whole = run_everywhere({u.op, u.whole, 1, &state}, u.in, u.out);
    const Operand& weights = u.out[0];
    CHECK(still[0].values() == rounded(weights.values, weights.dtype));
    CHECK(whole[0].values() != still[0].values());
    for (size_t i = 1; i < still.size(); ++i)
      if (u.out[i].values.empty() && u.out[i].shape.elements() > 0)
        CHECK(still[i].values() == rounded(weights.values, u.out[i].dtype));
      else
        require_same_bits("state " + std::to_string(i), still[i], whole[i]);
  }
}

TEST_CASE("an element's update has the same bits in every slice") {
  const StepState s = adam_state(2);
  for (const auto& [grad, copy] :
       {std::pair{DType::f32, DType::bf16}, std::pair{DType::f32, DType::f16},
        std::pair{DType::bf16, DType::bf16}, std::pair{DType::f16, DType::f16}}) {
    const UpdateInputs o(97, grad);
    Call call{OpKind::adam};
    call.state = &s;
    call.attrs = AdamAttrs{.weight_decay = 0.1f};
    require_slices_agree(call, {o.in()},
                         {o.state(o.p), o.state(o.m), o.state(o.v), {Shape{97}, copy}});
    call.op = OpKind::sgd;
    call.attrs = SgdAttrs{.weight_decay = 0.1f, .momentum = 0.9f};
    require_slices_agree(call, {o.in()}, {o.state(o.p), o.state(o.m), {Shape{97}, copy}});
  }
}

}  // namespace
}  // namespace dstrain::parity
