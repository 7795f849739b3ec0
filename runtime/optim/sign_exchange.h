// The exchange of a unit's values as signs in two hops (runtime/ir/quantized.h): each rank sends every part to its
// owner, which adds those of all ranks and sends the sum to all. What either packing loses is kept and added the next
// time.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/optim/unit_update.h"

namespace dstrain {

class SignExchange {
 public:
  // Adds the codec state of the errors. One rank exchanges nothing.
  explicit SignExchange(UnitUpdate& update);

  // Packs and sends every part of `values`, f32 or of the run's dtype.
  void send(BufferId values, SignAttrs attrs);
  // Adds the parts that this rank owns, packs the sum and sends it.
  void forward();
  // Unpacks the sums to `values`, f32.
  void receive(BufferId values);

 private:
  bool alone() const { return update_.ranks() == 1; }
  BufferId add_error(const std::string& slot, int64_t elements);
  BufferId add_packed(const std::string& name);
  void measure(std::string_view of, BufferId packed, BufferId error);

  UnitUpdate& update_;
  int64_t part_ = 0;  // elements
  BufferId worker_error_ = kNone, owner_error_ = kNone, sent_ = kNone, received_ = kNone,
           sums_ = kNone, own_sum_ = kNone;
};

// The update of a unit in steps in which ranks keep their own gradients, in three parts, between which signs travel.
class SignUpdate {
 public:
  virtual ~SignUpdate() = default;

  // Appends the first part: values that this rank sends to their owners.
  virtual void send() = 0;
  // Appends the second part: owners send the sums to all ranks.
  void forward() {
    if (exchange_) exchange_->forward();
  }
  // Appends the rest.
  virtual void finish() = 0;

 protected:
  // `exchanges`: whether anything travels in steps of this kind.
  SignUpdate(UnitUpdate& update, bool exchanges) : update_(update) {
    if (exchanges) exchange_.emplace(update);
  }

  int64_t ranks() const { return update_.ranks(); }
  // Returns the share of a sum over ranks that is this rank's.
  float share() const { return 1.0f / static_cast<float>(ranks()); }

  UnitUpdate& update_;
  std::optional<SignExchange> exchange_;
};

}  // namespace dstrain
