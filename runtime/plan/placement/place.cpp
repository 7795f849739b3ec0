#include "runtime/plan/placement/place.h"

#include <algorithm>
#include <array>
#include <climits>
#include <map>
#include <numeric>
#include <string>

#include "runtime/core/error.h"
#include "runtime/ir/kernel_spec.h"
#include "runtime/ir/rule.h"
#include "runtime/plan/placement/copies.h"
#include "runtime/plan/placement/first_fit.h"
#include "runtime/plan/placement/peers.h"

namespace dstrain {
namespace {

constexpr int64_t kAlignBytes = 64;
constexpr int64_t kDriveBlock =
    4096;  // drives read and write whole blocks, and memory in place at multiples of them

int64_t align(int64_t n, Space space = Space::device) {
  const int64_t to = space == Space::device ? kAlignBytes : kDriveBlock;
  return (n + to - 1) / to * to;
}

// The memory of a transient buffer, with all of its copies, or of a workspace.
struct Item {
  Piece piece{};  // in moments (Lives)
  MemoryClass memory = MemoryClass::workspace;
};

// Gives `items` offsets from `base` on. Returns the end of the highest item.
int64_t place_items(const std::vector<Item*>& items, int64_t base) {
  std::vector<Piece*> pieces;
  for (Item* item : items) pieces.push_back(&item->piece);
  return first_fit(std::move(pieces), base);
}

// The lifetimes of a plan's transient buffers and workspaces, in moments. A step of one micro-batch issues each
// instruction once, and a moment is a place in the order. A step of several repeats the body, the part between
// step_begin and step_end, and a moment is a place in the list.
class Lives {
 public:
  Lives(Plan& plan, const PlanInputs& inputs)
      : plan_(plan),
        inputs_(inputs),
        once_(plan.micro_batches == 1 && plan.order.size() == plan.program.instructions.size()),
        copies_(copies_of(plan)) {
    const Program& p = plan.program;
    items_.resize(p.buffers.size() + p.instructions.size());
    int body_begin = INT_MAX, body_end = -1;
    const int moments = static_cast<int>(p.instructions.size());
    for (int moment = 0; moment < moments; ++moment) {
      const Instruction& op = p.instructions[instruction_at(moment)];
      if (op.when == When::every_micro || op.when == When::last_micro) {
        body_begin = std::min(body_begin, moment);
        body_end = std::max(body_end, moment);
      }
      for_operands(op, [&](BufferId id) { touch(p.root(id), moment); });
      workspace(moment);
    }
    keep_copied();
    keep_sent();
    const std::vector<char> for_host = read_by_host();
    for (size_t b = 0; b < p.buffers.size(); ++b) {
      const Buffer& buffer = p.buffers[b];
      items_[b].memory = buffer.memory;
      Piece& item = items_[b].piece;
      item.bytes = align(buffer.bytes(), buffer.space) * copies_[b].count;
      // A buffer that is used between phases of other micro-batches is live in the whole body, because the body
      // is repeated.
      const bool whole = !once_ && (buffer.lifetime == Lifetime::step || !copies_[b].by_position);
      if (whole && item.begin <= body_end && item.end >= body_begin) {
        item.begin = std::min(item.begin, body_begin);
        item.end = std::max(item.end, body_end);
      }
      if (for_host[b] != 0 && buffer.lifetime == Lifetime::step) item.end = moments;
    }
  }

  // Returns what is transient in a region.
  std::vector<Item*> transient(Region region) {
    std::vector<Item*> list;
    const Program& p = plan_.program;
    for (size_t i = 0; i < items_.size(); ++i) {
      if (items_[i].piece.end < 0) continue;
      const bool is_buffer = i < p.buffers.size();
      if (is_buffer && p.buffers[i].lifetime == Lifetime::persistent) continue;
      const Region mine =
          is_buffer ? region_of(p.buffers[i]) : workspace_region(i - p.buffers.size());
      if (mine == region) list.push_back(&items_[i]);
    }
    return list;
  }

  void store() const {
    const Program& p = plan_.program;
    for (size_t i = 0; i < p.buffers.size(); ++i) {
      const Buffer& b = p.buffers[i];
      if (b.lifetime == Lifetime::persistent || b.parent != kNone) continue;
      plan_.address[i] = {region_of(b), items_[i].piece.offset, copies_[i].count,
                          align(b.bytes(), b.space)};
    }
    for (size_t i = 0; i < p.instructions.size(); ++i)
      plan_.workspace[i] = {workspace_region(i), items_[p.buffers.size() + i].piece.offset};
  }

