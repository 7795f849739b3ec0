// NewConnections: connections that a listener has accepted and whose other end has not yet shown who it is. It may be a
// stranger, so they are few and are closed after a while.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "launcher/connection/tcp_socket.h"
#include "launcher/process/descriptor.h"

namespace dstrain {

inline constexpr size_t kMostNewConnections = 64;
// Nanoseconds after which a connection is closed, and after which it is if another one waits to be accepted and there
// are as many as may be.
inline constexpr int64_t kLongestGreetingTime = 10'000'000'000;
inline constexpr int64_t kMakesRoomAfter = 1'000'000'000;

// `Connection`: made of a Descriptor.
template <class Connection>
class NewConnections {
 public:
  // Accepts what has connected to `listener`, as far as there is room, and closes what is too old. `now_ns`: of
  // monotonic_ns().
  void accept(const TcpListener& listener, int64_t now_ns) {
    std::erase_if(all_, [&](const Entry& e) { return now_ns - e.since_ns > kLongestGreetingTime; });
    while (true) {
      const bool full = all_.size() >= kMostNewConnections;
      if (full && now_ns - all_.front().since_ns < kMakesRoomAfter) return;
      auto socket = listener.accept();
      if (!socket) return;
      if (full) all_.erase(all_.begin());
      all_.push_back({Connection(std::move(*socket)), now_ns});
    }
  }

  // Calls `serve` for each connection, and drops those for which it returns true.
  template <class Serve>
  void serve(const Serve& serve) {
    std::erase_if(all_, [&serve](Entry& entry) { return serve(entry.connection); });
  }

  size_t count() const { return all_.size(); }

 private:
  struct Entry {
    Connection connection;
    int64_t since_ns;
  };
  std::vector<Entry> all_;  // oldest first
};

}  // namespace dstrain
