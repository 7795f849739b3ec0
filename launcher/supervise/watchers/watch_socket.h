// The TCP connections over which processes of a run on several hosts find each other: watchers the one on rank 0's
// host, hosts that were started by hand node 0. Stands on sockets, IPv4. Invariant: nothing here blocks, and all sockets are closed with their objects.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/ranks/child.h"

namespace dstrain {

// Listens at a free port, at every address of this host.
class WatchListener {
 public:
  // Throws RunError.
  WatchListener();
  // At a port that the user chose. Throws UserError where it cannot be had.
  static WatchListener at(int port);
  // One that another process of this program has made: its descriptor.
  explicit WatchListener(int descriptor) : socket_(descriptor) {}

  int descriptor() const { return socket_.get(); }
  int port() const;
  // The next connection, where one has come.
  std::optional<Descriptor> accept() const;

 private:
  explicit WatchListener(Descriptor socket) : socket_(std::move(socket)) {}

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
