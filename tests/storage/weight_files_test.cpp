// Weights in several files with an index, files with other programs' names, and indexes that are hostile.
#include "runtime/storage/weights/weight_files.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>

#include "runtime/core/error.h"
#include "runtime/storage/weights.h"
#include "runtime/storage/weights/weights_writer.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

using Catch::Contains;
using Floats = std::vector<float>;
namespace fs = std::filesystem;

StateEntry weight_of(const std::string& name, Floats& values) {
  const auto n = static_cast<int64_t>(values.size());
  return {.name = name, .global_shape = {n}, .local = {values.data(), {n}, DType::f32}};
}

Floats rising(int64_t n, float from) {
  Floats values(static_cast<size_t>(n));
  std::iota(values.begin(), values.end(), from);
  return values;
}

// Three weights, of 4, 8 and 12 elements, and room for what is read of them.
struct Three {
  Floats a = rising(4, 1), b = rising(8, 100), c = rising(12, -5);
  StateRegister list() { return {weight_of("t.b", b), weight_of("t.a", a), weight_of("head", c)}; }
  void write_to(const std::string& path, const WeightsFormat& format) {
    WeightsWriter writer(path, list(), format);
    for (const StateEntry& entry : list()) writer.write(entry.name, 0, entry.local);
    writer.finish();
  }
};

std::string index_of(const TempDir& dir) {
  return dir / kIndexName;
}

// Divides the three weights over two files, the first of which has t.b and t.a.
void save_two(const TempDir& dir) {
  Three().write_to(dir / kWeightsName, {.as_package = true, .shard_bytes = 48});
}

void change_index(const TempDir& dir, const std::function<void(nlohmann::json&)>& change) {
  nlohmann::json json = nlohmann::json::parse(bytes_of_file(index_of(dir)));
  change(json);
  dir.write(kIndexName, json.dump());
}

std::string error_of(const TempDir& dir) {
  try {
    Three three;
    load_weights(index_of(dir), three.list());
  } catch (const UserError& e) {
    return e.what();
  }
  return "no error";
}

std::vector<std::string> names_in(const std::string& path) {
  std::vector<std::string> names;
  for (const SafetensorsTensor& t : read_safetensors_header(InputFile(path, "the file")).tensors)
    names.push_back(t.name);
  return names;
}

TEST_CASE("weights above the limit are divided over several files with an index") {
  const TempDir dir;
  save_two(dir);
  CHECK_FALSE(fs::exists(dir / kWeightsName));
  CHECK(names_in(dir / "model-00001-of-00002.safetensors") ==
        std::vector<std::string>{"t.a", "t.b"});
  CHECK(names_in(dir / "model-00002-of-00002.safetensors") == std::vector<std::string>{"head"});
  const nlohmann::json index = nlohmann::json::parse(bytes_of_file(index_of(dir)));
  CHECK(index["metadata"]["total_size"] == 96);
  CHECK(index["weight_map"]["t.b"] == "model-00001-of-00002.safetensors");
  CHECK(index["weight_map"]["head"] == "model-00002-of-00002.safetensors");
  CHECK(directory_weights(dir.path(), "--model d") == index_of(dir));
  CHECK(files_of_weights(index_of(dir)).size() == 3);

  Three expected, read;
  read.a.assign(4, 0);
  read.b.assign(8, 0);
  read.c.assign(12, 0);
  load_weights(index_of(dir), read.list());
  CHECK(read.a == expected.a);
  CHECK(read.b == expected.b);
  CHECK(read.c == expected.c);
}

TEST_CASE("the files of weights replace those of earlier ones in the folder") {
  const TempDir dir;
  save_two(dir);
  Three().write_to(dir / kWeightsName, {});
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(dir.path()))
    names.push_back(entry.path().filename().string());
  CHECK(names == std::vector<std::string>{std::string(kWeightsName)});
  save_two(dir);
  CHECK_FALSE(fs::exists(dir / kWeightsName));
  CHECK(error_of(dir) == "no error");
}

