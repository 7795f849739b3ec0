// ExportPlan: what `dstrain export` writes, decided and checked before anything is written.
#pragma once

#include <string>

#include "launcher/cli/arguments.h"
#include "launcher/input/trained_model.h"
#include "runtime/storage/state.h"
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
  std::string config_json = {};  // empty: none is written
  bool copies_files = false;     // generation's and the tokenizer's, from the run's directory
};

// Throws UserError if there is no such run, its model cannot be written in that format, or the folder has something else.
ExportPlan plan_export(const ExportArguments& arguments, const ModelRegistry& models);

}  // namespace dstrain
