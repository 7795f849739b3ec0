#include "runtime/plan/verify.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "runtime/core/error.h"
#include "runtime/ir/rule.h"
#include "runtime/plan/verify_gathers.h"

namespace dstrain {
namespace {

constexpr int64_t kNobody = -1;

// The buffer that last wrote each byte of a region.
class ByteOwners {
 public:
  void claim(int64_t begin, int64_t end, int64_t owner) {
    if (begin >= end) return;
    split(begin);
    split(end);
    const auto first = spans_.lower_bound(begin);
    spans_.erase(first, spans_.lower_bound(end));
    spans_[begin] = {end, owner};
  }
  // Returns whether all of [begin, end) belongs to `owner`.
  bool owned(int64_t begin, int64_t end, int64_t owner) const {
    auto it = spans_.upper_bound(begin);
    if (it == spans_.begin()) return begin >= end;
    --it;
    while (begin < end) {
      if (it == spans_.end() || it->first > begin || it->second.end <= begin ||
          it->second.owner != owner)
        return false;
      begin = it->second.end;
      ++it;
    }
    return true;
  }

  // Takes the bytes away from every owner for which `ends` is true.
  template <class Ends>
  void release(const Ends& ends) {
    for (auto& [begin, span] : spans_)
      if (ends(span.owner)) span.owner = kNobody;
  }
  bool operator==(const ByteOwners&) const = default;

 private:
  struct Span {
    int64_t end;
    int64_t owner;
    bool operator==(const Span&) const = default;
  };
  void split(int64_t at) {
    auto it = spans_.lower_bound(at);
    if (it == spans_.begin()) return;
    --it;
    if (it->first >= at || it->second.end <= at) return;
    const Span tail = it->second;
    it->second.end = at;
    spans_[at] = tail;
  }
  std::map<int64_t, Span> spans_;
};

class Replay {
 public:
  explicit Replay(const Plan& plan)
      : plan_(plan),
        program_(plan.program),
        in_turns_(plan.place.stages > 1),
        started_(static_cast<size_t>(plan.channels)) {}

  void run() {
    claim_initial();
    for (size_t i = 0; i < plan_.order.size(); ++i) {
      if (begins_micro(i)) {
        end_lives();
        i = pass_repetitions(i);
      }
      const Issue& issue = plan_.order[i];
      const Instruction& op = op_of(issue);
      if (is_collective(op.op)) ++started_[static_cast<size_t>(op.channel)];
      beside_collectives(issue, waits(i));
      step(issue);
    }
    if (program_.loss != kNone)
      require(program_.loss, 0, [] { return std::string("the end of the step"); });
  }

 private:
  struct UnderWay {
    int32_t channel;
    int32_t number;  // of the channel's operations of the step, from 1
    Region region;
    int64_t begin, end;
    bool written;
    bool operator==(const UnderWay&) const = default;
  };
  // The state of the replay at the beginning of a micro-batch.
  struct Moment {
    size_t first = 0;  // issue
    std::vector<int32_t> started{};
    std::array<ByteOwners, kRegions> regions{};
    std::vector<UnderWay> under_way{};  // numbers relative to `started`
  };

  std::span<const int32_t> waits(size_t i) const {
    return std::span(plan_.waits).subspan(i * started_.size(), started_.size());
  }

  const Instruction& op_of(const Issue& issue) const {
    return program_.instructions[static_cast<size_t>(issue.instruction)];
  }

  // Before the first step there are values, optimizer state and the zeros between gradients. The gradients
  // themselves are those of the previous step and must be written again.
  void claim_initial() {
    for (size_t i = 0; i < program_.buffers.size(); ++i) {
      const Buffer& b = program_.buffers[i];
      if (b.parent != kNone || b.lifetime != Lifetime::persistent) continue;
      if (b.memory != MemoryClass::gradients) claim(static_cast<BufferId>(i), 0);
    }
    std::vector<BufferId> gradients;
    for (const Parameter& p : program_.parameters)
      if (p.gradient != kNone) gradients.push_back(p.gradient);
    for (const BufferId id : gradients)
      if (program_.at(program_.root(id)).lifetime == Lifetime::persistent)
        claim(program_.root(id), 0);
    for (const BufferId id : gradients) {
      const auto [begin, end] = range(id, 0);
      region(id).claim(begin, end, kNobody);
    }
  }

