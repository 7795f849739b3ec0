// Values of a device pass the host in pieces, each copied beside the work on another.
#include "runtime/core/devices/host_pieces.h"

#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "runtime/core/devices/emulated_device.h"
#include "runtime/core/devices/host_memory_device.h"

using namespace dstrain;

namespace {

using Names = std::vector<std::string>;

// A device whose streams copy when somebody waits for them, and write down what was asked of them.
class LateDevice final : public HostMemoryDevice {
 public:
  DeviceKind kind() const override { return DeviceKind::emulated; }
  std::string name() const override { return "late"; }
  Memory pinned(int64_t bytes, const std::string& what) override {
    ++pinned_buffers;
    return Memory::anonymous(bytes, what);
  }
  std::unique_ptr<Stream> make_stream(StreamPriority) override;
  std::unique_ptr<Event> make_event() override;
  void attach_thread() override { attached = std::this_thread::get_id(); }

  Names log;
  int pinned_buffers = 0;
  std::thread::id attached{};         // the newest thread that attached itself
  int streams_of_others = 0;          // made by a thread that had not
  const std::byte* memory = nullptr;  // the device's
  int64_t piece = 1;
};

class LateStream final : public Stream {
 public:
  explicit LateStream(LateDevice& device) : device_(device) {}
  void copy(void* to, const void* from, int64_t bytes) override {
    const auto* const t = static_cast<const std::byte*>(to);
    const auto* const f = static_cast<const std::byte*>(from);
    const bool up = t >= device_.memory && t < device_.memory + (int64_t{1} << 26);
    device_.log.push_back((up ? "up " : "down ") +
                          std::to_string(((up ? t : f) - device_.memory) / device_.piece));
    copies_.push_back({to, from, bytes});
  }
  void run(size_t count) {
    for (; done_ < count; ++done_)
      std::memcpy(copies_[done_].to, copies_[done_].from,
                  static_cast<size_t>(copies_[done_].bytes));
  }
  size_t count() const { return copies_.size(); }
  void zero(void*, int64_t) override { throw std::logic_error("not wanted"); }
  void wait(Event&) override { throw std::logic_error("not wanted"); }
  void synchronize() override { run(copies_.size()); }
  void* native() override { return nullptr; }
  bool begin_capture() override { return false; }
  std::unique_ptr<Graph> end_capture() override { return nullptr; }
  bool capturing() override { return false; }

 private:
  struct Copy {
    void* to;
    const void* from;
    int64_t bytes;
  };
  LateDevice& device_;
  std::vector<Copy> copies_;
  size_t done_ = 0;
};

class LateEvent final : public Event {
 public:
  void record(Stream& stream) override {
    stream_ = static_cast<LateStream*>(&stream);
    count_ = stream_->count();
  }
  void synchronize() override {
    if (stream_) stream_->run(count_);
  }
  bool reached() override { return true; }

 private:
  LateStream* stream_ = nullptr;
  size_t count_ = 0;
};

std::unique_ptr<Stream> LateDevice::make_stream(StreamPriority) {
  streams_of_others += attached != std::this_thread::get_id();
  return std::make_unique<LateStream>(*this);
}
std::unique_ptr<Event> LateDevice::make_event() {
  return std::make_unique<LateEvent>();
}

// Memory without a device, as a disk's.
class Elsewhere final : public RemoteMemory {
 public:
  void download(void* host, const void* from, int64_t bytes) override {
    std::memcpy(host, from, static_cast<size_t>(bytes));
  }
  void upload(void* to, const void* host, int64_t bytes) override {
    std::memcpy(to, host, static_cast<size_t>(bytes));
  }
};

std::vector<std::byte> numbered(int64_t bytes) {
  std::vector<std::byte> list(static_cast<size_t>(bytes));
  for (size_t i = 0; i < list.size(); ++i) list[i] = static_cast<std::byte>(i * 7 % 251);
  return list;
}

// Reads, writes and changes memory of `owner`, in pieces of `piece` bytes.
void check_access(RemoteMemory& owner, int64_t bytes, int64_t piece) {
  CAPTURE(bytes, piece);
  std::vector<std::byte> memory = numbered(bytes);
  const std::vector<std::byte> before = memory;
  std::vector<std::byte> seen;
  int64_t next = 0;
  const auto in_order = [&](int64_t offset, int64_t n) {
    CHECK(offset == next);
    CHECK(n == std::min(std::min(piece, Staging::kBytes), bytes - offset));
    next = offset + n;
  };
  for_host_pieces(owner, memory.data(), bytes, piece, HostAccess::read,
                  [&](int64_t offset, std::byte* data, int64_t n) {
                    in_order(offset, n);
                    seen.insert(seen.end(), data, data + n);
                    std::memset(data, 0, static_cast<size_t>(n));  // stays on the host
                  });
  CHECK(next == bytes);
  CHECK((seen == before && memory == before));
  next = 0;
  for_host_pieces(owner, memory.data(), bytes, piece, HostAccess::read_write,
                  [&](int64_t offset, std::byte* data, int64_t n) {
                    in_order(offset, n);
                    for (int64_t i = 0; i < n; ++i) data[i] ^= std::byte{0x5a};
                  });
  bool changed = true;
  for (size_t i = 0; i < memory.size(); ++i)
    changed = changed && memory[i] == (before[i] ^ std::byte{0x5a});
  CHECK(changed);
  next = 0;
  for_host_pieces(owner, memory.data(), bytes, piece, HostAccess::write,
                  [&](int64_t offset, std::byte* data, int64_t n) {
                    in_order(offset, n);
                    std::memcpy(data, before.data() + offset, static_cast<size_t>(n));
                  });
  CHECK(memory == before);
}

}  // namespace

