#include "runtime/config/solve/solve_batch.h"

#include <catch2/catch.hpp>

#include "tests/config/config_fixture.h"

using namespace dstrain;
using namespace dstrain::test;

namespace {

std::string triple(int64_t train, int64_t micro, int64_t accumulation) {
  std::string text;
  const auto add = [&](const std::string& key, int64_t value) {
    if (value) text += (text.empty() ? "" : ", ") + ("\"" + key + "\": " + std::to_string(value));
  };
  add("train_batch_size", train);
  add("train_micro_batch_size_per_gpu", micro);
  add("gradient_accumulation_steps", accumulation);
  return "{" + text + "}";
}

struct Solved {
  int64_t train, micro, accumulation, ranks;
  BatchConfig expected;
};

}  // namespace

TEST_CASE("batch: two or one of the three give the rest") {
  const Solved c = GENERATE(Solved{32, 16, 1, 2, {32, 16, 1}}, Solved{32, 8, 2, 2, {32, 8, 2}},
                            Solved{32, 8, 0, 2, {32, 8, 2}}, Solved{32, 0, 2, 2, {32, 8, 2}},
                            Solved{0, 8, 2, 2, {32, 8, 2}}, Solved{32, 0, 0, 2, {32, 16, 1}},
                            Solved{0, 8, 0, 2, {16, 8, 1}}, Solved{256, 1, 0, 8, {256, 1, 32}},
                            Solved{0, 3, 5, 7, {105, 3, 5}}, Solved{1, 0, 0, 1, {1, 1, 1}});
  CHECK(ask(triple(c.train, c.micro, c.accumulation), {}, c.ranks).job().batch == c.expected);
}

TEST_CASE("batch: impossible triples show all numbers and valid choices") {
  struct Impossible {
    int64_t train, micro, accumulation, ranks;
    std::string error;
  };
  const Impossible c = GENERATE(
      Impossible{
          33, 17, 2, 2,
          "c.json:1:2: train_batch_size: train_batch_size 33, train_micro_batch_size_per_gpu 17, "
          "gradient_accumulation_steps 2 and 2 ranks (--num_gpus) do not fit: train_batch_size = "
          "train_micro_batch_size_per_gpu x gradient_accumulation_steps x ranks. Valid: "
          "train_batch_size 68 = train_micro_batch_size_per_gpu 17 x gradient_accumulation_steps 2 "
          "x 2 "
          "ranks"},
      Impossible{
          32, 18, 1, 2,
          "c.json:1:2: train_batch_size: train_batch_size 32, train_micro_batch_size_per_gpu 18, "
          "gradient_accumulation_steps 1 and 2 ranks (--num_gpus) do not fit: train_batch_size = "
          "train_micro_batch_size_per_gpu x gradient_accumulation_steps x ranks. Valid: "
          "train_batch_size 36 = train_micro_batch_size_per_gpu 18 x gradient_accumulation_steps 1 "
          "x 2 "
          "ranks; train_batch_size 32 = train_micro_batch_size_per_gpu 16 x "
          "gradient_accumulation_steps 1 x 2 ranks"},
      Impossible{
          8, 2, 0, 3,
          "c.json:1:2: train_batch_size: train_batch_size 8, train_micro_batch_size_per_gpu 2 and "
          "3 "
          "ranks (--num_gpus) do not fit: train_batch_size = train_micro_batch_size_per_gpu x "
          "gradient_accumulation_steps x ranks. Valid: train_batch_size 6 = "
          "train_micro_batch_size_per_gpu 2 x gradient_accumulation_steps 1 x 3 ranks; "
          "train_batch_size 8 = train_micro_batch_size_per_gpu 2 x gradient_accumulation_steps 2 x "
          "2 "
          "ranks"},
      Impossible{
          24, 3, 2, 8,
          "c.json:1:2: train_batch_size: train_batch_size 24, train_micro_batch_size_per_gpu 3, "
          "gradient_accumulation_steps 2 and 8 ranks (--num_gpus) do not fit: train_batch_size = "
          "train_micro_batch_size_per_gpu x gradient_accumulation_steps x ranks. Valid: "
          "train_batch_size 48 = train_micro_batch_size_per_gpu 3 x gradient_accumulation_steps 2 "
          "x 8 "
          "ranks; train_batch_size 24 = train_micro_batch_size_per_gpu 3 x "
          "gradient_accumulation_steps 1 x 8 ranks; train_batch_size 24 = "
          "train_micro_batch_size_per_gpu 3 x gradient_accumulation_steps 2 x 4 ranks"});
  CHECK(ask(triple(c.train, c.micro, c.accumulation), {}, c.ranks).error() == c.error);
}