  // Stages of a pipeline work on several micro-batches in turns, so that a micro-batch has no beginning in the
  // order; there each owner is a buffer of one micro-batch.
  bool begins_micro(size_t i) const {
    const Issue& issue = plan_.order[i];
    return !in_turns_ && issue.micro > 0 && op_of(issue).when != When::step_end &&
           plan_.order[i - 1].micro != issue.micro;
  }

  // A buffer that lives for one micro-batch must be written again in the next one.
  void end_lives() {
    for (ByteOwners& owners : regions_)
      owners.release([&](int64_t owner) {
        const int64_t root = owner / (plan_.micro_batches + 1);
        return owner >= 0 && program_.at(static_cast<BufferId>(root)).lifetime == Lifetime::micro;
      });
  }

  // Skips repetitions. If the micro-batch before issue `begin` left the state as it found it, every
  // following micro-batch with the same issues and waits does so too. Returns the first issue after those.
  size_t pass_repetitions(size_t begin) {
    Moment now{begin, started_, regions_, under_way_};
    for (UnderWay& u : now.under_way) u.number -= started_[static_cast<size_t>(u.channel)];
    const Moment before = std::exchange(last_, std::move(now));
    if (before.first == 0 || before.regions != regions_ || before.under_way != last_.under_way)
      return begin;
    const size_t length = begin - before.first;
    size_t next = begin;
    while (repeats(before, next, length)) {
      next += length;
      for (size_t c = 0; c < started_.size(); ++c)
        started_[c] += last_.started[c] - before.started[c];
    }
    for (UnderWay& u : under_way_) {
      const auto c = static_cast<size_t>(u.channel);
      u.number += started_[c] - last_.started[c];
    }
    last_.first = next;
    last_.started = started_;
    return next;
  }

  // Returns whether the issues from `begin` on are those of the micro-batch `before` with the same waits,
  // and their per_micro operands have been written.
  bool repeats(const Moment& before, size_t begin, size_t length) const {
    if (begin + length >= plan_.order.size()) return false;
    const int32_t micro = plan_.order[begin].micro;
    for (size_t k = 0; k < length; ++k) {
      const Issue &first = plan_.order[before.first + k], &second = plan_.order[begin + k];
      if (second.instruction != first.instruction || second.micro != micro) return false;
      for (size_t c = 0; c < started_.size(); ++c)
        if (waits(begin + k)[c] - started_[c] != waits(before.first + k)[c] - before.started[c])
          return false;
      for (const BufferId id : op_of(second).reads)
        if (id != kNone && program_.at(program_.root(id)).per_micro && !holds(id, micro))
          return false;
    }
    return plan_.order[begin + length].micro != micro;
  }

  std::pair<int64_t, int64_t> range(BufferId id, int micro) const {
    const Address& a = plan_.address[static_cast<size_t>(id)];
    const int64_t begin = a.offset_of(micro);
    return {begin, begin + program_.at(id).bytes()};
  }
  ByteOwners& region(BufferId id) {
    return regions_[static_cast<size_t>(plan_.address[static_cast<size_t>(id)].region)];
  }
  int64_t owner(BufferId id, int micro) const {
    const BufferId root = program_.root(id);
    const Buffer& b = program_.at(root);
    const bool own = b.per_micro || (in_turns_ && b.lifetime == Lifetime::micro);
    return static_cast<int64_t>(root) * (plan_.micro_batches + 1) + (own ? micro : 0);
  }
  void claim(BufferId id, int micro) {
    const auto [begin, end] = range(id, micro);
    region(id).claim(begin, end, owner(id, micro));
  }
  bool holds(BufferId id, int micro) const {
    const auto [begin, end] = range(id, micro);
    const Address& a = plan_.address[static_cast<size_t>(id)];
    return regions_[static_cast<size_t>(a.region)].owned(begin, end, owner(id, micro));
  }
  template <class Where>
  void require(BufferId id, int micro, const Where& where) const {
    if (!holds(id, micro))
      throw InternalError(
          fmt::format("{} reads {} before it is written, or after its bytes were reused", where(),
                      program_.at(id).name));
  }

