#include "kernels/cuda/emulation/hopper/box_copies.h"

#include <cstring>

#include "runtime/core/error.h"

namespace dstrain::emulated {

void BoxCopies::start(unsigned char* shared, size_t bytes, uint32_t to, const TensorMap& map,
                      const Coordinates& first, uint64_t* word) {
  check(map.rank > 0, "a copy with a tensor map that was not made");
  check(to % 128 == 0, "a copy to an address of shared memory that is not a multiple of 128");
  check(uint64_t{to} + map.box_bytes() <= bytes,
        "a copy past the block's {} bytes of shared memory", bytes);
  check(count_ < kMost, "more than {} copies of a block at a time", kMost);
  std::memset(shared + to, 0xff, map.box_bytes());
  copies_[count_++] = {map, first, to, word};
}

BoxCopies::Done BoxCopies::finish(unsigned char* shared, uint64_t random, bool wrong_swizzle) {
  Copy& copy = copies_[random % count_];
  const Done done{copy.word, copy.map.box_bytes()};
  Swizzle swizzle = copy.map.swizzle;
  if (wrong_swizzle && swizzle != Swizzle::none)
    swizzle = swizzle == Swizzle::bytes64 ? Swizzle::bytes128 : Swizzle::bytes64;
  copy_box(shared, copy.to, copy.map, copy.first, swizzle);
  copy = copies_[--count_];
  return done;
}

}  // namespace dstrain::emulated
