// Arguments: the parsed command line. Invariant: it holds one command and values of the right type. Whether the values
// fit each other is checked where they are used.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "launcher/cli/help/command_help.h"
#include "launcher/cli/launch_options.h"
#include "runtime/config/load.h"
#include "runtime/engine/forward/sampling.h"

namespace dstrain {

// The arguments of `dstrain train`, which is also the command without a name: the run to train, and how its ranks are
// started.
struct TrainArguments {
  ConfigRequest request;  // request.ranks is --num_gpus: the ranks of each host
  LaunchOptions launch;
};

// The arguments of `dstrain plan`, which prints what a step of one rank does and the memory that it needs.
struct PlanArguments {
  ConfigRequest request;
  int64_t rank = 0;  // the rank whose plan is printed
  bool json = false;
  // The picture of a pipeline's step: its SVG file, or an empty text for one in the output.
  std::optional<std::string> timeline;
  // Instead of a plan: the largest model that fits with --device_memory for each rank's device and, for all ranks
  // together, these bytes of the host's memory (this machine's where absent) and of disks.
  bool largest = false;
  std::optional<int64_t> host_memory;
  int64_t disk = 0;
};

// The arguments of `dstrain verify`, which compares a few steps of a small job with plain training. request.steps: how
// many.
struct VerifyArguments {
  ConfigRequest request;
  bool json = false;
  bool deep = false;       // more steps, and a resume in the middle
  std::string seed_fault;  // the name of a fault to put in; empty: none
};

// The arguments of `dstrain check`, which prints a verdict for every key of a configuration.
struct CheckArguments {
  ConfigRequest request;
  bool json = false;
  bool all = false;  // a line for every key
};

// The arguments of `dstrain estimate`, which compares the memory that the plan needs with what DeepSpeed's estimators
// give.
struct EstimateArguments {
  ConfigRequest request;  // request.ranks: the ranks of one node
  int64_t nodes = 1;
};

// The arguments of `dstrain init`, which writes a configuration. Absent: what is usual, or follows from the machine.
struct InitArguments {
  std::string output = "ds_config.json";
  std::string model;                 // a type, or a folder of transformers' files
  std::optional<double> parameters;  // of a model of a type
  std::string data;
  std::string optimizer = "AdamW";
  std::optional<double> learning_rate;
  std::string precision;         // "bf16", "fp16" or "fp32"; empty: follows from the device
  std::optional<int64_t> ranks;  // on each host
  int64_t nodes = 1;
  std::optional<int64_t> device_memory, host_memory;  // bytes: of each rank's GPU, of a host
  std::optional<int64_t> zero_stage;
  std::optional<int64_t> batch, steps;
  std::vector<std::string> sets;       // further path.to.key=value of the file
  bool yes = false;                    // ask nothing
  std::vector<std::string> words{};    // of the command line, behind the command's name
  std::vector<std::string> command{};  // the whole command line
  const ModelRegistry* models = nullptr;
};

// The arguments of `dstrain hosts`, which prints where the ranks of a run would be started.
struct HostsArguments {
  HostOptions hosts;
  bool json = false;
};

// A trained model, of which a command computes a forward pass. One of run_dir and model is given.
struct TrainedName {
  std::string run_dir;               // or one of the run's checkpoints
  std::string model;                 // a folder of transformers' files
  std::vector<std::string> ignored;  // path.to.key of its config.json, as if it did not have that
  std::string device = "auto";
};

// The arguments of `dstrain generate`, which continues prompts with a trained model. No prompt: the standard input has it.
struct GenerateArguments : TrainedName {
  std::optional<std::string> prompt;
  std::optional<std::vector<int32_t>> prompt_ids;
  std::string prompts;  // a file with a prompt in each line; empty: none
  int64_t tokens = 200;
  int64_t samples = 1;
  std::vector<std::string> stops;  // texts that end a text
  Sampling sampling;
};

// The arguments of `dstrain chat`, which answers messages of the standard input with a trained model.
struct ChatArguments : TrainedName {
  std::string chat_template;       // dstrain's own by name, or a file; empty: the model's
  std::string system;              // the first message; empty: none
  int64_t tokens = 512;            // of an answer, at most
  std::optional<int64_t> context;  // tokens of the conversation that are kept
  Sampling sampling;
};

// The arguments of `dstrain eval`, which measures a trained model on a file.
struct EvalArguments : TrainedName {
  std::string data;
  std::string chat_template;       // dstrain's own by name, or a file; empty: the model's
  std::string logits;              // the file for the logits of the first window; empty: none
  std::optional<int64_t> seq_len;  // tokens of a window; absent: those of the model's samples
  bool json = false;
};

// The arguments of `dstrain teach`, which writes what a trained model gives to the likeliest tokens of a token file.
struct TeachArguments : TrainedName {
  std::string data;
  std::string output;              // empty: FILE.teacher
  std::optional<int64_t> seq_len;  // tokens of a sample; absent: those of the model's
  int64_t top_k = 64;
  bool windows = false;  // samples are windows, and not documents
};

// The arguments of `dstrain export`, which writes a run's weights in other programs' files.
struct ExportArguments {
  std::string run;             // its output directory, or one of its checkpoints
  bool hugging_face = false;   // the whole folder of a model; else model.safetensors alone
  bool peft = false;           // the run's adapters alone, as PEFT's files
  bool gguf = false;           // model.gguf, for llama.cpp
  bool merge = false;          // the model with the run's adapters in its weights
  std::string output;          // the folder; empty: one in the run's
  std::optional<DType> dtype;  // of the weights in files; absent: the format's
  bool q8_0 = false;           // with gguf: in blocks of 8 bits instead
  bool overwrite = false;
};

// The arguments of `dstrain import`, which writes weights of PyTorch and DeepSpeed as safetensors.
struct ImportArguments {
  std::string path;         // a file of torch.save, or a folder
  std::string output;       // the folder
  std::string key;          // of the file's dict, under which the weights are; empty: a usual one
  std::string tag;          // of one of DeepSpeed's checkpoints; empty: the latest
  bool keep_names = false;  // take no prefix off
  bool optimizer_state = false;  // of a DeepSpeed checkpoint: write the state of its optimizer, too
  bool overwrite = false;
};

// The arguments of `dstrain models`, which lists the models that a run can train.
struct ModelsArguments {
  bool json = false;
};

// The arguments of `dstrain report`, which makes a page of runs, and of `dstrain compare`, which prints a table of them.
struct ReportArguments {
  std::vector<std::string> runs;  // output directories
  std::string output;  // the page; empty: report.html in the only run's directory, or here
};
struct CompareArguments {
  std::vector<std::string> runs;
  bool json = false;
};

// The arguments of `dstrain watch`, which serves the page of a run while it goes on.
struct WatchArguments {
  std::string run;
  int64_t port = 0;  // 0: a free one
};

// The arguments of `dstrain doctor`, which checks that hosts are ready for a run.
struct DoctorArguments {
  LaunchOptions launch;
  // A run whose input is checked too, and its command line, which other hosts get; path and words empty: none.
  ConfigRequest request;
  std::vector<std::string> words;
  bool json = false;
};

// The arguments of `dstrain bench-io`, which finds the settings of section aio that are best for drives.
struct BenchIoArguments {
  std::vector<std::string> directories;  // one of each drive
  int64_t bytes = 1'000'000'000;         // that are moved
  double seconds = 5;                    // the most that one measurement takes
  std::optional<std::vector<int64_t>> block_sizes, queue_depths, threads;  // to try
  std::optional<double> parameters;  // of the model whose state would be moved
  ConfigRequest request;  // a configuration whose section aio is measured, too; path empty: none
  bool json = false;
};

// The arguments of `dstrain tokenize`, which writes the token ids of text files.
struct TokenizeArguments {
  std::string model;  // a directory with a tokenizer.json
  std::vector<std::string> files;
  std::string output;
  std::string chat_template;  // dstrain's own by name, or a file; empty: the model's
  std::string loss_on;        // assistant, completion, all; empty: what is usual for a line
  bool no_eos = false;        // no token behind documents of JSON lines
  bool skip_invalid = false;  // leave out invalid lines
};

// The arguments of `dstrain host_agent`, which the launching process starts on each host of a run. This command and the
// next four are not for users: dstrain starts them itself (command_names.h).
struct HostAgentArguments {
  bool here = false;  // the agent is on the launching process's machine
};
// `dstrain host_watch`, the watcher of a host's ranks, has no arguments: an environment variable holds its task.
struct HostWatchArguments {};
// The arguments of `dstrain relay`, which takes the place of ssh between hosts that were started by hand.
struct RelayArguments {
  std::vector<std::string> words;
};
// `dstrain relay_end`, which runs a relay's words, has no arguments: its standard input holds its task.
struct RelayEndArguments {};
// The arguments of `dstrain rank_starter`, which starts ranks on this machine.
struct RankStarterArguments {
  int64_t ranks = 0;
  std::vector<std::string> words;  // the command line of each rank
};

// The result of --help: the help of a command. `commands`: all of them, where the help of the program is asked for.
struct HelpArguments {
  CommandHelp command;
  std::vector<CommandHelp> commands{};
};

// The result of --version, `help --man` and `help --completion`: the text to print.
struct PrintArguments {
  std::string text;
};

using Arguments =
    std::variant<TrainArguments, PlanArguments, VerifyArguments, CheckArguments, EstimateArguments,
                 InitArguments, GenerateArguments, ChatArguments, EvalArguments, TeachArguments,
                 ExportArguments, ImportArguments, ReportArguments, CompareArguments,
                 WatchArguments, ModelsArguments, HostsArguments, DoctorArguments, BenchIoArguments,
                 TokenizeArguments, HostAgentArguments, HostWatchArguments, RelayArguments,
                 RelayEndArguments, RankStarterArguments, HelpArguments, PrintArguments>;

}  // namespace dstrain
