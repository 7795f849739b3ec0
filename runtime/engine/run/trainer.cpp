#include "runtime/engine/run/trainer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "runtime/comm/devices/device_comm.h"
#include "runtime/config/family/family.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/log/log.h"
#include "runtime/core/text.h"
#include "runtime/engine/files/adapter_files.h"
#include "runtime/engine/metrics/loss_means.h"
#include "runtime/engine/profile/memory_breakdown.h"
#include "runtime/engine/profile/utilization.h"
#include "runtime/engine/resume/resume.h"
#include "runtime/engine/run/codec_error.h"
#include "runtime/engine/run/device_memory.h"
#include "runtime/engine/run/run_text.h"
#include "runtime/optim/loss_scaler.h"
#include "runtime/optim/optimizer_rules.h"
#include "runtime/optim/optimizer_state.h"
#include "runtime/plan/codecs/codecs.h"
#include "runtime/plan/divide.h"
#include "runtime/plan/mesh.h"
#include "runtime/plan/report/traffic.h"
#include "runtime/storage/checkpoint/checkpoint_load.h"
#include "runtime/storage/checkpoint/checkpoint_retention.h"
#include "runtime/storage/foreign/optimizer_folder.h"
#include "runtime/storage/weight_layout.h"
#include "runtime/storage/weights.h"

namespace dstrain {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Returns the largest value of any rank.
double max_over_ranks(Communicator& comm, double mine) {
  std::vector<double> all(static_cast<size_t>(comm.size()));
  comm.gather_values({&mine, 1}, all);
  return *std::max_element(all.begin(), all.end());
}

// Adds the names of a plan's instructions to the slot, each after `prefix`. Returns the index of the first.
int64_t add_names(RankSlot* slot, const Plan& plan, const std::string& prefix) {
  if (slot == nullptr) return 0;
  std::vector<std::string> names;
  for (const Instruction& op : plan.program.instructions)
    names.push_back(fmt::format("{}{} {}", prefix, name_of(op.op), plan.program.group_name(op)));
  return slot->add_names(names);
}

// Returns "cpu with amx" or "cuda on NVIDIA H200".
std::string device_text(const Backend& backend) {
  const std::string kernels = backend.library->description();
  if (backend.device->kind() != DeviceKind::cuda) return kernels;
  return fmt::format("{} on {}", kernels, backend.device->name());
}

PlanInputs plan_inputs_of(const Job& job, const Backend& backend, const RunContext& ctx) {
  return {backend.library, ctx.threads, backend.host_library, rates_of(job.device)};
}

RankPlan plan_of_rank(const Job& job, const Backend& backend, const RunContext& ctx) {
  return plan_that_fits(job, *backend.device, ranks_on_device(*ctx.comm, *backend.device),
                        *ctx.comm, plan_inputs_of(job, backend, ctx));
}

}  // namespace

Trainer::Trainer(const Job& job, const Dataset& dataset, RunContext& ctx)
    : Trainer(job, dataset, ctx, make_backend(ctx.implementations, job.device, ctx.gpu)) {}

Trainer::Trainer(const Job& job, const Dataset& dataset, RunContext& ctx, Backend backend)
    : job_(job),
      dataset_(dataset),
      ctx_(ctx),
      backend_(std::move(backend)),
      device_comm_(make_device_communicator(
          *ctx.comm, *backend_.device,
          {backend_.connect, job.rank_order_sums ? backend_.library->make_rank_sum() : nullptr})),
      comm_(device_comm_ ? *device_comm_ : *ctx.comm),
      place_(place_of(job, ctx.comm->rank())),
      mesh_(comm_, *ctx.comm, place_, job.pipeline.schedule),
      plans_(plan_of_rank(job, backend_, ctx)),
      full_rate_s_(full_rate_seconds(plans_.train, backend_, job_, ctx.threads, *ctx.comm)),
      arenas_(plans_.memory, *backend_.device, comm_, ctx.threads, job.offload.pin_memory),
      model_(plans_.train, arenas_, mesh_, ctx.threads),
      output_(job_, dataset_, ctx_, model_, mesh_),
      best_(job_.best) {
  if (device_comm_) device_comm_->set_deadline(static_cast<double>(job.timeout_s));
  make_executors();
  arenas_.open_disk(plans_.train, job);
  if (root())
    log::info("{}, {} of {}, {} a rank", device_text(backend_), counted(job.ranks, "rank"),
              counted(ctx.threads, "thread"), memory_line(plans_.memory));
  log_stages();
  log_codecs();
  for (const Space space : {Space::device, Space::host, Space::disk})
    peak_bytes_[static_cast<size_t>(space)] = static_cast<int64_t>(
        max_over_ranks(*ctx.comm, static_cast<double>(plans_.memory.total(space))));
  state_.seed = job.seed;
  init_loss_scale(state_, job.loss_scale);
}

