// A bad network cable between a host of a test and its switch, for kernels that have no netem: frames
// are kept for a while, and some are lost.
//   bad_link PORT TAP DELAY_MS LOSS_PERCENT   joins PORT (of a veth pair) and a new device TAP, until killed
//   bad_link DEVICE                           makes DEVICE send whole frames with checksums, as the first
//                                             form needs it of the sender behind PORT
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <linux/sockios.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "bad_link: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

ifreq request_for(const std::string& device) {
  ifreq request{};
  device.copy(request.ifr_name, IFNAMSIZ - 1);
  return request;
}

void send_whole_frames(const std::string& device) {
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) fail("socket");
  for (const uint32_t feature : {ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_STXCSUM}) {
    ethtool_value off{feature, 0};
    ifreq request = request_for(device);
    request.ifr_data = reinterpret_cast<char*>(&off);
    if (::ioctl(fd, SIOCETHTOOL, &request) != 0) fail("ethtool");
  }
  ::close(fd);
}

int open_port(const std::string& device) {
  const int fd = ::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, htons(ETH_P_ALL));
  if (fd < 0) fail("socket");
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(::if_nametoindex(device.c_str()));
  if (::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) fail("bind");
  packet_mreq all{};
  all.mr_ifindex = address.sll_ifindex;
  all.mr_type = PACKET_MR_PROMISC;
  if (::setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof all) != 0)
    fail("promiscuous");
  const int bytes = 16 << 20, one = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes);
  if (::setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one) != 0) fail("incoming");
  return fd;
}

int open_tap(const std::string& device) {
  const int fd = ::open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) fail("/dev/net/tun");
  ifreq request = request_for(device);
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  if (::ioctl(fd, TUNSETIFF, &request) != 0) fail("TUNSETIFF");
  return fd;
}

struct Frame {
  Clock::time_point due;
  std::vector<char> bytes;
};

// What travels in one direction.
class Direction {
 public:
  Direction(int from, int to, std::chrono::milliseconds delay, double loss, unsigned seed)
      : from_(from), to_(to), delay_(delay), lost_(loss), random_(seed) {}

  void take() {
    std::array<char, 1 << 16> buffer;
    for (ssize_t n = 0; (n = ::read(from_, buffer.data(), buffer.size())) > 0;)
      if (!lost_(random_))
        frames_.push_back({Clock::now() + delay_, {buffer.data(), buffer.data() + n}});
  }

  void give() {
    for (; !frames_.empty() && frames_.front().due <= Clock::now(); frames_.pop_front())
      if (::write(to_, frames_.front().bytes.data(), frames_.front().bytes.size()) < 0)
        continue;  // a full queue: one more that is lost
  }

  Clock::time_point next() const {
    return frames_.empty() ? Clock::time_point::max() : frames_.front().due;
  }

 private:
  int from_, to_;
  std::chrono::milliseconds delay_;
  std::bernoulli_distribution lost_;
  std::mt19937 random_;
  std::deque<Frame> frames_;
};

[[noreturn]] void relay(int port, int tap, std::chrono::milliseconds delay, double loss) {
  Direction out(port, tap, delay, loss, 1), in(tap, port, delay, loss, 2);
  std::array<pollfd, 2> doors{{{port, POLLIN, 0}, {tap, POLLIN, 0}}};
  while (true) {
    const Clock::time_point next = std::min(out.next(), in.next());
    timespec wait{3600, 0};
    if (next != Clock::time_point::max()) {
      const auto left = std::max<int64_t>(0, (next - Clock::now()).count());
      wait = {left / 1'000'000'000, left % 1'000'000'000};
    }
    ::ppoll(doors.data(), doors.size(), &wait, nullptr);
    for (Direction* direction : {&out, &in}) {
      direction->take();
      direction->give();
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2) {
    send_whole_frames(argv[1]);
    return 0;
  }
  if (argc != 5) {
    std::fputs("usage: bad_link PORT TAP DELAY_MS LOSS_PERCENT | bad_link DEVICE\n", stderr);
    return 1;
  }
  const int port = open_port(argv[1]);
  const int tap = open_tap(argv[2]);
  relay(port, tap, std::chrono::milliseconds(std::atoi(argv[3])), std::atof(argv[4]) / 100);
}
