// Runs with adapters that train modules as a whole beside them (dstrain.lora.modules_to_save): what they leave, and what eval,
// export and --resume make of that.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/launcher/support/run_folder.h"

namespace dstrain {
namespace {

using Catch::Contains;
using nlohmann::json;

const std::string kWhole =
    "--set dstrain.lora.r=4 --set optimizer.type=AdamW "
    "--set 'dstrain.lora.modules_to_save=[\"lm_head\", \"ln\"]' ";

struct WholeFolder : RunFolder {
  std::string said(const std::string& words, int status = 0) const {
    return output_of(std::string(DSTRAIN_PROGRAM) + " " + words, status);
  }
  void train(const std::string& output, const std::string& options = "") const {
    INFO(said("--config c.json --overwrite --output " + output + " " + kWhole + options + " 2>&1"));
  }
  double loss(const std::string& run) const {
    return json::parse(said("eval --json --run " + run + " --data text.txt 2>err"))["loss"];
  }
  std::string adapters(const std::string& folder) const {
    return read(folder + "/adapter_model.safetensors");
  }
};

TEST_CASE("modules trained as a whole are in the adapter's files, alike at every stage") {
  const WholeFolder folder;
  const std::string two =
      "--num_gpus 2 --set dstrain.reduce=boundary --set zero_optimization.stage=";
  folder.train("plain", two + "0");
  const std::string expected = folder.adapters("plain");
  for (const char* const name : {"base_model.model.lm_head.weight", "base_model.model.ln.weight",
                                 "base_model.model.ln.bias"})
    CHECK_THAT(expected, Contains(name));
  CHECK(json::parse(folder.read("plain/adapter_config.json"))["modules_to_save"] ==
        json::array({"lm_head", "ln"}));
  for (const char* const stage : {"1", "2", "3"}) {
    CAPTURE(stage);
    folder.train("out", two + stage);
    CHECK(folder.adapters("out") == expected);
  }
  folder.train("out", two +
                          "3 --set zero_optimization.offload_optimizer.device=cpu "
                          "--set zero_optimization.offload_param.device=cpu");
  CHECK(folder.adapters("out") == expected);
}

TEST_CASE("they go on, are merged, exported and begun with as adapters are") {
  const WholeFolder folder;
  for (const std::string base : {"f32", "nf4"}) {
    CAPTURE(base);
    const std::string options = "--set dstrain.lora.base=" + base + " --save_interval 2 ";
    folder.train("run", options);
    const double loss = folder.loss("run");
    CHECK(folder.loss("run/checkpoints/step_4") == loss);
    const std::string expected = folder.adapters("run");
    folder.train("half", options + "--steps 2");
    folder.said("--resume half --num_gpus 2 --steps 4 2>&1");
    CHECK(folder.loss("half") == Approx(loss).epsilon(1e-5));
    for (const std::string from : {"run", "run/checkpoints/step_4"}) {
      folder.said("export " + from + " --format peft --overwrite --output peft");
      CHECK(folder.adapters("peft") == expected);
      CHECK(folder.read("peft/adapter_config.json") == folder.read("run/adapter_config.json"));
    }
    folder.train("again", "--steps 0 --set dstrain.lora.init=run --set dstrain.lora.base=" + base);
    CHECK(folder.adapters("again") == expected);
  }
  folder.train("apart", "--save_interval 4");
  folder.train("merged", "--set dstrain.lora.merge=true");
  CHECK(folder.adapters("merged/adapter") == folder.adapters("apart"));
  CHECK(folder.loss("merged") == Approx(folder.loss("apart")).epsilon(1e-6));
  // The base of these runs is in a file of its own.
  folder.said("--config c.json --output plain 2>&1");
  folder.train("apart", "--save_interval 4 --init_weights plain");
  folder.train("merged", "--set dstrain.lora.merge=true --init_weights plain");
  for (const std::string from : {"apart", "apart/checkpoints/step_4"}) {
    folder.said("export " + from + " --merge --format safetensors --overwrite --output exported");
    CHECK(folder.read("exported/model.safetensors") == folder.read("merged/model.safetensors"));
  }
}

TEST_CASE(
    "modules that differ from those of an adapter, or that there are none of, are one error") {
  const WholeFolder folder;
  folder.train("run", "--save_interval 2");
  const auto error = [&folder](const std::string& options) {
    return folder.said("--config c.json --output x --set dstrain.lora.r=4 " + options + " 2>&1", 1);
  };
  CHECK_THAT(error("--set dstrain.lora.init=run"),
             Contains("has modules_to_save [\"lm_head\",\"ln\"], and the configuration has []"));
  CHECK_THAT(error("--set dstrain.lora.modules_to_save=head"),
             Contains("no module has a name that ends in \"head\""));
  CHECK_THAT(error("--set dstrain.lora.modules_to_save=qkv --set 'dstrain.lora.targets=[\"qkv\"]'"),
             Contains("qkv gets an adapter by dstrain.lora.targets"));
  CHECK_THAT(folder.said("--resume run --set 'dstrain.lora.modules_to_save=[\"lm_head\"]' 2>&1", 1),
             Contains("dstrain.lora"));
}

}  // namespace
}  // namespace dstrain
