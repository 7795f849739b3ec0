#include "launcher/report/watch/page_server.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>
#include <vector>

#include "launcher/report/page/page.h"
#include "runtime/core/error.h"
#include "runtime/core/files/system_reason.h"
#include "runtime/core/rank_board.h"

namespace dstrain::report {
namespace {

constexpr size_t kMostDropped = size_t{1} << 20;
constexpr int kOk = 200, kNotModified = 304, kNotFound = 404;

std::string_view reason_of(int status) {
  switch (status) {
    case kOk:
      return "OK";
    case kNotModified:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
    case kNotFound:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 431:
      return "Request Header Fields Too Large";
    default:
      return "Error";
  }
}

std::string head_of(int status, std::string_view type, size_t bytes, const std::string& more) {
  return fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}; charset=utf-8\r\nContent-Length: {}\r\n"
      "Connection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
      "X-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\n"
      "Cross-Origin-Resource-Policy: same-origin\r\nContent-Security-Policy: {}\r\n{}\r\n",
      status, reason_of(status), type, bytes, content_policy(PageUse::served), more);
}

// Returns a whole answer with a line of text.
std::string plain_answer(int status, bool head_only) {
  const std::string body = fmt::format("{} {}\n", status, reason_of(status));
  const std::string more = status == 405 ? "Allow: GET, HEAD\r\n" : "";
  return head_of(status, "text/plain", body.size(), more) + (head_only ? "" : body);
}

TcpListener listen_here(int port) {
  std::optional<TcpListener> listener = TcpListener::at(port, "127.0.0.1");
  if (!listener)
    fail_user(
        "--port {}: cannot listen at 127.0.0.1:{}: {} (name another port, or none for a free one)",
        port, port, system_reason(errno));
  return std::move(*listener);
}

}  // namespace

short PageConnection::events() const {
  return answered_ && !closing_ ? POLLOUT : POLLIN;
}

bool PageConnection::read() {
  std::array<char, 8192> bytes{};
  // A little at a time: others wait, too.
  for (int i = 0; i < 4; ++i) {
    const ssize_t count = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    if (count == 0) return false;
    if (closing_) {
      dropped_ += static_cast<size_t>(count);
      if (dropped_ > kMostDropped) return false;
    } else {
      arrived_.append(bytes.data(), static_cast<size_t>(count));
      if (arrived_.size() > kLongestHead) return true;
    }
  }
  return true;
}

void PageConnection::answer(const Request& request,
                            const std::function<std::shared_ptr<const PageState>()>& page) {
  answered_ = true;
  arrived_ = {};
  if (request.refusal != 0) {
    head_ = plain_answer(request.refusal, request.head_only);
  } else if (request.path == "/") {
    std::shared_ptr<const PageState> state = page();
    const std::string tag = "ETag: " + state->tag + "\r\n";
    if (request.known_tag == state->tag) {
      head_ = head_of(kNotModified, "text/html", 0, tag);
    } else {
      head_ = head_of(kOk, "text/html", state->text.size(), tag);
      if (!request.head_only) page_ = std::move(state);
    }
  } else if (request.path == kRefreshPath) {
    const std::string script = refresh_script();
    head_ = head_of(kOk, "text/javascript", script.size(), "") + (request.head_only ? "" : script);
  } else {
    head_ = plain_answer(kNotFound, request.head_only);
  }
}

bool PageConnection::write() {
  const std::string_view body = page_ ? std::string_view(page_->text) : std::string_view();
  while (written_ < head_.size() + body.size()) {
    const std::string_view rest = written_ < head_.size() ? std::string_view(head_).substr(written_)
                                                          : body.substr(written_ - head_.size());
    const ssize_t count = ::send(socket_.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    written_ += static_cast<size_t>(count);
  }
  // What the other end still sends is read, or it might lose the answer.
  ::shutdown(socket_.get(), SHUT_WR);
  page_.reset();
  closing_ = true;
  return true;
}

bool PageConnection::advance(const std::function<std::shared_ptr<const PageState>()>& page) {
  if (!answered_ || closing_) {
    const bool open = read();
    if (closing_) return !open;
    const std::optional<Request> request = read_request(arrived_);
    if (!request) return !open;
    answer(*request, page);
  }
  return !write();
}

PageServer::PageServer(std::string run, int port)
    : page_(std::move(run)), listener_(listen_here(port)) {}

std::string PageServer::address() const {
  return fmt::format("http://127.0.0.1:{}/", listener_.port());
}

void PageServer::serve(int stop) {
  constexpr int kLookAgain = 250, kPause = 50;  // milliseconds
  std::vector<pollfd> waits;
  while (true) {
    waits.assign(1, {stop, POLLIN, 0});
    connections_.serve([&waits](const PageConnection& connection) {
      waits.push_back({connection.descriptor(), connection.events(), 0});
      return false;
    });
    const bool full = connections_.count() >= kMostNewConnections;
    if (!full) waits.push_back({listener_.descriptor(), POLLIN, 0});
    const int ready =
        ::poll(waits.data(), waits.size(), connections_.count() > 0 ? kLookAgain : -1);
    if (ready < 0 && errno != EINTR) fail_run("cannot wait for browsers: {}", system_reason(errno));
    if (ready > 0 && waits.front().revents != 0) return;
    size_t at = 1;
    connections_.serve([&](PageConnection& connection) {
      const pollfd& wait = waits[at++];
      return wait.revents != 0 && connection.advance([this] { return page_.state(); });
    });
    const size_t before = connections_.count();
    const bool asked = !full && waits.back().revents != 0;
    connections_.accept(listener_, monotonic_ns());
    // Somebody who cannot be accepted, for want of descriptors, must not make this loop spin.
    if (asked && connections_.count() <= before) ::poll(nullptr, 0, kPause);
  }
}

}  // namespace dstrain::report
