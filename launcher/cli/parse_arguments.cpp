#include "launcher/cli/parse_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "launcher/cli/command_line.h"
#include "launcher/cli/command_names.h"
#include "launcher/cli/config_options.h"
#include "launcher/cli/headings.h"
#include "launcher/cli/help/completion.h"
#include "launcher/cli/help/man_page.h"
#include "launcher/cli/init_arguments.h"
#include "launcher/cli/option_readers.h"
#include "launcher/cli/planned_arguments.h"
#include "launcher/cli/report_arguments.h"
#include "launcher/cli/text_arguments.h"
#include "launcher/cli/trained_arguments.h"
#include "runtime/config/job.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

Arguments parse_train(const std::vector<std::string>& words, const ModelRegistry& models) {
  TrainArguments a;
  ConfigRequest& request = a.request;
  request.need_data = true;
  CommandLine line("train", "Trains the model that a configuration describes.");
  line.example("dstrain --config ds_config.json --num_gpus 2 --data input.txt",
               "on two ranks, into runs/ds_config");
  line.example("dstrain --config ds_config.json --data input.txt --steps 20",
               "a few steps on one rank");
  line.example("dstrain --config ds_config.json --model ./gpt2 --epochs 1",
               "fine-tune the model in a folder");
  line.example("dstrain --resume runs/ds_config",
               "go on from the newest checkpoint, as the run was configured");
  line.example("dstrain --config ds_config.json --hostfile hosts", "on the hosts of a file");
  add_config(line, request, models);
  add_run(line, request);
  add_files(line, request);
  add_launch_options(line, a.launch);
  if (const auto help = line.parse(words)) return HelpArguments{*help};
  a.launch.hosts.slots_each = request.ranks;
  refuse_two_beginnings(request);
  require("train", "--config FILE, or --resume RUN", !request.path.empty() || request.resume);
  refuse_two_lengths(request);
  return a;
}

Arguments parse_models(const std::vector<std::string>& words) {
  ModelsArguments a;
  CommandLine line("models",
                   "Lists the models that a run can train: types, keys of section dstrain.model "
                   "and inputs.");
  line.example("dstrain models", "for a reader");
  line.example("dstrain models --json", "for a program");
  line.group(heading::kPrinting);
  line.flag("--json", "print JSON", a.json);
  if (const auto help = line.parse(words)) return HelpArguments{*help};
  return a;
}

Arguments parse_hosts(const std::vector<std::string>& words) {
  HostsArguments a;
  CommandLine line("hosts", "Prints the ranks that would be started where. Starts nothing.");
  line.example("dstrain hosts --hostfile hosts", "all hosts of the file");
  line.example("dstrain hosts --hostfile hosts --exclude node2:0", "without a slot of node2");
  line.example("dstrain hosts --hostfile hosts --num_nodes 2 --num_gpus 4",
               "four ranks on each of the first two");
  line.group(heading::kHosts);
  line.option(kRanksOption, "N", "ranks on each host",
              count_or_all(a.hosts.slots_each, kMostRanks));
  add_host_options(line, a.hosts);
  line.group(heading::kPrinting);
  line.flag("--json", "print JSON", a.json);
  if (const auto help = line.parse(words)) return HelpArguments{*help};
  return a;
}

