// BatchFeed: writes a step's samples to the buffers where the plan reads them. On the CPU the dataset writes
// them there directly. For a device it writes them to a pinned staging buffer, for the next step already while
// the device works on this one, and the copy stream sends them to the device.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/data/dataset.h"
#include "runtime/engine/step/arenas.h"
#include "runtime/engine/step/backend.h"

namespace dstrain {

// The samples of one step on all ranks: consecutive places of the split's order, starting at `first`. Places
// from `end` on only fill the batch: their targets are ignored.
struct BatchRequest {
  const Dataset* dataset = nullptr;
  Split split = Split::train;
  int64_t first = 0;
  int64_t end = INT64_MAX;
  bool operator==(const BatchRequest&) const = default;
};

class BatchFeed {
 public:
  // Returns what a micro-batch counts in the loss (ModelFamily::weigh).
  using Weigh = std::function<int64_t(std::span<const InputTensor>)>;

  // The caller must keep plan, arenas and backend alive. `weigh`: null: targets or samples count.
  BatchFeed(const Plan& plan, const Arenas& arenas, const Backend& backend, Weigh weigh = nullptr);

  // Loads the samples of all micro-batches. Work that is given to the compute stream afterwards sees them.
  // Returns the number of targets that are not ignored, or of samples, or what the model counts.
  int64_t load(const BatchRequest& request);
  // Loads the values of each input of one micro-batch, in the order of the program. They must be i32.
  void load_values(std::span<const std::span<const int32_t>> values);
  // Reads the samples of the next load() into the staging buffer; does nothing if there is none.
  void read_ahead(const BatchRequest& request);

 private:
  // The inputs of a micro-batch, in the order of the program.
  struct Micro {
    std::vector<Tensor> device;
    std::vector<InputTensor> host;  // where the dataset writes them
  };
  // Makes the samples from `counted` on ignored ones. Returns the number of targets that are not ignored.
  static int64_t count_targets(const Tensor& labels, int64_t counted);
  void read(const BatchRequest& request);
  void send();

  const Plan& plan_;
  const Backend& backend_;
  Weigh weigh_;
  Memory staging_;  // empty if the device's memory is the host's
  std::vector<Micro> micros_;
  std::unique_ptr<Event> sent_;
  BatchRequest read_;  // the samples on the host side; no dataset: none
  int64_t targets_ = 0;
};

}  // namespace dstrain
