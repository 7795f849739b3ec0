// ModelFamily: everything that the program knows about a kind of model: its keys, the data it wants, its forward pass.
// A family is a folder in models/ and a line in models/registry.cpp; nothing else names one.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/config/family/fact_change.h"
#include "runtime/config/family/hugging_face.h"
#include "runtime/config/family/measures.h"
#include "runtime/config/family/model_config.h"
#include "runtime/config/family/weight_map.h"
#include "runtime/config/keys/key_spec.h"
#include "runtime/core/dtype.h"
#include "runtime/core/input_role.h"
#include "runtime/core/input_tensor.h"

namespace dstrain {

class Builder;  // runtime/ir/builder/builder.h

inline constexpr std::string_view kModelSectionName = "dstrain.model",
                                  kModelSection = "dstrain.model.";
// The keys that name the family: this program's, and config.json's.
inline constexpr std::string_view kModelType = "dstrain.model.type",
                                  kHuggingFaceType = "dstrain.model.model_type";

// A key of section dstrain.model.
struct ModelKey {
  // An integer, a real, a boolean, a text, or any value, which the model has as JSON text; `key` is the whole path, `only` is
  // filled in.
  KeySpec spec;
  FactChange change = FactChange::impossible;  // what a resumed run with another value is
  bool required = false;                       // of an integer without a default

  std::string_view name() const { return spec.key.substr(kModelSection.size()); }
};

// An input of a model. Its shape is that of a sample. It has a dtype of its role. A family has several inputs of a role only
// if they are arrays, and then no others.
struct ModelInput {
  std::string_view name;
  InputRole role = InputRole::features;
  DType dtype = DType::f32;
  std::vector<std::string_view> shape = {};  // the names of the keys that give the dimensions
  std::string_view classes = {};  // the key whose value all ids or labels are below; empty: none
  // The dimensions themselves, in place of `shape`: of a family that reads them from a file.
  std::vector<int64_t> sizes = {};
  // The dimensions that an array has where dstrain.data.whole names it, because every sample then has all of it, and
  // the array no axis of samples. Empty: it cannot be named there.
  std::vector<int64_t> whole = {};
};

// What is wrong with values that are legal one by one.
struct KeyProblem {
  std::vector<std::string_view>
      keys;  // whole paths; the first one that is given is reported, else the last
  std::string message;
};

// What the data of a run are, for a model that takes several kinds: arrays by the names of its inputs, or not known.
enum class GivenData : uint8_t { texts, arrays, images, unknown };

struct ModelFamily {
  std::string_view type;           // dstrain.model.type
  std::string_view title;          // in sentences: "bigram model"
  std::vector<ModelKey> keys;      // in the order of the documentation and of resolved_config.json
  std::vector<ModelInput> inputs;  // in the order in which `build` declares them
  // The names of keys that have a meaning for the runtime: the number of numbered layers, and the width of a layer.
  std::string_view layers_key = {}, width_key = {};
  // Returns the number of numbered layers, of a family whose key of layers has another value: nothing changes it. Null: the
  // key's value.
  int64_t (*count_layers)(const ModelConfig&) = nullptr;
  // The name of the key of attention heads, with which --largest lets layers, width and heads grow together; empty: it
  // does not search this family.
  std::string_view heads_key = {};
  // The name of the key of the heads that keys and values have, whose value 0 is as many as heads_key says; empty: as many.
  std::string_view kv_heads_key = {};
  // The name of the key of a layer's experts, which ranks may divide, and of how many of them a token chooses; empty: there
  // are none.
  std::string_view experts_key = {}, experts_per_token_key = {};
  // Whether dstrain.experts.bias_update may change biases by which experts are chosen.
  bool has_choice_bias = false;
  // The most tokens of a sample that training takes where dstrain.data.seq_len does not say it; 0: the whole context.
  int64_t usual_tokens = 0;
  // Returns whether samples may have more tokens than the context; null: they may not.
  bool (*exceeds_context)(const ModelConfig&) = nullptr;
  std::optional<KeyProblem> (*problem)(const ModelConfig&) = nullptr;  // null: there is none
  // Brings sizes that the runtime gives no meaning to what a model with few layers, heads, experts and channels, which it
  // is given, can have. Null: they are in proportion, as far as problem() allows it.
  void (*shrink)(ModelConfig&) = nullptr;
  // Emits the forward pass for one micro-batch; build_model() (runtime/plan/build_model.h) calls it. It declares all
  // `inputs`, labels only if there is a loss, documents and positions only if samples hold several, a mask only if they may
  // have padding. The vocabulary must be known.
  // Sequences have the length that Builder::seq_len() returns for the model's context.
  std::function<void(Builder&, const ModelConfig&)> build = nullptr;
  // Returns the sizes of what `build` emits: measure_model (models/measure.h).
  ModelMeasures (*measure)(const ModelConfig&) = nullptr;
  // Returns how weight files have the parameters; null: each is the tensor of its name. The vocabulary may be unknown.
  WeightMap (*weight_map)(const ModelConfig&) = nullptr;
  // What the family says about transformers' directories, which it reads and writes; unset: it has none.
  std::optional<HuggingFace> hugging_face = std::nullopt;
  // Returns the model of transformers' that computes the same as one of this family, which has no directories, or what
  // keeps these values from having one; null: no model has one. The vocabulary must be known.
  std::variant<TransformersModel, KeyProblem> (*as_transformers)(const ModelConfig&) = nullptr;
  // Returns the family of the one model that a file holds, which the values name: with its inputs, and keys for its sizes.
  // The result lives as long as the program. Throws UserError if there is no such model. Null: values of keys make the
  // model.
  const ModelFamily& (*open)(const ModelConfig&, GivenData) = nullptr;
  std::string_view file_key = {};     // the name of the key that names the file
  std::string_view inputs_key = {};   // the name of the key that says what texts give each input
  std::string_view file_suffix = {};  // of its name: ".pt2"
  // What `open` returns says: nothing changes the sizes, and these are the weights of the file.
  bool is_fixed = false;
  bool usually_images =
      false;  // the data are images where dstrain.data.format and their names do not say it
  bool undivided = false;  // ranks of a tensor or sequence group cannot divide it
  int64_t batch = 0;       // the only samples of a micro-batch that the model takes; 0: any number
  std::function<ForeignNames()> names_of_weights = nullptr;
  std::function<std::vector<KeptTensor>(const ModelConfig&)> kept_tensors = nullptr;
  // Returns what a micro-batch with these inputs counts in the loss, where the model says it itself: a mean over a global
  // batch is one over these. Any thread may ask. Throws RunError if it is no count. Null: targets or samples count.
  std::function<int64_t(std::span<const InputTensor>)> weigh = nullptr;
  std::vector<std::string> warnings = {};  // what a run is to say of the file

