#include "runtime/plan/pipeline/partition.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>

#include "runtime/core/error.h"
#include "runtime/plan/build_model.h"
#include "tests/support/models.h"

using namespace dstrain;

namespace {

using List = std::vector<int64_t>;

// The model's layers as partition_by takes them: units with their parameters.
std::vector<LayerSize> layers_of(const ModelConfig& config) {
  Program program;
  Builder builder(program, {});
  build_model(builder, config);
  std::vector<LayerSize> layers;
  for (const Unit& unit : program.units) {
    LayerSize& layer = layers.emplace_back();
    layer.name = unit.name;
    for (const int index : unit.parameters)
      layer.parameters += program.parameters[static_cast<size_t>(index)].shape.elements();
  }
  return layers;
}

std::vector<LayerSize> layers_with_work(const std::vector<double>& work) {
  std::vector<LayerSize> layers;
  for (const double value : work)
    layers.push_back({"layer", 1, value, static_cast<int64_t>(100 * value)});
  return layers;
}

// The largest part of the best of all divisions into parts that are not empty.
double least_maximum(const std::vector<double>& work, int parts, size_t first = 0) {
  double best = 1e9, sum = 0;
  for (size_t last = first + 1; last <= work.size(); ++last) {
    sum += work[last - 1];
    if (parts > 1)
      best = std::min(best, std::max(sum, least_maximum(work, parts - 1, last)));
    else if (last == work.size())
      best = sum;
  }
  return best;
}

double largest(const std::vector<double>& work, const List& first) {
  double most = 0;
  for (size_t part = 0; part + 1 < first.size(); ++part) {
    double sum = 0;
    for (int64_t i = first[part]; i < first[part + 1]; ++i) sum += work[static_cast<size_t>(i)];
    most = std::max(most, sum);
  }
  return most;
}

}  // namespace

TEST_CASE("partition: uniform is DeepSpeed's") {
  CHECK(partition_uniform(10, 4) == List{0, 3, 6, 8, 10});
  CHECK(partition_uniform(11, 4) == List{0, 3, 6, 9, 11});
  CHECK(partition_uniform(8, 4) == List{0, 2, 4, 6, 8});
  CHECK(partition_uniform(3, 3) == List{0, 1, 2, 3});
  CHECK(partition_uniform(2, 4) == List{0, 1, 2, 2, 2});
}

TEST_CASE("partition: balanced is DeepSpeed's") {
  CHECK(partition_balanced(List(8, 1), 3) == List{0, 3, 6, 8});
  CHECK(partition_balanced({10, 1, 1, 1, 1, 1, 1, 10}, 3) == List{0, 1, 7, 8});
  CHECK(partition_balanced({0, 1, 1, 1, 1, 0, 0}, 2) == List{0, 3, 7});
  CHECK(partition_balanced({0, 1, 1, 1, 1, 0}, 4) == List{0, 2, 3, 4, 6});
  CHECK(partition_balanced({5, 1, 1, 1, 5}, 2) == List{0, 3, 5});
  CHECK(partition_balanced({100, 10, 10, 10, 10, 100}, 4) == List{0, 1, 3, 5, 6});
  CHECK(partition_balanced(List(24, 1), 5) == List{0, 5, 10, 15, 20, 24});
  CHECK(partition_balanced({0, 0, 1, 1, 1, 1, 1, 1, 0, 0}, 3) == List{0, 4, 6, 10});
  CHECK(partition_balanced({0, 1, 2, 3, 3, 3}, 4) == List{0, 3, 4, 5, 6});
  CHECK(partition_balanced({7, 1, 1}, 3) == List{0, 1, 2, 3});
  CHECK(partition_balanced({7, 1}, 3) == List{0, 1, 2, 2});
  CHECK(partition_balanced({7, 1}, 1) == List{0, 2});
}