void Trainer::make_executors() {
  for (const Plan* plan : plans_.training()) {
    const bool regular = plan->kind == StepKind::regular;
    train_.push_back(std::make_unique<Executor>(
        *plan, arenas_, backend_, job_, mesh_, ctx_.slot,
        add_names(ctx_.slot, *plan, regular ? "" : fmt::format("{}: ", name_of(plan->kind)))));
  }
  if (validates() || dataset_.references())
    validate_.emplace(plans_.validate, arenas_, backend_, job_, mesh_, ctx_.slot,
                      add_names(ctx_.slot, plans_.validate, "validation's "));
}

size_t Trainer::plan_after(int64_t applied_steps, std::optional<StepKind> last) const {
  const StepKind kind = kind_of_step(job_, applied_steps, last);
  for (size_t i = 0; i < plans_.other.size(); ++i)
    if (plans_.other[i].kind == kind) return i + 1;
  return 0;
}

// Logs what each stage of a pipeline has. Collective.
void Trainer::log_stages() const {
  if (place_.stages() == 1) return;
  const Program& program = plans_.train.program;
  double parameters = 0;
  for (const Parameter& p : program.parameters)
    parameters += static_cast<double>(p.shape.elements());
  std::vector<double> mine{parameters, static_cast<double>(plans_.memory.total())};
  for (const auto& [first, last] : runs_of(program))
    mine.insert(mine.end(), {static_cast<double>(first), static_cast<double>(last)});
  mine.resize(2 + 2 * static_cast<size_t>(chunks_of(job_.pipeline)), -1);
  const auto width = static_cast<int64_t>(mine.size());
  std::vector<double> all(mine.size() * static_cast<size_t>(job_.ranks));
  ctx_.comm
      ->all_gather({mine.data(), {width}, DType::f64},
                   {all.data(), {static_cast<int64_t>(all.size())}, DType::f64})
      .wait();
  if (!root()) return;
  for (int s = 0; s < place_.stages(); ++s) {
    const double* const stage = all.data() + width * world_rank(place_, s, 0);
    std::vector<SublayerRun> runs;
    for (size_t i = 2; i < mine.size() && stage[i] >= 0; i += 2)
      runs.push_back({static_cast<int>(stage[i]), static_cast<int>(stage[i + 1])});
    log::info("stage {}: layers {}, {} parameters, {} a rank", s,
              layers_text(program.sublayers, runs), static_cast<int64_t>(stage[0]),
              bytes_text(stage[1]));
  }
}

void Trainer::log_codecs() const {
  if (!root()) return;
  std::vector<int> hosts;
  for (int r = 0; r < job_.ranks; ++r) hosts.push_back(ctx_.comm->host_of(r));
  const std::string line =
      codec_line(job_, plans_.train, hosts, plan_inputs_of(job_, backend_, ctx_));
  if (!line.empty()) log::info("{}", line);
  if (const std::string kinds = step_kinds_text(job_, plans_); !kinds.empty())
    log::info("{}", kinds.substr(0, kinds.size() - 1));
}

void Trainer::load() {
  check_metric();
  load_state();
  arenas_.begin_populating();
}

void Trainer::load_state() {
  model_.begin_codecs(ctx_.implementations);
  if (!job_.resume.empty()) {
    load_from_checkpoint();
    return;
  }
  const bool adapted = job_.model.fine_tuning().lora.has_value();
  if (job_.init_weights.empty() || adapted)
    model_.initialize(job_.seed, ctx_.implementations,
                      job_.init_weights.empty() ? WantedWeight() : is_adapter);
  if (job_.init_weights.empty() && job_.adapters.init.empty()) return;
  // The weights may be those of a model without this head.
  if (job_.model.gives_score())
    model_.initialize(job_.seed, ctx_.implementations,
                      [](std::string_view name) { return name == kScoreTensor; });
  const AdaptedWeights weights = split_adapters(
      mapped(model_.weights_to_read(), weight_map_of(job_.model)), job_.model.fine_tuning());
  if (!job_.init_weights.empty())
    load_weights(job_.init_weights, weights.base, foreign_names_of(job_.model));
  if (!job_.adapters.init.empty())
    load_weights(fmt::format("{}/{}", adapter_folder(job_.adapters.init), kAdapterWeights),
                 weights.adapters, adapter_names_of(job_.model));
  model_.share_masters();
  model_.publish_masters();
  if (!job_.optimizer_state.empty()) load_optimizer_state();
}

