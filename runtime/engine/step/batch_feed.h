// BatchFeed: brings a step's samples to where its plan reads them. On the CPU they are read there; for
// a device they are read into pinned memory, where the next step is known while the device still works
// on this one, and the copy stream brings them over.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/data/dataset.h"
#include "runtime/engine/step/arenas.h"
#include "runtime/engine/step/backend.h"

namespace dstrain {

// The samples of one step on all ranks: those from place `first` on in the split's order. There is nothing
// to learn or to judge from place `end` on: those samples fill the batch, their targets are ignored.
struct BatchRequest {
  const Dataset* dataset = nullptr;
  Split split = Split::train;
  int64_t first = 0;
  int64_t end = INT64_MAX;
  bool operator==(const BatchRequest&) const = default;
};

class BatchFeed {
 public:
  // All three outlive the feed.
  BatchFeed(const Plan& plan, const Arenas& arenas, const Backend& backend);

  // Brings the samples of all micro-batches; work given to the compute stream from now on sees them.
  // Returns how many targets there are to learn from.
  int64_t load(const BatchRequest& request);
  // The same for inputs that are ids themselves, of one micro-batch.
  void load_ids(std::span<const int32_t> ids);
  // Reads the samples of a later load() into host memory, where there is memory for that.
  void read_ahead(const BatchRequest& request);

 private:
  struct Micro {
    Tensor inputs, targets;            // on the device; targets may be absent
    Tensor host_inputs, host_targets;  // where they are read to
  };
  void read(const BatchRequest& request);
  void send();

  const Plan& plan_;
  const Backend& backend_;
  Memory staging_;  // none where the host reads the device's memory itself
  std::vector<Micro> micros_;
  std::unique_ptr<Event> sent_;
  BatchRequest read_;  // what the host side holds; of no dataset: nothing
  int64_t targets_ = 0;
};

}  // namespace dstrain
