#include "runtime/data/file/mapped_file_loss.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <mutex>

namespace dstrain {

struct MappingWatch::Watched {
  std::atomic<char*> begin{nullptr};  // null: free
  std::atomic<char*> end{nullptr};
  std::atomic<bool> lost{false};
};

// Static, because the signal handler uses it.
struct WatchedMappings {
  std::array<MappingWatch::Watched, 8192> list;
  std::mutex taking;
  struct sigaction before {};

  static WatchedMappings& all() {
    static WatchedMappings mappings;
    return mappings;
  }

  static void on_bus_error(int, siginfo_t* info, void*) {
    const auto* const address = static_cast<const char*>(info->si_addr);
    for (MappingWatch::Watched& watched : all().list) {
      char* const begin = watched.begin.load();
      char* const end = watched.end.load();
      if (begin == nullptr || address < begin || address >= end) continue;
      const std::ptrdiff_t page = ::sysconf(_SC_PAGESIZE);
      char* const gone = begin + (address - begin) / page * page;  // mappings begin at a page
      void* const zeros = ::mmap(gone, static_cast<size_t>(end - gone), PROT_READ,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
      if (zeros == MAP_FAILED) break;
      watched.lost.store(true);
      return;  // the kernel repeats the read
    }
    ::sigaction(SIGBUS, &all().before,
                nullptr);  // not a watched mapping: the repeated read meets the old handler
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
  WatchedMappings& mappings = WatchedMappings::all();
  const std::scoped_lock lock(mappings.taking);
  for (Watched& watched : mappings.list) {
    if (watched.begin.load() != nullptr) continue;
    auto* const first = static_cast<char*>(const_cast<void*>(begin));  // the handler maps it anew
    watched.lost.store(false);
    watched.end.store(first + bytes);
    watched.begin.store(first);
    watched_ = &watched;
    mappings.install();
    return;
  }
}

MappingWatch::~MappingWatch() {
  if (watched_) watched_->begin.store(nullptr);
}

bool MappingWatch::lost() const {
  return watched_ && watched_->lost.load(std::memory_order_relaxed);
}

}  // namespace dstrain
