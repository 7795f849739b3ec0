#include "launcher/hosts/agent/tcp_table.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>
#include <sstream>

#include "launcher/process/process_state.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kEstablished = 1, kSynSent = 2;  // the kernel's TCP_ESTABLISHED, TCP_SYN_SENT
constexpr size_t kWordDigits = 8;  // of 32 bits, as the kernel prints an address's words

std::optional<uint64_t> number_from(std::string_view text, int base) {
  uint64_t number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (status != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// Reads "0100007F", or four such words. Each is in the machine's byte order.
std::string address_from(std::string_view digits) {
  std::array<uint32_t, 4> words{};
  const size_t count = digits.size() / kWordDigits;
  if (digits.size() % kWordDigits != 0 || (count != 1 && count != 4)) return "";
  for (size_t i = 0; i < count; ++i) {
    const auto word = number_from(digits.substr(i * kWordDigits, kWordDigits), 16);
    if (!word) return "";
    words[i] = static_cast<uint32_t>(*word);
  }
  const bool mapped = count == 4 && words[0] == 0 && words[1] == 0 && words[2] == htonl(0xFFFF);
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (count == 1 || mapped)
    ::inet_ntop(AF_INET, &words[count - 1], text.data(), text.size());
  else
    ::inet_ntop(AF_INET6, words.data(), text.data(), text.size());
  return text.data();
}

// Reads "0100007F:0016".
bool read_endpoint(std::string_view text, std::string& address, int& port) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) return false;
  address = address_from(text.substr(0, colon));
  const auto number = number_from(text.substr(colon + 1), 16);
  port = static_cast<int>(number.value_or(0));
  return !address.empty() && number.has_value();
}

// Adds the sockets that a process has open.
void add_inodes(pid_t process, std::set<uint64_t>& inodes) {
  constexpr std::string_view kBegin = "socket:[";
  std::error_code none;
  for (fs::directory_iterator at(fmt::format("/proc/{}/fd", process), none), end;
       !none && at != end; at.increment(none)) {
    std::error_code gone;
    const std::string target = fs::read_symlink(at->path(), gone).string();
    if (!target.starts_with(kBegin)) continue;
    const auto inode = number_from(
        std::string_view(target).substr(kBegin.size(), target.size() - kBegin.size() - 1), 10);
    if (inode) inodes.insert(*inode);
  }
}

}  // namespace

std::vector<TcpSocket> parse_tcp_table(std::string_view text) {
  std::vector<TcpSocket> sockets;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string number, local, remote, state, queues, timer, retransmits, user;
    int64_t probes = 0;
    TcpSocket s;
    if (!(words >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user >>
          probes >> s.inode))
      continue;
    const auto status = number_from(state, 16);
    const auto unsent = number_from(std::string_view(queues).substr(0, queues.find(':')), 16);
    const auto sent_again = number_from(retransmits, 16);
    if (!status || !unsent || !sent_again || !read_endpoint(local, s.local, s.local_port) ||
        !read_endpoint(remote, s.remote, s.remote_port))
      continue;
    s.connecting = *status == kSynSent;
    s.established = *status == kEstablished;
    s.unacknowledged = static_cast<int64_t>(*unsent);
    s.retries = std::max(static_cast<int64_t>(*sent_again), probes);
    sockets.push_back(std::move(s));
  }
  return sockets;
}

std::vector<TcpSocket> tcp_sockets() {
  std::vector<TcpSocket> all = parse_tcp_table(readable_text("/proc/self/net/tcp"));
  for (TcpSocket& s : parse_tcp_table(readable_text("/proc/self/net/tcp6")))
    all.push_back(std::move(s));
  return all;
}

std::string awaited_peer(const std::vector<pid_t>& processes) {
  std::set<uint64_t> inodes;
  for (const pid_t process : processes) add_inodes(process, inodes);
  for (const TcpSocket& s : tcp_sockets())
    if (s.connecting && inodes.contains(s.inode))
      return fmt::format("{} port {}", s.remote, s.remote_port);
  return "";
}

}  // namespace dstrain
