// config.json: how transformers describes a model, as a run writes it beside the weights.
#pragma once

#include <string>

#include "runtime/config/job.h"
#include "runtime/config/read/merge.h"

namespace dstrain {

// Returns the text of config.json for the model of `job`: the one that the model comes from, byte for byte unless --set or
// dstrain.save_dtype change what it says; else one with all keys of the family. Empty if the family is not one of
// transformers'.
std::string config_json(const Merged& merged, const Job& job);

}  // namespace dstrain
