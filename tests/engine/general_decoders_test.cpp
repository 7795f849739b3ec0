// Decoders written in general ops alone have the plans of the families that are built in, and their numbers.
#include "tests/support/general_decoders.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "runtime/plan/build_model.h"
#include "runtime/plan/passes/passes.h"
#include "tests/engine/test_rank.h"
#include "tests/support/decoders.h"
#include "tests/support/distance.h"
#include "tests/support/general_interpreter.h"

namespace dstrain {
namespace {

constexpr int64_t kVocabulary = 14, kTokens = 8, kBatch = 4;

ModelConfig gpt2_of(const ModelFamily& family) {
  ModelConfig model(family);
  for (const auto& [name, size] : {std::pair{"n_layer", int64_t{2}},
                                   {"n_embd", int64_t{24}},
                                   {"n_head", int64_t{4}},
                                   {"n_positions", kTokens},
                                   {"vocab_size", kVocabulary}})
    model.set(name, size);
  for (const char* const dropout : {"resid_pdrop", "embd_pdrop", "attn_pdrop"})
    model.set(dropout, 0.0);
  model.set("initializer_range", 0.2);
  return model;
}

ModelConfig llama_of(const ModelFamily& family) {
  ModelConfig model(family);
  for (const auto& [name, size] : {std::pair{"num_hidden_layers", int64_t{2}},
                                   {"hidden_size", int64_t{24}},
                                   {"intermediate_size", int64_t{20}},
                                   {"num_attention_heads", int64_t{4}},
                                   {"num_key_value_heads", int64_t{2}},
                                   {"max_position_embeddings", kTokens},
                                   {"vocab_size", kVocabulary}})
    model.set(name, size);
  model.set("initializer_range", 0.2);
  return model;
}

// A model in its two forms.
struct Written {
  std::string name{};
  ModelConfig built_in, general;
};
std::vector<Written> written_models() {
  return {{"GPT-2", gpt2_of(gpt2()), gpt2_of(general_gpt2())},
          {"Llama", llama_of(llama()), llama_of(general_llama())}};
}

Job job_of(const ModelConfig& model, DType dtype = DType::f32) {
  Job job;
  job.model = model;
  job.dtype = job.wire_dtype = dtype;
  job.batch = {.train_batch = kBatch, .micro_batch = kBatch, .accumulation = 1};
  job.gradient_clipping = 0;
  return job;
}

std::vector<std::string> operations(const Program& program) {
  std::vector<std::string> names;
  for (const Instruction& op : program.instructions) names.emplace_back(name_of(op.op));
  return names;
}

// Returns the operations that the forward and the backward pass of a plan have, in order.
std::vector<std::string> planned(const Job& job, bool training) {
  const Backend backend = make_backend(implementations(), DeviceChoice::cpu);
  const RankPlan plans = make_rank_plan(job, place_of(job, job.ranks - 1), {backend.library, 2});
  return operations(training ? plans.train.program : plans.validate.program);
}

}  // namespace

TEST_CASE("plans of general ops have the operations of the families that are built in") {
  for (const auto& [name, built_in, general] : written_models())
    for (const DType dtype : {DType::f32, DType::bf16}) {
      CAPTURE(name, name_of(dtype));
      for (const bool training : {true, false})
        CHECK(planned(job_of(general, dtype), training) ==
              planned(job_of(built_in, dtype), training));
      Job parts = job_of(general, dtype), built_in_parts = job_of(built_in, dtype);
      for (Job* const job : {&parts, &built_in_parts}) {
        job->ranks = job->tensor_ranks = 2;
        job->loss_chunks = 2;
      }
      CHECK(planned(parts, true) == planned(built_in_parts, true));
    }
}

TEST_CASE("losses and gradients of general ops are those of the families, bit for bit") {
  const RandomDataset data(kVocabulary, 0.3);
  for (const auto& [name, built_in, general] : written_models()) {
    CAPTURE(name);
    TestRank expected(job_of(built_in), data), found(job_of(general), data);
    CHECK(found.step(0) == expected.step(0));
    const auto& parameters = expected.plans.train.program.parameters;
    REQUIRE(found.plans.train.program.parameters.size() == parameters.size());
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Parameter& other = found.plans.train.program.parameters[i];
      CAPTURE(other.name);
      REQUIRE(other.name == parameters[i].name);
      const Tensor a = expected.arenas.tensor(expected.plans.train, parameters[i].gradient),
                   b = found.arenas.tensor(found.plans.train, other.gradient);
      CHECK(std::memcmp(a.data, b.data, static_cast<size_t>(a.bytes())) == 0);
    }
  }
}

TEST_CASE(
    "losses and gradients are those of the general ops by their definitions, within rounding") {
  const RandomDataset data(kVocabulary, 0.3);
  for (const auto& [name, built_in, general] : written_models()) {
    CAPTURE(name);
    TestRank found(job_of(general), data);
    const double loss = found.step(0);
    // The same model as it is written, in double precision.
    Program program;
    Builder builder(program, {.batch = kBatch});
    build_model(builder, general);
    backward(program);
    GeneralInterpreter written(program);
    const Program& planned = found.plans.train.program;
    for (size_t i = 0; i < program.parameters.size(); ++i) {
      const Tensor values = found.model.master(planned.parameters[i]).values;
      written[program.parameters[i].value].assign(values.as<float>(),
                                                  values.as<float>() + values.elements());
    }
    for (const ProgramConstant& constant : program.constants) {
      const auto* const values = reinterpret_cast<const float*>(constant.bytes->data());
      written[constant.buffer].assign(values, values + constant.bytes->size() / sizeof(float));
    }
    std::vector<std::vector<int32_t>> values;
    std::vector<InputTensor> tensors;
    for (const ProgramInput& input : program.inputs) {
      const Shape& shape = program.at(input.buffer).shape;
      values.emplace_back(static_cast<size_t>(shape.elements()));
      tensors.push_back({input.name, input.role, {values.back().data(), shape, DType::i32}});
    }
    data.read(Split::train, 0, kBatch, tensors);
    for (size_t i = 0; i < values.size(); ++i)
      written[program.inputs[i].buffer].assign(values[i].begin(), values[i].end());
    const auto targets = static_cast<double>(
        std::ranges::count_if(values.back(), [](int32_t target) { return target >= 0; }));
    double sum = 0;
    for (const Instruction& op : program.instructions) {
      if (op.op != OpKind::sum_loss) {
        written.run(op);
        continue;
      }
      const std::vector<double>& losses = written[op.reads[0]];
      sum = std::accumulate(losses.begin(), losses.end(), 0.0);
      written[op.writes[1]].assign(losses.size(), 1 / targets);
    }
    CHECK(std::abs(loss - sum / targets) < 1e-6 * loss);
    for (size_t i = 0; i < program.parameters.size(); ++i) {
      CAPTURE(planned.parameters[i].name);
      const Tensor gradient =
          found.arenas.tensor(found.plans.train, planned.parameters[i].gradient);
      const std::vector<double>& expected = written[program.parameters[i].gradient];
      double largest = 0, error = 0;
      for (size_t k = 0; k < expected.size(); ++k) {
        largest = std::max(largest, std::abs(expected[k]));
        error =
            std::max(error, std::abs(expected[k] - static_cast<double>(gradient.as<float>()[k])));
      }
      CHECK(largest > 0);
      CHECK(error < 1e-5 * largest);
    }
  }
}

}  // namespace dstrain
