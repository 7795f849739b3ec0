// RunWeights: the weights that an export writes, read a piece at a time from what a run has left: its files, or a
// checkpoint. Where the export merges adapters, they are added, and what was trained as a whole with them is theirs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/export/export_plan.h"
#include "runtime/engine/files/adapter_sums.h"
#include "runtime/storage/checkpoint/checkpoint_load.h"
#include "runtime/storage/weights/weights_reader.h"

namespace dstrain {

class RunWeights {
 public:
  // `plan` must outlive the object. Throws UserError if the files are not those of the model.
  explicit RunWeights(const ExportPlan& plan);

  // Reads elements [begin, begin + count) of a weight to `to`; `weight`: its index in plan.own. Throws UserError.
  void read(size_t weight, int64_t begin, int64_t count, float* to);

 private:
  void read_as_left(size_t weight, int64_t begin, int64_t count, float* to);
  void take_adapters();
  // Reads the same of a weight of plan.merged.
  void read_adapters(size_t weight, int64_t begin, int64_t count, float* to);
  // Makes of values what a run computes with that keeps them in packed blocks.
  void round_to_blocks(int64_t count, float* values);

  const ExportPlan& plan_;
  std::optional<WeightsReader> files_;
  WeightsReader::Buffers buffers_;
  std::optional<CheckpointWeights> checkpoint_;
  std::optional<WeightsReader> adapter_files_;
  std::optional<CheckpointWeights> adapter_checkpoint_;
  std::optional<AdapterSums> sums_;
  std::map<std::string, size_t, std::less<>>
      whole_;  // weights trained as a whole: index in plan.merged
  std::vector<std::byte> packed_;
};

}  // namespace dstrain
