#include "runtime/comm/ordered_comm.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <thread>
#include <utility>

#include "runtime/comm/world_environment.h"
#include "runtime/core/error.h"
#include "runtime/core/rank_board.h"

namespace dstrain {
namespace {

// A wait spins this long, then sleeps. Where ranks are more than cores it sleeps at once.
constexpr std::chrono::microseconds kSpin{20};
// The longest sleep of a wait between two looks for an abort and at the deadline.
constexpr std::chrono::milliseconds kLongestSleep{100};
// How long a rank whose peer has ended looks for an abort, which may have been the reason and still be under way.
constexpr std::chrono::milliseconds kAbortUnderWay{300};
// How long the destructor waits for the peers.
constexpr double kCloseSeconds = 10;

}  // namespace

void* Stages::promise_type::operator new(size_t bytes, OrderedComm& comm, const Operation&) {
  return comm.frame_.reserve(bytes);
}

OrderedComm::OrderedComm(int rank, int size, const CommOptions& options, PartOf part)
    : part_(std::move(part)),
      rank_(rank),
      size_(size),
      threads_(std::max(1, options.threads)),
      deadline_seconds_(options.deadline_seconds),
      crowded_(ranks_on_this_host_from_environment() > ::get_nprocs()),
      slot_(options.slot),
      exceptions_at_start_(std::uncaught_exceptions()) {
  queue_.reserve(64);  // so that starting an operation does not allocate
}

OrderedComm& OrderedComm::world() {
  OrderedComm* comm = this;
  while (comm->is_part()) comm = comm->part_.parent;
  return *comm;
}

const OrderedComm& OrderedComm::world() const {
  const OrderedComm* comm = this;
  while (comm->is_part()) comm = comm->part_.parent;
  return *comm;
}

std::unique_ptr<Communicator> OrderedComm::split(std::span<const int> ranks) {
  throw_if_stopped();
  check(!ranks.empty() && ranks.front() >= 0 && ranks.back() < size_ &&
            std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) == ranks.end() &&
            std::binary_search(ranks.begin(), ranks.end(), rank_),
        "a split on rank {} of {}: its list is not ascending, or this rank is not in it", rank_,
        size_);
  std::vector<int> world_ranks;
  for (const int r : ranks) world_ranks.push_back(world_rank(r));
  auto part = std::make_unique<PartRendezvous>(*this, ranks, std::move(world_ranks));
  if (const int odd = part->odd_rank(); odd >= 0)
    fail(
        fmt::format("the ranks do not split in the same way: rank {} has another list than rank {}",
                    world_rank(odd), world_rank(rank_)));
  return open_part(std::move(part));
}

void OrderedComm::check_can_allocate(const std::string& what) const {
  check(!is_part(), "{}: a part of the ranks has no memory of its own", what);
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
  const bool exchange = kind == Collective::all_to_all;
  const int64_t elements = exchange ? in.elements() / size_ : slice.elements();
  check(whole.elements() == elements * (is_sliced(kind) ? size_ : 1) &&
            (!exchange || in.elements() == out.elements()),
        "{} over {} ranks: a slice of {} elements does not fit a whole of {}", name_of(kind), size_,
        elements, whole.elements());
  if (exchange) {
    const auto* from = static_cast<const std::byte*>(in.data);
    const auto* to = static_cast<const std::byte*>(out.data);
    check(from + in.bytes() <= to || to + out.bytes() <= from, "{}: its tensors overlap",
          name_of(kind));
  } else if (is_sliced(kind)) {
    const auto* s = static_cast<const std::byte*>(slice.data);
    const auto* w = static_cast<const std::byte*>(whole.data);
    check(s + slice.bytes() <= w || w + whole.bytes() <= s || s == w + rank_ * slice.bytes(),
          "{}: the slice overlaps the whole elsewhere than at this rank's place", name_of(kind));
  }
  Operation op;
  op.key = {0, kind, in.dtype, root, elements};
  op.in = static_cast<std::byte*>(in.data);
  op.out = static_cast<std::byte*>(out.data);
  const Work work = start(op);
  const bool sends = kind != Collective::message || root == rank_;
  count(sends ? ring_bytes(kind, whole.bytes(), size_) : 0);
  return work;
}