void Trainer::load_optimizer_state() {
  const std::string& folder = job_.optimizer_state;
  const ForeignNames names = names_of_state(job_.model);
  for (const SlotRule& slot : state_slots(job_.optimizer))
    load_weights(file_of_slot(folder, slot.name),
                 mapped(model_.state_to_read(slot.name), weight_map_of(job_.model)), names);
  const ImportedProgress progress = read_progress(folder);
  state_.step = progress.steps;
  state_.applied_steps = progress.steps - progress.skipped;
  next_sample_ = progress.samples;
  if (root())
    log::info("the optimizer's state in {}: the run goes on after step {}, {}", folder,
              progress.steps, counted(progress.samples, "sample"));
}

void Trainer::load_from_checkpoint() {
  const bool groups = local_groups(job_) > 1;
  StateRegister everything = model_.everything({.weights = groups, .state = groups});
  TrainerScalars scalars;
  scalars.add_to(everything);
  resumed_ = load_checkpoint(job_.resume, everything, *ctx_.comm, [this](const CheckpointInfo& c) {
    if (root()) changes_since(c, job_, output_.facts());
  });
  scalars.load(state_);
  if (is_checkpoint_of(resumed_->dir, job_.output)) best_.resume(resumed_->label.best);
  if (!keeps_loss_scale(resumed_->label, job_)) init_loss_scale(state_, job_.loss_scale);
  next_sample_ = samples_before(resumed_->label, job_);
  check_frozen_state(*resumed_, job_, output_.facts(), state_.applied_steps);
  if (resumed_->groups > 1 && !groups_differ(job_, state_.applied_steps).state)
    fail_user(
        "--resume: {} groups of ranks have weights or optimizer state of their own after {} "
        "updates, and all ranks would add gradients until dstrain.comm_hook.start_localSGD_iter, "
        "{}: use a smaller number",
        resumed_->groups, state_.applied_steps, job_.hook.start);
  model_.publish_masters();
  if (!root()) return;
  log::info("{}", resume_line(*resumed_));
  for (const std::string& line : passed_over_lines(*resumed_)) log::warn("{}", line);
  for (const std::string& line : resumed_->codec_remarks) log::info("{}", line);
}

void Trainer::prepare_state() {
  StepState& s = state_;
  ++s.step;
  s.first_sample = job_.rows_of(next_sample_);
  next_sample_ += job_.batch.train_batch;
  s.loss_scale = s.next_loss_scale;
  // The end of the step tells all ranks that one was asked for something. What it is they exchange only then.
  s.stop = own_stop_signal() != 0 || output_.traces().is_requested() ? 1 : 0;
  set_optimizer_state(job_, s);
}

void Trainer::step() {
  prepare_state();
  const size_t index = ran_ = plan_after(state_.applied_steps, last_kind_);
  const Plan& plan = plan_of(index);
  if (ctx_.slot) ctx_.slot->begin_step(state_.step);
  StepContext context{.state = &state_,
                      .batch = batch_at(next_sample_ - job_.batch.train_batch),
                      .observer = ctx_.observer};
  if (state_.step < job_.steps && index == plan_after(state_.applied_steps + 1, plan.kind))
    context.next = batch_at(next_sample_);
  context.trace = output_.new_trace(state_.step, plan);
  if (job_.comms_logger.enabled && root())
    context.on_collective = [this, &plan](const CommRecord& record, const Instruction& op) {
      output_.add_collective(record, plan.program.group_name(op), state_.step);
    };
  train_[index]->run(context);
  arenas_.wait_until_present();
  if (ctx_.slot) ctx_.slot->leave_instruction();
  if (!state_.skip) {
    ++state_.applied_steps;
    last_kind_ = plan.kind;
  }
  if (ctx_.after_step) ctx_.after_step(*this);
}

bool Trainer::ends_epoch() const {
  const int64_t samples = dataset_.samples(Split::train);
  return next_sample_ / samples != (next_sample_ - job_.batch.train_batch) / samples;
}

