// ExportPlan: what `dstrain export` writes, decided and checked before anything is written.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "launcher/cli/arguments.h"
#include "launcher/input/trained_model.h"
#include "runtime/config/family/weight_map.h"
#include "runtime/core/fine_tuning/fine_tuning.h"
#include "runtime/storage/state.h"
#include "runtime/storage/weights/weight_files.h"
#include "runtime/storage/weights/weights_writer.h"

namespace dstrain {

class ModelRegistry;

struct ExportPlan {
  WrittenRun run;
  std::string output = {};  // the folder
  // All weights of the run's model, without values, in the order of the program, as they are in the run's own files, and as
  // they will be in those that are written.
  StateRegister own = {}, written = {};
  WeightsFormat format = {};
  // The file or index that has the weights `own`, and the names that it may have otherwise; empty: the run's checkpoint has
  // them.
  std::string weights_file = {};
  ForeignNames foreign = {};
  // The adapters that are added to the weights `own`, without values, and the file that has them; empty: the run's checkpoint.
  StateRegister merged = {};
  std::string adapters_file = {};
  ForeignNames adapters_foreign = {};
  LoraConfig lora = {};
  std::set<std::string, std::less<>> packed = {};        // the weights that lora.base rounds
  std::string weights_name = std::string(kWeightsName);  // of the file that is written
  std::string config_json = {};                          // empty: none is written
  std::string adapter_config = {};                       // the same
  bool copies_files = false;  // generation's and the tokenizer's, from the run's directory
};

// Throws UserError if there is no such run, its model cannot be written in that format, or the folder has something else.
ExportPlan plan_export(const ExportArguments& arguments, const ModelRegistry& models);

}  // namespace dstrain
