// dstrain import: weights of PyTorch and DeepSpeed as a folder of a model, and what it refuses.
#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/launcher/support/run_folder.h"
#include "tests/support/source_file.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;
using nlohmann::json;

// A folder with token ids and files that PyTorch and DeepSpeed have saved.
struct ImportFolder : RunFolder {
  ImportFolder() {
    std::string bytes;
    for (int i = 0; i < 200; ++i) {
      bytes += static_cast<char>(i * i % 40);
      bytes += '\0';
    }
    write("t.bin", bytes);
    const std::string data = source_file("tests/storage/foreign/data/");
    fs::copy(data + "gpt2", root / "old");
    fs::copy(data + "deepspeed/stage2", root / "ds", fs::copy_options::recursive);
  }
  std::string said(const std::string& words, int status = 0) const {
    return output_of(std::string(DSTRAIN_PROGRAM) + " " + words, status);
  }
  std::string error(const std::string& words) const {
    return only_error(said("import " + words, 1));
  }
  bool has(const std::string& name) const { return fs::exists(root / name); }
};

TEST_CASE("a folder with pytorch_model.bin is imported, measured and trained") {
  const ImportFolder folder;
  CHECK_THAT(folder.said("eval --data t.bin --model old 2>&1", 1),
             Contains("`dstrain import old --output NEW`"));
  folder.write("old/tokenizer.json", "{}");
  CHECK_THAT(folder.said("import old --output new"), Contains("new: 17 tensors, 6.37 kB"));
  CHECK(folder.read("new/config.json") == folder.read("old/config.json"));
  CHECK(folder.has("new/tokenizer.json"));
  fs::remove(folder.root / "new/tokenizer.json");
  // transformers 5.24 computes this loss from the same files.
  const json measured = json::parse(folder.said("eval --json --data t.bin --model new 2>err"));
  CHECK(measured["loss"].get<double>() == Approx(3.736109).margin(1e-5));
  folder.said("--config c.json --device cpu --data t.bin --model new --steps 1 --output run");
  CHECK(folder.has("run/model.safetensors"));
  // The file by itself, and the weights alone.
  folder.said("import old/pytorch_model.bin --output file");
  CHECK(folder.read("file/model.safetensors") == folder.read("new/model.safetensors"));
  CHECK(folder.has("file/config.json"));
  fs::rename(folder.root / "old/pytorch_model.bin", folder.root / "weights.bin");
  folder.said("import weights.bin --output bare");
  CHECK(folder.read("bare/model.safetensors") != folder.read("new/model.safetensors"));
  folder.said("import weights.bin --keep_names --output whole");
  CHECK(folder.read("whole/model.safetensors") == folder.read("new/model.safetensors"));
  CHECK_FALSE(folder.has("bare/config.json"));
}

TEST_CASE("DeepSpeed's checkpoint is imported by its folder, its tag or the folder of the tag") {
  const ImportFolder folder;
  CHECK_THAT(folder.said("import ds --output a"), Contains("a: 10 tensors, 268 B"));
  folder.said("import ds --tag step3 --output b");
  folder.said("import ds/step3/ --output c");
  for (const std::string other : {"b", "c"})
    CHECK(folder.read("a/model.safetensors") == folder.read(other + "/model.safetensors"));
  // What transformers' Trainer writes beside it is the model's; the weights are in fp32.
  folder.write("ds/config.json", R"({"model_type": "gpt2", "torch_dtype": "bfloat16"})");
  for (const std::string source : {"ds", "ds/step3"}) {
    folder.said("import " + source + " --output d --overwrite");
    CHECK_THAT(folder.read("d/config.json"), Contains("float32"));
  }
  CHECK_THAT(folder.error("ds --tag step4 --output e"), Contains("ds/step4: --tag names it"));
  CHECK_THAT(folder.error("ds --key module --output e"),
             Contains("it names a part of one file, and ds is a folder"));
  CHECK_THAT(folder.error("old --tag step3 --output e"),
             Contains("no folder of DeepSpeed's checkpoints"));
  CHECK_FALSE(folder.has("e"));
}

