// What codecs lose: once a step each rank compares the part that it owns with what comes back of it. Both are in memory
// at that moment, so a unit costs two passes over a part.
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "runtime/plan/codecs/codecs.h"

namespace dstrain {
namespace {

class MeasureCodecs {
 public:
  MeasureCodecs(Program& program, Place place)
      : program_(program), place_(place), axes_(axes_of_state(program)) {}

  void run() {
    const std::vector<Instruction> old = std::exchange(program_.instructions, {});
    std::vector<Instruction> later;  // beside the collective that follows
    for (const Instruction& op : old) {
      program_.instructions.push_back(op);
      for (Instruction& measure : std::exchange(later, {}))
        program_.instructions.push_back(std::move(measure));
      if (op.op == OpKind::quantize)
        source_[root(op.writes[0])] = op.reads[0];
      else if (op.op == OpKind::all_gather && source_.contains(root(op.reads[0])))
        source_[root(op.writes[0])] = source_[root(op.reads[0])];
      else if (op.op == OpKind::dequantize)
        measure_weights(op);
      else if (op.op == OpKind::quantize_int4)
        later = gradients(op);
      else if (op.op == OpKind::requantize_int4)
        later = sums(op);
    }
  }

 private:
  BufferId root(BufferId id) const { return program_.root(id); }

  // Returns where the next two sums of a class go.
  BufferId next_sums(std::string_view of) {
    const std::string name = codec_error_name(of);
    BufferId all = program_.find(name);
    if (all == kNone)
      all = program_.add_buffer({.name = name,
                                 .shape = {static_cast<int64_t>(program_.units.size()), 2},
                                 .dtype = DType::f64,
                                 .memory = MemoryClass::workspace,
                                 .lifetime = Lifetime::persistent});
    return program_.view(all, 2 * used_[all]++, 2);
  }

  static Instruction once(const Instruction& like) {
    Instruction op = like;
    op.attrs = {};
    op.accumulate = Accumulate::never;
    if (op.when == When::every_micro) op.when = When::last_micro;
    return op;
  }
  Instruction compare(const Instruction& like, BufferId exact, BufferId back, std::string_view of) {
    Instruction op = once(like);
    op.op = OpKind::error_squares;
    op.reads = {exact, back};
    op.writes = {next_sums(of)};
    return op;
  }

  // Compares the rank's slice with what all ranks compute with, where a unit is unpacked first.
  void measure_weights(const Instruction& op) {
    const BufferId mine = source_.at(op.reads[0]);
    const std::string& name =
        program_.at(root(mine)).name;  // "params:U", or "brought:U" from the host
    if (!measured_.insert(name.substr(name.find(':'))).second) return;
    const int64_t n = program_.at(mine).shape.elements();
    const int64_t rank = place_.rank_in(axes_.at(root(op.writes[0])));
    program_.instructions.push_back(
        compare(op, mine, program_.view(op.writes[0], rank * n, n), "weights"));
  }

  // Appends the unpacking of a part, of K senders in order, to `list`. Returns its buffer.
  BufferId unpack(const Instruction& like, BufferId packed, int64_t first,
                  std::vector<Instruction>& list) {
    const int64_t part = std::get<Int4Attrs>(like.attrs).part;
    const BufferId values = program_.add_buffer({.name = "measured:" + program_.at(packed).name,
                                                 .shape = {part},
                                                 .memory = MemoryClass::workspace});
    Instruction op = once(like);
    op.op = OpKind::sum_int4;
    op.attrs = Int4Attrs{.part = part, .first = first};
    op.reads = {packed};
    op.writes = {values};
    list.push_back(std::move(op));
    return values;
  }

  // The rank's own gradients of the part that it owns.
  std::vector<Instruction> gradients(const Instruction& op) {
    const auto attrs = std::get<Int4Attrs>(op.attrs);
    const Axes axes = axes_.at(root(op.reads[0]));
    const int64_t rank = place_.rank_in(axes), ranks = place_.ranks_in(axes);
    const int64_t place = rank % attrs.group * (ranks / attrs.group) + rank / attrs.group;
    std::vector<Instruction> list;
    const BufferId back = unpack(op, op.writes[0], place, list);
    const BufferId exact = program_.view(op.reads[0], rank * attrs.part, attrs.part);
    list.push_back(compare(op, exact, back, "gradients"));
    return list;
  }

  // Its group's sum of that part.
  std::vector<Instruction> sums(const Instruction& op) {
    std::vector<Instruction> list;
    const BufferId exact = unpack(op, op.reads[0], place_.replica(), list);
    const BufferId back = unpack(op, op.writes[0], place_.replica(), list);
    list.push_back(compare(op, exact, back, "sums"));
    return list;
  }

  Program& program_;
  const Place place_;
  const std::unordered_map<BufferId, Axes> axes_;  // of what is measured
  std::unordered_map<BufferId, BufferId> source_;  // what packed parameters were made of
  std::unordered_set<std::string> measured_;       // units
  std::unordered_map<BufferId, int64_t> used_;     // of the sums of a class
};

}  // namespace

void measure_codecs(Program& program, const Job& job, Place place) {
  if (job.quantize != QuantizeConfig{}) MeasureCodecs(program, place).run();
}

}  // namespace dstrain
