// RankBoard: one page of shared memory on which every rank of a run says what it is doing, so that
// whoever watches can name a culprit even when that rank can no longer speak. A memfd made by the
// launching process; ranks open it through /proc/<pid>/fd/<n>, told by an environment variable.
// Stands on memory.h. Invariant: a slot is written by its own rank alone, with plain atomic stores
// and no lock, so a rank that is killed at any moment leaves a readable slot behind.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/core/memory.h"

namespace dstrain {

enum class RankState : int32_t { absent, starting, running, saving, done, failed };

// Decides the exit status: user 1, the others 2. `peer`: a run error that another rank caused.
enum class FailureKind : int32_t { none, user, run, internal, peer };

// Nanoseconds of the clock that all processes of a machine share (CLOCK_MONOTONIC).
int64_t monotonic_ns();

// The largest record that a rank can post for the others (comm/rendezvous/board_rendezvous.h).
inline constexpr size_t kRecordBytes = 256;

// What one rank says about itself. The members are read by the launching process at any time.
struct alignas(64) RankSlot {
  std::atomic<int32_t> pid{0};
  std::atomic<RankState> state{RankState::absent};
  std::atomic<int64_t> step{0};                  // the step under way, from 1; 0 before the first
  std::atomic<int64_t> instruction{-1};          // index into the names; -1: between instructions
  std::atomic<int64_t> progress{0};              // grows with every sign of life
  std::atomic<int64_t> heartbeat_ns{0};          // last change of step or state
  std::atomic<int64_t> first_instruction_ns{0};  // 0: none yet
  std::atomic<int64_t> awaited{-1};       // the collective being waited for, as `instruction`
  std::atomic<int32_t> waits_for{-1};     // the rank being waited for; -1: none for long
  std::atomic<int32_t> failure_order{0};  // 1: this rank failed first; 0: it has not failed
  std::atomic<int64_t> failure_ns{0};
  std::atomic<FailureKind> failure_kind{FailureKind::none};
  std::atomic<int64_t> message_bytes{0};
  std::atomic<int64_t> name_bytes{0};
  std::atomic<int64_t> name_count{0};
  std::atomic<uint32_t> records_posted{0};
  std::array<std::array<std::byte, kRecordBytes>, 2> records;  // by turns
  std::array<char, 4096> message;                              // of the failure, not terminated
  std::array<char, 1 << 20> names;  // a line per instruction; untouched pages cost nothing

  // The rank begins instruction `index`: two relaxed stores.
  void publish(int64_t index) noexcept {
    instruction.store(index, std::memory_order_relaxed);
    note_progress();
    if (first_instruction_ns.load(std::memory_order_relaxed) == 0) [[unlikely]] {
      first_instruction_ns.store(monotonic_ns(), std::memory_order_relaxed);
    }
  }
  // The last instruction is over: what fails now did not fail in it.
  void leave_instruction() noexcept {
    instruction.store(-1, std::memory_order_relaxed);
    note_progress();
  }
  // The rank gets on within what it is doing.
  void note_progress() noexcept {
    progress.store(progress.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  void begin_step(int64_t number) noexcept;
  void set_state(RankState value) noexcept;

  // Appends the names of a plan's instructions (no line breaks in them) and returns the index of the
  // first, for publish(base + i). What does not fit is known by its number alone. Called before the
  // first step, by the rank itself.
  int64_t add_names(std::span<const std::string> instruction_names);

  // "linear blocks.0.f0", "instruction 7" where it has no name, "" between instructions.
  std::string current_instruction() const;
  // The collective that it waits for; the current instruction where it waits for none by name.
  std::string awaited_instruction() const;
  std::string failure_text() const;  // "" where it has not failed

 private:
  std::string name_at(int64_t index) const;
};

// The mapped board.
class RankBoard {
 public:
  // A fresh board for `ranks` ranks. Throws RunError where the system refuses the memory.
  static RankBoard create(int ranks);
  // The board that `address` names. Throws RunError with the reason where it cannot be opened, or
  // is not a board of this build.
  static RankBoard attach(const std::string& address);

  // For other processes of this machine, while the creating one lives: "<pid>:<descriptor>:<bytes>".
  std::string address() const;
  int ranks() const;
  RankSlot& slot(int rank) const;

  // How many records all ranks together have posted; a rank that waits for one sleeps on this word.
  std::atomic<uint32_t>& total_records_posted() const noexcept;

  // Asks all ranks to stop after a step, because of `signal`. The first request stands. Safe in a
  // signal handler.
  void request_stop(int signal) const noexcept;
  int stop_request() const noexcept;  // 0: none

  // Records that the run ended early because of `signal`, its files written.
  void set_stopped(int signal) const noexcept;
  int stopped() const noexcept;  // 0: it did not

  // Orders all processes of this board's ranks to end with `status` (not 0), because the run has failed; wakes
  // who sleeps on end_word(). The first order stands.
  void order_end(int status) const noexcept;
  int ordered_end() const noexcept;  // 0: none
  // 0 until an end is ordered.
  std::atomic<uint32_t>& end_word() const noexcept;

  // Records the failure of `rank`; the first one of the run is the culprit. Returns whether this is
  // the first. A second failure of the same rank is not recorded.
  bool fail(int rank, FailureKind kind, std::string_view message) const noexcept;
  // The rank whose failure was recorded first.
  std::optional<int> first_failure() const noexcept;

 private:
  struct Header;
  explicit RankBoard(Memory memory) : memory_(std::move(memory)) {}
  Header& header() const noexcept;
  RankSlot& slot_at(int64_t rank) const noexcept;  // unchecked

  Memory memory_;
};

}  // namespace dstrain
