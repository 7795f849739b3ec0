#include "runtime/plan/cost/machine_rates.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/plan/plans.h"

using namespace dstrain;

TEST_CASE("machine rates: a kernel takes the longer one of its operations and its traffic") {
  const MachineRates cpu = rates_of(DeviceChoice::cpu), gpu = rates_of(DeviceChoice::cuda);
  const Plan plan = train_plan(small_job());
  for (const Instruction& op : plan.program.instructions) {
    CAPTURE(name_of(op.op));
    const double seconds = instruction_seconds(plan.program, op, cpu);
    if (is_collective(op.op)) {
      CHECK(seconds == 0);
      continue;
    }
    const Cost cost = cost_of(plan.program, op);
    CHECK(seconds == std::max(cost.bytes / 2e10, cost.flops / 2.5e11));
    CHECK(instruction_seconds(plan.program, op, gpu) <= seconds);
  }
}

TEST_CASE("machine rates: each kind of work has the rates of where it is done") {
  Job job = sharded_job(3);
  job.dtype = job.wire_dtype = DType::bf16;
  job.offload.optimizer = OffloadTo::nvme;
  job.offload.parameters = OffloadTo::cpu;
  const Plan plan = plan_of(job).train;
  const MachineRates rates{.device = {.flops_f32 = 7, .flops_16_bit = 11, .traffic = 13},
                           .host = {.flops_f32 = 17, .flops_16_bit = 19, .traffic = 23},
                           .link = 29,
                           .disk = 31,
                           .wire = 37};
  int copies = 0, drives = 0, of_host = 0, of_device = 0;
  for (const Instruction& op : plan.program.instructions) {
    const Cost cost = cost_of(plan.program, op);
    const double seconds = instruction_seconds(plan.program, op, rates);
    const DoneBy done_by = rule_of(op.op).done_by;
    CAPTURE(name_of(op.op));
    if (done_by == DoneBy::copies) {
      CHECK(seconds == cost.bytes / 2 / 29);
      ++copies;
    } else if (done_by == DoneBy::drives) {
      CHECK(seconds == cost.bytes / 2 / 31);
      ++drives;
    } else if (done_by != DoneBy::collective) {
      const bool host = runs_on_host(plan.program, op);
      CHECK(seconds == std::max(cost.flops / (host ? 19 : 11), cost.bytes / (host ? 23 : 13)));
      CHECK(kernel_seconds_on_device(plan.program, op, rates) ==
            std::max(cost.flops / 11, cost.bytes / 13));
      ++(host ? of_host : of_device);
    }
  }
  CHECK((copies > 0 && drives > 0 && of_host > 0 && of_device > 0));
}

TEST_CASE("machine rates: the text has those of the dtype") {
  CHECK(rates_text(rates_of(DeviceChoice::cpu), DType::f32) ==
        "0.25 TFLOP/s, 20 GB/s of memory, 20 GB/s of the host's, 10 GB/s between device and host, "
        "2 GB/s of disk");
  CHECK(rates_text(rates_of(DeviceChoice::cuda), DType::bf16) ==
        "300 TFLOP/s, 2e+03 GB/s of memory, 20 GB/s of the host's, 20 GB/s between device and "
        "host, 2 GB/s of disk");
}
