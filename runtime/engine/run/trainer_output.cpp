// The part of Trainer that writes files: the output directory of a run.
#include <array>
#include <filesystem>
#include <system_error>

#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/log/log.h"
#include "runtime/engine/run/resume.h"
#include "runtime/engine/run/trainer.h"
#include "runtime/storage/atomic_file.h"
#include "runtime/storage/checkpoint/checkpoint_retention.h"
#include "runtime/storage/checkpoint/checkpoint_save.h"
#include "runtime/storage/free_space.h"
#include "runtime/storage/on_all_ranks.h"
#include "runtime/storage/weights.h"

namespace dstrain {

void Trainer::open_output() {
  const bool groups = local_groups(job_) > 1;
  const int64_t bytes =
      job_.save_interval > 0
          ? checkpoint_bytes(model_.everything({.weights = groups, .state = groups}), *ctx_.comm)
          : 0;
  ctx_.comm->barrier();  // remove nothing of an earlier run before all ranks are able to start
  on_all_ranks(*ctx_.comm, "open the output directory", [&] {
    if (!root()) return;
    make_directory(job_.output);
    output_.emplace(job_.output);
    check_space(bytes);
    begin_lineage();
    write_file(job_.output + "/resolved_config.json", ctx_.resolved_config);
    if (job_.model.kind == ModelKind::gptlite)
      write_file(job_.output + "/vocab.json", vocabulary_json(dataset_.vocabulary()));
    metrics_.emplace(MetricsOptions{.path = job_.output + "/metrics.jsonl",
                                    .steps = job_.steps,
                                    .steps_per_print = job_.steps_per_print,
                                    .resumed_step = resumed_here() ? state_.step : 0});
  });
}

// Throws UserError if one checkpoint and the weights do not fit on the disk: the run would lose its work.
void Trainer::check_space(int64_t checkpoint) const {
  int64_t weights = 0;
  for (const StateEntry& w : model_.weights())
    weights += w.global_shape.elements() * size_of(DType::f32);
  const std::string lack =
      lack_of_space(checkpoint > 0 ? "a checkpoint with the weights" : "the file of the weights",
                    checkpoint + weights, free_bytes(job_.output), job_.output);
  if (!lack.empty())
    fail_user("{}: make room there, or name another directory with --output", lack);
}

bool Trainer::resumed_here() const {
  if (!resumed_) return false;
  std::error_code error;
  const std::filesystem::path root = std::filesystem::path(resumed_->dir + "/").parent_path();
  return std::filesystem::equivalent(root.parent_path(), job_.output + "/checkpoints", error) &&
         !error;
}

const RunFacts& Trainer::facts() {
  if (facts_.empty()) facts_ = run_facts(job_, dataset_);
  return facts_;
}

// Makes the checkpoints in the output directory those of this run's lineage; sets others aside.
void Trainer::begin_lineage() {
  lineage_ =
      resumed_ ? branch_of(resumed_->label.lineage, state_.step, ctx_.job) : new_lineage(ctx_.job);
  if (job_.overwrite && !resumed_here()) remove_checkpoints(job_.output);
  const std::vector<std::string> aside =
      continue_lineage(job_.output, lineage_, state_.step, resumed_ ? resumed_->dir : "");
  if (!aside.empty())
    log::info("set aside, as this run does not go on from {}: {}{}",
              aside.size() == 1 ? "it" : "them", aside.front(),
              aside.size() == 1 ? "" : fmt::format(" and {} more", aside.size() - 1));
}

void Trainer::save_checkpoint() {
  if (ctx_.slot) ctx_.slot->set_state(RankState::saving);
  if (root()) output_->require();
  StateRegister everything = model_.everything(groups_differ(job_, state_.applied_steps));
  TrainerScalars scalars;
  scalars.store(state_);
  scalars.add_to(everything);
  CheckpointLabel label{.step = state_.step, .samples = next_sample_, .lineage = lineage_};
  if (root()) label.facts = kept_facts(facts());
  try {
    dstrain::save_checkpoint(job_.output, label, everything, *ctx_.comm);
  } catch (const RunError&) {
    if (root()) output_->require();  // the reason, if the directory is gone
    throw;
  }
  if (root()) remove_old();
  if (ctx_.slot) ctx_.slot->set_state(RankState::running);
}

// A checkpoint that cannot be removed only uses disk space, so a failure is logged and the run continues.
void Trainer::remove_old() const {
  try {
    remove_old_checkpoints(job_.output, lineage_, job_.keep_last, job_.keep_every);
  } catch (const RunError& e) {
    log::warn("dstrain.keep_last: {}", e.what());
  }
}

void Trainer::write_weights() {
  if (ctx_.slot) ctx_.slot->set_state(RankState::saving);
  std::optional<WeightsWriter> writer;
  if (root()) output_->require();
  if (root()) writer.emplace(job_.output + "/model.safetensors", model_.weights());
  const auto write = [&](const Parameter& p, int64_t begin, const Tensor& values) {
    writer->write(p.name, begin, values);
  };
  model_.collect_weights(mesh_, write, groups_differ(job_, state_.applied_steps).weights);
  if (writer) writer->finish();
}

void Trainer::write_traces() {
  write_trace(job_.trace, traces_, *ctx_.comm);
  if (!root() || traces_.size() < 2) return;
  StepSplit sum;  // without the first step, which also warms up
  for (size_t i = 1; i < traces_.size(); ++i) {
    const StepSplit split = split_of(traces_[i]);
    sum.compute += split.compute;
    sum.exposed_comm += split.exposed_comm;
    sum.other += split.other;
  }
  const double percent = 100 / (sum.compute + sum.exposed_comm + sum.other);
  log::info("trace of {} in {}: compute {:.1f} %, exposed communication {:.1f} %, other {:.1f} %",
            counted(static_cast<int64_t>(traces_.size()) - 1, "step"), job_.trace,
            percent * sum.compute, percent * sum.exposed_comm, percent * sum.other);
}

}  // namespace dstrain
