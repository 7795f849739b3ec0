// ConfigRequest: the configuration that is asked for, a file and the options of a command line.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dstrain {

class ModelRegistry;

// The value of --init_weights that asks for fresh weights where the model has some.
inline constexpr std::string_view kFreshWeights = "random";

// The file in a run's output directory that has every value of its configuration.
inline constexpr std::string_view kResolvedConfig = "resolved_config.json";

// The options of the command line that the configuration depends on; an absent one was not given.
struct ConfigRequest {
  const ModelRegistry* models = nullptr;  // required; the caller keeps them alive, for jobs too
  std::string command;  // the command line, for a message that adds to it; empty: there is none
  std::string path;     // of the configuration file; empty: all values are defaults
  std::vector<std::string> sets;     // path.to.key=value, later ones win
  std::vector<std::string> ignored;  // path.to.key, as if the file did not have it
  std::optional<int64_t> ranks;      // absent: nothing that depends on their number is checked
  std::string ranks_origin = "--num_gpus";  // how messages name the source of `ranks`
  // The --num_gpus of the run whose resolved configuration the file is (complete_request()).
  std::optional<int64_t> recorded_ranks;
  // The first weights of the run that is resumed, where they are known; absent: they are looked for (Job::base_weights).
  std::optional<std::optional<std::string>> base_weights;
  std::optional<std::string> device, model, data, vocab, output, init_weights, resume;
  std::optional<int64_t> steps, seed, save_interval;
  std::optional<double> epochs;  // how often the training samples are seen, instead of `steps`
  int64_t epoch_steps = 1;  // the steps of these epochs, once the caller has counted the samples
  std::optional<int64_t> device_memory;  // bytes
  std::optional<std::string> recompute;  // "selective" or an interval
  std::optional<int64_t> pipeline_stages;
  std::optional<std::string> pipeline_schedule;
  std::optional<int64_t> tensor_parallel;    // ranks that share each layer
  std::optional<int64_t> sequence_parallel;  // ranks that have parts of the same samples
  // Returns the largest id, plus 1, that the tokenizer of a folder has together with further tokens; 0: it has none that
  // dstrain reads. Throws UserError if tokens cannot be added. Null: vocabularies are what their files say.
  std::function<int64_t(const std::string& directory, const std::vector<std::string>& added)>
      count_ids = nullptr;
  bool overwrite = false, resume_with_changes = false;
  bool need_data = false;  // a missing dstrain.data.path is an error (training)
  // Data of format bin without the size of the vocabulary are no error (planning).
  bool assume_vocabulary = false;

  // Makes the run continue from `checkpoint`, a run's folder or that of one checkpoint, which has the weights, too.
  void resume_from(const std::string& checkpoint) {
    resume = checkpoint;
    init_weights.reset();
  }
};

}  // namespace dstrain
