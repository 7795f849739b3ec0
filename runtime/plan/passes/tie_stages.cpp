// Tied parameters across the stages of a pipeline (a head that is the token embedding). The stage of a
// parameter's own layer has its gradient, its optimizer state and what is saved. The other stage has a copy of the
// value, which it receives at the beginning of every step, and a gradient of its own, which it sends back at the end.
#include <algorithm>

#include "runtime/core/error.h"
#include "runtime/ir/rule.h"
#include "runtime/plan/passes/passes.h"
#include "runtime/plan/pipeline/schedule.h"

namespace dstrain {
namespace {

class TiedParameter {
 public:
  // `channel`: of the link between the stages.
  TiedParameter(Program& program, Parameter& parameter, std::vector<size_t> owners,
                std::vector<size_t> users, int32_t channel)
      : program_(program),
        p_(parameter),
        channel_(channel),
        owners_(std::move(owners)),
        users_(std::move(users)),
        before_(program.instructions.size()),
        after_(program.instructions.size()) {}

  void untie() {
    copy_value();
    if (p_.gradient != kNone) copy_gradient();
    std::vector<Instruction> list = std::move(at_begin_);
    for (size_t i = 0; i < before_.size(); ++i) {
      std::ranges::move(before_[i], std::back_inserter(list));
      list.push_back(std::move(program_.instructions[i]));
      std::ranges::move(after_[i], std::back_inserter(list));
    }
    program_.instructions = std::move(list);
  }

 private:
  Instruction& at(size_t i) { return program_.instructions[i]; }

  // Returns an instruction of the link, or beside it, in the sublayer of `like`.
  Instruction beside(const Instruction& like, OpKind kind, When when) const {
    return {.op = kind,
            .when = when,
            .group = like.group,
            .phase = like.phase,
            .sublayer = like.sublayer,
            .channel = is_message(kind) ? channel_ : kStateChannel};
  }

  void copy_value() {
    Buffer copy = program_.at(p_.value);
    copy.lifetime = Lifetime::step;
    copy.parameter = -1;
    const BufferId id = program_.add_buffer(std::move(copy));
    for (const size_t i : users_) std::ranges::replace(at(i).reads, p_.value, id);
    Instruction send = beside(at(owners_.front()), OpKind::send, When::step_begin);
    Instruction recv = beside(at(users_.front()), OpKind::recv, When::step_begin);
    send.reads = {p_.value};
    recv.writes = {id};
    at_begin_ = {std::move(send), std::move(recv)};
  }

  void copy_gradient() {
    const auto writes = [&](size_t i) {
      return std::ranges::find(at(i).writes, p_.gradient) != at(i).writes.end();
    };
    std::erase_if(users_, [&](size_t i) { return !writes(i); });
    std::erase_if(owners_, [&](size_t i) { return !writes(i); });
    check(!users_.empty() && !owners_.empty(), "{} has no gradient on both of its stages", p_.name);
    Buffer sum = program_.at(p_.gradient);
    sum.name = "tied_" + sum.name;
    sum.lifetime = Lifetime::step;
    const BufferId sent = program_.add_buffer(sum);
    sum.memory = MemoryClass::communication;
    sum.lifetime = Lifetime::micro;
    const BufferId received = program_.add_buffer(sum);
    for (const size_t i : users_) std::ranges::replace(at(i).writes, p_.gradient, sent);
    // The first use of each stage begins its sum.
    at(users_.front()).accumulate = at(owners_.front()).accumulate = Accumulate::after_first_micro;
    Instruction send = beside(at(users_.back()), OpKind::send, When::last_micro);
    Instruction recv = beside(at(owners_.front()), OpKind::recv, When::last_micro);
    Instruction add = beside(at(owners_.back()), OpKind::accumulate, When::last_micro);
    send.reads = {sent};
    recv.writes = {received};
    add.accumulate = Accumulate::always;
    add.reads = {received};
    add.writes = {p_.gradient};
    after_[users_.back()].push_back(std::move(send));
    before_[owners_.front()].push_back(std::move(recv));
    after_[owners_.back()].push_back(std::move(add));
  }

  Program& program_;
  Parameter& p_;
  const int32_t channel_;
  std::vector<size_t> owners_, users_;  // instructions of its own stage and of the other one
  std::vector<Instruction> at_begin_;
  std::vector<std::vector<Instruction>> before_, after_;  // of every instruction
};

}  // namespace

void tie_stages(Program& program, const std::vector<int64_t>& first_sublayers,
                const PipelineConfig& pipeline, const Place& place) {
  const int stages = place.stages();
  if (stages == 1) return;
  const auto stage_of = [&](int64_t sublayer) {
    const auto next = std::ranges::upper_bound(first_sublayers, sublayer);
    const auto part = next - first_sublayers.begin() - 1;
    return chunk_of_part(pipeline.schedule, stages, static_cast<int>(part)).stage;
  };
  struct Uses {
    std::vector<size_t> owners{}, users{};
  };
  std::vector<Uses> uses(program.parameters.size());
  std::vector<int> parameter_of(program.buffers.size(), -1);  // whose value or gradient a buffer is
  for (size_t i = 0; i < program.parameters.size(); ++i)
    for (const BufferId id : {program.parameters[i].value, program.parameters[i].gradient})
      if (id != kNone) parameter_of[static_cast<size_t>(id)] = static_cast<int>(i);
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& op = program.instructions[i];
    const auto stage = stage_of(op.sublayer);
    for (const auto* list : {&op.reads, &op.writes})
      for (const BufferId id : *list) {
        const int index = id == kNone ? -1 : parameter_of[static_cast<size_t>(id)];
        if (index < 0) continue;
        const Parameter& p = program.parameter(index);
        const auto own = stage_of(p.sublayer);
        check(stage == own || (own == 0 && stage == stages - 1),
              "{} of stage {} is used by stage {}: only the first and the last one share "
              "parameters",
              p.name, own, stage);
        Uses& of = uses[static_cast<size_t>(index)];
        std::vector<size_t>& positions = stage == own ? of.owners : of.users;
        if (positions.empty() || positions.back() != i) positions.push_back(i);
      }
  }
  // A model has one such parameter: the positions of another one's uses would have moved.
  const auto tied = [](const Uses& of) { return !of.users.empty(); };
  check(std::ranges::count_if(uses, tied) <= 1, "stages share more than one parameter");
  const auto shared = std::ranges::find_if(uses, tied);
  if (shared == uses.end()) return;
  Parameter& p = program.parameter(shared - uses.begin());
  TiedParameter(program, p, std::move(shared->owners), std::move(shared->users),
                channel_of(place, Link::tied))
      .untie();
}

}  // namespace dstrain
