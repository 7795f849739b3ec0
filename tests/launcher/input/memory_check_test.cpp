#include "launcher/input/memory_check.h"

#include <fmt/format.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "launcher/implementations.h"
#include "launcher/process/process_memory.h"
#include "runtime/core/error.h"
#include "runtime/plan/settings/fit.h"
#include "tests/support/models.h"

namespace dstrain {
namespace {

TEST_CASE("a run that fits is no error, one byte more is") {
  const HostMemoryNeed need{.ranks = 2, .planned = 300, .process = 150, .shared = 101};
  CHECK_NOTHROW(check_memory(need, 1001, "a test", ""));
  CHECK_THROWS_AS(check_memory(need, 1000, "a test", ""), UserError);
  CHECK(need.most_planned(1001) == 300);
  CHECK(need.most_planned(1000) == 299);
  CHECK_THROWS_WITH(
      check_memory(
          {.ranks = 2, .planned = 3'000'000'000, .process = 4'000'000, .shared = 10'000'000},
          4'000'000'000, "MemAvailable in /proc/meminfo", ways_to_need_less(job_of())),
      "the run needs 6.02 GB (2 ranks x (3.00 GB planned + 4.00 MB of a process) + 10.0 MB that "
      "they share), and this machine offers 4.00 GB (MemAvailable in /proc/meminfo): use fewer "
      "ranks, a smaller micro-batch, block_size or model; 'dstrain plan' shows what takes it");
  CHECK_THROWS_WITH(check_memory({.planned = 2000, .lower_bound = true}, 1000, "x", ""),
                    Catch::StartsWith("the run needs at least 2.00 kB (1 rank x 2.00 kB), and "));
  CHECK_THROWS_AS(
      check_memory({.ranks = 65536, .planned = int64_t{1} << 62}, int64_t{1} << 40, "x", ""),
      UserError);
}

TEST_CASE("a forward pass that takes more than there is is refused in the same words") {
  const MemoryOffer offer{4'000'000'000, "MemAvailable in /proc/meminfo"};
  CHECK_NOTHROW(check_forward_memory(4'000'000'000, false, offer, ""));
  CHECK_THROWS_WITH(check_forward_memory(4'020'000'000, true, offer, "use a smaller model"),
                    "the model needs at least 4.02 GB in fp32, and this machine offers 4.00 GB "
                    "(MemAvailable in /proc/meminfo): use a smaller model");
  CHECK_THROWS_WITH(check_forward_memory(4'020'000'000, false, offer, "use shorter windows"),
                    Catch::StartsWith("the model needs 4.02 GB in fp32, and "));
}

TEST_CASE("the memory of a process is its own pages and those of programs, without data files") {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / fmt::format("dstrain_smaps_{}", ::getpid());
  std::ofstream(file) << R"(55d0-55d1 r--p 00000000 08:01 11    /usr/bin/a program
Rss:                  40 kB
Anonymous:             0 kB
55d1-55d2 r-xp 00001000 08:01 11    /usr/bin/a program
Rss:                 100 kB
Anonymous:             0 kB
55d2-55d3 rw-p 00002000 08:01 11    /usr/bin/a program
Rss:                  12 kB
Anonymous:             8 kB
55d4-55d5 rw-p 00000000 00:00 0     [heap]
Rss:                 500 kB
Anonymous:           500 kB
7f00-7f01 r--s 00000000 08:01 12    /data/text.txt
Rss:             7000000 kB
Anonymous:             0 kB
7f02-7f03 rw-s 00000000 00:01 13    /memfd:dstrain (deleted)
Rss:                4000 kB
Anonymous:             0 kB
7f04-7f05 rw-p 00000000 00:00 0
Rss:                  64 kB
Anonymous:            64 kB
7fff-8000 r-xp 00000000 00:00 0     [vdso]
Rss:                   4 kB
Anonymous:             0 kB
)";
  const ProcessMemory memory = process_memory(file);
  CHECK(memory.own == 572 * 1024);
  CHECK(memory.program == 144 * 1024);
  std::filesystem::remove(file);
  CHECK_THROWS_AS(process_memory(file), RunError);
  CHECK(process_memory().own > 0);
  CHECK(process_memory().program > 0);
}

TEST_CASE("on a GPU a rank needs the host's memory only for what is offloaded") {
  Job job;
  job.model = GptLite{.n_layer = 2, .n_embd = 64, .n_head = 1, .block_size = 4, .vocab_size = 7};
  job.batch = {4, 1, 1};
  const PlanInputs inputs = plan_inputs(job);
  const auto need = [&] {
    return memory_need(job, planned_memory(job, inputs), inputs, 1, RankProcesses::programs);
  };
  CHECK(need().planned == planned_bytes(job, inputs));
  CHECK(need().process >= kProcessOverheadBytes);
  CHECK(need().shared == 0);
  CHECK(local_ranks(job) == RankProcesses::forks);
  job.device = DeviceChoice::cuda;
  CHECK(local_ranks(job) == RankProcesses::programs);
  CHECK(need().planned == 0);
  CHECK(need().process == kProcessOverheadBytes);
  job.offload.optimizer = OffloadTo::cpu;
  CHECK(need().planned > 0);
  CHECK(need().planned == planned_memory(job, inputs).host);
}

TEST_CASE("forks need what this process has of its own each, and its program once") {
  Job job;
  job.model = GptLite{.n_layer = 2, .n_embd = 512, .n_head = 1, .block_size = 4, .vocab_size = 7};
  job.batch = {4, 1, 1};
  const PlanInputs inputs = plan_inputs(job);
  const ProcessMemory here = process_memory();
  const PlannedMemory planned = planned_memory(job, inputs);
  const HostMemoryNeed need = memory_need(job, planned, inputs, 1, RankProcesses::forks);
  CHECK(need.process >= here.own);
  CHECK(need.shared >= here.program);
  CHECK(planned.device_pages > planned.device);  // whole huge pages
  CHECK(need.planned == planned.device + planned.host);
  const HostMemoryNeed more = memory_need(job, planned, inputs, 128, RankProcesses::forks);
  CHECK(more.planned == need.planned);
  CHECK(more.total() < 128 * need.total());
}

}  // namespace
}  // namespace dstrain
