// Small models of the families of decoders, for tests.
#pragma once

#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "models/registry.h"

namespace dstrain {

struct DecoderKey {
  const char* name;
  ModelConfig::Value value;
};

// Returns a model of 3 layers, of 13 tokens and of samples of 7, with these keys.
inline ModelConfig decoder(std::string_view type, const std::vector<DecoderKey>& keys) {
  ModelConfig model(*model_registry().find(type));
  for (const auto& [name, size] :
       std::initializer_list<std::pair<const char*, int64_t>>{{"num_hidden_layers", 3},
                                                              {"hidden_size", 24},
                                                              {"intermediate_size", 21},
                                                              {"num_attention_heads", 4},
                                                              {"max_position_embeddings", 7},
                                                              {"vocab_size", 13}})
    model.set(name, size);
  model.set("attention_dropout", 0.1);
  // Fresh weights of the usual deviation make all logits of so small a model nearly the same.
  model.set("initializer_range", 0.2);
  for (const DecoderKey& key : keys) model.set(key.name, key.value);
  return model;
}

}  // namespace dstrain
