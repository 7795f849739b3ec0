#include "runtime/engine/forward/generate.h"

#include <algorithm>
#include <optional>

#include "launcher/commands/commands.h"
#include "launcher/implementations.h"
#include "launcher/input/trained_model.h"
#include "launcher/text/ordered_texts.h"
#include "launcher/text/prompts.h"
#include "launcher/text/text_model.h"
#include "launcher/text/text_stream.h"
#include "runtime/core/cpu.h"
#include "runtime/core/error.h"
#include "runtime/core/log/log.h"
#include "runtime/core/threads/core_share.h"

namespace dstrain {
namespace {

void warn_of_long(const std::vector<std::vector<int32_t>>& prompts, int64_t context) {
  size_t most = 0;
  for (const auto& prompt : prompts) most = std::max(most, prompt.size());
  if (static_cast<int64_t>(most) > context)
    log::warn("a prompt has {} tokens; the model sees the last {} of a text", most, context);
}

}  // namespace

int run_generate(const GenerateArguments& arguments, const ModelRegistry& models) {
  const TextModel model = open_text_model(arguments, arguments.prompt_ids.has_value(), models);
  const TrainedModel& trained = model.trained;
  if (!arguments.stops.empty() && model.of_ids())
    fail_user("--stop: the model's texts are token ids, as there is no tokenizer: leave it out");
  GenerateRequest request;
  request.check_bytes =
      check_forward(trained, "give a shorter prompt or fewer --tokens, or use a smaller model");
  request.stops = model.stops;
  request.place = trained.place;
  request.prompts = prompts_of(arguments, model);
  request.samples = arguments.samples;
  request.tokens = arguments.tokens;
  request.sampling = arguments.sampling;
  request.threads = take_core_share(0, 1, threads_asked_for());
  warn_of_long(request.prompts, trained.job.model.context());

  const auto samples = static_cast<size_t>(request.samples);
  OrderedTexts output(request.prompts.size() * samples);
  std::vector<std::optional<TextStream>> streams(request.prompts.size() * samples);
  // A text is begun with its first token, so that nothing is printed if the weights cannot be read.
  const auto stream_of = [&](const GeneratedText& text, size_t index) -> TextStream& {
    if (!streams[index]) {
      streams[index].emplace(trained.vocabulary, model.tokenizer.get(), arguments.stops);
      output.add(index, streams[index]->prompt(request.prompts[text.prompt]));
    }
    return *streams[index];
  };
  const auto index_of = [samples](const GeneratedText& text) {
    return text.prompt * samples + static_cast<size_t>(text.sample);
  };
  const auto on_token = [&](const GeneratedText& text, int32_t id) {
    const size_t index = index_of(text);
    TextStream& stream = stream_of(text, index);
    output.add(index, stream.add(id));
    return !stream.stopped();
  };
  const auto on_end = [&](const GeneratedText& text) {
    const size_t index = index_of(text);
    output.add(index, stream_of(text, index).finish());
    output.end(index);
    streams[index].reset();
  };
  generate(trained.job, request, implementations(), on_token, on_end);
  return 0;
}

}  // namespace dstrain
