// What an exported graph returns beside its loss: metrics, and what weighs the loss.
#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/launcher/support/run_folder.h"
#include "tests/launcher/support/token_graph.h"

namespace dstrain {
namespace {

using nlohmann::json;

// A folder with tokens, of which two of three count, by texts and as arrays, and a graph that returns a count and a peak.
struct MetricFolder : RunFolder {
  MetricFolder() {
    write("c.json",
          R"({"train_batch_size": 4, "train_micro_batch_size_per_gpu": 4, "steps_per_print": 1,
              "optimizer": {"type": "SGD", "params": {"lr": 0.5}},
              "dstrain": {"data": {"path": "a.bin", "order": "sequential", "val_fraction": 0.3},
                          "steps": 3, "eval_interval": 3, "eval_samples": 6}})");
    std::string ids, counts;
    for (int t = 0; t < 200; ++t) {
      const auto id = static_cast<uint16_t>(t * t * 7 % 40);
      ids.append(reinterpret_cast<const char*>(&id), 2);
      counts.push_back(t % 3 != 0 && (t < 30 || t % 2 == 0) ? 1 : 0);
    }
    write("a.bin", ids);
    write("a.bin.targets", counts);
    write("m.pt2", graph({{"loss", "loss"}, {"count", "count"}, {"peak", "peak"}}));
  }

  static std::string graph(const std::vector<std::pair<std::string, std::string>>& outputs) {
    TokenGraph graph({});
    graph.measure();
    graph.returns(outputs);
    return graph.archive();
  }

