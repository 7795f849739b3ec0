// The part of ModelState that collects the weights of the whole model on rank 0.
#include <algorithm>

#include "runtime/core/convert_floats.h"
#include "runtime/core/error.h"
#include "runtime/engine/run/model_state.h"

namespace dstrain {
namespace {

// The header of a piece of a parameter that travels from another stage; no elements: there are no more.
struct PieceHeader {
  int64_t parameter = 0;  // index in the model
  int64_t begin = 0;
  int64_t elements = 0;

  Tensor tensor() { return {this, {static_cast<int64_t>(sizeof(*this))}, DType::u8}; }
};

// Calls take(first, values) for values on the host in f32: all of them, or pieces of 16-bit ones in turn.
template <class Take>
void in_f32(const Tensor& values, Take&& take) {
  constexpr int64_t kPiece = int64_t{1} << 18;
  if (values.dtype == DType::f32) return take(int64_t{0}, values);
  const int64_t n = values.elements();
  std::vector<float> wide(static_cast<size_t>(std::min(n, kPiece)));
  for (int64_t first = 0; first < n; first += kPiece) {
    const int64_t here = std::min(kPiece, n - first);
    const Tensor piece{wide.data(), {here}, DType::f32};
    convert_floats({values.as<std::byte>() + first * size_of(values.dtype), {here}, values.dtype},
                   piece);
    take(first, piece);
  }
}

}  // namespace

void ModelState::collect_weights(MeshComm& mesh, const TakePiece& take, Collected which) const {
  const Place place = plan_.place;
  const bool root = mesh.world().rank() == 0;
  if (place.stage() == 0) collect_stage(root ? take : TakePiece{}, which);
  // The first rank of every other stage sends what its group has to rank 0.
  for (int stage = 1; stage < place.stages(); ++stage) {
    const bool sends = place.stage() == stage && place.rank() == 0;
    const std::unique_ptr<Communicator> link = link_to(mesh, stage);
    if (root) receive_stage(*link, take);
    if (place.stage() == stage) send_stage(sends ? link.get() : nullptr, which.frozen);
  }
}

std::unique_ptr<Communicator> ModelState::link_to(MeshComm& mesh, int stage) const {
  const Place& place = plan_.place;
  const int own = mesh.world().rank(), other = world_rank(place, stage, 0);
  std::vector<int> pair{own};
  if (own == 0 || own == other) pair = {0, other};
  return mesh.host().split(pair);
}

void ModelState::collect_buffers(MeshComm& mesh, const TakeBuffer& take) const {
  const std::vector<RegisteredBuffer>& buffers = plan_.program.registered;
  if (buffers.empty()) return;
  const Place place = plan_.place;
  const bool root = mesh.world().rank() == 0;
  if (root) take_buffers(take);
  for (int stage = 1; stage < place.stages(); ++stage) {
    const std::unique_ptr<Communicator> link = link_to(mesh, stage);
    PieceHeader header;  // of a buffer: `parameter` is its index, or -1 behind the last one
    if (place.stage() == stage && place.rank() == 0) {
      take_buffers([&](const RegisteredBuffer& b, const Tensor& values) {
        header.parameter = &b - buffers.data();
        link->send(header.tensor()).wait();
        link->send(values).wait();
      });
      header.parameter = -1;
      link->send(header.tensor()).wait();
    }
    while (root) {
      link->recv(header.tensor()).wait();
      if (header.parameter < 0) break;
      const RegisteredBuffer& b = buffers[static_cast<size_t>(header.parameter)];
      std::vector<float> values(static_cast<size_t>(b.shape.elements()));
      const Tensor all{values.data(), {b.shape.elements()}, DType::f32};
      link->recv(all).wait();
      take(b, all);
    }
  }
}

void ModelState::take_buffers(const TakeBuffer& take) const {
  for (const RegisteredBuffer& b : plan_.program.registered) {
    if (b.values == kNone) continue;
    std::vector<float> all(static_cast<size_t>(b.shape.elements()));
    on_host(arenas_.owner_of(plan_, b.values), arenas_.tensor(plan_, b.values), HostAccess::read,
            [&](int64_t first, const Tensor& values) {
              std::copy_n(values.as<const float>(), values.elements(), all.begin() + first);
            });
    take(b, {all.data(), {b.shape.elements()}, DType::f32});
  }
}

void ModelState::receive_stage(Communicator& link, const TakePiece& take) const {
  const std::vector<Parameter>& parameters = plan_.program.model_parameters();
  std::vector<float> values;
  while (true) {
    PieceHeader header;
    link.recv(header.tensor()).wait();
    if (header.elements == 0) return;
    values.resize(std::max(values.size(), static_cast<size_t>(header.elements)));
    const Tensor piece{values.data(), {header.elements}, DType::f32};
    link.recv(piece).wait();
    take(parameters[static_cast<size_t>(header.parameter)], header.begin, piece);
  }
}

void ModelState::send_stage(Communicator* link, bool frozen) const {
  if (!link) return collect_stage({}, {.frozen = frozen});
  const auto send = [&](const Parameter& p, int64_t begin, const Tensor& values) {
    PieceHeader header{p.index, begin, values.elements()};
    link->send(header.tensor()).wait();
    link->send(values).wait();
  };
  collect_stage(send, {.frozen = frozen});
  PieceHeader end;
  link->send(end.tensor()).wait();
}

void ModelState::collect_stage(const TakePiece& take, Collected which) const {
  constexpr int64_t kBufferElements = int64_t{1} << 22;
  const Program& program = plan_.program;
  const bool root = plan_.place.rank() == 0 && take != nullptr;
  const auto ranks = static_cast<int64_t>(plan_.place.ranks());
  // Calls `take` for the parameters that elements [begin, begin + values.elements()) of the unit belong to.
  const auto take_parameters = [&](const Unit& unit, int64_t begin, const Tensor& values) {
    for (const int index : unit.parameters) {
      const Parameter& p = program.parameters[static_cast<size_t>(index)];
      const int64_t from = std::max(begin, p.offset);
      const int64_t to = std::min(begin + values.elements(), p.offset + p.shape.elements());
      if (from >= to) continue;
      const Tensor part{values.as<std::byte>() + (from - begin) * size_of(values.dtype),
                        {to - from},
                        values.dtype};
      in_f32(part,
             [&](int64_t first, const Tensor& wide) { take(p, from - p.offset + first, wide); });
    }
  };
  Device& device = arenas_.device();
  Memory buffer;
  for (const Unit& unit : program.units) {
    // Packed blocks are no weights that a file could have: a run with such a base writes its adapters alone.
    if ((unit.frozen && !which.frozen) || unit.blocks != BlockFormat::none) continue;
    if (which.average && !unit.frozen) {
      for_average(unit, [&](int64_t begin, const Tensor& values) {
        if (root) take_parameters(unit, begin, values);
      });
      continue;
    }
    const UnitBuffer& masters = unit.buffers.master();
    const BufferId id = masters.id;
    const Tensor held = arenas_.tensor(plan_, id);
    if (masters.held == Held::whole) {
      if (root)
        on_host(arenas_.owner_of(plan_, id), held, HostAccess::read,
                [&](int64_t at, const Tensor& values) { take_parameters(unit, at, values); });
      continue;
    }
    const Range owned = owned_slice(unit, plan_.place);
    const int64_t element = size_of(held.dtype);
    std::byte* const mine =
        held.as<std::byte>() + position_of(masters, unit, plan_.place, owned.begin) * element;
    const int64_t slice = owned.size(), window = std::min(slice, kBufferElements / ranks);
    if (buffer.bytes() < window * ranks * element)
      buffer = device.allocate(window * ranks * element, "gathered weights");
    for (int64_t at = 0; at < slice; at += window) {
      const int64_t n = std::min(window, slice - at);
      const auto gathered = [&](int64_t r, int64_t count) {
        return Tensor{buffer.data() + r * n * element, {count}, held.dtype};
      };
      Tensor part{mine + at * element, {n}, held.dtype};
      if (program.space_of(id) != Space::device) {  // collectives work on the device's memory
        const Tensor place = gathered(plan_.place.rank(), n);
        on_host(arenas_.owner_of(plan_, id), part, HostAccess::read,
                [&](int64_t first, const Tensor& values) {
                  device.upload(place.as<std::byte>() + first * element, values.data,
                                values.bytes());
                });
        part = place;
      }
      mesh_.data().all_gather(part, gathered(0, n * ranks)).wait();
      for (int64_t r = 0; root && r < ranks; ++r)
        on_host(device, gathered(r, n), HostAccess::read, [&](int64_t first, const Tensor& values) {
          take_parameters(unit, r * slice + at + first, values);
        });
    }
  }
}

}  // namespace dstrain
