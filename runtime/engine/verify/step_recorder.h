// StepRecorder: records what a rank's steps compute, and lets a seeded fault change it.
#pragma once

#include <map>
#include <unordered_map>
#include <utility>

#include "runtime/engine/run/trainer.h"
#include "runtime/engine/step/observer/step_observer.h"
#include "runtime/engine/verify/rank_record.h"

namespace dstrain {

class StepRecorder final : public StepObserver {
 public:
  // Instructions and state are recorded up to step `observed`, and the state after step `last` too; with `terms` what the
  // first step adds to gradients. `fault` changes what instructions do; null: none. The caller keeps it alive.
  StepRecorder(int64_t observed, int64_t last, bool terms, StepObserver* fault);

  IssueChange before(const ObservedIssue& issue) override;
  void after(const ObservedIssue& issue) override;
  // To be called before the first step and after each one.
  void begin(const Trainer& trainer) { sent_before_ = trainer.communicator().wire_bytes(); }
  void after_step(const Trainer& trainer);

  RankRecord& record() { return record_; }

 private:
  int32_t index_of(const std::string& name, BufferRole role = BufferRole::other,
                   int32_t copy_of = -1);
  // The same of a buffer.
  int32_t index_of(const Program& program, BufferId id);
  RecordedValue value_of(const ObservedIssue& issue, BufferId id, const Tensor& tensor);
  RecordedValue value_of(const ObservedIssue& issue, BufferId id) {
    return value_of(issue, id, issue.tensor(id));
  }
  void add(const ObservedIssue& issue, int32_t micro, const std::vector<RecordedValue>& inputs,
           const std::vector<RecordedValue>& outputs);
  // Adds to the outputs of a sum over ranks that all of them receive the equal slice of each rank, with the name that it has
  // where each receives its own alone (Program::view).
  void add_slices(const ObservedIssue& issue, std::vector<RecordedValue>& outputs);
  void add_batch(const ObservedIssue& issue);
  void add_gradient(const ObservedIssue& issue);
  void add_terms(const ObservedIssue& issue);
  void add_state(const Trainer& trainer);
  // Elements of a tensor, or of the rank's part of it, as they lie in memory: from `begin` on.
  struct HeldElements {
    int64_t begin = 0;
    TensorPart part{};
    Shape whole{};  // the shape of the tensor that it is a part of
  };
  // `root`: the index of the name of the buffer that has them.
  void add_pieces(int64_t step, const std::string& name, std::string_view slot, int32_t root,
                  const HeldElements& held, const Tensor& values, RemoteMemory* owner);

  int64_t observed_, last_;
  bool terms_;
  StepObserver* fault_;
  int64_t sent_before_ = 0;  // bytes, up to the newest step
  RankRecord record_;
  std::unordered_map<std::string, int32_t> index_;
  std::unordered_map<BufferId, std::vector<float>> sums_;  // gradients, as far as they are added
  // By instruction and micro-batch: the inputs of what has begun.
  std::map<std::pair<int32_t, int32_t>, std::vector<RecordedValue>> inputs_;
};

// Returns the values of a tensor as f32 (u8 as their numbers). `owner`: of its memory; null: the host.
std::vector<float> values_of(const Tensor& tensor, RemoteMemory* owner);

}  // namespace dstrain
