#include "runtime/engine/forward/generate.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/config/family/family.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr int64_t kMostTexts = 8;  // at a time

// A text that has a slot.
struct OpenText {
  GeneratedText text{};
  std::vector<int32_t> ids{};
  int64_t added = 0;
};

int64_t longest(const std::vector<std::vector<int32_t>>& prompts) {
  size_t most = 1;
  for (const auto& prompt : prompts) most = std::max(most, prompt.size());
  return static_cast<int64_t>(most);
}

class Generation {
 public:
  Generation(const GenerateRequest& request, NextToken& model, const TakeToken& on_token,
             const std::function<void(const GeneratedText&)>& on_end)
      : request_(request),
        model_(model),
        on_token_(on_token),
        on_end_(on_end),
        sampler_(request.sampling),
        open_(static_cast<size_t>(model.slots())) {}

  void run() {
    for (;;) {
      for (std::optional<OpenText>& slot : open_)
        if (!slot) slot = next_text();
      std::vector<NextToken::Text> texts;
      for (size_t s = 0; s < open_.size(); ++s)
        if (open_[s]) texts.push_back({static_cast<int64_t>(s), open_[s]->ids});
      if (texts.empty()) return;
      std::vector<int32_t> chosen(texts.size());
      model_.run(texts, [&](size_t i, std::span<const float> logits) {
        const OpenText& text = *open_[static_cast<size_t>(texts[i].slot)];
        chosen[i] = sampler_.choose(logits, text.ids, text.text.sample, text.added);
      });
      for (size_t i = 0; i < texts.size(); ++i)
        take(open_[static_cast<size_t>(texts[i].slot)], chosen[i]);
    }
  }

 private:
  std::optional<OpenText> next_text() {
    if (next_.prompt == request_.prompts.size()) return std::nullopt;
    OpenText text{.text = next_, .ids = request_.prompts[next_.prompt]};
    if (++next_.sample == request_.samples) next_ = {next_.prompt + 1, 0};
    return text;
  }

  void take(std::optional<OpenText>& slot, int32_t id) {
    OpenText& text = *slot;
    const bool stops = std::ranges::find(request_.stops, id) != request_.stops.end();
    text.ids.push_back(id);
    const bool goes_on = !stops && on_token_(text.text, id) && ++text.added < request_.tokens;
    if (goes_on) return;
    on_end_(text.text);
    slot.reset();
  }

  const GenerateRequest& request_;
  NextToken& model_;
  const TakeToken& on_token_;
  const std::function<void(const GeneratedText&)>& on_end_;
  Sampler sampler_;
  std::vector<std::optional<OpenText>> open_;  // by slot
  GeneratedText next_{};
};

}  // namespace

void check_prompts(const Job& job, const GenerateRequest& request) {
  if (const std::string why = job.model.family().why_no_text(); !why.empty())
    fail_user("generate: {} has a {}, which {}", request.place.run_dir, job.model.family().title,
              why);
  for (const std::vector<int32_t>& prompt : request.prompts) {
    if (prompt.empty()) fail_user("generate: the prompt is empty; give at least one token");
    for (const int32_t id : prompt)
      if (id < 0 || id >= job.model.vocabulary())
        fail_user("generate: prompt id {} is outside the vocabulary of {} ids", id,
                  job.model.vocabulary());
  }
}

void generate(const Job& job, const GenerateRequest& request,
              const Implementations& implementations, const TakeToken& on_token,
              const std::function<void(const GeneratedText&)>& on_end) {
  check_prompts(job, request);
  const auto texts = static_cast<int64_t>(request.prompts.size()) * request.samples;
  if (request.tokens == 0 || texts == 0) {
    for (size_t p = 0; p < request.prompts.size(); ++p)
      for (int64_t s = 0; s < request.samples; ++s) on_end({p, s});
    return;
  }
  const std::unique_ptr<NextToken> model =
      make_next_token(job, request.place, implementations,
                      {.texts = std::min(texts, kMostTexts),
                       .prompt = longest(request.prompts),
                       .tokens = request.tokens - 1},  // nothing follows the last one
                      request.threads, request.check_bytes);
  Generation(request, *model, on_token, on_end).run();
}

}  // namespace dstrain