void OrderedComm::count(int64_t bytes) {
  for (OrderedComm* comm = this; comm != nullptr; comm = comm->part_.parent)
    comm->wire_bytes_.fetch_add(bytes, std::memory_order_relaxed);
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

Work OrderedComm::all_to_all(Tensor in, Tensor out) {
  return start_tensor(Collective::all_to_all, in, out, 0);
}

Work OrderedComm::exchange_rows(Tensor in, Tensor out, RowCounts counts) {
  check(in.dtype == out.dtype && counts.ranks == size_, "rows of {} to {}, of {} ranks on {}",
        name_of(in.dtype), name_of(out.dtype), counts.ranks, size_);
  if (counts.sent(rank_) > in.elements() || counts.received(rank_) > out.elements())
    fail(fmt::format(
        "exchange_rows sends {} elements of {} and receives {} where there is room for {}",
        counts.sent(rank_), in.elements(), counts.received(rank_), out.elements()));
  Operation op;
  op.key = {0, Collective::exchange_rows, in.dtype, 0, counts.most()};
  op.in = static_cast<std::byte*>(in.data);
  op.out = static_cast<std::byte*>(out.data);
  op.rows = counts;
  const Work work = start(op);
  count((counts.sent(rank_) - counts.elements(rank_, rank_)) * size_of(in.dtype));
  return work;
}

Work OrderedComm::broadcast(Tensor inout, int root) {
  return start_tensor(Collective::broadcast, inout, inout, root);
}

Work OrderedComm::send(Tensor in) {
  check(size_ == 2, "a message in a communicator of {} ranks", size_);
  return start_tensor(Collective::message, in, in, rank_);
}

Work OrderedComm::recv(Tensor out) {
  check(size_ == 2, "a message in a communicator of {} ranks", size_);
  return start_tensor(Collective::message, out, out, 1 - rank_);
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
  if (RankSlot* slot = world().slot_) slot->note_progress();
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
  WaitState state;
  while (completed_ < sequence) go_on(state, kLongestSleep);
}

bool OrderedComm::wait_step_for(int64_t sequence, WaitState& state,
                                std::chrono::microseconds longest) {
  if (!state.idle) throw_if_stopped();
  if (completed_ < sequence) go_on(state, longest);
  return completed_ >= sequence;
}

// One step of a wait for an operation under way.
void OrderedComm::go_on(WaitState& state, std::chrono::microseconds longest) {
  if (progress() == Step::moved) {
    if (state.idle) publish_waited_rank(-1);
    state.idle = false;
    return;
  }
  const auto now = Clock::now();
  if (!state.idle) state = {true, now, now, 0};
  if (!crowded_ && now - state.idle_since < kSpin) {
    for (int i = 0; i < 16; ++i) __builtin_ia32_pause();
    return;
  }
  throw_if_stopped();
  if (now - state.last_check > std::chrono::milliseconds(100)) {
    state.last_check = now;
    if (check_waited_rank(state.idle_since) == Step::moved) {
      publish_waited_rank(-1);
      state.idle = false;
      return;
    }
  }
  if (longest.count() > 0) stages_.awaited()->sleep(state.sleeps++, longest);
}

void OrderedComm::publish_waited_rank(int peer) {
  if (RankSlot* slot = world().slot_)
    slot->waits_for.store(peer < 0 ? -1 : world_rank(peer), std::memory_order_relaxed);
  note_waited_rank(peer);
}

OrderedComm::Step OrderedComm::check_waited_rank(Clock::time_point idle_since) {
  const int peer = stages_.awaited()->waited_rank();
  if (peer < 0) return Step::blocked;
  publish_waited_rank(peer);
  const bool alive = peer_alive(peer);
  const double seconds = std::chrono::duration<double>(Clock::now() - idle_since).count();
  const double deadline = world().deadline_seconds_;
  if (alive && seconds < deadline + extra_seconds(peer)) return Step::blocked;
  // Its last arrival or message may have come between the two looks.
  if (progress() == Step::moved) return Step::moved;
  if (!alive) throw_if_stopped_within(kAbortUnderWay);
  const std::string op = text_of(queue_.front().key);
  const int own = world_rank(rank_);
  failure_ =
      alive ? fmt::format("rank {} waited {:.3g} s for {} in {}: the deadline is {:.3g} s", own,
                          seconds, peer_name(peer), op, deadline)
            : fmt::format("{} died while rank {} waited for it in {}", peer_name(peer), own, op);
  abort(failure_);
  throw PeerError(failure_);
}

std::string OrderedComm::text_of(OpKey key) const {
  key.root = world_rank(key.root);
  return to_string(key);
}

void OrderedComm::throw_if_stopped() {
  if (!failure_.empty()) throw PeerError(failure_);
  if (std::string reason = abort_reason(); !reason.empty()) {
    failure_ = std::move(reason);
    throw PeerError(failure_);
  }
}

void OrderedComm::throw_if_stopped_within(std::chrono::milliseconds time) {
  for (const auto end = Clock::now() + time; Clock::now() < end;) {
    throw_if_stopped();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  throw_if_stopped();
}

void OrderedComm::fail(const std::string& message) {
  failure_ = message;
  abort(message);
  throw RunError(message);
}

void OrderedComm::abort(const std::string& reason) {
  if (is_part()) return world().abort(reason);
  const std::lock_guard lock(abort_mutex_);
  if (aborted_here_.exchange(true)) return;
  raise_abort(reason);
}

std::string OrderedComm::abort_reason() {
  const std::optional<Abort> abort = world().raised_abort();
  return abort ? fmt::format("rank {} stopped the run: {}", abort->rank, abort->reason) : "";
}

void OrderedComm::compare_keys(std::span<const OpKey> keys) {
  for (size_t r = 1; r < keys.size(); ++r)
    if (keys[r] != keys[0])
      fail(fmt::format("the ranks do not do the same: rank {} is at {}, rank {} at {}",
                       world_rank(0), text_of(keys[0]), world_rank(static_cast<int>(r)),
                       text_of(keys[r])));
}

void OrderedComm::finish() {
  finish_within(world().deadline_seconds_);
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
    if (std::uncaught_exceptions() > exceptions_at_start_) {
      // What a part of the ranks has told already says more.
      if (!world().raised_abort()) abort("an error on that rank, which its own message tells");
    } else if (!is_part() && !aborted_here_) {
      finish_within(kCloseSeconds);
    }
  } catch (const std::exception&) {
    // A peer has failed, and the others have been told.
  }
}

}  // namespace dstrain
