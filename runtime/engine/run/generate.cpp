// Generation: one forward pass per new token over the last tokens, at most the model's context. There is a plan per
// power-of-two context length, so that short contexts do not cost as much as long ones. Attention is causal,
// so the padding after the last token changes nothing.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "runtime/comm/devices/device_comm.h"
#include "runtime/comm/self_comm.h"
#include "runtime/config/model/family.h"
#include "runtime/core/error.h"
#include "runtime/core/philox.h"
#include "runtime/engine/run/model_state.h"
#include "runtime/engine/run/run.h"
#include "runtime/engine/step/executor.h"
#include "runtime/storage/checkpoint/checkpoint_load.h"
#include "runtime/storage/weights.h"

namespace dstrain {
namespace {

constexpr int64_t kShortestPlan = 64;

// A forward pass of one context length, with its own copy of the weights.
class Decoder {
 public:
  Decoder(const Job& job, const GenerateRequest& request, const Implementations& implementations,
          int64_t seq_len)
      : backend_(make_backend(implementations, job.device)),
        comm_(make_device_communicator(self_, *backend_.device)),
        plans_(make_decode_plan(job, seq_len, {backend_.library, request.threads})),
        arenas_(plans_.memory, *backend_.device, comm(), request.threads),
        mesh_(comm(), self_, {}),
        executor_(plans_.validate, arenas_, backend_, job, mesh_, nullptr),
        vocab_size_(job.model.vocabulary()),
        ids_(static_cast<size_t>(seq_len)) {
    load(job, request);
  }

  // Returns the logits of the token after `context`.
  std::span<const float> logits(std::span<const int32_t> context) {
    std::fill(ids_.begin(), ids_.end(), 0);
    std::copy(context.begin(), context.end(), ids_.begin());
    StepState state;
    StepContext step{.state = &state, .ids = ids_};
    executor_.run(step);
    const Tensor all = arenas_.tensor(plans_.validate, plans_.validate.program.logits);
    const int64_t begin = (static_cast<int64_t>(context.size()) - 1) * all.shape[-1];
    const int64_t vocab = vocab_size_;
    row_.resize(static_cast<size_t>(vocab));
    const Tensor row{all.as<std::byte>() + begin * size_of(all.dtype), {vocab}, all.dtype};
    on_host(*backend_.device, row, HostAccess::read, [&](int64_t first, const Tensor& values) {
      for (int64_t v = 0; v < values.elements(); ++v)
        row_[static_cast<size_t>(first + v)] = at(values, v);
    });
    return row_;
  }

 private:
  static float at(const Tensor& t, int64_t i) {
    switch (t.dtype) {
      case DType::bf16:
        return to_float(t.as<const bf16>()[i]);
      case DType::f16:
        return to_float(t.as<const f16>()[i]);
      default:
        return t.as<const float>()[i];
    }
  }

  void load(const Job& job, const GenerateRequest& request) {
    const Plan& plan = plans_.validate;
    check(plan.program.dtype == DType::f32, "generation runs in f32, not in {}",
          name_of(job.dtype));
    StateRegister weights = ModelState(plan, arenas_, mesh_, request.threads).weights();
    if (request.checkpoint.empty())
      load_weights(request.run_dir + "/model.safetensors",
                   mapped(std::move(weights), weight_map_of(job.model)));
    else
      load_checkpoint_weights(request.checkpoint, weights);
  }

  Communicator& comm() { return comm_ ? *comm_ : self_; }

  Backend backend_;
  SelfComm self_;
  std::unique_ptr<Communicator> comm_;
  RankPlan plans_;
  Arenas arenas_;
  MeshComm mesh_;
  Executor executor_;
  int64_t vocab_size_;
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

void generate(const Job& trained, const GenerateRequest& request,
              const Implementations& implementations,
              const std::function<void(int32_t)>& on_token) {
  if (const std::string why = trained.model.family().why_no_text(); !why.empty())
    fail_user("generate: the run in {} trained a {}, which {}", request.run_dir,
              trained.model.family().title, why);
  if (request.prompt.empty()) fail_user("generate: the prompt is empty; give at least one token");
  for (int32_t id : request.prompt)
    if (id < 0 || id >= trained.model.vocabulary())
      fail_user("generate: prompt id {} is outside the vocabulary of {} ids", id,
                trained.model.vocabulary());
  Job job = trained;
  job.dtype = DType::f32;  // the precision of the weight file
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
    on_token(ids.back());
  }
}

}  // namespace dstrain
