// LocalTensors: the addresses of the tensors of one operation, for every rank of this machine, and the chunk
// of them that is being worked on. An operation with a tensor outside allocate()'s memory goes through the
// bounce buffers in chunks: elements [begin, end) of the whole, or of each slice.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace dstrain {

struct LocalTensors {
  // Where the tensor of one rank lies.
  struct RankTensor {
    std::byte* base = nullptr;
    bool staged = false;  // `base` holds the current chunk of each slice; else the tensor itself
  };
  std::vector<RankTensor> places;  // by index in the host
  int64_t element = 1;             // bytes
  int64_t elements = 0;            // of the whole, or of each slice
  int64_t chunk = 0;               // elements of a full chunk; `elements` if no rank is staged
  int64_t begin = 0;
  int64_t end = 0;

  bool staged(int local) const { return places[static_cast<size_t>(local)].staged; }
  bool any_staged() const {
    return std::any_of(places.begin(), places.end(), [](const RankTensor& p) { return p.staged; });
  }

  // Element `at` of slice `slice` (0 where there are none) of the tensor of the `local`-th rank.
  std::byte* address(int local, int64_t slice, int64_t at) const {
    const RankTensor& place = places[static_cast<size_t>(local)];
    return place.base +
           (place.staged ? slice * chunk + at - begin : slice * elements + at) * element;
  }

  // Goes on to the chunk that starts at `from`.
  void set_chunk(int64_t from) {
    begin = from;
    end = std::min(elements, from + chunk);
  }
  // Copies this chunk of `slices` slices from a tensor into the bounce buffer of the `local`-th rank.
  void stage_in(int local, const std::byte* tensor, int64_t slices) const {
    for (int64_t s = 0; s < slices; ++s)
      std::memcpy(address(local, s, begin), tensor + (s * elements + begin) * element, bytes());
  }
  // Copies this chunk back.
  void stage_out(int local, std::byte* tensor, int64_t slices) const {
    for (int64_t s = 0; s < slices; ++s)
      std::memcpy(tensor + (s * elements + begin) * element, address(local, s, begin), bytes());
  }

 private:
  size_t bytes() const { return static_cast<size_t>((end - begin) * element); }
};

}  // namespace dstrain