TEST_CASE("only files of the earlier index are removed, and a crash between files leaves no mix") {
  const TempDir dir;
  save_two(dir);
  const std::string mine = "model-00007-of-00009.safetensors";
  dir.write(mine, "another program's");
  dir.write("config.json", "{}");
  change_index(dir, [](nlohmann::json& json) { json["weight_map"]["x"] = "config.json"; });
  Three().write_to(dir / kWeightsName, {});
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(dir.path()))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  CHECK(names == std::vector<std::string>{"config.json", mine, std::string(kWeightsName)});

  // The second of two files cannot take its place.
  save_two(dir);
  Three changed;
  changed.a[0] = 7;
  WeightsWriter writer(dir / kWeightsName, changed.list(), {.as_package = true, .shard_bytes = 48});
  for (const StateEntry& entry : changed.list()) writer.write(entry.name, 0, entry.local);
  const std::string second = dir / "model-00002-of-00002.safetensors";
  fs::remove(second);
  fs::create_directory(second);
  dir.write("model-00002-of-00002.safetensors/x", "");
  CHECK_THROWS_AS(writer.finish(), RunError);
  CHECK_THROWS_WITH(directory_weights(dir.path(), "--model d"), Contains("there is no"));
}

TEST_CASE(
    "a file of another name leaves the files of a model beside it, which are removed together") {
  const TempDir dir;
  save_two(dir);
  Three().write_to(dir / "adapter_model.safetensors", {});
  CHECK(files_of_weights(index_of(dir)).size() == 3);
  for (const std::string& file : files_of_weights(index_of(dir))) CHECK(fs::exists(file));
  remove_weights(dir.path());
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(dir.path()))
    names.push_back(entry.path().filename().string());
  CHECK(names == std::vector<std::string>{"adapter_model.safetensors"});
}

TEST_CASE("weights are saved in the dtype of each tensor") {
  const TempDir dir;
  const std::string path = dir / kWeightsName;
  Three().write_to(path,
                   {.as_package = true, .shard_bytes = 1000, .dtype = [](const std::string& name) {
                      return name == "t.a" ? DType::f16 : name == "t.b" ? DType::bf16 : DType::f32;
                    }});
  // The package's order: the widest dtype first.
  CHECK(names_in(path) == std::vector<std::string>{"head", "t.b", "t.a"});
  Three expected, read;
  read.a.assign(4, 0);
  read.b.assign(8, 0);
  load_weights(path, read.list());
  CHECK(read.a == expected.a);
  CHECK(read.b == expected.b);
}

TEST_CASE("files of others may lack a prefix and have tensors that nothing reads") {
  const TempDir dir;
  const std::string path = dir / "x.safetensors";
  Floats a = rising(4, 1), b = rising(8, 100), mask(3, 1), head = rising(2, 7);
  {
    WeightsWriter writer(path, {weight_of("a", a), weight_of("b", b),
                                weight_of("h.0.attn.bias", mask), weight_of("head", head)});
    for (auto& [name, values] : std::vector<std::pair<std::string, Floats*>>{
             {"a", &a}, {"b", &b}, {"h.0.attn.bias", &mask}, {"head", &head}})
      writer.write(name, 0, {values->data(), {static_cast<int64_t>(values->size())}, DType::f32});
    writer.finish();
  }
  Floats read_a(4), read_b(8), read_head(2);
  const StateRegister want{weight_of("t.a", read_a), weight_of("t.b", read_b),
                           weight_of("head", read_head)};
  load_weights(path, want, {"t.", {"h.*.attn.bias"}});
  CHECK(read_a == a);
  CHECK(read_b == b);
  CHECK(read_head == head);
  CHECK_THROWS_WITH(check_weights(path, want, {"t.", {}}),
                    Contains("mismatches: 1") && Contains("h.0.attn.bias (3) is not in the model"));
  CHECK_THROWS_WITH(check_weights(path, want), Contains("t.a (4) is missing"));
}

