// Repetition: the periods of a step. Between its beginning and its end a stage does the same tasks again and again,
// each time for micro-batches that follow by the same number. What has copies moves from copy to copy meanwhile, and
// everything else stays where it is. So a replay that has seen a period leave the memory as it found it, but for
// that movement, has seen all periods that follow.
#pragma once

#include <optional>
#include <vector>

#include "runtime/plan/proof/replay_state.h"

namespace dstrain {

// A run of tasks that repeats: the same tasks follow it, for micro-batches whose numbers are larger by `micros`.
struct Period {
  size_t tasks = 0;
  int32_t micros = 0;
};

class Repetition {
 public:
  explicit Repetition(const Plan& plan);

  // Returns the number of the task whose issues begin at `issue`, if one does.
  std::optional<size_t> task_at(size_t issue) const;
  // Returns the first issue of a task; of the number of tasks: the end of the last one.
  size_t first_issue(size_t task) const { return tasks_[task].begin; }

  // Returns the shortest period that begins with the task and comes twice, without the step's first micro-batch.
  // None if the two differ in more than the numbers of their micro-batches.
  std::optional<Period> period_at(size_t task) const;
  // Returns whether the issues of the period that begins with task `again` are those of the one that begins with
  // `task`, but for the numbers of micro-batches, and have the same waits. `started` and `started_again`: the
  // operations that have started before them.
  bool repeats(size_t task, size_t again, const Period& period, const std::vector<int32_t>& started,
               const std::vector<int32_t>& started_again) const;

  // Returns the state in which everything belongs to micro-batches whose numbers are larger by `micros`, and in which
  // `started` operations have started.
  ReplayState moved(const ReplayState& state, int64_t micros,
                    const std::vector<int32_t>& started) const;

 private:
  // The issues of one phase of one micro-batch in a chunk, and the receives of later tasks that precede them.
  struct TaskIssues {
    size_t begin = 0;
    Phase phase{};
    int32_t chunk = 0;
    int32_t micro = 0;
    bool is_like(const TaskIssues& other) const {
      return phase == other.phase && chunk == other.chunk && micro == other.micro;
    }
  };
  // A buffer with copies.
  struct Ring {
    int64_t offset = 0, stride = 0, copies = 1;
    int64_t end() const { return offset + stride * copies; }
  };

  const Instruction& op_of(size_t issue) const { return plan_.instruction_of(plan_.order[issue]); }
  void find_slots();
  void find_rings();
  bool comes_twice(size_t task, const Period& period) const;
  // Returns the ring that has the byte, or none.
  const Ring* ring_at(Region region, int64_t byte) const;
  // Returns the first byte after `byte` at which a copy begins or ends.
  int64_t next_edge(Region region, int64_t byte) const;
  int64_t moved(Region region, int64_t byte, int64_t micros) const;
  // Gives the bytes to which [begin, end) moves to `owner`.
  void move(Region region, int64_t begin, int64_t end, int64_t micros, int64_t owner,
            ByteOwners& owners) const;

  const Plan& plan_;
  std::vector<TaskIssues> tasks_;                  // and their end
  std::array<std::vector<Ring>, kRegions> rings_;  // by offset
  bool sound_ = true;  // no ring shares memory with what else the tasks use
};

// Returns whether the states differ in nothing that the rest of a step depends on.
bool same_state(const ReplayState& a, const ReplayState& b);

}  // namespace dstrain
