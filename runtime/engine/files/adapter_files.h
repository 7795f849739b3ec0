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

// The weights of a model with adapters. Those of adapters have the names of PEFT's files.
struct AdaptedWeights {
  StateRegister base, adapters;
};
AdaptedWeights split_adapters(const StateRegister& weights);

// Returns the text of adapter_config.json. `modules`: the names of the modules that have adapters.
std::string adapter_config_json(const Job& job, const std::vector<std::string>& modules);

// Returns the names of the modules that have adapters, in order.
std::vector<std::string> adapted_modules(const StateRegister& weights);

// Throws UserError if adapter_folder() has no adapter of PEFT's, or one with another rank or scale than the job's, or of
// another kind (DoRA, biases).
void check_adapter(const std::string& folder, const LoraConfig& lora);

}  // namespace dstrain
