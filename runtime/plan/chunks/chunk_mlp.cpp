// MLPs in pieces of rows (Bekman et al. 2025 call it TiledMLP). The forward pass keeps nothing of a piece but the rows of
// the second product's result. The backward pass makes the hidden values of a piece again, or for the only time where
// recompute() has made them so, then their gradients, and adds to the gradients of the weights.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "runtime/core/error.h"
#include "runtime/ir/ops/row_blocks.h"
#include "runtime/ir/rule.h"
#include "runtime/plan/chunks/chunks.h"
#include "runtime/plan/chunks/pieces.h"

namespace dstrain {
namespace {

using Pieces = std::vector<Instruction>;

// Returns whether sums of blocks of rows are written one by one, and added.
bool sums_blocks(const Instruction& op) {
  return rule_of(op.op).sum_order == SumOrder::row_blocks;
}

// Emits instructions of all rows for one piece after another.
class PieceWriter {
 public:
  // `again`: hidden values are computed once more.
  PieceWriter(Program& program, const MlpSegment& mlp, int64_t length, bool again)
      : program_(program), mlp_(mlp), length_(length), again_(again) {}

  Pieces write(const std::vector<Instruction>& whole) {
    hold(whole);
    for (int64_t first = 0; first < mlp_.rows; first += length_)
      for (const Instruction& op : whole) add(op, first, std::min(length_, mlp_.rows - first));
    for (const Instruction& op : whole)
      if (sums_blocks(op)) add_blocks(op);
    return std::move(pieces_);
  }

 private:
  bool is_inner(BufferId id) const {
    return mlp_.hidden.contains(id) || mlp_.gradients.contains(id);
  }

  // Gives every value of a piece a buffer. Those of equal shapes share one where one is no longer needed when the other is
  // made.
  void hold(const std::vector<Instruction>& whole) {
    struct HeldRange {
      size_t first = 0, last = 0;
    };
    std::map<BufferId, HeldRange> spans;
    std::vector<BufferId> values;  // in the order in which they are made
    for (size_t i = 0; i < whole.size(); ++i)
      for (const auto* operands : {&whole[i].writes, &whole[i].reads})
        for (const BufferId id : *operands) {
          if (!is_inner(id)) continue;
          if (spans.try_emplace(id, HeldRange{i, i}).second) values.push_back(id);
          spans[id].last = i;
        }
    std::map<BufferId, size_t> free_after;  // of every buffer
    for (const BufferId id : values) {
      Buffer piece = program_.at(id);
      piece.shape = {length_, piece.shape[-1]};
      piece.copy_of = kNone;
      const auto known = std::ranges::find_if(free_after, [&](const auto& held) {
        const Buffer& b = program_.at(held.first);
        return held.second < spans[id].first && b.shape == piece.shape && b.dtype == piece.dtype;
      });
      const bool again = again_ && mlp_.hidden.contains(id) && program_.at(id).copy_of == kNone;
      piece.name = (again ? "re:" : "") + piece.name + " of a piece";
      held_[id] = known != free_after.end() ? known->first : program_.add_buffer(std::move(piece));
      free_after[held_[id]] = spans[id].last;
    }
  }

  void add(const Instruction& whole, int64_t first, int64_t count) {
    Instruction op = whole;
    const OpAxes axes = axes_of(program_, whole);
    for (size_t i = 0; i < op.reads.size(); ++i)
      if (axes.read(i).has(OperandAxis::row)) op.reads[i] = rows_of(op.reads[i], first, count);
    if (rule_of(op.op).sum_order == SumOrder::library_parts) {
      if (first > 0) op.accumulate = Accumulate::always;
    } else if (sums_blocks(op)) {
      const RowBlocks all(mlp_.rows);
      op.attrs = SumRowsAttrs{.block = all.block};
      op.accumulate = Accumulate::never;
      op.writes[0] = view_of_rows(program_, blocks_of(whole), all.count, first / all.block,
                                  RowBlocks(count, all.block).count);
    } else {
      for (BufferId& id : op.writes) id = rows_of(id, first, count);
    }
    if (const auto part = part_of(op.attrs))
      set_part(op.attrs, {part->first + first, part->all == 0 ? mlp_.rows : part->all});
    pieces_.push_back(std::move(op));
  }

  void add_blocks(const Instruction& whole) {
    Instruction op = whole;
    op.attrs = SumRowsAttrs{.of_blocks = true};
    op.reads = {blocks_of(whole)};
    pieces_.push_back(std::move(op));
  }

  // Returns the buffer of the sums of blocks of rows.
  BufferId blocks_of(const Instruction& sum) {
    const auto [known, fresh] = blocks_.try_emplace(sum.writes[0], kNone);
    if (fresh) {
      const Buffer& gradient = program_.at(sum.writes[0]);
      known->second =
          program_.add_buffer({.name = "blocks:" + gradient.name,
                               .shape = {RowBlocks(mlp_.rows).count, gradient.shape.elements()}});
    }
    return known->second;
  }

