// The copies of the tensor memory engine that a block has started. What a copy will write is undefined from its start until
// it is done: it is filled with 0xff. A copy is done at a random later time, or when all threads of the block wait, in any
// order.
#pragma once

#include "kernels/cuda/emulation/hopper/tensor_map.h"

namespace dstrain::emulated {

class BoxCopies {
 public:
  using Coordinates = std::array<int, kMostDimensions>;

  void clear() { count_ = 0; }
  bool empty() const { return count_ == 0; }

  // Starts a copy to offset `to` of a block's `bytes` bytes of shared memory, which completes on `word`. Throws InternalError
  // for a place at which a GPU would fault.
  void start(unsigned char* shared, size_t bytes, uint32_t to, const TensorMap& map,
             const Coordinates& first, uint64_t* word);

  // A copy that is done: the barrier on which it completes, and its bytes.
  struct Done {
    uint64_t* word;
    uint32_t bytes;
  };
  // Carries out the copy that `random` chooses, of those that are started. wrong_swizzle: with another swizzle than its map's.
  Done finish(unsigned char* shared, uint64_t random, bool wrong_swizzle);

 private:
  static constexpr size_t kMost = 256;
  struct Copy {
    TensorMap map;
    Coordinates first;
    uint32_t to;
    uint64_t* word;
  };
  std::array<Copy, kMost> copies_;
  size_t count_ = 0;
};

}  // namespace dstrain::emulated
