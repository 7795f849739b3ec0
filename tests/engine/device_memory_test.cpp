#include "runtime/engine/run/device_memory.h"

#include <catch2/catch.hpp>

#include "launcher/implementations.h"
#include "runtime/comm/self_comm.h"
#include "runtime/core/devices/cpu_device.h"
#include "runtime/core/error.h"
#include "runtime/plan/settings/fit.h"
#include "tests/support/models.h"

using namespace dstrain;

namespace {

Job some_job() {
  Job job;
  job.ranks = 4;
  job.model = GptLite{.n_layer = 4, .n_embd = 64, .n_head = 2, .block_size = 64, .vocab_size = 100};
  job.batch = {.train_batch = 32, .micro_batch = 8, .accumulation = 1};
  return job;
}

// A device that only answers how much free memory it has.
class SmallDevice : public Device {
 public:
  explicit SmallDevice(int64_t free) : free_(free) {}
  DeviceKind kind() const override { return DeviceKind::emulated; }
  std::string name() const override { return "small device"; }
  DeviceBytes memory() const override { return {2 * free_, free_}; }
  Memory allocate(int64_t, const std::string&) override { return {}; }
  Memory pinned(int64_t, const std::string&) override { return {}; }
  std::shared_ptr<void> pin(std::byte*, int64_t) override { return nullptr; }
  void populate(const Memory&, int) const override {}
  void download(void*, const void*, int64_t) override {}
  void upload(void*, const void*, int64_t) override {}
  std::unique_ptr<Stream> make_stream(StreamPriority) override { return nullptr; }
  std::unique_ptr<Event> make_event() override { return nullptr; }
  void attach_thread() override {}

 private:
  int64_t free_;
};

}  // namespace

TEST_CASE("a device without the memory is refused before anything is reserved") {
  Job job = some_job();
  job.ranks = 1;
  SelfComm self;
  MemoryTable memory;
  memory.region_bytes = {int64_t{3} << 30, 0, 0};
  const PlanInputs inputs = plan_inputs(job);
  check_device_memory(job, memory, SmallDevice(int64_t{3} << 30), 1, self, inputs);
  CHECK_THROWS_WITH(
      check_device_memory(job, memory, SmallDevice(int64_t{2} << 30), 1, self, inputs),
      Catch::StartsWith("the run needs 3.22 GB on each GPU (1 rank x 3.22 GB), and "
                        "2.15 GB are free of small device's 4.29 GB: to fit, add"));
  CHECK_THROWS_AS(check_device_memory(job, memory, SmallDevice(int64_t{4} << 30), 2, self, inputs),
                  UserError);
  check_device_memory(job, memory, *make_cpu_device(), 1, self, inputs);
}

TEST_CASE("a capacity limits every device, the CPU too, and offload is among the advice") {
  Job job = some_job();
  job.ranks = 1;
  job.batch = {8, 8, 1};
  SelfComm self;
  const PlanInputs inputs = plan_inputs(job);
  const MemoryTable memory = make_rank_plan(job, {}, inputs).memory;
  job.device_memory = memory.total();
  check_device_memory(job, memory, *make_cpu_device(), 1, self, inputs);
  CHECK(lack_of_device_memory(job, inputs) == "");
  job.device_memory = memory.total() - 1;
  CHECK_THROWS_WITH(check_device_memory(job, memory, *make_cpu_device(), 1, self, inputs),
                    Catch::Contains("of its device, and --device_memory allows"));
  CHECK_THROWS_AS(check_device_memory(job, memory, SmallDevice(int64_t{8} << 30), 1, self, inputs),
                  UserError);
  CHECK_THAT(lack_of_device_memory(job, inputs),
             Catch::Contains("--set zero_optimization.offload_optimizer.device=cpu"));
  job.offload.optimizer = OffloadTo::cpu;
  CHECK(lack_of_device_memory(job, inputs) == "");
  const RankPlan offloaded = make_rank_plan(job, {}, inputs);
  check_device_memory(job, offloaded.memory, *make_cpu_device(), 1, self, inputs);
  CHECK(planned_memory(job, inputs).host == offloaded.memory.total(Space::host));
}

TEST_CASE("rows of a tensor group are gathered again where the devices have the memory only so") {
  Job job = some_job();
  job.ranks = job.tensor_ranks = 2;
  job.batch = {8, 8, 1};
  SelfComm self;
  const PlanInputs inputs = plan_inputs(job);
  const auto bytes = [&](GatherAgain gathers) {
    Job one = job;
    one.gather_again = gathers;
    return make_rank_plan(one, place_of(one, 0), inputs).memory.total();
  };
  const int64_t kept = bytes(GatherAgain::off), again = bytes(GatherAgain::on);
  REQUIRE(again < kept);
  const auto planned = [&](int64_t free) {
    return plan_that_fits(job, SmallDevice(free), 1, self, inputs).memory.total();
  };
  CHECK(planned(kept) == kept);
  CHECK(planned(kept - 1) == again);
  CHECK(planned(again) == again);
  CHECK_THROWS_AS(planned(again - 1), UserError);
  job.gather_again = GatherAgain::off;
  CHECK_THROWS_AS(planned(kept - 1), UserError);
  job.gather_again = GatherAgain::on;
  CHECK(planned(kept) == again);
}
