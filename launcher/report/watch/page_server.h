// PageServer: serves a page to browsers on this machine, by HTTP on the loopback interface. Whatever connects, it neither
// blocks nor grows: connections are few, each has a short time and a small request, and they share the page.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "launcher/connection/new_connections.h"
#include "launcher/connection/tcp_socket.h"
#include "launcher/process/descriptor.h"
#include "launcher/report/watch/request.h"
#include "launcher/report/watch/watched_page.h"

namespace dstrain::report {

// A connection from its request to the end of its answer.
class PageConnection {
 public:
  explicit PageConnection(Descriptor socket) : socket_(std::move(socket)) {}

  int descriptor() const { return socket_.get(); }
  // What poll() is to wait for.
  short events() const;
  // Reads and writes as far as possible. `page` gives the newest page. Returns true once the connection is over.
  bool advance(const std::function<std::shared_ptr<const PageState>()>& page);

 private:
  bool read();  // false: the other end has closed the connection
  void answer(const Request& request,
              const std::function<std::shared_ptr<const PageState>()>& page);
  bool write();  // false: the other end takes nothing any more

  Descriptor socket_;
  std::string arrived_;
  std::string head_;                       // of the answer, with a short body
  std::shared_ptr<const PageState> page_;  // the body; null: none
  size_t written_ = 0;                     // of both
  size_t dropped_ = 0;                     // bytes that came behind the request
  bool answered_ = false, closing_ = false;
};

class PageServer {
 public:
  // Listens at a port of 127.0.0.1, or at a free one where it is 0. Throws UserError if that is impossible.
  PageServer(std::string run, int port);

  std::string address() const;  // "http://127.0.0.1:8123/"
  // Serves until `stop`, a descriptor, can be read.
  void serve(int stop);

 private:
  WatchedPage page_;
  TcpListener listener_;
  NewConnections<PageConnection> connections_;
};

}  // namespace dstrain::report
