// Runs cases on a device and times them: from a cold cache (operands rotate through sets that together are
// larger than it), many runs in a graph, the median of several such rounds.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "benchmarks/cuda/gpu.h"
#include "benchmarks/cuda/report.h"
#include "runtime/ir/kernel.h"

namespace dstrain::bench {

struct Effort {
  int rounds = 15;
  double round_seconds = 2e-3;  // that the runs of a round last, at least
};

class Bench {
 public:
  // `emulated`: the emulated device, which proves this program and measures nothing. Throws UserError where
  // there is no GPU.
  Bench(bool emulated, Effort effort);

  std::string device_name() const { return device_->name(); }
  // Copies `shapes.probe_bytes` and multiplies matrices of `shapes.probe_size`.
  Probes probe(const Shapes& shapes);
  // Throws what the device refused.
  Timing time(const Case& c);

 private:
  struct Lane;  // a stream and the kernels that run on it
  std::unique_ptr<Lane> make_lane() const;
  Memory filled(const TensorSpec& spec, const Operand& like, bool input, Stream& stream);
  // Each of `runs` in turn, on cold operands.
  Timing time(Stream& stream, const std::vector<std::function<void()>>& runs);

  Effort effort_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Gpu> gpu_;
  std::unique_ptr<Stopwatch> watch_;
};

}  // namespace dstrain::bench
