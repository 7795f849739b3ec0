#include "runtime/engine/fit.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "runtime/comm/self_comm.h"
#include "runtime/core/error.h"

using namespace dstrain;

namespace {

Job some_job() {
  Job job;
  job.ranks = 4;
  job.model = {.n_layer = 4, .n_embd = 64, .n_head = 2, .block_size = 64, .vocab_size = 100};
  job.batch = {.train_batch = 32, .micro_batch = 8, .accumulation = 1};
  return job;
}

bool offers(const std::vector<Variant>& variants, const std::string& settings) {
  return std::any_of(variants.begin(), variants.end(),
                     [&](const Variant& v) { return v.settings == settings; });
}

// A device with so much free memory and nothing else.
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
  std::unique_ptr<Stream> make_stream() override { return nullptr; }
  std::unique_ptr<Event> make_event() override { return nullptr; }
  void attach_thread() override {}

 private:
  int64_t free_;
};

}  // namespace

TEST_CASE("every setting that could help is planned, cheapest first") {
  const Job job = some_job();
  const std::vector<Variant> all = single_changes(job);
  for (const char* settings :
       {"--set zero_optimization.stage=1", "--set zero_optimization.stage=2",
        "--set zero_optimization.stage=3", "--set dstrain.recompute=selective",
        "--set dstrain.recompute=1",
        "--set train_micro_batch_size_per_gpu=4 --set gradient_accumulation_steps=2",
        "--set train_micro_batch_size_per_gpu=1 --set gradient_accumulation_steps=8"})
    CHECK(offers(all, settings));
  CHECK(all.size() == 8);
  CHECK(std::is_sorted(all.begin(), all.end(),
                       [](const Variant& a, const Variant& b) { return a.slowdown < b.slowdown; }));
  Job alone = job;
  alone.ranks = 1;
  for (const Variant& v : single_changes(alone))
    CHECK(v.settings.find("stage") == std::string::npos);
}

TEST_CASE("what is offered is never exceeded, and changes are combined where one is too few") {
  const Job job = some_job();
  const std::vector<Variant> singles = single_changes(job);
  int64_t least = INT64_MAX;
  for (const Variant& v : singles) least = std::min(least, v.bytes);
  const std::vector<Variant> one = ways_to_fit(job, least);
  REQUIRE(!one.empty());
  CHECK(one.size() <= 3);
  for (const Variant& v : one) CHECK(v.bytes <= least);
  const std::vector<Variant> more = ways_to_fit(job, least - 1);
  REQUIRE(!more.empty());
  for (const Variant& v : more) CHECK(v.bytes < least);
  CHECK(ways_to_fit(job, 1000).empty());
  CHECK(advice_to_fit(job, 1000).find("smaller model") != std::string::npos);
  CHECK(advice_to_fit(job, least).starts_with("to fit, add --set "));
}

TEST_CASE("a device without the memory is refused before anything is reserved") {
  Job job = some_job();
  job.ranks = 1;
  SelfComm self;
  MemoryTable memory;
  memory.region_bytes = {int64_t{3} << 30, 0, 0};
  check_device_memory(job, memory, SmallDevice(int64_t{3} << 30), 1, self);
  CHECK_THROWS_WITH(check_device_memory(job, memory, SmallDevice(int64_t{2} << 30), 1, self),
                    Catch::StartsWith("the run needs 3.22 GB on each GPU (1 rank x 3.22 GB), and "
                                      "2.15 GB are free of small device's 4.29 GB: to fit, add"));
  CHECK_THROWS_AS(check_device_memory(job, memory, SmallDevice(int64_t{4} << 30), 2, self),
                  UserError);
  check_device_memory(job, memory, *make_cpu_device(), 1, self);
}
