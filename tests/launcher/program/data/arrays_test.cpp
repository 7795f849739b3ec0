// Files of arrays from the shell's side, with a model that reads them.
#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/data/arrays/array_files.h"
#include "tests/launcher/support/run_folder.h"

namespace dstrain {
namespace {

using Catch::Contains;
using nlohmann::json;

constexpr const char* kConfig = R"({
  "train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "steps_per_print": 1,
  "dstrain": {"data": {"format": "arrays", "path": "rows.npz"}, "steps": 4, "seed": 3}
})";

struct ArraysFolder : RunFolder {
  ArraysFolder() {
    write("c.json", kConfig);
    write("rows.npz", rows(50));
  }

  // Returns an .npz file of so many samples, with an array that no model reads.
  static std::string rows(int64_t samples) {
    std::vector<float> x;
    std::vector<uint8_t> y;
    for (int64_t i = 0; i < samples; ++i) {
      for (int64_t j = 0; j < 12; ++j) x.push_back(static_cast<float>((i * 7 + j * 5) % 11) / 11);
      y.push_back(static_cast<uint8_t>(i * 3 % 5));
    }
    return ZipFile()
        .add("x.npy", npy("<f4", fmt::format("({}, 3, 4)", samples), bytes_of_values(x)))
        .add("y.npy", npy("|u1", fmt::format("({},)", samples), bytes_of_values(y)))
        .add("weight.npy", npy("<f4", "(1,)", "1234"))
        .bytes();
  }
  // Runs a command of the program, which must end with `status`; returns what it said.
  std::string said(const std::string& words, int status = 0) const {
    return output_of(std::string(DSTRAIN_ARRAY_PROGRAM) + " " + words, status);
  }
  std::string weights_of(const std::string& output, const std::string& options) const {
    said("--config c.json --overwrite --output " + output + " " + options);
    return read(output + "/model.safetensors");
  }
};

}  // namespace

TEST_CASE("arrays: a run trains on them, and goes on from a checkpoint") {
  const ArraysFolder folder;
  const std::string told = folder.said("--config c.json --output one --save_interval 2");
  CHECK_THAT(told, Contains("rows.npz: arrays x (3, 4) f32, y () u8; 45 training samples, 5 for "
                            "validation; no input of the model reads weight"));
  CHECK_THAT(told, Contains("the run sees 71.1% of 45 training samples once, in batches of 8"));
  CHECK_THAT(told, Contains("validation takes 4 of 5 samples, whole micro-batches of 2"));
  const std::string weights = folder.read("one/model.safetensors");
  std::filesystem::remove_all(folder.root / "one/checkpoints/step_4");
  CHECK((folder.weights_of("one", "--resume one") == weights));
  const json last =
      json::parse(folder.output_of("grep '\"step\":4,\"loss\"' one/metrics.jsonl", 0));
  CHECK(last["tokens"] == 8);

  // Other data are said where a run goes on, as those of text are.
  std::filesystem::remove_all(folder.root / "one/checkpoints/step_4");
  folder.write("rows.npz", ArraysFolder::rows(60));
  CHECK_THAT(folder.said("--config c.json --output one --resume one"), Contains("checksum"));
}

TEST_CASE("arrays: ranks have the same bits at every stage, and --epochs counts samples") {
  const ArraysFolder folder;
  const std::string ranks = "--num_gpus 2 --set dstrain.reduce=micro_batch ";
  const std::string two = folder.weights_of("two", ranks);
  CHECK((folder.weights_of("three", ranks + "--set zero_optimization.stage=3") == two));
  CHECK((folder.weights_of("sequence", ranks + "--set dstrain.data.order=sequential") != two));
  folder.write("epochs.json", R"({"train_batch_size": 5})");
  CHECK_THAT(folder.said("--config epochs.json --data rows.npz --output epochs --epochs 2"),
             Contains("the run sees each of 45 training samples 2 times, in batches of 5"));
}

TEST_CASE("arrays: verify compares on them, and wants them") {
  const ArraysFolder folder;
  CHECK_THAT(folder.said("verify --config c.json"),
             Contains("samples: rows.npz: arrays x (3, 4) f32, y () u8") && Contains("equal"));
  CHECK_THAT(
      folder.said("verify --config c.json --set dstrain.data.path=none.npz", 1),
      Contains("the array model reads arrays, which verify does not make up, and none.npz is "
               "not there: give files that have them with --data"));
  CHECK_THAT(folder.said("verify --config c.json --set dstrain.data.path=null", 1),
             Contains("no data are named"));
}

TEST_CASE("arrays: what is wrong with them ends a run before it has written anything") {
  const ArraysFolder folder;
  const auto error = [&folder](const std::string& options) {
    return only_error(folder.said("--config c.json --output wrong " + options, 1));
  };
  folder.write("x.npy", npy("<f4", "(2, 3, 4)", std::string(96, '\0')));
  CHECK_THAT(error("--data x.npy"), Contains("lack the arrays x, y, and have 0"));
  folder.write("text.txt", "no arrays");
  CHECK_THAT(error("--data text.txt"), Contains("no .safetensors, .npz or .npy file"));
  CHECK_THAT(error("--data none.npz"), Contains("none.npz"));
  CHECK_THAT(error("--set dstrain.data.whole=z"), Contains("z is no input"));
  CHECK(!std::filesystem::exists(folder.root / "wrong"));
  CHECK_THAT(folder.said("models"),
             Contains("input x: arrays, f32 (3, 4)") && Contains("input y: arrays, i32 ()"));
  CHECK_THAT(folder.said("plan --config c.json"), Contains("x, y"));
  CHECK_THAT(folder.said("check --config c.json"), Contains("This file trains."));
}

}  // namespace dstrain