  std::string ran(const std::string& options, int status = 0) const {
    RunningProgram program = train("--overwrite --model m.pt2 " + options + " 2>&1");
    const int ended = program.wait();
    CAPTURE(options, program.text());
    REQUIRE(ended == status);
    return program.text();
  }
  // Returns the values of a member of metrics.jsonl, of the lines that have it.
  std::vector<double> column(const std::string& name) const {
    std::istringstream lines(read("out/metrics.jsonl"));
    std::vector<double> values;
    for (std::string line; std::getline(lines, line);)
      if (const json object = json::parse(line); object.contains(name))
        values.push_back(object[name]);
    return values;
  }
};

std::string micro_batch(int samples) {
  return "--set train_micro_batch_size_per_gpu=" + std::to_string(samples) + " ";
}

TEST_CASE("numbers that a graph returns beside its loss are metrics, means as the loss is") {
  const MetricFolder folder;
  const std::string text = folder.ran(micro_batch(2));
  const std::vector<double> counts = folder.column("count"), tokens = folder.column("tokens");
  REQUIRE(counts.size() == 3);
  // The 4 samples of step 1 are tokens 1 to 32, in two micro-batches.
  CHECK(counts[0] == 10.5);
  CHECK(tokens[0] == 4);
  CHECK(folder.column("peak").size() == 3);
  CHECK(folder.column("val_peak").size() == 1);
  CHECK(folder.column("val_count").size() == 1);
  CHECK_THAT(text, Catch::Contains(" count=10.5000") && Catch::Contains(" peak=") &&
                       Catch::Contains(", peak "));
}

TEST_CASE("metrics and weights do not depend on how the work is divided") {
  const MetricFolder folder;
  const auto results = [&](const std::string& options) {
    folder.ran(options);
    std::vector<std::vector<double>> all;
    for (const char* const name : {"loss", "peak", "count", "val_loss", "val_peak", "val_count"})
      all.push_back(folder.column(name));
    return std::pair(all, folder.read("out/model.safetensors"));
  };
  for (const std::string weight : {"", "--set dstrain.model.loss_weight=count "}) {
    CAPTURE(weight);
    const std::string options = weight + micro_batch(1);
    // At a learning rate of 0 weights stay the same, which gradients that ranks add in another order would change.
    const std::string still = options + "--set optimizer.params.lr=0 ";
    CHECK(results(still + "--num_gpus 2") == results(still));
    CHECK(results(still + "--num_gpus 4") == results(still));
    const auto two = results(options + "--num_gpus 2");
    for (const char* const stage : {"1", "2", "3"})
      CHECK(results(options +
                    "--num_gpus 2 --set dstrain.reduce=boundary --set "
                    "zero_optimization.stage=" +
                    std::string(stage)) == two);
  }
}

TEST_CASE("each stage of a pipeline has the metrics of its own layers") {
  const MetricFolder folder;
  folder.write("m.pt2",
               MetricFolder::graph(
                   {{"loss", "loss"}, {"level", "level"}, {"count", "count"}, {"peak", "peak"}}));
  const auto results = [&](const std::string& options) {
    folder.ran(options);
    std::vector<std::vector<double>> all;
    for (const char* const name : {"loss", "level", "peak", "val_loss", "val_level", "val_peak"})
      all.push_back(folder.column(name));
    return std::pair(all, folder.read("out/model.safetensors"));
  };
  for (const std::string weight : {"", "--set dstrain.model.loss_weight=count "}) {
    CAPTURE(weight);
    const std::string options =
        weight + micro_batch(1) + "--set 'dstrain.model.blocks=[\"head\"]' ";
    const auto alone = results(options);
    CHECK(alone.first[1].size() == 3);
    CHECK(results(options + "--num_gpus 2 --pipeline_num_stages 2") == alone);
  }
}

TEST_CASE("a count that a graph returns weighs its loss: the mean is over the global batch") {
  const MetricFolder folder;
  const auto losses = [&](const std::string& options) {
    folder.ran(options);
    std::vector<double> all = folder.column("loss");
    for (const double loss : folder.column("val_loss")) all.push_back(loss);
    return all;
  };
  const std::string weighed = "--set dstrain.model.loss_weight=count ";
  const std::vector<double> whole = losses(weighed), plain = losses("");
  CHECK(whole.size() == 4);
  CHECK(whole[0] == Approx(plain[0]).epsilon(1e-6));  // in one micro-batch
  for (const int samples : {2, 1}) {
    const std::vector<double> divided = losses(weighed + micro_batch(samples));
    for (size_t i = 0; i < whole.size(); ++i) CHECK(divided[i] == Approx(whole[i]).epsilon(1e-5));
    CHECK(folder.column("tokens")[0] == 21);
    CHECK(folder.column("count").empty());  // it is the number of tokens
  }
  CHECK(losses(micro_batch(1))[0] != Approx(whole[0]).epsilon(1e-5));
}

TEST_CASE("a graph's own count weighs losses of arrays, too, and a resumed run keeps it") {
  const MetricFolder folder;
  json arrays = {{"idx", {{"dtype", "I32"}, {"shape", {12, 8}}, {"data_offsets", {0, 384}}}},
                 {"targets", {{"dtype", "I32"}, {"shape", {12, 8}}, {"data_offsets", {384, 768}}}}};
  std::string data;
  for (int i = 0; i < 192; ++i) {
    const int32_t id = i < 96 ? i * 11 % 40 : i % (i / 8 % 5 + 1) == 0 ? i % 40 : -100;
    data.append(reinterpret_cast<const char*>(&id), 4);
  }
  const std::string header = arrays.dump();
  const uint64_t size = header.size();
  folder.write("d.safetensors",
               std::string(reinterpret_cast<const char*>(&size), 8) + header + data);
  const std::string options =
      "--data d.safetensors --set dstrain.model.loss_weight=count --set "
      "dstrain.data.val_fraction=0 "
      "--set dstrain.eval_interval=0 ";
  folder.ran(options);
  const std::vector<double> whole = folder.column("loss"), tokens = folder.column("tokens");
  const std::string weights = folder.read("out/model.safetensors");
  folder.ran(options + micro_batch(1));
  for (size_t i = 0; i < whole.size(); ++i)
    CHECK(folder.column("loss")[i] == Approx(whole[i]).epsilon(1e-5));
  CHECK(folder.column("tokens") == tokens);
  CHECK(tokens[0] != 4);
  folder.ran(options + "--steps 2");
  const auto resumed = [&](const std::string& more) {
    RunningProgram program =
        folder.start(DSTRAIN_PROGRAM " --config c.json --output rest --overwrite --resume out " +
                     more + " --model m.pt2 --steps 3 2>&1");
    program.wait();
    return program.text();
  };
  resumed(options);
  CHECK(folder.read("rest/model.safetensors") == weights);
  // Alone it goes on with its own settings.
  RunningProgram alone =
      folder.start(DSTRAIN_PROGRAM " --resume out --steps 3 --output alone 2>&1");
  alone.wait();
  CAPTURE(alone.text());
  CHECK(folder.read("alone/model.safetensors") == weights);
  CHECK_THAT(resumed("--data d.safetensors --set dstrain.data.val_fraction=0 --set "
                     "dstrain.eval_interval=0"),
             Catch::Contains("dstrain.model.loss_weight was count and is unset"));
}

TEST_CASE("what cannot weigh a loss, or be a metric, is refused") {
  const MetricFolder folder;
  using Catch::Contains;
  const auto error = [&](const std::string& options) { return only_error(folder.ran(options, 1)); };
  CHECK_THAT(error("--set dstrain.model.loss_weight=counts"),
             Contains("the graph returns no number counts: expected one of loss, count, peak"));
  CHECK_THAT(error("--set dstrain.model.loss_weight=peak"),
             Contains("it depends on token.weight, which training changes"));
  folder.write("m.pt2", MetricFolder::graph({{"loss", "loss"}, {"lr", "peak"}}));
  CHECK_THAT(error(""), Contains("the graph returns lr as a metric, which every run has"));
}

TEST_CASE("a metric that needs an operator which is not supported is left out, with a warning") {
  const MetricFolder folder;
  TokenGraph graph({});
  graph.measure();
  graph.make("odd", json::array(), "aten.erfinv.default", {{"self", TokenGraph::ref("peak")}});
  graph.returns({{"loss", "loss"}, {"odd", "odd"}, {"peak", "peak"}});
  folder.write("m.pt2", graph.archive());
  CHECK_THAT(folder.ran(""), Catch::Contains("output odd is no metric of the run: node \"odd\" "
                                             "(aten.erfinv.default) is not supported"));
  CHECK(folder.column("peak").size() == 3);
  CHECK(folder.column("odd").empty());
}

TEST_CASE("an exported model of texts is measured by eval, with its accuracy") {
  const MetricFolder folder;
  folder.ran("");
  for (const std::string weight : {"", " --set dstrain.model.loss_weight=count"}) {
    folder.ran(weight);
    const json result =
        json::parse(folder.output_of(DSTRAIN_PROGRAM " eval --json --run out --data a.bin 2>err"));
    CHECK(result["tokens"] == 76);
    CHECK(result["accuracy"].get<double>() >= 0);
    CHECK(result["loss"].get<double>() > 0);
  }
}

TEST_CASE("names lose the prefix of a wrapper, in weights that are written and read") {
  const MetricFolder folder;
  folder.ran("");
  const std::string plain = folder.read("out/model.safetensors");
  folder.ran("--set dstrain.model.strip_prefix=head.");
  const std::string stripped = folder.read("out/model.safetensors");
  CHECK(plain.find("\"head.weight\"") != std::string::npos);
  CHECK(stripped.find("\"head.weight\"") == std::string::npos);
  CHECK(stripped.find("\"weight\"") != std::string::npos);
  CHECK(stripped.find("\"token.weight\"") != std::string::npos);
  RunningProgram again =
      folder.start(DSTRAIN_PROGRAM
                   " --config c.json --model m.pt2 --set dstrain.model.strip_prefix=head. "
                   "--init_weights out/model.safetensors --steps 0 --output again 2>&1");
  CHECK(again.wait() == 0);
  CAPTURE(again.text());
  CHECK(folder.read("again/model.safetensors") == stripped);
  // A folder whose index divides the weights gives them, too.
  std::filesystem::create_directory(folder.root / "divided");
  json index;
  for (const char* const name : {"token.weight", "place.weight", "document.weight", "weight"})
    index["weight_map"][name] = "model-1.safetensors";
  folder.write("divided/model-1.safetensors", stripped);
  folder.write("divided/model.safetensors.index.json", index.dump());
  const std::string divided =
      "--set dstrain.model.strip_prefix=head. --init_weights divided --steps 0";
  folder.ran(divided);
  CHECK(folder.read("out/model.safetensors") == stripped);
  index["weight_map"].erase("weight");
  index["weight_map"]["head.weight"] = "model-1.safetensors";
  folder.write("divided/model.safetensors.index.json", index.dump());
  folder.write("divided/model-1.safetensors", plain);
  const std::string error = folder.ran(divided, 1);
  CHECK_THAT(error, Catch::Contains("lacks") || Catch::Contains("missing"));
  CHECK_THAT(error, Catch::Contains("head.weight"));
  CHECK_THAT(
      only_error(folder.ran("--set dstrain.model.strip_prefix=model.", 1)),
      Catch::Contains("no tensor has a name that begins so: the first one is document.weight"));
  CHECK_THAT(only_error(folder.ran("--set 'dstrain.model.blocks=[\"h.*\"]'", 1)),
             Catch::Contains("\"h.*\" names no module with parameters of its own: those of the "
                             "graph are token, "));
}

}  // namespace
}  // namespace dstrain
