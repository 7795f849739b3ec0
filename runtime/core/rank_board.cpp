#include "runtime/core/rank_board.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <climits>
#include <new>

#include "runtime/core/error.h"
#include "runtime/core/futex.h"

namespace dstrain {
namespace {

constexpr uint64_t kMagic = 0x6473745f626f6172;  // "dst_boar"
constexpr int64_t kSameRequestNs = 1'000'000'000;

// Returns the number at the start of `text`, and removes it and the ':' after it.
int64_t take_number(std::string_view& text, const std::string& address) {
  int64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || value < 0)
    fail_run("'{}' is not the address of a rank board (expected <pid>:<descriptor>:<bytes>)",
             address);
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  if (text.starts_with(':')) text.remove_prefix(1);
  return value;
}

}  // namespace

static_assert(std::atomic<int64_t>::is_always_lock_free);
static_assert(std::atomic<RankState>::is_always_lock_free);

struct alignas(64) RankBoard::Header {
  uint64_t magic = kMagic;
  uint64_t slot_bytes = sizeof(RankSlot);
  int64_t ranks = 0;
  std::atomic<int32_t> stop_request{0};
  std::atomic<int32_t> stopped{0};
  std::atomic<int32_t> failures{0};
  std::atomic<uint32_t> records_posted{0};
  std::atomic<uint32_t> ordered_end{0};
  std::atomic<int64_t> trace_requests{0};
  std::atomic<int64_t> trace_ns{
      0};  // of the newest request, or of the agreement on it; 0: there was none
};

int64_t monotonic_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

void RankSlot::begin_step(int64_t number) noexcept {
  step.store(number, std::memory_order_relaxed);
  note_progress();
}

void RankSlot::set_state(RankState value) noexcept {
  note_progress();
  state.store(value, std::memory_order_release);
}

int64_t RankSlot::add_names(std::span<const std::string> instruction_names) {
  const int64_t base = name_count.load(std::memory_order_relaxed);
  int64_t used = name_bytes.load(std::memory_order_relaxed);
  // The number of a line is an index: after a name that is left out there is none.
  const auto stored = std::count(names.begin(), names.begin() + used, '\n');
  for (const std::string& name : instruction_names) {
    const auto size = static_cast<int64_t>(name.size());
    if (stored < base || used + size + 1 > static_cast<int64_t>(names.size())) break;
    std::copy(name.begin(), name.end(), names.begin() + used);
    names[static_cast<size_t>(used + size)] = '\n';
    used += size + 1;
  }
  name_bytes.store(used, std::memory_order_release);
  name_count.store(base + static_cast<int64_t>(instruction_names.size()),
                   std::memory_order_relaxed);
  return base;
}

std::string RankSlot::current_instruction() const {
  return name_at(instruction.load(std::memory_order_relaxed));
}

std::string RankSlot::awaited_instruction() const {
  const int64_t index = awaited.load(std::memory_order_relaxed);
  return index < 0 ? current_instruction() : name_at(index);
}