TEST_CASE("a table that a file has by another name alone is read by that") {
  const TempDir dir;
  const ForeignNames names{"t.", {"head"}, {{"t.table", "head"}}};
  Floats a = rising(4, 1), table = rising(6, 9), read_a(4), read_table(6);
  const StateRegister want{weight_of("t.a", read_a), weight_of("t.table", read_table)};
  const auto write = [&](const std::vector<std::string>& tables) {
    StateRegister tensors{weight_of("t.a", a)};
    for (const std::string& name : tables) tensors.push_back(weight_of(name, table));
    WeightsWriter writer(dir / "x.safetensors", tensors);
    for (const StateEntry& entry : tensors) writer.write(entry.name, 0, entry.local);
    writer.finish();
  };
  for (const std::vector<std::string>& tables :
       {std::vector<std::string>{"head"}, {"t.table"}, {"t.table", "head"}}) {
    write(tables);
    read_table.assign(6, 0);
    load_weights(dir / "x.safetensors", want, names);
    CHECK(read_table == table);
    CHECK(read_a == a);
  }
  write({"head"});
  CHECK_THROWS_WITH(check_weights(dir / "x.safetensors", want, {"t.", {"head"}}),
                    Contains("t.table (6) is missing"));
}

TEST_CASE("an index may list a tensor that is ignored, and that its files do not have") {
  const TempDir dir;
  save_two(dir);
  change_index(dir, [](nlohmann::json& json) {
    json["weight_map"]["tied"] = "model-00002-of-00002.safetensors";
  });
  CHECK_NOTHROW(WeightFiles(index_of(dir), {"", {"tied"}}));
  CHECK_THROWS_WITH(WeightFiles(index_of(dir)), Contains("tied in model-00002-of-00002"));
}

TEST_CASE("a pointer of Git LFS, and a pickle alone, say how to get the weights") {
  const TempDir dir;
  const std::string path =
      dir.write("model.safetensors",
                "version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 548105171\n");
  CHECK_THROWS_WITH(WeightFiles(path),
                    Contains(path + " is a pointer of Git LFS") && Contains("`git lfs pull`"));
  dir.write("adapter_model.bin", "PK");
  CHECK_THROWS_WITH(WeightFiles(dir / "adapter_model.safetensors"),
                    Contains(dir.path() + ": there is adapter_model.bin alone, a pickle") &&
                        Contains("load the adapters with PEFT and save them again") &&
                        Contains("which writes adapter_model.safetensors"));
  dir.write("net.bin", "PK");
  CHECK_THROWS_WITH(WeightFiles(dir / "net.safetensors"),
                    Contains("`dstrain import " + dir.path() + "/net.bin --output NEW`"));
  CHECK_THROWS_WITH(WeightFiles(dir / "other.safetensors"),
                    Contains("cannot read the weights file"));
}

TEST_CASE("names of tensors in messages have no control characters, and an end") {
  const TempDir dir;
  const std::string path = dir / "w.safetensors";
  Floats a(2), known(2);
  const std::string evil = "evil\x1b[31m\n", length(300, 'x');
  {
    WeightsWriter writer(path, {weight_of(evil, a), weight_of(length, a), weight_of("known", a)});
    for (const std::string& name : {evil, length, std::string("known")})
      writer.write(name, 0, {a.data(), {2}, DType::f32});
    writer.finish();
  }
  CHECK_THROWS_WITH(check_weights(path, {weight_of("known", known)}),
                    Contains("evil?[31m? (2) is not in the model") &&
                        Contains(std::string(120, 'x') + "... (2) is not in the model"));
}

