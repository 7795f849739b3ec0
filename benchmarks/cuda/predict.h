// What a training step should take on a machine that nobody has measured: the time of each kernel from its bytes, FLOPs
// and launches, and from figures that are assumed. Needs no device. No result of it is a measurement.
#pragma once

#include <string>
#include <vector>

namespace dstrain::bench {

// A figure that a prediction rests on, and where it is from.
struct Assumption {
  std::string name;
  double value = 0;
  std::string unit, source;
};

// The loads that one of dstrain's kernels has in flight: warps on a multiprocessor, and 16-byte loads in each lane.
struct Occupancy {
  double warps = 0, loads = 0;
  double bytes() const { return warps * 32 * loads * 16; }
};

// Returns what the line `// SASS` above `kernel` states (tests/kernels/cuda/static/check_sass.py compares it with the
// machine code). `source`: the text of a .cu file. Throws RunError if there is no such line.
Occupancy occupancy_in(const std::string& source, const std::string& kernel);

// The properties of a GPU that predictions use.
struct Machine {
  std::string name;
  double bytes_per_second = 0;  // of memory
  double flops_per_second = 0;  // dense bf16 products
  double processors = 0, clock = 0;
  double product_fraction = 0;  // of flops_per_second, products of the vendor's library
  double odd_fraction = 0;      // the same where a leading dimension is odd
  double copy_fraction = 0;     // of bytes_per_second, with enough loads in flight
  double mma_fraction = 0;      // of flops_per_second, mma.sync on registers
  double latency = 0;           // seconds until a load from memory returns
  double launch = 0;            // seconds that a launch in a graph adds
  std::vector<Assumption> assumptions() const;
};

// Returns the machine of that name. Throws UserError with the known names if there is none.
Machine machine_named(const std::string& name);

// A GPT-2 and the samples of a step on one GPU.
struct PredictedModel {
  std::string name;
  int64_t channels, layers, heads, batch, parameters;
};
std::vector<PredictedModel> predicted_models();

// A kernel's part of a step.
struct PredictedRow {
  std::string name;
  double count = 0;      // runs in a step
  double bytes = 0;      // of a run
  double flops = 0;      // of a run, those of our own algorithm
  double launches = 0;   // of a run
  double in_flight = 0;  // bytes that a multiprocessor asks for at a time; 0: not limited by it
  double seconds = 0;    // of all runs
};

// Returns the kernels of a step (bf16, dropout 0, fused gelu, one micro-batch) with their times, largest first.
// `pad`: with the vocabulary padded, as dstrain does it.
std::vector<PredictedRow> predict(const PredictedModel& model, const Machine& machine,
                                  bool pad = true);

// Returns the tables that `bench_cuda --predict` prints.
std::string prediction_text(const Machine& machine);

}  // namespace dstrain::bench
