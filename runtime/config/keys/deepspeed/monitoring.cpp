// Keys that control printing, measuring and logging.
#include "runtime/config/keys/table/key_table.h"

namespace dstrain::keys {

std::vector<KeySpec> monitoring() {
  constexpr std::string_view timers = "samples_per_second is always measured";
  const Rule* gated = &rules::kWarnsIfEnabled;
  const Rule* logged = &rules::kIfEnabled;
  const auto flag = [gated](std::string_view key, std::string_view fallback = "false") {
    return KeySpec{.key = key, .fallback = fallback, .rule = gated};
  };
  const auto text = [gated](std::string_view key, std::string_view fallback = {}) {
    return KeySpec{.key = key, .type = Type::string, .fallback = fallback, .rule = gated};
  };
  const auto count = [gated](std::string_view key, std::string_view fallback, double min) {
    return KeySpec{
        .key = key, .type = Type::integer, .fallback = fallback, .rule = gated, .min = min};
  };
  constexpr std::string_view job = "\"DeepSpeedJobName\"";
  return {
      {.key = "wall_clock_breakdown",
       .fallback = "false",
       .note = "lines with the times of forward, backward and update; with a pipeline every "
               "steps_per_print steps"},
      {.key = "memory_breakdown",
       .fallback = "false",
       .note = "a table of the planned memory of the ranks by purpose, before the first step and "
               "after it with what is in use"},
      {.key = "dump_state",
       .fallback = "false",
       .state = State::no_effect,
       .note = "resolved_config.json always says it"},
      {.key = "log_level",
       .type = Type::string,
       .state = State::no_effect,
       .note = "the log has one level: progress, warnings and errors"},
      {.key = "tensorboard", .type = Type::section, .rule = logged},
      {.key = "tensorboard.enabled",
       .fallback = "false",
       .note = "an event file of TensorBoard in output_path/job_name",
       .rule = logged},
      {.key = "tensorboard.output_path", .type = Type::string, .fallback = "\"\"", .rule = logged},
      {.key = "tensorboard.job_name", .type = Type::string, .fallback = job, .rule = logged},
      {.key = "csv_monitor", .type = Type::section, .rule = logged},
      {.key = "csv_monitor.enabled",
       .fallback = "false",
       .note = "a csv file for each tag in output_path/job_name",
       .rule = logged},
      {.key = "csv_monitor.output_path", .type = Type::string, .fallback = "\"\"", .rule = logged},
      {.key = "csv_monitor.job_name", .type = Type::string, .fallback = job, .rule = logged},
      {.key = "wandb",
       .type = Type::section,
       .note = "is not available: the run goes on without it (turn on tensorboard, and "
               "`wandb sync OUTPUT_PATH/JOB_NAME` imports its files)",
       .rule = gated},
      flag("wandb.enabled"),
      text("wandb.group"),
      text("wandb.team"),
      text("wandb.project", "\"deepspeed\""),
      {.key = "comet",
       .type = Type::section,
       .note = "is not available: the run goes on without it (turn on tensorboard, and `cometx log "
               "WORKSPACE/PROJECT/EXPERIMENT OUTPUT_PATH/JOB_NAME --type=tensorflow-file` imports "
               "its files)",
       .rule = gated},
      flag("comet.enabled"),
      count("comet.samples_log_interval", "100", 1),
      text("comet.project"),
      text("comet.workspace"),
      text("comet.api_key"),
      text("comet.experiment_name"),
      text("comet.experiment_key"),
      {.key = "comet.online", .rule = gated},
      text("comet.mode"),
      {.key = "comms_logger", .type = Type::section, .rule = logged},
      {.key = "comms_logger.enabled",
       .fallback = "false",
       .note = "a table of all collectives at the end of the run",
       .rule = logged},
      {.key = "comms_logger.prof_all", .fallback = "true", .rule = logged},
      {.key = "comms_logger.prof_ops",
       .type = Type::strings,
       .fallback = "[]",
       .note = "without prof_all: the operations that count, \"all_reduce\"",
       .rule = logged},
      {.key = "comms_logger.verbose",
       .fallback = "false",
       .note = "a line for every collective of each step that is printed",
       .rule = logged},
      {.key = "comms_logger.debug",
       .fallback = "false",
       .state = State::no_effect,
       .note = "the lines of verbose always name the layer"},
      {.key = "flops_profiler", .type = Type::section, .rule = logged},
      {.key = "flops_profiler.enabled",
       .fallback = "false",
       .note = "a report of the parameters, FLOPs and times of the model's modules in one step",
       .rule = logged},
      {.key = "flops_profiler.recompute_fwd_factor",
       .type = Type::real,
       .fallback = "0.0",
       .note = "forward passes that the backward pass repeats: its FLOPs are 2 + this times those "
               "of the forward pass",
       .rule = logged,
       .min = 0},
      {.key = "flops_profiler.profile_step",
       .type = Type::integer,
       .fallback = "1",
       .note = "steps before the one that is profiled: with 1 it is the second, as the first also "
               "warms up; -1: none is",
       .rule = logged,
       .min = -1},
      {.key = "flops_profiler.module_depth",
       .type = Type::integer,
       .fallback = "-1",
       .note = "depths of modules whose sums are reported; -1: all",
       .rule = logged,
       .min = -1},
      {.key = "flops_profiler.top_modules",
       .type = Type::integer,
       .fallback = "1",
       .note = "modules that are named at each depth",
       .rule = logged,
       .min = 0},
      {.key = "flops_profiler.detailed",
       .fallback = "true",
       .note = "with the tree of all modules",
       .rule = logged},
      {.key = "flops_profiler.output_file",
       .type = Type::string,
       .note = "a file for the report; unset: the log",
       .rule = logged},
      {.key = "timers", .type = Type::section},
      {.key = "timers.throughput", .type = Type::section},
      {.key = "timers.throughput.enabled",
       .fallback = "true",
       .state = State::no_effect,
       .note = timers},
      {.key = "timers.throughput.synchronized",
       .fallback = "true",
       .state = State::no_effect,
       .note = timers},
  };
}

}  // namespace dstrain::keys
