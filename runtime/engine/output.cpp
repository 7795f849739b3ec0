// The trainer's files: what a run leaves in its output directory.
#include <array>

#include "runtime/core/error.h"
#include "runtime/core/log.h"
#include "runtime/engine/trainer.h"
#include "runtime/storage/atomic_file.h"
#include "runtime/storage/checkpoint.h"
#include "runtime/storage/weights.h"

namespace dstrain {

void Trainer::open_output() {
  ctx_.comm->barrier();  // nothing of an earlier run goes before all ranks can start
  if (!root()) return;
  make_directory(job_.output);
  if (job_.resume.empty()) remove_checkpoints(job_.output);
  write_file(job_.output + "/resolved_config.json", ctx_.resolved_config);
  if (job_.model.kind == ModelKind::gptlite)
    write_file(job_.output + "/vocab.json", vocabulary_json(dataset_.vocabulary()));
  metrics_.emplace(MetricsOptions{.path = job_.output + "/metrics.jsonl",
                                  .steps = job_.steps,
                                  .steps_per_print = job_.steps_per_print,
                                  .resumed_step = state_.step});
}

void Trainer::save_checkpoint() {
  if (ctx_.slot) ctx_.slot->set_state(RankState::saving);
  StateRegister everything = model_.everything();
  TrainerScalars scalars;
  scalars.store(state_);
  scalars.add_to(everything);
  dstrain::save_checkpoint(job_.output, state_.step, everything, *ctx_.comm);
  if (ctx_.slot) ctx_.slot->set_state(RankState::running);
}

void Trainer::write_weights() {
  if (ctx_.slot) ctx_.slot->set_state(RankState::saving);
  std::optional<WeightsWriter> writer;
  if (root()) writer.emplace(job_.output + "/model.safetensors", model_.weights());
  model_.collect_weights([&](const Parameter& p, int64_t begin, const Tensor& values) {
    writer->write(p.name, begin, values);
  });
  if (writer) writer->finish();
}

void Trainer::write_traces() {
  write_trace(job_.trace, plans_.train, traces_, *ctx_.comm);
  if (!root() || traces_.size() < 2) return;
  StepSplit sum;  // without the first step, which is not like the others
  for (size_t i = 1; i < traces_.size(); ++i) {
    const StepSplit split = split_of(plans_.train, traces_[i]);
    sum.compute += split.compute;
    sum.exposed_comm += split.exposed_comm;
    sum.other += split.other;
  }
  const double percent = 100 / (sum.compute + sum.exposed_comm + sum.other);
  log::info(
      "trace of {} steps in {}: compute {:.1f} %, exposed communication {:.1f} %, other {:.1f} %",
      traces_.size() - 1, job_.trace, percent * sum.compute, percent * sum.exposed_comm,
      percent * sum.other);
}

}  // namespace dstrain
