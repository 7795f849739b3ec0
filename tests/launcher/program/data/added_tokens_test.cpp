// Runs of a model from a folder of Hugging Face with a larger vocabulary than its weights have.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "tests/launcher/support/text_folder.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t kIds = 606, kWidth = 16;
const std::string kTokens = R"( --set 'dstrain.model.added_tokens=["<|a|>", "<|b|>"]' )";

// A folder whose model, trained, has as many ids as its tokenizer.
struct TrainedFolder : TextFolder {
  explicit TrainedFolder(bool tied = false) {
    json config = json::parse(read("m/config.json"));
    config["vocab_size"] = kIds;
    config["tie_word_embeddings"] = tied;
    write("m/config.json", config.dump());
    write("text.txt", read("text.txt") + "<|a|> one <|b|> two <|a|>\n");
    run("--steps 1");
    fs::rename(root / "out", root / "trained");
  }
  std::string train(const std::string& options, int status = 0) const {
    return said(std::string(kProgram) + " --config t.json --model trained --overwrite " + token() +
                    " " + options,
                status);
  }
  json config() const { return json::parse(read("out/config.json")); }
};

std::vector<float> table_of(const TextFolder& folder, const std::string& run,
                            const std::string& name) {
  const std::string bytes = folder.read(run + "/model.safetensors");
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const json offsets = json::parse(bytes.substr(8, header)).at(name).at("data_offsets");
  const auto begin = offsets[0].get<size_t>(), end = offsets[1].get<size_t>();
  std::vector<float> values((end - begin) / sizeof(float));
  std::memcpy(values.data(), bytes.data() + 8 + header + begin, end - begin);
  return values;
}

TEST_CASE("new rows begin as the mean of the others, in the head too") {
  const bool tied = GENERATE(false, true);
  CAPTURE(tied);
  const TrainedFolder folder(tied);
  CHECK(has(folder.train("--steps 0" + kTokens), "vocabulary: 608 ids; rows 606 to 607"));
  CHECK(folder.config()["vocab_size"] == kIds + 2);
  CHECK_FALSE(folder.config().contains("added_tokens"));
  std::vector<std::string> tables{"model.embed_tokens.weight"};
  if (!tied) tables.emplace_back("lm_head.weight");
  for (const std::string& name : tables) {
    CAPTURE(name);
    const std::vector<float> before = table_of(folder, "trained", name),
                             after = table_of(folder, "out", name);
    REQUIRE(before.size() == kIds * kWidth);
    REQUIRE(after.size() == (kIds + 2) * kWidth);
    CHECK(std::equal(before.begin(), before.end(), after.begin()));
    for (size_t column = 0; column < kWidth; ++column) {
      double sum = 0;
      for (size_t row = 0; row < kIds; ++row) sum += double{before[row * kWidth + column]};
      for (size_t row = kIds; row < kIds + 2; ++row)
        CHECK(after[row * kWidth + column] == static_cast<float>(sum / kIds));
    }
  }
}

TEST_CASE("added tokens are those of the run, of its files and of what goes on from them") {
  const TrainedFolder folder;
  folder.train("--steps 2 --save_interval 1 --set dstrain.save_last=true" + kTokens);
  const json tokenizer = json::parse(folder.read("out/tokenizer.json"));
  CHECK(tokenizer["added_tokens"].back()["content"] == "<|b|>");
  CHECK(tokenizer["added_tokens"].back()["id"] == kIds + 1);
  // The ids of the text are those that the run's own tokenizer makes.
  folder.said(std::string(kProgram) + " tokenize --model out --data text.txt --output own.bin");
  CHECK(folder.read("out/cache/text.txt.bin") == folder.read("own.bin"));
  CHECK(folder.evaluated("text.txt").contains("loss"));
  CHECK_FALSE(folder.generated("--prompt '<|a|> one' --tokens 3").empty());
  // A run that goes on knows them by its own settings.
  fs::copy(folder.root / "out", folder.root / "kept", fs::copy_options::recursive);
  folder.said(std::string(kProgram) + " --resume out --steps 4");
  const std::string weights = folder.read("out/model.safetensors");
  folder.train("--steps 4" + kTokens);
  CHECK(folder.read("out/model.safetensors") == weights);
  // The output is a model that has them.
  const std::string again =
      folder.said(std::string(kProgram) + " --config t.json --model kept --steps 1 --output more");
  CHECK_FALSE(has(again, "vocabulary: 608 ids; rows"));
  CHECK(json::parse(folder.read("more/config.json"))["vocab_size"] == kIds + 2);
  CHECK(folder.nothing_left());
}

TEST_CASE("ranks and stages make the same rows") {
  const TrainedFolder folder;
  const std::string config = "--steps 2" + kTokens;
  folder.train("--num_gpus 1" + std::string(" ") + config);
  const std::string one = folder.read("out/config.json");
  folder.train("--num_gpus 2 --set zero_optimization.stage=0 " + config);
  const std::string weights = folder.read("out/model.safetensors");
  CHECK(folder.read("out/config.json") == one);
  for (const char* const stage : {"1", "3"}) {
    CAPTURE(stage);
    folder.train("--num_gpus 2 --set dstrain.reduce=boundary --set zero_optimization.stage=" +
                 std::string(stage) + " " + config);
    CHECK(folder.read("out/model.safetensors") == weights);
  }
}

