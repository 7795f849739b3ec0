// The derived backward pass against finite differences of the loss itself, for every op that a model
// can hold. Directions are compared, not single elements: the derivative along d is g . d.
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/engine/test_rank.h"
#include "tests/support/decoders.h"
#include "tests/support/models.h"
#include "tests/support/rotary_model.h"

using namespace dstrain;

namespace {

Job gpt_job() {
  Job job;
  job.model = GptLite{
      .n_layer = 2, .n_embd = 30, .n_head = 3, .block_size = 9, .dropout = 0, .vocab_size = 13};
  job.batch = {.train_batch = 6, .micro_batch = 3, .accumulation = 2};
  job.gradient_clipping = 0;
  return job;
}

// Makes weights larger than those of a fresh model, so that gradients are large against rounding errors.
void enlarge(TestRank& test_rank) {
  std::mt19937_64 random(11);
  std::normal_distribution<float> normal(0, 0.3f);
  for (const Parameter& p : test_rank.plans.train.program.parameters) {
    const Tensor t = test_rank.model.master(p).values;
    for (int64_t i = 0; i < t.elements(); ++i) t.as<float>()[i] += normal(random);
  }
}

void check_gradients(const Job& job, double ignored_targets = 0) {
  const RandomDataset data(classes_of(job.model), ignored_targets);
  TestRank test_rank(job, data);
  enlarge(test_rank);
  const Program& program = test_rank.plans.train.program;
  // A relu that switches within the step changes the slope; gelu and silu are smooth.
  const std::string_view type = job.model.family().type;
  const bool smooth =
      type == "rotary" || (type == "gptlite" && job.model.text("activation") == "gelu");
  const double tolerance = smooth ? 2e-3 : 1e-2;
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal;
  for (const Parameter& p : program.parameters) {
    INFO(p.name);
    REQUIRE(p.gradient != kNone);
    test_rank.step(0);  // as the gradient that is there is that of shifted weights
    const Tensor g = test_rank.arenas.tensor(test_rank.plans.train, p.gradient);
    const Tensor w = test_rank.model.master(p).values;
    const auto n = static_cast<size_t>(w.elements());
    const std::vector<float> gradient(g.as<float>(), g.as<float>() + n);
    const std::vector<float> weights(w.as<float>(), w.as<float>() + n);
    double norm = 0;
    for (float v : gradient) norm += static_cast<double>(v) * v;
    norm = std::sqrt(norm);
    REQUIRE(norm > 0);
    for (const bool along_gradient : {true, false}) {
      std::vector<double> direction(n);
      double length = 0, expected = 0;
      for (size_t i = 0; i < n; ++i) {
        direction[i] =
            along_gradient ? gradient[i] : gradient[i] + norm * normal(random) / std::sqrt(n);
        length += direction[i] * direction[i];
      }
      length = std::sqrt(length);
      for (size_t i = 0; i < n; ++i) expected += direction[i] / length * gradient[i];
      const auto loss_at = [&](double t) {
        for (size_t i = 0; i < n; ++i)
          w.as<float>()[i] = static_cast<float>(weights[i] + t * direction[i] / length);
        return test_rank.step(0);
      };
      // Small enough that few relus switch, large enough for the rounding of an f32 forward pass.
      const double h = 2e-3;
      const double slope = (loss_at(h) - loss_at(-h)) / (2 * h);
      std::copy(weights.begin(), weights.end(), w.as<float>());
      CHECK(slope == Approx(expected).epsilon(tolerance).margin(1e-5));
    }
  }
}

}  // namespace

TEST_CASE("gradients of GPT-lite are the loss's slopes") {
  check_gradients(gpt_job());
}

TEST_CASE("gradients with GPT-2's options: gelu, qkv bias, tied head") {
  Job job = gpt_job();
  job.model.set("activation", "gelu");
  job.model.set("qkv_bias", true);
  job.model.set("tied_head", true);
  check_gradients(job);
}

TEST_CASE("gradients with dropout: the backward pass regenerates the forward's masks") {
  Job job = gpt_job();
  job.model.set("dropout", 0.3);
  check_gradients(job);
}

TEST_CASE("gradients where some targets are ignored divide by the counted ones alone") {
  check_gradients(gpt_job(), 0.4);
}

TEST_CASE("gradients through norms of rows and heads, rotated heads and gates") {
  Job job = gpt_job();
  job.model = RotaryModel{};
  check_gradients(job);
}

TEST_CASE("gradients through centred norms, scaled embeddings and limits of scores and logits") {
  Job job = gpt_job();
  job.model = decoder("gemma2", {{"num_key_value_heads", int64_t{2}},
                                 {"head_dim", int64_t{6}},
                                 {"sliding_window", int64_t{4}},
                                 {"query_pre_attn_scalar", int64_t{10}},
                                 {"attn_logit_softcapping", 1.0},
                                 {"final_logit_softcapping", 2.0}});
  check_gradients(job);
}

TEST_CASE("gradients through parts of heads that are rotated, and MLPs beside attention") {
  Job job = gpt_job();
  job.model = decoder("gpt_neox", {{"rope_parameters.partial_rotary_factor", 0.67}});
  check_gradients(job);
}

TEST_CASE("gradients of samples that hold several documents") {
  Job job = gpt_job();
  job.data.packing = Packing::pack;
  job.model.set("activation", "gelu");
  check_gradients(job);
  job.model = RotaryModel{};
  check_gradients(job);
}

TEST_CASE("gradients of the benchmark model") {
  Job job = gpt_job();
  job.model = BenchmarkModel{.n_layer = 3, .in_size = 7, .hidden_size = 33, .out_size = 5};
  check_gradients(job);
}

TEST_CASE("gradients with one token, one sample and odd widths") {
  Job job = gpt_job();
  job.model.set("block_size", 1);
  job.model.set("n_embd", 97);
  job.model.set("n_head", 1);
  job.batch = {1, 1, 1};
  check_gradients(job);
}

TEST_CASE("reducing after every micro-batch gives the gradients of the boundary") {
  const RandomDataset data(13);
  Job job = gpt_job();
  TestRank boundary(job, data);
  boundary.step(0);
  job.reduce = ReduceMode::micro_batch;
  TestRank micro(job, data);
  micro.step(0);
  CHECK(micro.state.grad_norm == Approx(boundary.state.grad_norm).epsilon(1e-6));
  CHECK(micro.state.loss_sum == boundary.state.loss_sum);
}
