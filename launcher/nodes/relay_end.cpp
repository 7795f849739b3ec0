#include "launcher/nodes/relay_end.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "runtime/config/text.h"

namespace dstrain {
namespace {

// Bytes that wait for the other side, from which on no more are read.
constexpr size_t kMostWaitingBytes = size_t{256} << 10;

}  // namespace

RelayEnd::RelayEnd(Role role, Descriptor connection, DirectionKeys keys, int in, Descriptor out)
    : connection_(std::move(connection)),
      stream_(connection_.get(), std::move(keys)),
      in_(in),
      out_(std::move(out)),
      begun_(role == Role::runs) {
  if (role == Role::runs) stream_.send(Frame::begin);
}

void RelayEnd::step(int timeout_ms) {
  const bool receives = !lost_ && unwritten_.size() < kMostWaitingBytes;
  const bool reads = begun_ && in_ >= 0 && stream_.unsent() < kMostWaitingBytes;
  const bool sends = !lost_ && stream_.unsent() > 0;
  // A descriptor of which nothing is wanted is left out, because its end would be told again and again.
  std::array<pollfd, 3> waits{
      {{receives || sends ? connection_.get() : -1,
        static_cast<short>((receives ? POLLIN : 0) | (sends ? POLLOUT : 0)), 0},
       {reads ? in_ : -1, POLLIN, 0},
       {unwritten_.empty() ? -1 : out_.get(), POLLOUT, 0}}};
  if (::poll(waits.data(), waits.size(), timeout_ms) <= 0) return;
  if (waits[2].revents != 0) write_output();
  if (waits[1].revents != 0) read_input();
  if (waits[0].revents != 0) receive();
}

void RelayEnd::read_input() {
  std::array<char, 65536> buffer;
  const ssize_t n = ::read(in_, buffer.data(), buffer.size());
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (n > 0) return stream_.send(Frame::data, {buffer.data(), static_cast<size_t>(n)});
  in_ = -1;
  stream_.send(Frame::end);
}

void RelayEnd::receive() {
  stream_.flush();
  const bool open =
      stream_.receive([this](Frame kind, std::string_view bytes) { use(kind, bytes); });
  if (fault_.empty() && !stream_.fault().empty()) {
    fault_ = stream_.fault();
    stream_.send(Frame::fault, fault_);
  }
  lost_ = lost_ || !open || !fault_.empty();
  write_output();
}

void RelayEnd::use(Frame kind, std::string_view bytes) {
  if (kind == Frame::begin) begun_ = true;
  if (kind == Frame::data && !reader_gone_) unwritten_ += bytes;
  if (kind == Frame::end) ended_ = true;
  if (kind == Frame::fault) fault_ = printable(std::string(bytes));
}

// Writes without blocking and without changing a descriptor that other processes may share: a pipe that can be written
// to takes PIPE_BUF bytes.
void RelayEnd::write_output() {
  while (!unwritten_.empty()) {
    pollfd room{out_.get(), POLLOUT, 0};
    if (::poll(&room, 1, 0) <= 0) return;
    const ssize_t n =
        ::write(out_.get(), unwritten_.data(), std::min<size_t>(unwritten_.size(), PIPE_BUF));
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n < 0) {
      reader_gone_ = true;
      unwritten_.clear();
    } else {
      unwritten_.erase(0, static_cast<size_t>(n));
    }
  }
  if (ended_ || lost_) out_ = Descriptor();
}

}  // namespace dstrain