TEST_CASE("a tokenizer with more ids than the weights, and a given size, grow the tables") {
  const TrainedFolder folder;
  CHECK(has(folder.train("--steps 0 --set dstrain.model.vocab_size=640"),
            "vocabulary: 640 ids; rows 606 to 639"));
  CHECK(folder.config()["vocab_size"] == 640);
  json tokenizer = llama_tokenizer();
  tokenizer["added_tokens"].push_back({{"id", kIds}, {"content", "<pad>"}, {"special", true}});
  folder.write("trained/tokenizer.json", tokenizer.dump());
  CHECK(has(folder.train("--steps 0"), "vocabulary: 607 ids; rows 606 to 606"));
  const json values = json::parse(folder.read("out/resolved_config.json"))["values"];
  CHECK(values["dstrain.model.vocab_size"]["value"] == kIds + 1);
  CHECK(values["dstrain.model.vocab_size"]["origin"] == "derived: the ids of the tokenizer");
  const json planned = json::parse(folder.said(
      std::string(kProgram) + " check --json --config t.json --model trained 2>/dev/null"));
  CHECK_FALSE(planned.empty());
  // Adapters leave the tables as they are.
  CHECK_FALSE(has(folder.train("--steps 0 --set dstrain.lora.r=2"), "vocabulary: 607"));
}

TEST_CASE("adapters train new rows beside them where the tables are trained as a whole") {
  const bool tied = GENERATE(false, true);
  CAPTURE(tied);
  const TrainedFolder folder(tied);
  const std::string lora =
      "--set dstrain.lora.r=2 --set 'dstrain.lora.modules_to_save=[\"embed_tokens\", "
      "\"lm_head\"]' ";
  folder.train("--steps 2 --save_interval 1 " + lora + kTokens);
  CHECK(has(folder.read("out/adapter_model.safetensors"),
            "base_model.model.model.embed_tokens.weight"));
  CHECK(has(folder.read("out/adapter_model.safetensors"), "base_model.model.lm_head.weight"));
  CHECK_FALSE(fs::exists(folder.root / "out/model.safetensors"));
  const json loss = folder.evaluated("text.txt");
  CHECK_FALSE(folder.generated("--prompt '<|a|> one' --tokens 3").empty());
  const std::string adapters = folder.read("out/adapter_model.safetensors");
  // A run that goes on, two ranks at stage 3, and the merged model.
  folder.train("--steps 1 --save_interval 1 " + lora + kTokens);
  folder.said(std::string(kProgram) +
              " --resume out --num_gpus 2 --steps 2 --set zero_optimization.stage=3");
  const auto close = [&](const std::string& words) {
    return json::parse(folder.said(std::string(kProgram) + " eval --json --data text.txt " + words,
                                   0, " 2>err"))["loss"]
        .get<double>();
  };
  CHECK(close("--run out") == Approx(loss["loss"].get<double>()).epsilon(1e-5));
  folder.train("--steps 2 " + lora + kTokens);
  CHECK(folder.read("out/adapter_model.safetensors") == adapters);
  folder.said(std::string(kProgram) + " export out --merge --output merged");
  CHECK(close("--model merged --seq_len 8") == Approx(loss["loss"].get<double>()).epsilon(1e-6));
  CHECK(json::parse(folder.read("merged/config.json"))["vocab_size"] == kIds + 2);
  const std::string saved = "--steps 2 --save_interval 2 " + lora + kTokens;
  for (const std::string from : {"out", "out/checkpoints/step_2"}) {
    CAPTURE(from);
    folder.train(saved);
    folder.said(std::string(kProgram) + " export " + from +
                " --format peft --overwrite --output peft");
    CHECK(folder.read("peft/adapter_model.safetensors") == adapters);
  }
  CHECK(folder.nothing_left());
}

TEST_CASE("a vocabulary that a run cannot have is one error before anything is written") {
  const TrainedFolder folder;
  const auto refused = [&folder](const std::string& options, const std::string& message) {
    CAPTURE(options);
    const std::string said = folder.train(options, 1);
    CHECK(has(said, message));
    CHECK_FALSE(fs::exists(folder.root / "out"));
  };
  refused("--set dstrain.model.vocab_size=605", "605 is less than the 606 of the model");
  refused("--set dstrain.lora.r=2" + kTokens,
          "dstrain.lora would leave the new rows as they begin");
  refused("--set dstrain.lora.r=2 --set dstrain.lora.modules_to_save=lm_head" + kTokens,
          "([\"embed_tokens\", \"lm_head\"])");
  refused("--set dstrain.lora.r=2 --set dstrain.lora.modules_to_save=wte",
          "no module has a name that ends in \"wte\"");
  refused("--set 'dstrain.model.added_tokens=[\"\"]'", "a token is empty");
  const std::string fresh = folder.said(
      std::string(kProgram) + " --config t.json --model llama " + folder.token() + kTokens, 1);
  CHECK(has(fresh, "there is no tokenizer that has tokens added"));
  fs::remove(folder.root / "trained/tokenizer.json");
  refused(kTokens, "there is no tokenizer.json");
}

}  // namespace
}  // namespace dstrain
