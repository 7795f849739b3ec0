#include "launcher/input/input_facts.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "runtime/core/error.h"
#include "runtime/data/open_dataset.h"
#include "tests/support/models.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

TEST_CASE("facts that differ are named, files too") {
  const InputFacts here{{"dstrain.seed", "1337"}, {"steps", "4"}, {"data", "4 bytes", "/a/t.bin"}};
  InputFacts there{{"dstrain.seed", "8"}, {"steps", "4"}, {"data", "5 bytes", "/b/u.bin"}};
  CHECK(differences(here, here).empty());
  CHECK(differences(here, there) ==
        std::vector<std::string>{"dstrain.seed: 8 there, 1337 here",
                                 "data (t.bin): 5 bytes there, 4 bytes here"});
  there = {{"dstrain.seed", "1337"}, {"steps", "4"}, {"data", "4 bytes", "/elsewhere/t.bin"}};
  CHECK(differences(here, there).empty());
  CHECK(digest_of(here) == digest_of(there));
  there.push_back({"checkpoint", "step 2"});
  CHECK(digest_of(here) != digest_of(there));
  CHECK(differences(here, there) ==
        std::vector<std::string>{"checkpoint: step 2 there, not given here"});
}

TEST_CASE("facts survive the way to another rank, whatever a path holds") {
  const InputFacts facts{{"a", "\"b\"", "/c"}, {"d", "1", "\xff/e"}};
  const InputFacts back = parse_facts(facts_text(facts));
  CHECK(digest_of(back) == digest_of(facts));
  CHECK(differences(facts, back).empty());
  CHECK_THROWS_AS(parse_facts("[[1"), RunError);
}

TEST_CASE("the first adapters are facts, as the first weights are") {
  const TempDir dir;
  dir.write("text.txt", "some text some text some text some text");
  std::filesystem::create_directory(dir / "adapter");
  dir.write("weights", "1");
  Job job;
  job.model = GptLite{.n_layer = 1, .n_embd = 4, .n_head = 1, .block_size = 2, .vocab_size = 7};
  job.data.paths = {dir / "text.txt"};
  job.init_weights = dir / "weights";
  job.adapters.init = dir / "adapter";
  const auto facts_with = [&](const std::string& adapters) {
    dir.write("adapter/adapter_model.safetensors", adapters);
    return input_facts(job, *open_dataset(job));
  };
  const InputFacts facts = facts_with("1");
  const std::vector<std::string> other = differences(facts, facts_with("2"));
  REQUIRE(other.size() == 1);
  CHECK(other.front().starts_with("initial adapters (adapter_model.safetensors): 1 bytes, "));
  dir.write("weights", "12");
  CHECK(differences(facts, facts_with("1")).size() == 1);
}

TEST_CASE("where files lie is no fact, what they hold is") {
  const std::string base = std::string(DSTRAIN_BINARY_DIR) + "/input_facts";
  std::ofstream(base + "1.txt") << "some text some text some text some text";
  std::ofstream(base + "2.txt") << "some text some text some text some text";
  std::ofstream(base + "3.txt") << "text some some text some text some text";
  Job job;
  job.model = GptLite{.n_layer = 1, .n_embd = 4, .n_head = 1, .block_size = 2, .vocab_size = 7};
  const auto facts_of = [&](const std::string& file) {
    job.data.paths = {base + file};
    return input_facts(job, *open_dataset(job));
  };
  const InputFacts facts = facts_of("1.txt");
  job.output = "elsewhere";
  CHECK(digest_of(facts_of("2.txt")) == digest_of(facts));
  CHECK(differences(facts, facts_of("3.txt")).size() == 1);
  job.seed = 2;
  CHECK(differences(facts, facts_of("3.txt")).size() == 2);
  job.init_weights = base + "none";
  CHECK_THROWS_AS(facts_of("1.txt"), UserError);
}

}  // namespace
}  // namespace dstrain
