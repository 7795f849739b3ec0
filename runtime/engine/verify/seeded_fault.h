// Seeded faults: errors that distributed training is prone to, put into the configured run of a verification, so that
// anyone can see that it finds them.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/config/job.h"
#include "runtime/data/dataset.h"
#include "runtime/engine/step/observer/step_observer.h"

namespace dstrain {

enum class Fault : uint8_t {
  dropped_gather,
  doubled_gradient,
  mask_offset,
  stale_weight,
  unclipped_unit,
  missed_micro_batch,
  wrong_beta,
  repeated_data,
  flipped_bit,
  extra_rounding,
  wrong_message,
  lost_residual,
  missed_replicated_sum,
  wrong_heads,
  norm_counted_twice,
  late_shift,
  mask_without_offset,
};

// A fault's name on the command line, what it does, and what it needs.
struct FaultName {
  Fault fault{};
  std::string_view name{}, does{};
  // Returns whether the job has something that it could change; null: the model tells. `lack`: what other jobs do not have.
  bool (*applies)(const Job& job) = nullptr;
  std::string_view lack{};
};
std::span<const FaultName> seeded_faults();

// Returns the fault of a name. Throws UserError with all names if there is none.
Fault fault_of(const std::string& name);
std::string_view name_of(Fault fault);

// Throws UserError if the job has nothing that the fault could change.
void check_fault(Fault fault, const Job& job);

// Returns the job with the fault, if that changes the job; else the job.
Job with_fault(Fault fault, const Job& job);

// Returns the data as the ranks with number `data_rank` of their data-parallel groups read them, if the fault changes
// them; else null. The caller keeps `data` alive.
std::unique_ptr<Dataset> data_with_fault(Fault fault, const Dataset& data, const Job& job,
                                         int data_rank);

// Changes one instruction of one rank, the first at which the change makes a difference. A lost residual is lost from then
// on, because some exchanges of ZeroOneAdam do not use it.
class SeededFault final : public StepObserver {
 public:
  // `acts`: on this rank.
  SeededFault(Fault fault, bool acts, int rank) : fault_(fault), acts_(acts), rank_(rank) {}

  IssueChange before(const ObservedIssue& issue) override;
  void after(const ObservedIssue& issue) override;
  // Returns what it has done, a clause; empty: nothing.
  const std::string& done() const { return done_; }

 private:
  using Bytes = std::vector<std::byte>;
  bool is_over() const { return !done_.empty() && fault_ != Fault::lost_residual; }
  void note(const ObservedIssue& issue, const std::string& what);
  void keep(const ObservedIssue& issue, BufferId id);
  bool put_back(const ObservedIssue& issue, BufferId id);
  void scale_gradient(const ObservedIssue& issue);
  bool double_gradient(const ObservedIssue& issue) const;
  bool flip_bit(const ObservedIssue& issue) const;
  bool round_once_more(const ObservedIssue& issue) const;
  bool lose_residual(const ObservedIssue& issue) const;
  bool mix_messages(const ObservedIssue& issue);

  Fault fault_;
  bool acts_;
  int rank_;
  std::string done_;
  BufferId kept_ = kNone;  // of the instruction under way
  // By instruction and micro-batch: values to be put back.
  std::map<std::pair<int32_t, int32_t>, Bytes> values_;
  bool restores_ = false;  // the instruction under way reads changed values
};

}  // namespace dstrain
