// dstrain init: asks for what no option says, and writes a configuration that fits.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <system_error>

#include "launcher/cli/init_arguments.h"
#include "launcher/cli/option_readers.h"
#include "launcher/commands/commands.h"
#include "launcher/init/plan_init.h"
#include "launcher/init/questions.h"
#include "launcher/process/failure.h"
#include "runtime/config/keys/table/model_registry.h"
#include "runtime/core/error.h"
#include "runtime/core/files/atomic_file.h"
#include "runtime/core/log/log.h"

namespace dstrain {
namespace {

std::vector<Question> init_questions(const ModelRegistry& models, const InitMachine& machine) {
  return {
      {"--model", "Model: a folder with config.json, or one of " + models.types(", "),
       std::string(models.families().front()->type)},
      {"--size", "Parameters of a model with fresh weights, such as 124M; empty: its usual sizes"},
      {.option = "--data",
       .text = "Training data: a text, a token file or a folder",
       .must_be_answered = true},
      {"--num_gpus", "Ranks on each host (its GPUs)",
       fmt::format("{}", std::max<int64_t>(1, machine.gpus))},
      {"--num_nodes", "Hosts", "1"},
      {"--device_memory", machine.gpus > 0
                              ? "Memory of each GPU; empty: what is free on this machine's"
                              : "Memory of each GPU, such as 80GB; empty: ranks compute on CPUs"},
      {"--optimizer", "Optimizer", "AdamW"},
      {"--precision", "Precision: bf16, fp16 or fp32; empty: bf16 where the device multiplies it"},
      {"--batch", "Samples of a step, of all ranks together; empty: 64"},
      {"--steps", "Steps", "1000"},
  };
}

void refuse_existing(const std::string& path) {
  std::error_code none;
  if (std::filesystem::exists(std::filesystem::symlink_status(path, none)))
    fail_user("--output {}: the file is there already, and init replaces none: name another one",
              path);
}

}  // namespace

int run_init(const InitArguments& given, const ModelRegistry& models) {
  refuse_existing(given.output);
  const InitMachine machine = look_at_init_machine();
  InitArguments arguments = given;
  if (!given.yes && ::isatty(STDIN_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1) {
    const auto parsed = [&models](const std::vector<std::string>& words) {
      return std::get<InitArguments>(parse_init(words, models));
    };
    arguments =
        parsed(ask(given.words, init_questions(models, machine), parsed, std::cin, std::cerr));
  }
  require("init", "--data PATH", !arguments.data.empty());
  const NewConfig made = plan_init(arguments, machine);
  if (!made.assumption.empty()) log::warn("{}", made.assumption);
  refuse_existing(arguments.output);
  write_file(arguments.output, made.text);
  print_result(fmt::format("{}\ncheck it:   {}\ntrain it:   {}\n", made.summary,
                           command_text({"dstrain", "check", "--config", arguments.output}),
                           command_text(made.train)));
  return 0;
}

}  // namespace dstrain