  BufferId rows_of(BufferId whole, int64_t first, int64_t count) {
    if (whole == kNone) return kNone;
    if (!is_inner(whole)) return view(whole, mlp_.rows, first, count);
    const BufferId held = held_.at(whole);
    return count == length_ ? held : view(held, length_, 0, count);
  }

  BufferId view(BufferId whole, int64_t rows, int64_t first, int64_t count) {
    const auto [known, fresh] = views_.try_emplace({whole, first}, kNone);
    if (fresh) known->second = view_of_rows(program_, whole, rows, first, count);
    return known->second;
  }

  Program& program_;
  const MlpSegment& mlp_;
  const int64_t length_;
  const bool again_;
  std::map<BufferId, BufferId> held_, blocks_;
  std::map<std::pair<BufferId, int64_t>, BufferId> views_;
  Pieces pieces_;
};

// The instructions of an MLP that take the place of a range of the program's.
struct PieceBlock {
  MovedTogether place{};
  std::vector<Instruction> unpacked{};  // in front of the first piece
  std::vector<Instruction> whole{};     // of all rows
  bool again = false;
};

class ChunkMlp {
 public:
  ChunkMlp(Program& program, const KernelLibrary& library, int threads)
      : program_(program), library_(library), threads_(threads) {}

  std::set<BufferId> run(int64_t chunks) {
    for (const MlpSegment& mlp : find_mlps(program_)) divide(mlp, chunks);
    if (!blocks_.empty()) write();
    return std::move(gradients_);
  }

 private:
  struct Written {
    MlpSegment mlp;
    int64_t length = 0;
    PieceBlock block;
  };

  const Instruction& at(size_t i) const { return program_.instructions[i]; }

  void divide(const MlpSegment& mlp, int64_t chunks) {
    RowSums sums{.program = program_,
                 .library = library_,
                 .threads = threads_,
                 .block = RowBlocks(mlp.rows).block};
    std::set<BufferId> gradients;
    for (const size_t i : mlp.backward) {
      if (!sums_pieces(at(i).op)) continue;
      if (!gradients.insert(at(i).writes[0]).second) return;  // sums of two products in one order
      if (!sums_blocks(at(i))) sums.weight_grads.push_back(at(i));
    }
    const int64_t length = piece_length(sums, mlp.rows, chunks);
    if (length >= mlp.rows) return;

    const std::vector<size_t> first = makers_for(mlp, mlp.readers);
    std::set<size_t> gone = gone_;
    for (const size_t i : mlp.makers)
      if (!std::ranges::binary_search(first, i)) gone.insert(i);
    std::vector<PieceBlock> blocks;
    if (!mlp.readers.empty()) {
      std::optional<PieceBlock> block = forward_block(mlp, first, gone);
      if (!block) return;
      blocks.push_back(std::move(*block));
    }
    if (!mlp.backward.empty()) {
      std::optional<PieceBlock> block = backward_block(mlp, gone);
      if (!block) return;
      blocks.push_back(std::move(*block));
    }
    if (blocks.size() == 2 && blocks[0].place.last >= blocks[1].place.first) return;
    for (const PieceBlock& block : blocks)
      if (overlaps(block)) return;
    gone_ = std::move(gone);
    gradients_.merge(gradients);
    for (PieceBlock& block : blocks) {
      const size_t at = block.place.first;
      blocks_.emplace(at, Written{mlp, length, std::move(block)});
    }
  }

  // Returns the makers of the hidden values that the instructions read.
  std::vector<size_t> makers_for(const MlpSegment& mlp, const std::vector<size_t>& readers) const {
    std::set<BufferId> needed;
    const auto need = [&](const Instruction& op) {
      for (const BufferId id : op.reads)
        if (mlp.hidden.contains(id)) needed.insert(id);
    };
    for (const size_t i : readers) need(at(i));
    std::vector<size_t> makers;
    for (size_t n = mlp.makers.size(); n-- > 0;) {
      const Instruction& op = at(mlp.makers[n]);
      if (!std::ranges::any_of(op.writes, [&](BufferId id) { return needed.contains(id); }))
        continue;
      makers.push_back(mlp.makers[n]);
      need(op);
    }
    std::ranges::reverse(makers);
    return makers;
  }