TEST_CASE("values of any size are read, changed and written in pieces") {
  const auto emulated = make_emulated_device();
  LateDevice late;
  Elsewhere elsewhere;
  for (RemoteMemory* owner :
       std::initializer_list<RemoteMemory*>{emulated.get(), &late, &elsewhere})
    for (const int64_t bytes : {0, 4, 63, 64, 65, 128, 1000})
      for (const int64_t piece : {64, 4096}) check_access(*owner, bytes, piece);
  check_access(*emulated, 2 * Staging::kBytes + 12, 4 * Staging::kBytes);
}

TEST_CASE("a thread of a pool attaches itself to the device before it copies") {
  LateDevice device;
  std::vector<std::byte> memory = numbered(64);
  std::thread([&] {
    for_host_pieces(device, memory.data(), 64, 64, HostAccess::read,
                    [](int64_t, std::byte*, int64_t) {});
  }).join();
  CHECK(device.streams_of_others == 0);
}

TEST_CASE("the next piece is under way while the host works on one") {
  LateDevice device;
  std::vector<std::byte> memory = numbered(4 * 64 - 1);
  device.memory = memory.data();
  device.piece = 64;
  const auto pass = [&](HostAccess access) {
    device.log.clear();
    for_host_pieces(device, memory.data(), static_cast<int64_t>(memory.size()), 64, access,
                    [&](int64_t offset, std::byte*, int64_t) {
                      device.log.push_back("take " + std::to_string(offset / 64));
                    });
    return device.log;
  };
  CHECK(pass(HostAccess::read) ==
        Names{"down 0", "down 1", "take 0", "down 2", "take 1", "down 3", "take 2", "take 3"});
  CHECK(pass(HostAccess::write) ==
        Names{"take 0", "up 0", "take 1", "up 1", "take 2", "up 2", "take 3", "up 3"});
  CHECK(pass(HostAccess::read_write) == Names{"down 0", "down 1", "take 0", "up 0", "down 2",
                                              "take 1", "up 1", "down 3", "take 2", "up 2",
                                              "take 3", "up 3"});
  CHECK(device.pinned_buffers == 2);  // used again
}

TEST_CASE(
    "copies within copies have buffers of their own, and a failure leaves nothing under way") {
  LateDevice device;
  std::vector<std::byte> from = numbered(300), to(300);
  for_host_pieces(device, from.data(), 300, 64, HostAccess::read,
                  [&](int64_t offset, std::byte* values, int64_t n) {
                    for_host_pieces(device, to.data() + offset, n, 16, HostAccess::write,
                                    [&](int64_t at, std::byte* part, int64_t m) {
                                      std::memcpy(part, values + at, static_cast<size_t>(m));
                                    });
                  });
  CHECK(to == from);
  CHECK(device.pinned_buffers == 4);
  CHECK_THROWS_AS(for_host_pieces(device, from.data(), 300, 64, HostAccess::read_write,
                                  [](int64_t offset, std::byte* data, int64_t) {
                                    data[0] = std::byte{1};
                                    if (offset > 0) throw std::runtime_error("full disk");
                                  }),
                  std::runtime_error);
  CHECK(from[0] == std::byte{1});
  std::vector<std::thread> threads;
  const auto emulated = make_emulated_device();
  std::array<int, 3> wrong{};
  for (int& count : wrong)
    threads.emplace_back([&count, &emulated, &from] {
      for_host_pieces(*emulated, from.data(), 300, 64, HostAccess::read,
                      [&](int64_t offset, std::byte* data, int64_t n) {
                        count +=
                            std::memcmp(data, from.data() + offset, static_cast<size_t>(n)) != 0;
                      });
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::array<int, 3>{});
  CHECK(device.pinned_buffers == 4);
}
