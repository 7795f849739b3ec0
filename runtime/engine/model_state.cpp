#include "runtime/engine/model_state.h"

#include "kernels/cpu/simd/init_weights.h"
#include "runtime/core/error.h"
#include "runtime/core/philox.h"

namespace dstrain {
namespace {

constexpr std::array<std::string_view, 7> kScalarNames = {
    "step",       "applied_steps", "first_sample",    "loss_scale",
    "hysteresis", "last_overflow", "scaler_iteration"};

}  // namespace

void TrainerScalars::store(const StepState& s) {
  values = {static_cast<double>(s.step),
            static_cast<double>(s.applied_steps),
            static_cast<double>(s.first_sample),
            s.next_loss_scale,
            static_cast<double>(s.hysteresis),
            static_cast<double>(s.last_overflow),
            static_cast<double>(s.scaler_iteration)};
}

void TrainerScalars::load(StepState& s) const {
  s.step = static_cast<int64_t>(values[0]);
  s.applied_steps = static_cast<int64_t>(values[1]);
  s.first_sample = static_cast<int64_t>(values[2]);
  s.next_loss_scale = static_cast<float>(values[3]);
  s.hysteresis = static_cast<int32_t>(values[4]);
  s.last_overflow = static_cast<int64_t>(values[5]);
  s.scaler_iteration = static_cast<int64_t>(values[6]);
}

void TrainerScalars::add_to(StateRegister& registered) {
  for (size_t i = 0; i < values.size(); ++i)
    registered.push_back({.name = "trainer",
                          .slot = std::string(kScalarNames[i]),
                          .global_shape = {1},
                          .dtype = DType::f64,
                          .local = {&values[i], {1}, DType::f64}});
}

Tensor ModelState::slice(std::string_view unit_buffer, const Parameter& p) const {
  const Program& program = plan_.program;
  const Unit& unit = program.units[static_cast<size_t>(p.unit)];
  const BufferId id = program.find(fmt::format("{}:{}", unit_buffer, unit.name));
  if (id == kNone) return {};
  Tensor t = arenas_.tensor(plan_, id);
  t.data = static_cast<std::byte*>(t.data) + p.offset * size_of(t.dtype);
  t.shape = {p.shape.elements()};
  return t;
}

Tensor ModelState::master(const Parameter& p) const {
  return slice(plan_.program.dtype == DType::f32 ? "params" : "master", p);
}

void ModelState::initialize(uint64_t seed) const {
  for (const Parameter& p : plan_.program.parameters) {
    const Tensor t = master(p);
    const PhiloxKey key = stream_key(seed, hash_name(p.name));
    switch (p.init) {
      case Init::zeros:
        std::fill_n(t.as<float>(), t.elements(), 0.0f);
        break;
      case Init::ones:
        std::fill_n(t.as<float>(), t.elements(), 1.0f);
        break;
      case Init::normal:
        fill_normal(t.as<float>(), 0, t.elements(), p.init_scale, key, threads_);
        break;
      case Init::uniform:
        fill_uniform(t.as<float>(), 0, t.elements(), p.init_scale, key, threads_);
        break;
    }
  }
  publish_masters();
}

void ModelState::publish_masters() const {
  const DType dtype = plan_.program.dtype;
  if (dtype == DType::f32) return;
  for (const Parameter& p : plan_.program.parameters) {
    const Tensor from = master(p), to = slice("params", p);
    const auto* values = from.as<const float>();
    const int64_t n = from.elements();
#pragma omp parallel for num_threads(threads_) schedule(static)
    for (int64_t i = 0; i < n; ++i) {
      if (dtype == DType::bf16)
        to.as<bf16>()[i] = to_bf16(values[i]);
      else
        to.as<f16>()[i] = to_f16(values[i]);
    }
  }
}

StateRegister ModelState::weights() const {
  StateRegister list;
  for (const Parameter& p : plan_.program.parameters)
    list.push_back({.name = p.name,
                    .slot = "master",
                    .global_shape = p.shape,
                    .local = master(p),
                    .owner = plan_.place.rank == 0});
  return list;
}

StateRegister ModelState::everything() const {
  StateRegister list = weights();
  for (const std::string_view slot : {"exp_avg", "exp_avg_sq", "momentum"})
    for (const Parameter& p : plan_.program.parameters)
      if (const Tensor t = slice(slot, p))
        list.push_back({.name = p.name,
                        .slot = std::string(slot),
                        .global_shape = p.shape,
                        .local = t,
                        .owner = plan_.place.rank == 0});
  return list;
}

}  // namespace dstrain
