#include "launcher/input/memory_check.h"

#include <algorithm>

#include "launcher/implementations.h"
#include "launcher/process/process_memory.h"
#include "runtime/config/family/family.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/text.h"
#include "runtime/plan/cost/state_bytes.h"

namespace dstrain {
namespace {

// What an idle rank adds to the pages of the process that it is a fork of: connections and buffers of the transport,
// and for each thread its stack and its part of the heap. 4 ranks of 1 thread added 0.6 MiB each, 15 further threads
// 0.3 MiB each (x86-64, glibc 2.36).
constexpr int64_t kBytesOfFork = int64_t{1} << 20, kBytesOfThread = int64_t{1} << 19;

// Rounds measured bytes up, so that commands which measure the same say the same.
int64_t whole_mebibytes(int64_t bytes) {
  constexpr int64_t kMebibyte = int64_t{1} << 20;
  return (bytes + kMebibyte - 1) / kMebibyte * kMebibyte;
}

}  // namespace

Job job_of_host(const Job& asked, int ranks_here) {
  Job job = asked;
  const int layer_ranks = job.sequence_ranks * job.tensor_ranks;
  const int data_ranks_here = ranks_here % layer_ranks == 0 ? ranks_here / layer_ranks : 0;
  if (job.shards.by_host && data_ranks_here > 0 && job.data_ranks() % data_ranks_here == 0) {
    job.shards.ranks = data_ranks_here;
    job.shards.by_host = false;
  }
  return job;
}

RankProcesses local_ranks(const Job& job) {
  // A GPU driver's state does not survive a fork.
  return is_gpu(job.device) ? RankProcesses::programs : RankProcesses::forks;
}

HostMemoryNeed memory_need(const Job& job, const PlannedMemory& plan, const PlanInputs& inputs,
                           int ranks, RankProcesses processes) {
  HostMemoryNeed need{.ranks = ranks};
  int64_t pages = 0;
  if (!is_gpu(job.device)) {
    need.planned = plan.device + plan.host;
    pages = plan.device_pages + plan.host_pages;
  } else if (job.offload != OffloadConfig{}) {
    need.planned = plan.host;
    pages = plan.host_pages;
  }
  if (processes == RankProcesses::programs) {
    need.process = kProcessOverheadBytes + pages - need.planned;
    return need;
  }
  // A rank may write to all pages that it has of this process, and then has its own.
  const ProcessMemory here = process_memory();
  need.process = whole_mebibytes(here.own) + kBytesOfFork + kBytesOfThread * inputs.threads +
                 pages - need.planned;
  need.shared = whole_mebibytes(here.program);
  return need;
}

std::string machine_line(const Job& job, const PlannedMemory& plan, const PlanInputs& inputs,
                         int ranks) {
  return fmt::format("on one machine the ranks need {}{}\n",
                     is_gpu(job.device) ? "of the host's memory " : "",
                     sum_text(memory_need(job, plan, inputs, ranks, local_ranks(job))));
}

std::string sum_text(const HostMemoryNeed& need) {
  const auto text = [](auto bytes) { return bytes_text(static_cast<double>(bytes)); };
  std::string each = text(need.planned);
  if (need.process > 0)
    each = fmt::format("({} planned + {} of a process)", each, text(need.process));
  return fmt::format(
      "{}{} ({} x {}{})", need.lower_bound ? "at least " : "", text(need.total()),
      counted(need.ranks, "rank"), each,
      need.shared > 0 ? fmt::format(" + {} that they share", text(need.shared)) : "");
}

void check_memory(const HostMemoryNeed& need, int64_t offered, const std::string& source,
                  const std::string& advice) {
  if (need.total() <= static_cast<double>(offered)) return;
  fail_user(
      "the run needs {}, and this machine offers {} ({}): {}; 'dstrain plan' shows what takes it",
      sum_text(need), bytes_text(static_cast<double>(offered)), source, advice);
}

std::string ways_to_need_less(const Job& job) {
  const std::string_view context = job.model.family().context_key();
  return fmt::format("use fewer ranks, a smaller micro-batch{}{} or model",
                     context.empty() ? "" : ", ", context);
}

void check_memory_here(const Job& asked, int ranks_here, RankProcesses processes) {
  const Job job = job_of_host(asked, ranks_here);
  const MemoryOffer offer = available_memory();
  if (!is_gpu(job.device)) {  // a rank looks at its own GPU's memory before it takes any
    // Planning a model that is far too large would take long.
    check_memory({.ranks = ranks_here,
                  .planned = static_cast<int64_t>(std::min(least_state_bytes(job).memory(), 1e18)),
                  .lower_bound = true},
                 offer.bytes, offer.source, ways_to_need_less(job));
  }
  const PlanInputs inputs = plan_inputs(job, ranks_here);
  const PlannedMemory plan = planned_memory(job, inputs);
  if (!is_gpu(job.device)) {
    if (const std::string lack = lack_of_device_memory(job, plan, inputs); !lack.empty())
      fail_user("{}", lack);
  }
  const HostMemoryNeed need = memory_need(job, plan, inputs, ranks_here, processes);
  Job whole = job;
  whole.device_memory = 0;
  const bool advises = !is_gpu(job.device) && need.total() > static_cast<double>(offer.bytes);
  check_memory(need, offer.bytes, offer.source,
               advises ? advice_to_fit(whole, need.most_planned(offer.bytes), inputs)
                       : ways_to_need_less(job));
}

void check_forward_memory(int64_t bytes, bool lower_bound, const MemoryOffer& offer,
                          const std::string& advice) {
  if (bytes <= offer.bytes) return;
  fail_user("the model needs {}{} in fp32, and this machine offers {} ({}): {}",
            lower_bound ? "at least " : "", bytes_text(static_cast<double>(bytes)),
            bytes_text(static_cast<double>(offer.bytes)), offer.source, advice);
}

}  // namespace dstrain
