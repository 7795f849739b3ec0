// Post-local SGD (Lin et al. 2018, as PyTorch's hook and its PeriodicModelAverager have it): each shard group of ranks
// adds gradients, clips and updates by itself, and every few updates the weights of all groups are replaced by their
// mean. Optimizer state stays each group's own. A rank sends one slice of a unit to its counterparts in the other
// groups and gets the rest from its own group, so that a host sends each weight once.
#include <deque>
#include <utility>
#include <vector>

#include "runtime/ir/rule.h"
#include "runtime/plan/codecs/codecs.h"
#include "runtime/plan/mesh.h"

namespace dstrain {
namespace {

class WeightsAverage {
 public:
  WeightsAverage(Program& program, Place place)
      : program_(program), place_(place), group_(program.add_group("average")) {}

  // The weights of the unit leave.
  void send(const Unit& unit) {
    const BufferId sums = program_.add_buffer({.name = "average:" + unit.name,
                                               .shape = {unit.elements},
                                               .memory = MemoryClass::communication,
                                               .lifetime = Lifetime::step});
    sums_.push_back(sums);
    emit(OpKind::accumulate, {unit.buffers.master().id}, {sums});
    const int64_t slice = unit.elements / place_.shard_size();
    const BufferId mine = program_.view(sums, place_.shard_rank() * slice, slice);
    emit(OpKind::all_reduce, {mine}, {mine}).channel = channel_of(place_, Axis::replica);
    if (place_.shard_size() > 1)
      emit(OpKind::all_gather, {mine}, {sums}).channel = channel_of(place_, kShardAxes);
  }
  // The mean takes the place of the weights of the unit that has been sent first.
  void commit(const Unit& unit) {
    const BufferId masters = unit.buffers.master().id, params = unit.buffers.values.id;
    emit(OpKind::commit_state, {sums_.front()}, {masters}).attrs =
        CommitAttrs{.divisor = place_.replicas()};
    sums_.pop_front();
    if (masters != params) emit(OpKind::cast, {masters}, {params});
  }

 private:
  Instruction& emit(OpKind op, std::vector<BufferId> reads, std::vector<BufferId> writes) {
    return program_.add_at_end(op, std::move(reads), std::move(writes), group_);
  }

  Program& program_;
  const Place place_;
  const int32_t group_;
  std::deque<BufferId> sums_;  // of units whose weights are under way
};

}  // namespace

void send_in_groups(Program& program, const Job& job, Place place, StepKind kind) {
  if (kind != StepKind::regular) return;
  WeightsAverage average(program, place);
  // A unit's weights travel while those of the unit before are replaced.
  const size_t apart = job.overlap_comm ? 1 : 0, count = program.trained_units().size();
  for (size_t i = 0; i < count + apart; ++i) {
    if (i < count) average.send(program.units[i]);
    if (i >= apart) average.commit(program.units[i - apart]);
  }
}

}  // namespace dstrain
