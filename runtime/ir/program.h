// Program: the words a plan is written in. Buffers are named, typed pieces of memory without an
// address; instructions are ops over buffers, in an order that is correct when run one by one. A
// model emits the forward part, passes (runtime/plan) add the rest; nothing here knows ranks or
// devices.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/core/tensor.h"
#include "runtime/ir/op.h"

namespace dstrain {

using BufferId = int32_t;
inline constexpr BufferId kNone = -1;  // an absent operand

// The rows of the memory table (contract: `plan --json`).
enum class MemoryClass : uint8_t {
  parameters,
  gradients,
  optimizer,
  activations,
  communication,
  packed,
  workspace
};
inline constexpr int kMemoryClasses = 7;
std::string_view name_of(MemoryClass memory);

enum class Lifetime : uint8_t {
  persistent,  // from start to end of the run; found again by name in every plan
  step,        // from the first use in a step to the step's end
  micro,       // from first to last use within one micro-batch
};

struct Buffer {
  std::string name{};
  Shape shape{};
  DType dtype = DType::f32;
  MemoryClass memory = MemoryClass::activations;
  Lifetime lifetime = Lifetime::micro;
  BufferId parent = kNone;  // a view: elements [parent_offset, ...) of the parent
  int64_t parent_offset = 0;
  bool per_micro = false;  // one copy for every micro-batch of the step (inputs)
  int parameter = -1;      // index of the parameter whose value this is
  bool shared = false;     // peers read it: lives in memory registered with the communicator

  int64_t bytes() const { return shape.elements() * size_of(dtype); }
};

// When an instruction of the list is issued. A step is: step_begin; then for every micro-batch, in
// list order, every_micro and (in the last one) last_micro; then step_end.
enum class When : uint8_t { step_begin, every_micro, last_micro, step_end };

enum class Accumulate : uint8_t { never, after_first_micro, always };

struct Instruction {
  OpKind op{};
  When when = When::every_micro;
  Accumulate accumulate = Accumulate::never;
  OpAttrs attrs{};
  std::vector<BufferId> reads{};   // in the order of op.h
  std::vector<BufferId> writes{};  // updated in place where op.h says so
  int32_t group = 0;               // index into Program::groups: the layer it prints under
};

enum class Init : uint8_t { zeros, ones, normal, uniform };

struct Parameter {
  std::string name{};
  Shape shape{};
  Init init = Init::zeros;
  float init_scale = 0;  // normal: standard deviation; uniform: bound
  int unit = 0;
  int64_t offset = 0;  // elements from the start of the unit (set by the layout)
  BufferId value = kNone;
  BufferId gradient = kNone;  // f32; set by the backward pass
};

// A layer's parameters as one flat range: what is reduced, sharded, gathered and updated together.
struct Unit {
  std::string name{};
  std::vector<int> parameters{};
  int64_t elements = 0;  // padded to a multiple of the world size (set by the layout)
};

struct Program {
  DType dtype = DType::f32;  // the run's dtype: parameters, activations and their gradients
  std::vector<Buffer> buffers;
  std::vector<Instruction> instructions;
  std::vector<std::string> groups{""};
  std::vector<Parameter> parameters;
  std::vector<Unit> units;
  BufferId inputs = kNone;   // ids (R) or samples (B, in_size)
  BufferId targets = kNone;  // i32 (R)
  BufferId logits = kNone;
  BufferId loss = kNone;  // f64 (1): unscaled sum over the targets of this rank

  BufferId add_buffer(Buffer buffer);
  const Buffer& at(BufferId id) const { return buffers[static_cast<size_t>(id)]; }
  Buffer& at(BufferId id) { return buffers[static_cast<size_t>(id)]; }
  int32_t add_group(const std::string& name);    // index of a new or the newest equal group
  BufferId find(const std::string& name) const;  // kNone where no buffer has the name
  BufferId root(BufferId id) const;              // the buffer whose memory a view lies in
  // Elements [begin, begin + count) of `whole` as a flat buffer; `whole` itself where that is all.
  BufferId view(BufferId whole, int64_t begin, int64_t count);

 private:
  std::unordered_map<std::string, BufferId> by_name_{};  // the first of each name
};

}  // namespace dstrain
