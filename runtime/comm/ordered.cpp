#include "runtime/comm/ordered.h"

#include <sched.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <exception>

#include "runtime/core/error.h"
#include "runtime/core/rank_board.h"

namespace dstrain {
namespace {

// A wait spins this long (offering its core where a peer may need it), then sleeps.
constexpr std::chrono::microseconds kSpin{20};
constexpr double kFarewellSeconds = 10;

std::string_view name_of(Collective kind) {
  constexpr std::string_view names[] = {"all_reduce", "reduce_scatter", "all_gather",
                                        "broadcast",  "barrier",        "gather_values"};
  return names[static_cast<size_t>(kind)];
}

bool sums(Collective kind) {
  return kind == Collective::all_reduce || kind == Collective::reduce_scatter;
}

}  // namespace

std::string to_string(const OpKey& key) {
  if (key.kind == Collective::barrier) return fmt::format("barrier #{}", key.sequence);
  std::string text = fmt::format("{} #{} ({} bytes of {}", name_of(key.kind), key.sequence,
                                 key.elements * size_of(key.dtype), name_of(key.dtype));
  if (key.kind == Collective::broadcast) text += fmt::format(" from rank {}", key.root);
  return text + ")";
}

int64_t ring_bytes(Collective kind, int64_t whole_bytes, int ranks) {
  if (whole_bytes < 1024 || ranks < 2) return 0;
  switch (kind) {
    case Collective::all_reduce:
      return 2 * whole_bytes * (ranks - 1) / ranks;
    case Collective::reduce_scatter:
    case Collective::all_gather:
      return whole_bytes * (ranks - 1) / ranks;
    case Collective::broadcast:
      return whole_bytes;
    case Collective::barrier:
    case Collective::gather_values:
      return 0;
  }
  return 0;
}

OrderedCommunicator::OrderedCommunicator(int rank, int size, const CommOptions& options)
    : rank_(rank),
      size_(size),
      threads_(std::max(1, options.threads)),
      deadline_seconds_(options.deadline_seconds),
      crowded_(ranks_on_this_host_from_environment() > ::get_nprocs()),
      slot_(options.slot),
      exceptions_at_start_(std::uncaught_exceptions()) {
  queue_.reserve(64);  // so that starting an operation does not allocate
}

Work OrderedCommunicator::start(Operation op) {
  throw_if_stopped();
  check(!finished_, "{} started after finish()", name_of(op.key.kind));
  op.key.sequence = ++started_;
  queue_.push_back(op);
  if (queue_.size() == 1) progress();  // lets the peers see this rank's source early
  return {this, started_};
}

Work OrderedCommunicator::start_tensor(Collective kind, const Tensor& in, const Tensor& out,
                                       int root) {
  const bool scatter = kind == Collective::reduce_scatter, gather = kind == Collective::all_gather;
  check(in.dtype == out.dtype, "{} from {} to {}", name_of(kind), name_of(in.dtype),
        name_of(out.dtype));
  check(!sums(kind) || in.dtype != DType::u8, "{} cannot add u8", name_of(kind));
  check(root >= 0 && root < size_, "{} from rank {} of {}", name_of(kind), root, size_);
  const Tensor& slice = scatter ? out : in;
  const Tensor& whole = scatter ? in : out;
  check(whole.elements() == slice.elements() * (scatter || gather ? size_ : 1),
        "{} over {} ranks: a slice of {} elements does not fit a whole of {}", name_of(kind), size_,
        slice.elements(), whole.elements());
  if (scatter || gather) {
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

Work OrderedCommunicator::all_reduce(Tensor inout) {
  return start_tensor(Collective::all_reduce, inout, inout, 0);
}

Work OrderedCommunicator::reduce_scatter(Tensor in, Tensor out) {
  return start_tensor(Collective::reduce_scatter, in, out, 0);
}

Work OrderedCommunicator::all_gather(Tensor in, Tensor out) {
  return start_tensor(Collective::all_gather, in, out, 0);
}

Work OrderedCommunicator::broadcast(Tensor inout, int root) {
  return start_tensor(Collective::broadcast, inout, inout, root);
}

void OrderedCommunicator::barrier() {
  start(Operation{}).wait();
}

void OrderedCommunicator::gather_values(std::span<const double> mine, std::span<double> all) {
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

OrderedCommunicator::Step OrderedCommunicator::progress() {
  const Step step = advance(queue_.front());
  if (step != Step::done) return step;
  completed_ = queue_.front().key.sequence;
  queue_.erase(queue_.begin());
  if (slot_ != nullptr) slot_->note_progress();
  return Step::moved;
}

bool OrderedCommunicator::poll_for(int64_t sequence) {
  constexpr int kStepsPerPoll = 8;
  throw_if_stopped();
  for (int i = 0; i < kStepsPerPoll && completed_ < sequence; ++i)
    if (progress() == Step::blocked) break;
  return completed_ >= sequence;
}

void OrderedCommunicator::wait_for(int64_t sequence) {
  throw_if_stopped();
  auto idle_since = Clock::now();
  auto last_check = idle_since;
  bool idle = false;
  while (completed_ < sequence) {
    if (progress() == Step::moved) {
      if (idle) say_whom(-1);
      idle = false;
      continue;
    }
    const auto now = Clock::now();
    if (!idle) {
      idle = true;
      idle_since = last_check = now;
    }
    if (now - idle_since < kSpin) {
      if (crowded_) ::sched_yield();
      for (int i = 0; i < 16 && !crowded_; ++i) __builtin_ia32_pause();
      continue;
    }
    throw_if_stopped();
    if (now - last_check > std::chrono::milliseconds(100)) {
      last_check = now;
      check_waited_rank(idle_since);
    }
    sleep();
  }
}

void OrderedCommunicator::say_whom(int peer) {
  if (slot_ != nullptr) slot_->waits_for.store(peer, std::memory_order_relaxed);
}

void OrderedCommunicator::check_waited_rank(Clock::time_point idle_since) {
  const int peer = waited_rank();
  if (peer < 0) return;
  say_whom(peer);
  const bool alive = peer_alive(peer);
  const double seconds = std::chrono::duration<double>(Clock::now() - idle_since).count();
  if (alive && seconds < deadline_seconds_ + grace(peer)) return;
  // What it did last may have arrived between the two looks.
  if (progress() != Step::blocked) return;
  const std::string op = to_string(queue_.front().key);
  failure_ =
      alive ? fmt::format("rank {} waited {:.3g} s for {} in {}: the deadline is {:.3g} s", rank_,
                          seconds, peer_name(peer), op, deadline_seconds_)
            : fmt::format("{} died while rank {} waited for it in {}", peer_name(peer), rank_, op);
  abort(failure_);
  throw PeerError(failure_);
}

void OrderedCommunicator::throw_if_stopped() {
  if (!failure_.empty()) throw PeerError(failure_);
  Abort abort;
  if (!abort_raised(abort)) return;
  failure_ = fmt::format("rank {} stopped the run: {}", abort.rank, abort.reason);
  throw PeerError(failure_);
}

void OrderedCommunicator::fail(const std::string& message) {
  failure_ = message;
  abort(message);
  throw RunError(message);
}

void OrderedCommunicator::abort(const std::string& reason) {
  const std::lock_guard lock(abort_mutex_);
  if (aborted_here_.exchange(true)) return;
  raise_abort(reason);
}

void OrderedCommunicator::compare_keys(std::span<const OpKey> keys) {
  for (size_t r = 1; r < keys.size(); ++r)
    if (keys[r] != keys[0])
      fail(fmt::format("the ranks do not do the same: rank 0 is at {}, rank {} at {}",
                       to_string(keys[0]), r, to_string(keys[r])));
}

void OrderedCommunicator::finish() {
  finish_within(deadline_seconds_);
}

void OrderedCommunicator::finish_within(double seconds) {
  if (finished_) return;
  deadline_seconds_ = std::min(deadline_seconds_, seconds);
  barrier();
  finished_ = true;
  leave();
}

void OrderedCommunicator::close() {
  if (finished_ || !failure_.empty()) return;
  try {
    if (std::uncaught_exceptions() > exceptions_at_start_)
      abort("an error on that rank, which its own message tells");
    else if (!aborted_here_)
      finish_within(kFarewellSeconds);
  } catch (const std::exception&) {
    // A peer is gone: there is nobody left to tell.
  }
}

}  // namespace dstrain
