#include "runtime/engine/forward/generate.h"

#include <unistd.h>

#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "launcher/cli/option_readers.h"
#include "launcher/commands/commands.h"
#include "launcher/implementations.h"
#include "launcher/input/trained_model.h"
#include "launcher/process/failure.h"
#include "runtime/config/text.h"
#include "runtime/core/cpu.h"
#include "runtime/core/error.h"
#include "runtime/core/log/log.h"
#include "runtime/core/threads/core_share.h"
#include "runtime/data/tokenizer/stream_decoder.h"
#include "runtime/data/tokenizer/tokenizer_directory.h"
#include "runtime/engine/run/run.h"

namespace dstrain {
namespace {

// Prints tokens as they are generated: as text, or without a tokenizer as ids separated by commas, which --prompt_ids
// accepts.
class Printer {
 public:
  Printer(const Vocabulary& vocabulary, const Tokenizer* tokenizer) : vocabulary_(vocabulary) {
    if (tokenizer) decoder_.emplace(*tokenizer);
  }

  void print(int32_t id) {
    if (decoder_) {
      print_text(decoder_->add(static_cast<uint32_t>(id)));
    } else if (vocabulary_.format == DataFormat::tokens) {
      print_result(fmt::format("{}{}", first_ ? "" : ",", id));
      first_ = false;
    } else {
      print_result(vocabulary_.decode(id));
    }
  }
  void end() {
    if (decoder_) print_text(decoder_->finish());
    print_result("\n");
  }

 private:
  static void print_text(const std::string& text) {
    if (!text.empty()) print_result(text);
  }

  const Vocabulary& vocabulary_;
  std::optional<StreamDecoder> decoder_;
  bool first_ = true;
};

// Returns the ids of a prompt as transformers' tokenizers make them: with what the post-processor puts around it.
std::vector<int32_t> encoded(const Tokenizer& tokenizer, const std::string& option,
                             const std::string& text) {
  if (const size_t at = first_invalid_utf8(text); at != std::string::npos)
    fail_user("{}: the text is not UTF-8 at byte {}", option, at);
  std::vector<int32_t> ids(tokenizer.prefix().begin(), tokenizer.prefix().end());
  for (const uint32_t id : tokenizer.encode(text)) ids.push_back(static_cast<int32_t>(id));
  ids.insert(ids.end(), tokenizer.suffix().begin(), tokenizer.suffix().end());
  return ids;
}

// Returns the text of the standard input, without a line break at its end.
std::string read_prompt() {
  if (::isatty(STDIN_FILENO) == 1)
    fail_user(
        "dstrain generate needs a prompt: --prompt TEXT, --prompt_ids 1,2,3, or a text on its "
        "standard input");
  std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

// Opens the tokenizer of the run; null if there is none. Token ids are continued without one that cannot be read.
std::unique_ptr<const Tokenizer> tokenizer_for(const GenerateArguments& arguments,
                                               const std::string& directory) {
  if (directory.empty()) return nullptr;
  try {
    std::unique_ptr<const Tokenizer> tokenizer = open_tokenizer(directory);
    for (const std::string& warning : tokenizer->warnings()) log::warn("{}", warning);
    return tokenizer;
  } catch (const UserError& e) {
    if (!arguments.prompt_ids) throw;
    log::warn("{}; what follows are token ids", e.what());
    return nullptr;
  }
}

// Returns the ids that end a text, with or without a tokenizer. A run that has left adapters alone has them in its model's
// folder.
std::vector<int32_t> stops_of(const TrainedModel& model) {
  std::vector<int32_t> stops;
  for (const std::string& directory :
       {model.tokenizer, model.place.run_dir, model.job.model_directory})
    if (stops.empty() && !directory.empty())
      for (const uint32_t id : stop_ids(directory)) stops.push_back(static_cast<int32_t>(id));
  return stops;
}

// `tokenizer`: that of the run, or null.
std::vector<int32_t> prompt_of(const GenerateArguments& arguments, const Vocabulary& vocabulary,
                               const Tokenizer* tokenizer, int64_t ids_of_model) {
  const bool of_tokens = vocabulary.format == DataFormat::tokens && tokenizer == nullptr;
  if (arguments.prompt && of_tokens)
    fail_user(
        "--prompt: the model in {} was trained on token ids; give "
        "--prompt_ids 1,2,3",
        arguments.model.empty() ? arguments.run_dir : arguments.model);
  const auto encode = [&](const std::string& option, const std::string& text) {
    return tokenizer ? encoded(*tokenizer, option, text) : vocabulary.encode(text);
  };
  std::vector<int32_t> ids;
  std::string option = arguments.prompt ? "--prompt" : "--prompt_ids";
  if (arguments.prompt_ids) {
    ids = *arguments.prompt_ids;
  } else if (arguments.prompt) {
    ids = encode(option, *arguments.prompt);
  } else {
    option = "standard input";
    const std::string text = read_prompt();
    if (!of_tokens)
      ids = encode(option, text);
    else if (!text.empty())
      ids = token_ids(option, text);
  }
  if (ids.empty()) fail_user("{}: the prompt is empty; give at least one character", option);
  for (const int32_t id : ids)
    if (id >= ids_of_model)
      fail_user("{}: {} is outside the vocabulary of {} ids", option, id, ids_of_model);
  return ids;
}

}  // namespace

int run_generate(const GenerateArguments& arguments, const ModelRegistry& models) {
  const TrainedModel model =
      arguments.model.empty()
          ? read_trained_model(arguments.run_dir, device_named(arguments.device), models)
          : read_model_directory(arguments.model, device_named(arguments.device), arguments.ignored,
                                 models);
  const auto& [job, vocabulary, place, tokenizer_directory] = model;
  const std::unique_ptr<const Tokenizer> tokenizer = tokenizer_for(arguments, tokenizer_directory);
  GenerateRequest request;
  request.check_bytes =
      check_forward(model, "give a shorter prompt or fewer --tokens, or use a smaller model");
  request.stops = stops_of(model);
  request.place = place;
  request.prompt = prompt_of(arguments, vocabulary, tokenizer.get(), job.model.vocabulary());
  request.tokens = arguments.tokens;
  request.temperature = arguments.temperature;
  request.top_k = arguments.top_k;
  request.top_p = arguments.top_p;
  request.seed = arguments.seed;
  request.threads = take_core_share(0, 1, threads_asked_for());

  Printer printer(vocabulary, tokenizer.get());
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
  printer.end();
  return 0;
}

}  // namespace dstrain