  std::optional<PieceBlock> forward_block(const MlpSegment& mlp, const std::vector<size_t>& makers,
                                          const std::set<size_t>& gone) const {
    std::vector<size_t> all;
    std::ranges::merge(makers, mlp.readers, std::back_inserter(all));
    const Instruction& reader = at(mlp.readers[0]);
    for (const size_t i : makers)
      if (at(i).phase != reader.phase || at(i).chunk != reader.chunk) return std::nullopt;
    const std::optional<MovedTogether> place = moved_together(program_, all, {}, gone);
    if (!place) return std::nullopt;
    PieceBlock block{.place = *place};
    for (const size_t i : all) block.whole.push_back(at(i));
    return block;
  }

  std::optional<PieceBlock> backward_block(const MlpSegment& mlp, const std::set<size_t>& gone) {
    PieceBlock block{.again = true};
    std::set<BufferId> also;
    const size_t last = mlp.backward.back();
    for (const size_t i : makers_for(mlp, mlp.backward)) {
      Instruction op = at(i);
      for (size_t n = 0; n < op.reads.size(); ++n) {
        BufferId& id = op.reads[n];
        if (id == kNone || mlp.hidden.contains(id)) continue;
        if (!bring(id, i, last, op, block)) return std::nullopt;
        also.insert(program_.root(id));
      }
      op.phase = Phase::backward;
      if (at(i).phase == Phase::forward)
        op.group = program_.add_group("re:" + program_.group_name(at(i)));
      block.whole.push_back(std::move(op));
    }
    const std::optional<MovedTogether> place = moved_together(program_, mlp.backward, also, gone);
    if (!place) return std::nullopt;
    block.place = *place;
    for (const size_t i : mlp.backward) block.whole.push_back(at(i));
    return block;
  }

  // Makes `id`, which instruction `maker` reads, what its repetition reads in front of `last`: what the backward pass has
  // made of it once more, or a weight that is unpacked again. Returns false if it is no longer there.
  bool bring(BufferId& id, size_t maker, size_t last, const Instruction& op, PieceBlock& block) {
    const auto writer_before_last = [&](BufferId value) -> std::optional<size_t> {
      std::optional<size_t> found;
      for (size_t i = 0; i < last; ++i)
        for (const BufferId written : at(i).writes)
          if (written != kNone && program_.root(written) == value) {
            if (found) return std::nullopt;
            found = i;
          }
      return found;
    };
    if (at(maker).phase == Phase::forward)
      for (auto copy = static_cast<BufferId>(program_.buffers.size()); copy-- > 0;) {
        if (program_.at(copy).copy_of != id || !writer_before_last(copy)) continue;
        id = copy;
        return true;
      }
    const BufferId root = program_.root(id);
    for (size_t i = maker; i < last; ++i)
      for (const BufferId written : at(i).writes)
        if (written != kNone && program_.root(written) == root) return false;
    const std::optional<size_t> writer = writer_before_last(root);
    if (at(maker).phase != Phase::forward || !writer || !rule_of(at(*writer).op).prepares_weight)
      return true;
    Instruction unpack = at(*writer);
    Buffer weight = program_.at(id);
    weight.name = "re:" + weight.name;
    weight.copy_of = id;
    id = unpack.writes[0] = program_.add_buffer(std::move(weight));
    unpack.phase = Phase::backward;
    unpack.chunk = op.chunk;
    unpack.group = program_.add_group("re:" + program_.group_name(unpack));
    block.unpacked.push_back(std::move(unpack));
    return true;
  }

  bool overlaps(const PieceBlock& block) const {
    return std::ranges::any_of(blocks_, [&](const auto& other) {
      const MovedTogether &a = other.second.block.place, &b = block.place;
      return a.first <= b.last && b.first <= a.last;
    });
  }

  void write() {
    std::vector<Instruction> list;
    const auto keep = [&](size_t i) {
      if (!gone_.contains(i)) list.push_back(program_.instructions[i]);
    };
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      const auto found = blocks_.find(i);
      if (found == blocks_.end()) {
        keep(i);
        continue;
      }
      const auto& [mlp, length, block] = found->second;
      std::ranges::for_each(block.place.before, keep);
      std::ranges::copy(block.unpacked, std::back_inserter(list));
      PieceWriter writer(program_, mlp, length, block.again);
      std::ranges::move(writer.write(block.whole), std::back_inserter(list));
      std::ranges::for_each(block.place.after, keep);
      i = block.place.last;
    }
    program_.instructions = std::move(list);
  }

  Program& program_;
  const KernelLibrary& library_;
  const int threads_;
  std::map<size_t, Written> blocks_;  // by the first instruction of their range
  std::set<size_t> gone_;             // makers of what is computed again in pieces alone
  std::set<BufferId> gradients_;      // of parameters
};

}  // namespace

std::set<BufferId> chunk_mlp(Program& program, int64_t chunks, const KernelLibrary& library,
                             int threads) {
  if (chunks <= 1) return {};
  return ChunkMlp(program, library, threads).run(chunks);
}

}  // namespace dstrain
