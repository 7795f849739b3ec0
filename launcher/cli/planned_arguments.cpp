#include "launcher/cli/planned_arguments.h"

#include "launcher/cli/command_line.h"
#include "launcher/cli/config_options.h"
#include "launcher/cli/headings.h"
#include "launcher/cli/option_readers.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/engine/verify/seeded_fault.h"

namespace dstrain {

Arguments parse_plan(const std::vector<std::string>& words, const ModelRegistry& models) {
  PlanArguments a;
  CommandLine line("plan", "Prints what a step does, and its memory. Runs nothing.");
  line.example("dstrain plan --config ds_config.json --num_gpus 8",
               "what each of eight ranks does and holds");
  line.example("dstrain plan --config ds_config.json --set zero_optimization.stage=3",
               "the same at another ZeRO stage");
  line.example("dstrain plan --config ds_config.json --largest --device_memory 80GB",
               "the largest model and the longest sequence that fit");
  line.example(
      "dstrain plan --config ds_config.json --num_gpus 4 --pipeline_num_stages 4 --timeline",
      "a picture of a step of four pipeline stages");
  add_config(line, a.request, models);
  add_run(line, a.request);
  line.without_effect({"--steps", "--epochs", "--seed"});
  line.group("The largest model");
  line.flag("--largest",
            "find the largest model and the longest sequence that fit, with --device_memory",
            a.largest);
  line.option("--host_memory", "BYTES",
              "with --largest: of the machine, for all ranks together (this machine's)",
              [&a](const std::string& option, const std::string& value) {
                a.host_memory = bytes_of(option, value);
              });
  line.option("--disk", "BYTES", "with --largest: of its drives, for all ranks together (0)",
              [&a](const std::string& option, const std::string& value) {
                a.disk = bytes_of(option, value);
              });
  line.group(heading::kPrinting);
  line.option("--rank", "R", "whose plan (0)", integer(a.rank, 0, kMostRanks - 1));
  line.optional_value("--timeline", "[FILE.svg]",
                      "draw the stages' work in a step, in the file or below the plan",
                      [&a](const std::string& option, const std::string& value) {
                        if (!value.empty() && !value.ends_with(".svg"))
                          fail_user("{}: expected FILE.svg, got '{}'", option, printable(value));
                        a.timeline = value;
                      });
  line.flag("--json", "print JSON", a.json);
  if (const auto help = line.parse(words)) return HelpArguments{*help};
  require("plan", "--config FILE", !a.request.path.empty());
  leave_out_epochs(a.request);
  if (a.json && a.timeline) fail_user("dstrain plan takes one of --json and --timeline");
  if (a.largest && a.timeline) fail_user("dstrain plan takes one of --largest and --timeline");
  if (!a.largest && (a.host_memory || a.disk > 0))
    fail_user("dstrain plan takes --host_memory and --disk with --largest");
  return a;
}

Arguments parse_verify(const std::vector<std::string>& words, const ModelRegistry& models) {
  VerifyArguments a;
  CommandLine line(
      "verify",
      "Trains a few steps of a small model of the configuration's kind, as configured, on plain "
      "data parallelism and on one rank, and says where the numbers part. Writes no files.");
  line.example("dstrain verify --config ds_config.json", "a few steps of a small model");
  line.example("dstrain verify --config ds_config.json --num_gpus 4 --deep",
               "20 steps on four ranks");
  line.example("dstrain verify --config ds_config.json --seed_fault flipped_bit",
               "see that an error is found");
  add_config(line, a.request, models);
  add_run(line, a.request);
  line.without_effect({"--epochs", "--device_memory"});
  line.group("What is tried");
  line.flag("--deep", "20 steps, with a checkpoint and a resume in the middle", a.deep);
  line.option("--seed_fault", "NAME", "put a fault into the configured run", text(a.seed_fault));
  std::vector<KnownValue> faults;
  for (const FaultName& fault : seeded_faults())
    faults.push_back({std::string(fault.name), std::string(fault.does)});
  line.values("--seed_fault", faults);
  line.group(heading::kPrinting);
  line.flag("--json", "print JSON", a.json);
  if (const auto help = line.parse(words)) return HelpArguments{*help};
  require("verify", "--config FILE", !a.request.path.empty());
  leave_out_epochs(a.request);
  if (!a.seed_fault.empty()) fault_of(a.seed_fault);
  if (a.request.steps && *a.request.steps < 2)
    fail_user("--steps: dstrain verify takes two steps or more, got {}", *a.request.steps);
  return a;
}

Arguments parse_check(const std::vector<std::string>& words, const ModelRegistry& models) {
  CheckArguments a;
  CommandLine line("check", "Prints a verdict for every key of a configuration.");
  line.example("dstrain check --config ds_config.json", "the keys that want attention");
  line.example("dstrain check --config ds_config.json --all", "a line for every key");
  line.example("dstrain check --config ds_config.json --num_gpus 8 --json",
               "for eight ranks, and for a program");
  add_config(line, a.request, models);
  add_sources(line, a.request);
  line.group(heading::kMemory);
  line.option("--device", "auto|cpu|cuda", "judge for runs on it (auto: what holds on both)",
              text(a.request.device));
  line.group(heading::kPrinting);
  line.flag("--all", "a line for every key, also for those that are honoured without a word",
            a.all);
  line.flag("--json", "print JSON, which has every key", a.json);
  if (const auto help = line.parse(words)) return HelpArguments{*help};
  require("check", "--config FILE", !a.request.path.empty());
  return a;
}

Arguments parse_estimate(const std::vector<std::string>& words, const ModelRegistry& models) {
  EstimateArguments a;
  CommandLine line(
      "estimate",
      "Prints DeepSpeed's memory estimates for ZeRO-2 and ZeRO-3, and the plan's memory.");
  line.example("dstrain estimate --config ds_config.json --num_gpus 8", "on one machine");
  line.example("dstrain estimate --config ds_config.json --num_gpus 8 --num_nodes 4",
               "on four machines");
  line.example("dstrain estimate --config ds_config.json --model ./gpt2",
               "of the model in a folder");
  add_config(line, a.request, models);
  add_run(line, a.request);
  line.without_effect({"--steps", "--epochs", "--seed", "--device_memory"});
  line.group(heading::kMemory);
  line.option("--num_nodes", "M", "machines with --num_gpus ranks each (1)",
              integer(a.nodes, 1, kMostRanks));
  if (const auto help = line.parse(words)) return HelpArguments{*help};
  require("estimate", "--config FILE", !a.request.path.empty());
  leave_out_epochs(a.request);
  return a;
}

}  // namespace dstrain
