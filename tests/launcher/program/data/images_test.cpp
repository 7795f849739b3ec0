// Images from the shell's side, with the ResNet family.
#include <signal.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/data/images/image_files.h"
#include "tests/launcher/support/run_folder.h"

namespace dstrain {
namespace {

using Catch::Contains;
using nlohmann::json;

constexpr const char* kResnet = R"({
  "train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "steps_per_print": 1,
  "dstrain": {
    "model": {"type": "resnet", "stem": "cifar", "image_size": 32, "num_classes": 10, "width": 1},
    "data": {"path": "cifar", "val_path": "cifar", "mean": 0.5, "std": [0.2, 0.25, 0.3], "crop": 4,
             "flip": true},
    "steps": 4, "seed": 3}
})";

struct ImagesFolder : RunFolder {
  ImagesFolder() {
    write("c.json", kResnet);
    std::string training, test;
    for (int i = 0; i < 24; ++i) training += cifar_record(i * 7 % 10, i);
    for (int i = 24; i < 32; ++i) test += cifar_record(i * 7 % 10, i);
    std::filesystem::create_directories(root / "cifar");
    write("cifar/data_batch_1.bin", training);
    write("cifar/test_batch.bin", test);
  }
  // Runs the program, which must end with `status`; returns what it said.
  std::string said(const std::string& words, int status = 0) const {
    return output_of(std::string(DSTRAIN_PROGRAM) + " " + words + " 2>&1", status);
  }
  std::string weights_of(const std::string& output, const std::string& options) const {
    said("--config c.json --overwrite --output " + output + " " + options);
    return read(output + "/model.safetensors");
  }
};

}  // namespace

TEST_CASE("images: a ResNet trains on them, and goes on with the same images after a checkpoint") {
  const ImagesFolder folder;
  const std::string told = folder.said("--config c.json --output one --save_interval 2");
  CHECK_THAT(told, Contains("cifar: images of CIFAR-10; 24 training samples, 8 for validation"));
  CHECK_THAT(told, Contains("accuracy"));
  const std::string weights = folder.read("one/model.safetensors");
  std::filesystem::remove_all(folder.root / "one/checkpoints/step_4");
  CHECK((folder.weights_of("one", "--resume one") == weights));
  // What samples are made by is a fact of the run.
  std::filesystem::remove_all(folder.root / "one/checkpoints/step_4");
  CHECK_THAT(folder.said("--config c.json --output one --resume one --set dstrain.data.crop=2", 1),
             Contains("images") && Contains("crop 4"));
}

TEST_CASE("images: a run that is killed goes on with the same images") {
  const ImagesFolder folder;
  const std::string options = "--steps 80 --save_interval 5 --set dstrain.eval_samples=2 ";
  const std::string weights = folder.weights_of("whole", options);
  RunningProgram killed =
      folder.start(std::string(DSTRAIN_PROGRAM) + " --config c.json --output killed " + options);
  REQUIRE(wait_until(
      [&folder] { return std::filesystem::exists(folder.root / "killed/checkpoints/step_10"); }));
  ::kill(killed.pid(), SIGKILL);
  killed.wait();
  CHECK_THAT(folder.said("--config c.json --resume killed --output killed " + options),
             Contains("80"));
  CHECK((folder.read("killed/model.safetensors") == weights));
}

TEST_CASE("images: ranks see the same ones at every stage, in pipelines and under recompute") {
  const ImagesFolder folder;
  const std::string alone = folder.weights_of("one", "");
  CHECK((folder.weights_of("recompute", "--set dstrain.recompute=1") == alone));
  CHECK((folder.weights_of("pipeline", "--num_gpus 2 --pipeline_num_stages 2") == alone));
  const std::string two = folder.weights_of("two", "--num_gpus 2");
  CHECK((folder.weights_of("three",
                           "--num_gpus 2 --set zero_optimization.stage=3 --set "
                           "dstrain.reduce=boundary") == two));
  CHECK((folder.weights_of("none", "--num_gpus 2 --set dstrain.data.flip=false") != two));
  CHECK_THAT(folder.said("verify --config c.json"), Contains("equal"));
}

TEST_CASE("images: eval measures a run on other ones") {
  const ImagesFolder folder;
  folder.said("--config c.json --output one");
  const json line = json::parse(folder.output_of("grep val_loss one/metrics.jsonl", 0));
  const json result = json::parse(folder.output_of(
      std::string(DSTRAIN_PROGRAM) + " eval --run one --data cifar/test_batch.bin --json", 0));
  CHECK(result["samples"] == 8);
  CHECK(result["loss"].get<double>() == Approx(line["val_loss"].get<double>()).epsilon(1e-5));
  CHECK(result["accuracy"].get<double>() == Approx(line["val_accuracy"].get<double>()));
  CHECK_THAT(folder.said("eval --run one --data cifar --seq_len 4", 1),
             Contains("--seq_len: it is of texts, and the ResNet reads arrays"));
}

TEST_CASE("images: what is wrong ends a run before it has written anything") {
  const ImagesFolder folder;
  const auto error = [&folder](const std::string& options) {
    return only_error(folder.said("--config c.json --output wrong " + options, 1));
  };
  CHECK_THAT(error("--data nowhere --set dstrain.data.val_path=null"),
             Contains("the images nowhere are not there") && Contains("cifar-10-binary.tar.gz"));
  CHECK_THAT(error("--set dstrain.model.num_classes=7"),
             Contains("have 10 classes, and the model has 7: give dstrain.model.num_classes 10"));
  CHECK_THAT(error("--set dstrain.model.depth=20"), Contains("of depth 18, 34, 50, 101 and 152"));
  CHECK_THAT(error("--set dstrain.model.image_size=28"), Contains("3 x 28 x 28"));
  CHECK_THAT(error("--num_gpus 2 --set tensor_parallel.autotp_size=2"),
             Contains("the layers of the ResNet are not divided among ranks"));
  CHECK_THAT(error("--num_gpus 2 --set sequence_parallel_size=2"),
             Contains("the samples of the ResNet have no tokens to divide"));
  CHECK(!std::filesystem::exists(folder.root / "wrong"));
}

}  // namespace dstrain