TEST_CASE("the optimizer's state of a checkpoint is imported where it is asked for") {
  const ImportFolder folder;
  const std::string source = source_file("tests/golden/deepspeed/stage2"),
                    state = "n/optimizer/exp_avg.safetensors";
  folder.said("import " + source + " --output n");
  CHECK_FALSE(folder.has("n/optimizer"));
  CHECK_THAT(folder.said("import " + source + " --output n --overwrite --optimizer_state"),
             Contains("n/optimizer: the optimizer's state after 3 steps"));
  CHECK((folder.has(state) && folder.has("n/optimizer/exp_avg_sq.safetensors")));
  CHECK(json::parse(folder.read("n/optimizer/progress.json"))["samples"] == 12);
  CHECK_THAT(folder.error("old --output b --optimizer_state"),
             Contains("old is no checkpoint of DeepSpeed's"));
  // A run says what it lacks before it writes anything.
  const auto refused = [&folder](const std::string& options) {
    return folder.said(
        "--config c.json --device cpu --data t.bin --model n --output run "
        "--set dstrain.optimizer_state=n/optimizer " +
            options,
        1);
  };
  CHECK_THAT(refused("--set optimizer.type=Adagrad"),
             Contains("there is no sum.safetensors in n/optimizer"));
  CHECK_THAT(refused("--set optimizer.type=Muon"), Contains("DeepSpeed's optimizers do not keep"));
  CHECK_THAT(refused("--set dstrain.ema.decay=0.9"), Contains("remove one of the two"));
  CHECK_THAT(refused("--set dstrain.lora.r=2"), Contains("dstrain.lora trains none"));
  CHECK_THAT(refused("--init_weights random"), Contains("these are fresh: name them"));
  CHECK_FALSE(folder.has("run"));
  folder.said("import " + source + " --output n --overwrite");
  CHECK_FALSE(folder.has("n/optimizer"));
  CHECK_THAT(refused(""), Contains("n/optimizer"));
}

TEST_CASE("an import replaces nothing that it was not told to, and leaves nothing half-written") {
  const ImportFolder folder;
  for (const std::string output : {"old", "./old/"})
    CHECK_THAT(folder.error("old --overwrite --output " + output),
               Contains("comes from this folder"));
  CHECK_THAT(folder.error("old/pytorch_model.bin --overwrite --output old"),
             Contains("comes from this folder"));
  folder.said("import old --output new");
  CHECK_THAT(folder.error("ds --output new"), Contains("--overwrite replaces it"));
  folder.write("new/mine.txt", "mine");
  folder.said("import ds --output new --overwrite");
  CHECK_FALSE(folder.has("new/config.json"));
  CHECK(folder.read("new/mine.txt") == "mine");
  CHECK_THAT(folder.error("new --output e"), Contains("--model new takes them as they are"));
  CHECK_THAT(folder.error("new/model.safetensors --output e"),
             Contains("--init_weights takes a file of safetensors"));
  CHECK_THAT(folder.error("none --output e"), Contains("cannot read the file of PyTorch none"));
  fs::create_directory(folder.root / "empty");
  CHECK_THAT(folder.error("empty --output e"), Contains("expected pytorch_model.bin or "));
  CHECK_THAT(folder.error("old"), Contains("--output DIR"));
  CHECK_THAT(folder.error("old ds --output e"), Contains("takes one PATH"));
  const std::string whole = folder.read("old/pytorch_model.bin");
  folder.write("old/pytorch_model.bin", whole.substr(0, whole.size() / 2));
  CHECK_THAT(folder.error("old --output e"),
             Contains("is not an archive of torch.save, or is cut short"));
  CHECK_FALSE(folder.has("e"));
}

}  // namespace
}  // namespace dstrain
