#include "runtime/plan/plan.h"

#include <catch2/catch.hpp>

#include "tests/plan/plans.h"
#include "tests/support/models.h"

using namespace dstrain;

TEST_CASE("GPT-lite with 65 characters and the defaults has 86.7 M parameters") {
  Job job = job_of(GptLite{.vocab_size = 65});
  job.batch = {256, 1, 32};
  const RankPlan rank = make_rank_plan(job, data_place(7, 8), fake_inputs(0, false, false, 2));
  int64_t total = 0;
  for (const Parameter& p : rank.train.program.parameters) total += p.shape.elements();
  CHECK(total == 86'701'056);
  CHECK(rank.train.program.units[1].elements == 7'085'568);
  CHECK(rank.memory.at_peak[0] == 4 * total);
  CHECK(rank.memory.at_peak[1] == 4 * total);
  CHECK(rank.memory.at_peak[2] == 8 * total);
}

TEST_CASE("16-bit runs keep 2 bytes of parameters, 4 of gradients, 12 of optimizer state") {
  Job job = small_job();
  job.dtype = job.wire_dtype = DType::bf16;
  const RankPlan rank = make_rank_plan(job, data_place(0, 2), fake_inputs());
  int64_t padded = 0;
  for (const Unit& u : rank.train.program.units) padded += u.elements;
  CHECK(rank.memory.at_peak[0] == 2 * padded);
  CHECK(rank.memory.at_peak[1] == 4 * padded);
  CHECK(rank.memory.at_peak[2] == 12 * padded);
}

TEST_CASE("wire bytes are the ring's: 2 (N-1)/N of the gradients in the wire dtype") {
  Job job = job_of(GptLite{.vocab_size = 65});
  job.batch = {256, 1, 32};
  const RankPlan f32 = make_rank_plan(job, data_place(0, 8), fake_inputs());
  CHECK(wire_bytes(f32.train) == 2 * 7 * 4 * int64_t{86'701'056} / 8);
  job.wire_dtype = job.dtype = DType::bf16;
  CHECK(wire_bytes(make_rank_plan(job, data_place(0, 8), fake_inputs()).train) ==
        wire_bytes(f32.train) / 2);
}

TEST_CASE("an instruction is issued as often as it says: once a step, or once a micro-batch") {
  const Plan plan = train_plan(small_job(), data_place(1, 2));
  std::vector<std::vector<int32_t>> micros(plan.program.instructions.size());
  for (const Issue& issue : plan.order)
    micros[static_cast<size_t>(issue.instruction)].push_back(issue.micro);
  for (size_t i = 0; i < micros.size(); ++i) {
    const Instruction& op = plan.program.instructions[i];
    CAPTURE(name_of(op.op));
    switch (op.when) {
      case When::step_begin:
      case When::step_end:
        CHECK(micros[i] == std::vector<int32_t>{0});
        break;
      case When::every_micro:
        CHECK(micros[i] == std::vector<int32_t>{0, 1, 2});
        break;
      case When::last_micro:
        CHECK(micros[i] == std::vector<int32_t>{2});
        break;
    }
  }
}

TEST_CASE("the list has the order in which a micro-batch is issued, whatever is brought for it") {
  for (const bool quantized : {false, true})
    for (const OffloadTo to : {OffloadTo::none, OffloadTo::cpu, OffloadTo::nvme})
      for (const int tensor_ranks : {1, 2}) {
        CAPTURE(quantized, static_cast<int>(to), tensor_ranks);
        Job job = sharded_job(3);
        job.tensor_ranks = tensor_ranks;
        job.ranks = 2 * tensor_ranks;
        job.batch = {2 * 2 * 2, 2, 2};
        job.quantize.weights = quantized;
        job.offload.parameters = job.offload.activations = to;
        job.loss_chunks = tensor_ranks;
        const Plan plan = plan_of(job).train;
        int32_t last = -1;
        for (const Issue& issue : plan.order) {
          const When when = plan.program.instructions[static_cast<size_t>(issue.instruction)].when;
          if (issue.micro > 0 || (when != When::every_micro && when != When::last_micro)) continue;
          CHECK(issue.instruction > last);
          last = issue.instruction;
        }
      }
}

TEST_CASE(
    "what is brought for the backward pass shares no memory with what the forward pass keeps") {
  for (const int64_t width : {8, 16, 32})
    for (const int64_t vocabulary : {97, 300, 1000})
      for (const int64_t layers : {1, 2})
        for (const bool tied : {false, true}) {
          CAPTURE(width, vocabulary, layers, tied);
          Job job = sharded_job(3, 2);
          job.model = GptLite{.n_layer = layers,
                              .n_embd = width,
                              .n_head = 2,
                              .block_size = 32,
                              .tied_head = tied,
                              .vocab_size = vocabulary};
          job.offload.parameters = OffloadTo::cpu;
          job.quantize.weights = true;
          CHECK_NOTHROW(plan_of(job));
          job.quantize.weights = false;
          job.tensor_ranks = job.loss_chunks = 2;
          job.batch = {2 * 2, 2, 2};
          CHECK_NOTHROW(plan_of(job));
          job.offload.parameters = OffloadTo::none;
          job.offload.activations = OffloadTo::nvme;
          CHECK_NOTHROW(plan_of(job));
        }
}
