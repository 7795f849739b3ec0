#include "benchmarks/cuda/bench.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <span>

#include "kernels/cuda/library.h"
#include "runtime/core/devices/cuda_device.h"
#include "runtime/core/devices/emulated_device.h"
#include "runtime/core/error.h"

namespace dstrain::bench {
namespace {

constexpr int64_t kPattern = int64_t{1} << 20;  // random values of an operand, repeated to fill it
constexpr int64_t kProbeWorkspace = int64_t{32} << 20;
constexpr int64_t kCaches =
    4;  // all operand sets of a case together are at least so many caches large
constexpr int64_t kMostSets = 64;

// Returns `n` values of an operand in its dtype. Inputs may be negative; outputs are positive, because an optimizer
// takes square roots of its state.
std::vector<std::byte> pattern(const Operand& o, bool input, int64_t n) {
  const DType dtype = o.spec.dtype;
  std::vector<std::byte> bytes(static_cast<size_t>(n * size_of(dtype)));
  std::mt19937 random(static_cast<uint32_t>(n));
  std::uniform_real_distribution<float> real(input ? -1.0f : 0.05f, 1.0f);
  std::uniform_int_distribution<int32_t> whole(
      0, static_cast<int32_t>(std::max<int64_t>(o.below, 1) - 1));
  const auto put = [&](int64_t i, const auto& value) {
    std::memcpy(&bytes[static_cast<size_t>(i) * sizeof(value)], &value, sizeof(value));
  };
  for (int64_t i = 0; i < n; ++i) {
    switch (dtype) {
      case DType::i32:
        put(i, o.step > 0 ? static_cast<int32_t>(o.first + i * o.step) : whole(random));
        break;
      case DType::f32:
        put(i, real(random));
        break;
      case DType::bf16:
        put(i, to_bf16(real(random)));
        break;
      case DType::f16:
        put(i, to_f16(real(random)));
        break;
      default:
        return bytes;  // zeros
    }
  }
  return bytes;
}

std::vector<Tensor> tensors_of(const std::vector<Operand>& operands,
                               const std::vector<Memory>& memory, size_t first) {
  std::vector<Tensor> tensors;
  for (const Operand& o : operands)
    tensors.push_back({memory[first + tensors.size()].data(), o.spec.shape, o.spec.dtype});
  return tensors;
}

// One set of a case's operands.
struct OperandSet {
  std::vector<Memory> memory;
  std::vector<Tensor> in, out;
};

}  // namespace

struct Bench::Lane {
  std::unique_ptr<Stream> stream;
  std::unique_ptr<KernelLibrary> library;
};

Bench::Bench(bool emulated, Effort effort)
    : effort_(effort),
      device_(emulated ? make_emulated_device() : make_cuda_device(0)),
      gpu_(emulated ? make_host_gpu() : make_gpu()),
      watch_(gpu_->make_stopwatch()) {}

// Each case has its own lane, so that a failing case does not affect the others.
std::unique_ptr<Bench::Lane> Bench::make_lane() const {
  auto lane = std::make_unique<Lane>();
  lane->stream = device_->make_stream();
  void* const native = lane->stream->native();
  lane->library = device_->kind() == DeviceKind::cuda
                      ? make_cuda_library(static_cast<CUstream_st*>(native))
                      : make_emulated_library(*static_cast<EmulatedStream*>(native));
  return lane;
}

Memory Bench::filled(const TensorSpec& spec, const Operand& like, bool input, Stream& stream) {
  const int64_t n = spec.shape.elements();
  if (n == 0) return {};  // an absent operand
  const int64_t total = n * size_of(spec.dtype);
  Memory memory = device_->allocate(total, "an operand");
  const std::vector<std::byte> first = pattern(like, input, std::min(n, kPattern));
  device_->upload(memory.data(), first.data(), static_cast<int64_t>(first.size()));
  for (auto done = static_cast<int64_t>(first.size()); done < total; done *= 2)
    stream.copy(memory.data() + done, memory.data(), std::min(done, total - done));
  return memory;
}

Timing Bench::time(Stream& stream, const std::vector<std::function<void()>>& runs) {
  const auto once = [&] {
    for (const auto& run : runs) run();
  };
  const auto timed = [&](const std::function<void()>& work) {
    watch_->start(stream);
    work();
    watch_->stop(stream);
    return watch_->seconds();
  };
  once();
  const double estimate = timed(once);
  const auto repeats = std::max<int64_t>(
      1, static_cast<int64_t>(std::ceil(effort_.round_seconds / std::max(estimate, 1e-9))));
  std::function<void()> round = [&] {
    for (int64_t i = 0; i < repeats; ++i) once();
  };
  std::shared_ptr<Graph> graph;
  if (stream.begin_capture()) {
    round();
    graph = stream.end_capture();
    round = [&] { graph->launch(stream); };
  }
  timed(round);
  std::vector<double> seconds;
  for (int i = 0; i < effort_.rounds; ++i)
    seconds.push_back(timed(round) / static_cast<double>(repeats) /
                      static_cast<double>(runs.size()));
  stream.synchronize();
  return timing_of(std::move(seconds));
}

Timing Bench::time(const Case& c) {
  const std::unique_ptr<Lane> lane = make_lane();
  const std::vector<TensorSpec> in = specs_of(c.in), out = specs_of(c.out);
  const KernelSpec spec{.op = c.op, .attrs = c.attrs, .in = in, .out = out};
  const std::unique_ptr<Kernel> kernel = lane->library->make(spec);

  const auto one = static_cast<int64_t>(c.floor.bytes);
  const int64_t count = std::clamp<int64_t>(
      (kCaches * gpu_->cache_bytes() + one - 1) / std::max<int64_t>(one, 1), 2, kMostSets);
  std::vector<OperandSet> sets(static_cast<size_t>(count));
  for (OperandSet& set : sets) {
    for (const Operand& o : c.in) set.memory.push_back(filled(o.spec, o, true, *lane->stream));
    for (const Operand& o : c.out)
      set.memory.push_back(o.same_as < 0 ? filled(o.spec, o, false, *lane->stream) : Memory());
    set.in = tensors_of(c.in, set.memory, 0);
    set.out = tensors_of(c.out, set.memory, c.in.size());
    for (size_t i = 0; i < c.out.size(); ++i)
      if (c.out[i].same_as >= 0)
        set.out[i].data = set.in[static_cast<size_t>(c.out[i].same_as)].data;
  }
  const int64_t scratch = lane->library->workspace_bytes(spec);
  const Memory workspace = device_->allocate(scratch, "scratch memory");
  StepState state;
  state.seed = 1;
  state.lr = 1e-4f;
  state.d_loss = 1e-4f;
  const Memory there = device_->allocate(sizeof(state), "the step state");
  device_->upload(there.data(), &state, sizeof(state));

  std::vector<std::function<void()>> runs;
  for (const OperandSet& set : sets)
    runs.emplace_back([&] {
      kernel->run({.in = set.in,
                   .out = set.out,
                   .workspace = {workspace.data(), Shape{scratch}, DType::u8},
                   .state = reinterpret_cast<const StepState*>(there.data())});
    });
  return time(*lane->stream, runs);
}

Probes Bench::probe(const Shapes& shapes) {
  const std::unique_ptr<Lane> lane = make_lane();
  Stream& stream = *lane->stream;
  Probes probes;
  {
    const int64_t bytes = shapes.probe_bytes;
    const Operand o{.spec = {Shape{bytes / 2}, DType::bf16}};
    const Memory from = filled(o.spec, o, true, stream), to = filled(o.spec, o, true, stream);
    // The better of CUDA's copy, which as a node of a graph reached 2.7 of 4.3 TB/s on an H200, and of the simplest kernel.
    const Timing copy = time(stream, {[&] { stream.copy(to.data(), from.data(), bytes); },
                                      [&] { stream.copy(from.data(), to.data(), bytes); }});
    const std::vector<TensorSpec> x = {o.spec};
    const std::unique_ptr<Kernel> relu =
        lane->library->make({OpKind::activation, ActivationAttrs{Activation::relu}, x, x});
    const std::vector<Tensor> ends = {{from.data(), o.spec.shape, DType::bf16},
                                      {to.data(), o.spec.shape, DType::bf16}};
    const auto run = [&](int64_t input) {
      KernelCall call;
      call.in = std::span(ends).subspan(static_cast<size_t>(input), 1);
      call.out = std::span(ends).subspan(static_cast<size_t>(1 - input), 1);
      relu->run(call);
    };
    const Timing pass = time(stream, {[&] { run(0); }, [&] { run(1); }});
    probes.bytes_per_second = 2 * static_cast<double>(bytes) / std::min(copy.median, pass.median);
  }
  const int64_t n = shapes.probe_size;
  const Operand matrix{.spec = {Shape{n, n}, DType::bf16}};
  std::vector<Memory> memory;
  for (int i = 0; i < 3; ++i) memory.push_back(filled(matrix.spec, matrix, true, stream));
  const std::vector<Tensor> m = tensors_of({matrix, matrix, matrix}, memory, 0);
  const Memory workspace = device_->allocate(kProbeWorkspace, "scratch memory");
  const Tensor scratch{workspace.data(), Shape{kProbeWorkspace}, DType::u8};
  const double flops = 2 * std::pow(static_cast<double>(n), 3);
  for (const Product& product : gpu_->products(m[0], m[1], m[2], scratch, stream))
    probes.flops_per_second =
        std::max(probes.flops_per_second, flops / time(stream, {product}).median);
  if (probes.flops_per_second == 0) fail_run("the GEMM probe: cuBLASLt has no algorithm for it");
  return probes;
}

}  // namespace dstrain::bench
