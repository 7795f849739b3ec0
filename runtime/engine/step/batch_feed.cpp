#include "runtime/engine/step/batch_feed.h"

#include <algorithm>
#include <utility>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr int64_t kAlign = 64;
constexpr int32_t kIgnoredTarget = -100;  // PyTorch's, which exported graphs compare with

int64_t aligned(int64_t bytes) {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

}  // namespace

BatchFeed::BatchFeed(const Plan& plan, const Arenas& arenas, const Backend& backend, Weigh weigh)
    : plan_(plan),
      backend_(backend),
      weigh_(std::move(weigh)),
      sent_(backend.device->make_event()) {
  int64_t bytes = 0;
  for (int m = 0; m < static_cast<int>(plan.micro_batches); ++m) {
    Micro micro;
    for (const ProgramInput& input : plan.program.inputs) {
      const Tensor tensor = arenas.tensor(plan, input.buffer, m);
      micro.device.push_back(tensor);
      micro.host.push_back({input.name, input.role, tensor});
      bytes += aligned(tensor.bytes());
    }
    micros_.push_back(std::move(micro));
  }
  if (backend.device->is_host()) return;
  staging_ = backend.device->pinned(bytes, "batches");
  std::byte* at = staging_.data();
  for (Micro& micro : micros_)
    for (InputTensor& input : micro.host) {
      input.tensor.data = at;
      at += aligned(input.tensor.bytes());
    }
}

int64_t BatchFeed::load(const BatchRequest& request) {
  if (!(read_ == request)) read(request);
  read_ = {};
  send();
  return targets_;
}

void BatchFeed::load_values(std::span<const std::span<const int32_t>> values) {
  const std::vector<InputTensor>& inputs = micros_[0].host;
  check(inputs.size() == values.size(), "a plan with {} inputs got values of {}", inputs.size(),
        values.size());
  sent_->synchronize();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& to = inputs[i].tensor;
    check(to.dtype == DType::i32 && values[i].size() == static_cast<size_t>(to.elements()),
          "{} needs {} values, got {}", inputs[i].name, to.elements(), values[i].size());
    std::ranges::copy(values[i], to.as<int32_t>());
  }
  send();
}

void BatchFeed::read_ahead(const BatchRequest& request) {
  if (staging_.data()) read(request);
}

void BatchFeed::read(const BatchRequest& request) {
  sent_->synchronize();  // the staging buffer still holds the last batch until it is sent
  read_ = {};
  targets_ = 0;
  int64_t samples = 0, weights = 0;
  for (size_t m = 0; m < micros_.size(); ++m) {
    const std::vector<InputTensor>& inputs = micros_[m].host;
    const int64_t count = inputs[0].tensor.shape[0];
    const int64_t sample = plan_.part_of_samples(static_cast<int64_t>(m)) * count;
    request.dataset->read(request.split, request.first + sample, count, inputs);
    const int64_t counted = std::clamp(request.end - request.first - sample, int64_t{0}, count);
    for (const InputTensor& input : inputs)
      if (input.role == InputRole::labels) targets_ += count_targets(input.tensor, counted);
    if (weigh_ && counted > 0) weights += weigh_(inputs);
    samples += counted;
  }
  if (plan_.program.loss_weight == LossWeight::samples) targets_ = samples;
  if (weigh_) targets_ = weights;
  // The ranks of a sequence group load the same samples, whose targets count once.
  if (plan_.place.rank_in(Axis::sequence) > 0) targets_ = 0;
  read_ = request;
}

int64_t BatchFeed::count_targets(const Tensor& labels, int64_t counted) {
  auto* ids = labels.as<int32_t>();
  const int64_t all = labels.elements();
  std::fill(ids + counted * (all / labels.shape[0]), ids + all, kIgnoredTarget);
  int64_t ignored = 0;
  for (int64_t i = 0; i < all; ++i) {
    if (ids[i] >= 0) continue;
    ids[i] = kIgnoredTarget;
    ++ignored;
  }
  return all - ignored;
}

void BatchFeed::send() {
  for (const Micro& micro : micros_)
    for (size_t i = 0; i < micro.device.size(); ++i)
      backend_.copies->copy(micro.device[i].data, micro.host[i].tensor.data,
                            micro.device[i].bytes());
  sent_->record(*backend_.copies);
  backend_.compute->wait(*sent_);
}

}  // namespace dstrain
