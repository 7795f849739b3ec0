#include "launcher/cli/arguments.h"

#include <algorithm>
#include <limits>

#include "launcher/cli/command_line.h"
#include "launcher/cli/command_names.h"
#include "launcher/cli/option_readers.h"
#include "launcher/cli/trained_arguments.h"
#include "runtime/config/job.h"
#include "runtime/config/model/registry.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/engine/verify/seeded_fault.h"

namespace dstrain {
namespace {

constexpr const char* kOverview = R"(dstrain: trains a model from a DeepSpeed ds_config.json.

  dstrain [train]  --config FILE --num_gpus N    train on N ranks of this machine
  dstrain plan     --config FILE --num_gpus N    print the plan of a step and its memory
  dstrain verify   --config FILE                 does it compute what plain training would?
  dstrain check    --config FILE                 a verdict for every key of the file
  dstrain estimate --config FILE --num_gpus N    what DeepSpeed's memory estimators say, and the plan
  dstrain generate --run DIR --prompt TEXT       text from a trained model
  dstrain eval     --run DIR --data FILE         a trained model's loss on a file
  dstrain export   RUN --format hf|safetensors   a run's weights in other programs' files
  dstrain tokenize --model DIR --data FILE...    a token file from text
  dstrain models                                 the models that a run can train, and their keys
  dstrain hosts    --hostfile FILE               the ranks that would be started where
  dstrain doctor   --hostfile FILE               are the hosts ready for a run?
  dstrain bench-io PATH                          the best aio section for a drive
  dstrain help [COMMAND]                         this text, or the options of a command

'dstrain COMMAND --help' lists the options of a command; below are those of train.
Exit status: 0 done; 1 wrong input or configuration; 2 failed while running; 128+n ended by signal n.

)";

constexpr const char* kRanksOption = "--num_gpus,--num_accelerators";

// The options of every command that reads a configuration.
void add_config(CommandLine& line, ConfigRequest& request, const ModelRegistry& models) {
  request.models = &models;
  line.advise_with(models);
  line.option("--config,--deepspeed_config", "FILE", "the DeepSpeed configuration",
              text(request.path));
  line.option(kRanksOption, "N", "ranks on this machine (with CUDA: its GPUs)",
              count_or_all(request.ranks, kMostRanks));
  line.repeated("--set", "path.to.key=value", "set one value of the file; may be repeated",
                [&request](const std::string& option, const std::string& value) {
                  if (value.find('=') == std::string::npos || value.starts_with('='))
                    fail_user("{}: expected path.to.key=value, got '{}'", option, printable(value));
                  request.sets.push_back(value);
                });
  line.repeated("--ignore", "path.to.key", "treat one key as if the file did not have it",
                [&request](const std::string& option, const std::string& value) {
                  if (value.empty()) fail_user("{}: expected path.to.key, got nothing", option);
                  request.ignored.push_back(value);
                });
}

// The options that name the model and the data. add_config() goes before.
void add_sources(CommandLine& line, ConfigRequest& request) {
  line.option("--model", "NAME|DIR|FILE",
              fmt::format("{}, the folder of a model with config.json, or a model file",
                          request.models->types(", ")),
              text(request.model));
  line.option("--data", "PATH",
              "the training text or token file, or a pattern for token files (\"data/*.bin\")",
              text(request.data));
  line.option("--vocab", "RUN", "read the text with the vocabulary of this run",
              text(request.vocab));
}

// The options of train, plan and estimate that describe the run. add_config() goes before.
void add_run(CommandLine& line, ConfigRequest& request) {
  line.option("--device", "auto|cpu|cuda", "where to run (auto: on GPUs where there are any)",
              text(request.device));
  add_sources(line, request);
  line.option("--steps", "N", "optimizer steps", integer(request.steps, 0));
  line.option("--epochs", "E", "see all training samples so often, instead of --steps",
              [&request](const std::string& option, const std::string& value) {
                request.epochs =
                    number_of<double>(option, value, std::numeric_limits<double>::min(), 1e6,
                                      "a number above 0, up to 1000000");
              });
  line.option("--seed", "N", "seed of weights, order and dropout", integer(request.seed, 0));
  line.option("--activation_checkpoint_interval", "K|selective",
              "keep the input of every K layers and compute the rest again; 0: keep all",
              [&request](const std::string& option, const std::string& value) {
                if (value != "selective")
                  number_of<int64_t>(option, value, 0, kAnyInteger,
                                     "an integer from 0 up, or selective");
                request.recompute = value;
              });
  line.option("--device_memory", "BYTES",
              "memory of each rank's device that the plan may use, such as 2GB (all that is free)",
              [&request](const std::string& option, const std::string& value) {
                request.device_memory = bytes_of(option, value);
              });
  line.option("--pipeline_num_stages", "S", "parts of the model, each on its own ranks",
              integer(request.pipeline_stages, 1));
  line.option("--pipeline_schedule", "NAME", "gpipe, 1f1b, interleaved, zb-h1 or zb-v",
              text(request.pipeline_schedule));
  line.option("--tensor_parallel_size", "T",
              "ranks that share each layer (1; more are not available yet)",
              integer(request.tensor_parallel, 1));
}

// The options of train and doctor that name files.
void add_files(CommandLine& line, ConfigRequest& request) {
  line.option("--output", "DIR",
              "where results go (runs/<config's name>, or the run that is resumed)",
              text(request.output));
  line.option("--init_weights", "FILE|DIR|random",
              "start from these weights (safetensors), or another run's, or from fresh ones",
              text(request.init_weights));
  line.option("--save_interval", "N", "steps between checkpoints; 0: none",
              integer(request.save_interval, 0));
  line.option("--resume", "DIR", "continue the run in DIR from its newest checkpoint",
              text(request.resume));
  line.flag("--resume_with_changes",
            "resume although the model, the vocabulary, the seed or the dtype is another one",
            request.resume_with_changes);
  line.flag("--overwrite", "remove another run's checkpoints from the output directory",
            request.overwrite);
}

void refuse_two_lengths(const ConfigRequest& request) {
  if (request.steps && request.epochs)
    fail_user("--steps {} and --epochs {:g} both say how long the run is: give one", *request.steps,
              *request.epochs);
}

// Drops --epochs where a command's result does not depend on the length of the run, so that no samples are counted.
void leave_out_epochs(ConfigRequest& request) {
  refuse_two_lengths(request);
  request.epochs.reset();
}

void refuse_two_beginnings(const ConfigRequest& request) {
  if (request.resume && request.init_weights)
    fail_user(
        "--resume {0} takes the weights of its checkpoint, and --init_weights {1} names others: "
        "leave out --init_weights to go on with the run, or --resume to begin one from {1}",
        printable(*request.resume), printable(*request.init_weights));
}

Arguments parse_train(const std::vector<std::string>& words, const ModelRegistry& models,
                      bool overview) {
  TrainArguments a;
  ConfigRequest& request = a.request;
  request.need_data = true;
  CommandLine line("train", "Trains the model that a configuration describes.");
  add_config(line, request, models);
  add_run(line, request);
  add_files(line, request);
  add_launch_options(line, a.launch);
  if (const auto help = line.parse(words))
    return PrintArguments{overview ? kOverview + *help : *help};
  a.launch.hosts.slots_each = request.ranks;
  require("train", "--config FILE", !request.path.empty());
  refuse_two_beginnings(request);
  refuse_two_lengths(request);
  return a;
}

Arguments parse_plan(const std::vector<std::string>& words, const ModelRegistry& models) {
  PlanArguments a;
  CommandLine line("plan", "Prints what a step does, and its memory. Runs nothing.");
  add_config(line, a.request, models);
  add_run(line, a.request);
  line.option("--rank", "R", "whose plan (0)", integer(a.rank, 0, kMostRanks - 1));
  line.flag("--json", "print JSON", a.json);
  line.optional_value("--timeline", "[FILE.svg]",
                      "draw the stages' work in a step, in the file or below the plan",
                      [&a](const std::string& option, const std::string& value) {
                        if (!value.empty() && !value.ends_with(".svg"))
                          fail_user("{}: expected FILE.svg, got '{}'", option, printable(value));
                        a.timeline = value;
                      });
  line.flag("--largest", "find the largest model that fits, with --device_memory", a.largest);
  line.option("--host_memory", "BYTES",
              "with --largest: of the machine, for all ranks together (this machine's)",
              [&a](const std::string& option, const std::string& value) {
                a.host_memory = bytes_of(option, value);
              });
  line.option("--disk", "BYTES", "with --largest: of its drives, for all ranks together (0)",
              [&a](const std::string& option, const std::string& value) {
                a.disk = bytes_of(option, value);
              });
  if (const auto help = line.parse(words)) return PrintArguments{*help};
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
  std::string text_of_help =
      "Trains a few steps of a small model of the configuration's kind, as configured, on plain "
      "data parallelism and on one rank, and says where the numbers part. Writes no files.\n\n"
      "Faults for --seed_fault:\n";
  for (const FaultName& fault : seeded_faults())
    text_of_help += fmt::format("  {:<20} {}\n", fault.name, fault.does);
  CommandLine line("verify", text_of_help);
  add_config(line, a.request, models);
  add_run(line, a.request);
  line.flag("--deep", "20 steps, with a checkpoint and a resume in the middle", a.deep);
  line.option("--seed_fault", "NAME", "put a fault into the configured run", text(a.seed_fault));
  line.flag("--json", "print JSON", a.json);
  if (const auto help = line.parse(words)) return PrintArguments{*help};
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
  add_config(line, a.request, models);
  add_sources(line, a.request);
  line.option("--device", "auto|cpu|cuda", "judge for runs on it (auto: what holds on both)",
              text(a.request.device));
  line.flag("--all", "a line for every key, also for those that are honoured without a word",
            a.all);
  line.flag("--json", "print JSON, which has every key", a.json);
  if (const auto help = line.parse(words)) return PrintArguments{*help};
  require("check", "--config FILE", !a.request.path.empty());
  return a;
}

Arguments parse_estimate(const std::vector<std::string>& words, const ModelRegistry& models) {
  EstimateArguments a;
  CommandLine line(
      "estimate",
      "Prints DeepSpeed's memory estimates for ZeRO-2 and ZeRO-3, and the plan's memory.");
  add_config(line, a.request, models);
  add_run(line, a.request);
  line.option("--num_nodes", "M", "machines with --num_gpus ranks each (1)",
              integer(a.nodes, 1, kMostRanks));
  if (const auto help = line.parse(words)) return PrintArguments{*help};
  require("estimate", "--config FILE", !a.request.path.empty());
  leave_out_epochs(a.request);
  return a;
}

Arguments parse_models(const std::vector<std::string>& words) {
  ModelsArguments a;
  CommandLine line("models",
                   "Lists the models that a run can train: types, keys of section dstrain.model "
                   "and inputs.");
  line.flag("--json", "print JSON", a.json);
  if (const auto help = line.parse(words)) return PrintArguments{*help};
  return a;
}

Arguments parse_hosts(const std::vector<std::string>& words) {
  HostsArguments a;
  CommandLine line("hosts", "Prints the ranks that would be started where. Starts nothing.");
  add_host_options(line, a.hosts);
  line.option(kRanksOption, "N", "ranks on each host",
              count_or_all(a.hosts.slots_each, kMostRanks));
  line.flag("--json", "print JSON", a.json);
  if (const auto help = line.parse(words)) return PrintArguments{*help};
  return a;
}

Arguments parse_doctor(const std::vector<std::string>& words, const ModelRegistry& models) {
  DoctorArguments a;
  ConfigRequest request;
  CommandLine line(
      "doctor",
      "Looks whether hosts are ready for a run: ssh, dstrain, memory, clocks, network, "
      "and with --config the input and the output directory. Starts no rank.");
  add_config(line, request, models);
  add_run(line, request);
  add_files(line, request);
  add_launch_options(line, a.launch);
  if (const auto help = line.parse(words)) return PrintArguments{*help};
  a.launch.hosts.slots_each = request.ranks;
  refuse_two_beginnings(request);
  refuse_two_lengths(request);
  if (!request.path.empty()) a.words = words;
  return a;
}

CommandLine::Reader counts(std::optional<std::vector<int64_t>>& target, int64_t most) {
  return [&target, most](const std::string& option, const std::string& value) {
    target = numbers_of<int64_t>(option, value, 1, most,
                                 fmt::format("integers from 1 to {}, with commas", most));
    std::ranges::sort(*target);
  };
}

Arguments parse_bench_io(const std::vector<std::string>& words, const ModelRegistry& models) {
  BenchIoArguments a;
  a.request.models = &models;
  CommandLine line("bench-io",
                   "Finds the settings of section aio that are best for the drive of PATH, a "
                   "directory. Several: tensors are striped over them.");
  line.operands("PATH...", a.directories);
  line.option("--size", "BYTES", "of the file that is written and read, such as 4GB (1GB)",
              [&a](const std::string& option, const std::string& value) {
                a.bytes = bytes_of(option, value);
              });
  line.option("--seconds", "F", "the most that one measurement takes (5)",
              [&a](const std::string& option, const std::string& value) {
                a.seconds =
                    number_of<double>(option, value, 0.01, 1e6, "a number from 0.01 to 1000000");
              });
  line.option("--block_size", "N,...", "sizes of requests to try (131072 to 8388608)",
              counts(a.block_sizes, kMostAioBlock));
  line.option("--queue_depth", "N,...", "requests in flight to try (8,32,128)",
              counts(a.queue_depths, kMostAioDepth));
  line.option("--intra_op_parallelism", "N,...", "threads to try (1,2,4)",
              counts(a.threads, kMostAioThreads));
  line.option("--config", "FILE", "measure the section aio of this configuration, too",
              text(a.request.path));
  line.option("--parameters", "N", "of the model whose optimizer state would be moved, such as 7e9",
              [&a](const std::string& option, const std::string& value) {
                a.parameters = number_of<double>(option, value, 1, 1e18, "a number from 1 to 1e18");
              });
  line.flag("--json", "print JSON", a.json);
  if (const auto help = line.parse(words)) return PrintArguments{*help};
  require("bench-io", "PATH", !a.directories.empty());
  return a;
}

}  // namespace

