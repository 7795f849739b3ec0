#include "runtime/config/pipeline_schedule.h"

#include <fmt/core.h>

#include "runtime/config/text.h"

namespace dstrain {

std::string_view schedule_name(PipelineSchedule schedule) {
  switch (schedule) {
    case PipelineSchedule::gpipe:
      return "gpipe";
    case PipelineSchedule::one_f_one_b:
      return "1f1b";
    case PipelineSchedule::interleaved:
      return "interleaved";
    case PipelineSchedule::zb_h1:
      return "zb-h1";
    case PipelineSchedule::zb_v:
      return "zb-v";
  }
  return "unknown";
}

std::optional<std::string> schedule_error(PipelineSchedule schedule, int stages, int virtual_stages,
                                          int micro_batches) {
  const std::string_view name = schedule_name(schedule);
  if (stages < 1) return fmt::format("a pipeline of {} stages: expected one or more", stages);
  if (micro_batches < 1)
    return fmt::format("a pipeline with {} micro-batches: expected one or more", micro_batches);
  switch (schedule) {
    case PipelineSchedule::interleaved:
      if (virtual_stages < 2)
        return fmt::format("schedule {} with {}: expected two or more, or schedule {}", name,
                           counted(virtual_stages, "virtual stage"),
                           schedule_name(PipelineSchedule::one_f_one_b));
      if (micro_batches % stages != 0)
        return fmt::format("schedule {} with {} on {}: expected a multiple of the stages", name,
                           counted(micro_batches, "micro-batch", "es"), counted(stages, "stage"));
      return std::nullopt;
    case PipelineSchedule::zb_v:
      if (virtual_stages != 2)
        return fmt::format("schedule {} with {}: expected two", name,
                           counted(virtual_stages, "virtual stage"));
      return std::nullopt;
    case PipelineSchedule::gpipe:
    case PipelineSchedule::one_f_one_b:
    case PipelineSchedule::zb_h1:
      if (virtual_stages != 1)
        return fmt::format("schedule {} with {}: expected one, or schedule {}", name,
                           counted(virtual_stages, "virtual stage"),
                           schedule_name(PipelineSchedule::interleaved));
      return std::nullopt;
  }
  return "an unknown schedule";
}

bool splits_backward(PipelineSchedule schedule) {
  return schedule == PipelineSchedule::zb_h1 || schedule == PipelineSchedule::zb_v;
}

int chunks_of(PipelineSchedule schedule, int virtual_stages) {
  if (schedule == PipelineSchedule::zb_v) return 2;
  return schedule == PipelineSchedule::interleaved ? virtual_stages : 1;
}

}  // namespace dstrain
