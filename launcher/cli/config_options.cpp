#include "launcher/cli/config_options.h"

#include <fmt/format.h>

#include <filesystem>
#include <limits>
#include <system_error>
#include <vector>

#include "launcher/cli/headings.h"
#include "launcher/cli/option_readers.h"
#include "runtime/config/keys/table/model_registry.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/data/tokenizer/tokenizer_directory.h"

namespace dstrain {

void add_config(CommandLine& line, ConfigRequest& request, const ModelRegistry& models) {
  request.models = &models;
  request.count_ids = ids_of_tokenizer;
  line.advise_with(models);
  line.group(heading::kTrained);
  line.option("--config,--deepspeed_config", "FILE", "the DeepSpeed configuration",
              text(request.path));
  line.repeated("--set", "path.to.key=value", "set one value of the file; may be repeated",
                [&request](const std::string& option, const std::string& value) {
                  if (value.find('=') == std::string::npos || value.starts_with('='))
                    fail_user("{}: expected path.to.key=value, got '{}'", option, printable(value));
                  request.sets.push_back(value);
                });
  line.repeated("--ignore", "path.to.key",
                "treat a key, or several (a,b), as if the file did not have it",
                keys(request.ignored));
  line.keep_words(request.command);
  line.group(heading::kMemory);
  line.option(kRanksOption, "N", "ranks on this machine (with CUDA: its GPUs)",
              count_or_all(request.ranks, kMostRanks));
}

void add_sources(CommandLine& line, ConfigRequest& request) {
  line.group(heading::kTrained);
  line.option("--model", "NAME|DIR|FILE",
              fmt::format("{}, the folder of a model with config.json, a model file, or a graph "
                          "that PyTorch has exported (.pt2)",
                          request.models->types(", ")),
              text(request.model));
  std::vector<KnownValue> types;
  for (const std::string& type : split_words(request.models->types("|"))) types.push_back({type});
  line.values("--model", types);
  line.option("--data", "PATH",
              "the training text or token file, a file or folder of arrays, a folder of images, or "
              "a pattern for token "
              "files or arrays (\"data/*.bin\")",
              text(request.data));
  line.option("--vocab", "RUN", "read the text with the vocabulary of this run",
              text(request.vocab));
}

void add_run(CommandLine& line, ConfigRequest& request) {
  add_sources(line, request);
  line.option("--steps", "N", "optimizer steps", integer(request.steps, 0));
  line.option("--epochs", "E", "see all training samples so often, instead of --steps",
              [&request](const std::string& option, const std::string& value) {
                request.epochs =
                    number_of<double>(option, value, std::numeric_limits<double>::min(), 1e6,
                                      "a number above 0, up to 1000000");
              });
  line.option("--seed", "N", "seed of weights, order and dropout", integer(request.seed, 0));
  line.group(heading::kMemory);
  line.option("--device", "auto|cpu|cuda", "where to run (auto: on GPUs where there are any)",
              text(request.device));
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
  line.option("--pipeline_schedule", "gpipe|1f1b|interleaved|zb-h1|zb-v",
              "the order in which stages work on micro-batches", text(request.pipeline_schedule));
  line.option("--sequence_parallel_size", "S",
              "ranks that have parts of the same samples, each some of their tokens",
              integer(request.sequence_parallel, 1));
  line.option("--tensor_parallel_size", "T", "ranks that share each layer",
              integer(request.tensor_parallel, 1));
}

namespace {

// Throws UserError for what other programs take in place of a folder, unless a folder has that name.
void check_resumed(const std::string& value) {
  std::error_code none;
  if (!one_of("|auto|true|false|latest", lower_case(value)) ||
      std::filesystem::is_directory(value, none))
    return;
  fail_user(
      "--resume {}: expected the folder of the run to go on with (its --output, or runs/NAME), or "
      "one of its checkpoints (runs/NAME/checkpoints/step_N): dstrain does not look for a run. "
      "--max_restarts N restarts one from its newest checkpoint",
      value.empty() ? "''" : value);
}

}  // namespace

void add_files(CommandLine& line, ConfigRequest& request) {
  line.group(heading::kTrained);
  line.option("--init_weights", "FILE|DIR|random",
              "start from these weights (safetensors), or another run's, or from fresh ones",
              text(request.init_weights));
  line.group(heading::kOutput);
  line.option("--output", "DIR",
              "where results go (runs/<config's name>-<model's>, or the run that is resumed)",
              text(request.output));
  line.option("--save_interval", "N", "steps between checkpoints; 0: none",
              integer(request.save_interval, 0));
  line.option("--resume", "DIR",
              "continue the run in DIR from its newest checkpoint, as it was configured unless "
              "--config says otherwise",
              [&request](const std::string& option, const std::string& value) {
                check_resumed(value);
                text(request.resume)(option, value);
              });
  line.flag("--resume_with_changes",
            "resume although the model, the vocabulary, the seed or the dtype is another one",
            request.resume_with_changes);
  line.flag("--overwrite", "replace the results of another run in the output directory",
            request.overwrite);
}

void refuse_two_lengths(const ConfigRequest& request) {
  if (request.steps && request.epochs)
    fail_user("--steps {} and --epochs {:g} both say how long the run is: give one", *request.steps,
              *request.epochs);
}

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

}  // namespace dstrain