  // Checks that an instruction neither touches what a running collective writes nor writes what the
  // collective, and so perhaps a peer, reads.
  void beside_collectives(const Issue& issue, std::span<const int32_t> complete) {
    const auto index = static_cast<size_t>(issue.instruction);
    const Instruction& op = program_.instructions[index];
    const bool collective = is_collective(op.op);
    for (size_t c = 0; c < complete.size(); ++c) {
      const bool mine = collective && c == static_cast<size_t>(op.channel);
      check(complete[c] <= started_[c] - (mine ? 1 : 0), "{} of {} waits for a collective to come",
            name_of(op.op), program_.groups[static_cast<size_t>(op.group)]);
    }
    std::erase_if(under_way_, [&](const UnderWay& u) {
      return u.number <= complete[static_cast<size_t>(u.channel)];
    });
    std::vector<UnderWay> own;
    const auto touch = [&](Region region, int64_t begin, int64_t end, bool written,
                           std::string_view name) {
      for (const UnderWay& u : under_way_)
        check((collective && u.channel == op.channel) || u.region != region || u.end <= begin ||
                  end <= u.begin || (!u.written && !written),
              "{} of {}, micro-batch {}, {} {} while collective {} of the step may be {} it",
              name_of(op.op), program_.groups[static_cast<size_t>(op.group)], issue.micro,
              written ? "writes" : "reads", name, u.number, u.written ? "writing" : "reading");
      if (collective)
        own.push_back(
            {op.channel, started_[static_cast<size_t>(op.channel)], region, begin, end, written});
    };
    const auto touch_all = [&](const std::vector<BufferId>& ids, bool written) {
      for (BufferId id : ids) {
        if (id == kNone) continue;
        const auto [begin, end] = range(id, issue.micro);
        touch(plan_.address[static_cast<size_t>(id)].region, begin, end, written,
              program_.at(id).name);
      }
    };
    if (!collective || op.reads != op.writes) touch_all(op.reads, false);
    touch_all(op.writes, true);
    const Address& work = plan_.workspace[index];
    if (const int64_t bytes = plan_.workspace_bytes[index]; bytes > 0)
      touch(work.region, work.offset, work.offset + bytes, true, "its workspace");
    under_way_.insert(under_way_.end(), own.begin(), own.end());
  }

  void step(const Issue& issue) {
    const auto index = static_cast<size_t>(issue.instruction);
    const Instruction& op = program_.instructions[index];
    const auto where = [&] {
      return fmt::format("{} of {}, micro-batch {}", name_of(op.op),
                         program_.groups[static_cast<size_t>(op.group)], issue.micro);
    };
    const bool all_micros = op.when == When::step_begin || op.when == When::step_end;
    for (BufferId id : op.reads) {
      if (id == kNone) continue;
      const int copies =
          all_micros && program_.at(id).per_micro ? static_cast<int>(plan_.micro_batches) : 1;
      for (int m = 0; m < copies; ++m) require(id, copies > 1 ? m : issue.micro, where);
    }
    if (plan_.workspace_bytes[index] > 0) {
      const int64_t begin = plan_.workspace[index].offset;
      regions_[static_cast<size_t>(Region::transient)].claim(
          begin, begin + plan_.workspace_bytes[index], -2 - static_cast<int64_t>(index));
    }
    for (size_t i = 0; i < op.writes.size(); ++i) {
      const BufferId id = op.writes[i];
      if (id == kNone) continue;
      // Cross-entropy adds to the loss and overwrites the gradient.
      const bool target = op.op != OpKind::cross_entropy || i == 0;
      const bool adds = op.accumulate == Accumulate::always ||
                        (op.accumulate == Accumulate::after_first_micro && issue.micro > 0);
      if (adds && target) require(id, issue.micro, where);
      const int copies =
          all_micros && program_.at(id).per_micro ? static_cast<int>(plan_.micro_batches) : 1;
      for (int m = 0; m < copies; ++m) claim(id, copies > 1 ? m : issue.micro);
    }
    for (BufferId id : op.reads)  // neither workspace nor outputs may overlap an operand
      if (id != kNone && !all_micros &&
          std::find(op.writes.begin(), op.writes.end(), id) == op.writes.end())
        require(id, issue.micro, where);
  }

  const Plan& plan_;
  const Program& program_;
  const bool in_turns_;
  std::array<ByteOwners, kRegions> regions_;
  std::vector<UnderWay> under_way_;
  std::vector<int32_t> started_;  // by channel
  Moment last_;                   // the beginning of the newest micro-batch
};

}  // namespace

void verify(const Plan& plan) {
  const Program& p = plan.program;
  for (const Instruction& op : p.instructions) check_op(p, op);
  for (const Buffer& b : p.buffers) {
    if (b.parent == kNone) continue;
    const Buffer& parent = p.at(b.parent);
    check(b.dtype == parent.dtype && b.parent_offset >= 0 &&
              b.parent_offset + b.shape.elements() <= parent.shape.elements(),
          "{} lies outside {}", b.name, parent.name);
  }
  Replay(plan).run();
  verify_gathers(plan);
}

}  // namespace dstrain
