// dstrain teach, and runs that learn of what it writes.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/core/dtype.h"
#include "tests/launcher/support/text_folder.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr size_t kIds = 1000, kBytesOfValue = 6;

// What FILE.teacher has of a token.
struct Taught {
  std::vector<uint32_t> ids;
  std::vector<double> log_probs;
};

// A folder with a teacher, trained for some steps, and tokens of conversations and of a text.
struct TeachFolder : TextFolder {
  TeachFolder() {
    std::string lines;
    for (int i = 0; i < 9; ++i)
      lines += json_line("the fox " + std::to_string(i) + " jumps over it" +
                         (i % 3 == 0 ? " and over all the others that sleep there" : ""));
    write("texts.jsonl", lines);
    for (const char* const name : {"texts.jsonl", "text.txt"})
      said(std::string(kProgram) + " tokenize --model m --data " + name + " --output " +
           (std::string(name) == "text.txt" ? "text.bin" : "texts.bin"));
    run("--steps 3 --set dstrain.seed=9 --set optimizer.type=AdamW --set optimizer.params.lr=0.01");
    fs::rename(root / "out", root / "teacher");
  }
  std::string teach(const std::string& options, int status = 0) const {
    return said(std::string(kProgram) + " teach --model teacher " + options, status);
  }
  std::string learn(const std::string& options, int status = 0) const {
    return run(
        "--set dstrain.objective.type=distill --set dstrain.data.val_fraction=0.2 "
        "--set optimizer.type=AdamW --set optimizer.params.lr=0.01 " +
            options,
        status);
  }
  std::vector<Taught> taught(const std::string& file, size_t top_k) const {
    const std::string bytes = read(file);
    std::vector<Taught> all(bytes.size() / (kBytesOfValue * top_k));
    const char* from = bytes.data();
    for (Taught& token : all) {
      token.ids.resize(top_k);
      std::memcpy(token.ids.data(), from, 4 * top_k);
      for (size_t i = 0; i < top_k; ++i) {
        f16 value{};
        std::memcpy(&value.bits, from + 4 * top_k + 2 * i, 2);
        token.log_probs.push_back(static_cast<double>(to_float(value)));
      }
      from += kBytesOfValue * top_k;
    }
    return all;
  }
  json first_step() const {
    std::istringstream lines(read("out/metrics.jsonl"));
    std::string line;
    std::getline(lines, line);
    return json::parse(line);
  }
};

TEST_CASE("a teacher's file has the likeliest tokens and their log-probabilities") {
  const TeachFolder folder;
  CHECK(has(folder.teach("--data text.bin --seq_len 8 --top_k 5"), "5 log-probabilities of "));
  const std::vector<Taught> taught = folder.taught("text.bin.teacher", 5);
  // The logits of the first window, by eval.
  folder.said(std::string(kProgram) +
              " eval --model teacher --data text.bin --seq_len 8 --logits l.safetensors 2>err");
  const std::string bytes = folder.read("l.safetensors");
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof(header));
  std::vector<float> logits((bytes.size() - 8 - header) / sizeof(float));
  std::memcpy(logits.data(), bytes.data() + 8 + header, logits.size() * sizeof(float));
  REQUIRE(logits.size() == 8 * kIds);
  for (size_t t = 0; t < 8; ++t) {
    CAPTURE(t);
    const float* const row = logits.data() + t * kIds;
    double sum = 0;
    for (size_t i = 0; i < kIds; ++i) sum += std::exp(double{row[i]});
    std::vector<uint32_t> order(kIds);
    for (size_t i = 0; i < kIds; ++i) order[i] = static_cast<uint32_t>(i);
    std::ranges::stable_sort(order, [row](uint32_t a, uint32_t b) { return row[a] > row[b]; });
    CHECK(taught[t].ids == std::vector<uint32_t>(order.begin(), order.begin() + 5));
    for (size_t i = 0; i < 5; ++i)
      CHECK(taught[t].log_probs[i] == Approx(double{row[order[i]]} - std::log(sum)).epsilon(1e-3));
  }
}

TEST_CASE("documents are taught from their beginnings, and tokens that no sample has are not") {
  const TeachFolder folder;
  folder.teach("--data texts.bin --seq_len 8 --top_k 3");
  const std::vector<Taught> by_document = folder.taught("texts.bin.teacher", 3);
  folder.teach("--data texts.bin --seq_len 8 --top_k 3 --windows --output windows.teacher");
  const std::vector<Taught> by_window = folder.taught("windows.teacher", 3);
  REQUIRE(by_document.size() == by_window.size());
  const std::string begins = folder.read("texts.bin.documents");
  std::vector<uint64_t> at(begins.size() / 8);
  std::memcpy(at.data(), begins.data(), begins.size());
  CHECK(by_document[0].log_probs == by_window[0].log_probs);
  bool differ = false, untaught = false;
  for (size_t d = 0; d + 1 < at.size(); ++d)
    for (uint64_t t = at[d]; t < at[d + 1]; ++t) {
      const bool inside = t - at[d] < 8;
      CHECK(std::isinf(by_document[t].log_probs[0]) == !inside);
      untaught |= !inside;
      differ |= by_document[t].ids != by_window[t].ids;
    }
  CHECK(differ);
  CHECK(untaught);
}

