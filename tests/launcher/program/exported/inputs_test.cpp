// What the data of a run give the inputs of an exported graph.
#include <catch2/catch.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/launcher/support/run_folder.h"
#include "tests/launcher/support/token_graph.h"

namespace dstrain {
namespace {

using nlohmann::json;

// A folder with a token file of 30 documents of 2 to 8 tokens, and graphs.
struct GraphFolder : RunFolder {
  GraphFolder() {
    write("c.json",
          R"({"train_batch_size": 4, "train_micro_batch_size_per_gpu": 2, "steps_per_print": 1,
              "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
              "dstrain": {"data": {"path": "a.bin"}, "steps": 3, "eval_interval": 3,
                          "eval_samples": 4, "save_last": false}})");
    std::string ids, begins;
    const auto add = [](std::string& to, const auto& value) {
      to.append(reinterpret_cast<const char*>(&value), sizeof(value));
    };
    uint64_t tokens = 0;
    for (int d = 0; d < 30; ++d) {
      add(begins, tokens);
      for (int t = 0; t < 2 + d * 5 % 7; ++t, ++tokens)
        add(ids, static_cast<uint16_t>((d * 7 + t * 3) % 40));
    }
    add(begins, tokens);
    write("a.bin", ids);
    write("a.bin.documents", begins);
  }

