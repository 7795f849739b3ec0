// Facts: the few values of a configuration that decide how other keys are judged: the ZeRO stage, the
// run's data type, the types of optimizer, scheduler and model. Depends on the key table. Facts are read
// before the verdicts, so illegal values count as their defaults here; the verdicts report them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/config/json/tree.h"

namespace dstrain {

class ModelRegistry;
struct ModelFamily;

struct Facts {
  const Node* root = nullptr;  // the configuration; the caller keeps it and the models alive
  const ModelRegistry* models = nullptr;
  const ModelFamily* family =
      nullptr;  // of the model; the registry's first where the file has no legal type
  int64_t stage = 0;
  bool fp16 = false, bf16 = false;
  bool dynamic_scale = false;  // fp16 with dynamic loss scaling
  bool recomputes = false;     // activations are computed again in the backward pass
  bool nvme = false;           // a section of offload has tensors on disk
  std::string optimizer;       // lower case; "adamw" where the file names none
  std::string scheduler;       // as written; empty where the file names none
  std::string model;           // the family's type

  // The value of a key of the table, or its default where the file has no legal value.
  bool on(std::string_view key) const;
  std::string text(std::string_view key) const;
  int64_t integer(std::string_view key) const;
  // Returns whether the value of a key of the table is legal, or the file has none. An error that follows from the
  // default of an illegal value would be a false one.
  bool legal(std::string_view key) const;
};

// Returns the facts of a configuration; `root` is its canonical form (read/merge.h).
Facts find_facts(const Node& root, const ModelRegistry& models);

}  // namespace dstrain
