#include "runtime/engine/step/batch_feed.h"

#include <algorithm>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr int64_t kAlign = 64;
constexpr int32_t kIgnoredTarget = -1;

int64_t aligned(int64_t bytes) {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

}  // namespace

BatchFeed::BatchFeed(const Plan& plan, const Arenas& arenas, const Backend& backend)
    : plan_(plan), backend_(backend), sent_(backend.device->make_event()) {
  const Program& program = plan.program;
  int64_t bytes = 0;
  for (int m = 0; m < static_cast<int>(plan.micro_batches); ++m) {
    Micro micro;
    micro.inputs = micro.host_inputs = arenas.tensor(plan, program.inputs, m);
    bytes += aligned(micro.inputs.bytes());
    if (program.targets != kNone) {
      micro.targets = micro.host_targets = arenas.tensor(plan, program.targets, m);
      bytes += aligned(micro.targets.bytes());
    }
    micros_.push_back(micro);
  }
  if (backend.device->is_host()) return;
  staging_ = backend.device->pinned(bytes, "batches");
  std::byte* at = staging_.data();
  for (Micro& micro : micros_)
    for (Tensor* t : {&micro.host_inputs, &micro.host_targets}) {
      if (!*t) continue;
      t->data = at;
      at += aligned(t->bytes());
    }
}

int64_t BatchFeed::load(const BatchRequest& request) {
  if (!(read_ == request)) read(request);
  read_ = {};
  send();
  return targets_;
}

void BatchFeed::load_ids(std::span<const int32_t> ids) {
  const Tensor& inputs = micros_[0].host_inputs;
  check(ids.size() == static_cast<size_t>(inputs.elements()), "decoding needs {} ids, got {}",
        inputs.elements(), ids.size());
  sent_->synchronize();
  std::copy(ids.begin(), ids.end(), inputs.as<int32_t>());
  send();
}

void BatchFeed::read_ahead(const BatchRequest& request) {
  if (staging_.data()) read(request);
}

void BatchFeed::read(const BatchRequest& request) {
  sent_->synchronize();  // the staging buffer still holds the last batch until it is sent
  read_ = {};
  targets_ = 0;
  for (size_t m = 0; m < micros_.size(); ++m) {
    const Micro& micro = micros_[m];
    const int64_t count = micro.inputs.shape[0];
    const int64_t place = (static_cast<int64_t>(m) * plan_.place.ranks + plan_.place.rank) * count;
    request.dataset->read(request.split, request.first + place, count, micro.host_inputs,
                          micro.host_targets);
    auto* ids = micro.host_targets.as<int32_t>();
    const int64_t counted = std::clamp(request.end - request.first - place, int64_t{0}, count);
    std::fill(ids + counted * (micro.host_targets.elements() / count),
              ids + micro.host_targets.elements(), kIgnoredTarget);
    targets_ +=
        std::count_if(ids, ids + micro.host_targets.elements(), [](int32_t id) { return id >= 0; });
  }
  read_ = request;
}

void BatchFeed::send() {
  for (const Micro& micro : micros_) {
    backend_.copies->copy(micro.inputs.data, micro.host_inputs.data, micro.inputs.bytes());
    if (micro.targets)
      backend_.copies->copy(micro.targets.data, micro.host_targets.data, micro.targets.bytes());
  }
  sent_->record(*backend_.copies);
  backend_.compute->wait(*sent_);
}

}  // namespace dstrain
