#include "runtime/data/mapped_file_loss.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <mutex>

namespace dstrain {

struct MappingWatch::Slot {
  std::atomic<uintptr_t> begin{0};  // 0: free
  std::atomic<uintptr_t> end{0};
  std::atomic<bool> lost{false};
};

// What a signal handler can reach has to be static.
struct Slots {
  std::array<MappingWatch::Slot, 64> list;
  std::mutex taking;
  struct sigaction before {};

  static Slots& all() {
    static Slots slots;
    return slots;
  }

  static void on_bus_error(int, siginfo_t* info, void*) {
    const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
    for (MappingWatch::Slot& slot : all().list) {
      const uintptr_t begin = slot.begin.load(), end = slot.end.load();
      if (begin == 0 || address < begin || address >= end) continue;
      const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
      const uintptr_t gone = address / page * page;
      void* const zeros = ::mmap(reinterpret_cast<void*>(gone), end - gone, PROT_READ,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
      if (zeros == MAP_FAILED) break;
      slot.lost.store(true);
      return;  // the read is tried again
    }
    ::sigaction(SIGBUS, &all().before, nullptr);  // not ours: the next try ends as it would have
  }

  void install() {
    struct sigaction action {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    struct sigaction found {};
    ::sigaction(SIGBUS, &action, &found);
    if ((found.sa_flags & SA_SIGINFO) == 0 || found.sa_sigaction != on_bus_error) before = found;
  }
};

MappingWatch::MappingWatch(const void* begin, int64_t bytes) {
  Slots& slots = Slots::all();
  const std::scoped_lock lock(slots.taking);
  for (Slot& slot : slots.list) {
    if (slot.begin.load() != 0) continue;
    slot.lost.store(false);
    slot.end.store(reinterpret_cast<uintptr_t>(begin) + static_cast<uintptr_t>(bytes));
    slot.begin.store(reinterpret_cast<uintptr_t>(begin));
    slot_ = &slot;
    slots.install();
    return;
  }
}

MappingWatch::~MappingWatch() {
  if (slot_) slot_->begin.store(0);
}

bool MappingWatch::lost() const {
  return slot_ && slot_->lost.load(std::memory_order_relaxed);
}

}  // namespace dstrain
