#include "runtime/engine/run/model_state.h"

#include <algorithm>
#include <cstring>

#include "runtime/core/error.h"
#include "runtime/core/threads/parts.h"
#include "runtime/optim/optimizer_rules.h"
#include "runtime/storage/weights/packed_weights.h"

namespace dstrain {
namespace {

constexpr std::array<std::string_view, 7> kScalarNames = {
    "step",       "applied_steps", "first_sample",    "loss_scale",
    "hysteresis", "last_overflow", "scaler_iteration"};
constexpr std::string_view kMaster = "master", kBuffer = "buffer";

// Returns the shape that checkpoints have of a parameter's weights, or of state with a value for each `block` elements of
// it: of packed blocks, their bytes.
Shape checkpoint_shape(const Parameter& p, int64_t block) {
  if (p.blocks != BlockFormat::none) return {packed_bytes(p.blocks, p.shape.elements())};
  return block == 1 ? p.shape : Shape{(p.shape.elements() + block - 1) / block};
}

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

UnitBuffer ModelState::buffer_of(std::string_view slot, const Unit& unit) const {
  if (slot == kMaster) return unit.buffers.master();
  const UnitBuffers::Slot* const found = unit.buffers.slot(slot);
  return found ? found->values : UnitBuffer{};
}

ModelState::Piece ModelState::piece(std::string_view slot, const Parameter& p) const {
  const Program& program = plan_.program;
  const Unit& unit = program.units[static_cast<size_t>(p.unit)];
  const UnitBuffer buffer = buffer_of(slot, unit);
  if (buffer.id == kNone) return {};
  const auto [begin, end] = common(range_of(buffer, unit, plan_.place), elements_of(p));
  if (begin >= end) return {};
  Tensor t = arenas_.tensor(plan_, buffer.id);
  t.data = static_cast<std::byte*>(t.data) +
           position_of(buffer, unit, plan_.place, begin) * size_of(t.dtype);
  t.shape = {buffer.values(end - begin)};
  return {(begin - p.offset) / buffer.block, t, arenas_.owner_of(plan_, buffer.id)};
}

void ModelState::publish_masters() const {
  for (const Unit& unit : plan_.program.units) publish(unit);
}

void ModelState::publish(const Unit& unit) const {
  const Program& program = plan_.program;
  const UnitBuffer &master = unit.buffers.master(), &values = unit.buffers.values;
  const BufferId master_id = master.id, params_id = values.id;
  const Range from = range_of(master, unit, plan_.place);
  const Tensor params = arenas_.tensor(plan_, params_id);
  const int64_t at = position_of(values, unit, plan_.place, from.begin);
  const Tensor mine{
      params.as<std::byte>() + at * size_of(params.dtype), {from.size()}, params.dtype};
  if (master_id != params_id) round_masters(master_id, mine, arenas_.owner_of(plan_, params_id));
  if (mine.elements() == params.elements()) return;
  Communicator& peers = mesh_.group(values.held == Held::shard ? Axes(Axis::replica) : unit.axes);
  if (program.space_of(params_id) == Space::device)
    peers.all_gather(mine, params).wait();
  else
    exchange(mine, params, arenas_.owner_of(plan_, params_id), peers);
}

void ModelState::exchange(const Tensor& mine, const Tensor& all, RemoteMemory* owner,
                          Communicator& peers) const {
  constexpr int64_t kBufferBytes = int64_t{16} << 20;
  Device& device = arenas_.device();
  const int64_t element = size_of(all.dtype), slice = mine.elements(), ranks = peers.size();
  const int64_t window = std::min(slice, std::max<int64_t>(kBufferBytes / element / ranks, 1));
  const Memory buffer = device.allocate(window * ranks * element, "exchanged parameters");
  const auto part = [&](const Tensor& t, int64_t first, int64_t count) {
    return Tensor{t.as<std::byte>() + first * element, {count}, all.dtype};
  };
  for (int64_t at = 0; at < slice; at += window) {
    const int64_t n = std::min(window, slice - at);
    const Tensor gathered{buffer.data(), {n * ranks}, all.dtype};
    const Tensor here = part(gathered, peers.rank() * n, n);
    on_host(owner, part(mine, at, n), HostAccess::read, [&](int64_t first, const Tensor& values) {
      device.upload(part(here, first, values.elements()).data, values.data, values.bytes());
    });
    peers.all_gather(here, gathered).wait();
    for (int64_t r = 0; r < ranks; ++r) {
      if (r == peers.rank()) continue;
      on_host(owner, part(all, r * slice + at, n), HostAccess::write,
              [&](int64_t first, const Tensor& values) {
                device.download(values.data, part(gathered, r * n + first, values.elements()).data,
                                values.bytes());
              });
    }
  }
}

void ModelState::round(const float* values, const Tensor& to) const {
  run_ranges(threads_, to.elements(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (to.dtype == DType::bf16)
        to.as<bf16>()[i] = to_bf16(values[i]);
      else if (to.dtype == DType::f16)
        to.as<f16>()[i] = to_f16(values[i]);
      else
        to.as<float>()[i] = values[i];
    }
  });
}

void ModelState::round_masters(BufferId masters_id, const Tensor& to, RemoteMemory* owner) const {
  on_host(arenas_.owner_of(plan_, masters_id), arenas_.tensor(plan_, masters_id), HostAccess::read,
          [&](int64_t at, const Tensor& masters) {
            const Tensor part{to.as<std::byte>() + at * size_of(to.dtype), masters.shape, to.dtype};
            on_host(owner, part, HostAccess::write, [&](int64_t first, const Tensor& parameters) {
              if (masters.dtype == DType::f32)
                round(masters.as<const float>() + first, parameters);
              else
                std::memcpy(parameters.data,
                            masters.as<const std::byte>() + first * size_of(masters.dtype),
                            static_cast<size_t>(parameters.bytes()));
            });
          });
}

void ModelState::append(std::string_view slot, StateRegister& list, bool differs) const {
  const Program& program = plan_.program;
  const Place& place = plan_.place;
  const bool masters = slot == kMaster;
  const std::span<const Unit> trained = program.trained_units();
  const UnitBuffer like = trained.empty() ? UnitBuffer{} : buffer_of(slot, trained.front());
  const BufferId first = like.id;
  const int64_t block = like.block;
  // A stage whose parameters are all frozen lists no optimizer state: the others do.
  if (first == kNone && !masters) return;
  const UpdateForms forms = masters ? kAllForms : trained.front().buffers.slot(slot)->forms;
  auto mine = program.parameters.begin();
  for (const Parameter& any : program.model_parameters()) {
    const bool here = mine != program.parameters.end() && mine->index == any.index;
    if (!masters && (any.frozen || !forms.has(any.form))) {
      if (here) ++mine;
      continue;
    }
    if (!here) {  // another stage's
      const DType dtype = any.blocks != BlockFormat::none ? DType::u8
                          : any.frozen                    ? program.dtype
                          : first != kNone                ? program.at(first).dtype
                                                          : plan_.master_dtype;
      list.push_back({.name = any.name,
                      .slot = std::string(slot),
                      .global_shape = checkpoint_shape(any, block),
                      .dtype = dtype,
                      .local = {nullptr, {0}, dtype},
                      .owner = false});
      continue;
    }
    const Parameter& p = *mine++;
    const Unit& unit = plan_.program.units[static_cast<size_t>(p.unit)];
    const UnitBuffer held = buffer_of(slot, unit);
    const BufferId id = held.id;
    const bool whole = held.held == Held::whole;
    const bool apart = differs && !p.frozen;  // groups have values of their own
    const auto [begin, values, owner] = piece(slot, p);
    list.push_back({.name = p.name,
                    .slot = std::string(slot),
                    .global_shape = checkpoint_shape(p, block),
                    .dtype = program.at(id).dtype,
                    .begin = begin,
                    .local = values ? values : Tensor{nullptr, {0}, program.at(id).dtype},
                    .part = p.part,
                    .copies = apart ? place.replicas() : 1,
                    .copy = apart ? place.replica() : 0,
                    .owner = !whole || (apart ? place.shard_rank() : place.rank_in(unit.axes)) == 0,
                    .device = owner,
                    .buffer = id});
  }
}

StateRegister ModelState::weights_in_checkpoints() const {
  StateRegister list;
  append(kMaster, list, false);
  append_buffers(list);
  return list;
}

StateRegister ModelState::weights() const {
  StateRegister list = weights_in_checkpoints();
  const std::vector<Parameter>& parameters = plan_.program.model_parameters();
  for (size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].blocks != BlockFormat::none)
      as_elements(list[i], parameters[i].shape, parameters[i].blocks);
  return list;
}

