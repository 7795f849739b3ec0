#include <filesystem>
#include <utility>

#include "launcher/commands/commands.h"
#include "launcher/implementations.h"
#include "launcher/input/run_input.h"
#include "launcher/process/failure.h"
#include "runtime/config/resolved_config.h"
#include "runtime/core/cpu.h"
#include "runtime/core/error.h"
#include "runtime/core/files/input_file.h"
#include "runtime/engine/run/run.h"

namespace dstrain {
namespace {

constexpr int64_t kLargestFile = int64_t{64} << 20;

// Prints tokens as they are generated: as text, or as ids separated by commas, which --prompt_ids accepts.
class Printer {
 public:
  explicit Printer(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}

  void print(int32_t id) {
    if (vocabulary_.format == DataFormat::tokens) {
      print_result(fmt::format("{}{}", first_ ? "" : ",", id));
      first_ = false;
    } else {
      print_result(vocabulary_.decode(id));
    }
  }

 private:
  const Vocabulary& vocabulary_;
  bool first_ = true;
};

std::vector<int32_t> prompt_of(const GenerateArguments& arguments, const Vocabulary& vocabulary,
                               int64_t ids_of_model) {
  if (arguments.prompt && vocabulary.format == DataFormat::tokens)
    fail_user("--prompt: the run in {} was trained on token ids; give --prompt_ids 1,2,3",
              arguments.run_dir);
  const std::vector<int32_t> ids =
      arguments.prompt ? vocabulary.encode(*arguments.prompt) : *arguments.prompt_ids;
  if (ids.empty()) fail_user("--prompt: the prompt is empty; give at least one character");
  for (const int32_t id : ids)
    if (id >= ids_of_model)
      fail_user("--prompt_ids: {} is outside the vocabulary of {} ids", id, ids_of_model);
  return ids;
}

}  // namespace

int run_generate(const GenerateArguments& arguments) {
  const std::string job_file = arguments.run_dir + "/resolved_config.json";
  if (!std::filesystem::exists(job_file))
    fail_user(
        "--run {}: there is no {}, which every run writes: give the output directory of a run "
        "(its --output, or runs/<config's name>)",
        arguments.run_dir, job_file);
  Job job = job_from_resolved(read_input_file(job_file, "the resolved configuration", kLargestFile),
                              job_file);
  if (job.model.kind != ModelKind::gptlite)
    fail_user("{} holds a benchmark model, which has no text to generate", arguments.run_dir);
  job.device = arguments.device;  // not the device of the training run
  settle_device(job);
  const std::string vocabulary_file = arguments.run_dir + "/vocab.json";
  const Vocabulary vocabulary = parse_vocabulary(
      read_input_file(vocabulary_file, "the vocabulary", kLargestFile), vocabulary_file);

  GenerateRequest request;
  request.run_dir = arguments.run_dir;
  request.prompt = prompt_of(arguments, vocabulary, job.model.vocab_size);
  request.tokens = arguments.tokens;
  request.temperature = arguments.temperature;
  request.top_k = arguments.top_k;
  request.seed = arguments.seed;
  request.threads = take_core_share(0, 1);

  Printer printer(vocabulary);
  // Called with the first token, so that nothing is printed if the weights cannot be read.
  const auto print_prompt = [&] {
    for (const int32_t id : request.prompt) printer.print(id);
  };
  bool begun = false;
  generate(job, request, implementations(), [&](int32_t id) {
    if (!std::exchange(begun, true)) print_prompt();
    printer.print(id);
  });
  if (!begun) print_prompt();
  print_result("\n");
  return 0;
}

}  // namespace dstrain
