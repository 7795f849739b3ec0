// Levels the memory of a pipeline's stages by asking their plans, where a model of it is not exact.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/config/job.h"
#include "runtime/plan/pipeline/partition.h"

namespace dstrain {

// Returns the bytes that a stage needs of its device with a division: the first layer of every part and, at the end,
// the number of layers.
using StageBytes = std::function<int64_t(const std::vector<int64_t>& first, int stage)>;

// Returns a division of `layers` whose largest stage is about as small as possible by `planned`: the best one by
// `model`, which is corrected by what the stages of that division need, and again; then single layers move from the
// largest stage to others as long as that helps. No part is empty unless there are fewer layers than parts; then it is
// the uniform one. Asks `planned` some ten times for each stage.
std::vector<int64_t> level_stages(int64_t layers, const PipelineConfig& pipeline,
                                  const PartBytes& model, const StageBytes& planned);

}  // namespace dstrain
