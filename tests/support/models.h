// The program's models for tests, with their keys as members: job.model = GptLite{.n_layer = 2, .n_embd = 12};
#pragma once

#include "models/registry.h"
#include "runtime/config/job.h"

namespace dstrain {

struct GptLite {
  int64_t n_layer = 12, n_embd = 768, n_head = 12, block_size = 2048;
  double dropout = 0.1;
  bool gelu = false, qkv_bias = false, tied_head = false;
  int64_t vocab_size = 0;

  operator ModelConfig() const {
    ModelConfig model(*model_registry().find("gptlite"));
    model.set("n_layer", n_layer);
    model.set("n_embd", n_embd);
    model.set("n_head", n_head);
    model.set("block_size", block_size);
    model.set("dropout", dropout);
    model.set("activation", gelu ? "gelu" : "relu");
    model.set("qkv_bias", qkv_bias);
    model.set("tied_head", tied_head);
    model.set("vocab_size", vocab_size);
    return model;
  }
};

struct BenchmarkModel {
  int64_t n_layer = 1, in_size = 1, hidden_size = 1, out_size = 1;

  operator ModelConfig() const {
    ModelConfig model(*model_registry().find("benchmark"));
    model.set("n_layer", n_layer);
    model.set("in_size", in_size);
    model.set("hidden_size", hidden_size);
    model.set("out_size", out_size);
    return model;
  }
};

// Returns a job with a model, which is GPT-lite with its defaults unless another is given.
inline Job job_of(const ModelConfig& model = GptLite{}) {
  Job job;
  job.model = model;
  return job;
}

// Returns the number of classes of a model's labels.
inline int64_t classes_of(const ModelConfig& model) {
  return model.integer(model.family().input(InputRole::labels)->classes);
}

}  // namespace dstrain
