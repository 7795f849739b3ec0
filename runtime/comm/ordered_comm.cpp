#include "runtime/comm/ordered_comm.h"

#include <sched.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <exception>

#include "runtime/core/error.h"
#include "runtime/core/rank_board.h"

namespace dstrain {
namespace {

// A wait spins this long (yielding its core if a peer may need it), then sleeps.
constexpr std::chrono::microseconds kSpin{20};
// How long the destructor waits for the peers.
constexpr double kCloseSeconds = 10;

}  // namespace

void* Stages::promise_type::operator new(size_t bytes, OrderedComm& comm, const Operation&) {
  return comm.frame_.reserve(bytes);
}

OrderedComm::OrderedComm(int rank, int size, const CommOptions& options)
    : rank_(rank),
      size_(size),
      threads_(std::max(1, options.threads)),
      deadline_seconds_(options.deadline_seconds),
      crowded_(ranks_on_this_host_from_environment() > ::get_nprocs()),
      slot_(options.slot),
      exceptions_at_start_(std::uncaught_exceptions()) {
  queue_.reserve(64);  // so that starting an operation does not allocate
}

Work OrderedComm::start(Operation op) {
  throw_if_stopped();
  check(!finished_, "{} started after finish()", name_of(op.key.kind));
  op.key.sequence = ++started_;
  queue_.push_back(op);
  if (queue_.size() == 1) progress();  // lets the peers see this rank's source early
  return {this, started_};
}

Work OrderedComm::start_tensor(Collective kind, const Tensor& in, const Tensor& out, int root) {
  check(in.dtype == out.dtype, "{} from {} to {}", name_of(kind), name_of(in.dtype),
        name_of(out.dtype));
  check(!is_sum(kind) || in.dtype != DType::u8, "{} cannot add u8", name_of(kind));
  check(root >= 0 && root < size_, "{} from rank {} of {}", name_of(kind), root, size_);
  const bool scatter = kind == Collective::reduce_scatter;
  const Tensor& slice = scatter ? out : in;
  const Tensor& whole = scatter ? in : out;
  check(whole.elements() == slice.elements() * (is_sliced(kind) ? size_ : 1),
        "{} over {} ranks: a slice of {} elements does not fit a whole of {}", name_of(kind), size_,
        slice.elements(), whole.elements());
  if (is_sliced(kind)) {
    const auto* s = static_cast<const std::byte*>(slice.data);
    const auto* w = static_cast<const std::byte*>(whole.data);
    check(s + slice.bytes() <= w || w + whole.bytes() <= s || s == w + rank_ * slice.bytes(),
          "{}: the slice overlaps the whole elsewhere than at this rank's place", name_of(kind));
  }
  Operation op;
  op.key = {0, kind, in.dtype, root, slice.elements()};
  op.in = static_cast<std::byte*>(in.data);
  op.out = static_cast<std::byte*>(out.data);
  const Work work = start(op);
  wire_bytes_ += ring_bytes(kind, whole.bytes(), size_);
  return work;
}

Work OrderedComm::all_reduce(Tensor inout) {
  return start_tensor(Collective::all_reduce, inout, inout, 0);
}

Work OrderedComm::reduce_scatter(Tensor in, Tensor out) {
  return start_tensor(Collective::reduce_scatter, in, out, 0);
}

Work OrderedComm::all_gather(Tensor in, Tensor out) {
  return start_tensor(Collective::all_gather, in, out, 0);
}

Work OrderedComm::broadcast(Tensor inout, int root) {
  return start_tensor(Collective::broadcast, inout, inout, root);
}

void OrderedComm::barrier() {
  start(Operation{}).wait();
}

void OrderedComm::gather_values(std::span<const double> mine, std::span<double> all) {
  check(static_cast<int64_t>(mine.size_bytes()) <= kMaxValueBytes &&
            all.size() == mine.size() * static_cast<size_t>(size_),
        "gather_values of {} values into {} over {} ranks (at most {} bytes a rank)", mine.size(),
        all.size(), size_, kMaxValueBytes);
  Operation op;
  op.key = {0, Collective::gather_values, DType::f64, 0, static_cast<int64_t>(mine.size())};
  op.values = mine;
  op.all_values = all;
  start(op).wait();
}

OrderedComm::Step OrderedComm::progress() {
  if (!stages_) stages_ = run(queue_.front());
  check(!stages_.complete(), "an operation that has failed is resumed");
  if (!stages_.resume()) return Step::blocked;
  if (!stages_.complete()) return Step::moved;
  stages_ = {};
  completed_ = queue_.front().key.sequence;
  queue_.erase(queue_.begin());
  if (slot_ != nullptr) slot_->note_progress();
  return Step::moved;
}

bool OrderedComm::poll_for(int64_t sequence) {
  constexpr int kStepsPerPoll = 8;
  throw_if_stopped();
  for (int i = 0; i < kStepsPerPoll && completed_ < sequence; ++i)
    if (progress() == Step::blocked) break;
  return completed_ >= sequence;
}

void OrderedComm::wait_for(int64_t sequence) {
  throw_if_stopped();
  auto idle_since = Clock::now();
  auto last_check = idle_since;
  bool idle = false;
  int sleeps = 0;
  while (completed_ < sequence) {
    if (progress() == Step::moved) {
      if (idle) publish_waited_rank(-1);
      idle = false;
      continue;
    }
    const auto now = Clock::now();
    if (!idle) {
      idle = true;
      idle_since = last_check = now;
      sleeps = 0;
    }
    if (now - idle_since < kSpin) {
      if (crowded_) ::sched_yield();
      for (int i = 0; i < 16 && !crowded_; ++i) __builtin_ia32_pause();
      continue;
    }
    throw_if_stopped();
    if (now - last_check > std::chrono::milliseconds(100)) {
      last_check = now;
      if (check_waited_rank(idle_since) == Step::moved) {
        publish_waited_rank(-1);
        idle = false;
        continue;
      }
    }
    stages_.awaited()->sleep(sleeps++);
  }
}

void OrderedComm::publish_waited_rank(int peer) {
  if (slot_ != nullptr) slot_->waits_for.store(peer, std::memory_order_relaxed);
  note_waited_rank(peer);
}

OrderedComm::Step OrderedComm::check_waited_rank(Clock::time_point idle_since) {
  const int peer = stages_.awaited()->waited_rank();
  if (peer < 0) return Step::blocked;
  publish_waited_rank(peer);
  const bool alive = peer_alive(peer);
  const double seconds = std::chrono::duration<double>(Clock::now() - idle_since).count();
  if (alive && seconds < deadline_seconds_ + extra_seconds(peer)) return Step::blocked;
  // Its last arrival or message may have come between the two looks.
  if (progress() == Step::moved) return Step::moved;
  const std::string op = to_string(queue_.front().key);
  failure_ =
      alive ? fmt::format("rank {} waited {:.3g} s for {} in {}: the deadline is {:.3g} s", rank_,
                          seconds, peer_name(peer), op, deadline_seconds_)
            : fmt::format("{} died while rank {} waited for it in {}", peer_name(peer), rank_, op);
  abort(failure_);
  throw PeerError(failure_);
}

void OrderedComm::throw_if_stopped() {
  if (!failure_.empty()) throw PeerError(failure_);
  const std::optional<Abort> abort = raised_abort();
  if (!abort) return;
  failure_ = fmt::format("rank {} stopped the run: {}", abort->rank, abort->reason);
  throw PeerError(failure_);
}

void OrderedComm::fail(const std::string& message) {
  failure_ = message;
  abort(message);
  throw RunError(message);
}

void OrderedComm::abort(const std::string& reason) {
  const std::lock_guard lock(abort_mutex_);
  if (aborted_here_.exchange(true)) return;
  raise_abort(reason);
}

void OrderedComm::compare_keys(std::span<const OpKey> keys) {
  for (size_t r = 1; r < keys.size(); ++r)
    if (keys[r] != keys[0])
      fail(fmt::format("the ranks do not do the same: rank 0 is at {}, rank {} at {}",
                       to_string(keys[0]), r, to_string(keys[r])));
}

void OrderedComm::finish() {
  finish_within(deadline_seconds_);
}

void OrderedComm::finish_within(double seconds) {
  if (finished_) return;
  deadline_seconds_ = std::min(deadline_seconds_, seconds);
  barrier();
  finished_ = true;
  leave();
}

void OrderedComm::close() {
  if (finished_ || !failure_.empty()) return;
  try {
    if (std::uncaught_exceptions() > exceptions_at_start_)
      abort("an error on that rank, which its own message tells");
    else if (!aborted_here_)
      finish_within(kCloseSeconds);
  } catch (const std::exception&) {
    // A peer has failed, and the others have been told.
  }
}

}  // namespace dstrain
