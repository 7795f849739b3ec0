// The products of which a convolution consists. A target is a window, and its sources are the positions that it has; for the
// gradient of the input it is the other way round. Positions have whole matrices of samples, so that a target's values are a
// sum of products: for each place of a window where there is a source, of the source's matrix and of the weight of the place.
// Targets that follow each other, and whose sources do so too, are one run, whose matrices are those of all.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/ir/views/general_attrs.h"

namespace dstrain {

struct ConvolutionRuns {
  // The first target's source at a place of the windows, by its number among the places that have a source somewhere.
  struct Source {
    int64_t place = 0, position = 0;
  };
  struct Run {
    int64_t target = 0, count = 0;  // targets, `target_step` apart
    size_t first_source = 0,
           sources = 0;  // places of ConvolutionRuns::sources, in the order of the weight's
  };

  std::vector<Run> runs{};
  std::vector<Source> sources{};
  std::vector<int64_t> places{};             // of the windows, that have a source somewhere
  int64_t target_step = 1, source_step = 1;  // positions between those of a run
};

// Returns the runs of a convolution's windows, or of its positions with `of_positions`.
ConvolutionRuns convolution_runs(const WindowAttrs& windows, bool of_positions);

}  // namespace dstrain
