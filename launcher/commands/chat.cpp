#include <algorithm>
#include <csignal>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "launcher/commands/commands.h"
#include "launcher/implementations.h"
#include "launcher/input/trained_model.h"
#include "launcher/process/failure.h"
#include "launcher/text/chat_input.h"
#include "launcher/text/conversation.h"
#include "launcher/text/text_model.h"
#include "launcher/text/text_stream.h"
#include "runtime/config/text.h"
#include "runtime/core/cpu.h"
#include "runtime/core/error.h"
#include "runtime/core/log/log.h"
#include "runtime/core/threads/core_share.h"
#include "runtime/engine/forward/next_token.h"

namespace dstrain {
namespace {

constexpr int64_t kUsualContext = 4096;

// A chat with a model whose memory is there.
class Chat {
 public:
  Chat(const ChatArguments& arguments, const TextModel& model, Conversation& conversation,
       NextToken& next, int64_t context, ChatInput& input)
      : arguments_(arguments),
        model_(model),
        conversation_(conversation),
        next_(next),
        context_(context),
        input_(input),
        sampler_(arguments.sampling) {}

  void run() {
    for (std::string line;;) {
      if (input_.is_terminal()) print_result("> ");
      const ChatInput::Read read = input_.read(line);
      if (read == ChatInput::Read::end) break;
      if (read == ChatInput::Read::interrupted) {
        if (input_.is_terminal()) print_result("\n");
        continue;
      }
      if (line == "/exit") return;
      if (line == "/reset")
        conversation_.reset();
      else if (!line.empty())
        turn(line);
    }
    if (input_.is_terminal()) print_result("\n");
  }

 private:
  // Answers a message. One that the model or its template does not take is a line on standard error, and forgotten.
  void turn(const std::string& line) {
    std::vector<int32_t> ids;
    try {
      conversation_.say(line);
      if (const size_t at = first_invalid_utf8(line); at != std::string::npos)
        fail_user("the message is not UTF-8 at byte {}", at);
      ids = fitting_ids();
    } catch (const UserError& e) {
      conversation_.take_back();
      log::warn("{}; the message is left out", e.what());
      return;
    }
    conversation_.answer(answer(std::move(ids)));
  }

  // Returns the ids of the conversation. The oldest messages are forgotten where there is no room for an answer.
  std::vector<int32_t> fitting_ids() {
    for (;;) {
      std::vector<int32_t> ids = conversation_.ids();
      const auto count = static_cast<int64_t>(ids.size());
      const int64_t room = std::min(arguments_.tokens, context_ / 4);
      if (count + std::max<int64_t>(room, 1) <= context_) return ids;
      if (conversation_.forget_first()) {
        if (!std::exchange(told_, true))
          log::warn("the conversation has more than {} tokens: the oldest messages are forgotten",
                    context_);
        continue;
      }
      if (count < context_) return ids;
      fail_user("the message has {} tokens with what the template adds, and the model sees {}",
                count, context_);
    }
  }

  std::string answer(std::vector<int32_t> ids) {
    TextStream stream(model_.trained.vocabulary, model_.tokenizer.get(), conversation_.end_texts());
    std::string text;
    const auto show = [&text](const std::string& more) {
      text += more;
      if (!more.empty()) print_result(more);
    };
    const std::vector<int32_t>& ends = conversation_.ends();
    for (int64_t n = 0; n < arguments_.tokens && static_cast<int64_t>(ids.size()) < context_; ++n) {
      int32_t id = 0;
      const NextToken::Text asked{0, ids};
      next_.run({&asked, 1}, [&](size_t, std::span<const float> logits) {
        id = sampler_.choose(logits, ids, 0, number_++);
      });
      if (input_.interrupted()) break;
      if (std::ranges::find(ends, id) != ends.end()) break;
      ids.push_back(id);
      show(stream.add(id));
      if (stream.stopped()) break;
    }
    show(stream.finish());
    print_result("\n");
    return text;
  }

  const ChatArguments& arguments_;
  const TextModel& model_;
  Conversation& conversation_;
  NextToken& next_;
  int64_t context_;
  ChatInput& input_;
  Sampler sampler_;
  int64_t number_ = 0;  // of the next token of the chat
  bool told_ = false;   // that messages are forgotten
};

}  // namespace

int run_chat(const ChatArguments& arguments, const ModelRegistry& models) {
  ChatInput input;  // before any other thread is there
  const TextModel model = open_text_model(arguments, false, models);
  const TrainedModel& trained = model.trained;
  if (!model.tokenizer)
    fail_user(
        "dstrain chat: {} has no tokenizer.json, and messages are written with the special tokens "
        "of one: dstrain generate continues its texts",
        arguments.model.empty() ? arguments.run_dir : arguments.model);
  Conversation conversation(model, arguments.chat_template, arguments.system);
  const int64_t most = trained.job.model.context(),
                context = arguments.context.value_or(std::min(most, kUsualContext));
  if (context > most) fail_user("--context {}: the model sees {} tokens at most", context, most);
  const CheckDeviceBytes check_bytes =
      check_forward(trained, "give a smaller --context, or use a smaller model");
  const int threads = take_core_share(0, 1, threads_asked_for());
  const std::unique_ptr<NextToken> next =
      make_next_token(trained.job, trained.place, implementations(),
                      {.texts = 1, .prompt = context, .tokens = 0}, threads, check_bytes);
  if (input.interrupted()) return 128 + SIGINT;
  Chat(arguments, model, conversation, *next, context, input).run();
  return 0;
}

}  // namespace dstrain