std::string RankSlot::name_at(int64_t index) const {
  if (index < 0) return "";
  const auto bytes = std::clamp<int64_t>(name_bytes.load(std::memory_order_acquire), 0,
                                         static_cast<int64_t>(names.size()));
  std::string_view text(names.data(), static_cast<size_t>(bytes));
  for (int64_t line = 0; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (line == index) return std::string(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return fmt::format("instruction {}", index);
}

std::string RankSlot::failure_text() const {
  const auto bytes = std::clamp<int64_t>(message_bytes.load(std::memory_order_acquire), 0,
                                         static_cast<int64_t>(message.size()));
  return std::string(message.data(), static_cast<size_t>(bytes));
}

RankBoard RankBoard::create(int ranks) {
  check(ranks > 0, "a rank board for {} ranks", ranks);
  const size_t bytes = sizeof(Header) + static_cast<size_t>(ranks) * sizeof(RankSlot);
  Memory memory = Memory::shared(static_cast<int64_t>(bytes), "the rank board");
  memory.use_small_pages();
  auto* header = new (memory.data()) Header;
  header->ranks = ranks;
  for (int rank = 0; rank < ranks;
       ++rank)  // default-initialized, so that the large arrays stay untouched
    new (memory.data() + sizeof(Header) + static_cast<size_t>(rank) * sizeof(RankSlot)) RankSlot;
  return RankBoard(std::move(memory));
}

RankBoard RankBoard::attach(const std::string& address) {
  std::string_view rest = address;
  const int64_t pid = take_number(rest, address);
  const int64_t descriptor = take_number(rest, address);
  const int64_t bytes = take_number(rest, address);
  if (bytes < static_cast<int64_t>(sizeof(Header)))
    fail_run("'{}' is not the address of a rank board (too few bytes)", address);
  RankBoard board(Memory::open_peer(pid, static_cast<int>(descriptor), bytes));
  board.memory_.use_small_pages();
  const Header& header = board.header();
  const int64_t slots =
      (bytes - static_cast<int64_t>(sizeof(Header))) / static_cast<int64_t>(sizeof(RankSlot));
  if (header.magic != kMagic || header.slot_bytes != sizeof(RankSlot) || header.ranks < 1 ||
      header.ranks > slots)
    fail_run("the rank board at {} was made by another version of dstrain", address);
  return board;
}

std::string RankBoard::address() const {
  return fmt::format("{}:{}:{}", ::getpid(), memory_.fd(), memory_.bytes());
}

RankBoard::Header& RankBoard::header() const noexcept {
  return *std::launder(reinterpret_cast<Header*>(memory_.data()));
}

int RankBoard::ranks() const {
  return static_cast<int>(header().ranks);
}

RankSlot& RankBoard::slot_at(int64_t rank) const noexcept {
  std::byte* at = memory_.data() + sizeof(Header) + static_cast<size_t>(rank) * sizeof(RankSlot);
  return *std::launder(reinterpret_cast<RankSlot*>(at));
}

RankSlot& RankBoard::slot(int rank) const {
  check(rank >= 0 && rank < ranks(), "slot {} of a board for {} ranks", rank, ranks());
  return slot_at(rank);
}

std::atomic<uint32_t>& RankBoard::total_records_posted() const noexcept {
  return header().records_posted;
}

void RankBoard::request_stop(int signal) const noexcept {
  int32_t none = 0;
  header().stop_request.compare_exchange_strong(none, signal);
}

int RankBoard::stop_request() const noexcept {
  return header().stop_request.load();
}

void RankBoard::request_trace() const noexcept {
  const int64_t now = monotonic_ns();
  int64_t last = header().trace_ns.load();
  if (last != 0 && now - last < kSameRequestNs) return;
  // Whoever changes it first has the same request.
  if (header().trace_ns.compare_exchange_strong(last, now)) header().trace_requests.fetch_add(1);
}

int64_t RankBoard::trace_requests() const noexcept {
  return header().trace_requests.load();
}

void RankBoard::accept_trace() const noexcept {
  header().trace_ns.store(monotonic_ns());
}

void RankBoard::set_stopped(int signal) const noexcept {
  header().stopped.store(signal);
}

int RankBoard::stopped() const noexcept {
  return header().stopped.load();
}

void RankBoard::order_end(int status) const noexcept {
  uint32_t none = 0;
  header().ordered_end.compare_exchange_strong(none, static_cast<uint32_t>(status));
  futex_wake(header().ordered_end, INT_MAX);
}

int RankBoard::ordered_end() const noexcept {
  return static_cast<int>(header().ordered_end.load());
}

std::atomic<uint32_t>& RankBoard::end_word() const noexcept {
  return header().ordered_end;
}

bool RankBoard::fail(int rank, FailureKind kind, std::string_view message) const noexcept {
  RankSlot& mine = slot_at(rank);
  if (mine.failure_order.load() != 0) return false;
  const size_t bytes = std::min(message.size(), mine.message.size());
  std::copy_n(message.begin(), bytes, mine.message.begin());
  mine.message_bytes.store(static_cast<int64_t>(bytes));
  mine.failure_kind.store(kind);
  mine.failure_ns.store(monotonic_ns());
  const int32_t order = header().failures.fetch_add(1) + 1;
  mine.failure_order.store(order);
  mine.set_state(RankState::failed);
  return order == 1;
}

std::optional<int> RankBoard::first_failure() const noexcept {
  for (int rank = 0; rank < ranks(); ++rank)
    if (slot_at(rank).failure_order.load() == 1) return rank;
  return std::nullopt;
}

}  // namespace dstrain