StateRegister ModelState::weights_to_read() const {
  StateRegister list = weights();
  auto entry = list.begin();  // this stage's parameters are among them in the same order
  for (const Parameter& p : plan_.program.parameters) {
    while (entry->name != p.name) ++entry;
    if (entry->local.elements() > 0) cut_to_owned(*entry, p);
  }
  return list;
}

StateRegister ModelState::state_to_read(std::string_view slot) const {
  StateRegister list;
  append(slot, list, false);
  return list;
}

void ModelState::cut_to_owned(StateEntry& entry, const Parameter& p) const {
  const Unit& unit = plan_.program.units[static_cast<size_t>(p.unit)];
  const int64_t begin = piece(kMaster, p).begin;  // of packed blocks: the byte
  const Range held{p.offset + begin, p.offset + begin + entry.local.elements()};
  const Range owned = common(held, owned_slice(unit, plan_.place, unit.axes));
  const int64_t elements = std::max<int64_t>(owned.end - owned.begin, 0);
  if (elements > 0) {
    entry.local.data =
        entry.local.as<std::byte>() + (owned.begin - held.begin) * size_of(entry.local.dtype);
    entry.begin = owned.begin - p.offset;
    if (p.blocks != BlockFormat::none)
      entry.begin = entry.begin / group_bytes(p.blocks) * kWeightGroup;
  }
  entry.local.shape = {elements};
}