Arguments parse_doctor(const std::vector<std::string>& words, const ModelRegistry& models) {
  DoctorArguments a;
  ConfigRequest& request = a.request;
  request.need_data = true;
  CommandLine line(
      "doctor",
      "Looks whether hosts are ready for a run: ssh, dstrain, memory, clocks, network, and with "
      "--config the input and the output directory. Without a hostfile it looks at this machine. "
      "Starts no rank.");
  line.example("dstrain doctor", "this machine");
  line.example("dstrain doctor --config ds_config.json --num_gpus 4", "and a run's input here");
  line.example("dstrain doctor --hostfile hosts", "the hosts of a file");
  line.example("dstrain doctor --hostfile hosts --config ds_config.json --output runs/a",
               "and a run's input and output there");
  add_config(line, request, models);
  add_run(line, request);
  add_files(line, request);
  add_launch_options(line, a.launch);
  line.group(heading::kPrinting);
  line.flag("--json", "print JSON (of this machine: without a hostfile)", a.json);
  line.without_effect({"--save_interval", "--launcher", "--launcher_args", "--no_ssh",
                       "--node_rank", "--nnodes", "--secret_file", "--force_multi", "--export",
                       "--bind_cores_to_rank", "--bind_core_list", "--save_pid",
                       "--enable_each_rank_log", "--quiet", "--log_time", "--max_restarts",
                       "--elastic", "--dry_run"});
  if (const auto help = line.parse(words)) return HelpArguments{*help};
  a.launch.hosts.slots_each = request.ranks;
  refuse_two_beginnings(request);
  refuse_two_lengths(request);
  if (!request.path.empty() || request.resume) a.words = words;
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
  line.example("dstrain bench-io /nvme", "of one drive");
  line.example("dstrain bench-io /nvme0 /nvme1 --size 4GB", "of two drives together");
  line.example("dstrain bench-io /nvme --config ds_config.json --parameters 7e9",
               "beside the section aio of a file");
  line.operands("PATH...", a.directories);
  line.group(heading::kMeasured);
  line.option("--size", "BYTES", "of the file that is written and read, such as 4GB (1GB)",
              [&a](const std::string& option, const std::string& value) {
                a.bytes = bytes_of(option, value);
              });
  line.option("--seconds", "F", "the most that one measurement takes (5)",
              [&a](const std::string& option, const std::string& value) {
                a.seconds =
                    number_of<double>(option, value, 0.01, 1e6, "a number from 0.01 to 1000000");
              });
  line.option("--config", "FILE", "measure the section aio of this configuration, too",
              text(a.request.path));
  line.option("--parameters", "N", "of the model whose optimizer state would be moved, such as 7e9",
              [&a](const std::string& option, const std::string& value) {
                a.parameters = number_of<double>(option, value, 1, 1e18, "a number from 1 to 1e18");
              });
  line.group("Settings to try");
  line.option("--block_size", "N,...", "sizes of requests to try (131072 to 8388608)",
              counts(a.block_sizes, kMostAioBlock));
  line.option("--queue_depth", "N,...", "requests in flight to try (8,32,128)",
              counts(a.queue_depths, kMostAioDepth));
  line.option("--intra_op_parallelism", "N,...", "threads to try (1,2,4)",
              counts(a.threads, kMostAioThreads));
  line.group(heading::kPrinting);
  line.flag("--json", "print JSON", a.json);
  if (const auto help = line.parse(words)) return HelpArguments{*help};
  require("bench-io", "PATH", !a.directories.empty());
  return a;
}

Arguments parse_help(const std::vector<std::string>& words, const ModelRegistry& models);

// A command for users: what the list of commands says of it, and the function that parses the words after its name.
struct Command {
  const char *name, *usage, *summary;
  Arguments (*parse)(const std::vector<std::string>& words, const ModelRegistry& models);
};

template <Arguments (*Parse)(const std::vector<std::string>& words)>
Arguments without_models(const std::vector<std::string>& words, const ModelRegistry& /*models*/) {
  return Parse(words);
}

// The first one needs no name.
constexpr std::array<Command, 21> kCommands{{
    {"train", "--config FILE --num_gpus N", "train on N ranks of this machine", parse_train},
    {"init", "--data PATH", "a configuration that fits, by questions or options", parse_init},
    {"plan", "--config FILE --num_gpus N", "print the plan of a step and its memory", parse_plan},
    {"verify", "--config FILE", "does it compute what plain training would?", parse_verify},
    {"check", "--config FILE", "a verdict for every key of the file", parse_check},
    {"estimate", "--config FILE --num_gpus N",
     "what DeepSpeed's memory estimators say, and the plan", parse_estimate},
    {"generate", "--run DIR --prompt TEXT", "text from a trained model",
     without_models<parse_generate>},
    {"chat", "--run DIR", "a conversation with a trained model", without_models<parse_chat>},
    {"eval", "--run DIR --data FILE", "a trained model's loss on a file",
     without_models<parse_eval>},
    {"teach", "--model DIR --data FILE", "what a teacher's model gives to the tokens of a file",
     without_models<parse_teach>},
    {"export", "RUN --format hf|safetensors|gguf", "a run's weights in other programs' files",
     without_models<parse_export>},
    {"import", "PATH --output DIR", "weights of PyTorch or DeepSpeed for --model",
     without_models<parse_import>},
    {"tokenize", "--model DIR --data FILE...", "a token file from text",
     without_models<parse_tokenize>},
    {"report", "RUN...", "a page of a run, or of several beside each other",
     without_models<parse_report>},
    {"compare", "RUN RUN...", "a table of runs: losses, speed, memory, settings",
     without_models<parse_compare>},
    {"watch", "RUN", "the page of a run while it goes on, in a browser",
     without_models<parse_watch>},
    {"models", "", "the models that a run can train, and their keys", without_models<parse_models>},
    {"hosts", "--hostfile FILE", "the ranks that would be started where",
     without_models<parse_hosts>},
    {"doctor", "[--hostfile FILE]", "are this machine, or the hosts, ready for a run?",
     parse_doctor},
    {"bench-io", "PATH", "the best aio section for a drive", parse_bench_io},
    {"help", "[COMMAND]", "the options of a command, or the manual page", parse_help},
}};

