// The axes of the mesh that the ranks of a run form (runtime/plan/mesh.h), from the slowest coordinate of a rank's number
// in the world to the fastest:
//   pipe      stages of the pipeline
//   replica   copies of a shard group
//   shard     ranks that divide state among themselves: all of them, unless a job gives their number
//   expert    ranks that divide the experts of each layer, and have different samples like those along `shard`
//   sequence  ranks that have parts of the same samples
//   tensor    ranks that have parts of the same layers
#pragma once

#include <cstdint>

namespace dstrain {

enum class Axis : uint8_t { pipe, replica, shard, expert, sequence, tensor };
inline constexpr int kAxes = 6;

// A set of axes, which says what group of a rank is meant.
class Axes {
 public:
  constexpr Axes() = default;
  constexpr Axes(Axis axis) : bits_(static_cast<uint8_t>(1U << static_cast<uint8_t>(axis))) {}

  constexpr bool has(Axis axis) const { return (bits_ & Axes(axis).bits_) != 0; }
  // Returns the same but for one axis.
  constexpr Axes without(Axis axis) const {
    Axes others;
    others.bits_ = static_cast<uint8_t>(bits_ & ~Axes(axis).bits_);
    return others;
  }
  constexpr bool operator==(const Axes&) const = default;
  friend constexpr Axes operator|(Axes a, Axes b) {
    Axes both;
    both.bits_ = a.bits_ | b.bits_;
    return both;
  }

 private:
  uint8_t bits_ = 0;
};
constexpr Axes operator|(Axis a, Axis b) {
  return Axes(a) | Axes(b);
}

// Ranks that have different samples.
inline constexpr Axes kSampleAxes = Axis::replica | Axis::shard | Axis::expert;
// Ranks that have the same parameters, but for experts: they add gradients, and each owns a slice of every unit.
inline constexpr Axes kStateAxes = kSampleAxes | Axis::sequence;
// Ranks that have the same experts.
inline constexpr Axes kExpertStateAxes = kStateAxes.without(Axis::expert);
// Ranks that have parts of the same parameters.
inline constexpr Axes kPartAxes = Axis::expert | Axis::tensor;
// Ranks whose forward passes differ: they have parts of the same samples or layers.
inline constexpr Axes kLayerAxes = Axis::expert | Axis::sequence | Axis::tensor;
inline constexpr Axes kAllAxes = kStateAxes | Axis::pipe | Axis::tensor;

}  // namespace dstrain
