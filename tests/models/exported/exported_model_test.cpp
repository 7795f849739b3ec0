#include "models/exported/exported_model.h"

#include <catch2/catch.hpp>

#include "runtime/core/error.h"
#include "tests/models/exported/small_program.h"
#include "tests/support/source_file.h"
#include "tests/support/temp_dir.h"

namespace dstrain::exported {
namespace {

using json = nlohmann::json;

// y = w * x + b, with a table that is no weight.
SmallProgram small_model() {
  SmallProgram program;
  program.parameter("p_w", "w", SmallProgram::kF32, {2, 2}, bytes_of<float>({1, 2, 3, 4}))
      .buffer("b_b", "b", SmallProgram::kF32, {2}, bytes_of<float>({5, 6}))
      .buffer("b_t", "t", SmallProgram::kI64, {2}, bytes_of<int64_t>({7, 8}), false)
      .input("x", SmallProgram::kF32, {2, 2})
      .describe("mul", SmallProgram::kF32, {2, 2})
      .add("aten.mul.Tensor",
           {{"self", SmallProgram::ref("p_w")}, {"other", SmallProgram::ref("x")}}, "mul")
      .output("mul");
  return program;
}

std::string refusal_of(const std::string& bytes) {
  const TempDir dir;
  try {
    read_exported(dir.write("m.pt2", bytes));
  } catch (const UserError& e) {
    CHECK_THAT(e.what(), Catch::Contains("m.pt2"));
    return e.what();
  }
  return {};
}

TEST_CASE("an archive of torch.export.save is read: mlp.pt2") {
  const ExportedModel model = read_exported(source_file("tests/models/exported/data/mlp.pt2"));
  REQUIRE(model.graph.nodes.size() == 6);
  CHECK(model.graph.nodes[0].target == "aten.linear.default");
  CHECK(model.graph.nodes[0].module_path == "net.0");
  CHECK(model.graph.nodes[5].target == "aten.cross_entropy_loss.default");
  CHECK(model.graph.nodes[5].whole("ignore_index") == -100);
  CHECK(model.graph.nodes[5].source.file == "project/models.py");
  REQUIRE(model.graph.outputs.size() == 1);
  CHECK(model.graph.outputs[0].name == "cross_entropy_loss");
  CHECK(model.tensors.size() == 6);
  const StoredTensor* weight = model.find("net.5.weight");
  REQUIRE(weight != nullptr);
  CHECK(weight->is_parameter);
  CHECK(weight->sizes == std::vector<int64_t>{10, 64});
  CHECK(weight->file_offset() % 64 == 0);
  CHECK(read_elements(model.archive, *weight).size() == 10 * 64 * 4);
  CHECK(model.find("net.6.weight") == nullptr);
}

TEST_CASE("an archive has the tensors of the module's state") {
  const TempDir dir;
  const ExportedModel model = read_exported(dir.write("m.pt2", small_model().archive()));
  REQUIRE(model.tensors.size() == 3);
  const StoredTensor &b = *model.find("b"), &t = *model.find("t"), &w = *model.find("w");
  CHECK((w.is_parameter && !b.is_parameter && !t.is_parameter));
  CHECK((!w.is_constant && !b.is_constant && t.is_constant));
  CHECK(read_elements(model.archive, b) == bytes_of<float>({5, 6}));
  CHECK(read_elements(model.archive, t) == bytes_of<int64_t>({7, 8}));
  CHECK(bytes_of_file(model.archive.path()).substr(static_cast<size_t>(w.file_offset()), 16) ==
        bytes_of<float>({1, 2, 3, 4}));
}

TEST_CASE("a stored tensor may be a part of its storage in any order") {
  SmallProgram program = small_model();
  program.storages[0].second = bytes_of<float>({0, 1, 2, 3, 4});
  json& meta = program.weights["w"]["tensor_meta"];
  meta["storage_offset"] = {{"as_int", 1}};
  meta["strides"] = {{{"as_int", 1}}, {{"as_int", 2}}};
  const TempDir dir;
  const ExportedModel model = read_exported(dir.write("m.pt2", program.archive()));
  CHECK_FALSE(model.find("w")->is_contiguous());
  CHECK(read_elements(model.archive, *model.find("w")) == bytes_of<float>({1, 3, 2, 4}));
}

TEST_CASE("tensors of the same elements are one, those that share a part are refused") {
  SmallProgram program = small_model();
  program.weights["v"] = program.weights["w"];
  const TempDir dir;
  const ExportedModel model = read_exported(dir.write("m.pt2", program.archive()));
  CHECK(model.find("v")->group == model.find("w")->group);
  CHECK(model.find("b")->group != model.find("w")->group);
  program.weights["v"]["tensor_meta"]["sizes"] = {{{"as_int", 1}}, {{"as_int", 2}}};
  CHECK_THAT(refusal_of(program.archive()),
             Catch::Contains("share a part of \"m/data/weights/weight_0\""));
}

TEST_CASE("weights of a model exported on the meta device are absent, and not taken for one") {
  SmallProgram program = small_model();
  program.storages[0].second.clear();
  program.weights["v"] = program.weights["w"];
  const TempDir dir;
  const ExportedModel model = read_exported(dir.write("m.pt2", program.archive()));
  CHECK((model.find("w")->is_absent && model.find("v")->is_absent && !model.find("b")->is_absent));
  CHECK(model.find("v")->group != model.find("w")->group);
  CHECK_THROWS_AS(read_elements(model.archive, *model.find("w")), InternalError);
}

TEST_CASE("an archive whose tensors contradict themselves or the graph is refused") {
  SmallProgram program = small_model();
  const auto with = [&](const char* pointer, const json& value) {
    program = small_model();
    program.weights[json::json_pointer(pointer)] = value;
    return refusal_of(program.archive());
  };
  CHECK_THAT(
      with("/w/path_name", "weight_9"),
      Catch::Contains("is stored in \"m/data/weights/weight_9\", which the archive does not have"));
  CHECK_THAT(with("/w/path_name", "../constants/tensor_0"),
             Catch::Contains("which the archive does not have"));
  CHECK_THAT(with("/w/use_pickle", true), Catch::Contains("pickled"));
  CHECK_THAT(with("/w/tensor_meta", nullptr), Catch::Contains("pickled"));
  CHECK_THAT(with("/w/tensor_meta/dtype", 8),
             Catch::Contains("reaches to byte 32 of \"m/data/weights/weight_0\", which has 16"));
  CHECK_THAT(with("/w/tensor_meta/dtype", 4),
             Catch::Contains("\"w\" is stored as i32 (2, 2), and the graph is given f32 (2, 2)"));
  CHECK_THAT(with("/w/tensor_meta/storage_offset/as_int", 1),
             Catch::Contains("reaches to byte 20"));
  CHECK_THAT(with("/w/tensor_meta/storage_offset/as_int", -1),
             Catch::Contains("size or stride -1"));
  CHECK_THAT(with("/w/tensor_meta/strides/0/as_int", -2), Catch::Contains("size or stride -2"));
  CHECK_THAT(with("/w/tensor_meta/strides/0/as_int", 9223372036854775807),
             Catch::Contains("that overflow"));
  CHECK_THAT(with("/w/tensor_meta/strides/0/as_int", 0),
             Catch::Contains("several elements at one place"));
  CHECK_THAT(with("/w/tensor_meta/sizes/0/as_int", 4611686018427387904),
             Catch::Contains("that overflow"));
  CHECK_THAT(with("/w/tensor_meta/sizes/0", json{{"as_expr", {{"expr_str", "Symbol('s')"}}}}),
             Catch::Contains("expected a number"));
  program = small_model();
  program.weights.erase("w");
  CHECK_THAT(refusal_of(program.archive()),
             Catch::Contains("the graph is given \"w\", which the archive does not store"));
  program = small_model();
  program.constants["w"] = program.constants["t"];
  CHECK_THAT(refusal_of(program.archive()),
             Catch::Contains("\"w\" is among the weights and the constants"));
}

TEST_CASE("other archives are refused with what to type") {
  CHECK_THAT(refusal_of(ZipFile().add("m/data.pkl", "").bytes()),
             Catch::Contains("torch.save or torch.jit.save has written"));
  CHECK_THAT(refusal_of(ZipFile().add("serialized_exported_program.json", "{}").bytes()),
             Catch::Contains("before 2.9, with pickles"));
  CHECK_THAT(refusal_of(ZipFile().add("m/a", "").bytes()),
             Catch::Contains("run_decompositions({})"));
  const auto with = [](const std::string& name, const std::string& text) {
    return refusal_of(
        ZipFile().add("m/models/model.json", small_model().text()).add(name, text).bytes());
  };
  CHECK_THAT(with("m/archive_format", "pt3"),
             Catch::Contains("\"m/archive_format\" says \"pt3\", expected \"pt2\""));
  CHECK_THAT(with("m/archive_version", "1"), Catch::Contains("says \"1\", expected \"0\""));
  CHECK_THAT(with("m/byteorder", "big"), Catch::Contains("says \"big\", expected \"little\""));
  CHECK_THAT(with("m/models/other.json", "{}"), Catch::Contains("has the programs"));
  CHECK_THAT(with("m/b", ""),
             Catch::Contains("lacks \"m/data/weights/model_weights_config.json\""));
}

}  // namespace
}  // namespace dstrain::exported
