// The graph of a ResNet: torchvision's modules, with the mean cross-entropy of a micro-batch and its accuracy.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "models/resnet/graph_writer.h"

namespace dstrain::residual {

struct Sizes {
  std::array<int64_t, 4> blocks{};  // of the four stages
  bool bottleneck = false;  // blocks of three convolutions, whose results are four times as wide
  bool cifar_stem =
      false;  // a convolution of 3 x 3 with stride 1, and no pool; else 7 x 7 with stride 2, and a pool
  int64_t width = 64;  // channels of the first stage
  int64_t channels = 3, image_size = 224, classes = 1000;
};

// Returns the number of blocks.
int64_t blocks_of(const Sizes& sizes);

// Returns the graph for a batch of so many images. `label_smoothing`: of the loss.
GraphWriter resnet_graph(const Sizes& sizes, int64_t batch, float label_smoothing);

}  // namespace dstrain::residual