const Command* find_command(const std::string& name) {
  const auto* const found = std::ranges::find(kCommands, name, &Command::name);
  return found == kCommands.end() ? nullptr : found;
}

std::vector<std::string> names_of_commands() {
  std::vector<std::string> names;
  for (const Command& command : kCommands) names.emplace_back(command.name);
  return names;
}

[[noreturn]] void refuse_command(const std::string& name) {
  std::vector<std::string> names = names_of_commands();
  const std::string near = nearest(name, names);
  const std::string last = names.back();
  names.pop_back();
  fail_user("unknown command '{}'{} ({} or {})", printable(name),
            near.empty() ? "" : "; did you mean " + near + "?", fmt::join(names, ", "), last);
}

// Returns the completion for a shell. Throws UserError if there is none.
std::string completion_for(const std::string& option, const std::string& shell,
                           const ModelRegistry& models) {
  if (shell == "bash") return bash_completion(command_helps(models));
  if (shell == "zsh") return zsh_completion(command_helps(models));
  if (shell == "fish") return fish_completion(command_helps(models));
  fail_user("{}: expected bash, zsh or fish, got '{}'", option, printable(shell));
}

Arguments parse_help(const std::vector<std::string>& words, const ModelRegistry& models) {
  std::vector<std::string> commands;
  bool man = false;
  std::string shell;
  CommandLine line("help",
                   "Prints the commands and the options of train, or those of COMMAND; the manual "
                   "page; or a shell's completion.");
  line.example("dstrain help plan", "the options of plan");
  line.example("dstrain help --man", "for a reader: dstrain help --man | man -l -");
  line.example("dstrain help --completion bash",
               "for bash: source <(dstrain help --completion bash)");
  line.operands("[COMMAND]", commands);
  std::vector<KnownValue> names;
  for (const std::string& name : names_of_commands()) names.push_back({name});
  line.values("[COMMAND]", names);
  line.group(heading::kPrinting);
  line.flag("--man", "print the manual page of all commands, in troff", man);
  line.option("--completion", "bash|zsh|fish",
              "print a program by which the shell completes commands, options and their values",
              text(shell));
  if (const auto help = line.parse(words)) return HelpArguments{*help};
  if (commands.size() + (man ? 1U : 0U) + (shell.empty() ? 0U : 1U) > 1)
    fail_user("dstrain help takes one of COMMAND, --man and --completion");
  if (man) return PrintArguments{man_page(command_helps(models), DSTRAIN_VERSION)};
  if (!shell.empty()) return PrintArguments{completion_for("--completion", shell, models)};
  if (commands.empty()) return parse_arguments({"--help"}, models);
  const Command* const command = find_command(commands.front());
  if (command == nullptr) refuse_command(commands.front());
  return command->parse({"--help"}, models);
}

}  // namespace

std::vector<CommandHelp> command_helps(const ModelRegistry& models) {
  std::vector<CommandHelp> helps;
  for (const Command& command : kCommands) {
    CommandHelp help = std::get<HelpArguments>(command.parse({"--help"}, models)).command;
    help.usage = command.usage;
    help.summary = command.summary;
    helps.push_back(std::move(help));
  }
  return helps;
}

Arguments parse_arguments(const std::vector<std::string>& words, const ModelRegistry& models) {
  if (words.empty() || words.front().starts_with('-')) {
    if (words.size() == 1 && words.front() == "--version")
      return PrintArguments{"dstrain " DSTRAIN_VERSION "\n"};
    Arguments parsed = parse_train(words, models);
    if (auto* const help = std::get_if<HelpArguments>(&parsed))
      help->commands = command_helps(models);
    return parsed;
  }
  const std::string& name = words.front();
  const std::vector<std::string> rest(words.begin() + 1, words.end());
  if (const Command* const command = find_command(name)) return command->parse(rest, models);
  if (name == kRankStarterCommand && rest.size() > 1)
    return RankStarterArguments{
        number_of<int64_t>(name, rest.front(), 1, kMostRanks, "the number of ranks"),
        {rest.begin() + 1, rest.end()}};
  if (name == kHostAgentCommand && (rest.empty() || rest == std::vector<std::string>{"here"}))
    return HostAgentArguments{!rest.empty()};
  if (name == kHostWatchCommand && rest.empty()) return HostWatchArguments{};
  if (name == kRelayCommand) return RelayArguments{rest};
  if (name == kRelayEndCommand && rest.empty()) return RelayEndArguments{};
  refuse_command(name);
}

}  // namespace dstrain
