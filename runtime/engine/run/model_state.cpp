#include "runtime/engine/run/model_state.h"

#include <algorithm>

#include "runtime/core/error.h"
#include "runtime/core/philox.h"
#include "runtime/optim/optimizer_rule.h"

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

std::string_view ModelState::master_name() const {
  const Program& program = plan_.program;
  return program.find("master:" + program.units.front().name) == kNone ? "params" : "master";
}

ModelState::Piece ModelState::piece(std::string_view unit_buffer, const Parameter& p) const {
  const Program& program = plan_.program;
  const Unit& unit = program.units[static_cast<size_t>(p.unit)];
  const BufferId id = program.find(fmt::format("{}:{}", unit_buffer, unit.name));
  if (id == kNone) return {};
  const Buffer& buffer = program.at(id);
  const auto [begin, end] = common(range_of(buffer, unit, plan_.place), elements_of(p));
  if (begin >= end) return {};
  Tensor t = arenas_.tensor(plan_, id);
  t.data = static_cast<std::byte*>(t.data) +
           position_of(buffer, unit, plan_.place, begin) * size_of(t.dtype);
  t.shape = {end - begin};
  return {begin - p.offset, t, arenas_.owner_of(plan_, id)};
}

void ModelState::initialize(uint64_t seed, const Implementations& implementations) const {
  for (const Parameter& p : plan_.program.parameters) {
    const Piece held = master(p);
    const int64_t first = held.begin;
    const Tensor& t = held.values;
    if (!t) continue;
    const PhiloxKey key = stream_key(seed, hash_name(p.name));
    on_host(held.owner, t, HostAccess::write, [&](int64_t at, const Tensor& values) {
      auto* const v = values.as<float>();
      const int64_t n = values.elements();
      switch (p.init) {
        case Init::zeros:
          std::fill_n(v, n, 0.0f);
          break;
        case Init::ones:
          std::fill_n(v, n, 1.0f);
          break;
        case Init::normal:
          implementations.fill_normal(v, first + at, n, p.init_scale, key, threads_);
          break;
        case Init::uniform:
          implementations.fill_uniform(v, first + at, n, p.init_scale, key, threads_);
          break;
      }
    });
  }
  publish_masters();
}

void ModelState::publish_masters() const {
  for (const Unit& unit : plan_.program.units) publish(unit);
}

void ModelState::publish(const Unit& unit) const {
  const Program& program = plan_.program;
  const BufferId master_id = program.find(fmt::format("{}:{}", master_name(), unit.name));
  const BufferId params_id = program.find("params:" + unit.name);
  const Range from = range_of(program.at(master_id), unit, plan_.place);
  const Tensor params = arenas_.tensor(plan_, params_id);
  const int64_t at = position_of(program.at(params_id), unit, plan_.place, from.begin);
  const Tensor mine{
      params.as<std::byte>() + at * size_of(params.dtype), {from.size()}, params.dtype};
  if (master_id != params_id) round_masters(master_id, mine, arenas_.owner_of(plan_, params_id));
  if (mine.elements() == params.elements()) return;
  const bool shard = held_in(program.at(params_id), unit, plan_.place) == Held::shard;
  (shard ? mesh_.replicas() : mesh_.data()).all_gather(mine, params).wait();
}

void ModelState::round_masters(BufferId masters_id, const Tensor& to, RemoteMemory* owner) const {
  const DType dtype = to.dtype;
  const auto round = [&](const Tensor& masters, const Tensor& narrow) {
    const auto* values = masters.as<const float>();
#pragma omp parallel for num_threads(threads_) schedule(static)
    for (int64_t i = 0; i < masters.elements(); ++i) {
      if (dtype == DType::bf16)
        narrow.as<bf16>()[i] = to_bf16(values[i]);
      else if (dtype == DType::f16)
        narrow.as<f16>()[i] = to_f16(values[i]);
      else
        narrow.as<float>()[i] = values[i];
    }
  };
  on_host(arenas_.owner_of(plan_, masters_id), arenas_.tensor(plan_, masters_id), HostAccess::read,
          [&](int64_t at, const Tensor& masters) {
            const Tensor part{to.as<std::byte>() + at * size_of(dtype), masters.shape, dtype};
            on_host(owner, part, HostAccess::write,
                    [&](int64_t, const Tensor& narrow) { round(masters, narrow); });
          });
}

void ModelState::append(std::string_view unit_buffer, std::string_view slot,
                        StateRegister& list) const {
  const Program& program = plan_.program;
  const BufferId first =
      program.find(fmt::format("{}:{}", unit_buffer, program.units.front().name));
  if (first == kNone) return;
  const bool partial = program.at(first).partial.has_value();
  auto mine = program.parameters.begin();
  for (const Parameter& any : program.model_parameters()) {
    if (partial && any.as_matrix) {
      if (mine != program.parameters.end() && mine->index == any.index) ++mine;
      continue;
    }
    if (mine == program.parameters.end() || mine->index != any.index) {  // another stage's
      list.push_back({.name = any.name,
                      .slot = std::string(slot),
                      .global_shape = any.shape,
                      .local = {nullptr, {0}, DType::f32},
                      .owner = false});
      continue;
    }
    const Parameter& p = *mine++;
    const Unit& unit = plan_.program.units[static_cast<size_t>(p.unit)];
    const BufferId id = plan_.program.find(fmt::format("{}:{}", unit_buffer, unit.name));
    const bool whole = held_in(program.at(id), unit, plan_.place) == Held::whole;
    const auto [begin, values, owner] = piece(unit_buffer, p);
    list.push_back({.name = p.name,
                    .slot = std::string(slot),
                    .global_shape = p.shape,
                    .begin = begin,
                    .local = values ? values : Tensor{nullptr, {0}, DType::f32},
                    .owner = !whole || plan_.place.rank == 0,
                    .device = owner});
  }
}

StateRegister ModelState::weights() const {
  StateRegister list;
  append(master_name(), "master", list);
  return list;
}

StateRegister ModelState::everything() const {
  StateRegister list = weights();
  for (const std::string_view slot : all_state_slots()) append(slot, slot, list);
  return list;
}

}  // namespace dstrain