TEST_CASE("partition: GPT-lite on four stages by parameters") {
  const std::vector<LayerSize> layers = layers_of(GptLite{.vocab_size = 65});
  REQUIRE(layers.size() == 14);
  const List first = partition_by("parameters", layers, 4);
  List parameters;
  for (size_t part = 0; part < 4; ++part) {
    int64_t& sum = parameters.emplace_back(0);
    for (int64_t i = first[part]; i < first[part + 1]; ++i)
      sum += layers[static_cast<size_t>(i)].parameters;
  }
  CHECK(first == List{0, 4, 7, 10, 14});
  CHECK(parameters == List{22879488, 21256704, 21256704, 21308160});
}

TEST_CASE("partition: by the layers' names") {
  const std::vector<LayerSize> layers =
      layers_of(GptLite{.n_layer = 4, .n_embd = 8, .n_head = 2, .block_size = 4, .vocab_size = 5});
  CHECK(partition_by("type:BLOCKS", layers, 2) == partition_balanced({0, 1, 1, 1, 1, 0}, 2));
  CHECK(partition_by("type:blocks\\.[13]$", layers, 2) ==
        partition_balanced({0, 0, 1, 0, 1, 0}, 2));
  CHECK(partition_by("uniform", layers, 4) == List{0, 2, 4, 5, 6});
  CHECK_THROWS_WITH(partition_by("type:attention", layers, 2),
                    "\"type:attention\": no layer has such a name; the layers are "
                    "embedding, blocks.0, blocks.1, blocks.2, blocks.3, head");
  CHECK_THROWS_WITH(
      partition_by("type:attention",
                   layers_of(GptLite{
                       .n_layer = 9, .n_embd = 8, .n_head = 2, .block_size = 4, .vocab_size = 5}),
                   2),
      Catch::EndsWith("the layers are embedding, blocks.0, blocks.1, blocks.2, ..., head"));
  CHECK_THROWS_AS(partition_by("type:attention", layers, 2), UserError);
  CHECK_THROWS_WITH(partition_by("type:(", layers, 2),
                    Catch::StartsWith("\"type:(\": expected a regular expression"));
  CHECK_THROWS_AS(partition_by("type:(", layers, 2), UserError);
  CHECK_THROWS_WITH(partition_by("best", layers, 2),
                    "\"best\": expected uniform, parameters, type:REGEX, memory, time, or "
                    "a list of first layers");
  CHECK_THROWS_AS(partition_by("best", layers, 2), UserError);
}

TEST_CASE("partition: by time the largest part is as small as it can be") {
  const std::vector<std::vector<double>> lists = {
      {1, 2, 3, 4, 5, 6, 7},    {9, 1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 9},
      {3, 0, 0, 5, 2, 2, 8, 1}, {0.5, 0.25, 4, 4, 0.125}, {0, 0, 0, 0, 0, 0}};
  for (const std::vector<double>& work : lists)
    for (int parts = 1; parts <= 4; ++parts) {
      const List first = partition_by("time", layers_with_work(work), parts);
      CHECK(largest(work, first) == least_maximum(work, parts));
      CHECK(first.front() == 0);
      CHECK(first.back() == static_cast<int64_t>(work.size()));
      CHECK(std::adjacent_find(first.begin(), first.end(), std::greater_equal<>()) == first.end());
    }
  CHECK(partition_by("time", layers_with_work({9, 1, 1, 1, 1, 1, 1}), 3) == List{0, 1, 4, 7});
  CHECK(partition_by("time", layers_with_work({1, 1}), 3) == List{0, 1, 2, 2});
}

TEST_CASE("partition: by memory, with or without micro-batches in flight") {
  const std::vector<LayerSize> layers = layers_with_work({1, 1, 1, 1, 1, 1});
  CHECK(partition_by("memory", layers, 2) == List{0, 3, 6});
  // The first stage holds two micro-batches of each layer.
  CHECK(partition_by("memory", layers, 2, [](int part, int64_t first, int64_t last) {
          return (last - first) * (part == 0 ? 200 : 100);
        }) == List{0, 2, 6});
}
