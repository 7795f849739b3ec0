// Times cases on a device. The caches are cold: runs rotate through sets of operands that together are larger. A
// round is a graph of many runs; the result is the median of several rounds.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "benchmarks/cuda/gpu.h"
#include "benchmarks/cuda/report.h"
#include "runtime/ir/kernel.h"

namespace dstrain::bench {

// How long a case is measured: the number of rounds, and the duration of a round.
struct Effort {
  int rounds = 15;
  double round_seconds = 2e-3;  // minimum duration of a round
};

class Bench {
 public:
  // `emulated` uses the emulated device, which tests this program and measures nothing. Throws UserError if there is
  // no GPU.
  Bench(bool emulated, Effort effort);

  std::string device_name() const { return device_->name(); }
  // Measures the machine: copies `shapes.probe_bytes` and multiplies matrices of `shapes.probe_size`.
  Probes probe(const Shapes& shapes);
  // Times a case. Throws if the device refuses it.
  Timing time(const Case& c);

 private:
  struct Lane;  // a stream and the kernels that run on it
  std::unique_ptr<Lane> make_lane() const;
  Memory filled(const TensorSpec& spec, const Operand& like, bool input, Stream& stream);
  // Times `runs`, called in turn.
  Timing time(Stream& stream, const std::vector<std::function<void()>>& runs);

  Effort effort_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Gpu> gpu_;
  std::unique_ptr<Stopwatch> watch_;
};

}  // namespace dstrain::bench
