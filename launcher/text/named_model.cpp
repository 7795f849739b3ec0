#include "launcher/text/named_model.h"

#include "runtime/config/family/family.h"
#include "runtime/core/error.h"
#include "runtime/engine/run/run.h"

namespace dstrain {

TrainedModel read_named_model(const TrainedName& name, std::optional<int64_t> seq_len,
                              const ModelRegistry& models) {
  const DeviceChoice device = device_named(name.device);
  TrainedModel trained = name.model.empty()
                             ? read_trained_model(name.run_dir, device, models)
                             : read_model_directory(name.model, device, name.ignored, models);
  if (!seq_len) return trained;
  ModelConfig& model = trained.job.model;
  const ModelFamily& family = model.family();
  if (*seq_len > model.context() && !(family.exceeds_context && family.exceeds_context(model)))
    fail_user("--seq_len {} is more than {} {}, which the model is made for: use at most that",
              *seq_len, model_path(family.context_key()), model.context());
  model.set_seq_len(*seq_len);
  return trained;
}

}  // namespace dstrain