 private:
  // Returns the index of the instruction that runs at a moment.
  size_t instruction_at(int moment) const {
    return once_ ? static_cast<size_t>(plan_.order[static_cast<size_t>(moment)].instruction)
                 : static_cast<size_t>(moment);
  }

  void touch(BufferId root, int moment) {
    Piece& item = items_[static_cast<size_t>(root)].piece;
    item.begin = std::min(item.begin, moment);
    item.end = std::max(item.end, moment);
  }

  // Returns of every buffer whether the host reads it when the step has ended: the logits, sums of log-probabilities, the losses, and the
  // gradients, in which it looks for the first value that is not finite.
  std::vector<char> read_by_host() const {
    const Program& p = plan_.program;
    std::vector<char> reads(p.buffers.size());
    const auto add = [&reads](BufferId id) {
      if (id != kNone) reads[static_cast<size_t>(id)] = 1;
    };
    add(p.logits);
    add(p.log_probs);
    for (const ProgramLoss& loss : p.losses) add(loss.sum);
    for (const Unit& unit : p.units) add(unit.buffers.gradients.id);
    return reads;
  }

  // What a transfer reads stays until the next one to the same space is posted, so that the work between them, which
  // runs beside the first one, need not wait for it.
  void keep_copied() {
    const Program& p = plan_.program;
    std::array<int, kSpaces> next;
    next.fill(-1);
    for (int moment = static_cast<int>(p.instructions.size()); moment-- > 0;) {
      const Instruction& op = p.instructions[instruction_at(moment)];
      const DoneBy done_by = rule_of(op.op).done_by;
      if (done_by != DoneBy::copies && done_by != DoneBy::drives) continue;
      int& following = next[static_cast<size_t>(p.space_of(op.writes[0]))];
      if (following >= 0) touch(p.root(op.reads[0]), following);
      following = moment;
    }
  }

  // What a collective of activations sends stays until the first instruction that reads what came of it, if that is in
  // the same phase, so that the work between them, which runs beside the collective, need not wait for it.
  void keep_sent() {
    const Program& p = plan_.program;
    const int moments = static_cast<int>(p.instructions.size());
    for (int moment = 0; moment < moments; ++moment) {
      const Instruction& op = p.instructions[instruction_at(moment)];
      if (!is_collective(op.op) || op.reads.empty() || op.writes.empty() ||
          p.at(p.root(op.writes[0])).memory != MemoryClass::activations)
        continue;
      const int reader = next_reader(p.root(op.writes[0]), moment);
      if (reader >= 0) touch(p.root(op.reads[0]), reader);
    }
  }
  // Returns the first moment behind `moment`, of the same phase, at which a buffer or a part of it is read; -1 if there
  // is none.
  int next_reader(BufferId root, int moment) const {
    const Program& p = plan_.program;
    const Instruction& from = p.instructions[instruction_at(moment)];
    for (int next = moment + 1; next < static_cast<int>(p.instructions.size()); ++next) {
      const Instruction& op = p.instructions[instruction_at(next)];
      if (op.when != from.when || op.phase != from.phase || op.chunk != from.chunk) continue;
      if (std::ranges::any_of(op.reads,
                              [&](BufferId id) { return id != kNone && p.root(id) == root; }))
        return next;
    }
    return -1;
  }

  Region workspace_region(size_t instruction) const {
    const Program& p = plan_.program;
    return runs_on_host(p, p.instructions[instruction]) ? Region::host : Region::transient;
  }

  void workspace(int moment) {
    const size_t i = instruction_at(moment);
    const Instruction& op = plan_.program.instructions[i];
    if (!has_kernel(op.op)) return;
    const bool host = inputs_.host_library && runs_on_host(plan_.program, op);
    const KernelLibrary& library = host ? *inputs_.host_library : *inputs_.library;
    const int64_t bytes =
        library.workspace_bytes(SpecStorage(plan_.program, op, plan_.threads).get());
    plan_.workspace_bytes[i] = bytes;
    if (bytes == 0) return;
    Piece& item = items_[plan_.program.buffers.size() + i].piece;
    item = {.bytes = align(bytes, runs_on_host(plan_.program, op) ? Space::host : Space::device),
            .begin = moment,
            .end = moment};
  }

