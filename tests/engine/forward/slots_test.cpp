// Tokens that are generated with the keys and values of earlier ones in slots, against a whole pass for each token: every
// family of transformers' models, and GPT-lite.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "launcher/implementations.h"
#include "models/registry.h"
#include "runtime/config/load.h"
#include "runtime/core/error.h"
#include "runtime/core/formats/safetensors.h"
#include "runtime/engine/forward/generate.h"
#include "runtime/engine/forward/whole_passes.h"
#include "tests/support/models.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const fs::path kGolden = fs::path(DSTRAIN_SOURCE_DIR) / "tests/golden";

// A model with its weights in a folder.
struct Trained {
  std::string name;
  TempDir folder;
  Job job;
  WeightsSource place;
};

std::vector<std::unique_ptr<Trained>> families() {
  std::vector<std::unique_ptr<Trained>> list;
  const json cases = json::parse(std::ifstream(kGolden / "families/cases.json")).at("cases");
  for (const json& one : cases) {
    if (one.at("dstrain").contains("lora") || one.at("dstrain").contains("data")) continue;
    auto model = std::make_unique<Trained>();
    model->name = one.at("name");
    model->folder.write("config.json", one.at("config").dump());
    fs::copy_file(kGolden / "families" / one.at("weights").get<std::string>() / "model.safetensors",
                  model->folder / "model.safetensors");
    model->job = job_of_model_directory(model->folder.path(), {}, model_registry());
    model->place = {.run_dir = model->folder.path(), .option = "--model"};
    list.push_back(std::move(model));
  }
  auto own = std::make_unique<Trained>();
  own->name = "gptlite";
  fs::copy_file(kGolden / "gptlite/init.safetensors", own->folder / "model.safetensors");
  own->job =
      job_of(GptLite{.n_layer = 2, .n_embd = 24, .n_head = 3, .block_size = 13, .vocab_size = 37});
  own->place = {.run_dir = own->folder.path()};
  list.push_back(std::move(own));
  for (const auto& model : list) model->job.device = DeviceChoice::cpu;
  return list;
}

std::unique_ptr<NextToken> slots_of(const Trained& model, const TextSizes& sizes, int threads = 2) {
  return make_next_token(model.job, model.place, implementations(), sizes, threads, {});
}

std::vector<float> logits_of(NextToken& model, std::span<const int32_t> ids, int64_t slot = 0) {
  std::vector<float> logits;
  const NextToken::Text text{slot, ids};
  model.run({&text, 1},
            [&](size_t, std::span<const float> row) { logits.assign(row.begin(), row.end()); });
  return logits;
}

std::vector<int32_t> random_ids(const Trained& model, size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids)
    id = static_cast<int32_t>(random() % static_cast<uint32_t>(model.job.model.vocabulary()));
  return ids;
}

int32_t greedy(const std::vector<float>& logits) {
  return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::ranges::equal(a, b, [](float x, float y) { return dstrain::same_bits(x, y); });
}

TEST_CASE("every family goes on as by whole passes, below its context, at it and beyond") {
  const auto all = families();
  CHECK(all.size() > 10);
  for (const auto& model : all) {
    CAPTURE(model->name);
    const int64_t context = model->job.model.context();
    WholePasses whole(model->job, model->place, implementations(), 2, {});
    for (const size_t length : {size_t{1}, size_t{3}, size_t{7}}) {
      const auto slots =
          slots_of(*model, {.texts = 1, .prompt = static_cast<int64_t>(length), .tokens = context});
      std::vector<int32_t> ids = random_ids(*model, length, static_cast<uint32_t>(length));
      while (static_cast<int64_t>(ids.size()) < context + 3) {
        const std::vector<float> expected = logits_of(whole, ids), got = logits_of(*slots, ids);
        double largest = 0, error = 0;
        for (size_t i = 0; i < expected.size(); ++i) {
          largest = std::max(largest, std::abs(double{expected[i]}));
          error = std::max(error, std::abs(double{expected[i]} - got[i]));
        }
        REQUIRE(error < 1e-5 * largest);
        REQUIRE(greedy(got) == greedy(expected));
        ids.push_back(greedy(expected));
      }
    }
  }
}

