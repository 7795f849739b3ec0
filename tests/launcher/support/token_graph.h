// TokenGraph: an exported model of tokens, whose inputs have any names: the tables of tokens, positions and documents make a
// vector of each token, which a mask keeps, and the next token follows from it. Of 8 tokens a sample and 40 ids.
#pragma once

#include <string>
#include <vector>

#include "tests/models/exported/small_program.h"

namespace dstrain {

struct TokenGraph {
  using Program = exported::SmallProgram;
  using json = nlohmann::json;

  // The names of the inputs. An empty one: the graph has none.
  struct Names {
    std::string tokens = "idx", targets = "targets", mask = "", positions = "", documents = "";
  };

  explicit TokenGraph(const Names& names) {
    const auto weight = [this](const std::string& name, int64_t rows) {
      std::vector<float> values;
      for (int64_t i = 0; i < rows * 4; ++i)
        values.push_back(static_cast<float>((i * 37 + rows) % 19 - 9) / 16);
      program.parameter("p_" + name, name + ".weight", Program::kF32, {rows, 4},
                        {reinterpret_cast<const char*>(values.data()), values.size() * 4});
      program.tensor("p_" + name)["requires_grad"] = true;
    };
    weight("token", 40);
    weight("place", 8);
    weight("document", 8);
    weight("head", 40);
    const json ids{kBatch, 8};
    for (const std::string& name : {names.tokens, names.targets, names.positions, names.documents})
      if (!name.empty()) program.input(name, Program::kI64, ids);
    if (!names.mask.empty()) program.input(names.mask, Program::kF32, ids);

    std::string x = looked_up("token", names.tokens);
    if (!names.positions.empty()) x = sum(x, looked_up("place", names.positions));
    if (!names.documents.empty()) x = sum(x, looked_up("document", names.documents));
    if (!names.mask.empty()) {
      make("kept", {kBatch, 8, 1}, "aten.unsqueeze.default",
           {{"self", ref(names.mask)}, {"dim", {{"as_int", -1}}}});
      make("masked", {kBatch, 8, 4}, "aten.mul.Tensor", {{"self", ref(x)}, {"other", ref("kept")}});
      x = "masked";
    }
    make("logits", {kBatch, 8, 40}, "aten.linear.default",
         {{"input", ref(x)}, {"weight", ref("p_head")}});
    // They belong to a module "head", which dstrain.model.blocks can name.
    program.graph()["nodes"].back()["metadata"] = {
        {"nn_module_stack",
         "L__self__,,m.Model;L__self___head,head,torch.nn.modules.linear.Linear"}};
    make("flat", {kRows, 40}, "aten.view.default",
         {{"self", ref("logits")}, {"size", {{"as_ints", {-1, 40}}}}});
    make("flat_targets", {kRows}, "aten.view.default",
         {{"self", ref(names.targets)}, {"size", {{"as_ints", {-1}}}}}, Program::kI64);
    make("loss", json::array(), "aten.cross_entropy_loss.default",
         {{"self", ref("flat")}, {"target", ref("flat_targets")}});
    program.output("loss");
    make("level", json::array(), "aten.mean.default", {{"self", ref(x)}});
  }

  // Lets the module return these tensors, by name, in place of the loss alone.
  void returns(const std::vector<std::pair<std::string, std::string>>& outputs) {
    json names = json::array(), leaves = json::array();
    program.signature()["output_specs"] = json::array();
    for (const auto& [name, tensor] : outputs) {
      program.output(tensor);
      names.push_back(name);
      leaves.push_back({{"type", nullptr}, {"context", nullptr}, {"children_spec", json::array()}});
    }
    const json spec = json::array(
        {1, {{"type", "builtins.dict"}, {"context", names.dump()}, {"children_spec", leaves}}});
    program.model["graph_module"]["module_call_graph"] =
        json::array({{{"fqn", ""}, {"signature", {{"out_spec", spec.dump()}}}}});
  }

  // Adds `count`, the number of targets that count, and `peak`, the mean of the largest logits.
  void measure() {
    make("counts", {kRows}, "aten.ne.Scalar",
         {{"self", ref("flat_targets")}, {"other", {{"as_int", -100}}}}, Program::kBool);
    make("count", json::array(), "aten.sum.default", {{"self", ref("counts")}}, Program::kI64);
    make("largest", {kRows}, "aten.amax.default",
         {{"self", ref("flat")}, {"dim", {{"as_ints", {-1}}}}});
    make("peak", json::array(), "aten.mean.default", {{"self", ref("largest")}});
  }

  static json ref(const std::string& name) { return Program::ref(name); }

  // Adds a node with one result, of fractions unless `type` says otherwise.
  void make(const std::string& name, const json& sizes, const std::string& target,
            std::initializer_list<std::pair<std::string, json>> arguments,
            int type = Program::kF32) {
    program.describe(name, type, sizes).add(target, arguments, name);
  }

  std::string archive() const { return program.archive(); }

  // The samples of a batch, and its tokens.
  inline static const std::string kBatch = "Symbol('s0', positive=True, integer=True)",
                                  kRows = "Mul(Integer(8), " + kBatch + ")";
  Program program;

 private:
  std::string looked_up(const std::string& table, const std::string& ids) {
    make("of_" + table, {kBatch, 8, 4}, "aten.embedding.default",
         {{"weight", ref("p_" + table)}, {"indices", ref(ids)}});
    return "of_" + table;
  }
  std::string sum(const std::string& a, const std::string& b) {
    make(a + "_" + b, {kBatch, 8, 4}, "aten.add.Tensor", {{"self", ref(a)}, {"other", ref(b)}});
    return a + "_" + b;
  }
};

}  // namespace dstrain
