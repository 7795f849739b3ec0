#include "runtime/config/family/divisibility.h"

#include <catch2/catch.hpp>

#include "models/registry.h"
#include "runtime/config/family/family.h"

using namespace dstrain;

namespace {

ModelConfig model_of(const std::string& type) {
  return ModelConfig(*model_registry().find(type));
}

// Returns the numbers of ranks up to `most` without a problem.
template <class F>
std::vector<int> working(int most, F&& problem) {
  std::vector<int> numbers;
  for (int n = 1; n <= most; ++n)
    if (problem(n).empty()) numbers.push_back(n);
  return numbers;
}

}  // namespace

TEST_CASE("divisibility: the sizes of a model come from its family's keys") {
  ModelConfig model = model_of("gptlite");
  model.set("n_head", int64_t{6});
  CHECK(divided_sizes(model, 3) == DividedSizes{6, 6, model.seq_len(), 3});
  model.set("vocab_size", int64_t{65});
  CHECK(divided_sizes(model, 3) == DividedSizes{6, 6, model.seq_len(), 3, 65});
  model = model_of("llama");
  model.set("num_attention_heads", int64_t{12});
  model.set("vocab_size", int64_t{32000});
  CHECK(divided_sizes(model, 0) == DividedSizes{12, 12, model.seq_len(), 0, 32000});
  model.set("num_key_value_heads", int64_t{4});
  CHECK(divided_sizes(model, 0) == DividedSizes{12, 4, model.seq_len(), 0, 32000});
  CHECK(divided_sizes(model_of("benchmark"), 8) == DividedSizes{0, 0, 1, 8});
}

TEST_CASE(
    "divisibility: tensor ranks divide heads, key/value heads and the rows of a micro-batch") {
  const auto numbers = [](const DividedSizes& sizes, int64_t sequence = 1) {
    return working(16, [&](int n) { return tensor_problem(sizes, {sequence, n}); });
  };
  CHECK(numbers({12, 12, 1024, 0}) == std::vector{1, 2, 3, 4, 6, 12});
  CHECK(numbers({12, 4, 1024, 0}) == std::vector{1, 2, 4, 12});
  CHECK(numbers({12, 12, 1024, 1}) == std::vector{1, 2, 4});
  CHECK(numbers({12, 12, 1024, 3}) == std::vector{1, 2, 3, 4, 6, 12});
  CHECK(numbers({12, 12, 6, 1}, 3) == std::vector{1, 2});
  CHECK(numbers({0, 0, 1, 8}) == std::vector{1, 2, 4, 8});
}

TEST_CASE("divisibility: sequence ranks divide tokens and the heads of a tensor rank") {
  const auto numbers = [](const DividedSizes& sizes, int64_t tensor = 1) {
    return working(16, [&](int n) { return sequence_problem(sizes, {n, tensor}); });
  };
  CHECK(numbers({12, 12, 1024, 0}) == std::vector{1, 2, 4});
  CHECK(numbers({12, 12, 12, 0}) == std::vector{1, 2, 3, 4, 6, 12});
  CHECK(numbers({12, 12, 12, 0}, 2) == std::vector{1, 2, 3, 6});
  // Fewer heads of keys and values are copied, each to as many ranks.
  CHECK(numbers({12, 2, 12, 0}) == std::vector{1, 2, 4, 6, 12});
  CHECK(numbers({12, 4, 12, 0}) == std::vector{1, 2, 4, 12});
  CHECK(numbers({12, 4, 12, 0}, 4) == std::vector{1, 3});
}

TEST_CASE("divisibility: a problem says which numbers of ranks work") {
  CHECK(tensor_problem({12, 12, 1024, 1}, {1, 8}) ==
        "the 12 attention heads of the model do not divide among 8 ranks: use 1, 2 or 4");
  CHECK(
      tensor_problem({12, 2, 1024, 0}, {1, 3}) ==
      "the 2 key/value heads of the model can neither be divided among 3 ranks nor each be had by "
      "as many: use 1, 2, 4, 6 or 12");
  CHECK(tensor_problem({4, 4, 6, 1}, {3, 4}) ==
        "a micro-batch of 1 sample of 6 tokens / 3 sequence ranks does not divide among 4 ranks: "
        "use 1 or 2, or another train_micro_batch_size_per_gpu");
  CHECK(sequence_problem({12, 12, 1022, 0}, {4, 1}) ==
        "the 1022 tokens of a sample do not divide among 4 ranks: use 1 or 2, or another "
        "dstrain.data.seq_len");
  CHECK(sequence_problem({12, 12, 1024, 0}, {4, 2}) ==
        "6 attention heads (12 / 2 tensor ranks) do not divide among 4 ranks: use 1 or 2");
  CHECK(sequence_problem({12, 4, 12, 0}, {6, 1}) ==
        "4 key/value heads of 12 attention heads can neither be divided among 6 ranks nor each "
        "copied to as many: use 1, 2, 4 or 12");
  CHECK(tensor_problem({8, 8, 64, 1}, {4, 3}) ==
        "the 8 attention heads of the model do not divide among 3 ranks: use 1 or 2");
  CHECK(tensor_problem({1, 1, 64, 1}, {1, 7}) ==
        "the 1 attention head of the model does not divide among 7 ranks: use 1");
  CHECK(tensor_problem({8, 8, 64, 1, 3}, {1, 4}) ==
        "the model has 3 tokens or labels to tell apart, and each of 4 ranks needs one at least: "
        "use 1 or 2");
  // What heads that do not divide leave is no further problem.
  CHECK(sequence_problem({12, 12, 1024, 0}, {8, 5}).empty());
}
