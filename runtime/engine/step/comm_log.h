// CommLog: the collectives of a run, added up by operation and size: the table that section comms_logger asks for.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "runtime/config/job.h"
#include "runtime/ir/op.h"

namespace dstrain {

// One collective that a step has done, on this rank.
struct CommRecord {
  OpKind op{};
  int64_t bytes = 0;   // of the whole tensor
  int ranks = 1;       // of its communicator
  double seconds = 0;  // from its start until it was found complete; 0: the host does not know
};

// The bandwidths of a collective, in bytes per second, by the definitions of DeepSpeed and nccl-tests.
struct Bandwidth {
  double algorithm = 0;  // bytes that the operation works on, over its time
  double bus = 0;        // bytes that each rank sends by a ring algorithm, over its time
};
Bandwidth bandwidth_of(const CommRecord& record);

class CommLog {
 public:
  explicit CommLog(const CommsLoggerConfig& config) : config_(config) {}

  // Adds a collective if the configuration counts its operation.
  void add(const CommRecord& record);
  // Returns whether the configuration counts the operation. Names of DeepSpeed that begin with ours are meant, too:
  // "all_gather_into_tensor".
  bool counts(OpKind op) const;
  // Returns the table: operation, size, count, latencies and bandwidths, by operation, size and number of ranks. Empty
  // without rows.
  std::string table() const;

 private:
  struct Sum {
    int64_t count = 0;
    double seconds = 0, largest = 0;
  };
  const CommsLoggerConfig config_;
  std::map<std::tuple<OpKind, int64_t, int>, Sum> sums_;  // by operation, bytes and ranks
};

// Returns a line about one collective; `group` is the layer that it belongs to.
std::string comm_line(const CommRecord& record, const std::string& group);

}  // namespace dstrain
