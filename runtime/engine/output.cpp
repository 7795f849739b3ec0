// The trainer's files: what a run leaves in its output directory.
#include <array>

#include "runtime/core/error.h"
#include "runtime/engine/trainer.h"
#include "runtime/storage/atomic_file.h"
#include "runtime/storage/checkpoint.h"
#include "runtime/storage/weights.h"

namespace dstrain {

void Trainer::open_output() {
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
  if (!root()) return;
  if (ctx_.slot) ctx_.slot->set_state(RankState::saving);
  const StateRegister weights = model_.weights();
  WeightsWriter writer(job_.output + "/model.safetensors", weights);
  for (const StateEntry& entry : weights) writer.write(entry.name, entry.begin, entry.local);
  writer.finish();
}

}  // namespace dstrain
