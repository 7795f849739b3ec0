// HuggingFace: what a family of transformers' models says about directories that save_pretrained writes, beside its keys,
// which have the names and the defaults of config.json.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/family/model_config.h"
#include "runtime/config/family/weight_map.h"
#include "runtime/config/json/tree.h"
#include "runtime/config/keys/key_spec.h"

namespace dstrain {

// The fields of config.json that say the dtype of the weights in files: that of transformers 5, and an older one.
inline constexpr std::string_view kDtypeOfFiles = "dstrain.model.dtype",
                                  kOldDtypeOfFiles = "dstrain.model.torch_dtype";

// The key of tokens that a run adds to those of the model's folder.
inline constexpr std::string_view kAddedTokens = "dstrain.model.added_tokens";

// The key that says how the weights of files are quantized. Those that a run writes are not.
inline constexpr std::string_view kQuantization = "dstrain.model.quantization_config";

// The tensor of the head. A model whose head is its token embedding ignores it where it has both.
inline constexpr std::string_view kHeadTensor = "lm_head.weight";

// The tensor of the head of a model that gives one score, as transformers' models for the classification of sequences have it.
inline constexpr std::string_view kScoreTensor = "score.weight";

struct HuggingFace {
  // Fields of config.json that are no keys of the family: each is without effect here, legal with some values alone, or
  // refused. `key` is the whole path, as if it were a key: "dstrain.model.architectures".
  std::vector<KeySpec> fields;
  std::string_view
      architecture;  // of the model with its head, in a config.json that this program writes
  // Before the names of tensors; files of a model without a head lack it.
  std::string_view prefix;
  // The tensor of the token embedding. Files of a model whose head is this table may have it as kHeadTensor alone.
  std::string_view table;
  std::string_view head = kHeadTensor;  // where it is not the token embedding
  // Returns patterns of the names of tensors, without the prefix, that files may have and the model does not read.
  std::vector<std::string> (*ignored)(const ModelConfig&) = nullptr;
  // Brings a section with the names of config.json, of any version, into the form of the keys; null: it has one form.
  std::function<void(Node& section)> normalise = nullptr;
  // Brings keys that config.json does not have into its form, in a section that is to be written; null: there are none.
  std::function<void(Node& section)> restore = nullptr;
};

// A model of transformers' that computes the same as one of another family.
struct TransformersModel {
  ModelConfig model;
  WeightMap weights;                         // what its files have of the other one's parameters
  std::vector<std::string_view> unset = {};  // fields of config.json that are null
};

}  // namespace dstrain
