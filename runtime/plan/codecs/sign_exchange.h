// The exchange of a unit's values as signs in two hops (runtime/ir/quantized.h): each rank sends every part to its
// owner, which adds those of all ranks and sends the sum to all. What either packing loses is kept and added the next
// time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/ir/program.h"
#include "runtime/plan/residency.h"

namespace dstrain {

class SignExchange {
 public:
  // `unit`: its index; `like`: an instruction of its update, whose place those of the exchange get. Adds the codec
  // state of the errors. One rank exchanges nothing.
  SignExchange(Program& program, Place place, size_t unit, const Instruction& like);

  // Packs and sends every part of `values`, f32 or of the run's dtype.
  void send(BufferId values, SignAttrs attrs);
  // Adds the parts that this rank owns, packs the sum and sends it.
  void forward();
  // Unpacks the sums to `values`, f32.
  void receive(BufferId values);

  // Returns an instruction of the unit's update.
  const Instruction& like() const { return like_; }
  // Appends an instruction of the unit's update.
  Instruction& emit(OpKind kind, std::vector<BufferId> reads, std::vector<BufferId> writes);

 private:
  const Unit& unit() const { return program_.units[unit_]; }
  bool alone() const { return place_.ranks() == 1; }
  BufferId add_error(const std::string& slot, int64_t elements);
  BufferId add_packed(const std::string& name);
  void measure(std::string_view of, BufferId packed, BufferId error);

  Program& program_;
  const Place place_;
  const size_t unit_;
  Instruction like_;
  int64_t part_ = 0;  // elements
  BufferId worker_error_ = kNone, owner_error_ = kNone, sent_ = kNone, received_ = kNone,
           sums_ = kNone, own_sum_ = kNone;
};

// Calls send(), forward() and update() of each unit. A unit's signs travel while those of the units before and behind
// it are packed, if collectives run beside computation.
template <class Unit>
void exchange_units(std::vector<Unit>& units, bool overlap) {
  const size_t apart = overlap ? 1 : 0, count = units.size();
  for (size_t i = 0; i < count + 2 * apart; ++i) {
    if (i < count) units[i].send();
    if (i >= apart && i - apart < count) units[i - apart].forward();
    if (i >= 2 * apart) units[i - 2 * apart].update();
  }
}

}  // namespace dstrain