TEST_CASE("a text's logits have the same bits alone and beside others, read at once and in turns") {
  for (const auto& model : families()) {
    CAPTURE(model->name);
    const int64_t context = model->job.model.context();
    const auto alone = slots_of(*model, {.texts = 1, .prompt = context, .tokens = 0}, 1);
    const auto beside = slots_of(*model, {.texts = 3, .prompt = 5, .tokens = context}, 3);
    std::vector<std::vector<int32_t>> texts{random_ids(*model, 4, 1), random_ids(*model, 1, 2),
                                            random_ids(*model, 5, 3)};
    while (static_cast<int64_t>(texts[2].size()) < context + 2) {
      const std::vector<NextToken::Text> asked{{2, texts[0]}, {0, texts[1]}, {1, texts[2]}};
      std::vector<std::vector<float>> logits(3);
      beside->run(asked, [&](size_t i, std::span<const float> row) {
        logits[i].assign(row.begin(), row.end());
      });
      for (size_t i = 0; i < 3; ++i) {
        // The text is read whole, as another one was in the slot.
        logits_of(*alone, random_ids(*model, 2, 9));
        REQUIRE(same_bits(logits[i], logits_of(*alone, texts[i])));
        texts[i].push_back(greedy(logits[i]));
      }
    }
  }
}

TEST_CASE("a slot reads what has changed: a shorter text, another end, the same text again") {
  const auto all = families();
  const Trained& model = *all.front();
  const auto used = slots_of(model, {.texts = 1, .prompt = 10, .tokens = 0}),
             fresh = slots_of(model, {.texts = 1, .prompt = 10, .tokens = 0});
  std::vector<int32_t> ids = random_ids(model, 9, 4);
  logits_of(*used, ids);
  const auto check_equal = [&] {
    logits_of(*fresh, random_ids(model, 3, 11));
    CHECK(same_bits(logits_of(*used, ids), logits_of(*fresh, ids)));
  };
  check_equal();
  ids.resize(4);
  check_equal();
  ids.push_back((ids.back() + 1) % 61);
  ids.push_back(ids[0]);
  check_equal();
}

TEST_CASE("generated texts do not depend on which others are generated") {
  const auto all = families();
  const Trained& model = *all.front();
  GenerateRequest request;
  request.place = model.place;
  request.tokens = 6;
  request.threads = 2;
  for (uint32_t i = 0; i < 11; ++i) request.prompts.push_back(random_ids(model, 1 + i % 4, i));
  request.samples = 2;
  const auto texts_of = [&] {
    std::map<std::pair<size_t, int64_t>, std::vector<int32_t>> texts;
    size_t ended = 0;
    generate(
        model.job, request, implementations(),
        [&](const GeneratedText& text, int32_t id) {
          std::vector<int32_t>& ids = texts[{text.prompt, text.sample}];
          ids.push_back(id);
          return id % 7 != 0;  // some end early, and others take their slots
        },
        [&](const GeneratedText&) { ++ended; });
    CHECK(ended == request.prompts.size() * static_cast<size_t>(request.samples));
    return texts;
  };
  const auto together = texts_of();
  CHECK(together.size() == 22);
  const auto prompts = request.prompts;
  for (size_t i = 0; i < prompts.size(); ++i) {
    request.prompts = {prompts[i]};
    const auto alone = texts_of();
    CHECK(alone.at({0, 0}) == together.at({i, 0}));
    CHECK(alone.at({0, 1}) == together.at({i, 1}));
  }
  CHECK(together.at({0, 0}) != together.at({0, 1}));
}

