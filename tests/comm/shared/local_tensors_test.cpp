#include "runtime/comm/shared/local_tensors.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <numeric>
#include <vector>

namespace dstrain {
namespace {

// Three slices of ten two-byte elements, in chunks of four. Rank 0 is staged, rank 1 is not.
TEST_CASE("chunks of every slice pass a bounce buffer and come back in their places") {
  constexpr int64_t kSlices = 3, kElements = 10, kChunk = 4;
  std::vector<uint16_t> source(kSlices * kElements), result(source.size()),
      bounce(kSlices * kChunk);
  std::iota(source.begin(), source.end(), uint16_t{1});
  LocalTensors tensors;
  tensors.places = {{reinterpret_cast<std::byte*>(bounce.data()), true},
                    {reinterpret_cast<std::byte*>(source.data()), false}};
  tensors.element = sizeof(uint16_t);
  tensors.elements = kElements;
  tensors.chunk = kChunk;
  CHECK(tensors.any_staged());
  CHECK(tensors.staged(0));
  CHECK_FALSE(tensors.staged(1));
  int chunks = 0;
  for (tensors.set_chunk(0); tensors.begin < tensors.end;
       tensors.set_chunk(tensors.end), ++chunks) {
    tensors.stage_in(0, reinterpret_cast<const std::byte*>(source.data()), kSlices);
    for (int64_t slice = 0; slice < kSlices; ++slice)
      for (int64_t at = tensors.begin; at < tensors.end; ++at)
        for (int rank : {0, 1})
          CHECK(*reinterpret_cast<uint16_t*>(tensors.address(rank, slice, at)) ==
                slice * kElements + at + 1);
    tensors.stage_out(0, reinterpret_cast<std::byte*>(result.data()), kSlices);
  }
  CHECK(chunks == 3);
  CHECK(result == source);
}

}  // namespace
}  // namespace dstrain
