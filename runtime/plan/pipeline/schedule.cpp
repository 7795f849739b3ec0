#include "runtime/plan/pipeline/schedule.h"

#include <algorithm>

#include "runtime/core/error.h"
#include "runtime/plan/pipeline/zero_bubble.h"

namespace dstrain {
namespace {

std::vector<StageTask> one_stage(int chunks, int micro_batches) {
  std::vector<StageTask> order;
  for (int micro = 0; micro < micro_batches; ++micro) {
    for (int chunk = 0; chunk < chunks; ++chunk) order.push_back({Phase::forward, chunk, micro});
    for (int chunk = chunks; chunk-- > 0;) order.push_back({Phase::backward, chunk, micro});
  }
  return order;
}

// Returns `forwards`, of which the first `warmup` come first, in turns with `backwards`.
std::vector<StageTask> in_turns(const std::vector<StageTask>& forwards,
                                const std::vector<StageTask>& backwards, int warmup) {
  const auto first = static_cast<size_t>(warmup);
  std::vector<StageTask> order(forwards.begin(), forwards.begin() + warmup);
  for (size_t i = 0; i < backwards.size(); ++i) {
    if (first + i < forwards.size()) order.push_back(forwards[first + i]);
    order.push_back(backwards[i]);
  }
  return order;
}

// Groups of `stages` micro-batches pass through the chunks in turn, backward from the last chunk
// (Narayanan et al., 2021, as Megatron-LM orders it). With one chunk these are the micro-batches in order.
std::vector<StageTask> grouped(Phase phase, int stages, int chunks, int micro_batches) {
  std::vector<StageTask> tasks;
  const int group = stages * chunks;
  for (int k = 0; k < micro_batches * chunks; ++k) {
    const int turn = k % group / stages;
    tasks.push_back({phase, phase == Phase::forward ? turn : chunks - 1 - turn,
                     k / group * stages + k % stages});
  }
  return tasks;
}

}  // namespace

std::vector<StageTask> stage_order(PipelineSchedule schedule, int stages, int virtual_stages,
                                   int stage, int micro_batches) {
  const std::optional<std::string> error =
      schedule_error(schedule, stages, virtual_stages, micro_batches);
  check(!error, "{}", error.value_or(""));
  check(stage >= 0 && stage < stages, "stage {} of a pipeline of {} stages", stage, stages);
  const int chunks = chunks_of(schedule, virtual_stages);
  if (stages == 1) return one_stage(chunks, micro_batches);
  const int below = stages - 1 - stage;  // stages after this one
  const auto index = static_cast<size_t>(stage);
  const std::vector<StageTask> forwards = grouped(Phase::forward, stages, chunks, micro_batches);
  const std::vector<StageTask> backwards = grouped(Phase::backward, stages, chunks, micro_batches);
  switch (schedule) {
    case PipelineSchedule::gpipe:
      return in_turns(forwards, backwards, micro_batches);
    case PipelineSchedule::one_f_one_b:
      return in_turns(forwards, backwards, std::min(below, micro_batches));
    case PipelineSchedule::interleaved:
      return in_turns(forwards, backwards,
                      std::min(2 * below + (chunks - 1) * stages, micro_batches * chunks));
    case PipelineSchedule::zb_h1:
      return zb_h1_orders(stages, micro_batches)[index];
    case PipelineSchedule::zb_v:
      return zb_v_orders(stages, micro_batches)[index];
  }
  return {};
}

int part_of(PipelineSchedule schedule, int stages, int stage, int chunk) {
  if (schedule == PipelineSchedule::zb_v && chunk == 1) return 2 * stages - 1 - stage;
  return chunk * stages + stage;
}

StageChunk chunk_of_part(PipelineSchedule schedule, int stages, int part) {
  const StageChunk place{part % stages, part / stages};
  if (schedule == PipelineSchedule::zb_v && place.chunk == 1)
    return {stages - 1 - place.stage, place.chunk};
  return place;
}

}  // namespace dstrain
