#include <catch2/catch.hpp>
#include <map>

#include "tests/plan/plans.h"

using namespace dstrain;

namespace {

Job offloaded(Job job, UpdateOn where) {
  job.offload.optimizer = OffloadTo::cpu;
  job.offload.optimizer_on = where;
  return job;
}

int64_t host_bytes(const RankPlan& rank, MemoryClass memory) {
  return rank.memory.host_at_peak[static_cast<size_t>(memory)];
}

int64_t sum_of(const ClassBytes& classes) {
  int64_t sum = 0;
  for (const int64_t bytes : classes) sum += bytes;
  return sum;
}

}  // namespace

TEST_CASE("the host has masters and optimizer state, the device no byte of them") {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int stage : {0, 1, 2, 3})
      for (const UpdateOn where : {UpdateOn::host, UpdateOn::device}) {
        Job job = sharded_job(stage);
        job.dtype = job.wire_dtype = dtype;
        const RankPlan without = plan_of(job);
        const RankPlan rank = plan_of(offloaded(job, where));
        CAPTURE(name_of(dtype), stage, static_cast<int>(where));
        CHECK(bytes_of(rank, MemoryClass::optimizer) == 0);
        CHECK(bytes_of(rank, MemoryClass::parameters) ==
              bytes_of(without, MemoryClass::parameters));
        // The host has the gradients too, where it updates and each micro-batch's are added over ranks.
        const bool leave = where == UpdateOn::host && stage >= 2;
        CHECK(bytes_of(rank, MemoryClass::gradients) ==
              (leave ? 0 : bytes_of(without, MemoryClass::gradients)));
        CHECK((host_bytes(rank, MemoryClass::gradients) > 0) == leave);
        const int64_t slice = padded(rank) / (stage > 0 ? job.ranks : 1);
        // In f32 the parameters of the device are the masters, unless the host updates.
        const bool masters = dtype != DType::f32 || where == UpdateOn::host;
        const int64_t over = host_bytes(rank, MemoryClass::optimizer) - slice * (masters ? 12 : 8);
        CHECK(over >= 0);
        CHECK(over < 4096 * 3 * static_cast<int64_t>(rank.train.program.units.size()));
        CHECK(sum_of(rank.memory.host_at_peak) == rank.memory.total(Space::host));
        CHECK(sum_of(rank.memory.at_peak) == rank.memory.total());
        CHECK(rank.memory.total(Space::disk) == 0);
        CHECK(without.memory.total(Space::host) == 0);
      }
}

TEST_CASE("what passes through memory is bounded by a few layers, not by the model") {
  for (const UpdateOn where : {UpdateOn::host, UpdateOn::device}) {
    Job job = sharded_job(1);
    job.dtype = job.wire_dtype = DType::bf16;
    std::map<int64_t, int64_t> staged;  // by number of layers
    int64_t largest = 0;
    for (const int64_t layers : {8, 24}) {
      job.model.n_layer = layers;
      const RankPlan rank = plan_of(offloaded(job, where));
      for (const Buffer& b : rank.train.program.buffers)
        if (b.name.starts_with("staged:") && b.parent == kNone && b.space == Space::host)
          largest = std::max(largest, b.bytes());
      staged[layers] = rank.memory.total(Space::host) - host_bytes(rank, MemoryClass::optimizer);
    }
    CHECK(staged[8] == staged[24]);
    CHECK(staged[24] <= 4 * largest);
  }
}

TEST_CASE("the next unit's operands are on their way while a unit is updated") {
  for (const UpdateOn where : {UpdateOn::host, UpdateOn::device}) {
    Job job = sharded_job(where == UpdateOn::host ? 1 : 2);  // gradients come when the step ends
    job.dtype = job.wire_dtype = DType::bf16;
    const Plan plan = plan_of(offloaded(job, where)).train;
    const Program& program = plan.program;
    const auto copies = static_cast<size_t>(plan.comm_channels);
    REQUIRE(plan.channels == plan.comm_channels + 1);
    int32_t posted = 0;
    int beside = 0;
    for (size_t i = 0; i < plan.order.size(); ++i) {
      const Instruction& op = op_at(plan, i);
      const int32_t awaited = plan.waits[i * static_cast<size_t>(plan.channels) + copies];
      CHECK(awaited <= posted);
      if (op.op == OpKind::adam) {
        CHECK(runs_on_host(program, op) == (where == UpdateOn::host));
        CHECK(queue_of(program, op) == (where == UpdateOn::host ? Queue::host : Queue::compute));
        CHECK(awaited > 0);
        beside += awaited < posted;
      }
      if (op.op != OpKind::copy) continue;
      ++posted;
      CHECK(queue_of(program, op) == Queue::copy);
      CHECK(op.when == When::step_end);
    }
    CHECK(count_posted(plan).back() == posted);
    CHECK(beside >= static_cast<int>(program.units.size()) - 1);
  }
}

