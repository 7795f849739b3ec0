// What tests of pipeline schedules ask of one.
#pragma once

#include <fmt/core.h>

#include <string>
#include <vector>

#include "runtime/plan/pipeline/schedule.h"

namespace dstrain {

inline constexpr PipelineSchedule kSchedules[] = {
    PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b, PipelineSchedule::interleaved,
    PipelineSchedule::zb_h1, PipelineSchedule::zb_v};

// A pipeline schedule to test, with its numbers of stages, virtual stages and micro-batches.
struct PipelineCase {
  PipelineSchedule schedule{};
  int stages = 1, virtual_stages = 1, micros = 1;
  std::string text() const {
    return fmt::format("schedule {}, {} stages, {} virtual, {} micro-batches",
                       static_cast<int>(schedule), stages, virtual_stages, micros);
  }
};

// All that schedules take of up to 8 stages, 4 virtual stages and 16 micro-batches.
inline std::vector<PipelineCase> pipeline_cases() {
  std::vector<PipelineCase> cases;
  for (const PipelineSchedule schedule : kSchedules)
    for (int stages = 1; stages <= 8; ++stages)
      for (int chunks = 1; chunks <= 4; ++chunks)
        for (int micros = 1; micros <= 16; ++micros)
          if (!schedule_error(schedule, stages, chunks, micros))
            cases.push_back({schedule, stages, chunks, micros});
  return cases;
}

// "F0 F1 B0'": the phase and micro-batch of every task, with a ' for each chunk before its own.
inline std::string text_of(const std::vector<StageTask>& order) {
  std::string text;
  for (const StageTask& task : order)
    text += fmt::format("{}{}{}{}", text.empty() ? "" : " ", "FBW"[static_cast<int>(task.phase)],
                        task.micro, std::string(static_cast<size_t>(task.chunk), '\''));
  return text;
}

}  // namespace dstrain
