#include <catch2/catch.hpp>
#include <map>

#include "models/registry.h"
#include "tests/plan/plans.h"

using namespace dstrain;

namespace {

// A job whose parameters are on disk, but for the first `in_cpu` elements of a rank.
Job parameters_on_disk(int64_t in_cpu, int ranks = 4) {
  Job job = sharded_job(3, ranks);
  job.model.set("n_layer", 8);
  job.offload.parameters = OffloadTo::nvme;
  job.offload.max_in_cpu = in_cpu;
  return job;
}

}  // namespace

TEST_CASE("parameters on disk come by way of the host, each hop a visit before the next one") {
  for (const int ranks : {1, 4}) {
    const RankPlan rank = plan_of(parameters_on_disk(0, ranks), 0);
    const Program& program = rank.train.program;
    CHECK(bytes_of(rank, MemoryClass::parameters) == 0);
    CHECK(host_bytes(rank, MemoryClass::parameters) == 0);
    CHECK(rank.memory.total(Space::disk) >= padded(rank) / ranks * 4);
    // For every block's first gather: what computation lies between a hop and the next one.
    for (const std::string layer : {"blocks.3", "blocks.5"}) {
      CAPTURE(ranks, layer);
      std::vector<size_t> hops;
      const auto find = [&](OpKind kind, const std::string& prefix) {
        for (size_t i = 0; i < program.instructions.size(); ++i) {
          const Instruction& op = program.instructions[i];
          if (op.op == kind && op.when == When::every_micro &&
              program.at(program.root(op.writes[0])).name == prefix + layer)
            return hops.push_back(i);
        }
        FAIL("no hop");
      };
      find(OpKind::swap_in, "passing:params:");
      find(OpKind::copy, ranks > 1 ? "brought:" : "gathered:");
      if (ranks > 1) find(OpKind::all_gather, "gathered:");
      const auto use = std::ranges::find_if(program.instructions, [&](const Instruction& op) {
        return op.op == OpKind::layer_norm && program.group_name(op) == layer;
      });
      hops.push_back(static_cast<size_t>(use - program.instructions.begin()));
      for (size_t i = 1; i < hops.size(); ++i) {
        size_t products = 0;
        for (size_t k = hops[i - 1]; k < hops[i]; ++k)
          products += program.instructions[k].op == OpKind::linear;
        CHECK(products == 4);  // of one block
      }
    }
  }
}

TEST_CASE("what an update has on disk is read and written once, with Muon's matrices too") {
  Job job = parameters_on_disk(0);
  job.optimizer.kind = OptimizerKind::muon;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    job.dtype = job.wire_dtype = dtype;
    for (const bool state : {false, true}) {
      job.offload.optimizer = state ? OffloadTo::nvme : OffloadTo::none;
      const Plan plan = plan_of(job).train;
      std::map<std::string, int> reads, writes;
      for (const Instruction& op : plan.program.instructions) {
        if (op.when != When::step_end) continue;
        if (op.op == OpKind::swap_in) ++reads[plan.program.at(op.reads[0]).name];
        if (op.op == OpKind::swap_out) ++writes[plan.program.at(op.writes[0]).name];
      }
      CAPTURE(name_of(dtype), state);
      CHECK(writes.at("params:blocks.1") == 1);
      for (const auto& [name, times] : writes) CHECK(times == 1);
      for (const auto& [name, times] : reads) CHECK(times == 1);
    }
  }
}

TEST_CASE("a rank whose slice of a unit is padding alone has Muon's state on disk, too") {
  for (const int tensor_ranks : {1, 2})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      CAPTURE(tensor_ranks, name_of(dtype));
      Job job;
      job.model = ModelConfig(*model_registry().find("gpt2"));  // its tables are matrices to Muon
      for (const auto& [key, size] : std::map<std::string, int64_t>{{"n_layer", 1},
                                                                    {"n_embd", 4},
                                                                    {"n_head", 2},
                                                                    {"n_positions", 8},
                                                                    {"vocab_size", 17}})
        job.model.set(key, size);
      job.ranks = 6;
      job.tensor_ranks = tensor_ranks;
      job.batch = {job.data_ranks(), 1, 1};
      job.zero_stage = 1;
      job.dtype = job.wire_dtype = dtype;
      job.optimizer.kind = OptimizerKind::muon;
      job.optimizer.momentum = 0.95;
      job.offload.optimizer = OffloadTo::nvme;
      for (int rank = 0; rank < job.ranks; ++rank) CHECK_NOTHROW(plan_of(job, rank));
    }
}

TEST_CASE("text is generated from parameters on the device, wherever training had them") {
  const RankPlan rank = make_forward_plan(parameters_on_disk(0, 1), 5, false, fake_inputs());
  CHECK(rank.memory.total(Space::disk) == 0);
  CHECK(rank.memory.total(Space::host) == 0);
  CHECK(bytes_of(rank, MemoryClass::parameters) > 0);
}