TEST_CASE("an index names files beside it alone") {
  const std::string name = GENERATE(as<std::string>{}, "../x.safetensors", "/etc/passwd", "..", "",
                                    "sub/x.safetensors", ".");
  CAPTURE(name);
  const TempDir dir;
  save_two(dir);
  change_index(dir, [&](nlohmann::json& json) { json["weight_map"]["t.a"] = name; });
  CHECK(error_of(dir) == fmt::format("{}: it lists the file \"{}\": expected the name of a file "
                                     "beside it",
                                     index_of(dir), name));
}

TEST_CASE("a damaged index is one clear error") {
  const TempDir dir;
  save_two(dir);
  const std::string good = bytes_of_file(index_of(dir));
  for (const auto& [text, part] : std::vector<std::pair<std::string, std::string>>{
           {"", "it is not JSON"},
           {good.substr(0, good.size() / 2), "it is not JSON"},
           {"[]", "it has no table \"weight_map\""},
           {"{\"weight_map\": 3}", "it has no table \"weight_map\""},
           {"{\"weight_map\": {}}", "it lists no tensors"},
           {"{\"weight_map\": {\"t.a\": 7}}", "the file of the tensor \"t.a\" is number"},
           {"{\"weight_map\": {\"t.a\": \"none.safetensors\"}}", "No such file"},
           {std::string(1 << 20, '['), "it is not JSON"},
       }) {
    CAPTURE(part);
    dir.write(kIndexName, text);
    CHECK_THAT(error_of(dir), Contains(part) && !Contains("\n"));
  }
}

TEST_CASE("an index and its files agree") {
  const TempDir dir;
  save_two(dir);
  change_index(dir, [](nlohmann::json& json) {
    json["weight_map"]["t.z"] = "model-00002-of-00002.safetensors";
  });
  CHECK_THAT(error_of(dir), Contains("it lists tensors that its files do not have (1):\n  t.z in "
                                     "model-00002-of-00002.safetensors"));
  save_two(dir);
  fs::copy_file(dir / "model-00002-of-00002.safetensors", dir / "copy.safetensors");
  change_index(dir, [](nlohmann::json& json) { json["weight_map"]["t.a"] = "copy.safetensors"; });
  CHECK_THAT(error_of(dir), Contains("it lists tensors that its files do not have"));
  save_two(dir);
  fs::copy_file(dir / "model-00001-of-00002.safetensors", dir / "again.safetensors");
  change_index(dir, [](nlohmann::json& json) { json["weight_map"]["t.a"] = "again.safetensors"; });
  CHECK_THAT(error_of(dir), Contains("tensor \"t.a\" is in ") && Contains("remove one of them"));
}

TEST_CASE("a file of an index that is damaged is named") {
  const TempDir dir;
  save_two(dir);
  std::string header(8, '\0');
  header[7] = 0x10;  // 2^60
  dir.write("model-00002-of-00002.safetensors", header + "{}");
  CHECK_THAT(error_of(dir), Contains("model-00002-of-00002.safetensors is not a safetensors file: "
                                     "it states a header of 1152921504606846976 bytes"));
}

TEST_CASE("a folder without weights says what to do") {
  const TempDir dir;
  CHECK_THROWS_WITH(directory_weights(dir.path(), "--model d"),
                    Contains("--model d: there is no model.safetensors in ") &&
                        Contains("--init_weights random"));
  dir.write("pytorch_model.bin", "PK");
  CHECK_THROWS_WITH(directory_weights(dir.path(), "--model d"),
                    Contains("pytorch_model.bin is a pickle") &&
                        Contains("`dstrain import " + dir.path() + " --output NEW`"));
  save_two(dir);
  CHECK(directory_weights(dir.path(), "--model d") == index_of(dir));
  CHECK_THROWS_WITH(weights_file(dir.path()),
                    Contains("--init_weights " + dir.path()) &&
                        Contains("--model " + dir.path() + " takes them"));
}

}  // namespace
}  // namespace dstrain
