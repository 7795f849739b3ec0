#include "runtime/engine/run/run_output.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <system_error>
#include <utility>

#include "runtime/config/family/family.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/files/atomic_file.h"
#include "runtime/core/log/log.h"
#include "runtime/core/text.h"
#include "runtime/data/chat/template_directory.h"
#include "runtime/engine/files/end_weights.h"
#include "runtime/engine/files/model_directory.h"
#include "runtime/engine/metrics/csv_monitor.h"
#include "runtime/engine/metrics/event_file.h"
#include "runtime/engine/metrics/metrics_file.h"
#include "runtime/engine/metrics/metrics_log.h"
#include "runtime/engine/profile/report_profile.h"
#include "runtime/engine/resume/resume.h"
#include "runtime/engine/run/step_phases.h"
#include "runtime/plan/mesh.h"
#include "runtime/storage/checkpoint/checkpoint_retention.h"
#include "runtime/storage/checkpoint/checkpoint_save.h"
#include "runtime/storage/disk/free_space.h"
#include "runtime/storage/output_lock.h"

namespace dstrain {
namespace {

// Returns whether a run that does not stop early leaves a checkpoint of its last step.
bool saves_last(const Job& job) {
  return job.save_last && job.steps > 0;
}

Job in_folder(const Job& job, std::string_view folder) {
  Job other = job;
  other.output = fmt::format("{}/{}", job.output, folder);
  return other;
}

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace

RunOutput::RunOutput(const Job& job, const Dataset& dataset, RunContext& ctx, ModelState& model,
                     MeshComm& mesh)
    : job_(job),
      averages_(in_folder(job, kAverageFolder)),
      dataset_(dataset),
      ctx_(ctx),
      model_(model),
      mesh_(mesh),
      comm_log_(job.comms_logger),
      traces_(job, ctx.requests) {}

void RunOutput::open(const RunProgress& progress, const std::optional<CheckpointInfo>& resumed,
                     double full_rate_s) {
  const int64_t step = progress.state.step;
  resumed_ = resumed;
  const bool groups = local_groups(job_) > 1;
  const int64_t bytes =
      job_.save_interval > 0 || saves_last(job_)
          ? checkpoint_bytes(model_.everything({.weights = groups, .state = groups}), *ctx_.comm)
          : 0;
  ctx_.comm->barrier();  // remove nothing of an earlier run before all ranks are able to start
  on_all_ranks(*ctx_.comm, "open the output directory", [&] {
    if (!root()) return;
    if (ctx_.output_holder.empty())
      make_directory(job_.output);
    else if (!is_locked_by(job_.output, ctx_.output_holder))
      OutputDirectory::fail_removed(job_.output);
    directory_.emplace(job_.output);
    check_space(job_.save_interval > 0 ? bytes : 0);
    begin_lineage(step);
    if (job_.save_interval == 0) warn_of_space(bytes);
    // Each checkpoint has them; from the first step on a data file whose time alone changes is known to be the same.
    if (job_.save_interval > 0 || saves_last(job_)) facts();
    // First what reads files of others: where that fails, the folder still says what its weights are of.
    remove_template_of_key();
    if (!ctx_.config_json.empty())
      saved_dtypes_ = begin_model_directory(
          job_, ctx_.config_json, resumed_here() ? OtherFiles::stay : OtherFiles::removed);
    write_file(job_.output + "/resolved_config.json", ctx_.resolved_config);
    if (writes_vocabulary())
      write_file(job_.output + "/vocab.json", vocabulary_json(dataset_.vocabulary()));
    if (has_averages()) begin_averages();
    open_sinks(progress, full_rate_s);
    make_profile_directory(job_.flops_profiler);
  });
  if (const auto text = no_profile_text(job_, step); text && root()) log::warn("{}", *text);
  for (const auto& sink : sinks_) sink->begin();
  if (resumed_here()) {
    saved_step_ = step;
    if (progress.best && job_.best.load_at_end) best_step_ = progress.best->step;
  }
}

void RunOutput::add_step(const StepMetrics& metrics) {
  directory_->require();
  if (metrics.tokens == 0)
    ++without_targets_;
  else if (metrics.skipped)
    ++skipped_;
  if (metrics.tokens > 0) loss_ = metrics.loss;
  for (const auto& sink : sinks_) sink->step(metrics);
}

void RunOutput::add_validation(const ValidationMetrics& metrics) {
  validation_loss_ = metrics.loss;
  for (const auto& sink : sinks_) sink->validation(metrics);
}

void RunOutput::show_validation(int64_t step, int64_t done, int64_t all) {
  for (const auto& sink : sinks_) sink->validating(step, done, all);
}

void RunOutput::add_collective(const CommRecord& record, const std::string& group, int64_t step) {
  comm_log_.add(record);
  if (job_.comms_logger.verbose && step % job_.steps_per_print == 0 && comm_log_.counts(record.op))
    log::info("{}", comm_line(record, group));
}

StepTrace* RunOutput::new_trace(int64_t step, const Plan& plan) {
  return traces_.begin(step, plan, job_.wall_clock_breakdown || is_profiled(job_, step));
}

std::optional<StepPhases> RunOutput::newest_phases() const {
  const StepTrace* newest = traces_.newest();
  if (!newest || !(job_.wall_clock_breakdown || is_profiled(job_, newest->step)))
    return std::nullopt;
  return phases_of(*newest);
}

void RunOutput::write_profile() const {
  if (const StepTrace* newest = traces_.newest(); newest && is_profiled(job_, newest->step))
    report_profile(job_, *newest, phases_of(*newest), *ctx_.comm);
}

// Opens what takes the metrics.
void RunOutput::open_sinks(const RunProgress& progress, double full_rate_s) {
  const int64_t step = resumed_here() ? progress.state.step : 0;  // what the directory has
  auto file = std::make_unique<MetricsFile>(job_.output + "/metrics.jsonl", step);
  const MonitorOptions options{.resumed_samples = step > 0 ? progress.next_sample : 0,
                               .resumed_validated = file->resumed_validated(),
                               .loss_scale = job_.dtype == DType::f16};
  sinks_.push_back(std::move(file));
  sinks_.push_back(std::make_unique<MetricsLog>(MetricsLogOptions{
      .steps = job_.steps,
      .steps_per_print = job_.steps_per_print,
      .resumed_step = step,
      .all_phases = job_.pipeline.stages == 1,
      .tokens = job_.model.family().predicts_tokens() && !job_.objective.compares_answers(),
      .full_rate_s = full_rate_s,
      .output = job_.output}));
  if (job_.csv_monitor.enabled)
    sinks_.push_back(std::make_unique<CsvMonitor>(job_.csv_monitor.directory, options));
  if (job_.tensorboard.enabled)
    sinks_.push_back(std::make_unique<EventFile>(job_.tensorboard.directory, options));
}

// Returns whether the run's vocab.json is its own. Token ids of one of transformers' models are the tokenizer's, whose file
// may have that name.
bool RunOutput::writes_vocabulary() const {
  const bool tokens = dataset_.vocabulary().format == DataFormat::tokens;
  return job_.model.family().reads_tokens() && (ctx_.config_json.empty() || !tokens);
}

// Throws UserError if one checkpoint and the weights do not fit on the disk: the run would lose its work.
void RunOutput::check_space(int64_t checkpoint) const {
  const std::string lack =
      lack_of_space(checkpoint > 0 ? "a checkpoint with the weights" : "the file of the weights",
                    checkpoint + weight_bytes(), free_bytes(job_.output), job_.output);
  if (!lack.empty())
    fail_user("{}: make room there, or name another directory with --output", lack);
}

// Warns if the checkpoint of the run's end does not fit beside the weights; nothing is lost before that.
void RunOutput::warn_of_space(int64_t checkpoint) const {
  const std::string lack = lack_of_space("the checkpoint at the end, with the weights",
                                         checkpoint > 0 ? checkpoint + weight_bytes() : 0,
                                         free_bytes(job_.output), job_.output);
  if (!lack.empty())
    log::warn("{}: without room it is left out, and the run cannot be resumed (dstrain.save_last)",
              lack);
}

void RunOutput::remove_template_of_key() const {
  if (resumed_here() && job_.data.chat_template.empty() &&
      resumed_->label.facts.contains(std::string(kTemplateKey)))
    remove_file(fmt::format("{}/{}", job_.output, kTemplateFile));
}

bool RunOutput::resumed_here() const {
  return resumed_ && is_checkpoint_of(resumed_->dir, job_.output);
}

const RunFacts& RunOutput::facts() {
  if (facts_.empty()) facts_ = run_facts(job_, dataset_);
  return facts_;
}

// Makes the checkpoints in the output directory those of this run's lineage; sets others aside.
void RunOutput::begin_lineage(int64_t step) {
  lineage_ = resumed_ ? branch_of(resumed_->label.lineage, step, ctx_.job) : new_lineage(ctx_.job);
  const std::string from = resumed_ ? resumed_->dir : "";
  if (!resumed_here()) {
    if (job_.overwrite) remove_checkpoints(job_.output, from);
    remove_end_checkpoints(job_.output, from);
    remove_earlier_weights(job_);
    remove_earlier_averages();
  }
  const std::vector<std::string> aside = continue_lineage(job_.output, lineage_, step, from);
  if (!aside.empty())
    log::info("set aside, as this run does not go on from {}: {}{}",
              aside.size() == 1 ? "it" : "them", aside.front(),
              aside.size() == 1 ? "" : fmt::format(" and {} more", aside.size() - 1));
}

void RunOutput::save_checkpoint(const RunProgress& progress) {
  save(progress, false, job_.save_required);
}

void RunOutput::save(const RunProgress& progress, bool at_end, bool required) {
  const StepState& state = progress.state;
  if (ctx_.slot) ctx_.slot->set_state(RankState::saving);
  if (root()) directory_->require();
  tried_step_ = state.step;
  StateRegister everything = model_.everything(groups_differ(job_, state.applied_steps));
  TrainerScalars scalars;
  scalars.store(state);
  scalars.add_to(everything);
  CheckpointLabel label{.step = state.step, .samples = progress.next_sample, .lineage = lineage_};
  label.end = at_end;
  if (root()) label.facts = kept_facts(facts());
  if (job_.best.used()) label.best = progress.best;
  // The newest checkpoint stays until there is another one.
  const auto make_room = [this] {
    return job_.keep_last > 0 && remove_old(std::max<int64_t>(job_.keep_last - 1, 1)) > 0;
  };
  const std::optional<AgreedFailure> failure =
      try_save_checkpoint(job_.output, label, everything, *ctx_.comm, make_room);
  if (!failure) {
    saved_step_ = state.step;
    if (progress.best && job_.best.load_at_end) best_step_ = progress.best->step;
    if (root()) remove_old(job_.keep_last);
  } else {
    if (root()) directory_->require();  // the reason, if the directory is gone
    if (!failure->can_go_on || required) std::rethrow_exception(failure->error);
    const int64_t bytes = checkpoint_bytes(everything, *ctx_.comm);
    if (failure->own || root())
      log::warn("the checkpoint of step {}, of {}, is left out: {}", state.step,
                bytes_text(static_cast<double>(bytes)), text_of(failure->error));
  }
  if (ctx_.slot) ctx_.slot->set_state(RankState::running);
}

bool RunOutput::has_checkpoint(int64_t step) const {
  const bool here = root() && std::filesystem::exists(fmt::format(
                                  "{}/{}", checkpoint_directory(job_.output, step), kManifestName));
  const double mine = here ? 1 : 0;
  std::vector<double> all(static_cast<size_t>(ctx_.comm->size()));
  ctx_.comm->gather_values({&mine, 1}, all);
  return all.front() != 0;
}

void RunOutput::save_last(const RunProgress& progress, bool required) {
  const int64_t step = progress.state.step;
  if (!saves_last(job_) || progress.has_stopped) return;
  if (saved_step_ != step && tried_step_ != step) save(progress, true, required);
  if (!root() || saved_step_ != step) return;
  try {
    remove_end_checkpoints(job_.output, lineage_, step);
  } catch (const RunError& e) {
    log::warn("dstrain.save_last: {}", e.what());
  }
}

// A checkpoint that cannot be removed only uses disk space, so a failure is logged and the run continues.
int64_t RunOutput::remove_old(int64_t keep_last) const {
  try {
    return remove_old_checkpoints(job_.output, lineage_, keep_last, job_.keep_every, best_step_);
  } catch (const RunError& e) {
    log::warn("dstrain.keep_last: {}", e.what());
    return 0;
  }
}

void RunOutput::finish(const RunProgress& progress) {
  const int64_t applied_steps = progress.state.applied_steps;
  std::optional<AgreedFailure> lost = write_weights(job_, applied_steps);
  if (!lost) lost = write_averages(applied_steps);
  if (lost && !lost->can_go_on) std::rethrow_exception(lost->error);
  save_last(progress, job_.save_required && !lost);
  if (lost) {
    if (root() && saved_step_ == progress.state.step)
      log::warn(
          "the weights of step {} are in its checkpoint alone: once there is room, --resume {} "
          "writes model.safetensors",
          progress.state.step, job_.output);
    std::rethrow_exception(lost->error);
  }
  traces_.finish(*ctx_.comm);
}

void RunOutput::log_end(const RunProgress& progress, int64_t first_step, double seconds) {
  if (!root()) return;
  const int64_t steps = progress.state.step - first_step;
  if (const std::string table = comm_log_.table(); !table.empty())
    log::info("collectives of rank 0, in {}:\n{}", counted(steps, "step"), table);
  const RunEnd end{.first_step = first_step,
                   .steps = steps,
                   .stopped = progress.has_stopped,
                   .saved = saved_step_ == progress.state.step,
                   .skipped = skipped_,
                   .without_targets = without_targets_,
                   .seconds = seconds,
                   .loss = loss_,
                   .validation_loss = validation_loss_};
  for (const auto& sink : sinks_) sink->end(end);
}

}  // namespace dstrain
