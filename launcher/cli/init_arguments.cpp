#include "launcher/cli/init_arguments.h"

#include <fmt/format.h>

#include "launcher/cli/command_line.h"
#include "launcher/cli/config_options.h"
#include "launcher/cli/headings.h"
#include "launcher/cli/option_readers.h"
#include "runtime/config/keys/table/model_registry.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr double kMostParameters = 1e12;

// Reads "124M", "1.3B", "50000000".
CommandLine::Reader count_of_parameters(std::optional<double>& target) {
  return [&target](const std::string& option, const std::string& value) {
    const std::string expected = "a number of parameters such as 124M or 1.3B";
    const size_t unit_at = value.find_last_of("kKmMbB");
    const bool has_unit = unit_at != std::string::npos && unit_at + 1 == value.size();
    const char unit = has_unit ? value.back() : ' ';
    const double factor = unit == 'k' || unit == 'K'   ? 1e3
                          : unit == 'm' || unit == 'M' ? 1e6
                          : unit == 'b' || unit == 'B' ? 1e9
                                                       : 1;
    const std::string digits = has_unit ? value.substr(0, unit_at) : value;
    const double most = kMostParameters / factor;
    try {
      target = number_of<double>(option, digits, 1 / factor, most, expected) * factor;
    } catch (const UserError&) {
      fail_user("{}: expected {}, at most 1000B, got '{}'", option, expected, printable(value));
    }
  };
}

CommandLine::Reader bytes(std::optional<int64_t>& target) {
  return [&target](const std::string& option, const std::string& value) {
    target = bytes_of(option, value);
    if (*target < 1) fail_user("{}: expected more than 0 bytes", option);
  };
}

}  // namespace

Arguments parse_init(const std::vector<std::string>& words, const ModelRegistry& models) {
  InitArguments a;
  a.models = &models;
  a.words = words;
  a.command = {"dstrain", "init"};
  a.command.insert(a.command.end(), words.begin(), words.end());
  a.model = models.families().front()->type;
  CommandLine line("init",
                   "Writes a configuration with comments, in which the ZeRO stage and the "
                   "micro-batch are what fits. On a terminal it asks for what no option says. "
                   "Never replaces a file.");
  line.example("dstrain init --output ds_config.json", "asks for the rest");
  line.example("dstrain init --data input.txt --size 10M --num_gpus 2",
               "a small model on two ranks of this machine");
  line.example("dstrain init --model ./gpt2 --data chats.jsonl --output tune.json",
               "fine-tunes the model in a folder");
  line.example("dstrain init --data a.txt --size 1.3B --num_gpus 8 --device_memory 80GB",
               "for eight GPUs of another machine");
  line.group(heading::kTrained);
  line.option("--model", "NAME|DIR",
              fmt::format("{}, or the folder of a model with config.json", models.types(", ")),
              text(a.model));
  std::vector<KnownValue> types;
  for (const std::string& type : split_words(models.types("|"))) types.push_back({type});
  line.values("--model", types);
  line.option("--size", "N", "parameters of a model with fresh weights, such as 124M",
              count_of_parameters(a.parameters));
  line.option("--data", "PATH", "the training text, token file, or folder", text(a.data));
  line.option("--optimizer", "NAME", "DeepSpeed's name of it (AdamW)", text(a.optimizer));
  line.option("--lr", "F", "the learning rate (as is usual with the optimizer)",
              [&a](const std::string& option, const std::string& value) {
                a.learning_rate = number_of<double>(option, value, 1e-12, 1e6, "a number above 0");
              });
  line.option("--precision", "bf16|fp16|fp32",
              "of weights and activations (bf16 where the device multiplies it)",
              [&a](const std::string& option, const std::string& value) {
                if (!one_of("bf16|fp16|fp32", value))
                  fail_user("{}: expected bf16, fp16 or fp32, got '{}'", option, printable(value));
                a.precision = value;
              });
  line.option("--batch", "N", "samples of a step, of all ranks together (64)",
              integer(a.batch, 1, int64_t{1} << 40));
  line.option("--steps", "N", "optimizer steps (1000)", integer(a.steps, 1, int64_t{1} << 40));
  line.repeated("--set", "path.to.key=value", "a further value of the file; may be repeated",
                [&a](const std::string&, const std::string& value) { a.sets.push_back(value); });
  line.group(heading::kMemory);
  line.option(kRanksOption, "N", "ranks on each host (its GPUs, or one)",
              count_or_all(a.ranks, kMostRanks));
  line.option("--num_nodes", "N", "hosts (1)", integer(a.nodes, 1, kMostRanks));
  line.option("--device_memory", "BYTES",
              "memory of each GPU, such as 80GB (that of this machine's)", bytes(a.device_memory));
  line.option("--host_memory", "BYTES",
              "of a host, for its ranks together (what is available here); without "
              "--device_memory ranks compute on CPUs",
              bytes(a.host_memory));
  line.option("--zero_stage", "0|1|2|3", "ZeRO's stage (the lowest that fits)",
              integer(a.zero_stage, 0, 3));
  line.group(heading::kWritten);
  line.option("--output", "FILE.json", "the configuration (ds_config.json)", text(a.output));
  line.flag("--yes,-y", "ask nothing: take what is usual where no option says otherwise", a.yes);
  if (const auto help = line.parse(words)) return HelpArguments{*help};
  if (!a.output.ends_with(".json"))
    fail_user("--output: expected FILE.json, got '{}'", printable(a.output));
  return a;
}

}  // namespace dstrain