TEST_CASE(
    "gradients leave for the host as they are made, and the device has those of a few layers") {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int64_t micros : {1, 3}) {
      std::map<int64_t, int64_t> device;  // bytes by number of layers
      for (const int64_t layers : {8, 24}) {
        Job job = sharded_job(3);
        job.dtype = job.wire_dtype = dtype;
        job.model.n_layer = layers;
        job.batch = {2 * micros * job.ranks, 2, micros};
        job.recompute = {RecomputeMode::interval, 1};
        job.offload.parameters = OffloadTo::cpu;
        const RankPlan rank = plan_of(offloaded(job, UpdateOn::host));
        const Program& program = rank.train.program;
        device[layers] = rank.memory.total() - bytes_of(rank, MemoryClass::activations);
        CHECK(host_bytes(rank, MemoryClass::gradients) >= padded(rank) / job.ranks * 4);
        size_t copied = 0, added = 0, sums = 0;
        for (const Instruction& op : program.instructions) {
          if (op.op == OpKind::copy && op.when == When::every_micro &&
              program.space_of(op.writes[0]) == Space::host)
            ++copied;
          if (op.op == OpKind::accumulate && runs_on_host(program, op)) {
            ++added;
            // The next unit's copy is under way; the last one has none.
            CHECK(copied == std::min(added + 1, program.units.size()));
          }
          if (op.op != OpKind::sum_squares) continue;
          CHECK(runs_on_host(program, op));
          ++sums;
        }
        CHECK(copied == program.units.size());
        CHECK(sums == program.units.size());
        // One micro-batch's sums need no addition, but for those that are widened.
        CHECK(added == (micros > 1 || dtype == DType::bf16 ? program.units.size() : 0));
      }
      CHECK(device[24] < device[8] + device[8] / 4);
    }
}

TEST_CASE("the gradients of a step with one micro-batch go on to disk with the optimizer's state") {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int ranks : {1, 4}) {
      Job job = sharded_job(3, ranks);
      job.dtype = job.wire_dtype = dtype;
      job.offload.optimizer = OffloadTo::nvme;
      const auto gradients = [&](int64_t micros, Space space) {
        job.batch = {2 * micros * ranks, 2, micros};
        return plan_of(job, 0).memory.peak_of(space)[static_cast<size_t>(MemoryClass::gradients)];
      };
      CHECK(gradients(2, Space::disk) == 0);
      CHECK(gradients(2, Space::host) > 0);
      CHECK(gradients(1, Space::host) == 0);
      CHECK(gradients(1, Space::disk) > 0);
      const Plan plan = plan_of(job, 0).train;
      // The squares are added while the gradients pass the host's memory: before they are written.
      std::map<BufferId, size_t> squared;
      for (size_t i = 0; i < plan.order.size(); ++i) {
        const Instruction& op = op_at(plan, i);
        if (op.op == OpKind::sum_squares) squared[op.reads[0]] = i;
        if (op.op != OpKind::swap_out || op.when == When::step_end) continue;
        REQUIRE(squared.contains(op.reads[0]));
      }
      CHECK(squared.size() == plan.program.units.size());
    }
}

TEST_CASE("what is on disk passes the host's memory, a few layers at a time") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    std::map<int64_t, int64_t> host;  // bytes by number of layers
    for (const int64_t layers : {8, 24}) {
      Job job = sharded_job(1);
      job.dtype = job.wire_dtype = dtype;
      job.model.n_layer = layers;
      job.offload.optimizer = OffloadTo::nvme;
      const RankPlan rank = plan_of(job);
      const Plan& plan = rank.train;
      host[layers] = rank.memory.total(Space::host);
      CHECK(bytes_of(rank, MemoryClass::optimizer) == 0);
      CHECK(host_bytes(rank, MemoryClass::optimizer) == 0);
      CHECK(sum_of(rank.memory.disk_at_peak) == rank.memory.total(Space::disk));
      CHECK(rank.memory.total(Space::disk) >= padded(rank) / job.ranks * 12);
      REQUIRE(plan.io_channel == plan.copy_channel + 1);
      int32_t posted = 0;
      int beside = 0;
      for (size_t i = 0; i < plan.order.size(); ++i) {
        const Instruction& op = op_at(plan, i);
        const int32_t awaited = plan.waits[i * static_cast<size_t>(plan.channels) +
                                           static_cast<size_t>(plan.io_channel)];
        CHECK(awaited <= posted);
        if (op.op == OpKind::adam) beside += awaited < posted;
        if (op.op != OpKind::swap_in && op.op != OpKind::swap_out) continue;
        CHECK(queue_of(plan.program, op) == Queue::io);
        ++posted;
      }
      CHECK(count_posted(plan).back() == posted);
      CHECK(posted == static_cast<int32_t>(6 * plan.program.units.size()));
      CHECK(beside >= static_cast<int>(plan.program.units.size()) - 1);
    }
    CHECK(host[8] == host[24]);
  }
}

