// Exchange: moves the windows of one operation between hosts, along their routes (routes.h). A window is a
// run of elements and belongs to a lane: one rank of each host, which reads and writes the tensors of all
// ranks of its machine. Several windows are under way at once, each with its own buffers; none
// waits for another.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "runtime/comm/hosts/routes.h"
#include "runtime/comm/hosts/window_tags.h"
#include "runtime/comm/mpi/mpi_session.h"
#include "runtime/comm/operation.h"
#include "runtime/comm/rendezvous/host_map.h"
#include "runtime/comm/shared/local_tensors.h"
#include "runtime/comm/stages.h"
#include "runtime/core/memory.h"

namespace dstrain {

class Exchange final : public Awaited {
 public:
  // The same `hosts` on every rank. `hosts` and `mpi` outlive this object.
  Exchange(const MpiSession& mpi, const HostMap& hosts);

  // Returns how large a rank's bounce buffer must be, so that it holds a window of any staged tensor.
  static int64_t least_bounce_bytes(const HostMap& hosts);
  // Returns the elements of a window of such an operation: of the whole, or of each slice.
  int64_t window_elements(const OpKey& key) const;

  // Begins an operation. Every rank of every host calls it, in the same order.
  void begin(const Operation& op);
  // Begins the windows of the current chunk of `wholes`, the tensors of this machine's ranks. Chunks
  // follow one another from 0 to the end. `wholes` must stay until done().
  void run(const LocalTensors& wholes);
  // Whether this rank's part of run() is complete: what it had to send has left its tensors, and what
  // its machine needed of it has arrived.
  bool done() const;

  // Sends, adds and receives as far as it can without blocking; returns whether anything moved or all
  // is done.
  bool ready() override;
  // The peer of a message that the oldest window waits for, or -1.
  int waited_rank() override;
  void sleep(int earlier, std::chrono::microseconds longest) override;

 private:
  // The messages that a window waits for, in turn: the inputs of this host's sum, and this host's raw
  // elements; the running sum to the next host, and the result; the result to the next host.
  enum class Phase { idle, inputs, sums, results };
  struct OpenWindow {
    Phase phase = Phase::idle;
    int64_t number = 0;  // among all windows since the start, for the tags
    int slice = 0;
    int lane = 0;
    int64_t begin = 0;  // elements [begin, begin + n)
    int64_t n = 0;
    Leg leg;
    const std::byte* result = nullptr;
    int used = 0;                  // requests of this phase
    int pending = 0;               // of them, those not complete
    std::byte* running = nullptr;  // the running sum
    std::byte* relayed = nullptr;  // a result that this machine does not need
    std::byte* raw = nullptr;      // elements of all ranks of other machines, by rank
  };

  bool advance();
  bool start_next();
  int64_t oldest_number(int64_t otherwise) const;
  void move_on(OpenWindow& window);
  void start_inputs(OpenWindow& window);
  void start_sums(OpenWindow& window);
  void start_results(OpenWindow& window);
  void add_up(OpenWindow& window);
  Leg leg_of(int64_t window, int slice) const;
  std::byte* raw_buffer(const OpenWindow& window, int rank) const;
  std::byte* exchanged(const OpenWindow& window, int rank) const;
  std::byte* destination(const OpenWindow& window, int local) const;
  // Return how many elements of a window rank `rank` has for the window's slice, and where those of the `local`-th rank of this
  // machine lie.
  int64_t elements_of(const OpenWindow& window, int rank) const;
  const std::byte* source_of(const OpenWindow& window, int local) const;
  void send(OpenWindow& window, int host, int what, const std::byte* data, int64_t bytes);
  void receive(OpenWindow& window, int host, int what, std::byte* data, int64_t bytes);
  MPI_Request* next_request(OpenWindow& window, int peer);

  const HostMap* hosts_;
  MPI_Comm comm_;
  int rank_, host_, index_;
  int64_t window_bytes_;
  WindowTags tags_;
  int requests_per_window_;
  // For whole sums, for those in 16 bits, for scattered sums, for those in 16 bits.
  std::vector<Routes> routes_;
  Memory buffers_;
  std::vector<OpenWindow> windows_;
  std::vector<MPI_Request> requests_;  // a block for each window
  std::vector<int> peers_;             // of the requests
  std::vector<int> completed_;
  std::vector<const std::byte*> sources_;  // of one sum
  std::vector<std::byte*> places_;         // of its result

  OpKey key_;
  RowCounts rows_;
  // This rank's own tensor: the result of a scatter, the source of a gather, the result of an all-to-all.
  std::byte* slice_ = nullptr;
  const LocalTensors* wholes_ = nullptr;
  std::vector<int> slices_;  // that this rank's lanes carry; {0} if the kind is not sliced
  int64_t window_elements_ = 0;
  int64_t first_number_ = 0;  // of this operation's windows
  int64_t operation_windows_ = 0;
  int64_t next_begin_ = 0;  // the next window to start: its first element and place in slices_
  size_t next_slice_ = 0;
  int active_ = 0;
};

}  // namespace dstrain
