// EndWeights: the files of weights that a run writes at its end: those of the model; or with adapters (dstrain.lora) those
// of PEFT, and with `merge` those of the model with its adapters added to the weights (adapter_output() says where).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/config/job.h"
#include "runtime/engine/files/adapter_sums.h"
#include "runtime/ir/program.h"
#include "runtime/storage/state.h"
#include "runtime/storage/weights/weights_writer.h"

namespace dstrain {

// The folder of the output directory with the averages of the weights (dstrain.ema): a model of its own.
inline constexpr std::string_view kAverageFolder = "ema";

class EndWeights {
 public:
  // `weights`: those of the whole model. Opens temporary files in the output directory. Throws RunError.
  EndWeights(const Job& job, const StateRegister& weights, const WeightsFormat& format);

  // Writes elements [begin, begin + values.elements()) of a weight; `values` is f32 on the host. All of an adapter must
  // come before the weight that it belongs to. Throws RunError.
  void write(const std::string& name, int64_t begin, const Tensor& values);
  // Puts the files in place of earlier ones, and removes earlier ones that this run does not write. The caller must have written every element.
  void finish();

  // Returns whether the files of a job hold adapters alone.
  static bool adapters_alone(const Job& job) {
    return job.model.fine_tuning().lora && !job.adapters.merge;
  }

 private:
  const Job& job_;
  std::optional<WeightsWriter> model_, adapters_;
  std::string adapter_config_;
  std::optional<AdapterSums> sums_;  // with the model's weights
};

// Removes the weights and adapters of an earlier run from the job's output directory: beside the settings and the
// vocabulary of this one they would be taken for its own. Those that the job begins with stay until its end.
void remove_earlier_weights(const Job& job);

}  // namespace dstrain
