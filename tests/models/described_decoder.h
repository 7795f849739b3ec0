// Models that a config.json of transformers describes, for tests of decoders.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "models/registry.h"
#include "runtime/ir/builder/builder.h"
#include "runtime/plan/build_model.h"
#include "tests/config/config_fixture.h"

namespace dstrain::test {

// Returns the model of a config.json with small sizes and `members`.
inline Ask asked_decoder(const std::string& type, const std::string& members, TempDir& dir) {
  dir.write("config.json",
            fmt::format(R"({{"model_type": "{}", "num_hidden_layers": 3, "hidden_size": 24,
                            "intermediate_size": 20, "num_attention_heads": 4, "vocab_size": 11,
                            "max_position_embeddings": 6{}{}}})",
                        type, members.empty() ? "" : ", ", members));
  Ask a = ask(trains_with(""));
  a.request.model = dir.path();
  return a;
}

inline ModelConfig decoder_of(const std::string& type, const std::string& members = "") {
  TempDir dir;
  return asked_decoder(type, members, dir).job().model;
}

inline std::string decoder_error(const std::string& type, const std::string& members,
                                 std::vector<std::string> sets = {}) {
  TempDir dir;
  Ask a = asked_decoder(type, members, dir);
  a.request.sets = std::move(sets);
  return a.error();
}

inline Program decoder_program(const ModelConfig& model) {
  Program program;
  Builder builder(program, {});
  build_model(builder, model);
  return program;
}

inline std::map<std::string, std::string> decoder_shapes(const ModelConfig& model) {
  std::map<std::string, std::string> shapes;
  for (const Parameter& p : decoder_program(model).parameters) shapes[p.name] = to_string(p.shape);
  return shapes;
}

// The attributes of all ops of a kind.
template <class Attrs>
std::vector<Attrs> attrs_of(const ModelConfig& model, OpKind kind) {
  std::vector<Attrs> list;
  for (const Instruction& op : decoder_program(model).instructions)
    if (op.op == kind) list.push_back(attrs_as<Attrs>(op.attrs));
  return list;
}

inline std::vector<int64_t> windows_of(const ModelConfig& model) {
  std::vector<int64_t> windows;
  for (const AttentionAttrs& a : attrs_of<AttentionAttrs>(model, OpKind::attention))
    windows.push_back(a.window);
  return windows;
}

}  // namespace dstrain::test