TEST_CASE("a drive may finish later transfers first, so one that reuses memory waits") {
  Job job = sharded_job(1);
  job.offload.optimizer = OffloadTo::nvme;
  const Plan plan = plan_of(job).train;
  // By hand: what every transfer's memory is used for by transfers that may be under way.
  struct Use {
    int64_t begin, end;
    bool written;
  };
  std::vector<Use> uses;  // of the host's memory, by transfer
  int reused = 0;
  for (size_t i = 0; i < plan.order.size(); ++i) {
    const Instruction& op = op_at(plan, i);
    if (op.op != OpKind::swap_in && op.op != OpKind::swap_out) continue;
    const bool in = op.op == OpKind::swap_in;
    const BufferId here = in ? op.writes[0] : op.reads[0];
    const int64_t begin = plan.address[static_cast<size_t>(here)].offset;
    const Use mine{begin, begin + plan.program.at(here).bytes(), in};
    const auto awaited = static_cast<size_t>(
        plan.waits[i * static_cast<size_t>(plan.channels) + static_cast<size_t>(plan.io_channel)]);
    for (size_t k = 0; k < uses.size(); ++k) {
      if (uses[k].end <= mine.begin || mine.end <= uses[k].begin) continue;
      if (!uses[k].written && !mine.written) continue;
      CHECK(k < awaited);
      ++reused;
    }
    uses.push_back(mine);
  }
  CHECK(reused > 0);
}

TEST_CASE("only new parameters depend on whether the step is skipped") {
  const Plan plan = plan_of(offloaded(sharded_job(1), UpdateOn::host)).train;
  for (const Instruction& op : plan.program.instructions) {
    const bool publishes =
        op.op == OpKind::copy &&
        plan.program.at(plan.program.root(op.writes[0])).memory == MemoryClass::parameters;
    CHECK(op.unless_skipped == publishes);
  }
}

TEST_CASE("the stages of a pipeline are planned together, in every space") {
  for (const PipelineSchedule schedule : {PipelineSchedule::one_f_one_b, PipelineSchedule::zb_v})
    for (const OffloadTo to : {OffloadTo::cpu, OffloadTo::nvme}) {
      Job job = sharded_job(1);
      job.pipeline.stages = 2;
      job.pipeline.schedule = schedule;
      job.pipeline.virtual_stages = schedule == PipelineSchedule::zb_v ? 2 : 1;
      job.offload.optimizer = to;
      const std::vector<RankPlan> stages = make_stage_plans(job, 0, fake_inputs());
      REQUIRE(stages.size() == 2);
      for (const RankPlan& stage : stages)
        CHECK(stage.memory.total(to == OffloadTo::cpu ? Space::host : Space::disk) > 0);
    }
}

TEST_CASE("the sums of Lamb are gathered on the device") {
  Job job = sharded_job(3);
  job.optimizer.kind = OptimizerKind::lamb;
  const Plan plan = plan_of(offloaded(job, UpdateOn::host)).train;
  size_t gathers = 0;
  for (const Instruction& op : plan.program.instructions) {
    if (op.op == OpKind::lamb || op.op == OpKind::lamb_direction)
      CHECK(runs_on_host(plan.program, op));
    if (op.op != OpKind::all_gather || op.when != When::step_end) continue;
    CHECK(plan.program.space_of(op.writes[0]) == Space::device);
    ++gathers;
  }
  CHECK(gathers == plan.program.units.size());
  CHECK(comm_work(plan_of(job, 0).train).size() == comm_work(plan).size());
}

namespace {

// A job whose parameters are on disk, but for the first `in_cpu` elements of a rank.
Job parameters_on_disk(int64_t in_cpu, int ranks = 4) {
  Job job = sharded_job(3, ranks);
  job.model.n_layer = 8;
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
        return op.op == OpKind::layer_norm &&
               program.groups[static_cast<size_t>(op.group)] == layer;
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

TEST_CASE("max_in_cpu says how many elements of parameters on nvme stay in the host's memory") {
  const int64_t slice = padded(plan_of(parameters_on_disk(0))) / 4;
  int64_t before = 0;
  for (const int64_t in_cpu : {int64_t{0}, slice / 3, slice / 2, slice}) {
    const RankPlan rank = plan_of(parameters_on_disk(in_cpu));
    int64_t held = 0;
    for (const Buffer& b : rank.train.program.buffers)
      if (b.name.starts_with("params:") && b.parent == kNone && b.space == Space::host)
        held += b.shape.elements();
    CHECK(held <= in_cpu);
    CHECK((held > before || in_cpu == 0));
    before = held;
  }
  CHECK(before == slice);
}

TEST_CASE("text is generated from parameters on the device, wherever training had them") {
  const RankPlan rank = make_decode_plan(parameters_on_disk(0, 1), 5, fake_inputs());
  CHECK(rank.memory.total(Space::disk) == 0);
  CHECK(rank.memory.total(Space::host) == 0);
  CHECK(bytes_of(rank, MemoryClass::parameters) > 0);
}
