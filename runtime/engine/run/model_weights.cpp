// The part of ModelState that collects the weights of the whole model on rank 0.
#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "runtime/core/convert_floats.h"
#include "runtime/core/error.h"
#include "runtime/engine/run/model_state.h"

namespace dstrain {
namespace {

using By = TensorPart::By;

constexpr int64_t kPartPiece = int64_t{1} << 20;  // elements of a part that travel at a time

// The header of a piece of a parameter that travels from another stage, or from a rank with another part; no elements: there are no more.
struct PieceHeader {
  int64_t parameter = 0;  // index in the model
  TensorPart part{};
  int64_t begin = 0;  // in the part's memory
  int64_t elements = 0;

  Tensor tensor() { return {this, {static_cast<int64_t>(sizeof(*this))}, DType::u8}; }
};

// A piece of a part of a parameter: elements [begin, begin + values.size()) of its memory.
struct PartPiece {
  TensorPart part{};
  int64_t begin = 0;
  std::vector<float> values{};
};

// Receives the piece of a header that has come.
PartPiece receive_values(Communicator& link, const PieceHeader& header) {
  PartPiece piece{header.part, header.begin,
                  std::vector<float>(static_cast<size_t>(header.elements))};
  link.recv({piece.values.data(), {header.elements}, DType::f32}).wait();
  return piece;
}

PartPiece receive_piece(Communicator& link) {
  PieceHeader header;
  link.recv(header.tensor()).wait();
  return receive_values(link, header);
}

// Calls take(first element, values) for ranges of the whole tensor that the same elements of the memory of all its parts
// are, without padding. Columns of several parts are joined to rows.
template <class Take>
void take_whole(const Shape& whole, std::span<PartPiece> pieces, const Take& take) {
  struct Run {
    int64_t whole, count;
    float* values;
  };
  std::vector<Run> runs;
  for (PartPiece& piece : pieces)
    for_runs(piece.part, whole, piece.begin, static_cast<int64_t>(piece.values.size()),
             [&](const PartRun& run) {
               runs.push_back({run.whole, run.count, piece.values.data() + run.held - piece.begin});
             });
  std::ranges::sort(runs, {}, &Run::whole);
  std::vector<float> joined;
  for (size_t i = 0; i < runs.size();) {
    size_t end = i + 1;
    while (end < runs.size() && runs[end - 1].whole + runs[end - 1].count == runs[end].whole) ++end;
    if (end == i + 1) {
      take(runs[i].whole, {runs[i].values, {runs[i].count}, DType::f32});
    } else {
      joined.clear();
      for (size_t r = i; r < end; ++r)
        joined.insert(joined.end(), runs[r].values, runs[r].values + runs[r].count);
      take(runs[i].whole, {joined.data(), {static_cast<int64_t>(joined.size())}, DType::f32});
    }
    i = end;
  }
}

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

void ModelState::collect_weights(MeshComm& mesh, const TakePiece& take,
                                 const Collected& which) const {
  const Place& place = plan_.place;
  const bool root = mesh.world().rank() == 0;
  const int parts = place.ranks_in(kPartAxes);
  for (int stage = 0; stage < place.stages(); ++stage) {
    // To the ranks that send what their groups have.
    std::vector<std::unique_ptr<Communicator>> links(static_cast<size_t>(parts));
    for (int part = stage == 0 ? 1 : 0; part < parts; ++part)
      links[static_cast<size_t>(part)] = link_to(mesh, stage, part);
    // Ranks with parts of the same parameters come to the same piece of them one after the other.
    const auto take_parts = [&](const Parameter& p, PartPiece first) {
      std::vector<PartPiece> pieces{std::move(first)};
      for (size_t part = 1; part < links.size(); ++part)
        pieces.push_back(receive_piece(*links[part]));
      take_whole(p.shape, pieces,
                 [&](int64_t begin, const Tensor& values) { take(p, begin, values); });
    };
    if (place.stage() == stage && !root) {
      Communicator* const link = links[static_cast<size_t>(place.rank_in(kPartAxes))].get();
      send_stage(place.rank_in(kExpertStateAxes) == 0 ? link : nullptr, which);
    } else if (stage == 0 && root) {
      collect_stage(
          [&](const Parameter& p, int64_t begin, const Tensor& values) {
            if (p.part.by == By::nothing) return take(p, begin, values);
            const auto* const from = values.as<const float>();
            take_parts(p, {p.part, begin, {from, from + values.elements()}});
          },
          which);
    }
    const std::vector<Parameter>& parameters = plan_.program.model_parameters();
    while (root && stage > 0) {
      PieceHeader header;
      links[0]->recv(header.tensor()).wait();
      if (header.elements == 0) break;
      const Parameter& p = parameters[static_cast<size_t>(header.parameter)];
      PartPiece piece = receive_values(*links[0], header);
      if (header.part.by == By::nothing)
        take(p, header.begin, {piece.values.data(), {header.elements}, DType::f32});
      else
        take_parts(p, std::move(piece));
    }
  }
}

std::unique_ptr<Communicator> ModelState::link_to(MeshComm& mesh, int stage, int part) const {
  const Place first = plan_.place.moved(Axis::pipe, stage).moved(kExpertStateAxes, 0);
  const int own = mesh.world().rank(), other = world_rank(first.moved(kPartAxes, part));
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
    const std::unique_ptr<Communicator> link = link_to(mesh, stage, 0);
    PieceHeader header;  // of a buffer: `parameter` is its index, or -1 behind the last one
    if (place.stage() == stage && place.rank_in(kStateAxes | Axis::tensor) == 0) {
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

void ModelState::send_stage(Communicator* link, const Collected& which) const {
  if (!link) return collect_stage({}, which);
  const bool first = plan_.place.rank_in(kPartAxes) == 0;
  const auto send = [&](const Parameter& p, int64_t begin, const Tensor& values) {
    if (p.part.by == By::nothing && !first) return;  // the first rank sends the same
    PieceHeader header{p.index, p.part, begin, values.elements()};
    link->send(header.tensor()).wait();
    link->send(values).wait();
  };
  collect_stage(send, which);
  PieceHeader end;
  if (first) link->send(end.tensor()).wait();
}

void ModelState::collect_stage(const TakePiece& take, const Collected& which) const {
  constexpr int64_t kBufferElements = int64_t{1} << 22;
  const Program& program = plan_.program;
  const auto wanted = [&](int index) {
    return !which.wanted || which.wanted(program.parameters[static_cast<size_t>(index)].name);
  };
  // Calls `take` for the parameters that elements [begin, begin + values.elements()) of the unit belong to.
  const auto take_parameters = [&](const Unit& unit, int64_t begin, const Tensor& values) {
    for (const int index : unit.parameters) {
      if (!wanted(index)) continue;
      const Parameter& p = program.parameters[static_cast<size_t>(index)];
      const int64_t from = std::max(begin, p.offset);
      // With padding, so that all ranks with parts have the same pieces.
      const int64_t to =
          std::min(begin + values.elements(), p.offset + held_shape(p.part, p.shape).elements());
      const int64_t most = p.part.by == By::nothing ? to - from : kPartPiece;
      for (int64_t at = from; at < to; at += most) {
        const Tensor piece{values.as<std::byte>() + (at - begin) * size_of(values.dtype),
                           {std::min(most, to - at)},
                           values.dtype};
        in_f32(piece,
               [&](int64_t first, const Tensor& wide) { take(p, at - p.offset + first, wide); });
      }
    }
  };
  Device& device = arenas_.device();
  Memory buffer;
  for (const Unit& unit : program.units) {
    // Packed blocks are no weights that a file could have: a run with such a base writes its adapters alone.
    if (unit.blocks != BlockFormat::none || std::ranges::none_of(unit.parameters, wanted)) continue;
    const bool root = plan_.place.rank_in(unit.axes) == 0 && take != nullptr;
    const auto ranks = static_cast<int64_t>(plan_.place.ranks_in(unit.axes));
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
    const Range owned = owned_slice(unit, plan_.place, unit.axes);
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
        const Tensor place = gathered(plan_.place.rank_in(unit.axes), n);
        on_host(arenas_.owner_of(plan_, id), part, HostAccess::read,
                [&](int64_t first, const Tensor& values) {
                  device.upload(place.as<std::byte>() + first * element, values.data,
                                values.bytes());
                });
        part = place;
      }
      mesh_.group(unit.axes).all_gather(part, gathered(0, n * ranks)).wait();
      for (int64_t r = 0; root && r < ranks; ++r)
        on_host(device, gathered(r, n), HostAccess::read, [&](int64_t first, const Tensor& values) {
          take_parameters(unit, r * slice + at + first, values);
        });
    }
  }
}

}  // namespace dstrain
