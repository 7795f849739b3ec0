// SmallProgram: writes archives of small programs as torch.export.save does. Tests change `model`, the program's JSON, where
// they want another one.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/zip_file.h"

namespace dstrain::exported {

class SmallProgram {
 public:
  using json = nlohmann::json;

  // Element types by their numbers in an archive.
  static constexpr int kI64 = 5, kF32 = 7, kBool = 12;

  SmallProgram() {
    model = {{"schema_version", {{"major", 8}, {"minor", 20}}},
             {"torch_version", "2.15.0"},
             {"range_constraints", json::object()},
             {"graph_module",
              {{"graph",
                {{"inputs", json::array()},
                 {"outputs", json::array()},
                 {"nodes", json::array()},
                 {"tensor_values", json::object()},
                 {"sym_int_values", json::object()},
                 {"sym_bool_values", json::object()}}},
               {"signature", {{"input_specs", json::array()}, {"output_specs", json::array()}}},
               {"treespec_namedtuple_fields", json::object()},
               {"module_call_graph", json::array()}}}};
  }

  json& graph() { return model["graph_module"]["graph"]; }
  json& signature() { return model["graph_module"]["signature"]; }
  json& node(size_t i) { return graph()["nodes"][i]; }
  json& tensor(const std::string& name) { return graph()["tensor_values"][name]; }

  // Describes a tensor. Sizes are numbers, or texts of sympy.
  SmallProgram& describe(const std::string& name, int type, const json& sizes) {
    tensor(name) = meta(type, sizes);
    return *this;
  }

  SmallProgram& input(const std::string& name, int type, const json& sizes) {
    signature()["input_specs"].push_back({{"user_input", {{"arg", ref(name)}}}});
    return describe(name, type, sizes);
  }

  SmallProgram& parameter(const std::string& name, const std::string& state, int type,
                          const json& sizes, std::string_view bytes) {
    signature()["input_specs"].push_back(
        {{"parameter", {{"arg", {{"name", name}}}, {"parameter_name", state}}}});
    store(weights, "weight_", state, meta(type, sizes), bytes, true);
    return describe(name, type, sizes);
  }

  SmallProgram& buffer(const std::string& name, const std::string& state, int type,
                       const json& sizes, std::string_view bytes, bool persistent = true) {
    signature()["input_specs"].push_back(
        {{"buffer",
          {{"arg", {{"name", name}}}, {"buffer_name", state}, {"persistent", persistent}}}});
    store(persistent ? weights : constants, persistent ? "weight_" : "tensor_", state,
          meta(type, sizes), bytes, false);
    return describe(name, type, sizes);
  }

  SmallProgram& constant(const std::string& name, int type, const json& sizes,
                         std::string_view bytes) {
    signature()["input_specs"].push_back(
        {{"tensor_constant", {{"arg", {{"name", name}}}, {"tensor_constant_name", name}}}});
    store(constants, "tensor_", name, meta(type, sizes), bytes, false);
    return describe(name, type, sizes);
  }

  // Adds a node that makes one tensor, which must be described.
  SmallProgram& add(const std::string& target,
                    std::initializer_list<std::pair<std::string, json>> arguments,
                    const std::string& output) {
    json inputs = json::array();
    for (const auto& [name, argument] : arguments)
      inputs.push_back({{"name", name}, {"arg", argument}, {"kind", 1}});
    graph()["nodes"].push_back({{"target", "torch.ops." + target},
                                {"inputs", inputs},
                                {"outputs", json::array({ref(output)})},
                                {"metadata", json::object()},
                                {"name", output}});
    return *this;
  }

  SmallProgram& output(const std::string& name) {
    signature()["output_specs"].push_back({{"user_output", {{"arg", ref(name)}}}});
    return *this;
  }

  SmallProgram& mutation(const std::string& name, const std::string& buffer) {
    signature()["output_specs"].push_back(
        {{"buffer_mutation", {{"arg", {{"name", name}}}, {"buffer_name", buffer}}}});
    return *this;
  }

  // Returns the program's JSON.
  std::string text() const { return model.dump(); }

  // Returns an archive of the program and its tensors.
  std::string archive() const {
    ZipFile zip;
    zip.add("m/data/weights/model_weights_config.json", json{{"config", weights}}.dump());
    zip.add("m/data/constants/model_constants_config.json", json{{"config", constants}}.dump());
    for (const auto& [name, bytes] : storages) zip.add(name, bytes);
    zip.add("m/models/model.json", text())
        .add("m/archive_format", "pt2")
        .add("m/archive_version", "0");
    return zip.add("m/byteorder", "little").bytes();
  }

  static json ref(const std::string& name) { return {{"as_tensor", {{"name", name}}}}; }
  static json meta(int type, const json& sizes) {
    json list = json::array(), strides = json::array();
    int64_t stride = 1;
    for (size_t i = sizes.size(); i-- > 0;) {
      strides.insert(strides.begin(), json{{"as_int", stride}});
      if (sizes[i].is_number()) stride *= sizes[i].get<int64_t>();
    }
    for (const json& size : sizes)
      list.push_back(size.is_string() ? json{{"as_expr", {{"expr_str", size}, {"hint", nullptr}}}}
                                      : json{{"as_int", size}});
    return {{"dtype", type},
            {"sizes", list},
            {"strides", strides},
            {"storage_offset", {{"as_int", 0}}},
            {"requires_grad", false},
            {"device", {{"type", "cpu"}, {"index", nullptr}}},
            {"layout", 7}};
  }

  json model, weights = json::object(), constants = json::object();
  std::vector<std::pair<std::string, std::string>> storages;  // entries of the archive

 private:
  void store(json& config, const std::string& prefix, const std::string& name, const json& meta,
             std::string_view bytes, bool is_parameter) {
    const std::string path = prefix + std::to_string(config.size());
    config[name] = {{"path_name", path},
                    {"is_param", is_parameter},
                    {"use_pickle", false},
                    {"tensor_meta", meta}};
    storages.emplace_back(
        std::string("m/data/") + (prefix == "weight_" ? "weights/" : "constants/") + path, bytes);
  }
};

// Returns the bytes of values in a row.
template <class T>
std::string bytes_of(std::initializer_list<T> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T)};
}

}  // namespace dstrain::exported
