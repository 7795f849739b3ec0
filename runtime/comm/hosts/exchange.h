// Exchange: moves the windows of one operation between hosts, along their routes. A window belongs to a
// lane, so to one rank of each host, which reads and writes the tensors of all ranks of its machine.
// Several windows are under way at once, each in a slot with buffers of its own; none waits for another.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "runtime/comm/hosts/routes.h"
#include "runtime/comm/hosts/window_tags.h"
#include "runtime/comm/mpi/mpi_session.h"
#include "runtime/comm/ordered.h"
#include "runtime/comm/rendezvous/host_map.h"
#include "runtime/core/memory.h"

namespace dstrain {

// Where the tensors of one operation lie, for every rank of this machine: the whole, or where it is
// staged one chunk of it (of each of its slices).
struct LocalTensors {
  struct Whole {
    std::byte* base = nullptr;
    bool staged = false;
  };
  std::vector<Whole> wholes;   // by index in the host
  std::byte* slice = nullptr;  // of this rank: what a scatter writes, a gather reads
  int64_t element = 1;         // bytes
  int64_t elements = 0;        // of the whole, or of each slice
  int64_t chunk = 0;           // elements of a full chunk; `elements` where nothing is staged
  int64_t begin = 0;           // this chunk: elements [begin, end)
  int64_t end = 0;

  // Element `at` of slice `s` (0 where there are none) of the `local`-th rank's whole.
  std::byte* in_whole(int local, int64_t s, int64_t at) const {
    const Whole& whole = wholes[static_cast<size_t>(local)];
    return whole.base + (whole.staged ? s * chunk + at - begin : s * elements + at) * element;
  }
};

class Exchange {
 public:
  // The same on every rank. `hosts` and `mpi` outlive this object.
  Exchange(const MpiSession& mpi, const HostMap& hosts);

  // What a rank's bounce buffer must hold, so that a chunk of any staged tensor is a window at least.
  static int64_t least_bounce_bytes(const HostMap& hosts);
  // Elements of a window of such an operation, of the whole or of each slice.
  int64_t window_elements(const OpKey& key) const;

  // Begins an operation; every rank of every host, in the same order.
  void begin(const OpKey& key);
  // Begins the windows of [tensors.begin, tensors.end), which follow those of the last call. `tensors`
  // must stay until they are done.
  void run(const LocalTensors& tensors);
  // Makes progress without blocking; returns whether there was any.
  bool advance();
  // Whether this rank's part of run() is complete: what it had to send has left its tensors, and what
  // its machine needed of it is there.
  bool done() const;
  // A rank of another host whose message the oldest window waits for, or -1.
  int waited_rank() const;

 private:
  enum class Phase { idle, inputs, through, onward };
  struct Slot {
    Phase phase = Phase::idle;
    int64_t number = 0;  // among all windows ever, for the tags
    int slice = 0;
    int lane = 0;
    int64_t begin = 0;  // elements [begin, begin + n)
    int64_t n = 0;
    Leg leg;
    const std::byte* result = nullptr;
    int used = 0;     // requests of this phase
    int pending = 0;  // of them, those under way
    std::byte* running = nullptr;
    std::byte* passing = nullptr;  // for a result that this machine does not need
    std::byte* raw = nullptr;      // by rank of the world, those of this machine left out
  };

  bool start_next();
  int64_t oldest_number(int64_t otherwise) const;
  void move_on(Slot& slot);
  void take_inputs(Slot& slot);
  void pass_through(Slot& slot);
  void pass_onward(Slot& slot);
  void add_up(Slot& slot);
  Leg leg_of(int64_t window, int slice) const;
  std::byte* raw_buffer(const Slot& slot, int rank) const;
  std::byte* destination(const Slot& slot, int local) const;
  bool sums() const;
  void send(Slot& slot, int host, int what, const std::byte* data, int64_t bytes);
  void receive(Slot& slot, int host, int what, std::byte* data, int64_t bytes);
  MPI_Request* next_request(Slot& slot, int peer);

  const HostMap* hosts_;
  MPI_Comm comm_;
  int rank_, host_, index_;
  int64_t window_bytes_;
  WindowTags tags_;
  int requests_per_slot_;
  std::vector<Routes> routes_;  // whole sums, then scattered ones; 16-bit floats last in each
  Memory buffers_;
  std::vector<Slot> slots_;
  std::vector<MPI_Request> requests_;  // a block for each slot
  std::vector<int> peers_;             // whose they are
  std::vector<int> completed_;
  std::vector<const std::byte*> sources_;  // of a sum
  std::vector<std::byte*> places_;

  OpKey key_;
  const LocalTensors* tensors_ = nullptr;
  std::vector<int> slices_;   // that this rank's lanes carry; {0} where there are none
  int64_t window_ = 0;        // elements of one
  int64_t first_number_ = 0;  // of this operation's windows
  int64_t operation_windows_ = 0;
  int64_t next_begin_ = 0;  // the next window to start: its first element and place in slices_
  size_t next_slice_ = 0;
  int active_ = 0;
};

}  // namespace dstrain