// A sample holds several documents, each with a context of its own.
TEST_CASE(
    "a document is taught the same alone and beside others, and its record says which data it is "
    "of") {
  const TeachFolder folder;
  folder.write("one.jsonl", json_line("the fox 1 jumps over it"));
  folder.said(std::string(kProgram) + " tokenize --model m --data one.jsonl --output one.bin");
  folder.teach("--data one.bin --seq_len 64 --top_k 4");
  const std::vector<Taught> alone = folder.taught("one.bin.teacher", 4);
  CHECK(has(folder.teach("--data texts.bin --seq_len 64 --top_k 4"), "in 6 samples"));
  const std::vector<Taught> all = folder.taught("texts.bin.teacher", 4);
  const std::string begins = folder.read("texts.bin.documents");
  uint64_t second = 0;
  std::memcpy(&second, begins.data() + sizeof(second), sizeof(second));
  for (size_t t = 0; t < alone.size(); ++t) {
    CAPTURE(t);
    CHECK(all[second + t].ids == alone[t].ids);
    for (size_t i = 0; i < 4; ++i)
      CHECK(all[second + t].log_probs[i] == Approx(alone[t].log_probs[i]).epsilon(2e-3));
  }
  const json record = json::parse(folder.read("texts.bin.teacher.json"));
  CHECK(record["documents"].is_string());
  const std::string options =
      "--data texts.bin --set dstrain.objective.teacher_top_k=4 --set dstrain.data.packing=";
  CHECK_FALSE(has(folder.learn(options + "pack"), "nothing says of which data"));
  fs::remove_all(folder.root / "out");
  CHECK(has(only_error(folder.learn(options + "none", 1)), "was asked about documents"));
  std::string ids = folder.read("texts.bin");
  ids[0] ^= 1;
  folder.write("texts.bin", ids);
  fs::remove(folder.root / "texts.bin.sums");
  CHECK(has(only_error(folder.learn(options + "pack", 1)), "is of other data than texts.bin has"));
  CHECK_FALSE(fs::exists(folder.root / "out"));
  fs::remove(folder.root / "texts.bin.teacher.json");
  CHECK(has(folder.learn(options + "pack"), "nothing says of which data texts.bin.teacher is"));
}

TEST_CASE("a run learns of a teacher, alike at every stage, and goes on") {
  const TeachFolder folder;
  folder.teach("--data texts.bin --seq_len 8 --top_k 16");
  const std::string data =
      "--data texts.bin --set dstrain.data.packing=pack --set dstrain.objective.teacher_top_k=16 ";
  const std::string two = data + "--num_gpus 2 --set dstrain.reduce=boundary ";
  const std::string four = two + "--steps 4 ";
  folder.learn(four + "--set zero_optimization.stage=0");
  const std::string expected = folder.read("out/model.safetensors");
  const json step = folder.first_step();
  CHECK(step["loss"].get<double>() ==
        Approx((step["ce_loss"].get<double>() + step["kd_loss"].get<double>()) / 2).epsilon(1e-6));
  CHECK(step["kd_loss"].get<double>() > 0);
  for (const std::string options :
       {"--set zero_optimization.stage=2", "--set zero_optimization.stage=3",
        "--set zero_optimization.stage=3 --set zero_optimization.offload_optimizer.device=cpu"}) {
    CAPTURE(options);
    folder.learn(four + options);
    CHECK(folder.read("out/model.safetensors") == expected);
  }
  folder.learn(two + "--set zero_optimization.stage=0 --steps 2 --save_interval 1");
  folder.said(std::string(kProgram) + " --resume out --steps 4");
  CHECK(folder.read("out/model.safetensors") == expected);
  // A teacher that is the run's own model teaches nothing at first: what is left is its rounding and its tail.
  folder.said(std::string(kProgram) +
              " --config t.json --model teacher --overwrite --output out --steps 1 "
              "--set dstrain.objective.type=distill --set dstrain.objective.kd_ratio=1 " +
              data);
  CHECK(std::abs(folder.first_step()["kd_loss"].get<double>()) < 1e-2);
  CHECK(json::parse(folder.said(std::string(kProgram) +
                                    " verify --json --config t.json --model m --num_gpus 2 --set "
                                    "zero_optimization.stage=3 "
                                    "--set dstrain.objective.type=distill " +
                                    data,
                                0, " 2>err"))["equal"] == true);
  CHECK(has(folder.said(std::string(kProgram) +
                        " plan --config t.json --model m --set "
                        "dstrain.objective.type=distill " +
                        data),
            "log_probs"));
  CHECK(folder.nothing_left());
}

TEST_CASE("what a teacher cannot be, and cannot teach, is one error") {
  const TeachFolder folder;
  const auto refused = [&folder](const std::string& options, const std::string& message) {
    CAPTURE(options);
    CHECK(has(folder.learn(options, 1), message));
    CHECK_FALSE(fs::exists(folder.root / "out"));
  };
  refused("--data text.bin", "there is no text.bin.teacher");
  folder.teach("--data text.bin --seq_len 8 --top_k 4");
  refused("--data text.bin", "set the key to 4");
  refused("--data text.bin --set dstrain.objective.teacher_top_k=4 --set dstrain.objective.beta=1",
          "distill has no such setting");
  refused("--data text.bin --set dstrain.objective.teacher_top_k=4 --set dstrain.z_loss=0.1",
          "is of the loss of next tokens");
  refused(
      "--data text.bin --set dstrain.objective.teacher_top_k=4 --num_gpus 2 "
      "--set tensor_parallel.autotp_size=2",
      "a loss with a teacher does not run with tensor_parallel.autotp_size above 1 yet");
  CHECK(has(folder.teach("--data text.bin --top_k 1001", 1), "--top_k 1001: the model has"));
  CHECK(has(folder.teach("--data text.txt", 1), "text.txt"));
  CHECK(has(folder.teach("--data text.bin --output m", 1), "--output m is a directory"));
}

}  // namespace
}  // namespace dstrain
