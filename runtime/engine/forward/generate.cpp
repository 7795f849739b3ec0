#include "runtime/engine/forward/generate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "runtime/config/model/family.h"
#include "runtime/core/error.h"
#include "runtime/core/philox.h"

namespace dstrain {
namespace {

constexpr int64_t kShortestPlan = 64;

// A forward pass of one context length.
class Decoder {
 public:
  Decoder(const Job& job, const GenerateRequest& request, const Implementations& implementations,
          int64_t seq_len)
      : model_(job, request.place, implementations, seq_len, ForwardModel::Ends::with_logits,
               request.threads, request.check_bytes),
        ids_(static_cast<size_t>(seq_len)),
        row_(static_cast<size_t>(job.model.vocabulary())) {}

  // Returns the logits of the token after `context`.
  std::span<const float> logits(std::span<const int32_t> context) {
    std::fill(ids_.begin(), ids_.end(), 0);
    std::copy(context.begin(), context.end(), ids_.begin());
    StepState state;
    StepContext step{.state = &state, .ids = ids_};
    model_.run(step);
    model_.read_logits(static_cast<int64_t>(context.size()) - 1, row_);
    return row_;
  }

 private:
  ForwardModel model_;
  std::vector<int32_t> ids_;
  std::vector<float> row_;
};

// Returns a token drawn from softmax(logits / temperature) over the top_k largest logits, of which the likeliest are
// kept that together have probability top_p. `u` is uniform in [0, 1).
int32_t sample(std::span<const float> logits, const GenerateRequest& request, double u) {
  const auto [temperature, top_k] = std::pair(request.temperature, request.top_k);
  const auto best = std::max_element(logits.begin(), logits.end());
  if (temperature == 0) return static_cast<int32_t>(best - logits.begin());
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  // Equal logits stay in the order of ids, so that the text does not depend on the sort algorithm.
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  if (top_k > 0 && top_k < static_cast<int64_t>(order.size()))
    order.resize(static_cast<size_t>(top_k));
  std::vector<double> weight;
  for (int32_t id : order)
    weight.push_back(
        std::exp((static_cast<double>(logits[static_cast<size_t>(id)]) - *best) / temperature));
  double kept = std::accumulate(weight.begin(), weight.end(), 0.0);
  if (request.top_p < 1) {
    const double least = request.top_p * kept;
    size_t count = 0;
    for (kept = 0; count < weight.size() && kept < least;) kept += weight[count++];
    weight.resize(count);
    order.resize(count);
  }
  double rest = u * kept;
  for (size_t i = 0; i < order.size(); ++i) {
    rest -= weight[i];
    if (rest < 0) return order[i];
  }
  return order.back();
}

double uniform(uint64_t seed, int64_t index) {
  const PhiloxBlock r =
      philox(stream_key(seed, kSamplingStream),
             {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0});
  return ((static_cast<uint64_t>(r[1]) << 32 | r[0]) >> 11) * 0x1p-53;
}

}  // namespace

void generate(const Job& job, const GenerateRequest& request,
              const Implementations& implementations,
              const std::function<void(int32_t)>& on_token) {
  if (const std::string why = job.model.family().why_no_text(); !why.empty())
    fail_user("generate: {} has a {}, which {}", request.place.run_dir, job.model.family().title,
              why);
  if (request.prompt.empty()) fail_user("generate: the prompt is empty; give at least one token");
  for (int32_t id : request.prompt)
    if (id < 0 || id >= job.model.vocabulary())
      fail_user("generate: prompt id {} is outside the vocabulary of {} ids", id,
                job.model.vocabulary());
  std::map<int64_t, Decoder> decoders;
  std::vector<int32_t> ids = request.prompt;
  const int64_t block = job.model.context();
  for (int64_t n = 0; n < request.tokens; ++n) {
    const auto length = std::min(static_cast<int64_t>(ids.size()), block);
    int64_t seq_len = std::min(kShortestPlan, block);
    while (seq_len < length) seq_len = std::min(2 * seq_len, block);
    auto it = decoders.find(seq_len);
    if (it == decoders.end()) {
      decoders.clear();  // contexts only grow, so a shorter plan is not needed again
      it = decoders.try_emplace(seq_len, job, request, implementations, seq_len).first;
    }
    const std::span<const int32_t> context(ids.data() + ids.size() - static_cast<size_t>(length),
                                           static_cast<size_t>(length));
    ids.push_back(sample(it->second.logits(context), request, uniform(request.seed, n)));
    if (std::ranges::find(request.stops, ids.back()) != request.stops.end()) return;
    on_token(ids.back());
  }
}

}  // namespace dstrain
