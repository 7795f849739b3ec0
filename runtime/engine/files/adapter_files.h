// The files of low-rank adapters, as PEFT 0.21 writes and reads them: adapter_config.json and adapter_model.safetensors,
// whose tensors are called "base_model.model.MODULE.lora_A.weight" (r, inputs) and "...lora_B.weight" (outputs, r).
#pragma once

#include <string>
#include <string_view>

#include "runtime/config/job.h"
#include "runtime/storage/state.h"

namespace dstrain {

inline constexpr std::string_view kAdapterConfig = "adapter_config.json",
                                  kAdapterWeights = "adapter_model.safetensors",
                                  kAdapterFolder = "adapter";

// Returns the folder that a run with adapters writes them to: its output directory; with `merge` a folder in that, because
// transformers add adapters that lie beside a model to it, which has them already.
std::string adapter_output(const Job& job);

// Returns the folder with the files of an adapter that `folder` names: itself, or that in the output directory of a run
// with `merge`.
std::string adapter_folder(const std::string& folder);

// Removes the files of an adapter from the output directory of a run, wherever a run puts them, but not from the folder
// `kept`.
void remove_adapters(const std::string& output, const std::string& kept = {});

// The weights of a model with adapters.
struct AdaptedWeights {
  StateRegister base;  // all of the model without adapters
  StateRegister
      adapters;  // those that are trained with the adapters (FineTuning::with_adapters), as PEFT's files name them
};
AdaptedWeights split_adapters(const StateRegister& weights, const FineTuning& tuning);

// Returns the text of adapter_config.json. `weights`: those of the job's model.
std::string adapter_config_json(const Job& job, const StateRegister& weights);

// Returns the names of the modules that have adapters, in order.
std::vector<std::string> adapted_modules(const StateRegister& weights);

// Where the table of tokens is trained as a whole, and is the head, PEFT's files have both, with the same values.
// Returns the name of that table; empty: there is none.
std::string_view tied_table_of(const ModelConfig& model);
// Returns the adapters with an entry behind them for such a head, kHeadTensor.
StateRegister with_shared_head(StateRegister adapters, const ModelConfig& model);
// Returns what reading a file of PEFT's leaves out of it: such a head.
ForeignNames adapter_names_of(const ModelConfig& model);

// Throws UserError if adapter_folder() has no adapter of PEFT's, or one with another rank, scale or modules that are trained as
// a whole than the model's, or of another kind (DoRA, biases).
void check_adapter(const std::string& folder, const ModelConfig& model);

// Throws UserError if the file has not the weights of the job's adapters, or if it has a head that differs from the embedding that
// the model shares with it.
void check_adapter_weights(const std::string& file, const Job& job, const StateRegister& adapters);

}  // namespace dstrain