TEST_CASE("batch: every impossible triple is an error that offers at least one valid triple") {
  for (int64_t train : {1, 7, 12, 33, 64})
    for (int64_t micro : {0, 1, 5, 64})
      for (int64_t accumulation : {0, 1, 3, 64})
        for (int64_t ranks : {1, 2, 5, 64}) {
          INFO(train << " " << micro << " " << accumulation << " " << ranks);
          const Ask a = ask(triple(train, micro, accumulation), {}, ranks);
          const std::string error = a.error();
          if (error == "no error") {
            const BatchConfig b = a.job().batch;
            CHECK(b.train_batch == train);
            CHECK(b.micro_batch * b.accumulation * ranks == train);
            if (micro) CHECK(b.micro_batch == micro);
            if (accumulation) CHECK(b.accumulation == accumulation);
          } else {
            CHECK(error.find("Valid: train_batch_size ") != std::string::npos);
          }
        }
}

TEST_CASE("batch: the source of the number of ranks is named") {
  Ask a = ask(triple(8, 0, 0), {}, 3);
  a.request.ranks_origin = "the world of mpirun";
  CHECK(a.error().find("3 ranks (the world of mpirun) do not fit") != std::string::npos);
}

TEST_CASE("batch: nothing given, or auto everywhere, is what Hugging Face's Trainer takes") {
  const LoadedConfig nothing = ask("{}", {}, 2).load();
  CHECK(nothing.job.batch == BatchConfig{16, 8, 1});
  CHECK(nothing.default_batch);
  CHECK(setting(nothing, "train_micro_batch_size_per_gpu").origin ==
        "derived: Hugging Face's default");
  const LoadedConfig automatic =
      ask(R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
              "gradient_accumulation_steps": "auto"})",
          {}, 4)
          .load();
  CHECK(automatic.job.batch == BatchConfig{32, 8, 1});
  CHECK(automatic.default_batch);
  CHECK(setting(automatic, "train_micro_batch_size_per_gpu").origin ==
        "auto: Hugging Face's default");
  CHECK(ask("{\"gradient_accumulation_steps\": 4}").job().batch == BatchConfig{32, 8, 4});
  CHECK(verdict(ask("{\"train_micro_batch_size_per_gpu\": \"auto\"}").check(),
                "train_micro_batch_size_per_gpu") == "honoured: 8 (auto: Hugging Face's default)");
  const LoadedConfig given =
      ask("{\"train_batch_size\": \"auto\"}", {"train_micro_batch_size_per_gpu=8"}).load();
  CHECK(given.job.batch == BatchConfig{8, 8, 1});
  CHECK_FALSE(given.default_batch);
}

TEST_CASE("batch: auto beside a number counts as absent") {
  const std::string text =
      R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": "auto"})";
  const LoadedConfig loaded = ask(text, {}, 2).load();
  CHECK(loaded.job.batch == BatchConfig{8, 4, 1});
  CHECK(setting(loaded, "train_batch_size").origin ==
        "auto: train_micro_batch_size_per_gpu x gradient_accumulation_steps x 2 ranks");
  CHECK(setting(loaded, "gradient_accumulation_steps").origin == "auto: one micro-batch per step");
}

TEST_CASE("batch: wrong numbers are told once, as what they are") {
  CHECK(ask("{\"train_batch_size\": 0}").error() ==
        "c.json:1:2: train_batch_size: expected an integer from 1 to 2147483647, found 0");
  CHECK(ask("{\"train_batch_size\": \"8\"}").error() ==
        "c.json:1:2: train_batch_size: expected an integer from 1 to 2147483647, found \"8\": "
        "write 8 "
        "without quotes");
  CHECK(ask("{\"train_micro_batch_size_per_gpu\": 1e12}").error() ==
        "c.json:1:2: train_micro_batch_size_per_gpu: expected an integer from 1 to 2147483647, "
        "found 1e+12");
  CHECK(ask(triple(0, 2147483647, 2147483647), {}, 8).error() ==
        "c.json:1:2: train_micro_batch_size_per_gpu: 2147483647 x gradient_accumulation_steps "
        "2147483647 x 8 "
        "ranks does not fit into 64 bits");
}

TEST_CASE("batch: without a number of ranks only what no number could mend is judged") {
  CHECK_FALSE(has_errors(ask(triple(33, 0, 0)).check().verdicts));
  CHECK_FALSE(has_errors(ask(triple(24, 3, 2)).check().verdicts));
  CHECK(verdict(ask(triple(33, 17, 2)).check(), "train_batch_size") ==
        "error: train_batch_size 33 is not a multiple of train_micro_batch_size_per_gpu 17 x "
        "gradient_accumulation_steps 2: no number of ranks fits");
  CHECK(verdict(ask(triple(33, 0, 2)).check(), "train_batch_size") ==
        "error: train_batch_size 33 is not a multiple of gradient_accumulation_steps 2: no number "
        "of ranks fits");
}

TEST_CASE("batch: data_parallel_size must be the number of ranks") {
  const std::string text = trains_with("\"data_parallel_size\": 4");
  CHECK(ask(text, {}, 4).error() == "no error");
  CHECK(ask(text, {}, 2).error() ==
        "c.json:1:2: data_parallel_size: 4 is not the number of ranks, 2 (--num_gpus)");
  CHECK_FALSE(has_errors(ask(text).check().verdicts));
}
