// RankBoard: shared memory in which every rank of a run publishes its state, so that the launching process
// can find the root cause of a failure even if that rank was killed. The launching process creates it as a
// memfd; ranks open it through /proc/<pid>/fd/<n>, whose address an environment variable holds. Invariant:
// only the rank itself writes its slot, with atomic stores and without locks, so that a rank that is killed
// at any time leaves a readable slot.
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

// What a rank is doing.
enum class RankState : int32_t { absent, starting, running, saving, done, failed };

// The kind of a failure. Exit status 1 for `user`, 2 for the others; `peer` is a secondary failure.
enum class FailureKind : int32_t { none, user, run, internal, peer };

// Returns nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share.
int64_t monotonic_ns();

// The largest record that a rank can post for the others (comm/rendezvous/board_rendezvous.h).
inline constexpr size_t kRecordBytes = 256;

// The state of one rank. The launching process reads the members at any time.
struct alignas(64) RankSlot {
  std::atomic<int32_t> pid{0};
  std::atomic<RankState> state{RankState::absent};
  std::atomic<int64_t> step{0};           // current step, from 1; 0 before the first
  std::atomic<int64_t> instruction{-1};   // current one, index into the names; -1: none
  std::atomic<int64_t> progress{0};       // grows whenever the rank gets on
  std::atomic<int64_t> awaited{-1};       // the collective it waits for, as `instruction`
  std::atomic<int32_t> waits_for{-1};     // the rank it waits for; -1: none
  std::atomic<int32_t> failure_order{0};  // 1: this rank failed first; 0: it has not failed
  std::atomic<int64_t> failure_ns{0};
  std::atomic<FailureKind> failure_kind{FailureKind::none};
  std::atomic<int64_t> message_bytes{0};
  std::atomic<int64_t> name_bytes{0};
  std::atomic<int64_t> name_count{0};
  std::atomic<uint32_t> records_posted{0};
  std::array<std::array<std::byte, kRecordBytes>, 2> records;  // of even and odd rounds
  std::array<char, 4096> message;   // of the failure, not terminated by 0
  std::array<char, 1 << 20> names;  // a line per instruction; untouched pages take no memory

  // Records that the rank begins instruction `index`.
  void publish(int64_t index) noexcept {
    instruction.store(index, std::memory_order_relaxed);
    note_progress();
  }
  // Records that the instruction is over: a failure from now on is not attributed to it.
  void leave_instruction() noexcept {
    instruction.store(-1, std::memory_order_relaxed);
    note_progress();
  }
  // Records progress within an instruction.
  void note_progress() noexcept {
    progress.store(progress.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  void begin_step(int64_t number) noexcept;
  void set_state(RankState value) noexcept;

  // Appends the names of a plan's instructions, which must not have line breaks. Returns the index of the
  // first, for publish(base + i). The first name that does not fit and all later ones are left out. The rank itself must call it before
  // the first step.
  int64_t add_names(std::span<const std::string> instruction_names);

  // Returns "linear blocks.0.f0"; "instruction 7" without a name; "" between instructions.
  std::string current_instruction() const;
  // Returns the collective that the rank waits for, or the current instruction if it waits for none.
  std::string awaited_instruction() const;
  std::string failure_text() const;  // empty if the rank has not failed

 private:
  std::string name_at(int64_t index) const;
};

// Shared memory with a slot for the state of each rank, mapped into this process.
class RankBoard {
 public:
  // Creates a board for `ranks` ranks. Throws RunError if the system refuses the memory.
  static RankBoard create(int ranks);
  // Opens the board at `address`. Throws RunError if it cannot be opened, or is not a board of this build.
  static RankBoard attach(const std::string& address);

  // Returns the address for attach(), "<pid>:<descriptor>:<bytes>". It is valid on this machine while the
  // creating process lives.
  std::string address() const;
  int ranks() const;
  RankSlot& slot(int rank) const;

  // How many records all ranks together have posted; a rank that waits for one sleeps on this word.
  std::atomic<uint32_t>& total_records_posted() const noexcept;

  // Asks all ranks to stop after a step because of `signal`. Later requests have no effect. Safe in a signal
  // handler.
  void request_stop(int signal) const noexcept;
  int stop_request() const noexcept;  // 0: none

  // Asks all ranks for a trace of the next steps. Signals to several processes of a run are often one, so a request
  // within a second after another one, or after accept_trace(), is the same. Safe in a signal handler.
  void request_trace() const noexcept;
  int64_t trace_requests() const noexcept;  // since the board was made
  // Records that the ranks have agreed on a request, which another board may have received earlier than this one.
  void accept_trace() const noexcept;

  // Records that the run stopped because of `signal` after writing its files.
  void set_stopped(int signal) const noexcept;
  int stopped() const noexcept;  // 0: it did not stop

  // Orders all processes of this board's ranks to exit with `status` (not 0), because the run has failed, and
  // wakes the threads that wait on end_word(). Later orders have no effect.
  void order_end(int status) const noexcept;
  int ordered_end() const noexcept;  // 0: none
  // The ordered status, or 0; a futex.
  std::atomic<uint32_t>& end_word() const noexcept;

  // Records the failure of `rank`, but not a second one of the same rank. Returns whether this is the first
  // failure of the run.
  bool fail(int rank, FailureKind kind, std::string_view message) const noexcept;
  // Returns the rank whose failure was recorded first.
  std::optional<int> first_failure() const noexcept;

 private:
  struct Header;
  explicit RankBoard(Memory memory) : memory_(std::move(memory)) {}
  Header& header() const noexcept;
  RankSlot& slot_at(int64_t rank) const noexcept;  // unchecked

  Memory memory_;
};

}  // namespace dstrain
