#include "runtime/config/solve/solve_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "runtime/config/family/family.h"
#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/solve/data/solve_data.h"
#include "runtime/config/solve/model/open_model.h"
#include "runtime/config/solve/model/solve_fine_tuning.h"
#include "runtime/config/solve/model/solve_objective.h"
#include "runtime/config/solve/solve_precision.h"
#include "runtime/config/text.h"

namespace dstrain {
namespace {

// Returns the value of a key that has a default or is given. Integers alone may have none.
ModelConfig::Value value_of(const KeySpec& spec, Values& v) {
  switch (spec.type) {
    case Type::integer:
      return spec.fallback.empty() ? v.integer(spec.key, 0, "") : v.integer(spec.key);
    case Type::real:
      return v.real(spec.key);
    case Type::boolean:
      return v.flag(spec.key);
    case Type::any:
    case Type::strings: {
      const std::string text = json_text(v.given(spec.key)->value);
      v.record(spec.key, text, v.origin_of(spec.key));
      return text;
    }
    default:
      return spec.fallback.empty() ? v.text(spec.key, "", "") : v.text(spec.key);
  }
}

void report(const KeyProblem& problem, Values& v, Diagnostics& diagnostics) {
  if (std::ranges::any_of(problem.keys, [&](auto key) { return diagnostics.stopped(key); })) return;
  const auto given = std::ranges::find_if(problem.keys, [&v](auto key) { return v.given(key); });
  diagnostics.error(given == problem.keys.end() ? problem.keys.back() : *given, problem.message);
}

void solve_model(ModelConfig& m, Values& v, Diagnostics& diagnostics) {
  const ModelFamily& family = m.family();
  for (const ModelKey& key : family.keys) {
    const std::string_view path = key.spec.key;
    if (key.required) {
      if (!v.given(path))
        diagnostics.error(
            path, fmt::format("the {} needs it: add --set {}=64, for example", family.title, path));
      m.set(key.name(), v.integer(path, 1, "missing"));
    } else if (!key.spec.fallback.empty() || v.given(path)) {
      m.set(key.name(), value_of(key.spec, v));
    }
  }
  if (!family.problem || diagnostics.stopped({kModelType, kHuggingFaceType})) return;
  if (const std::optional<KeyProblem> problem = family.problem(m)) report(*problem, v, diagnostics);
}

// Two keys set recompute: DeepSpeed's interval, whose default 0 means none, and dstrain.recompute. If both are
// given, they must agree.
RecomputeConfig solve_recompute(Values& v, Diagnostics& diagnostics) {
  constexpr std::string_view interval_key = "pipeline.activation_checkpoint_interval";
  constexpr std::string_view own_key = "dstrain.recompute";
  const auto of_interval = [](int64_t n) {
    return n > 0 ? RecomputeConfig{RecomputeMode::interval, n} : RecomputeConfig{};
  };
  const int64_t interval = v.integer(interval_key);
  const Member* own = v.given(own_key);
  if (!own) {
    const std::string why = interval > 0 ? std::string(interval_key) : "the default";
    v.record(own_key, interval > 0 ? std::to_string(interval) : "\"none\"",
             v.is_auto(own_key) ? "auto: " + why
             : interval > 0     ? "derived: " + why
                                : "default");
    return of_interval(interval);
  }
  const std::optional<int64_t> number = to_integer(own->value, false);
  RecomputeConfig config = of_interval(number.value_or(0));
  if (!number && lower_case(own->value.text) == "selective") config.mode = RecomputeMode::selective;
  v.record(own_key, json_text(own->value), v.origin_of(own_key));
  if (interval > 0 && config != of_interval(interval))
    diagnostics.error(own_key, fmt::format("{} is not what {} {} asks for: keep one of the two",
                                           json_text(own->value), interval_key, interval));
  return config;
}

// Returns whether rows are gathered again. A resolved configuration has no value where the memory is to decide.
GatherAgain solve_gathers(Values& v) {
  constexpr std::string_view key = "dstrain.gather_again";
  if (!v.given(key)) return GatherAgain::automatic;
  return v.flag(key, false, "as given") ? GatherAgain::on : GatherAgain::off;
}

// Returns the pieces in which a part of the model is computed, 0 where the memory is to decide. A resolved configuration
// has no value then.
int64_t solve_chunks(std::string_view key, Values& v) {
  return v.given(key) ? v.integer(key) : 0;
}

// Returns the pieces in which the model's loss is computed: one where it cannot be divided.
int64_t solve_loss_chunks(const Job& job, Values& v, Diagnostics& diagnostics) {
  constexpr std::string_view key = "dstrain.loss_chunks";
  const ModelConfig& model = job.model;
  const int64_t chunks = solve_chunks(key, v);
  if (!job.objective.has_plain_loss()) {
    if (chunks > 1)
      diagnostics.no_effect(key, job.objective.has_teacher()
                                     ? "a loss with a teacher cannot be computed in pieces"
                                     : "a loss of whole answers cannot be computed in pieces");
    return 1;
  }
  if (chunks <= 1 || model.measures().divides_loss) return chunks;
  if (model.family().reads_tokens())
    diagnostics.no_effect(
        key, fmt::format("the loss of the {} cannot be computed in pieces", model.family().title));
  return 1;
}

AioConfig solve_aio(Values& v) {
  return {.block_size = v.integer("aio.block_size"),
          .queue_depth = v.integer("aio.queue_depth"),
          .intra_op_parallelism = v.integer("aio.intra_op_parallelism"),
          .single_submit = v.flag("aio.single_submit"),
          .overlap_events = v.flag("aio.overlap_events")};
}

CommsLoggerConfig solve_comms_logger(Values& v) {
  CommsLoggerConfig config;
  config.enabled = v.flag("comms_logger.enabled");
  if (!config.enabled) return config;
  config.verbose = v.flag("comms_logger.verbose");
  config.all_ops = v.flag("comms_logger.prof_all");
  if (const Member* ops = v.given("comms_logger.prof_ops")) {
    for (const Node& name : ops->value.items) config.ops.push_back(name.text);
    v.record("comms_logger.prof_ops", json_text(ops->value), v.origin_of("comms_logger.prof_ops"));
  }
  return config;
}

// Reads the section of a monitor. One that is off is not in the resolved configuration.
MonitorConfig solve_monitor(const std::string& section, Values& v, const Facts& facts) {
  if (!facts.on(section + ".enabled")) return {};
  MonitorConfig config;
  config.enabled = v.flag(section + ".enabled");
  const std::string path = v.text(section + ".output_path"), name = v.text(section + ".job_name");
  config.directory = path.empty() ? name : path.ends_with('/') ? path + name : path + "/" + name;
  return config;
}

// Reads the section of the profiler. One that is off is not in the resolved configuration.
FlopsProfilerConfig solve_flops_profiler(Values& v, const Facts& facts) {
  if (!facts.on("flops_profiler.enabled")) return {};
  FlopsProfilerConfig config;
  config.enabled = v.flag("flops_profiler.enabled");
  config.profile_step = v.integer("flops_profiler.profile_step");
  config.module_depth = v.integer("flops_profiler.module_depth");
  config.top_modules = v.integer("flops_profiler.top_modules");
  config.detailed = v.flag("flops_profiler.detailed");
  if (v.given("flops_profiler.output_file"))
    config.output_file = v.text("flops_profiler.output_file", "", "");
  config.recompute_fwd_factor = v.real("flops_profiler.recompute_fwd_factor");
  return config;
}

OffloadTo offload_to(const std::string& device) {
  return device == "cpu" ? OffloadTo::cpu : device == "nvme" ? OffloadTo::nvme : OffloadTo::none;
}

// Adds the directories of another section. Tensors are striped over all of them.
void add_paths(const std::vector<std::string>& more, std::vector<std::string>& paths) {
  for (const std::string& path : more)
    if (std::ranges::find(paths, path) == paths.end()) paths.push_back(path);
}

void solve_activations(OffloadConfig& offload, Values& v, const Facts& facts) {
  offload.activations = offload_to(v.text("dstrain.offload.activations"));
  const bool keeps_on_host =
      v.flag("activation_checkpointing.cpu_checkpointing") && facts.recomputes;
  if (offload.activations == OffloadTo::none && keeps_on_host) offload.activations = OffloadTo::cpu;
  if (offload.activations == OffloadTo::nvme && v.given("dstrain.offload.nvme_path"))
    add_paths(v.texts("dstrain.offload.nvme_path"), offload.nvme_paths);
}

OffloadConfig solve_offload(Values& v, const Facts& facts) {
  OffloadConfig offload;
  const std::string of_parameters = "zero_optimization.offload_param";
  const OffloadTo parameters = offload_to(v.text(of_parameters + ".device"));
  if (facts.stage == 3) offload.parameters = parameters;
  const bool any = offload.parameters != OffloadTo::none;
  if (any) offload.pin_memory = v.flag(of_parameters + ".pin_memory");
  if (offload.parameters == OffloadTo::nvme) {
    offload.max_in_cpu = v.integer(of_parameters + ".max_in_cpu");
    offload.nvme_paths = v.texts(of_parameters + ".nvme_path");
  }
  const std::string section = "zero_optimization.offload_optimizer";
  offload.optimizer = offload_to(v.text(section + ".device"));
  offload.ratio = v.real(section + ".ratio");
  if (offload.optimizer == OffloadTo::none) return offload;
  offload.pin_memory = v.flag(section + ".pin_memory") || (any && offload.pin_memory);
  if (offload.optimizer == OffloadTo::nvme)
    add_paths(v.texts(section + ".nvme_path"), offload.nvme_paths);
  if (offload.optimizer == OffloadTo::nvme)
    offload.read_ahead = v.integer("dstrain.offload.read_ahead");
  const std::string on = v.text("dstrain.offload.optimizer_on");
  offload.optimizer_on = on == "host"     ? UpdateOn::host
                         : on == "device" ? UpdateOn::device
                                          : UpdateOn::automatic;
  return offload;
}

// Returns the number of steps.
int64_t solve_steps(Values& v, Diagnostics& diagnostics, const ConfigRequest& request) {
  constexpr std::string_view key = "dstrain.steps";
  if (!request.epochs) return v.integer(key);
  if (v.given(key))
    diagnostics.error(key, fmt::format("{} and --epochs {} both say how long the run is: keep one",
                                       v.integer(key), json_text(*request.epochs)));
  else
    v.record(key, std::to_string(request.epoch_steps), "derived: --epochs");
  return request.epoch_steps;
}

// Returns what validations decide. Its keys without their purpose have no effect.
BestModelConfig solve_best(const Job& job, Values& v, Diagnostics& diagnostics) {
  constexpr std::string_view load = "dstrain.load_best_model_at_end",
                             patience = "dstrain.early_stopping_patience",
                             metric = "dstrain.metric_for_best_model",
                             greater = "dstrain.greater_is_better",
                             threshold = "dstrain.early_stopping_threshold";
  BestModelConfig best{.load_at_end = v.flag(load),
                       .metric = v.text(metric),
                       .patience = v.integer(patience),
                       .threshold = v.real(threshold)};
  for (const std::string_view prefix : {"eval_", "val_"})
    if (best.metric.starts_with(prefix)) best.metric.erase(0, prefix.size());
  best.greater_is_better = v.flag(greater, !best.metric.ends_with("loss"), "by the metric's name");
  for (const std::string_view key : {metric, greater})
    if (v.given(key) && !best.used())
      diagnostics.no_effect(key, fmt::format("neither {} nor {} asks for it", load, patience));
  if (v.given(threshold) && best.patience == 0)
    diagnostics.no_effect(threshold, fmt::format("{} is 0", patience));
  if (best.used() && job.eval_interval == 0)
    diagnostics.error(best.load_at_end ? load : patience,
                      "it compares validations, and the run has one, after its last step: give "
                      "dstrain.eval_interval");
  return best;
}

SaveConfig solve_save(Values& v) {
  constexpr std::string_view torch = "torch.";
  SaveConfig save;
  if (v.given("dstrain.save_dtype")) save.dtype = dtype_named(v.text("dstrain.save_dtype", "", ""));
  for (const std::string_view key : {kOldDtypeOfFiles, kDtypeOfFiles})
    if (v.given(key)) {
      const std::string name = v.text(key, "", "");
      save.usual = dtype_named(name.starts_with(torch) ? name.substr(torch.size()) : name);
    }
  save.shard_bytes = v.integer("dstrain.max_shard_size");
  return save;
}

}  // namespace

void solve_run(Job& job, Values& values, Diagnostics& diagnostics, const Facts& facts,
               const ConfigRequest& request) {
  values.text("dstrain.model.type");
  job.model = ModelConfig(*facts.family);
  solve_model(job.model, values, diagnostics);
  open_model(job, values, diagnostics, request);
  solve_fine_tuning(job, values, diagnostics);
  solve_objective(job, values, diagnostics);
  solve_data(job, values, diagnostics, request);
  job.recompute = solve_recompute(values, diagnostics);
  job.gather_again = solve_gathers(values);
  job.loss_chunks = solve_loss_chunks(job, values, diagnostics);
  job.mlp_chunks = solve_chunks("dstrain.mlp_chunks", values);
  job.aio = solve_aio(values);
  job.comms_logger = solve_comms_logger(values);
  job.wall_clock_breakdown =
      facts.on("wall_clock_breakdown") && values.flag("wall_clock_breakdown");
  job.flops_profiler = solve_flops_profiler(values, facts);
  job.memory_breakdown = facts.on("memory_breakdown") && values.flag("memory_breakdown");
  job.tensorboard = solve_monitor("tensorboard", values, facts);
  job.csv_monitor = solve_monitor("csv_monitor", values, facts);
  job.offload = solve_offload(values, facts);
  solve_activations(job.offload, values, facts);
  job.device_memory = values.integer("dstrain.device_memory");
  const std::string graph = values.text("dstrain.cuda_graph");
  job.graph = graph == "on"    ? GraphMode::on
              : graph == "off" ? GraphMode::off
                               : GraphMode::automatic;
  job.rank_order_sums = values.flag(
      "dstrain.deterministic_collectives", job.state_ranks() <= kRankOrderRanks,
      fmt::format("{}, true up to {}",
                  counted(job.state_ranks(),
                          job.sequence_ranks > 1 ? "data x sequence rank" : "data-parallel rank"),
                  kRankOrderRanks));
  job.steps = solve_steps(values, diagnostics, request);
  job.seed = static_cast<uint64_t>(values.integer("dstrain.seed"));
  job.eval_interval = values.integer("dstrain.eval_interval");
  job.eval_samples = values.integer("dstrain.eval_samples");
  job.best = solve_best(job, values, diagnostics);
  job.save_interval = values.integer("dstrain.save_interval");
  job.keep_last = values.integer("dstrain.keep_last");
  job.keep_every = values.integer("dstrain.keep_every");
  job.save = solve_save(values);
  if (values.given("dstrain.optimizer_state"))
    job.optimizer_state = values.text("dstrain.optimizer_state", "", "");
  job.save_last = values.flag("dstrain.save_last");
  job.save_required = values.flag("dstrain.save_required");
  job.max_skipped_steps = values.integer("dstrain.max_skipped_steps");
  job.timeout_s = values.integer("dstrain.timeout_s");
  job.silence_s = values.integer("dstrain.silence_s");
  if (values.given("dstrain.trace")) job.trace = values.text("dstrain.trace", "", "");
  if (const Member* exclude = values.given("dstrain.weight_decay_exclude")) {
    for (const Node& pattern : exclude->value.items)
      job.weight_decay_exclude.push_back(pattern.text);
    values.record("dstrain.weight_decay_exclude", json_text(exclude->value),
                  values.origin_of("dstrain.weight_decay_exclude"));
  } else {
    values.record("dstrain.weight_decay_exclude", "[]", "default");
  }
}

}  // namespace dstrain