  Plan& plan_;
  const PlanInputs& inputs_;
  const bool once_;             // each instruction is issued once
  std::vector<Copies> copies_;  // of every buffer
  std::vector<Item> items_;
};

// Adds to `at_peak` the classes that are live where `items` reach their highest address.
void add_peak(const std::vector<Item*>& items, int64_t base, int64_t top, ClassBytes& at_peak) {
  if (top == base) return;
  const auto highest = std::find_if(items.begin(), items.end(), [&](const Item* i) {
    return i->piece.offset + i->piece.bytes == top;
  });
  check(highest != items.end(), "no buffer reaches the top of its region");
  // The bytes that begin and end at each position of the highest buffer's lifetime; the peak is the position
  // with the most live bytes.
  const int first = (*highest)->piece.begin, last = (*highest)->piece.end;
  std::vector<ClassBytes> change(static_cast<size_t>(last - first) + 2);
  for (const Item* i : items) {
    if (i->piece.end < first || i->piece.begin > last) continue;
    const auto memory = static_cast<size_t>(i->memory);
    change[static_cast<size_t>(std::max(i->piece.begin, first) - first)][memory] += i->piece.bytes;
    change[static_cast<size_t>(std::min(i->piece.end, last) - first) + 1][memory] -= i->piece.bytes;
  }
  change.pop_back();
  int64_t best = -1;
  ClassBytes best_classes{}, classes{};
  for (const ClassBytes& step : change) {
    for (size_t c = 0; c < classes.size(); ++c) classes[c] += step[c];
    const int64_t live = std::accumulate(classes.begin(), classes.end(), int64_t{0});
    if (live > best) {
      best = live;
      best_classes = classes;
    }
  }
  for (size_t c = 0; c < best_classes.size(); ++c) at_peak[c] += best_classes[c];
  // Holes between live buffers count as workspace.
  at_peak[static_cast<size_t>(MemoryClass::workspace)] += top - base - best;
}

}  // namespace

Region region_of(const Buffer& buffer) {
  if (buffer.space == Space::host) return Region::host;
  if (buffer.space == Space::disk) return Region::disk;
  if (buffer.shared) return Region::registered;
  return buffer.lifetime == Lifetime::persistent ? Region::persistent : Region::transient;
}

MemoryTable place_memory(const std::vector<Plan*>& plans, const PlanInputs& inputs) {
  mark_shared(plans);
  MemoryTable table;
  std::map<std::string, Address> persistent;
  for (Plan* plan : plans) {
    const Program& p = plan->program;
    plan->address.assign(p.buffers.size(), {});
    plan->workspace.assign(p.instructions.size(), {});
    plan->workspace_bytes.assign(p.instructions.size(), 0);
    for (size_t i = 0; i < p.buffers.size(); ++i) {
      const Buffer& b = p.buffers[i];
      if (b.lifetime != Lifetime::persistent || b.parent != kNone) continue;
      const auto [it, fresh] = persistent.try_emplace(b.name);
      if (fresh) {
        const Region region = region_of(b);
        int64_t& end = table.region_bytes[static_cast<size_t>(region)];
        it->second = {region, end};
        end += align(b.bytes(), b.space);
        table.peak_of(b.space)[static_cast<size_t>(b.memory)] += align(b.bytes(), b.space);
      }
      plan->address[i] = it->second;
    }
  }

  // The transient memory of a region is as large as the plan that needs most.
  std::vector<Lives> lives;
  for (Plan* plan : plans) lives.emplace_back(*plan, inputs);
  for (const Region region : {Region::transient, Region::registered, Region::host, Region::disk}) {
    int64_t& end = table.region_bytes[static_cast<size_t>(region)];
    const int64_t base = end;
    ClassBytes peak{};
    for (Lives& plan_lives : lives) {
      const std::vector<Item*> items = plan_lives.transient(region);
      const int64_t top = place_items(items, base);
      if (top <= end) continue;
      end = top;
      peak = {};
      add_peak(items, base, top, peak);
    }
    ClassBytes& at_peak = table.peak_of(region == Region::host   ? Space::host
                                        : region == Region::disk ? Space::disk
                                                                 : Space::device);
    for (size_t c = 0; c < peak.size(); ++c) at_peak[c] += peak[c];
  }
  for (const Lives& plan_lives : lives) plan_lives.store();

  for (Plan* plan : plans)  // views follow their parents
    for (size_t i = 0; i < plan->program.buffers.size(); ++i) {
      const Buffer& b = plan->program.buffers[i];
      if (b.parent == kNone) continue;
      int64_t offset = 0;
      BufferId id = static_cast<BufferId>(i);
      for (; plan->program.at(id).parent != kNone; id = plan->program.at(id).parent)
        offset += plan->program.at(id).parent_offset * size_of(b.dtype);
      Address address = plan->address[static_cast<size_t>(id)];
      address.offset += offset;
      plan->address[i] = address;
    }
  return table;
}

}  // namespace dstrain