Arguments parse_arguments(const std::vector<std::string>& words, const ModelRegistry& models) {
  if (words.empty() || words.front().starts_with('-')) {
    if (words.size() == 1 && words.front() == "--version")
      return PrintArguments{"dstrain " DSTRAIN_VERSION "\n"};
    return parse_train(words, models, true);
  }
  const std::string& command = words.front();
  const std::vector<std::string> rest(words.begin() + 1, words.end());
  if (command == "help" && rest.size() <= 1)
    return rest.empty() ? parse_train({"--help"}, models, true)
                        : parse_arguments({rest.front(), "--help"}, models);
  if (command == "train") return parse_train(rest, models, false);
  if (command == "plan") return parse_plan(rest, models);
  if (command == "verify") return parse_verify(rest, models);
  if (command == "check") return parse_check(rest, models);
  if (command == "estimate") return parse_estimate(rest, models);
  if (command == "generate") return parse_generate(rest);
  if (command == "eval") return parse_eval(rest);
  if (command == "export") return parse_export(rest);
  if (command == "tokenize") return parse_tokenize(rest);
  if (command == "models") return parse_models(rest);
  if (command == "hosts") return parse_hosts(rest);
  if (command == "doctor") return parse_doctor(rest, models);
  if (command == "bench-io") return parse_bench_io(rest, models);
  if (command == kRankStarterCommand && rest.size() > 1)
    return RankStarterArguments{
        number_of<int64_t>(command, rest.front(), 1, kMostRanks, "the number of ranks"),
        {rest.begin() + 1, rest.end()}};
  if (command == kHostAgentCommand && (rest.empty() || rest == std::vector<std::string>{"here"}))
    return HostAgentArguments{!rest.empty()};
  if (command == kHostWatchCommand && rest.empty()) return HostWatchArguments{};
  if (command == kRelayCommand) return RelayArguments{rest};
  if (command == kRelayEndCommand && rest.empty()) return RelayEndArguments{};
  const std::string near =
      nearest(command, {"train", "plan", "verify", "check", "estimate", "generate", "eval",
                        "export", "tokenize", "models", "hosts", "doctor", "bench-io", "help"});
  fail_user(
      "unknown command '{}'{} (train, plan, verify, check, estimate, generate, eval, export, "
      "tokenize, models, "
      "hosts, doctor, bench-io or help)",
      printable(command), near.empty() ? "" : "; did you mean " + near + "?");
}

}  // namespace dstrain
