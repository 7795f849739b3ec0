// The functions of bf16 attention on the tiles of the file that includes this one, inside its target region.
#pragma once

#include "kernels/cpu/attention/tiled/backward-inl.h"
#include "kernels/cpu/attention/tiled/forward-inl.h"

namespace dstrain::attention::DST_TILES {

inline Implementation implementation() {
  return {kForwardQueries,           kQueries, kKeys,   bytes_of<ForwardScratch>,
          bytes_of<BackwardScratch>, forward,  backward};
}

}  // namespace dstrain::attention::DST_TILES
