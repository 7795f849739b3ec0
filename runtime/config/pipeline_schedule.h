// What the schedules of a pipeline ask of its numbers.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/config/job.h"

namespace dstrain {

// What begins a partition by the names of layers; a regular expression follows.
inline constexpr std::string_view kByLayerName = "type:";

// Returns the name of a schedule as the configuration writes it: "zb-h1".
std::string_view schedule_name(PipelineSchedule schedule);

// Returns what is wrong with the numbers for this schedule, or nothing if a pipeline can have them.
std::optional<std::string> schedule_error(PipelineSchedule schedule, int stages, int virtual_stages,
                                          int micro_batches);

// Returns the number of parts of the model that each stage has, its chunks.
int chunks_of(PipelineSchedule schedule, int virtual_stages);
inline int chunks_of(const PipelineConfig& pipeline) {
  return chunks_of(pipeline.schedule, pipeline.virtual_stages);
}

// Returns whether a pipeline of two stages or more computes weight gradients apart from the other gradients.
bool splits_backward(PipelineSchedule schedule);

}  // namespace dstrain
