// Runs with label smoothing, a z-loss and a teacher against PyTorch's in fp64 (make_losses.py), however ranks divide them.
#include <fmt/core.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "runtime/core/dtype.h"
#include "tests/golden/run_program.h"
#include "tests/support/distance.h"

namespace dstrain::golden {
namespace {

using nlohmann::json;

struct Layout {
  const char* name;
  int ranks;
  json changes;
};

// Writes what the teacher of make_losses.py gives to each token of a text: FILE.teacher (docs/formats.md).
void write_teacher(const std::string& text, int64_t tokens, int top_k, int ids) {
  std::ofstream file(text + ".teacher", std::ios::binary);
  for (int64_t i = 0; i < tokens; ++i) {
    for (int j = 0; j < top_k; ++j) {
      const auto id = static_cast<uint32_t>((7 * i + 3 * j * j + 5 * j) % ids);
      file.write(reinterpret_cast<const char*>(&id), sizeof(id));
    }
    for (int j = 0; j < top_k; ++j) {
      const f16 value =
          to_f16(-(1 + 0.5f * static_cast<float>(j) + 0.25f * static_cast<float>((i + j) % 3)));
      file.write(reinterpret_cast<const char*>(&value.bits), sizeof(value.bits));
    }
  }
}

TEST_CASE("smoothed losses and z-losses follow PyTorch's, and validations are without them") {
  constexpr double kTolerance = 1e-5;
  constexpr int kSteps = 8, kValidationSamples = 7;
  const Case golden("gptlite");
  const ScratchFolder scratch;
  const json expected = read_json(golden.folder / "losses.json");
  const Layout layouts[] = {
      {"alone", 1, {{"dstrain", {{"loss_chunks", 3}}}}},
      {"sharded", 2, {{"zero_optimization", {{"stage", 3}}}}},
      {"divided", 3, {{"tensor_parallel", {{"autotp_size", 3}}}}},
  };
  for (const json& expect : expected.at("cases"))
    for (const Layout& layout : layouts) {
      json config = golden.config;
      config.erase("scheduler");
      config["dstrain"]["steps"] = kSteps;
      config["dstrain"]["eval_samples"] = kValidationSamples;
      for (const char* key : {"label_smoothing", "z_loss"}) config["dstrain"][key] = expect.at(key);
      config.merge_patch(layout.changes);
      const std::string label = fmt::format("{} smoothing {} z {}", layout.name,
                                            expect.at("label_smoothing").get<double>(),
                                            expect.at("z_loss").get<double>());
      CAPTURE(label);
      const Run run =
          train(golden, config, scratch, label, {"--num_gpus", std::to_string(layout.ranks)});
      CHECK(largest_relative_distance(expect.at("loss").get<std::vector<double>>(),
                                      run.column("loss")) <= kTolerance);
      CHECK(largest_relative_distance(expect.at("grad_norm").get<std::vector<double>>(),
                                      run.column("grad_norm")) <= kTolerance);
      REQUIRE(run.validations().size() == 1);
      CHECK(run.validations()[0] ==
            Approx(expect.at("val_loss").get<double>()).epsilon(kTolerance));
    }
}

TEST_CASE(
    "runs with a teacher follow PyTorch's, alone and sharded, and validations are without it") {
  constexpr double kTolerance = 1e-5;
  const Case golden("gptlite");
  const ScratchFolder scratch;
  const std::string text = (scratch.path() / "text.txt").string();
  std::filesystem::copy_file(golden.folder / "text.txt", text);
  const json expected = read_json(golden.folder / "losses.json");
  for (const json& expect : expected.at("distill")) {
    const int top_k = expect.at("top_k");
    write_teacher(text, expect.at("tokens"), top_k, expect.at("ids"));
    std::string weights;
    for (const Layout& layout :
         {Layout{"alone", 1, json::object()}, Layout{"ranks", 2, json::object()},
          Layout{"sharded", 2, {{"zero_optimization", {{"stage", 3}}}}},
          Layout{"pipeline", 2, {{"pipeline", {{"stages", 2}}}}}}) {
      Case taught = golden;
      taught.data = {"--data", text};
      json config = golden.config;
      config.erase("scheduler");
      config["dstrain"]["steps"] = 8;
      config["dstrain"]["eval_samples"] = 7;
      config["dstrain"]["reduce"] = "boundary";
      config["dstrain"]["objective"] = {
          {"type", "distill"}, {"kd_ratio", expect.at("kd_ratio")}, {"teacher_top_k", top_k}};
      config.merge_patch(layout.changes);
      const std::string label = fmt::format("{} of {}", layout.name, top_k);
      CAPTURE(label);
      const Run run =
          train(taught, config, scratch, label, {"--num_gpus", std::to_string(layout.ranks)});
      for (const char* const key : {"loss", "grad_norm", "ce_loss", "kd_loss"}) {
        CAPTURE(key);
        CHECK(largest_relative_distance(expect.at(key).get<std::vector<double>>(),
                                        run.column(key)) <= kTolerance);
      }
      REQUIRE(run.validations().size() == 1);
      CHECK(run.validations()[0] ==
            Approx(expect.at("val_loss").get<double>()).epsilon(kTolerance));
      if (layout.ranks != 2) continue;
      const std::string bytes = read_bytes(run.output / "model.safetensors");
      if (layout.name == std::string("ranks")) weights = bytes;
      if (layout.name == std::string("sharded")) CHECK(bytes == weights);
    }
  }
}

}  // namespace
}  // namespace dstrain::golden