void ModelState::share_masters() const {
  for (const Unit& unit : plan_.program.units) share_masters_of(unit);
}

void ModelState::share_masters_of(const Unit& unit) const {
  const UnitBuffer& masters = unit.buffers.master();
  const BufferId id = masters.id;
  if (plan_.place.ranks_in(unit.axes) == 1 || masters.held != Held::whole) return;
  const Tensor all = arenas_.tensor(plan_, id);
  const Range owned = owned_slice(unit, plan_.place, unit.axes);
  const Tensor mine{
      all.as<std::byte>() + owned.begin * size_of(all.dtype), {owned.size()}, all.dtype};
  if (plan_.program.space_of(id) == Space::device)
    mesh_.group(unit.axes).all_gather(mine, all).wait();
  else
    exchange(mine, all, arenas_.owner_of(plan_, id), mesh_.group(unit.axes));
}

StateRegister ModelState::everything(GroupsDiffer differ) const {
  StateRegister list;
  append(kMaster, list, differ.weights);
  append_buffers(list);
  for (const std::string_view slot : all_state_slots()) append(slot, list, differ.state);
  append_codec_state(list);
  return list;
}

void ModelState::append_buffers(StateRegister& list) const {
  for (const RegisteredBuffer& b : plan_.program.registered) {
    const bool here = b.values != kNone;
    Tensor values = here ? arenas_.tensor(plan_, b.values) : Tensor{nullptr, {0}, DType::f32};
    values.shape = {values.elements()};
    list.push_back({.name = b.name,
                    .slot = std::string(kBuffer),
                    .global_shape = b.shape,
                    .local = values,
                    .owner = here && plan_.place.rank_in(kStateAxes | Axis::tensor) == 0,
                    .device = here ? arenas_.owner_of(plan_, b.values) : nullptr,
                    .buffer = b.values});
  }
}

void ModelState::append_sharded(const CodecState& state, StateRegister& list) const {
  const bool here = state.values != kNone;
  Tensor values = here ? arenas_.tensor(plan_, state.values) : Tensor{nullptr, {0}, DType::f32};
  values.shape = {values.elements()};
  list.push_back({.name = state.name,
                  .slot = std::string(kCodecSlots) + state.slot,
                  .global_shape = {state.elements},
                  .begin = state.begin,
                  .local = values,
                  .owner = plan_.place.rank_in(Axis::tensor) == 0,
                  .device = here ? arenas_.owner_of(plan_, state.values) : nullptr,
                  .buffer = state.values});
}

void ModelState::append_codec_state(StateRegister& list) const {
  const Place& place = plan_.place;
  constexpr Axes of_stage = kStateAxes | Axis::tensor;
  for (const CodecState& state : plan_.program.codec_state) {
    if (state.sharded) {
      append_sharded(state, list);
      continue;
    }
    Tensor values = arenas_.tensor(plan_, state.values);
    const int64_t n = values.elements();
    values.shape = {n};
    list.push_back({.name = state.name,
                    .slot = std::string(kCodecSlots) + state.slot,
                    .global_shape = state.per_rank ? Shape{place.ranks_in(of_stage), n} : Shape{n},
                    .dtype = values.dtype,
                    .begin = state.per_rank ? place.rank_in(of_stage) * n : 0,
                    .local = values,
                    .per_rank = state.per_rank,
                    .mean = state.mean,
                    .owner = state.per_rank || place.rank_in(of_stage) == 0,
                    .device = arenas_.owner_of(plan_, state.values),
                    .buffer = state.values});
  }
}

}  // namespace dstrain
