// The speed of drives with given settings, and the settings that are fastest.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "runtime/config/job.h"
#include "runtime/core/memory.h"
#include "runtime/storage/disk/swap_files.h"

namespace dstrain {

// The speed of drives in bytes per second.
struct DiskSpeed {
  double read = 0, write = 0;
  // Returns the speed of tensors that are read once and written once, as an optimizer's state is in a step.
  double both() const { return read > 0 && write > 0 ? 2 / (1 / read + 1 / write) : 0; }
};

// Measures drives through a disk store, with several operations at a time, as offloaded tensors are moved.
class DiskSpeedProbe {
 public:
  // The caller keeps `files` alive. Each measurement moves all bytes of the files in each direction, or as many as go
  // within `most_seconds`. `keep_on` is asked again and again; when it returns false a measurement ends early, and its
  // result means nothing. Writes the files once. Throws RunError as a disk store does.
  DiskSpeedProbe(const SwapFiles& files, double most_seconds, std::function<bool()> keep_on);

  DiskSpeed measure(const AioConfig& config) const;

 private:
  // Returns bytes per second.
  double move(const AioConfig& config, bool writes, double most_seconds) const;

  const SwapFiles& files_;
  const double most_seconds_;
  const std::function<bool()> keep_on_;
  Memory memory_;
};

// The settings that are tried, in ascending order.
struct AioChoices {
  std::vector<int64_t> block_sizes{1 << 17, 1 << 19, 1 << 20, 1 << 22, 1 << 23};
  std::vector<int64_t> queue_depths{8, 32, 128};
  std::vector<int64_t> threads{1, 2, 4};
};

// One measurement: settings of section aio, and the speed that the drives reached with them.
struct AioMeasurement {
  AioConfig config;
  DiskSpeed speed;
};

// The result of tune_aio(): all measurements in their order, and the best settings.
struct AioTuning {
  std::vector<AioMeasurement> measured;  // one after another
  AioMeasurement best;
  AioMeasurement given;  // DeepSpeed's defaults, or the settings that the user asked about
};

// Tries all pairs of block size and queue depth, then with the best pair the numbers of threads, then the other ways
// to submit. The fastest few and `given` are measured again in turn, and the medians of that count. Of settings within
// 2 % of the fastest the one is best that has the fewest bytes in flight. `measure` is asked for each, `keep_on` before
// each; returns nothing if that says no.
std::optional<AioTuning> tune_aio(const AioChoices& choices, const AioConfig& given,
                                  const std::function<DiskSpeed(const AioConfig&)>& measure,
                                  const std::function<bool()>& keep_on);

}  // namespace dstrain
