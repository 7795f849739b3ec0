#include <catch2/catch.hpp>
#include <map>
#include <utility>

#include "tests/plan/plans.h"

using namespace dstrain;

namespace {

Job offloaded(Job job, UpdateOn where) {
  job.offload.optimizer = OffloadTo::cpu;
  job.offload.optimizer_on = where;
  return job;
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
      job.model.set("n_layer", layers);
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
    const auto copies = plan.comm_channels.size();
    REQUIRE(plan.channels == plan.first_other_channel() + 1);
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
        job.model.set("n_layer", layers);
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

TEST_CASE("where every rank has whole gradients each adds the squares of its own part") {
  for (const int stage : {0, 1}) {
    Job job = sharded_job(stage);
    job.reduce = ReduceMode::micro_batch;
    job.batch = {2 * job.ranks, 2, 1};
    job.offload.optimizer = OffloadTo::nvme;
    const Plan plan = plan_of(job).train;
    size_t sums = 0;
    for (const Instruction& op : plan.program.instructions) {
      if (op.op != OpKind::sum_squares) continue;
      ++sums;
      const Buffer& part = plan.program.at(op.reads[0]);
      const Buffer& whole = plan.program.at(plan.program.root(op.reads[0]));
      CHECK(part.shape.elements() * job.ranks == whole.shape.elements());
      CHECK(part.parent_offset == part.shape.elements());  // rank 1
    }
    CHECK(sums == plan.program.units.size());
  }
}

TEST_CASE("what is on disk passes the host's memory, a few layers at a time") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    std::map<int64_t, int64_t> host;  // bytes by number of layers
    for (const int64_t layers : {8, 24}) {
      Job job = sharded_job(1);
      job.dtype = job.wire_dtype = dtype;
      job.model.set("n_layer", layers);
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

TEST_CASE("the device keeps and updates at most its share of the state, before the host's") {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const double ratio : {0.0, 0.3, 0.75, 1.0}) {
      Job job = sharded_job(2);
      job.dtype = job.wire_dtype = dtype;
      job.model.set("n_layer", 6);
      job.offload.ratio = ratio;
      const RankPlan rank = plan_of(offloaded(job, UpdateOn::host));
      CAPTURE(name_of(dtype), ratio);
      const Program& program = rank.train.program;
      int64_t on_device = 0, largest = 0;  // elements of the slices whose moments the device has
      std::vector<Space> updates;
      for (const Unit& unit : program.units) {
        const Buffer& moments = program.at(program.find("exp_avg:" + unit.name));
        CHECK(program.at(program.find("exp_avg_sq:" + unit.name)).space == moments.space);
        CHECK(program.at(program.find("grads:" + unit.name)).space == moments.space);
        const BufferId master = program.find("master:" + unit.name);
        if (master != kNone) CHECK(program.at(master).space == moments.space);
        CHECK((master != kNone) == (dtype != DType::f32 || moments.space == Space::host));
        if (moments.space == Space::device) on_device += moments.shape.elements();
        largest = std::max(largest, moments.shape.elements());
      }
      const double share = (1 - ratio) * static_cast<double>(padded(rank)) / job.ranks;
      CHECK(static_cast<double>(on_device) <= share);
      CHECK(static_cast<double>(on_device + largest) > share);
      CHECK((on_device > 0) == (ratio < 1));
      for (const Instruction& op : program.instructions)
        if (op.op == OpKind::adam) updates.push_back(program.space_of(op.writes[0]));
      REQUIRE(!updates.empty());
      CHECK(std::ranges::is_sorted(updates));
      CHECK((host_bytes(rank, MemoryClass::gradients) > 0) == (ratio > 0));
      CHECK((bytes_of(rank, MemoryClass::gradients) > 0) == (ratio < 1));
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

TEST_CASE("state on disk is read during the last backward pass as far as read_ahead allows") {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int64_t micros : {1, 3}) {
      Job job = sharded_job(3);
      job.dtype = job.wire_dtype = dtype;
      job.model.set("n_layer", 8);
      job.batch = {2 * micros * job.ranks, 2, micros};
      job.offload.optimizer = OffloadTo::nvme;
      const RankPlan without = plan_of(job);
      std::vector<int64_t> early_bytes;
      for (const int64_t allowed :
           {int64_t{1}, int64_t{100'000}, int64_t{200'000}, int64_t{1} << 40}) {
        job.offload.read_ahead = allowed;
        const RankPlan rank = plan_of(job);
        const Plan& plan = rank.train;
        CAPTURE(name_of(dtype), micros, allowed);
        int64_t early = 0, all = 0;
        size_t layers = 0, first = plan.order.size(), finish = 0;
        int32_t group = -1;
        for (size_t i = 0; i < plan.order.size(); ++i) {
          const Instruction& op = op_at(plan, i);
          if (op.op == OpKind::finish_gradients) finish = i;
          if (op.op != OpKind::swap_in) continue;
          const Buffer& from = plan.program.at(plan.program.root(op.reads[0]));
          all += from.memory == MemoryClass::optimizer ? from.bytes() : 0;
          if (op.when == When::step_end) continue;
          CHECK(from.memory == MemoryClass::optimizer);
          CHECK(op.phase == Phase::backward);
          CHECK(plan.order[i].micro == micros - 1);
          early += from.bytes();
          if (std::exchange(group, op.group) != op.group) ++layers;
          first = std::min(first, i);
        }
        CHECK(early <= allowed);
        early_bytes.push_back(early);
        // The buffers of a layer are whole blocks of the drive.
        const auto blocks = static_cast<int64_t>(3 * plan.program.units.size());
        CHECK(rank.memory.total(Space::host) <=
              without.memory.total(Space::host) + early + 4096 * blocks);
        CHECK(rank.memory.total(Space::disk) == without.memory.total(Space::disk));
        if (allowed == 1) CHECK(early == 0);
        if (early < all) continue;
        // All of it: the layers' reads are apart, with the work of a layer between them.
        CHECK(layers == plan.program.units.size());
        CHECK(first < finish);
      }
      CHECK(std::ranges::is_sorted(early_bytes));
      CHECK(early_bytes[1] > 0);
      CHECK(early_bytes[2] > early_bytes[1]);
      CHECK(early_bytes[3] > early_bytes[2]);
    }
}