  // Returns samples of a micro-batch that the model takes, where only shapes and names matter.
  int64_t any_batch() const { return batch > 0 ? batch : 1; }
  // Returns the input with this role, of several the first one, or null.
  const ModelInput* input(InputRole role) const;
  bool reads_tokens() const { return input(InputRole::token_ids) != nullptr; }
  // Returns whether a sample may hold several documents, which an input tells apart.
  bool tells_documents() const {
    return input(InputRole::documents) != nullptr || input(InputRole::positions) != nullptr;
  }
  // Returns whether all inputs are arrays of data files.
  bool reads_arrays() const { return input(InputRole::array) != nullptr; }
  // Returns whether samples come from data files, and are not made from the seed.
  bool reads_files() const { return reads_tokens() || reads_arrays(); }
  // Returns whether the model gives the probabilities of the next token.
  bool predicts_tokens() const;
  // Returns why the model cannot continue a text: "has no text to generate"; empty if it can.
  std::string why_no_text() const;
  // Return the name of the key of a sample's tokens and of the vocabulary; empty if the model reads no tokens.
  std::string_view context_key() const;
  std::string_view vocabulary_key() const;
};

// Throws InternalError if the inputs of a family are none that data can be read for: an unknown key, a role that comes
// twice or has another dtype, more dimensions than a tensor has, labels that nothing gives, arrays beside other inputs.
void check_inputs(const ModelFamily& family);

// Returns how weight files have the model's parameters.
inline WeightMap weight_map_of(const ModelConfig& model) {
  const auto map = model.family().weight_map;
  return map ? map(model) : WeightMap{};
}

// Returns whether the head of a model of transformers' is its token embedding.
bool ties_head(const ModelConfig& model);

// Returns what files of others have otherwise than the map says.
ForeignNames foreign_names_of(const ModelConfig& model);

// Returns "dstrain.model.depth" for "depth".
std::string model_path(std::string_view name);

}  // namespace dstrain
