// The TCP connections over which the watchers of a run's hosts find the one of rank 0's host. Stands on
// sockets, IPv4. Invariant: nothing here blocks, and all sockets are closed with their objects.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/child.h"

namespace dstrain {

// Listens at a free port, at every address of this host.
class WatchListener {
 public:
  // Throws RunError.
  WatchListener();
  // One that another process of this program has made: its descriptor.
  explicit WatchListener(int descriptor) : socket_(descriptor) {}

  int descriptor() const { return socket_.get(); }
  int port() const;
  // The next connection, where one has come.
  std::optional<Descriptor> accept() const;

 private:
  Descriptor socket_;
};

// Tries all addresses of a host at once.
class WatchDialer {
 public:
  WatchDialer(const std::vector<std::string>& addresses, int port);
  // The first connection that stands; nothing as long as there is none.
  std::optional<Descriptor> connected();

 private:
  std::vector<Descriptor> attempts_;
};

}  // namespace dstrain