void Trainer::log_begin() const {
  if (!root()) return;
  log::info("{}", first_line(job_, plans_.train, state_.step, ctx_.threads));
  const int64_t samples = dataset_.samples(Split::train);
  if (job_.model.family().reads_files() && state_.step < job_.steps)
    log::info("{}", seen_line(job_, samples, next_sample_, job_.steps - state_.step));
  const int64_t all = std::min(job_.eval_samples, dataset_.samples(Split::validation));
  if (validation_samples() < all)
    log::info("{}", left_out_line(validation_samples(), all, job_.batch.micro_batch));
}

int Trainer::agreed_stop_signal() {
  return static_cast<int>(max_over_ranks(*ctx_.comm, own_stop_signal()));
}

RunOutcome Trainer::run() {
  const auto due = [this](int64_t interval) { return interval > 0 && state_.step % interval == 0; };
  const auto begin = Clock::now();
  const int64_t first_step = state_.step;
  log_begin();
  output_.open(progress(), resumed_, full_rate_s_);
  if (job_.memory_breakdown) log_memory_breakdown(plans_.memory, arenas_, false, *ctx_.comm);
  find_references();
  while (state_.step < job_.steps && stop_signal_ == 0) {
    const auto start = Clock::now();
    const int64_t sent = comm_.wire_bytes();
    step();
    record(seconds_since(start), comm_.wire_bytes() - sent);
    output_.write_profile();
    if (job_.memory_breakdown && state_.step == first_step + 1)
      log_memory_breakdown(plans_.memory, arenas_, true, *ctx_.comm);
    if (state_.stop) stop_signal_ = agreed_stop_signal();
    output_.traces().end_step(*ctx_.comm, state_.stop != 0);
    const bool last = state_.step == job_.steps;
    const bool better = validates() && (due(job_.eval_interval) || last) && validate();
    const bool saves =
        due(job_.save_interval) || stop_signal_ != 0 || (better && job_.best.load_at_end);
    if (last || saves || ends_epoch()) dataset_.check_unchanged();
    if (saves) output_.save_checkpoint(progress());
    if (best_.ends_run() && !last) {
      if (root()) log::info("{}", patience_line(job_.best, state_.step, job_.steps));
      break;
    }
  }
  if (validates() && state_.step == first_step && stop_signal_ == 0) validate();
  if (job_.best.load_at_end && stop_signal_ == 0) load_best();
  output_.finish(progress());
  if (const Executor::GraphSize size = train_[0]->graph_size(); root() && size.graphs > 0)
    log::info("{}", graph_line(size.graphs, size.nodes, size.launches));
  output_.log_end(progress(), first_step, seconds_since(begin));
  return {.steps = state_.step, .stop_signal = stop_signal_};
}

void Trainer::record(double seconds, int64_t comm_bytes) {
  const StepState& s = state_;
  CodecErrors errors;
  const Plan& plan = plan_of(ran_);
  const bool learns = s.targets > 0;  // else nothing was computed
  const bool codecs = job_.quantize != QuantizeConfig{} || sends_factors(job_, place_, plan.kind) ||
                      (sends_signs(job_, place_, plan.kind) && s.skip == 0);
  if (learns && codecs && job_.steps_per_print > 0 && s.step % job_.steps_per_print == 0)
    errors = codec_errors(plan, arenas_, *backend_.device, *ctx_.comm);
  if (!output_.has_metrics()) return;
  output_.add_step({.step = s.step,
                    .samples = next_sample_,
                    .loss = learns ? s.loss_sum / static_cast<double>(s.targets)
                                   : std::numeric_limits<double>::quiet_NaN(),
                    .lr = s.lr,
                    .grad_norm = s.grad_norm,
                    .loss_scale = s.loss_scale,
                    .skipped = s.skip != 0,
                    .tokens = s.targets,
                    .samples_per_second = static_cast<double>(job_.batch.train_batch) / seconds,
                    .step_ms = seconds * 1e3,
                    .peak_bytes = peak_bytes_[static_cast<size_t>(Space::device)],
                    .comm_bytes = comm_bytes,
                    .host_bytes = peak_bytes_[static_cast<size_t>(Space::host)],
                    .disk_bytes = peak_bytes_[static_cast<size_t>(Space::disk)],
                    .codec_error = std::move(errors),
                    .losses = learns ? mean_losses(plan.program, train_[ran_]->losses(),
                                                   static_cast<double>(s.targets))
                                     : NamedLosses(),
                    .metrics = learns ? mean_metrics(plan.program, train_[ran_]->losses(),
                                                     static_cast<double>(s.targets))
                                      : NamedLosses(),
                    .phases = output_.newest_phases()});
}

}  // namespace dstrain