  void graph(const std::string& name, const TokenGraph::Names& names) const {
    write(name, TokenGraph(names).archive());
  }
  // Trains; returns what the program says.
  std::string ran(const std::string& options, int status = 0) const {
    RunningProgram program =
        train("--overwrite --set dstrain.data.format=auto " + options + " 2>&1");
    const int ended = program.wait();
    CAPTURE(options, program.text());
    REQUIRE(ended == status);
    return program.text();
  }
  std::string weights(const std::string& options) const {
    ran(options);
    return read("out/model.safetensors");
  }
  double loss() const {
    std::istringstream lines(read("out/metrics.jsonl"));
    double last = 0;
    for (std::string line; std::getline(lines, line);)
      if (json object = json::parse(line); object.contains("loss")) last = object["loss"];
    return last;
  }
};

const std::string kInputs =
    " --set 'dstrain.model.inputs={\"a\":\"tokens\",\"b\":\"targets\",\"m\":\"mask\","
    "\"p\":\"positions\",\"d\":\"documents\"}'";
const TokenGraph::Names kOwn{
    .tokens = "a", .targets = "b", .mask = "m", .positions = "p", .documents = "d"};
const TokenGraph::Names kUsual{.tokens = "input_ids",
                               .targets = "targets",
                               .mask = "attention_mask",
                               .positions = "position_ids",
                               .documents = "documents"};

TEST_CASE("texts give inputs of any names, as they give those of the usual ones") {
  const GraphFolder folder;
  folder.graph("own.pt2", kOwn);
  folder.graph("usual.pt2", kUsual);
  for (const std::string packing : {"none", "pack", "pad"}) {
    CAPTURE(packing);
    const std::string more = " --set dstrain.data.packing=" + packing;
    CHECK(folder.weights("--model own.pt2" + kInputs + more) ==
          folder.weights("--model usual.pt2" + more));
  }
}

TEST_CASE("a stream of tokens has no padding, and each of its samples begins at position 0") {
  const GraphFolder folder;
  folder.graph("masked.pt2", {.mask = "mask"});
  folder.graph("plain.pt2", {});
  CHECK(folder.weights("--model masked.pt2") == folder.weights("--model plain.pt2"));
}

TEST_CASE("a step of all documents packed has the loss of all documents padded, by positions") {
  const GraphFolder folder;
  folder.graph("m.pt2", {.tokens = "x", .targets = "y", .mask = "m", .positions = "p"});
  const auto loss_of = [&](const std::string& packing) {
    const std::string all =
        "--model m.pt2 --set 'dstrain.model.inputs={\"x\":\"tokens\",\"y\":\"targets\",\"m\":"
        "\"mask\",\"p\":\"positions\"}' --steps 1 --set dstrain.data.val_fraction=0 --set "
        "dstrain.eval_interval=0 --set dstrain.data.order=sequential --set dstrain.data.packing=" +
        packing;
    const std::string text = folder.ran(all);
    const size_t end = text.find(" training samples of 8");
    REQUIRE(end != std::string::npos);
    const std::string samples =
        text.substr(text.rfind(' ', end - 1) + 1, end - text.rfind(' ', end - 1) - 1);
    folder.ran(all + " --set train_batch_size=" + samples +
               " --set train_micro_batch_size_per_gpu=" + samples);
    return folder.loss();
  };
  const double packed = loss_of("pack"), padded = loss_of("pad");
  CHECK(std::abs(packed - padded) < 1e-6 * padded);
}

TEST_CASE("packed documents train a graph with the same bits on any layout, and resumed") {
  const GraphFolder folder;
  folder.graph("own.pt2", kOwn);
  const std::string run = "--model own.pt2" + kInputs + " --set dstrain.data.packing=pack ";
  const std::string alone = folder.weights(run);
  for (const std::string stage : {"0", "1", "2", "3"})
    CHECK(folder.weights(run +
                         "--num_gpus 2 --set dstrain.reduce=boundary --set "
                         "zero_optimization.stage=" +
                         stage) == folder.weights(run + "--num_gpus 2"));
  folder.ran(run + "--steps 2 --save_interval 2");
  RunningProgram rest = folder.start(
      DSTRAIN_PROGRAM
      " --config c.json --set dstrain.data.format=auto --output rest --resume out --steps 3 " +
      run + "2>&1");
  CHECK(rest.wait() == 0);
  CAPTURE(rest.text());
  CHECK(folder.read("rest/model.safetensors") == alone);
  RunningProgram other =
      folder.start(DSTRAIN_PROGRAM
                   " --config c.json --output o --resume out --steps 3 --model own.pt2 --set "
                   "dstrain.data.packing=pack --set "
                   "'dstrain.model.inputs={\"a\":\"tokens\",\"b\":\"targets\",\"m\":\"mask\",\"p\":"
                   "\"documents\",\"d\":\"positions\"}' 2>&1");
  CHECK(other.wait() == 1);
  CHECK_THAT(other.text(), Catch::Contains("dstrain.model.inputs was {\"a\": \"tokens\""));
}

TEST_CASE("what texts cannot give a graph is refused with what to type") {
  const GraphFolder folder;
  folder.graph("own.pt2", kOwn);
  folder.graph("plain.pt2", {});
  const auto error = [&](const std::string& options) { return only_error(folder.ran(options, 1)); };
  using Catch::Contains;
  CHECK_THAT(error("--model own.pt2"),
             Contains("texts do not give the inputs a, b, p, d, m: say what they are by "
                      "dstrain.model.inputs"));
  CHECK_THAT(
      error("--model plain.pt2 --set dstrain.data.packing=pack"),
      Contains("holds one document") && Contains("dstrain.model.inputs={\"NAME\": \"documents\"}"));
  const auto with = [&](const std::string& inputs) {
    return error("--model own.pt2 --set 'dstrain.model.inputs=" + inputs + "'");
  };
  CHECK_THAT(error("--set dstrain.model='{\"type\":\"exported\"}'"),
             Contains("name an archive of torch.export.save"));
  CHECK_THAT(with(R"({"z":"tokens"})"),
             Contains("names z, and the inputs of the graph are a, b, p, d, m"));
  CHECK_THAT(with(R"({"a":"token"})"), Contains("did you mean \"tokens\"?"));
  CHECK_THAT(with(R"(["a"])"), Contains("expected an object such as"));
  CHECK_THAT(with(R"({"m":"tokens"})"), Contains("input m is tokens, and it is f32"));
  CHECK_THAT(with(R"({"a":"tokens","b":"targets","m":"mask","p":"tokens","d":"documents"})"),
             Contains("the inputs a and p are both token ids"));
  CHECK_THAT(with(R"({"a":"tokens","b":"targets","m":"mask","p":"documents","d":"labels"})"),
             Contains("the inputs b and d are both labels"));
  CHECK_THAT(error("--model plain.pt2 --set dstrain.data.seq_len=4"),
             Contains("4 is not the 8 tokens of the model's file"));
  CHECK_THAT(error("--model own.pt2 --set dstrain.data.format=arrays" + kInputs),
             Contains("remove one of the two"));
}

TEST_CASE("data are arrays by their names where the format is not given") {
  const RunFolder folder;
  const std::string graph = DSTRAIN_SOURCE_DIR "/tests/golden/exported/tokens/";
  const auto weights = [&](const std::string& options) {
    RunningProgram program = folder.train(
        "--overwrite --model " + graph + "model.pt2 --data " + graph +
        "data.safetensors --set dstrain.data.val_fraction=0 --set dstrain.eval_interval=0 --set "
        "train_micro_batch_size_per_gpu=2 " +
        options + " 2>&1");
    CHECK(program.wait() == 0);
    CAPTURE(program.text());
    return folder.read("out/model.safetensors");
  };
  CHECK(weights("") == weights("--set dstrain.data.format=arrays"));
  // Without data the inputs say it.
  folder.write("n.json", R"({"train_batch_size": 4})");
  const std::string norms = DSTRAIN_SOURCE_DIR "/tests/golden/exported/norms/model.pt2";
  CHECK_THAT(folder.output_of(DSTRAIN_PROGRAM " plan --config n.json --model " + norms + " 2>&1"),
             Catch::Contains("x"));
}

}  // namespace
}  // namespace dstrain