TEST_CASE("fewer texts at a time are taken where memory does not suffice, and one is refused") {
  const auto all = families();
  const Trained& model = *all.front();
  std::vector<int64_t> asked;
  const auto check = [&](int64_t most) {
    asked.clear();
    return make_next_token(model.job, model.place, implementations(),
                           {.texts = 8, .prompt = 5, .tokens = 7}, 1, [&](int64_t bytes) {
                             asked.push_back(bytes);
                             if (bytes > most) throw UserError("too much");
                           });
  };
  CHECK(check(int64_t{1} << 40)->slots() == 8);
  const int64_t eight = asked[0];
  CHECK(check(eight - 1)->slots() == 4);
  CHECK(asked.size() == 2);
  CHECK(asked[1] < eight);
  CHECK_THROWS_AS(check(1), UserError);
  CHECK(asked == std::vector<int64_t>{eight, asked[1], asked[2], asked[3], asked[3]});
  CHECK(asked[3] < asked[2]);
}

// Returns the file of weights with values that are rounded to bf16, as such or as f32.
std::string rounded_file(const std::string& path, bool as_bf16) {
  const std::string bytes = bytes_of_file(path);
  const int64_t header = safetensors_header_bytes(bytes, static_cast<int64_t>(bytes.size()), path);
  SafetensorsHeader all =
      parse_safetensors(std::string_view(bytes).substr(8, static_cast<size_t>(header)),
                        static_cast<int64_t>(bytes.size()), path);
  std::string values;
  for (SafetensorsTensor& tensor : all.tensors) {
    for (int64_t at = tensor.begin; at < tensor.end; at += 4) {
      float value = 0;
      std::memcpy(&value, bytes.data() + at, sizeof value);
      const bf16 rounded = from_float<bf16>(value);
      const float wide = to_float(rounded);
      if (as_bf16)
        values.append(reinterpret_cast<const char*>(&rounded.bits), sizeof rounded.bits);
      else
        values.append(reinterpret_cast<const char*>(&wide), sizeof wide);
    }
    tensor.type = safetensors_type(as_bf16 ? "BF16" : "F32");
  }
  return make_safetensors_header(all.tensors) + values;
}

TEST_CASE("weights of files in 16 bits are read in these, with the bits that they have in f32") {
  auto narrow = families(), wide = families();
  for (size_t i = 0; i < narrow.size(); ++i) {
    CAPTURE(narrow[i]->name);
    const std::string file = narrow[i]->folder / "model.safetensors";
    const std::string in_bf16 = rounded_file(file, true), in_f32 = rounded_file(file, false);
    narrow[i]->folder.write("model.safetensors", in_bf16);
    wide[i]->folder.write("model.safetensors", in_f32);
    CHECK(dtype_of_files(narrow[i]->job, narrow[i]->place) == DType::bf16);
    CHECK(dtype_of_files(wide[i]->job, wide[i]->place) == DType::f32);
    const std::vector<int32_t> ids = random_ids(*narrow[i], 6, 3);
    std::vector<int64_t> bytes;
    const auto model = make_next_token(narrow[i]->job, narrow[i]->place, implementations(),
                                       {.texts = 2, .prompt = 6, .tokens = 0}, 2,
                                       [&](int64_t all) { bytes.push_back(all); });
    const auto logits = logits_of(*model, ids);
    CHECK(same_bits(logits, logits_of(*slots_of(*wide[i], {.texts = 2, .prompt = 6}), ids)));
    // Without memory for copies products read the weights in f32.
    const auto plain = make_next_token(narrow[i]->job, narrow[i]->place, implementations(),
                                       {.texts = 1, .prompt = 6, .tokens = 0}, 2, [&](int64_t all) {
                                         bytes.push_back(all);
                                         if (bytes.size() == 2) throw UserError("too much");
                                       });
    REQUIRE(bytes.size() == 3);
    CHECK(bytes[2] < bytes[1]);
    CHECK(same_bits(logits, logits_of(*plain, ids)));
  }
}

}  // namespace
}  // namespace dstrain
