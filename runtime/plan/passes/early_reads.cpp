#include "runtime/plan/passes/early_reads.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/core/error.h"

namespace dstrain {

EarlyReads::EarlyReads(Program& program, const Job& job)
    : program_(program), bytes_left_(job.offload.read_ahead) {}

void EarlyReads::take(std::vector<Instruction>& loads) {
  const auto can_precede = [this](const Instruction& op) {
    return program_.space_of(op.reads[0]) == Space::disk &&
           program_.at(program_.root(op.reads[0])).memory != MemoryClass::gradients;
  };
  int64_t bytes = 0;
  for (const Instruction& op : loads)
    if (can_precede(op)) bytes += program_.at(op.writes[0]).bytes();
  full_ = full_ || bytes > bytes_left_;
  if (full_ || bytes == 0) return;
  bytes_left_ -= bytes;
  std::vector<Instruction> reads;
  std::ranges::copy_if(loads, std::back_inserter(reads), can_precede);
  std::erase_if(loads, can_precede);
  // What one micro-batch's backward pass reads, the end of the step uses.
  for (const Instruction& op : reads)
    program_.at(program_.root(op.writes[0])).lifetime = Lifetime::step;
  reads_.push_back(std::move(reads));
}

void EarlyReads::insert() {
  if (reads_.empty()) return;
  std::vector<Instruction> list = std::exchange(program_.instructions, {});
  std::vector<size_t> layers;  // where they begin in the backward pass
  for (size_t i = 0; i < list.size(); ++i)
    if (list[i].when == When::every_micro && list[i].phase == Phase::backward &&
        (layers.empty() || list[i].group != list[layers.back()].group))
      layers.push_back(i);
  check(!layers.empty(), "a step that updates has no backward pass");
  size_t next = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    for (; next < reads_.size() && layers[next * layers.size() / reads_.size()] == i; ++next)
      for (Instruction& op : reads_[next]) {
        op.when = When::last_micro;
        op.phase = list[i].phase;
        op.chunk = list[i].chunk;
        program_.instructions.push_back(std::move(op));
      }
    program_.instructions.push_back(std::move(list[i]));
  }
}

}  // namespace dstrain
