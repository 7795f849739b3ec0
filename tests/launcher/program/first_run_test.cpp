// What a new user meets: a file without data or model, a first run, and the same command once more.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/launcher/support/run_folder.h"

namespace dstrain {
namespace {

using nlohmann::json;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Runs a command of the program, which must end with `status`, in the folder; returns what it said.
std::string said(const RunFolder& folder, const std::string& words, int status = 0) {
  RunningProgram program = folder.start(std::string(DSTRAIN_PROGRAM) + " " + words);
  CAPTURE(words, program.wait(60), program.text());
  CHECK(program.wait(60) == status);
  return program.text();
}

TEST_CASE("check says what a file lacks to train, and a run then asks for the same") {
  const RunFolder folder;
  folder.write("bare.json", R"({"train_batch_size": 8})");
  const std::string bare = said(folder, "check --config bare.json");
  CHECK(has(bare, "1 honoured. This file trains once --data names a file.\n"));
  CHECK(has(bare, "bare.json names no sizes of a model: the default, a GPT-lite of 12 layers of"));
  CHECK(has(said(folder, "--config bare.json", 1), "dstrain.data.path: missing"));
  CHECK(has(said(folder, "check --config c.json"), ". This file trains.\n"));
  CHECK(has(said(folder, "check --config c.json --set dstrain.data.path=no.txt"),
            ". This file trains once no.txt is there.\n"));
}

TEST_CASE("plan, estimate and --largest need no data file, a run does") {
  const RunFolder folder;
  const std::string absent = " --config c.json --device cpu --data no.txt 2>err";
  const std::string first =
      "assumed: a vocabulary of 256, as no.txt is not there (--set dstrain.model.vocab_size=N "
      "gives the size)\n\n";
  CHECK(said(folder, "plan" + absent).starts_with(first + "rank 0 of 1 | "));
  CHECK(said(folder, "estimate" + absent).starts_with(first + "DeepSpeed's estimate"));
  const std::string largest = " --largest --device_memory 1MB --host_memory 1MB";
  CHECK(said(folder, "plan" + absent + largest).starts_with(first + "the largest GPT"));
  const json assumed{{"dstrain.model.vocab_size", 256}};
  CHECK(json::parse(said(folder, "plan --json" + absent))["assumed"] == assumed);
  for (const json& model : json::parse(said(folder, "plan --json" + absent + largest)))
    CHECK(model["assumed"] == assumed);
  CHECK(
      json::parse(said(
          folder, "plan --json --config c.json --data no.bin 2>err"))["assumed"]
                                                                     ["dstrain.model.vocab_size"] ==
      50257);
  CHECK_FALSE(json::parse(said(folder, "plan --json --config c.json 2>err")).contains("assumed"));
  CHECK(has(said(folder, "--config c.json --data no.txt", 1), "no.txt"));
  CHECK(has(said(folder, "check --config c.json --set dstrain.data.format=bin", 1),
            "missing: data of format bin does not say it (GPT-2: 50257)"));
}

}  // namespace
}  // namespace dstrain
